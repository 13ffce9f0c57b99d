-- Under ngx_lua: the connections, timers and memory that clients use, and what happens if nginx has
-- no more.

local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local resty = require "spec.support.resty"

if not resty.is_there() then return end

local FINISH, comes_to_say, free_within = resty.FINISH, resty.comes_to_say, resty.free_within
local front, handler, is_free = resty.front, resty.handler, resty.is_free
local reply_of, say, server, start = resty.reply_of, resty.say, resty.server, resty.start
local stop = resty.stop
local eventually = process.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("with a client created in each request", function()
    local OWN = handler("/", [[
      local client = HOLDFAST.new("%s")
      SAY(client:with_lock("k" .. ngx.var.arg_k, { wait = 20 }, function(lock) return lock:is_held() end))
    ]]) .. handler("/held", [[
      local client = HOLDFAST.new("%s")
      SAY(client:with_lock("k" .. ngx.var.arg_k, { wait = 20 }, function(lock)
        ngx.shared.counters:incr("held", 1, 0)
        while not OVER do ngx.sleep(0.05) end
        return lock:check()
      end))
    ]]) .. handler("/count", [[ SAY(ngx.shared.counters:get("held") or 0) ]])
      .. handler("/over", [[ OVER = true ]])
      .. handler("/timers", [[ SAY(ngx.timer.running_count()) ]])

    local function own() return (OWN:gsub("%%s", server:url())) end

    it("starts at once while other clients are being closed, and stays connected", function()
      start { server = handler("/closed", ([[
        local now = require("holdfast.core").now
        local begun, slow = now(), 0
        for _ = 1, 30 do
          local from = now()
          local client = HOLDFAST.new("%s")
          assert(client:ping())
          client:close()
          ngx.sleep(0.001) -- its timer ends in this time
          if now() - from > 0.2 then slow = slow + 1 end
        end
        SAY(slow < 10, now() - begun < 6)
      ]]):format(server:url())) .. handler("/first", [[
        SAY(CLIENT:ping() ~= nil, CLIENT:stats().connections)
      ]]) .. handler("/timers", [[ SAY(ngx.timer.running_count()) ]]) }
      assert.equal("true|true", say "/closed")
      comes_to_say("/timers", "0", 5)
      assert.equal("true|1", say "/first")
      process.sleep(0.05)
      assert.equal("true|1", say "/first")
      assert.equal("1", say "/timers")
    end)

    it("closes its connections a minute after its last use", function()
      start {
        init = [[
          local core, shift = require "holdfast.core", 0
          local now = core.now
          function core.now() return now() + shift end
          function LATER(seconds) shift = shift + seconds end
        ]],
        server = handler("/use", [[
          SAY(CLIENT:lock("a"):is_locked(), CLIENT:stats().connections)
        ]]) .. handler("/later", [[ LATER(tonumber(ngx.var.arg_by)) SAY("later") ]]),
      }
      for _ = 1, 2 do
        assert.equal("false|1", say "/use")
        process.sleep(1.1) -- the task looks once a second
        say "/later?by=40"
      end
      process.sleep(1.1)
      assert.equal(1, server:leaks().clients, "it counts from the first use")
      say "/later?by=25"
      eventually(function() return server:leaks().clients == 0 end, 5)
      assert.equal("false|2", say "/use")
    end)

    it("serves more clients at a time than nginx has timers, and keeps 16 connected", function()
      start { server = FINISH .. own() }
      local requests = {}
      for i = 1, 400 do requests[i] = front:begin("/held?k=" .. i) end
      assert.truthy(process.wait_until(function()
        return say "/count" == "400"
      end, 20), say "/count")
      assert.is_true(tonumber(say "/timers") <= 10, say "/timers")
      say "/over"
      for _, request in ipairs(requests) do assert.equal("true", reply_of(request, 20)) end
      eventually(function() return server:leaks().clients <= 16 end)
      assert.equal(16, server:leaks().clients)
    end)

    it("keeps the connections of clients that later requests use again", function()
      start { http = "init_worker_by_lua_block { CLIENTS = {} }\n", server = FINISH .. handler("/", ([[
        local k = ngx.var.arg_k
        CLIENTS[k] = CLIENTS[k] or HOLDFAST.new("%s")
        CLIENTS[k]:with_lock("k" .. k, { wait = 20 }, function() end)
        SAY(CLIENTS[k]:stats().connections)
      ]]):format(server:url())) }
      for _ = 1, 2 do
        for i = 1, 40 do say("/?k=" .. i) end
      end
      local before = {}
      for i = 1, 40 do before[i] = say("/?k=" .. i) end
      for i = 1, 40 do assert.equal(before[i], say("/?k=" .. i)) end
    end)
  end)

  -- A key of 1 MiB is larger than a socket's buffers, so nginx cannot send the rest while the
  -- server is stopped.
  it("sends a large command within the client's command_timeout, not nginx's send timeout", function()
    start { url = "unix://" .. server.path, command_timeout = 20,
      http = "lua_socket_send_timeout 50ms;\n",
      server = FINISH .. handler("/ping", [[ SAY(CLIENT:ping() ~= nil) ]]) .. handler("/large", [[
        local lock, message = CLIENT:lock(("k"):rep(2 ^ 20 - 1)):acquire(0)
        SAY(lock and lock:release() or message:gsub("kk+", "k"))
        SAY(CLIENT:stats().connections)
      ]]) }
    assert.equal("true", say "/ping")
    server:kill("STOP")
    local request = front:begin "/large"
    process.sleep(0.5)
    server:kill("CONT")
    assert.equal("true\n1\n", request:finish(20).body)
  end)

  describe("when nginx has no timer left", function()
    it("fails at once with the limit of pending timers in its message", function()
      resty.expect_errors()
      start { http = "lua_max_pending_timers 1;\n", server = FINISH
        .. handler("/fill", [[ SAY(ngx.timer.at(60, function() end)) ]])
        .. handler("/", [[
          SAY(select(2, CLIENT:lock("a"):acquire()))
          SAY(select(2, CLIENT:ping()))
        ]])
        .. handler("/leave", [[ CLIENT:close() SAY("closed") ]]) }
      assert.equal("1", say "/fill")
      local WHY = "unix:%S+: cannot start a timer: [^|]*lua_max_pending_timers|unreachable"
      assert.matches('^cannot acquire "a" on ' .. WHY .. "\ncannot ping on " .. WHY .. "$", say "/")
      assert.equal("closed", say "/leave")
    end)

    it("reports that events are not delivered, and delivers them at the next call", function()
      resty.expect_errors()
      start { http = "lua_max_pending_timers 8;\n", server = FINISH .. handler("/", ([[
        local client = HOLDFAST.new { url = "%s", on_event = function(event)
          if event.event == "lost" then LOST = event.key end
        end }
        local lock = client:lock("k", { lease = 0.5, watchdog = true })
        assert(lock:acquire(0))
        repeat until not ngx.timer.at(60, function() end)
        local other = HOLDFAST.new { url = "%s", driver = "posix" }
        other:lock("k"):force_release()
        other:close()
        ngx.sleep(0.7) -- a call of holdfast would report the loss earlier
        local before = LOST
        client:with_lock("another", function() end)
        SAY(before, LOST)
        client:close()
      ]]):format(server:url(), server:url())) }
      assert.equal("nil|k", say "/")
      assert.matches("holdfast: too many pending timers; raise lua_max_pending_timers",
        table.concat(front:errors(), "\n"))
    end)

    it("does not report a missing timer if the worker was only blocked", function()
      start { server = FINISH .. handler("/", ([[
        local client = HOLDFAST.new("%s")
        local thread = ngx.thread.spawn(client.with_lock, client, "a", function(lock) return lock:check() end)
        local till = require "holdfast.core".now() + 0.8
        while require "holdfast.core".now() < till do end
        SAY(select(2, ngx.thread.wait(thread)))
      ]]):format(server:url())) }
      for _ = 1, 3 do assert.equal("true", say "/") end
    end)

    it("fails soon with the limit of running timers, and works again when one is free", function()
      resty.expect_errors()
      start { http = "lua_max_running_timers 2;\n", server = FINISH .. handler("/use", [[
        OVER = false
        for _ = 1, 2 do
          ngx.timer.at(0, function() while not OVER do ngx.sleep(0.01) end end)
        end
        while ngx.timer.running_count() < 2 do ngx.sleep(0.01) end
        SAY("used")
      ]]) .. handler("/over", [[ OVER = true ]]) .. handler("/", [[
        local begun = require "holdfast.core".now()
        local _, message, code = CLIENT:with_lock("a", { wait = 20 }, function() return true end)
        SAY(code, message, math.floor(require "holdfast.core".now() - begun))
      ]]) .. handler("/close", ([[
        local client = HOLDFAST.new("%s")
        local begun = require "holdfast.core".now()
        SAY(select(3, client:lock("b"):acquire()))
        client:close()
        SAY(math.floor(require "holdfast.core".now() - begun))
      ]]):format(server:url())) }
      assert.equal("used", say "/use")
      local said = say "/"
      assert.matches('^unreachable|cannot acquire "a" on unix:%S+: cannot start a timer: .* 2 .*lua_max_running_timers', said)
      assert.matches("|[01]$", said)
      assert.matches("^unreachable\n[012]$", say "/close")
      assert.is_true(is_free("a") and is_free("b"))
      assert.is_nil(front:log():find("[error]", 1, true))
      say "/over"
      comes_to_say("/", "nil|nil|0")
    end)
  end)

  -- nginx logs a reset if a kill closes a connection on which a renewal has just been sent.
  it("renews a lock after a timer that has opened 200 connections has ended", function()
    resty.expect_errors()
    start { server = FINISH .. handler("/", ([[
      local dials, tcp = 0, ngx.socket.tcp
      ngx.socket.tcp = function()
        dials = dials + 1
        return tcp()
      end
      local lock, server = CLIENT:lock("a", { lease = 2, watchdog = true }), tcp()
      assert(server:connect("unix:%s"))
      local function hang_up() assert(server:send("CLIENT KILL TYPE normal\r\n") and server:receive()) end
      assert(lock:acquire(0))
      while dials < 199 do
        hang_up()
        assert(CLIENT:ping())
      end
      hang_up()
      local before = CLIENT:stats().renewals
      repeat ngx.sleep(0.02) until lock:lost() or CLIENT:stats().renewals > before + 2
      ngx.socket.tcp = tcp
      SAY(lock:lost(), lock:release(), dials)
    ]]):format(server.path)) }
    assert.equal("nil|true|201", say "/")
  end)

  -- nginx itself gives no reason, or the reason of another call.
  it("reports that nginx has no free connection, and works again once it has", function()
    resty.expect_errors()
    for _, url in ipairs { server:url(), server:tcp_url() } do
      start { connections = 32, url = url, server = handler("/", ([[
        local kept, begins = {}, ngx.var.arg_begins == "true"
        if begins then assert(CLIENT:ping()) end -- this starts its timer
        local function take_all()
          repeat
            kept[#kept + 1] = ngx.socket.tcp()
          until not kept[#kept]:connect("unix:%s")
        end
        local other = HOLDFAST.new { url = "%s", command_timeout = 2 }
        take_all()
        local got, message, code = other:lock("a"):acquire(0)
        for _, socket in ipairs(kept) do socket:close() end
        SAY(got, message, code)
        SAY(other:lock("a"):acquire(5) ~= nil)
        other:close()
      ]]):format(server.path, url)) }
      for _, cannot in ipairs { "cannot start a timer: ", "" } do
        assert.matches(("nil|cannot acquire \"a\" on [^ ]+: %snginx has no free connection; raise worker_connections"
          .. "[^|]*|unreachable\ntrue$"):format(cannot), say("/?begins=" .. tostring(cannot == "")))
      end
      stop()
    end
  end)

  describe("with lua_code_cache off", function()
    it("leaves no timer, connection or lock behind", function()
      resty.expect_errors()
      -- The worker loads the library again for each request before it reads the reply to the first,
      -- so on a busy machine it would confirm a grant of 2 s too late.
      start { code_cache = false, command_timeout = 30, grant_lease = 30, server = FINISH .. handler("/", [[
        SAY(CLIENT:with_lock("k" .. ngx.var.arg_k, { wait = 60 }, function() return true end))
      ]]) .. handler("/leak", [[ CLIENT:lock("leak"):acquire() ]])
        .. handler("/timers", [[ SAY(ngx.timer.running_count(), ngx.timer.pending_count()) ]]) }
      for round = 1, 3 do
        local requests = {}
        for i = 1, 20 do requests[i] = front:begin("/?k=" .. i % 3) end
        for i = 1, 20 do assert.equal("true\n", requests[i]:finish().body, "round " .. round) end
      end
      say "/leak"
      assert.truthy(free_within("leak", 5))
      assert.truthy(process.wait_until(function()
        return server:leaks().clients <= 5
      end, 20), "connections stay")
      assert.truthy(process.wait_until(function()
        return tonumber(say("/timers"):match("^%d+")) <= 3
      end, 20), "timers stay")
      assert.equal(1, #front:errors()) -- it says that lua_code_cache is off
    end)
  end)

  local COLLECT = handler("/collect", [[ collectgarbage() collectgarbage() SAY(collectgarbage("count")) ]])

  -- Returns the kilobytes of Lua memory after `count` requests, 50 at a time.
  local function many(count)
    local requests = {}
    for i = 1, count do
      local slot = i % 50
      if requests[slot] then requests[slot]:finish() end
      requests[slot] = front:begin("/?k=" .. i % 40)
    end
    for _, request in pairs(requests) do request:finish() end
    return tonumber(say "/collect")
  end

  -- 20 light threads of a request acquire for the given seconds. SAYs how often they failed, and
  -- how many connections the worker has opened.
  local USE = [[
    local failed, ends, threads = 0, ngx.now() + ngx.var.arg_seconds, {}
    local function use()
      while ngx.now() < ends do
        if not CLIENT:with_lock("a", { wait = 1 }, function() ngx.sleep(0.01) end) then failed = failed + 1 end
      end
    end
    for i = 1, 20 do threads[i] = ngx.thread.spawn(use) end
    for i = 1, 20 do ngx.thread.wait(threads[i]) end
    SAY(failed, DIALS)
  ]]

  local COUNT_DIALS = [[ lua_socket_log_errors off;
    init_worker_by_lua_block {
      DIALS = 0
      local tcp = ngx.socket.tcp
      ngx.socket.tcp = function() DIALS = DIALS + 1 return tcp() end
    }
  ]]

  -- → how often they failed, how many connections the worker has opened
  local function use(seconds)
    local failed, dials = say("/use?seconds=" .. seconds, { timeout = seconds + 10 }):match("(%d+)|(%d+)")
    return tonumber(failed), tonumber(dials)
  end

  local function start_to_use()
    start { url = "redis://127.0.0.1:" .. server.port, http = COUNT_DIALS,
      server = FINISH .. COLLECT .. handler("/use", USE) }
  end

  it("tries to reconnect a few times a second while the server refuses, and soon succeeds once it is back", function()
    resty.expect_errors()
    start_to_use()
    local _, before = use(0.1)
    server:kill()
    local failed, dials = use(0.5)
    assert.is_true(failed >= 20)
    assert.is_true(dials - before < 30, dials - before)
    server:restart()
    eventually(function() return use(0.01) == 0 end, 5)
  end)

  it("leaves no coroutine in memory after delivering events", function()
    start { server = handler("/", [[
      local done = 0
      for i = 1, 30 do
        require("holdfast.loop.ngx").spawn(function() done = done + 1 end)
        while done < i do ngx.sleep(0.001) end
      end
      collectgarbage()
      local count = 0
      for _, list in pairs(debug.getregistry()) do
        for key, value in pairs(type(list) == "table" and list or {}) do
          if type(key) == "thread" or type(value) == "thread" then count = count + 1 end
        end
      end
      SAY(count)
    ]]) }
    local count = tonumber(say "/")
    assert.is_true(count < 20, count)
  end)

  it("does not leak memory while the server refuses connections #check", function()
    resty.expect_errors()
    local seconds = tonumber(os.getenv("HOLDFAST_OUTAGE")) or 120
    start_to_use()
    use(2)
    server:kill()
    local pid, sizes = front:workers()[1], {}
    for i = 1, seconds / 10 do
      use(10)
      say "/collect"
      sizes[i] = nginx.resident(pid)
    end
    local first, last = sizes[math.min(6, #sizes - 1)], sizes[#sizes]
    assert.is_true(last <= 1.1 * first, ("%d KiB at first, %d KiB then"):format(first, last))
    if os.getenv("HOLDFAST_OUTAGE") then print(("%d KiB at first, %d KiB then"):format(first, last)) end
    server:restart()
    eventually(function() return use(0.01) == 0 end, 5)
  end)

  it("does not leak memory over many clients #check", function()
    start { server = FINISH .. COLLECT .. handler("/", ([[
      HOLDFAST.new("%s"):with_lock("k" .. ngx.var.arg_k, { wait = 10 }, function() end)
    ]]):format(server:url())) .. handler("/timers", [[ SAY(ngx.timer.running_count()) ]]) }
    local pid = front:workers()[1]
    many(10000)
    local before = nginx.resident(pid)
    local lua = many(10000)
    local lua_after = many(40000)
    local after = nginx.resident(pid)
    assert.is_true(after - before < 4096, ("%d to %d KiB"):format(before, after))
    assert.is_true(lua_after - lua < 512, ("Lua: %.0f to %.0f KiB"):format(lua, lua_after))
    assert.is_true(tonumber(say "/timers") <= 10, say "/timers")
  end)
end)
