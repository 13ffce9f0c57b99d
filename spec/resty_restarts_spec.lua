-- Under ngx_lua: reloads, quits and crashes of nginx, and restarts of Redis under load.

local process = require "spec.support.process"
local resty = require "spec.support.resty"

if not resty.is_there() then return end

local FINISH, comes_to_say, comes_to_wait = resty.FINISH, resty.comes_to_say, resty.comes_to_wait
local front, handler = resty.front, resty.handler
local hold_elsewhere, is_free, reply_of = resty.hold_elsewhere, resty.is_free, resty.reply_of
local say, server, start = resty.say, resty.server, resty.start
local eventually = process.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("nginx", function()
    local WORK = FINISH .. handler("/work", [[
      local done, _, code = CLIENT:with_lock("k" .. ngx.var.arg_k, { wait = 10 }, function()
        ngx.sleep(0.01)
        return true
      end)
      SAY(done, code)
    ]]) .. handler("/slow", [[
      SAY(CLIENT:with_lock("slow", function(lock)
        ngx.sleep(1.5)
        return lock:check()
      end))
    ]])

    -- Sends `width` requests at a time for `seconds`, and calls at(elapsed) before each round.
    -- → how many requests had each result
    local function load(seconds, width, at)
      local from, under_way, results = process.now(), {}, {}
      local function count(response)
        local what = response and (response.body:gsub("\n$", "")) or "no answer"
        results[what] = (results[what] or 0) + 1
      end
      while process.now() - from < seconds do
        at(process.now() - from)
        for i = 1, width do under_way[i] = front:begin("/work?k=" .. i % 3) end
        for i = 1, width do count((under_way[i]:finish(15))) end
      end
      return results
    end

    local function once(seconds, act)
      local done = false
      return function(elapsed)
        if done or elapsed < seconds then return end
        done = true
        act()
      end
    end

    it("reloads under load without a failed request or a stale lock", function()
      start { workers = 2, lease = 3, server = WORK }
      local old, slow = front:workers(), nil
      local results = load(1.5, 20, once(0.5, function()
        slow = front:begin("/slow")
        process.sleep(0.1)
        front:reload()
      end))
      assert.equal("true", (slow:finish().body:gsub("\n", "")))
      assert.truthy(process.wait_until(function()
        local now = table.concat(front:workers(), " ") .. " "
        return not now:find(old[1] .. " ", 1, true) and not now:find(old[2] .. " ", 1, true)
      end, 20), "old workers stay")
      assert.equal(2, #front:workers())
      for what in pairs(results) do assert.equal("true|nil", what) end
      front:stop()
      assert.same({}, server:cli("KEYS", "k*"))
    end)

    it("quits only after a request has finished, whose lock is renewed until then", function()
      start { lease = 1.2, server = WORK }
      local slow = front:begin("/slow")
      process.sleep(0.2)
      front.process:kill("QUIT")
      assert.equal("true", (slow:finish().body:gsub("\n", "")))
      assert.equal("exit", front.process:wait(20))
      assert.is_true(is_free("slow"))
    end)

    local function quits_soon(server_hangs)
      for _, finish in ipairs { "", FINISH } do
        start { command_timeout = 20, server = handler("/stays", [[
          assert(CLIENT:lock("stays"):acquire(0))
          SAY("left")
        ]]) .. "location /leaves { " .. finish .. [[ content_by_lua_block {
          assert(CLIENT:lock("left"):acquire(0))
          SAY("left")
          ngx.flush(true)
          LEFT = true
          while not OVER do ngx.sleep(0.001) end
        } } ]] .. handler("/over", "OVER = true SAY(OVER)") .. handler("/left", "SAY(LEFT)") }
        assert.equal("left", say "/stays")
        local request = front:begin "/leaves"
        comes_to_say("/left", "true")
        if server_hangs then server:kill("STOP") end
        assert.equal("true", say "/over")
        assert.equal("left", reply_of(request))
        front.process:kill("QUIT")
        assert.equal("exit", front.process:wait(10), finish)
        server:kill("CONT")
        server:cli("FLUSHALL")
      end
    end

    it("quits soon even if finished requests have left timers and connections", function() quits_soon(false) end)

    it("quits soon even while the server hangs", function() quits_soon(true) end)

    -- The task looks once a second for callers that are gone.
    it("quits only after waits and slow replies of its requests have ended", function()
      local lock = hold_elsewhere "k"
      start { command_timeout = 20, server = FINISH
        .. handler("/one", [[ SAY(CLIENT:lock("k"):acquire(20) ~= nil) ]])
        .. handler("/both", [[
          local both = CLIENT:multi_lock { "a", "b" }
          assert(CLIENT:ping())
          ngx.shared.counters:set("both", true)
          while not ngx.worker.exiting() do ngx.sleep(0.01) end
          SAY(both:acquire(0) == both)
        ]]) .. handler("/is_there", [[ SAY(ngx.shared.counters:get("both")) ]]) }
      local one, both = front:begin("/one"), front:begin("/both")
      eventually(function()
        return server:cli("ZCARD", "holdfast_queue:{k}") == 1 and say "/is_there" == "true"
      end)
      server:kill("STOP")
      front.process:kill("QUIT")
      process.sleep(1.3)
      server:kill("CONT")
      assert.equal("true", reply_of(both))
      assert(lock:release())
      assert.equal("true", reply_of(one))
      assert.equal("exit", front.process:wait(20))
      assert.same({}, front:errors())
    end)

    it("with crash_release hands a killed worker's lock to a waiter of a sibling at once", function()
      resty.expect_errors()
      local client = ([[
        local CRASH = package.loaded.crash or HOLDFAST.new { url = "%s", crash_release = true }
        package.loaded.crash = CRASH
        local lock = CRASH:lock("k")
        ngx.log(ngx.NOTICE, ngx.var.uri, " in ", ngx.worker.pid(), ".")
      ]]):format(server:url())
      start { workers = 2, server = handler("/hold", client .. [[
        assert(lock:acquire(0))
        ngx.log(ngx.NOTICE, "holds ", lock:owner(), ".")
        ngx.sleep(60)
      ]]) .. handler("/wait", client .. [[
        local held = lock:acquire(25)
        SAY(held ~= nil, held and lock:release())
      ]]) }
      local holding, sibling, requests = front:begin("/hold"), nil, {}
      local uuid = process.wait_until(function() return front:log():match("holds (%S+):%d+%.") end)
      local holder = tonumber(front:log():match("/hold in (%d+)"))
      eventually(function() -- the kernel chooses a worker for each request
        requests[#requests + 1] = front:begin("/wait")
        process.wait_until(function() return select(2, front:log():gsub("/wait in", "")) == #requests end)
        sibling = tonumber(front:log():match(".*/wait in (%d+)"))
        return sibling ~= holder
      end)
      comes_to_wait(#requests, "k")
      process.sleep(0.2)
      local from = process.now()
      process.signal(holder, "KILL")
      assert.equal("true|true\n", requests[#requests]:finish().body)
      assert.is_true(process.now() - from < 20, "it waited for the lease")
      holding:abort()
      for _, request in ipairs(requests) do request:abort() end
      process.succeeds(("rm -f /dev/shm/holdfast-$(id -u)/%s"):format(uuid))
    end)

    it("recovers by itself when Redis restarts under load, and no request hangs", function()
      resty.expect_errors()
      start { workers = 2, lease = 3, server = WORK }
      local results = load(2, 20, once(0.3, function() server:restart() end))
      for what in pairs(results) do
        assert.truthy(what == "true|nil" or what == "nil|unreachable" or what == "nil|lost" , what)
      end
      assert.is_true((results["true|nil"] or 0) > 20)
      for i = 1, 20 do assert.equal("true|nil", say("/work?k=" .. i)) end
    end)

    it("makes calls fail as unreachable within seconds if Redis is down or hangs", function()
      resty.expect_errors()
      start { server = WORK }
      assert.equal("true|nil", say "/work?k=1")
      server:kill("STOP")
      local from = process.now()
      assert.equal("nil|unreachable", say "/work?k=1")
      assert.is_true(process.now() - from < 8)
      server:kill("CONT")
      comes_to_say("/work?k=2", "true|nil")
      server:kill("KILL")
      from = process.now()
      assert.equal("nil|unreachable", say "/work?k=1")
      assert.is_true(process.now() - from < 8)
      server:restart()
      comes_to_say("/work?k=2", "true|nil")
    end)
  end)
end)
