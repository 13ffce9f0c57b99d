-- Under ngx_lua: how losses and events are delivered.

local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local resty = require "spec.support.resty"

if not resty.is_there() then return end

local PATIENCE = 20

local eventually, front = process.eventually, resty.front
local hold_elsewhere, server, use = resty.hold_elsewhere, resty.server, resty.use

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  it("a loss is reported to on_lost and on_event without a further call", function()
    use(nginx.start {
      http = ([[
        lua_shared_dict noted 1m;
        init_by_lua_block {
          local function note(event)
            if event.event == "lost" then ngx.shared.noted:set("event", event.key .. " " .. event.code) end
          end
          CLIENT = require("holdfast").new { url = "%s", on_event = note }
        }
      ]]):format(server:url()),
      server = [[
        location = /hold { content_by_lua_block {
          LOCK = CLIENT:lock("k", { lease = 2, watchdog = true, owner = "o", on_lost = function(_, reason)
            ngx.shared.noted:set("lost", reason)
          end })
          assert(LOCK:acquire())
          ngx.say("held")
          ngx.flush(true)
          ngx.sleep(10)
        } }
        location = /noted { content_by_lua_block {
          ngx.print(ngx.shared.noted:get("event"), "; ", ngx.shared.noted:get("lost"))
        } }
      ]],
    })
    local request = front:begin("/hold")
    eventually(function() return server:cli("EXISTS", "k") == 1 end)
    server:cli("DEL", "k")
    eventually(function()
      return front:get("/noted").body == "k deleted; deleted"
    end, nil, function() return front:get("/noted").body end)
    request:abort()
  end)

  it("events are delivered even after a request ended in a listener, which may wait", function()
    use(nginx.start {
      http = ([[
        lua_shared_dict noted 1m;
        init_by_lua_block {
          CLIENT = require("holdfast").new { url = "%s", on_event = function(event)
            local noted, what = ngx.shared.noted, event.event .. " " .. (event.key or "")
            if what == "lost k" then
              noted:set("took", CLIENT:with_lock("log", { wait = 60 }, function() return "yes" end))
            elseif what == "acquired stuck" then
              noted:set("phase", ngx.get_phase())
              CLIENT:lock("log"):acquire(60)
            end
            noted:set(what, "noted")
          end }
        }
      ]]):format(server:url()),
      server = [[
        location = /hold { content_by_lua_block {
          LOCK = CLIENT:lock("k", { lease = 2, watchdog = true })
          KEPT = CLIENT:lock("kept", { lease = 2, watchdog = true })
          assert(LOCK:acquire())
          assert(KEPT:acquire())
          ngx.say("held")
          ngx.flush(true)
          ngx.sleep(30)
        } }
        location = /stuck { content_by_lua_block {
          ngx.thread.spawn(function() CLIENT:lock("stuck"):acquire() end)
          repeat ngx.sleep(0.01) until ngx.shared.noted:get("phase")
          ngx.exit(200)
        } }
        location = /work { content_by_lua_block {
          CLIENT:with_lock("work", function() end)
          ngx.print(ngx.shared.noted:get("released work"))
        } }
        location = /noted { content_by_lua_block {
          ngx.print(ngx.shared.noted:get(ngx.var.arg_what))
        } }
      ]],
    })
    local log = hold_elsewhere "log"
    local function noted(what) return front:get("/noted?what=" .. what).body end
    local function is_waited_for() return server:cli("ZCARD", "holdfast_queue:{log}") == 1 end
    local request = front:begin("/hold")
    eventually(function() return server:cli("EXISTS", "k", "kept") == 2 end)
    server:cli("DEL", "k")
    eventually(is_waited_for)
    process.sleep(2.7)
    assert.equal(1, server:cli("EXISTS", "kept"))
    assert.is_true(log:release())
    eventually(function() return noted("took") == "yes" end)
    request:abort()
    assert(log:acquire(PATIENCE))
    front:get("/stuck")
    assert.equal("content", noted("phase"))
    eventually(function()
      process.sleep(0.2) -- some looks of the client's task come before a request
      return front:get("/work").body == "noted"
    end)
    eventually(function() return not is_waited_for() end)
    log:release()
  end)
end)
