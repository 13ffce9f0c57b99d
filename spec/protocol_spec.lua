-- What the programs do on a real server that spec/sim/cases.lua cannot show: what the server writes
-- and which commands it runs, and what clients make of it. The tests call them as
-- docs/reference/protocol.md describes.

local crowd = require "spec.support.crowd"
local fails = require "spec.support.fails"
local process = require "spec.support.process"
local resp = require "spec.support.resp"
local wire = require "spec.sim.wire"

local world = require("spec.support.world").new()

local KEY = "order"
local TTL, LEASE, GRANT = 600000, 30000, 500
local OURS = "11111111-0000-8000-8000-%012x"

local texts = {}

before_each(world.open)
after_each(world.close)

-- Calls the program for the key: the key's names, the owner and the grant lease come first. → its
-- reply, with { 1, token, 0 } for a token alone
local function call(program, key, owner, ...)
  texts[program] = texts[program] or crowd.program(program)
  local reply, message = world.cli("EVAL", texts[program], 4, key, "redisson_lock_token:{" .. key .. "}",
    crowd.queue_of(key), "redisson_lock__channel:{" .. key .. "}", owner, GRANT, ...)
  return wire.spelled_out(program, assert(reply, message))
end

-- Returns a waiter that receives its grants but uses none.
local function listener(number)
  local silent = crowd.silent_client(world.server, number)
  local owner = silent.uuid .. ":1"
  return {
    owner = owner, member = ("1m%s:%d"):format(owner, TTL), -- as a mutex's waiter
    receive = function() return assert(silent.connection:receive(20), "nothing received")[3] end,
    close = function() silent.connection:close() end,
  }
end

-- Closes the listeners, and leaves nothing on the server.
local function finish(...)
  for _, each in ipairs { ... } do each:close() end
  world.cli("DEL", KEY, crowd.queue_of(KEY))
end

describe("a command that arrives late", function()
  it("does not release, renew, shorten or otherwise change its caller's newer hold", function()
    local lock = assert(world.client():lock(KEY):acquire(0))
    local old = lock:owner()
    assert(lock:release() and lock:acquire(0))
    local owner = lock:owner()
    assert.is_true(owner ~= old)
    assert.equal(-2, call("release", KEY, old, 0, LEASE, ""))
    assert.equal(0, call("leave", KEY, old, 0, "", ""))
    assert.equal(-2, world.cli("EVAL", crowd.program("extend"), 2, KEY, crowd.queue_of(KEY), old,
      10, "", ""))
    assert.same({ -2 }, world.cli("EVAL", crowd.program("renew"), 1, KEY, old, 60000))
    assert.same({ [owner] = "1" }, world.hash(KEY))
    assert.is_true(lock:check())
    assert(lock:release())
  end)
end)

describe("a grant", function()
  it("is accepted only by waiters of its own key, even if two keys have similar names", function()
    local client = world.client()
    local plain, braces = client:lock("order"), client:lock("{order}")
    assert(plain:acquire(0)) assert(braces:acquire(0))
    local child = world.run [[
      local lock = require("holdfast").new(arg[1]):lock("{order}")
      print("result", select(3, lock:acquire(1)))
    ]]
    assert.is_truthy(process.wait_until(function() return braces:info().waiters == 1 end, 20))
    assert.equal(0, plain:info().waiters)
    assert(plain:release())
    assert.same({ "exit", 0 }, { child:wait(20) })
    assert.matches("result\tbusy", child:output())
    assert.is_true(braces:check())
    assert(braces:release())
  end)

  it("is confirmed by the watchdog while its holder runs without calling the library", function()
    local other = assert(world.client():lock(KEY):acquire(0))
    local child = world.run [[
      local client = require("holdfast").new { url = arg[1], grant_lease = 0.5 }
      local lock = assert(client:lock("order"):acquire(10))
      local now = require("holdfast.core").now
      local by = now() + 1.5 -- three grant leases
      while now() < by do assert(lock:check()) end
      print("held", lock:is_held(), client:stats().grants)
      lock:release()
    ]]
    assert.is_truthy(process.wait_until(function() return other:info().waiters == 1 end, 20))
    assert(other:release())
    assert.same({ "exit", 0 }, { child:wait(20) })
    assert.matches("held\ttrue\t1", child:output())
  end)
end)

