local core = require "holdfast.core"
local fails = require "spec.support.fails"
local files = require "spec.support.files"
local process = require "spec.support.process"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new {
  tcp = true, password = "secret", users = { "app on >pass ~* &* +@all", "guest on nopass ~* &* +@all" },
  conf = { "bind 127.0.0.1 -::1" },
}

before_each(world.open)
after_each(world.close)

local function round_trip(url, key)
  local lock = world.client { url = url }:lock(key or "k")
  assert(lock:acquire(0))
  assert.is_true(lock:check())
  assert(lock:release())
end

local function has_ipv6()
  return files.read_any("/proc/net/if_inet6"):find(("0"):rep(31) .. "1", 1, true) ~= nil
end

local function resolves(name) return process.succeeds("getent hosts >/dev/null " .. name) end

-- Returns the connections of a client called `name`: a list of CLIENT LIST lines.
local function connections(name)
  local found = {}
  for line in world.cli("CLIENT", "LIST"):gmatch("[^\n]+") do
    if line:find(" name=" .. name .. " ", 1, true) then found[#found + 1] = line end
  end
  return found
end

describe("a client", function()
  for name, urls in pairs {
    ["connects over IPv4"] = {
      "redis://:secret@127.0.0.1:PORT", "redis://:secret@127.0.0.1:PORT/", "redis://:secret@127.0.0.1:PORT/0",
    },
    ["connects through a unix socket"] = { "unix://:secret@PATH", "unix://:secret@PATH?db=0" },
    ["connects by host name"] = resolves("localhost") and { "redis://:secret@localhost:PORT" } or {},
    ["connects over IPv6"] = has_ipv6() and { "redis://:secret@[::1]:PORT" } or {},
    ["logs in as the user in the URL, even with a percent-encoded password"] = {
      "redis://app:pass@127.0.0.1:PORT", "redis://app:p%61ss@127.0.0.1:PORT", "unix://app:pass@PATH",
    },
    ["accepts valkey:// as a synonym of redis://"] = { "valkey://:secret@127.0.0.1:PORT" },
  } do
    it(name, function()
      if #urls == 0 then return pending "this machine has no such address" end
      for _, url in ipairs(urls) do
        round_trip((url:gsub("PORT", world.server.port):gsub("PATH", world.server.path)))
      end
    end)
  end

  it("logs in as the user in the URL even if the password is empty", function()
    round_trip("redis://guest:@127.0.0.1:" .. world.server.port)
    local client = world.client { url = "redis://app:@127.0.0.1:" .. world.server.port }
    assert.matches("WRONGPASS", fails("denied", client:ping()))
  end)

  it("selects the database in the URL", function()
    for _, url in ipairs {
      ("redis://:secret@127.0.0.1:%d/3"):format(world.server.port),
      ("unix://:secret@%s?db=3"):format(world.server.path),
    } do
      local lock = world.client { url = url }:lock("k")
      assert(lock:acquire(0))
      assert.same({ 0, "OK", 1 },
        { world.cli("EXISTS", "k"), world.cli("SELECT", 3), world.cli("EXISTS", "k") })
      world.cli("SELECT", 0)
      assert(lock:release())
    end
  end)

  it("fails at once if the server does not have the database in the URL", function()
    local client = world.client { url = ("unix://:secret@%s?db=99"):format(world.server.path),
      command_timeout = 20 }
    local started = process.now()
    assert.matches("DB index.*; check the database number", fails("server", client:lock("k"):acquire(0)))
    assert.is_true(process.now() - started < 10)
  end)

  it("uses one connection for all calls, and a second one for its watchdog", function()
    local client = world.client { name = "counted", lease = 1.5 }
    local lock = client:lock("k")
    for _ = 1, 50 do assert(lock:acquire()) assert(lock:release()) end
    assert.equal(0, client:stats().reconnects)
    assert.is_true(client:stats().connections <= 2 and #connections("counted") <= 2)
    assert(lock:acquire())
    assert(process.wait_until(function() return client:stats().renewals > 0 end))
    assert(lock:release())
    assert.equal(2, client:stats().connections)
    assert.equal(2, #connections("counted"))
  end)

  it("leaves no connection open in the programs it starts", function()
    local client = world.client { lease = 1.5 }
    local held = assert(client:lock("k"):acquire())
    assert(process.wait_until(function() return client:stats().renewals > 0 end))
    local pipe = io.popen("ls -l /proc/self/fd")
    local text = pipe:read("*a")
    pipe:close()
    -- the specs' own connection to the server is close-on-exec, too
    assert.is_nil(text:find("socket:", 1, true), text)
    assert.is_true(held:is_held())
  end)
end)

describe("a connection that cannot be made", function()
  -- Fills the queue of a listener, which then accepts no connection and sends nothing.
  local function fill(listener, connect, place)
    local waiting = { listener }
    for i = 1, 65 do waiting[i + 1] = assert(connect(place)) end
    finally(function() for _, fd in ipairs(waiting) do sys.close(fd) end end)
  end

  it("fails as unreachable after the connect timeout", function()
    local listener, port = assert(sys.listen_tcp())
    fill(listener, sys.connect_tcp, port)
    local client = world.client { url = "redis://127.0.0.1:" .. port, connect_timeout = 0.25,
      command_timeout = 20 }
    for _, wait in ipairs { 0, 0.1, 0.5 } do
      local started = process.now()
      fails("unreachable", client:lock("k"):acquire(wait))
      local took = process.now() - started
      -- later calls may use a connection that is being made
      local least = wait == 0 and 0.25 or 0
      assert.is_true(took >= least and took < 10, "took " .. took)
    end
    client:close()
  end)
end)

describe("after a fork", function()
  -- → what `fn` returned in a child process, or its error
  local function in_child(fn)
    local path = os.tmpname()
    local pid = assert(sys.fork())
    if pid == 0 then
      local ok, result = pcall(fn)
      local file = io.open(path, "w")
      file:write(ok and "ok " or "error ", tostring(result))
      file:close()
      sys.exit(0)
    end
    assert.is_truthy(process.wait_until(function() return (sys.wait(pid)) end, 30))
    local file = io.open(path)
    local text = file:read("*a")
    file:close()
    os.remove(path)
    return text
  end

  -- The child may close a state that its parent has opened.
  it("the child's count of Lua states includes only those that it has opened itself", function()
    assert.is_true(core.states() > 0)
    assert.equal("ok 0 1 0 1 0", in_child(function()
      local function count_in_another()
        return sys.run_threads { "return require('holdfast.core').states()" }[1]
      end
      local at_first, another, again = core.states(), count_in_another(), core.states()
      local state = core.shared[1]
      debug.getmetatable(state).__gc(state)
      local behind = count_in_another()
      return table.concat({ at_first, another, again, behind, core.states() }, " ")
    end))
  end)

  it("the child has neither its parent's uuid, losses nor watchdog, whatever it calls first", function()
    local client = world.client()
    local watchdog, lock, parents = client:watchdog(), nil, core.client.uuid(client)
    local questions = {
      uuid = function() return core.client.uuid(client) == parents end,
      events = function() return core.client.events(client) end,
      has_losses = function() return core.client.has_losses(client) end,
      first_loss = function() return core.lock.first_loss(lock) end,
      is_held = function() return core.lock.is_held(lock) end,
      is_running = function() return core.watchdog.is_running(watchdog) end,
      lost = function() return core.lock.lost(lock) end,
      renewed = function() return core.watchdog.holds(watchdog) > 0 end,
    }
    for name, ask in pairs(questions) do
      lock = assert(client:lock(name, { lease = 0.2 }):acquire(0))
      local over = process.now() + 0.3
      assert.equal("ok nil", in_child(function()
        while process.now() < over do sys.sleep(0.01) end -- a call must not come earlier
        assert(not ask(), name)
        assert(not core.watchdog.is_running(watchdog), name)
        return core.lock.first_loss(lock)
      end))
      lock:release()
    end
  end)

  it("the child holds none of its parent's locks, even with the same pid in a new pid namespace", function()
    local said = in_child(function()
      if not sys.new_pids() then return "it may not" end
      return in_child(function()
        local client = world.client()
        local lock, id = client:lock("k"), sys.getpid()
        assert(lock:acquire()) assert(sys.new_pids())
        local childs = in_child(function()
          assert(sys.getpid() == id)
          assert(lock:is_held() == false)
          return select(3, lock:release())
        end)
        assert(lock:check() and lock:release())
        return childs
      end)
    end)
    if said == "ok it may not" then return pending("this user may not have such a namespace") end
    assert.equal("ok ok ok not_held", said)
  end)

  it("with_lock returns not_held and the results in the child, which holds nothing", function()
    if not require("holdfast.compat").yields_in_pcall then return end
    local go_on = coroutine.wrap(function()
      return world.client():with_lock("k", function() return coroutine.yield(), "result" end)
    end)
    go_on()
    assert.equal("ok not_held result 2", in_child(function()
      local _, _, code, results = go_on(true)
      return table.concat({ code, results[2], results.n }, " ")
    end))
    assert.is_true(go_on(true))
  end)

  it("garbage collection and close in the child do not release the parent's locks", function()
    local client = world.client { lease = 2 }
    local lock, handle = assert(client:lock("k"):acquire()), assert(client:lock("other"):acquire())
    assert.equal("ok true", in_child(function()
      handle = nil
      collectgarbage() collectgarbage()
      client:close()
      return true
    end))
    process.sleep(2.5)
    assert(lock:check() and handle:check() and handle:release() and lock:release())
    assert.equal(0, client:stats().losses)
  end)

  it("the child renews its own locks", function()
    local client = world.client { lease = 2 }
    assert(client:ping())
    assert.equal("ok true", in_child(function()
      local lock = assert(client:lock("k"):acquire())
      process.sleep(2.5)
      local held = lock:check()
      lock:release()
      client:close()
      return held
    end))
  end)

  -- → the core's locks on these keys
  local function locks_of(client, wait, ...)
    local locks = {}
    for i, key in ipairs { ... } do
      locks[i] = core.lock.new(client, { client = client, key = key, lease = 30, wait = wait,
        token_ttl = 0 })
    end
    return locks
  end

  it("an operation that the parent has begun in an event loop fails in the child", function()
    local client = core.client.new {
      url = world.server:url(), connect_timeout = 1, command_timeout = 1, grant_lease = 1,
      external = true,
    }
    local function begin(key) return (core.lock.begin(locks_of(client, 10, key)[1], "acquire", 10)) end
    core.engine.set_now(client, 1)
    local function begin_all(...) return (core.lock.begin_all(locks_of(client, 0, ...), "acquire_all")) end
    local finished, collected, kept = begin("a"), begin("b"), begin("c")
    local finished_all, collected_all = begin_all("e", "f"), begin_all("g", "h")
    assert.equal("ok interrupted", in_child(function()
      assert(finished_all:is_done())
      assert(select(3, finished_all:finish()) == "interrupted")
      assert(core.operation.is_done(finished))
      local got, message, code = core.operation.finish(finished)
      assert(not got and message:find("fork", 1, true))
      assert(not pcall(core.operation.finish, finished))
      collected, collected_all = nil, nil
      collectgarbage() collectgarbage()
      assert(core.engine.output(client, 1) == nil)
      local own = begin("d")
      assert(not core.operation.is_done(own))
      assert(select(3, core.operation.finish(own)) == "interrupted")
      return code
    end))
    assert.is_false(core.operation.is_done(kept))
    for _, op in ipairs { finished, collected, kept, finished_all, collected_all } do
      assert.equal("interrupted", select(3, core.operation.finish(op)))
    end
  end)

  it("the child releases what it acquired through handles created by its parent", function()
    local client = core.client.new {
      url = world.server:url(), connect_timeout = 20, command_timeout = 20, grant_lease = 2,
    }
    local locks = locks_of(client, 0, "a", "b", "c")
    assert(core.lock.acquire_all(locks))
    world.cli("DEL", "a", "b", "c")
    assert.equal("ok free", in_child(function()
      assert(core.lock.acquire_all(locks))
      for _, lock in ipairs(locks) do assert(core.lock.is_held(lock)) end
      for _, lock in ipairs(locks) do core.lock_type.__gc(lock) end
      assert(process.wait_until(function() return world.cli("EXISTS", "a", "b", "c") == 0 end, 10))
      return "free"
    end))
    assert.equal("lost", select(3, core.lock.release_all(locks)))
    core.client.close(client, 20)
  end)
end)
