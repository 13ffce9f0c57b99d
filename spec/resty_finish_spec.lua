-- Under ngx_lua: what the end of a request releases, with and without holdfast.finish() in
-- log_by_lua.

local process = require "spec.support.process"
local resty = require "spec.support.resty"

if not resty.is_there() then return end

local FINISH, comes_to_say, comes_to_wait = resty.FINISH, resty.comes_to_say, resty.comes_to_wait
local free_within, front, handler = resty.free_within, resty.front, resty.handler
local hold_elsewhere, is_free, reply_of = resty.hold_elsewhere, resty.is_free, resty.reply_of
local say, server, start = resty.say, resty.server, resty.start
local eventually = process.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  -- Handlers that acquire the lock on "a" and end without a release.
  local ENDS = {
    { "ngx.exit", [[ CLIENT:with_lock("a", function() ngx.exit(204) end) ]] },
    { "an error behind a second entry", [[
      local lock = CLIENT:lock("a")
      lock:acquire()
      lock:acquire()
      error("on purpose") ]] },
    { "only a return", [[ CLIENT:lock("a"):acquire() ]] },
    { "ngx.exec", [[ CLIENT:with_lock("a", function() ngx.exec("/done") end) ]] },
    { "an error page", [[ CLIENT:with_lock("a", function() ngx.exit(418) end) ]] },
    { "ngx.thread.kill", [[
      local thread = ngx.thread.spawn(CLIENT.with_lock, CLIENT, "a", function() ngx.sleep(10) end)
      while not CLIENT:lock("a"):is_locked() do end
      ngx.thread.kill(thread) ]] },
    { "an error in a sibling", [[
      ngx.thread.spawn(CLIENT.with_lock, CLIENT, "a", function() ngx.sleep(10) end)
      while not CLIENT:lock("a"):is_locked() do end
      ngx.exit(500) ]] },
  }

  local ENDLESS = handler("/hold", [[ CLIENT:with_lock("a", function() ngx.sleep(60) end) ]])
    .. handler("/wait", [[ CLIENT:with_lock("a", { wait = math.huge }, function() ngx.sleep(60) end) ]])
    .. handler("/next", [[ SAY(CLIENT:with_lock("a", { wait = 5 }, function() return true end)) ]])
    .. handler("/done", [[ CLIENT:lock("b"):is_held() ]])
    .. "error_page 418 /done; lua_check_client_abort on; lua_socket_log_errors on;\n"

  local function locations_of_ends()
    local text = ENDLESS
    for i, each in ipairs(ENDS) do text = text .. handler("/end" .. i, each[2]) end
    return text
  end

  -- The waiters leave the queue before the holder disconnects.
  local function disconnect_holder_and_waiters()
    local holder, waiters = front:begin("/hold"), {}
    eventually(function() return not is_free("a") end)
    for i = 1, 20 do waiters[i] = front:begin("/wait") end
    comes_to_wait(20, "a")
    for _, waiter in ipairs(waiters) do waiter:abort() end
    eventually(function() return server:cli("ZCARD", "holdfast_queue:{a}") == 0 end)
    holder:abort()
  end

  describe("with holdfast.finish() in log_by_lua", function()
    it("releases a request's lock, however the request ends", function()
      resty.expect_errors()
      start { server = FINISH .. locations_of_ends() }
      for i, each in ipairs(ENDS) do
        local response = front:begin("/end" .. i):finish()
        assert.truthy(response, each[1])
        assert.truthy(free_within("a", 5), each[1]) -- not after 30 s
      end
    end)

    it("releases at once what a request holds, even if acquired after an earlier finish()", function()
      start { server = FINISH .. handler("/", [[
        local lock = CLIENT:lock("a")
        assert(lock:acquire(5))
        HOLDFAST.finish()
        SAY(lock:is_held(), lock:acquire(5) == lock)
        ngx.sleep(0.05)
      ]]) }
      local seconds = 0
      for _ = 1, 12 do
        assert.equal("false|true", say "/")
        seconds = seconds + assert(free_within("a", 5))
      end
      assert.is_true(seconds < 1.2, seconds) -- the task alone would take 0.2 s each time
    end)

    -- A request waits, runs `act`, and continues; the message of its wait contains `why`.
    local function interrupt(act, why)
      local lock = hold_elsewhere "a"
      start { server = FINISH .. handler("/", [[
        local function wait() return select(2, CLIENT:lock("a"):acquire(20)) end
        local thread = ngx.thread.spawn(wait)
        while CLIENT:lock("a"):info().waiters == 0 do end
        ]] .. act .. [[
        SAY(select(2, ngx.thread.wait(thread)))
        SAY(select(2, ngx.thread.wait(ngx.thread.spawn(function()
          return select(3, CLIENT:lock("a"):acquire(0))
        end))))
      ]]) }
      assert.matches('^cannot acquire "a" on unix:%S+: ' .. why .. "|interrupted\nbusy$", say "/")
      assert.equal(0, server:cli("ZCARD", "holdfast_queue:{a}"))
      assert(lock:release())
    end

    it("ends a request's waits even if the request then continues", function()
      interrupt("HOLDFAST.finish() ", "holdfast.finish%(%) has ended the wait")
    end)

    it("ends a wait whose request replaced ngx.ctx, and says why", function()
      interrupt("ngx.ctx = {} ", "ngx.ctx was replaced while this request was waiting; set fields in it instead")
    end)

    it("ends all waits of a request, whichever clients they use, and releases all locks of a multi-lock", function()
      local both = hold_elsewhere("a", "b")
      start { server = FINISH .. handler("/", ([[
        local threads, other = {}, HOLDFAST.new "%s"
        for _, client in ipairs { CLIENT, other } do
          for _, key in ipairs { "a", "b", "a" } do
            threads[#threads + 1] = ngx.thread.spawn(function()
              return select(3, client:lock(key):acquire(20))
            end)
          end
        end
        local function waiters()
          return CLIENT:lock("a"):info().waiters + CLIENT:lock("b"):info().waiters
        end
        while waiters() < 7 do ngx.sleep(0.001) end
        HOLDFAST.finish()
        local codes = {}
        for i, thread in ipairs(threads) do codes[i] = select(2, ngx.thread.wait(thread)) end
        SAY(unpack(codes))
        other:close()
      ]]):format(server:url())) .. handler("/waits", [[
        SAY(CLIENT:lock("b"):acquire(20) ~= nil)
      ]]) .. handler("/left", ([[
        BLOCKING = BLOCKING or HOLDFAST.new { url = "%s", driver = "posix" }
        for _, client in ipairs { CLIENT, BLOCKING } do
          LEFT = client:multi_lock { "x", "y", "z" }
          SAY(LEFT:acquire(0) == LEFT)
          HOLDFAST.finish()
          local function is_left(key) return CLIENT:lock(key):is_locked() end
          while is_left "x" or is_left "y" or is_left "z" do ngx.sleep(0.001) end
        end
      ]]):format(server:url())) }
      local another = front:begin "/waits"
      assert.equal(("interrupted|"):rep(5) .. "interrupted", say "/")
      assert.equal(0, server:cli("ZCARD", "holdfast_queue:{a}"))
      assert.equal(1, server:cli("ZCARD", "holdfast_queue:{b}")) -- the other request's place
      assert.is_true(both:release())
      assert.equal("true", reply_of(another))
      assert.equal("true\ntrue", say("/left", { timeout = 10 }))
    end)

    it("closes a client in the background if close is called in a phase that cannot wait", function()
      start { server = [[
        location /log {
          content_by_lua_block { OWN = NEW() assert(OWN:lock("a"):acquire(0)) SAY("held") }
          log_by_lua_block { OWN:close() }
        }
        location /filter {
          content_by_lua_block { OWN = NEW() assert(OWN:lock("a"):acquire(0)) SAY("held") }
          header_filter_by_lua_block { OWN:close() }
        }
        location /unused {
          content_by_lua_block { OWN = NEW() SAY("held") }
          log_by_lua_block { OWN:close() OWN:close() }
        }
      ]] .. handler("/closed", [[ SAY(select(3, OWN:lock("a"):acquire(0))) ]]),
        http = ([[ init_worker_by_lua_block { function NEW() return HOLDFAST.new("%s") end } ]])
          :format(server:url()) }
      for _, path in ipairs { "/log", "/filter", "/unused" } do
        assert.equal("held", say(path))
        assert.truthy(free_within("a", 5), path)
        assert.equal("closed", say "/closed")
        local function is_left() return server:leaks().clients == 0 end
        assert.truthy(process.wait_until(is_left, 5), path)
      end
    end)

    it("releases a subrequest's locks when its main request ends, and not before", function()
      local leaves = handler("/leaves", [[
        CLIENT:with_lock(ngx.var.arg_key or "a", function() ngx.exit(204) end)
      ]])
      start { server = FINISH .. leaves .. handler("/done", [[ SAY("done") ]])
        .. handler("/captured", [[ SAY(ngx.shared.counters:get("captured")) ]]) .. [[
        lua_check_client_abort on;
        location /several { content_by_lua_block {
          local function leaves(key) return { "/leaves?key=" .. key } end
          ngx.location.capture_multi { leaves "k1", leaves "k2", leaves "k3" }
          SAY("done")
        } }
        location /asks { auth_request /leaves; content_by_lua_block { SAY("allowed") } }
        location /captures { content_by_lua_block {
          ngx.location.capture("/leaves")
          HOLDFAST.finish()
          ngx.shared.counters:set("captured", true)
          ngx.sleep(60)
        } }
      ]] }
      assert.equal("allowed", say "/asks")
      assert.truthy(free_within("a", 5))
      assert.equal("done", say "/several")
      for i = 1, 3 do assert.truthy(free_within("k" .. i, 5)) end
      local main = front:begin("/captures")
      comes_to_say("/captured", "true")
      assert.equal("done", say "/done")
      assert.is_false(is_free("a"))
      main:abort()
      assert.truthy(free_within("a", 5))
    end)

    it("releases a lock granted at the moment when its waiter is killed", function()
      start { grant_lease = 20, server = FINISH .. handler("/", [[
        local mine, theirs = CLIENT:lock("a", { owner = "mine" }), CLIENT:lock("a", { owner = "theirs" })
        assert(mine:acquire(10))
        local thread = ngx.thread.spawn(theirs.acquire, theirs)
        while mine:info().waiters == 0 do end
        mine:release()
        local till = require "holdfast.core".now() + ngx.var.arg_after / 1e6
        while require "holdfast.core".now() < till do ngx.sleep(0) end
        ngx.thread.kill(thread)
      ]]) }
      for after = 0, 500, 20 do
        say("/?after=" .. after)
        assert.truthy(free_within("a", 5), after .. " µs after the release")
      end
    end)

    it("releases the lock of a client that disconnects, or its place in the queue", function()
      start { server = FINISH .. locations_of_ends() }
      disconnect_holder_and_waiters()
      assert.equal("true", say "/next")
    end)
  end)

  describe("without holdfast.finish()", function()
    it("stops renewing for a request that has ended, so the lock ends with its lease", function()
      resty.expect_errors()
      start { lease = 1.5, server = locations_of_ends() }
      for _, i in ipairs { 1, 3, 6 } do -- the task finds all of them in the same way
        local each = ENDS[i]
        assert.truthy(front:begin("/end" .. i):finish(), each[1])
        assert.is_true(not is_free("a"), each[1])
        assert.truthy(free_within("a", 10), each[1])
      end
    end)

    it("stops renewing for a request that has ended even if another one released its hold", function()
      start { lease = 2, http = "init_worker_by_lua_block { OWNED = CLIENT:lock('a', { owner = 'us' }) }\n",
        server = handler("/hold", [[
          assert(OWNED:acquire(5))
          HELD = true
          while not OVER do ngx.sleep(0.01) end
        ]]) .. handler("/live", [[
          assert(OWNED:acquire(5))
          assert(OWNED:release())
          OVER = true
          ngx.sleep(60)
        ]]) .. handler("/held", [[ SAY(HELD) ]]) }
      local holder = front:begin("/hold")
      comes_to_say("/held", "true")
      local living = front:begin("/live")
      assert.truthy(holder:finish())
      assert.is_false(is_free("a"))
      assert.truthy(free_within("a", 10))
      living:abort()
    end)

    it("ends a listener with its request, and delivers later events in other requests", function()
      start { server = handler("/", [[
        WATCHED = HOLDFAST.new { url = "]] .. server:url() .. [[", lease = 60, on_event = function(event)
          if event.key == "stuck" then
            ngx.shared.counters:set("stuck", true)
            ngx.sleep(60)
          end
          ngx.shared.counters:set(event.key, event.event)
        end }
        STUCK = WATCHED:lock("stuck")
        STUCK:acquire()
      ]]) .. handler("/next", [[ SAY(WATCHED:with_lock("next", function() return true end)) ]])
        .. handler("/event", [[ SAY(ngx.shared.counters:get(ngx.var.arg_of)) ]])
        .. "lua_check_client_abort on;\n" }
      local request = front:begin("/")
      comes_to_say("/event?of=stuck", "true")
      request:abort()
      eventually(function()
        return say "/next" == "true" and say "/event?of=next" == "released"
      end, 10)
    end)

    it("does not grant the lock to waiters whose clients disconnected", function()
      start { lease = 1.5, server = locations_of_ends() }
      disconnect_holder_and_waiters()
      assert.truthy(free_within("a", 10))
    end)
  end)
end)