describe("a command confirmed by replicas", function()
  -- WAIT waits for the last write of its connection, so a command without a write is confirmed even
  -- without a replica.
  it("writes something on the server even if the renewal changes nothing", function()
    world.hold_as("A:1", KEY, 600000)
    world.cli("CONFIG", "SET", "notify-keyspace-events", "Eg")
    local events = assert(resp.connect { path = world.server.path })
    events:call("SUBSCRIBE", "__keyevent@0__:expire")
    local function wrote() return events:receive(20) ~= nil end
    assert.same({ 1 }, world.cli("EVAL", crowd.program("renew"), 1, KEY, "A:1", 1000))
    assert.is_true(wrote())
    assert.equal(1, world.cli("EVAL", crowd.program("extend"), 2, KEY, crowd.queue_of(KEY), "A:1",
      1000, 100, ""))
    assert.is_true(wrote())
    assert.is_true(world.cli("PTTL", KEY) > 300000)
    finish(events)
  end)

  local A = "11111111-0000-8000-8000-000000000001:1"
  local TAG = "{" .. KEY .. "}:"

  local function renewed_permits()
    for _, id in ipairs(wire.ids_of(A .. "*2")) do
      world.cli("ZADD", TAG .. "timeout", (os.time() + 60) * 1000, id)
    end
  end

  local function read()
    world.cli("HSET", KEY, "mode", "read", A, "1")
    world.cli("PEXPIRE", KEY, 60000)
    world.cli("SET", TAG .. A .. ":rwlock_timeout:1", "1", "PX", 60000)
  end

  -- { name, makes a lease, program, keys, arguments for a lease of one second }
  for _, case in ipairs {
    { "a mutex", function() world.cli("SET", KEY, A, "PX", 60000) end, "mutex",
      { KEY }, { KEY, crowd.queue_of(KEY) }, A },
    { "a reader", read, "rw", { KEY, TAG .. A .. ":rwlock_timeout:1" },
      { KEY, crowd.queue_of(KEY) }, A },
    { "permits", renewed_permits, "permit", { TAG .. "timeout" },
      { TAG .. "timeout", crowd.queue_of(KEY) }, A .. "*2" },
  } do
    it("writes something on the server for " .. case[1] .. " whose lease is already longer", function()
      local _, make, name, renewed, extended, owner = (unpack or table.unpack)(case)
      make()
      local calls = {
        { crowd.program(name .. "_renew"), renewed, { owner, 1000 }, { 1 } },
        { crowd.program(name .. "_extend"), extended, { owner, 1000, 100, "" }, 1 },
      }
      world.cli("CONFIG", "SET", "notify-keyspace-events", "EA")
      local events = assert(resp.connect { path = world.server.path })
      events:call("PSUBSCRIBE", "__keyevent@0__:*")
      for _, each in ipairs(calls) do
        local words = { each[1], #each[2] }
        for _, part in ipairs { each[2], each[3] } do
          for _, word in ipairs(part) do words[#words + 1] = word end
        end
        for _ = 1, 2 do
          assert.same(each[4], world.cli("EVAL", (unpack or table.unpack)(words)))
          assert.is_truthy(events:receive(10), "nothing was written")
          world.cli("PUBLISH", "__keyevent@0__:end", "")
          repeat until events:receive(10)[3] == "__keyevent@0__:end"
        end
      end
      events:close()
      world.cli("DEL", KEY, TAG .. "timeout", TAG .. A .. ":rwlock_timeout:1")
    end)
  end
end)

describe("a queue", function()
  it("of a mutex is read once by a release, even if other entries precede the next waiter", function()
    local waiters = {}
    local function mutex(program, owner, ...) return call("mutex_" .. program, KEY, owner, ...) end
    assert.equal(1, mutex("acquire", OURS:format(1) .. ":1", 0, 0, LEASE, TTL, "")[1])
    for i = 1, 4 do
      waiters[i] = listener(i)
      local reply = mutex("acquire", waiters[i].owner, 0, 0, LEASE, TTL, waiters[i].member)
      assert.equal(0, reply[1])
    end
    assert.equal(1, mutex("release", OURS:format(1) .. ":1", 0, 0, ""))
    local before = crowd.calls(world.server)
    assert.equal(1, mutex("release", waiters[1].owner, 0, 0, ""))
    local calls = crowd.calls_since(world.server, before)
    assert.matches("^1 grant m 1 ", waiters[2].receive())
    assert.same({ 1, 1, 1, 1 },
      { calls.zrange, calls["pubsub|numsub"] or calls.pubsub, calls.zrem, calls.zadd })
    finish((table.unpack or unpack)(waiters))
  end)

  it("written by a newer version is left unchanged, and makes acquires fail with that reason", function()
    local newer = "2l" .. OURS:format(1) .. ":1:0"
    local lock = assert(world.client():lock(KEY):acquire(0))
    world.cli("ZADD", crowd.queue_of(KEY), 5, newer)
    assert(lock:release())
    assert.matches("newer, incompatible version", fails("conflict", lock:acquire(0)))
    assert.equal(1, world.cli("ZCARD", crowd.queue_of(KEY)))
    assert.is_true(world.cli("PTTL", crowd.queue_of(KEY)) == -1)
    finish()
  end)
end)
