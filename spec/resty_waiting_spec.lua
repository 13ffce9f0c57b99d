-- Under ngx_lua: waits and renewals while requests compete, workers are blocked and replies are
-- slow; in which phases a call may wait.

local process = require "spec.support.process"
local resty = require "spec.support.resty"

if not resty.is_there() then return end

local FINISH, comes_to_wait, free_within = resty.FINISH, resty.comes_to_wait, resty.free_within
local front, handler, hold_elsewhere = resty.front, resty.handler, resty.hold_elsewhere
local is_free, reply_of, say, server = resty.is_free, resty.reply_of, resty.say, resty.server
local start, stop = resty.start, resty.stop
local eventually = process.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("under contention", function()
    it("loses no update of 500 requests in two workers, and keeps serving other requests", function()
      start { workers = 2, server = FINISH .. handler("/add", [[
        local counters = ngx.shared.counters
        SAY(CLIENT:with_lock("hot", { wait = 100 }, function()
          local value = counters:get("n") or 0
          ngx.sleep(0.001)
          counters:set("n", value + 1)
          return value + 1
        end))
      ]]) .. handler("/plain", [[ SAY("here") ]]) .. handler("/count", [[ SAY(ngx.shared.counters:get("n")) ]]) }
      local requests = {}
      for i = 1, 500 do requests[i] = front:begin("/add") end
      eventually(function() return (tonumber(say "/count") or 0) > 5 end)
      local most, slowest = 0, 0
      for _ = 1, 20 do
        local from = process.now()
        assert.equal("here", say "/plain")
        slowest = math.max(slowest, process.now() - from)
        most = math.max(most, server:leaks().clients)
      end
      assert.is_true(tonumber(say "/count") < 500, "it was over too soon to tell")
      local seen = {}
      for _, request in ipairs(requests) do
        seen[tonumber((assert(request:finish(100)).body))] = true
      end
      assert.equal(500, #seen)
      assert.equal("500", say "/count")
      assert.is_true(most <= 4, most .. " connections")
      assert.is_true(slowest < 3, slowest .. " s for a plain answer")
      assert.is_true(is_free("hot"))
    end)

    it("serves requests in order of arrival", function()
      start { grant_lease = 20, server = handler("/", [[
        local counters = ngx.shared.counters
        local place = counters:incr("arrived", 1, 0)
        CLIENT:with_lock("hot", function()
          ngx.sleep(0.005)
          SAY(place, counters:incr("served", 1, 0))
        end)
      ]]) .. handler("/warm", [[ CLIENT:with_lock("warm", function() ngx.sleep(0.02) end) ]]) }
      -- the first waiter also waits for the subscription
      local first, second = front:begin("/warm"), front:begin("/warm")
      first:finish()
      second:finish()
      local requests, from = {}, process.now()
      for i = 1, 30 do requests[i] = front:begin("/") end
      for _, request in ipairs(requests) do
        local place, served = assert(request:finish()).body:match("(%d+)|(%d+)")
        assert.equal(place, served)
      end
      assert.is_true(process.now() - from < 9, "somebody was not woken")
    end)
  end)

  it("reads replies that arrived while a request was computing before it checks for timeouts", function()
    start { server = FINISH .. handler("/", ([[
      local now = require "holdfast.core".now
      local lock, threads = CLIENT:lock("a"), {}
      assert(lock:acquire())
      local server = ngx.socket.tcp()
      assert(server:connect("unix:%s"))
      assert(server:send("CLIENT PAUSE 50\r\n") and server:receive())
      for i = 1, 5 do
        threads[i] = ngx.thread.spawn(function()
          return select(3, CLIENT:lock("a", { owner = "w" .. i }):acquire(0.1))
        end)
      end
      ngx.sleep(0.02)
      local till = now() + 0.2
      while now() < till do end
      lock:release()
      for _, thread in ipairs(threads) do SAY(ngx.thread.wait(thread)) end
    ]]):format(server.path)) }
    for _ = 1, 3 do assert.equal(("true|busy\n"):rep(5):sub(1, -2), say "/") end
  end)

  it("renews the lock of a live request through all its phases", function()
    start { lease = 2, server = FINISH .. [[
      location /long {
        access_by_lua_block {
          ngx.ctx.lock = CLIENT:lock("a", { owner = "me" })
          assert(ngx.ctx.lock:acquire())
          ngx.sleep(1.6)
        }
        content_by_lua_block { ngx.sleep(1.6) SAY(ngx.ctx.lock:is_held(), ngx.ctx.lock:release()) }
      }]] .. handler("/short", [[ CLIENT:with_lock("b", function() end) SAY(CLIENT:stats().renewals) ]])
      .. handler("/replaced", [[
        SAY(CLIENT:with_lock("c", function(lock) ngx.sleep(2.3) return lock:lost() end))
      ]]) }
    assert.equal("0", say "/short")
    assert.equal("true|true", say "/long")
    assert.is_true(tonumber(say "/short") >= 3)
    assert.equal("nil", say "/replaced")
  end)

  it("waits several seconds for a lock or a slow reply over one connection", function()
    local lock = hold_elsewhere "k"
    start { command_timeout = 20, server = FINISH
      .. handler("/wait", [[ SAY(CLIENT:lock("k"):acquire(20) ~= nil, CLIENT:stats().connections) ]])
      .. handler("/ping", [[ SAY(CLIENT:ping() ~= nil, CLIENT:stats().connections) ]]) }
    assert.equal("true|1", say "/ping")
    local waiting = {}
    for i = 1, 3 do waiting[i] = front:begin("/wait") end
    comes_to_wait(3, "k")
    process.sleep(2.5)
    server:kill("STOP")
    local asking = front:begin("/ping")
    process.sleep(1.5)
    server:kill("CONT")
    assert.equal("true|2", reply_of(asking))
    assert(lock:release())
    for i = 1, 3 do assert.equal("true|2", reply_of(waiting[i])) end
    assert.same({}, front:errors())
  end)

  -- When the handler ends, both the task and the wait are already overdue.
  it("keeps a wait and its connections while a handler blocks the worker", function()
    local lock = hold_elsewhere "k"
    start { grant_lease = 20, server = FINISH .. handler("/", [[ SAY(CLIENT:lock("k"):acquire(60) ~= nil) ]])
      .. handler("/block", [[ local now = require("holdfast.core").now
        local till = now() + 1.1
        while now() < till do end
        SAY("done") ]]) }
    local request = front:begin("/")
    eventually(function() return server:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    local function connections()
      local ids = {}
      for id in server:cli("CLIENT", "LIST"):gmatch("id=(%d+)[^\n]-name=holdfast") do ids[id] = true end
      return ids
    end
    local before = connections()
    assert.equal("done", say "/block")
    process.sleep(0.3) -- in this time the wait checks that its task runs
    local now = connections()
    for id in pairs(before) do assert.is_true(now[id]) end
    assert(lock:release())
    local from = process.now()
    assert.equal("true", reply_of(request))
    assert.is_true(process.now() - from < 10) -- without a message: 20 s
    assert.truthy(free_within("k", 20)) -- the release of the request is over
    assert.equal(0, #front:errors(), front:log())
    eventually(function() return server:cli("EXISTS", "k") == 0 end)
    stop()
  end)

  describe("a call", function()
    local function try(kind)
      return kind .. [[_by_lua_block {
        local ran, message = pcall(function() local lock = CLIENT:lock("phase"):try_acquire() return lock end)
        ngx.log(ngx.NOTICE, "result of ]] .. kind .. [[: ", tostring(ran), " ", tostring(message), ".")
        if ran and message then message:release() end
        CLIENT:lock("phase"):is_held()
      }
      ]]
    end

    it("can wait in phases where ngx_lua can, and suggests what to do in others", function()
      start {
        http = [[ init_worker_by_lua_block {
          local ran, message = pcall(CLIENT.with_lock, CLIENT, "w", function() end)
          ngx.log(ngx.NOTICE, "result of init_worker: ", tostring(ran), " ", tostring(message), ".")
          ngx.timer.at(0, function()
            ngx.log(ngx.NOTICE, "result of timer: ", tostring(CLIENT:lock("w"):try_acquire() ~= nil), ".")
          end)
        }
        ]],
        server = "location / {" .. try "rewrite" .. try "access" .. try "content"
          .. try "header_filter"
          .. try "body_filter" .. try "log" .. [[ set_by_lua_block $x {
            local ran, message = pcall(CLIENT.with_lock, CLIENT, "w", function() end)
            ngx.log(ngx.NOTICE, "result of set: ", tostring(ran), " ", tostring(message), ".")
          } }]],
      }
      assert.equal(200, front:get("/").status)
      local log
      eventually(function()
        log = front:log()
        return log:find("result of log", 1, true)
      end)
      for _, phase in ipairs { "rewrite", "access", "content" } do
        assert.truthy(log:find("result of " .. phase .. ": true holdfast.lock: phase (held", 1,
          true), phase)
      end
      assert.truthy(log:find("result of timer: true.", 1, true))
      for _, phase in ipairs { "init_worker", "set", "header_filter", "body_filter", "log" } do
        local message = log:match("result of " .. phase .. ": false ([^\n]*)")
        assert.truthy(message, phase)
        assert.truthy(message:find("impossible in " .. phase .. "_by_lua; ", 1, true), message)
      end
      assert.truthy(log:match("result of log: false [^\n]*holdfast%.finish%(%)"))
      assert.truthy(log:match("result of set: false [^\n]*use rewrite_by_lua, where it is possible"))
      assert.truthy(log:match("result of init_worker: false [^\n]*ngx%.timer%.at"))
      assert.truthy(log:match("result of header_filter: false header_filter_by_lua:?%b():%d+: holdfast"))
    end)

    it("suggests what to do in the master's init phase and while the worker exits", function()
      resty.expect_errors()
      start {
        init = [[
          function TRY(name, client)
            local ran, message = pcall(client.with_lock, client, "w", function() end)
            ngx.log(ngx.NOTICE, "result of ", name, ": ", tostring(ran), " ", tostring(message))
          end
          TRY("init", require("holdfast").new "redis://127.0.0.1:1")
        ]],
        http = [[
          init_worker_by_lua_block { TRY("init_worker", CLIENT) }
          exit_worker_by_lua_block { TRY("exit_worker", CLIENT) }
        ]],
      }
      say "/"
      front:stop()
      local log = front:log()
      for phase, advice in pairs {
        init = "in init_by_lua; workers do not exist yet, so move the call to init_worker_by_lua",
        init_worker = "in init_worker_by_lua; use ngx.timer.at(0, function",
        exit_worker = "in exit_worker_by_lua; the worker is exiting, so its locks will expire with",
      } do
        local message = log:match("result of " .. phase .. ": false ([^\n]*)")
        assert.truthy(message and message:find(advice, 1, true), phase .. ": " .. tostring(message))
      end
    end)

    it("can wait in a phase whose name the library does not know", function()
      start {
        init = [[
          local get_phase = ngx.get_phase
          function ngx.get_phase()
            local phase = get_phase()
            return phase:find("init") and phase or "newer_" .. phase
          end
        ]],
        server = handler("/", [[ SAY(ngx.get_phase(), CLIENT:lock("a"):try_acquire() ~= nil) ]])
          .. "header_filter_by_lua_block { ngx.log(ngx.NOTICE, 'filter: ', "
          .. "tostring(pcall(CLIENT.with_lock, CLIENT, 'w', print)), '.') }\n",
      }
      assert.equal("newer_content|true", say "/")
      eventually(function() return front:log():find("filter: false.", 1, true) end)
    end)
  end)
end)
