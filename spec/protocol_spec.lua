-- What the programs guarantee in any order of events: with late commands, old grants, keys with
-- similar names, queues of dead waiters. The tests call them as docs/reference/protocol.md
-- describes, on a real server.

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

local function acquire(owner, member, from, shared)
  return call("acquire", KEY, owner, from or 0, shared and 1 or 0, LEASE, TTL, member or "")
end

local function release(owner, to, own)
  return call("release", KEY, owner, to or 0, LEASE, own or "")
end

local function member_of(uuid, number, shared_owner)
  return ("1l%s:%d:%d"):format(uuid, number, TTL) .. (shared_owner and " " .. shared_owner or "")
end

-- Returns a client that receives its grants but uses none.
local function listener(number)
  local silent = crowd.silent_client(world.server, number)
  local uuid = silent.uuid
  return {
    uuid = uuid,
    receive = function() return assert(silent.connection:receive(20), "nothing received")[3] end,
    member = function(wait, shared_owner) return member_of(uuid, wait, shared_owner) end,
    owner = function(wait) return ("%s:%d"):format(uuid, wait) end,
    close = function() silent.connection:close() end,
  }
end

-- Calls the program for several locks, with a single key.
local function acquire_all(owner, from)
  return call("acquire_all", KEY, "", LEASE, TTL, owner, from)
end

-- Puts the listeners' first waits into the queue.
local function line_up(...)
  for _, each in ipairs { ... } do assert.equal(0, acquire(each.owner(1), each.member(1))[1]) end
end

-- Closes the listeners, and leaves nothing on the server.
local function finish(...)
  for _, each in ipairs { ... } do each:close() end
  world.cli("DEL", KEY, crowd.queue_of(KEY))
end

local function place_of(member)
  return tonumber(world.cli("ZSCORE", crowd.queue_of(KEY), member) or nil)
end

-- Returns a client that waits for releases as Redisson does.
local function redisson()
  local connection = assert(resp.connect { path = world.server.path })
  connection:call("SUBSCRIBE", "redisson_lock__channel:{" .. KEY .. "}")
  return connection
end

describe("a command that arrives late", function()
  it("does not release, renew, shorten or otherwise change its caller's newer hold", function()
    local lock = assert(world.client():lock(KEY):acquire(0))
    local old = lock:owner()
    assert(lock:release() and lock:acquire(0))
    local owner = lock:owner()
    assert.is_true(owner ~= old)
    assert.equal(-2, release(old))
    assert.equal(0, call("leave", KEY, old, 0, "", ""))
    assert.equal(-2, world.cli("EVAL", crowd.program("extend"), 2, KEY, crowd.queue_of(KEY), old,
      10, "", ""))
    assert.same({ -2 }, world.cli("EVAL", crowd.program("renew"), 1, KEY, old, 60000))
    assert.same({ [owner] = "1" }, world.hash(KEY))
    assert.is_true(lock:check())
    assert(lock:release())
  end)

  it("does not change a mutex or an idempotent run that was acquired later", function()
    local mutex = assert(world.client():mutex("m"):acquire(0))
    local old = mutex:owner()
    assert(mutex:release() and mutex:acquire(0))
    assert.is_true(mutex:owner() ~= old)
    assert.equal(-2, call("mutex_release", "m", old, 0, LEASE, ""))
    assert(mutex:check() and mutex:release())
  end)

  it("for several locks does not release newer holds of them", function()
    local both = assert(world.client():multi_lock({ "a", "b" }):acquire(0))
    local old = { a = world.cli("HKEYS", "a")[1], b = world.cli("HKEYS", "b")[1] }
    assert.is_true(old.a ~= old.b)
    assert(both:release() and both:acquire(0))
    for key, owner in pairs(old) do assert.equal(-2, call("release", key, owner, 0, LEASE, "")) end
    assert(both:is_held() and both:check() and both:release())
  end)
end)

