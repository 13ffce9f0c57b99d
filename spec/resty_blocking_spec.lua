-- Under ngx_lua: the blocking driver, in every phase of a request and without a request.

local process = require "spec.support.process"
local resty = require "spec.support.resty"

if not resty.is_there() then return end

local FINISH, comes_to_be_recorded = resty.FINISH, resty.comes_to_be_recorded
local free_within, front, handler = resty.free_within, resty.front, resty.handler
local is_free, say, server, start = resty.is_free, resty.say, resty.server, resty.start

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("the blocking driver", function()
    local BLOCKING = [[ init_worker_by_lua_block {
      BLOCKING = HOLDFAST.new { url = "%s", driver = "posix", lease = 30 }
    }
    ]]
    local function blocking() return BLOCKING:format(server:url()) end

    it("acquires and releases in every request of a worker", function()
      start { http = BLOCKING:format(server:url()), server = handler("/with", [[
        SAY(BLOCKING:with_lock("a", { wait = 0 }, function(lock) return lock:owner() ~= nil, lock:is_held() end))
      ]]) .. handler("/hand", [[
        local lock = BLOCKING:lock("a", { wait = 0 })
        SAY(lock:acquire() == lock, lock:holds(), lock:release(), lock:lost())
      ]]) .. handler("/all", [[
        local both = BLOCKING:multi_lock { "a", "b" }
        SAY(both:acquire(0) == both, both:is_held(), both:release())
      ]]) .. handler("/one", [[
        local held = function(lock) return lock:is_held() end
        SAY(BLOCKING:one_by_one { queue = false }:execute("a", 1, held))
      ]]) .. handler("/once", [[
        SAY(BLOCKING:idempotent("a", { delete_key = true }, function() return "ran" end))
      ]]) }
      for _ = 1, 3 do
        assert.equal("true|true", say "/with")
        assert.equal("true|1|true|nil", say "/hand")
        assert.equal("true|true|true", say "/all")
        assert.equal("true", say "/one")
        assert.equal("ran", say "/once")
        assert.is_true(is_free("a") and is_free("b") and is_free("a_1"))
      end
    end)

    it("releases what a request left held, which no later request could re-enter", function()
      start { http = BLOCKING:format(server:url()), server = handler("/leak", [[
        LEFT = BLOCKING:lock(ngx.var.arg_k)
        LEFT:acquire()
      ]]) .. "location /exit { " .. FINISH .. [[ content_by_lua_block {
        BLOCKING:with_lock("b", function() ngx.exit(204) end)
      } }
      ]] .. handler("/take", [[ SAY(select(3, BLOCKING:lock(ngx.var.arg_k):acquire(0))) ]]) }
      for _ = 1, 3 do
        assert.equal(204, front:get("/exit").status)
        assert.truthy(free_within("b", 1))
      end
      assert.equal("", say "/leak?k=a")
      for _ = 1, 5 do assert.equal("busy", say "/take?k=a") end
    end)

    it("runs idempotent_request", function()
      start { http = BLOCKING:format(server:url()), server = FINISH .. [[ location /pay {
        access_by_lua_block { HOLDFAST.idempotent_request { client = BLOCKING, key = "p", expire = 60 } }
        content_by_lua_block { SAY("ran") }
      } location /fail {
        access_by_lua_block { HOLDFAST.idempotent_request { client = BLOCKING, key = "f", expire = 60 } }
        content_by_lua_block { ngx.exit(500) }
      } ]] }
      assert.equal("ran", say "/pay")
      comes_to_be_recorded "p"
      assert.equal("duplicate request", say "/pay")
      assert.equal(500, front:get("/fail").status)
      assert.truthy(free_within("idempotent:f", 5))
    end)

    it("acquires a lock in every phase of a request", function()
      local USE = [[ USED(BLOCKING:with_lock("a", { wait = 0 }, function(lock) return lock:is_held() end)) ]]
      start {
        http = "lua_shared_dict holdfast 1m;\n" .. blocking():gsub("}%s*$", [[
          USED = function(...) ngx.shared.counters:incr(tostring((...)), 1, 0) end
        } ]]),
        server = ([[ location / {
          set_by_lua_block $x { USE }
          rewrite_by_lua_block { USE }
          access_by_lua_block { USE }
          content_by_lua_block { SAY("here") }
          header_filter_by_lua_block { USE }
          body_filter_by_lua_block { if ngx.arg[2] then USE end }
          log_by_lua_block { USE HOLDFAST.finish() }
        } ]]):gsub("USE", USE) .. handler("/used", [[ SAY(ngx.shared.counters:get("true")) ]]),
      }
      for i = 1, 3 do
        assert.equal("here", say "/")
        assert.truthy(process.wait_until(function()
          return say "/used" == tostring(6 * i)
        end, 20), say "/used")
      end
      assert.is_true(is_free("a"))
    end)

    it("gives each request a different owner, even in phases without a coroutine", function()
      start {
        http = blocking():gsub("}%s*$", [[
          local locks = {}
          function TAKE(key)
            locks[key] = locks[key] or BLOCKING:lock(key)
            local got, _, code = locks[key]:acquire(0)
            ngx.shared.counters:rpush(key, got and "held" or code)
          end
          function HOLDS(key) return locks[key]:holds() end
          function RELEASE(key) return locks[key]:release() end
          TAKE "worker"
        }
        exit_worker_by_lua_block {
          ngx.log(ngx.NOTICE, "the worker's: ", tostring(RELEASE "worker"), ".")
        }
        upstream up {
          server 127.0.0.1:1;
          balancer_by_lua_block { TAKE "balancer" ngx.exit(500) }
        } ]]),
        server = [[ location / {
          set_by_lua_block $x { TAKE "worker" TAKE "set" }
          content_by_lua_block { SAY("here") }
          header_filter_by_lua_block { TAKE "header_filter" }
          body_filter_by_lua_block { if ngx.arg[2] then TAKE "body_filter" end }
          log_by_lua_block { ngx.shared.counters:rpush("holds", HOLDS "set") TAKE "log" }
        }
        location /balanced { proxy_pass http://up; }
        ]] .. handler("/said", [[ SAY(ngx.shared.counters:lpop(ngx.var.arg_in)) ]]),
      }
      local function said(name)
        local one
        assert.truthy(process.wait_until(function()
          one = say("/said?in=" .. name)
          return one ~= "nil"
        end, 20), name)
        return one
      end
      assert.equal("held", said "worker")
      for i, wanted in ipairs { "held", "busy" } do
        assert.equal("here", say "/")
        front:get "/balanced"
        assert.equal("busy", said "worker")
        for _, phase in ipairs { "set", "header_filter", "body_filter", "log", "balancer" } do
          assert.equal(wanted, said(phase), phase)
        end
        assert.equal(tostring(2 - i), said "holds")
      end
      assert.same({}, front:errors())
      front:stop()
      assert.truthy(front:log():find("the worker's: true.", 1, true))
    end)

    it("keeps a request's owner across an internal redirect in phases without a coroutine", function()
      start { http = BLOCKING:format(server:url()), server = FINISH .. [[
        location /from {
          set_by_lua_block $x { LOCK = BLOCKING:lock("a") LOCK:acquire(0) }
          content_by_lua_block { ngx.exec("/to") }
        }
        location /to {
          content_by_lua_block { SAY("here") }
          header_filter_by_lua_block { ngx.header.released = tostring(LOCK:release()) }
        } ]] }
      for _ = 1, 3 do assert.equal("true", front:get("/from").headers.released) end
    end)

    it("acquires a lock in the master's init phase, without a request", function()
      start { init = ([[
        local client = require("holdfast").new { url = "%s", driver = "posix" }
        BEGUN = client:with_lock("a", function(lock) return lock:is_held() end)
        client:close()
      ]]):format(server:url()), server = handler("/", "SAY(BEGUN)") }
      assert.equal("true", say "/")
      assert.is_true(is_free("a"))
    end)

    it("acquires locks in a worker's init phase, before any request", function()
      start { http = blocking():gsub("}%s*$", [[
        BLOCKING:with_lock("a", function() BLOCKING:with_lock("b", function() BEGUN = true end) end)
      }
      ]]), server = handler("/", "SAY(BEGUN)") }
      assert.equal("true", say "/")
      assert.is_true(is_free("a") and is_free("b"))
    end)
  end)
end)
