-- The metrics of all workers under ngx_lua.

local dkjson = require "dkjson"
local files = require "spec.support.files"
local process = require "spec.support.process"
local resty = require "spec.support.resty"
local status = require "spec.support.status"

if not resty.is_there() then return end

local front, server, stop = resty.front, resty.server, resty.stop
local PATIENCE, start = status.PATIENCE, status.start
local eventually = status.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  local function acquired()
    return tonumber(front:get("/metrics").body:match('holdfast_acquires_total{class="orders",outcome="acquired"} (%d+)'))
  end

  describe("metrics", function()
    it("are the exact sums over two workers, and survive a reload", function()
      start { workers = 2 }
      local seen, count = {}, 0
      local function work(times)
        for _ = 1, times do
          local response = front:get("/work")
          assert.equal(200, response.status, response.body)
          seen[response.body], count = true, count + 1
        end
      end
      eventually(function()
        work(10)
        return seen[tostring(front:workers()[1])] and seen[tostring(front:workers()[2])]
      end)
      eventually(function()
        return acquired() == count
      end, nil, function() return ("%s of %d"):format(acquired(), count) end)
      local before = front:workers()
      work(20) -- the workers are asked to end before they add this to the sums
      front:reload()
      eventually(function()
        for _, pid in ipairs(front:workers()) do
          if pid == before[1] or pid == before[2] then return false end
        end
        return #front:workers() == 2
      end)
      work(15)
      eventually(function()
        return acquired() == count
      end, nil, function() return ("%s of %d"):format(acquired(), count) end)
    end)

    it("include the counts of a client that was closed right after its use", function()
      start {}
      for i = 1, 5 do
        assert.equal("done", front:get("/once").body)
        eventually(function()
          return acquired() == i
        end, nil, function() return ("%s of %d"):format(acquired(), i) end)
      end
    end)

    it("include counts and losses of clients with the blocking driver", function()
      local new = 'HOLDFAST.new { url = CLIENT_URL, driver = "posix", class = "%s", lease = 1 }'
      local function use(class, name)
        return ([[ local client = %s client:with_lock("%s", function() end) ]]):format(
          new:format(class), name)
      end
      start {
        init = ("EARLY = %s EARLY:with_lock('a', function() end)"):format(new:format("early")),
        http = ("init_worker_by_lua_block { BLOCKING = %s BLOCKING:with_lock('a', function() end) }")
          :format(new:format("blocking")),
        more = ([[
          location = /early { content_by_lua_block { EARLY:with_lock("a", function() end) } }
          location = /block { content_by_lua_block { BLOCKING:with_lock("a", function() end) } }
          location = /closed { content_by_lua_block { CLOSED client:close() } }
          location = /left { content_by_lua_block { LEFT = BLOCKING:lock("left") LEFT:acquire() } }
        ]]):gsub("CLOSED", use("closed", "b")),
      }
      local function comes_to_say(line)
        eventually(function() return front:get("/metrics").body:find(line, 1, true) end, nil, line)
      end
      comes_to_say 'holdfast_acquires_total{class="blocking",outcome="acquired"} 1\n'
      for i = 2, 4 do
        front:get("/block")
        comes_to_say(('holdfast_acquires_total{class="blocking",outcome="acquired"} %d\n'):format(i))
      end
      comes_to_say 'holdfast_acquires_total{class="early",outcome="acquired"} 1\n'
      front:get("/early")
      comes_to_say 'holdfast_acquires_total{class="early",outcome="acquired"} 2\n'
      front:get("/closed")
      comes_to_say 'holdfast_releases_total{class="closed"} 1\n'
      front:get("/left")
      eventually(function() return server:cli("DEL", "left") == 1 end)
      comes_to_say 'holdfast_losses_total{class="blocking",reason="deleted"} 1\n' -- without a call of holdfast
      for _ = 1, 5 do front:get("/block") end
      front:reload()
      comes_to_say 'holdfast_acquires_total{class="blocking",outcome="acquired"} 11\n' -- and the new worker
    end)

    it("use the class of an idempotent request, whose listener receives its events", function()
      start {}
      assert.equal("paid", front:get("/paid").body)
      eventually(function()
        return front:get("/noted").body == "acquired pay;released pay;"
      end, nil, function() return front:get("/noted").body end)
      eventually(function()
        return front:get("/metrics").body:find('holdfast_releases_total{class="pay"} 1', 1, true)
      end)
    end)

    it("omit the number of holds, and name the missing dict", function()
      resty.expect_errors()
      start {}
      front:get("/work")
      eventually(function() return acquired() == 1 end)
      local text = front:get("/metrics").body
      assert.is_nil(text:find("holdfast_holds", 1, true))
      assert.truthy(text:find('holdfast_losses_total{class="orders",reason="deleted"} 0\n', 1, true))
      local bounds, last = {}, 0
      for bound, at in text:gmatch('holdfast_wait_seconds_bucket{class="orders",le="([^"]+)"}()') do
        bounds[#bounds + 1], last = tonumber(bound) or math.huge, at
      end
      for i = 2, #bounds do assert.is_true(bounds[i - 1] < bounds[i], bounds[i]) end
      assert.equal(math.huge, bounds[#bounds])
      local count = text:find('holdfast_wait_seconds_count{class="orders"}', 1, true)
      local sum = text:find('holdfast_wait_seconds_sum{class="orders"}', 1, true)
      assert.is_true(last < count and count < sum)
      stop()
      start { dict = "", more = "location = /closed { content_by_lua_block { CLIENT:close() } }\n" }
      front:get("/work")
      assert.equal(200, front:get("/closed").status)
      assert.same({}, front:errors())
      assert.equal(500, front:get("/metrics").status)
      assert.matches('there is no shared dict; add "lua_shared_dict holdfast 1m;"',
        table.concat(front:errors(), "\n"), 1, true)
      assert.matches("content_by_lua%b():%d+: holdfast.metrics: there is",
        table.concat(front:errors(), "\n"))
    end)

    it("count losses by class, which the page adds up by reason", function()
      start { more = [[ location = /lose_another { content_by_lua_block {
        local other = HOLDFAST.new { url = CLIENT_URL, driver = "posix" }
        for _, class in ipairs { "a", "b" } do
          local lock = CLIENT:lock("lost", { class = class })
          assert(lock:acquire())
          other:lock("lost"):force_release()
          lock:check()
        end
        other:close()
        ngx.print("lost")
      } } ]] }
      assert.equal("lost", front:get("/lose").body)
      assert.equal("lost", front:get("/lose_another").body)
      local losses
      eventually(function()
        losses = dkjson.decode(front:get("/status?json").body).losses
        return losses.deleted == 3
      end, nil, function() return losses and losses.deleted end)
      local all = 0
      for _, count in pairs(losses) do all = all + count end
      assert.equal(3, all)
    end)

    it("do not change other entries of the dict", function()
      start { more = [[ location = /others { content_by_lua_block {
        local dict = ngx.shared.holdfast
        dict:set("of another", 1)
        dict:set("of|another", "text")
        dict:set("losses_total", "text")
      } } ]] }
      front:get("/work")
      front:get("/others")
      eventually(function() return acquired() == 1 end)
      local text = front:get("/metrics").body
      assert.is_nil(text:find("another", 1, true))
      assert.equal(200, front:get("/status?json").status)
    end)

    local PARSERS = {
      openmetrics = "from prometheus_client.openmetrics.parser import text_fd_to_metric_families as read\n",
      text = "from prometheus_client.parser import text_fd_to_metric_families as read\n",
    }

    -- → how many families Prometheus's own parser finds
    local function families(text, parser)
      local directory = process.directory()
      files.write(directory .. "/metrics", text)
      local child = process.start { "/usr/bin/python3", "-c", "import sys\n" .. PARSERS[parser]
        .. "print(len(list(read(open(sys.argv[1])))))", directory .. "/metrics", env = { LD_PRELOAD = false } }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      process.remove(directory)
      return tonumber(child:output())
    end

    it("are accepted by Prometheus's parsers in the requested format", function()
      start { more = [[ location = /other { content_by_lua_block {
        for _, class in ipairs { "a", "other", "z" } do
          CLIENT:with_lock("of " .. class, { class = class }, function() end)
        end
      } } ]] }
      front:get("/work")
      front:get("/other")
      eventually(function()
        return acquired() == 1 and front:get("/metrics").body:find('class="z"', 1, true)
      end)
      local OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
      local TEXT = "text/plain; version=0.0.4; charset=utf-8"
      local accepted = {
        { "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1", OPENMETRICS },
        { "application/openmetrics-text; version=0.0.1", OPENMETRICS },
        { "Application/OpenMetrics-Text , text/plain", OPENMETRICS },
        { "text/plain, application/openmetrics-text;q=0.9", TEXT },
        { "application/openmetrics-text;q=0, */*", TEXT },
        { "text/plain;version=0.0.4", TEXT }, { "*/*", TEXT }, { "", TEXT }, { nil, TEXT },
      }
      for i = 1, 9 do
        local accept, format = accepted[i][1], accepted[i][2]
        local response = front:get("/metrics", { headers = { Accept = accept } })
        assert.equal(format, response.headers["content-type"], accept)
        local is_text = format == TEXT
        assert.equal(not is_text, response.body:find("# EOF\n$") ~= nil)
        local named = is_text and "holdfast_releases_total" or "holdfast_releases"
        local line = ("# TYPE %s counter\n"):format(named)
        assert.truthy(response.body:find(line, 1, true), response.body)
        if i == 1 or i == 9 then
          assert.is_true(families(response.body, is_text and "text" or "openmetrics") >= 10)
        end
      end
    end)

    it("keep their values when the dict is full, and count and log what does not fit", function()
      resty.expect_errors()
      start { dict = "lua_shared_dict holdfast 64k;", more = [[
        location = /other { content_by_lua_block { for i = 1, 20 do
          CLIENT:with_lock("of " .. i, { class = "class" .. i }, function() end)
        end
      } } ]] }
      local count = 0
      local function work()
        front:get("/work")
        count = count + 1
        eventually(function() return acquired() == count end)
      end
      local openmetrics = { headers = { Accept = "application/openmetrics-text" } }
      local function text() return front:get("/metrics", openmetrics).body end
      work()
      assert.equal("0", text():match("holdfast_dropped_series_total (%d+)"))
      for _ = 1, 3 do
        front:get("/other")
        work()
      end
      local dropped
      eventually(function()
        dropped = tonumber(text():match("holdfast_dropped_series_total (%d+)"))
        return dropped > 0
      end)
      assert.equal("3", text():match('holdfast_releases_total{class="class1"} (%d+)'))
      assert.is_nil(text():find('class="class20"', 1, true))
      assert.is_true(families(text(), "openmetrics") >= 10) -- the parser refuses an incomplete histogram
      work()
      assert.equal(dropped, tonumber(text():match("holdfast_dropped_series_total (%d+)"))) -- each counts once
      local errors = front:errors()
      assert.equal(1, #errors, table.concat(errors, "\n"))
      assert.matches("lua_shared_dict holdfast: no memory is left for .*holdfast_dropped_series_total", errors[1])
    end)
  end)
end)