describe("a grant", function()
  it("names its key, and a queue score that its waiter never gets again", function()
    local waiter = listener(1)
    assert.equal(1, acquire("A:1")[1])
    local first = acquire(waiter.owner(1), waiter.member(1))
    assert.equal(0, first[1])
    assert.equal(1, release("A:1"))
    assert.matches("^1 grant l 1 " .. first[5] .. " %d+ " .. GRANT .. " " .. KEY .. "$",
      waiter.receive())
    world.cli("DEL", KEY) -- the grant runs out
    world.hold_as("B:1", KEY)
    local second = acquire(waiter.owner(1), waiter.member(1))
    assert.equal(0, second[1])
    assert.is_true(second[5] ~= first[5])
    assert.equal(second[5], acquire(waiter.owner(1), waiter.member(1))[5])
    finish()
    waiter.close()
  end)

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

describe("a shared owner's grant", function()
  -- One process of a shared owner waits and is granted the lock, but does not learn of it; another
  -- one joins.
  local function granted_and_joined()
    local waiter = listener(1)
    local member = waiter.member(1, "svc")
    assert.equal(1, acquire("A:1")[1])
    assert.equal(0, acquire("svc", member, 0, true)[1])
    assert.equal(1, release("A:1"))
    assert.same({ svc = "1" }, world.hash(KEY))
    assert.same({ 2, 1 }, acquire("svc", "", 0, true))
    assert.equal(1, acquire("svc", "", 1, true)[1])
    assert.same({ svc = "2" }, world.hash(KEY))
    return waiter, member
  end

  it("counts as an additional hold if another process has joined and the waiter accepts it", function()
    local waiter, member = granted_and_joined()
    local taken = acquire("svc", member, 0, true)
    assert.same({ 1, 1 }, { taken[1], taken[3] })
    assert.same({ svc = "2" }, world.hash(KEY))
    assert.equal(2, release("svc", 0, 1))
    assert.equal(1, release("svc", 0, 1))
    assert.equal(0, world.cli("EXISTS", KEY))
    waiter.close()
  end)

  it("counts as one hold if the waiter itself has joined in the meantime", function()
    local waiter = listener(1)
    local member = waiter.member(1, "svc")
    world.hold_as("svc", KEY)
    assert.same({ 2, 1 }, acquire("svc", member, 0, true))
    world.cli("ZADD", crowd.queue_of(KEY), 5, member)
    assert.equal(1, release("svc", 0, 1)) -- another process held it, and this one is granted it
    local taken = acquire("svc", member, 1, true)
    assert.same({ 1, -1 }, { taken[1], taken[3] })
    assert.same({ svc = "1" }, world.hash(KEY))
    assert.equal(1, release("svc", 0, 1))
    waiter.close()
  end)

  it("is given back if another process has joined and the waiter gives up", function()
    local waiter, member = granted_and_joined()
    assert.equal(1, call("leave", KEY, "svc", 0, member, 0))
    assert.same({ svc = "1" }, world.hash(KEY))
    assert.equal(1, release("svc", 0, 1))
    waiter.close()
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
  local function fill(count, first)
    world.cli("EVAL", [[
      for i = 1, tonumber(ARGV[1]) do
        redis.call('ZADD', KEYS[1], ARGV[2] + i, ('1l%08x-0000-8000-8000-000000000000:1:0'):format(i))
      end]], 1, crowd.queue_of(KEY), count, first or 0)
  end

  it("with many dead waiters costs each script a bounded number of steps", function()
    assert.equal(1, acquire("A:1")[1])
    fill(10000)
    assert.equal(3, release("A:1"))
    local left = world.cli("ZCARD", crowd.queue_of(KEY))
    assert.is_true(left >= 8900 and left < 10000, left)
    assert.equal(3, call("leave", KEY, "A:1", 0, "", ""))
    assert.is_true(world.cli("ZCARD", crowd.queue_of(KEY)) < left - 900)
    finish()
  end)

  it("of a finished idempotent run costs each script a bounded number of steps, and all waiters are notified", function()
    local client, waiter, queue = world.client(), listener(1), crowd.queue_of(KEY)
    local before
    assert(client:idempotent(KEY, { expire = 60 }, function()
      world.cli("EVAL", [[
        for i = 1, 2500 do redis.call('ZADD', KEYS[1], i, ARGV[1] .. i .. ':0') end]], 1, queue,
        ("1g%s:"):format(waiter.uuid))
      before = crowd.calls(world.server)
      return "result"
    end))
    for number = 1, 2500 do assert.equal(("1 recheck %d"):format(number), waiter.receive()) end
    assert.equal(0, world.cli("EXISTS", queue))
    assert.equal(3, crowd.calls_since(world.server, before).zrem) -- one per script
    finish(waiter)
  end)

  it("with many dead waiters is passed on to a live one in the background", function()
    local lock = assert(world.client():lock(KEY):acquire(0))
    fill(10000)
    local waiter = listener(0xfffff)
    world.cli("ZADD", crowd.queue_of(KEY), 20000, waiter.member(7))
    assert(lock:release())
    assert.matches("^1 grant l 7 20000 ", waiter.receive())
    assert.same({ [waiter.owner(7)] = "1" }, world.hash(KEY))
    finish(waiter)
  end)

  it("of a mutex is read once by a release, even if other entries precede the next waiter", function()
    local waiters = {}
    local function mutex(program, owner, ...) return call("mutex_" .. program, KEY, owner, ...) end
    assert.equal(1, mutex("acquire", OURS:format(1) .. ":1", 0, 0, LEASE, TTL, "")[1])
    for i = 1, 4 do
      waiters[i] = listener(i)
      local member = waiters[i].member(1):gsub("^1l", "1m")
      assert.equal(0, mutex("acquire", waiters[i].owner(1), 0, 0, LEASE, TTL, member)[1])
    end
    assert.equal(1, mutex("release", OURS:format(1) .. ":1", 0, 0, ""))
    local before = crowd.calls(world.server)
    assert.equal(1, mutex("release", waiters[1].owner(1), 0, 0, ""))
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

  it("drops waiters for a different type of key, and notifies them", function()
    local waiter = listener(1)
    local mutex = waiter.member(1):gsub("^1l", "1m")
    assert.equal(1, acquire("A:1")[1])
    world.cli("ZADD", crowd.queue_of(KEY), 5, mutex)
    assert.equal(1, release("A:1"))
    assert.equal("1 recheck 1", waiter.receive())
    assert.equal(0, world.cli("EXISTS", KEY, crowd.queue_of(KEY)))
    waiter.close()
  end)

  it("notifies the next waiter when the first one leaves while the lock is reserved for Redisson", function()
    local head, second = listener(1), listener(2)
    local java = redisson()
    assert.equal(1, acquire("A:1")[1])
    line_up(head, second)
    assert.equal(1, release("A:1"))
    assert.equal("1 turn 1 50", head.receive())
    assert.equal(0, call("leave", KEY, head.owner(1), 0, head.member(1), ""))
    assert.matches("^1 [%a ]+ 1 ", second.receive()) -- a grant if Redisson's 50 ms are over
    finish(head, second, java)
  end)
end)

describe("an unconfirmed grant that ended", function()
  -- Two waiters of one client and one of another. The first one was granted the lock, and its lease
  -- has ended.
  local function missed()
    local client, other = listener(1), listener(2)
    assert.equal(1, acquire("A:1")[1])
    for _, wait in ipairs { { client, 1 }, { client, 2 }, { other, 1 } } do
      assert.equal(0, acquire(wait[1].owner(wait[2]), wait[1].member(wait[2]))[1])
    end
    assert.equal(1, release("A:1"))
    assert.matches("^1 grant l 1 ", client.receive())
    world.cli("DEL", KEY)
    return client, other
  end

  it("puts its waiter back at the front of the queue if its client sends another request", function()
    local client, other = missed()
    assert.equal(0, acquire(client.owner(2), client.member(2))[1])
    assert.same({ [client.owner(1)] = "1" }, world.hash(KEY))
    assert.equal(0, place_of(client.member(1)))
    assert.is_true(place_of(client.member(2)) > 0)
    finish(client, other)
  end)

  it("removes all waiters of its client from the queue if the next request is another client's", function()
    local client, other = missed()
    assert.equal(1, acquire(other.owner(1), other.member(1))[1])
    assert.is_nil(place_of(client.member(1)))
    assert.is_nil(place_of(client.member(2)))
    assert.equal(0, world.cli("EXISTS", crowd.queue_of(KEY)))
    finish(client, other)
  end)
end)

describe("a waiter", function()
  it("extends the queue's TTL beyond its recheck interval with each request", function()
    local waiter = listener(1)
    world.hold_as("B:1", KEY)
    for _ = 1, 2 do
      line_up(waiter)
      assert.is_true(world.cli("PTTL", crowd.queue_of(KEY)) > 90000)
      world.cli("PEXPIRE", crowd.queue_of(KEY), 1000)
    end
    finish(waiter)
  end)

  it("leaves the queue when it acquires the lock", function()
    local waiter = listener(1)
    world.hold_as("B:1", KEY)
    line_up(waiter)
    world.cli("DEL", KEY)
    assert.equal(1, acquire(waiter.owner(1), waiter.member(1))[1])
    assert.equal(0, world.cli("EXISTS", crowd.queue_of(KEY)))
    finish(waiter)
  end)

  it("leaves the queue when it confirms its grant", function()
    local waiter, extend = listener(1), crowd.program("extend")
    assert.equal(1, acquire("A:1")[1])
    line_up(waiter)
    assert.equal(1, release("A:1"))
    assert.equal(0, place_of(waiter.member(1)))
    assert.equal(1, world.cli("EVAL", extend, 2, KEY, crowd.queue_of(KEY), waiter.owner(1), LEASE,
      GRANT, waiter.member(1)))
    assert.equal(0, world.cli("EXISTS", crowd.queue_of(KEY)))
    finish(waiter)
  end)

  it("leaves the queue when it gets the result of a finished idempotent run", function()
    local waiter = listener(1)
    local member = waiter.member(1):gsub("^1l", "1g")
    assert.equal(1, call("begin", KEY, "A:1", 0, 0, LEASE, TTL, "", "print")[1])
    assert.equal(0, call("begin", KEY, waiter.owner(1), 0, 0, LEASE, TTL, member, "print")[1])
    world.cli("DEL", KEY)
    world.cli("HSET", KEY, "done", "result", "print", "print", "by", "A:1")
    assert.same({ 3, "result" }, call("begin", KEY, waiter.owner(1), 0, 0, LEASE, TTL, member,
      "print"))
    assert.equal(0, world.cli("EXISTS", crowd.queue_of(KEY)))
    finish(waiter)
  end)

  it("is notified to check again when it becomes first in line for a lock that another library holds", function()
    local first, second = listener(1), listener(2)
    world.hold_as("c8bfa1a5-7ee0-4f14-9d14-7a8e2a0f5f00:1", KEY)
    for _, each in ipairs { first, second } do
      local reply = acquire(each.owner(1), each.member(1))
      assert.same({ 0, 1 }, { reply[1], reply[4] })
    end
    assert.equal(0, call("leave", KEY, first.owner(1), 0, first.member(1), ""))
    assert.equal("1 recheck 1", second.receive())
    finish(first, second)
  end)
end)

describe("the time for which a free lock is reserved for Redisson", function()
  local function now_ms()
    local time = world.cli("TIME")
    return math.floor(time[1] * 1000 + time[2] / 1000)
  end

  local function mark(from_now_ms)
    world.cli("ZADD", crowd.queue_of(KEY), ("%d"):format(-(now_ms() + from_now_ms)), "1f 0 0 1 0")
  end

  -- Returns for how many more ms the free lock is left to Redisson's clients.
  local function left()
    local head = world.cli("ZRANGE", crowd.queue_of(KEY), 0, 0, "WITHSCORES")
    assert.matches("^1f ", head[1])
    return -tonumber(head[2]) - now_ms()
  end

  it("ends when the server's clock is set back", function()
    local java = redisson()
    mark(3600000)
    assert.equal(1, acquire("A:1")[1])
    finish(java)
  end)

  it("ends when a Redisson client has acquired the lock", function()
    local java, waiter = redisson(), listener(1)
    mark(60000)
    assert.is_true(left() > 0)
    world.hold_as("c8bfa1a5-7ee0-4f14-9d14-7a8e2a0f5f00:1", KEY)
    line_up(waiter)
    assert.is_true(left() <= 0)
    finish(java, waiter)
  end)
end)

describe("a re-entry of a hold that has ended", function()
  it("fails with a reply that contains the reason, and creates nothing", function()
    assert.same({ -1 }, acquire("A:1", "", 1))
    assert.same({ -1, 1 }, acquire_all("A:1", 1))
    assert.equal(0, world.cli("EXISTS", KEY))
    world.hold_as("B:1", KEY)
    assert.same({ -2 }, acquire("A:1", "", 1))
    assert.same({ -2, 1 }, acquire_all("A:1", 1))
    assert.same({ ["B:1"] = "1" }, world.hash(KEY))
    finish()
  end)
end)

describe("a fencing token", function()
  it("stays the same in a re-entry", function()
    local counter = "redisson_lock_token:{" .. KEY .. "}"
    local taken, last = acquire_all("A:1", 0), world.cli("GET", counter)
    assert.equal(last, ("%.0f"):format(taken[2]))
    assert.same({ 1, 0 }, acquire_all("A:1", 1))
    assert.equal(last, world.cli("GET", counter))
    finish()
  end)

  it("is above the previous one, even if the counter is ahead of the server's clock", function()
    local ahead = 8e15
    world.cli("SET", "redisson_lock_token:{" .. KEY .. "}", ("%.0f"):format(ahead))
    -- tokens are multiples of 8, so a token that Java draws in between is recognized
    assert.equal(ahead + 8, acquire("A:1")[2])
    assert.equal(1, release("A:1"))
    assert.equal(ahead + 16, acquire_all("A:2", 0)[2])
    finish()
  end)

  it("is never lowered on the server by a `raise` command that arrives late", function()
    local counter = "redisson_lock_token:{" .. KEY .. "}"
    local function raise(token)
      assert.equal(1, world.cli("EVAL", crowd.program("raise"), 1, counter, token, TTL))
      return world.cli("GET", counter)
    end
    assert.same({ "20", "20", "21" }, { raise(20), raise(10), raise(21) })
  end)
end)

describe("a partial release", function()
  it("renews the remaining hold, and never shortens its lease", function()
    assert.equal(1, acquire("A:1")[1])
    assert.equal(1, acquire("A:1", "", 1)[1])
    world.cli("PEXPIRE", KEY, 1000)
    assert.equal(2, release("A:1", 1))
    assert.is_true(world.cli("PTTL", KEY) > LEASE - 10000)
    world.cli("PEXPIRE", KEY, 60000)
    assert.equal(2, release("A:1", 1))
    assert.is_true(world.cli("PTTL", KEY) > 50000)
    finish()
  end)
end)

describe("force_release", function()
  it("refuses keys that are not locks", function()
    local lock = world.client():lock("user:1")
    local others = {
      { "HSET", "user:1", "name", "bob", "age", "5" },
      { "HSET", "user:1", "name", "bob" },
      { "HSET", "user:1", "hits", "5" },
    }
    for _, command in ipairs(others) do
      for _, ttl in ipairs { false, 30000 } do
        world.cli((table.unpack or unpack)(command)) -- luacheck: ignore
        if ttl then world.cli("PEXPIRE", "user:1", ttl) end
        fails("conflict", lock:force_release())
        assert.equal(1, world.cli("DEL", "user:1"))
      end
    end
  end)

  it("frees locks of Redisson, of named owners and without fencing, and running idempotent calls", function()
    local client = world.client()
    local lock = client:lock(KEY)
    world.hold_as("c8bfa1a5-7ee0-4f14-9d14-7a8e2a0f5f00:1", KEY)
    assert.is_true(lock:force_release())
    local named = client:lock(KEY, { owner = "job:7" })
    assert(named:acquire(0))
    assert.is_true(lock:force_release())
    local unfenced = assert(client:lock("unfenced", { owner = "job:7", fencing = false }):acquire(0))
    assert.is_true(unfenced:force_release())
  end)
end)
