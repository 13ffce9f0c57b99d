-- The programs of read/write locks called alone; as cases.lua.

local LEASE, GRANT, TTL = 30000, 500, 600000
local T0 = 1700000000000000
local T0_MS = T0 / 1000
local LOCK, COUNTER, QUEUE, CHANNEL = "k", "redisson_lock_token:{k}", "holdfast_queue:{k}",
  "redisson_rwlock:{k}"
local FOUR = { LOCK, COUNTER, QUEUE, CHANNEL }
local UUID = "1111111%d-0000-8000-8000-000000000000"
local A, B, C = UUID:format(1), UUID:format(2), UUID:format(3)
local READER, WRITER = A .. ":1", A .. ":2:write"
local JAVA = "6f1c2b7a-1111-4222-8333-000000000001:7"
local RECORD = "1f 0 0 1 0"

local cases = {}

local function case(name, run) cases[#cases + 1] = { "read/write: " .. name, run } end

local function text(number) return ("%.0f"):format(number) end

local function acquire(c, owner, more)
  more = more or {}
  return c.run(more.program or "rw_acquire", FOUR, owner, GRANT, more.from or 0, 0, more.lease
    or LEASE, more.ttl or TTL,
    more.member or "", more.writer)
end

local function release(c, owner, to, member, program)
  return c.run(program or "rw_release", FOUR, owner, GRANT, to or 0, LEASE, "", member)
end

local function leave(c, owner, to, member)
  return c.run("rw_leave", FOUR, owner, GRANT, to or 0, member or "", "")
end

local function hold_key(owner, n) return ("{k}:%s:rwlock_timeout:%d"):format(owner, n or 1) end

local function reads(c, owner, ms, count)
  c.cmd("HSET", LOCK, "mode", "read", owner, count or 1)
  for n = 1, count or 1 do c.cmd("SET", hold_key(owner, n), 1, "PX", ms or LEASE) end
  c.cmd("PEXPIRE", LOCK, ms or LEASE)
end

local function writes(c, owner, ms)
  c.cmd("HSET", LOCK, "mode", "write", owner, 1)
  c.cmd("PEXPIRE", LOCK, ms or LEASE)
end

local function member(kind, client, number, ttl)
  return ("1%s%s:%d:%s"):format(kind, client, number, ttl or TTL)
end

local function queued(c, ...)
  c.cmd("ZADD", QUEUE, ...)
  c.cmd("PEXPIRE", QUEUE, 120000)
end

local function queue(c) return c.cmd("ZRANGE", QUEUE, 0, -1, "WITHSCORES") end
local function hears(c, client) return c.listen("holdfast_grant:" .. client) end
local function mode(c) return c.cmd("HGET", LOCK, "mode") end

-- ---- acquire ----

case("a re-entry of what is gone is told how", function(c)
  c.same({ -1 }, acquire(c, READER, { from = 1 }))
  reads(c, B .. ":5")
  c.same({ -2 }, acquire(c, READER, { from = 1 }))
end)

case("a re-entry that is sent twice counts once, each hold with a lease of its own", function(c)
  reads(c, READER)
  for _ = 1, 2 do c.same({ 1, 0, 0 }, acquire(c, READER, { from = 1, lease = 100 })) end
  c.same("2", c.cmd("HGET", LOCK, READER))
  c.same({ LEASE, 100, LEASE }, { c.cmd("PTTL", hold_key(READER)),
    c.cmd("PTTL", hold_key(READER, 2)), c.cmd("PTTL", LOCK) })
end)

case("an acquire that comes a second time shortens nothing", function(c)
  acquire(c, READER)
  c.same({ 1, T0, 0 }, acquire(c, READER, { lease = 100 }))
  c.same({ LEASE, LEASE }, { c.cmd("PTTL", hold_key(READER)), c.cmd("PTTL", LOCK) })
  acquire(c, READER, { lease = 2 * LEASE })
  c.same({ 2 * LEASE, 2 * LEASE }, { c.cmd("PTTL", hold_key(READER)), c.cmd("PTTL", LOCK) })
end)

case("an acquire that is sent twice counts once", function(c)
  for _ = 1, 2 do c.same({ 1, T0, 0 }, acquire(c, READER)) end
  c.same({ "mode", "read", READER, "1" }, c.cmd("HGETALL", LOCK))
end)

case("a key with a brace stands as it is in the names of leases", function(c)
  c.run("rw_acquire", { "a{b}", "ct", "qu", "ch" }, READER, GRANT, 0, 0, LEASE, 0, "")
  c.same(LEASE, c.cmd("PTTL", ("a{b}:%s:rwlock_timeout:1"):format(READER)))
end)

case("who writes may read, and who writes elsewhere may not", function(c)
  writes(c, WRITER)
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, READER, { writer = B .. ":2:write" }))
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, READER))
  c.same({ 1, T0, 0 }, acquire(c, READER, { writer = WRITER }))
  c.same({ "mode", "write", WRITER, "1", READER, "1" }, c.cmd("HGETALL", LOCK))
  c.same({ 1 }, c.run("rw_renew", { LOCK, LOCK }, WRITER, 40000))
  c.same({ 40000, LEASE }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", hold_key(READER)) })
end)

case("a waiter whose grant ran out goes before the others", function(c)
  writes(c, B .. ":5:write")
  local mine = member("r", A, 1)
  queued(c, 0, mine, T0, member("r", C, 1))
  local said = acquire(c, READER, { member = mine })
  c.same({ 0, 0 }, { said[1], said[3] })
  local first = queue(c)
  c.same(mine, first[1])
  c.same(true, tonumber(first[2]) > 0)
end)

case("waiters stand in the order in which they came", function(c)
  writes(c, JAVA)
  local places = {}
  for number, client in ipairs { A, B, C } do
    local reply = acquire(c, ("%s:%d:write"):format(client, number),
      { member = member("w", client, number) })
    c.same({ 0, number - 1, number == 1 and 1 or 0 }, { reply[1], reply[3], reply[4] })
    places[number] = member("w", client, number)
  end
  c.same(places, c.cmd("ZRANGE", QUEUE, 0, -1))
end)

case("what stands at no place is no waiter", function(c)
  writes(c, B .. ":5:write")
  queued(c, "inf", "nobody")
  c.same({ 0, LEASE, 0, 0, text(T0) }, acquire(c, READER, { member = member("r", A, 1) }))
  queued(c, "1e300", "nobody")
  c.same({ 0, LEASE, 1, 0, text(T0 + 1) }, acquire(c, C .. ":1", { member = member("r", C, 1) }))
  c.same({ member("r", A, 1), member("r", C, 1) }, c.cmd("ZRANGE", QUEUE, 0, -1))
end)

case("an extension is for the entries there are, and told only if it is shorter", function(c)
  local ears = hears(c, B)
  local function extend(ms) return c.run("rw_extend", { LOCK, QUEUE }, READER, ms, "", "") end
  reads(c, READER, LEASE, 2)
  queued(c, T0, member("w", B, 7))
  c.same(1, extend(LEASE))
  c.same(1, extend(2 * LEASE))
  c.same({}, ears.heard())
  c.same({ 1, 0 }, { c.cmd("EXISTS", hold_key(READER, 2)), c.cmd("EXISTS", hold_key(READER, 3)) })
  c.same(1, extend(1000))
  c.same({ "1 recheck 7 1000" }, ears.heard())
end)

case("a partial release of a reader keeps the timeouts of what stays", function(c)
  reads(c, READER, LEASE, 3)
  c.same(2, release(c, READER, 2))
  local there = {}
  for n = 1, 3 do there[n] = c.cmd("EXISTS", hold_key(READER, n)) end
  c.same({ 1, 1, 0 }, there)
end)

case("a release says which grant it has not confirmed", function(c)
  reads(c, READER)
  reads(c, B .. ":1")
  queued(c, 0, member("r", A, 1), 0, member("r", B, 1))
  c.same(1, release(c, READER, 0, member("r", A, 1)))
  c.same({ member("r", B, 1), "0" }, queue(c))
  c.same({ 1, T0, 0 }, acquire(c, C .. ":1"), "a grant whose hold is there stays")
  c.same({ member("r", B, 1), "0" }, queue(c))
end)

case("a release among readers looks further when Redisson waits", function(c)
  reads(c, READER)
  reads(c, B .. ":1", 100)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.pass(150)
  local java = c.listen(CHANNEL)
  c.same(1, release(c, READER))
  c.same({ "0" }, java.heard())
  c.same(0, c.cmd("EXISTS", LOCK))
end)

case("a lock of another kind is a conflict, for acquire and force", function(c)
  c.cmd("HSET", LOCK, JAVA, 1)
  c.same({ err = "WRONGTYPE the key holds a lock of another kind" }, acquire(c, READER))
  c.same({ err = "WRONGTYPE the key is not a read/write lock" }, c.run("rw_force", FOUR, A, GRANT))
  c.cmd("DEL", LOCK)
  c.cmd("SET", LOCK, "v")
  c.same({ err = "WRONGTYPE the key holds a string" }, c.run("rw_force", FOUR, A, GRANT))
  c.cmd("DEL", LOCK)
  c.cmd("HSET", LOCK, "mode", "read", JAVA, 1)
  c.same({ err = "WRONGTYPE the key is not a read/write lock" }, c.run("rw_force", FOUR, A, GRANT))
  c.same(0, c.run("rw_leave", FOUR, A .. ":9", GRANT, 0, "", ""))
end)

case("data with a field that is called mode is no lock for force", function(c)
  local function is_left(...)
    c.cmd("DEL", LOCK)
    c.cmd("HSET", LOCK, ...)
    c.cmd("PEXPIRE", LOCK, LEASE)
    c.same({ err = "WRONGTYPE the key is not a read/write lock" },
      c.run("rw_force", FOUR, A, GRANT))
    c.same(1, c.cmd("EXISTS", LOCK))
  end
  is_left("mode", "dark", JAVA, 1)
  is_left("mode", "read", "user", 1)
  is_left("mode", "read", JAVA, "x")
  is_left("mode", "drain:x", JAVA, 1)
  is_left(JAVA, 1)
end)

case("force ends a lock in each mode", function(c)
  for name, owner in pairs { read = JAVA, write = JAVA .. ":write", ["drain:17"] = READER } do
    c.cmd("HSET", LOCK, "mode", name, owner, 2)
    c.cmd("PEXPIRE", LOCK, LEASE)
    c.same(1, c.run("rw_force", FOUR, A, GRANT))
    c.same(0, c.cmd("EXISTS", LOCK))
  end
end)

case("a lock without a TTL is none", function(c)
  c.cmd("HSET", LOCK, "mode", "write", JAVA .. ":write", 1)
  c.same({ -3 }, acquire(c, READER))
end)

case("a reader carries the last token, or draws the first", function(c)
  c.same({ 1, T0, 0 }, acquire(c, READER))
  c.same({ 1, T0, 0 }, acquire(c, B .. ":1"))
  c.same({ 1, 0, 0 }, acquire(c, C .. ":1", { ttl = 0 }))
  c.cmd("SET", COUNTER, "9007199254740990")
  c.same({ 1, T0, 0 }, acquire(c, C .. ":2"), "one that leaves no room")
end)

case("a writer forgets dead readers, and draws a token", function(c)
  reads(c, B .. ":1", 100)
  reads(c, JAVA, 200, 2)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.pass(150)
  c.same({ 0, LEASE - 150, 0, 0, "" }, acquire(c, WRITER))
  c.same({ "mode", "read", JAVA, "2" }, c.cmd("HGETALL", LOCK))
  c.pass(100)
  c.same({ 1, T0 + 250000, 0 }, acquire(c, WRITER))
  c.same({ "mode", "write", WRITER, "1" }, c.cmd("HGETALL", LOCK))
end)

case("a newer format in the way is told, and left alone", function(c)
  queued(c, T0, "2w" .. B .. ":1:x")
  c.same({ -4 }, acquire(c, READER))
  c.same({ -4 }, acquire(c, WRITER, { member = member("w", A, 2) }))
  c.same({ "2w" .. B .. ":1:x", text(T0) }, queue(c))
end)

case("a waiter for another kind of lock is told to look again", function(c)
  local other = hears(c, B)
  queued(c, T0, member("l", B, 7))
  queued(c, T0 + 1, "nonsense")
  c.same({ 1, T0, 0 }, acquire(c, READER))
  c.same({ "1 recheck 7" }, other.heard())
  c.same({}, queue(c))
end)

case("a grant of a writer that ran out makes its client's waiters forgotten, a reader's only that one", function(c)
  hears(c, A)
  hears(c, B)
  hears(c, C)
  queued(c, 0, member("w", B, 1), T0, member("r", B, 2), T0 + 1, member("w", C, 1))
  c.same({ 0, GRANT, 0, 0, "" }, acquire(c, READER))
  c.same({ "mode", "write", C .. ":1:write", "1" }, c.cmd("HGETALL", LOCK))
  c.same({ member("w", C, 1), "0" }, queue(c))
  c.cmd("DEL", LOCK, QUEUE)
  queued(c, 0, member("r", B, 1), 0, member("r", A, 9), T0, member("r", B, 2))
  c.same({ 1, T0, 0 }, acquire(c, READER))
  c.same(nil, c.cmd("HGET", LOCK, B .. ":1") or nil)
  c.same("1", c.cmd("HGET", LOCK, B .. ":2"))
  c.same("1", c.cmd("HGET", LOCK, A .. ":9"),
    "that of the client that asks keeps its place, before the others")
end)

-- ---- letting in ----

case("readers come in together, with a token if they want one and it can be had", function(c)
  local one, two = hears(c, A), hears(c, B)
  writes(c, WRITER)
  c.cmd("SET", COUNTER, text(T0))
  queued(c, T0, member("r", A, 5), T0 + 1, member("r", B, 6), T0 + 2, member("r", A, 7, 0), T0 + 3,
    member("r", A, 8))
  c.same(1, release(c, WRITER))
  c.same({ ("1 grants r %.0f 500 2 5 %.0f 8 %.0f k"):format(T0, T0, T0 + 3),
    ("1 grants r 0 500 1 7 %.0f k"):format(T0 + 2) },
    one.heard())
  c.same({ ("1 grants r %.0f 500 1 6 %.0f k"):format(T0, T0 + 1) }, two.heard())
  c.same(4, c.cmd("ZCOUNT", QUEUE, 0, 0))
end)

case("a grant goes without a token that cannot be drawn", function(c)
  local one = hears(c, A)
  writes(c, WRITER)
  c.cmd("HSET", COUNTER, "f", "v")
  queued(c, T0, member("w", A, 5))
  c.same(1, release(c, WRITER))
  c.same({ ("1 grant w 5 %.0f 0 500 k"):format(T0) }, one.heard())
end)

case("what is too much for one script is left to the next", function(c)
  writes(c, WRITER)
  c.cmd("EVAL", "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, '1r' .. ARGV[1] .. ':' .. i .. ':0') end", 1, QUEUE, B)
  c.same(3, release(c, WRITER))
  c.same(500, c.cmd("ZCARD", QUEUE))
  c.same({ 1, T0, 0 }, acquire(c, READER))
  c.cmd("DEL", LOCK)
  c.cmd("EVAL", "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, '1r' .. ARGV[1] .. ':' .. i .. ':0') end", 1, QUEUE, B)
  c.same({ 0, 1, 0, 0, "" }, acquire(c, WRITER))
  c.cmd("EVAL", "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, '1r' .. ARGV[1] .. ':' .. i .. ':0') end", 1, QUEUE, B)
  c.same(3, leave(c, A .. ":9"))
  reads(c, READER)
  writes(c, WRITER)
  c.cmd("EVAL", "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, '1r' .. ARGV[1] .. ':' .. i .. ':0') end", 1, QUEUE, B)
  c.same(3, release(c, WRITER), "a writer that goes on as a reader")
  c.same("read", mode(c))
  c.cmd("EVAL", "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, '1r' .. ARGV[1] .. ':' .. i .. ':0') end", 1, QUEUE, B)
  c.same(3, c.run("rw_force", FOUR, A, GRANT))
end)

case("a release does not need its queue to be one", function(c)
  for _, owner in ipairs { READER, WRITER } do
    if owner == READER then reads(c, READER) else writes(c, WRITER) end
    c.cmd("SET", QUEUE, "v")
    c.same(1, release(c, owner))
    c.same(0, c.cmd("EXISTS", LOCK))
    c.cmd("DEL", QUEUE)
  end
  reads(c, READER)
  writes(c, WRITER)
  c.cmd("SET", QUEUE, "v")
  c.same(1, release(c, WRITER))
  c.same("read", mode(c))
  reads(c, B .. ":1")
  c.same(1, release(c, READER))
  c.same({ "mode", "read", B .. ":1", "1" }, c.cmd("HGETALL", LOCK))
end)

-- ---- release, leave ----

case("a release of what is not held is told how", function(c)
  c.same(-1, release(c, READER))
  writes(c, B .. ":1:write")
  c.same(-2, release(c, READER))
end)

case("the first waiter hears when the longest lease gets shorter", function(c)
  local first = hears(c, B)
  reads(c, READER, LEASE)
  reads(c, C .. ":1", 500)
  c.cmd("PEXPIRE", LOCK, LEASE)
  queued(c, T0, member("w", B, 4))
  c.same(1, release(c, READER))
  c.same({ "1 recheck 4 500" }, first.heard())
  c.same(500, c.cmd("PTTL", LOCK))
end)

case("a lease without a whole millisecond left keeps the lock until it ends", function(c)
  reads(c, C .. ":7", 100)
  reads(c, READER)
  queued(c, T0, member("w", B, 4))
  local first = hears(c, B)
  c.pass(100)
  c.same(0, c.cmd("PTTL", hold_key(C .. ":7")))
  c.same(1, release(c, READER))
  c.same({ "1 recheck 4 1" }, first.heard())
  c.same(1, c.cmd("EXISTS", LOCK))
end)

case("a writer goes on as a reader although that lease is about to end", function(c)
  writes(c, WRITER)
  c.cmd("HSET", LOCK, READER, 1)
  c.cmd("SET", hold_key(READER), 1, "PX", 100)
  c.pass(100)
  c.same(1, release(c, WRITER))
  c.same(1, c.cmd("HEXISTS", LOCK, READER))
end)

case("a release among many looks at none of them", function(c)
  local first = hears(c, B)
  for i = 1, 10 do reads(c, C .. ":" .. i) end
  reads(c, READER)
  queued(c, T0, member("w", B, 4))
  c.pass(LEASE - 1)
  c.same(1, release(c, READER))
  c.same({}, first.heard())
end)

case("a leave that knows the number alone forgets the grant of that", function(c)
  reads(c, B .. ":2")
  reads(c, B .. ":20")
  queued(c, 0, member("r", B, 2), 0, member("r", B, 20))
  c.same(1, leave(c, B .. ":2", 0, member("r", B, 2, 0)))
  c.same({ member("r", B, 20), "0" }, queue(c))
end)

case("a partial release keeps what stays, and a leave undoes what was too much", function(c)
  reads(c, READER, 1000, 3)
  c.same(2, release(c, READER, 2))
  c.same({ LEASE, LEASE, -2 },
    { c.cmd("PTTL", hold_key(READER)), c.cmd("PTTL", hold_key(READER, 2)),
      c.cmd("PTTL", hold_key(READER, 3)) })
  c.same(1, leave(c, READER, 1))
  c.same("1", c.cmd("HGET", LOCK, READER))
  c.same(0, leave(c, READER, 1))
  c.same(1, leave(c, READER, 0))
  c.same(0, c.cmd("EXISTS", LOCK))
end)

case("a wait that ends lets the next one in, or does nothing where it cannot", function(c)
  local me, next_one = member("w", A, 2), hears(c, B)
  reads(c, C .. ":1")
  queued(c, T0, me, T0 + 1, member("r", B, 3))
  c.same(0, leave(c, WRITER, 0, me))
  c.same("1", c.cmd("HGET", LOCK, B .. ":3"))
  next_one.heard()
  c.cmd("DEL", LOCK, QUEUE)
  writes(c, C .. ":1:write")
  queued(c, T0, me, T0 + 1, member("r", B, 3))
  c.same(0, leave(c, WRITER, 0, me))
  c.same({}, next_one.heard(), "a holder of ours hands over")
  c.cmd("DEL", LOCK, QUEUE)
  c.cmd("HSET", LOCK, JAVA, 1)
  queued(c, T0, me, T0 + 1, member("r", B, 3))
  c.same(0, leave(c, WRITER, 0, me), "a lock of another kind")
  c.cmd("DEL", LOCK, QUEUE)
  reads(c, C .. ":1", 100)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.pass(200)
  queued(c, T0, me, T0 + 1, member("w", B, 3))
  c.same(0, leave(c, WRITER, 0, me), "dead readers are forgotten")
  c.same({ "mode", "write", B .. ":3:write", "1" }, c.cmd("HGETALL", LOCK))
end)

case("the first waiter hears of a holder of Redisson's that it is to listen to", function(c)
  local me, next_one = member("w", A, 2), hears(c, B)
  for _, hold in ipairs { reads, writes } do
    c.cmd("DEL", LOCK, QUEUE)
    hold(c, hold == reads and JAVA or JAVA .. ":write")
    queued(c, T0, me, T0 + 1, member("w", B, 3))
    c.same(0, leave(c, WRITER, 0, me))
    c.same({ "1 recheck 3" }, next_one.heard())
  end
  c.cmd("DEL", LOCK, QUEUE)
  reads(c, READER)
  reads(c, JAVA)
  queued(c, T0, member("w", B, 3))
  c.same(1, release(c, READER))
  c.same({ "1 recheck 3" }, next_one.heard())
  c.cmd("DEL", LOCK, QUEUE)
  reads(c, JAVA)
  queued(c, T0, member("r", B, 2), T0 + 1, member("w", B, 3))
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, C .. ":9"))
  c.same({ ("1 grants r %s 500 1 2 %.0f k"):format(c.cmd("GET", COUNTER), T0), "1 recheck 3" },
    next_one.heard())
end)

-- ---- Redisson ----

case("a free lock is left to Redisson's waiters for a moment, and ours looks", function(c)
  local java, first = c.listen(CHANNEL), hears(c, B)
  writes(c, WRITER)
  queued(c, T0, member("r", B, 3))
  c.same(1, release(c, WRITER))
  c.same({ "1" }, java.heard())
  c.same({ "1 turn 3 5" }, first.heard())
  c.same({ RECORD, "-" .. text(T0_MS + 50), member("r", B, 3), text(T0) }, queue(c))
  c.same({ 0, 5, 0, 1, text(T0) }, acquire(c, B .. ":3", { member = member("r", B, 3) }))
  c.same({ 0, 5, 0, 1, "" }, acquire(c, WRITER))
  c.same(0, leave(c, C .. ":1", 0, member("w", C, 1)))
  c.same({ "1 turn 3 50" }, first.heard())
  c.clock(T0 - 1000000)
  acquire(c, WRITER, { member = member("w", A, 2) })
  c.same("1", c.cmd("HGET", LOCK, B .. ":3"), "the server's clock went back")
  c.cmd("DEL", LOCK, QUEUE, COUNTER)
  c.clock(T0)
  reads(c, READER)
  c.same(1, release(c, READER))
  c.same({ "0" }, java.heard())
  c.same({ RECORD, "-" .. text(T0_MS + 50) }, queue(c))
  c.same(100, c.cmd("PTTL", QUEUE))
  c.pass(51)
  c.same({ 1, T0 + 51000, 0 }, acquire(c, READER))
  c.same({}, queue(c))
end)

case("the turn is over once one of them has come, or nobody listens", function(c)
  queued(c, -(T0_MS + 50), RECORD)
  writes(c, JAVA .. ":write")
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, READER))
  c.same({}, queue(c))
  queued(c, -(T0_MS + 50), RECORD)
  c.cmd("DEL", LOCK)
  c.same({ 1, T0, 0 }, acquire(c, READER))
end)

case("no reader joins while Redisson waits to write, then readers may for as long", function(c)
  c.listen(CHANNEL)
  reads(c, READER)
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":1"))
  c.pass(100)
  c.same({ 0, 150, 0, 1, "" }, acquire(c, B .. ":1"))
  c.pass(160)
  c.same({ 1, T0 + 260000, 0 }, acquire(c, B .. ":1"))
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":2"))
  c.clock(T0 - 1000000)
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":2"), "the server's clock went back")
  c.cmd("DEL", QUEUE)
  reads(c, JAVA)
  c.same(1, acquire(c, B .. ":2")[1], "Redisson's readers join, and so do ours")
end)

case("a writer that goes on as a reader lets nobody join while Redisson waits to write", function(c)
  c.listen(CHANNEL)
  local first = hears(c, B)
  reads(c, READER)
  writes(c, WRITER)
  queued(c, T0, member("r", B, 3))
  c.same(1, release(c, WRITER))
  c.same({}, first.heard())
end)

case("Redisson's readers are kept out for a writer of ours, with pauses", function(c)
  local me, java = member("w", A, 2), c.listen(CHANNEL)
  hears(c, A)
  reads(c, JAVA)
  c.same({ 0, 50, 0, 1, text(T0) }, acquire(c, WRITER, { member = me }))
  c.same("drain:" .. text(T0_MS + 50), mode(c))
  c.same({ 0, 50, 0, 1, text(T0) }, acquire(c, WRITER, { member = me }))
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, B .. ":1"), "no reader of ours passes, either")
  c.pass(60)
  c.same({ 0, 50, 0, 1, text(T0) }, acquire(c, WRITER, { member = me }))
  c.same("read", mode(c))
  c.same({ "1" }, java.heard())
  c.pass(20)
  c.same({ 0, 30, 0, 1, text(T0) }, acquire(c, WRITER, { member = me }))
  c.same("read", mode(c))
  c.pass(920)
  c.same({ 0, 125, 0, 1, text(T0) }, acquire(c, WRITER, { member = me }))
  c.same("drain:" .. text(T0_MS + 1125), mode(c))
  c.clock(T0 - 100000000)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.cmd("SET", hold_key(JAVA), 1, "PX", LEASE)
  acquire(c, WRITER, { member = me })
  c.same("read", mode(c), "the server's clock went back")
end)

case("…who may come in again when no writer of ours waits any more", function(c)
  local me, java = member("w", A, 2), c.listen(CHANNEL)
  reads(c, JAVA)
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  queued(c, T0, me)
  c.same(0, leave(c, WRITER, 0, me))
  c.same("read", mode(c))
  c.same({ "1" }, java.heard())
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  c.same(1, acquire(c, READER)[1])
  c.same("read", mode(c))
end)

-- ---- extend, renew, info ----

case("an extension sets a reader's leases, and the lock's where it is alone", function(c)
  local function extend(owner, ms, most, waiter)
    return c.run("rw_extend", { LOCK, QUEUE }, owner, ms, most or "", waiter or "")
  end
  c.same(-1, extend(READER, 100))
  reads(c, READER, 1000)
  local first = hears(c, B)
  queued(c, 0, member("r", A, 1), T0, member("w", B, 4))
  c.same(1, extend(READER, 0))
  c.same(1, extend(READER, 500, "", member("r", A, 1)))
  c.same({ 500, 500 }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", hold_key(READER)) })
  c.same({ "1 recheck 4 500" }, first.heard())
  c.same({ member("w", B, 4), text(T0) }, queue(c))
  c.same(1, extend(READER, 400, 450))
  c.same(500, c.cmd("PTTL", hold_key(READER)), "one that is longer than that stays")
  reads(c, C .. ":1", 2000)
  c.same(1, extend(READER, 300))
  c.same({ 2000, 300 }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", hold_key(READER)) })
  c.same(-2, extend(B .. ":9", 300))
  c.cmd("DEL", LOCK)
  writes(c, WRITER, 100)
  c.same(1, extend(WRITER, 700))
  c.same(700, c.cmd("PTTL", LOCK))
end)

case("a renewal renews each hold, and none of another type", function(c)
  reads(c, READER, 1000, 2)
  c.cmd("SET", "s", "v")
  c.same({ 1, -2, -1, -2 }, c.run("rw_renew",
    { LOCK, hold_key(READER), "s", "s", "gone", "gone", LOCK, LOCK }, READER, 5000,
    WRITER, 5000, WRITER, 5000, WRITER, 5000))
  c.same({ 5000, 5000, 5000 },
    { c.cmd("PTTL", LOCK), c.cmd("PTTL", hold_key(READER)), c.cmd("PTTL", hold_key(READER, 2)) })
  c.same({ 1 }, c.run("rw_renew", { LOCK, hold_key(READER) }, READER, 100))
  c.same(5000, c.cmd("PTTL", hold_key(READER)))
end)

case("info tells the writer, or else a reader, and how many read", function(c)
  local function info(uuid) return c.run("rw_info", { LOCK, COUNTER, QUEUE }, uuid or A) end
  c.same({ "", 0, -2, "0", 0, -1, 0 }, info())
  reads(c, READER, LEASE, 2)
  reads(c, B .. ":1")
  queued(c, T0, member("w", B, 4), T0 + 1, member("w", A, 4))
  c.same({ READER, 2, LEASE, "0", 2, 1, 2 }, info())
  c.same(0, info(B)[6])
  c.cmd("SET", COUNTER, "8")
  writes(c, WRITER)
  c.same({ WRITER, 1, LEASE, "8", 2, 1, 2 }, info())
end)

case("what is taken by force is passed on, and no lease stays", function(c)
  local java = c.listen(CHANNEL)
  c.same(0, c.run("rw_force", FOUR, A, GRANT))
  reads(c, READER, LEASE, 2)
  c.same(1, c.run("rw_force", FOUR, A, GRANT))
  c.same({ QUEUE }, c.cmd("KEYS", "*"))
  c.same({ "1" }, java.heard())
end)

-- ---- in a cluster with sharded channels, and where a client may not look ----

case("a release reaches Redisson's clients of both kinds", function(c)
  local sharded = c.listen(CHANNEL, true)
  reads(c, READER)
  c.same(1, release(c, READER, 0, nil, "sharded_rw_release"))
  c.same({ "0" }, sharded.heard())
  local plain = c.listen(CHANNEL)
  c.cmd("DEL", QUEUE)
  writes(c, WRITER)
  c.same(1, release(c, WRITER, 0, nil, "sharded_rw_release"))
  c.same({ "1" }, sharded.heard())
  c.same({ "1" }, plain.heard())
  reads(c, READER)
  c.cmd("DEL", QUEUE)
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":1", { program = "sharded_rw_acquire" }))
end)

case("who may not look or publish finds nobody, and comes in", function(c)
  c.listen(CHANNEL)
  c.refuse("pubsub|numsub", "pubsub|shardnumsub", "publish", "spublish")
  for _, name in ipairs { "", "sharded_" } do
    reads(c, READER)
    c.same(1, acquire(c, B .. ":1", { program = name .. "rw_acquire" })[1])
    c.same(1, release(c, B .. ":1", 0, nil, name .. "rw_release"))
    c.same(1, release(c, READER, 0, nil, name .. "rw_release"))
    c.same(0, c.cmd("EXISTS", LOCK))
  end
  c.refuse("publish", "spublish")
  c.listen(CHANNEL, true)
  reads(c, READER)
  c.same(1, release(c, READER, 0, nil, "sharded_rw_release"))
end)

case("a reader joins readers from the queue", function(c)
  local me = member("r", A, 1)
  reads(c, B .. ":9")
  queued(c, T0, me)
  c.same(1, acquire(c, READER, { member = me })[1])
  c.same({}, queue(c))
end)

case("readers that come in when a writer leaves end what keeps Redisson's out", function(c)
  local me = member("w", A, 2)
  hears(c, B)
  reads(c, C .. ":9")
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  queued(c, T0, me, T0 + 1, member("r", B, 1))
  c.same(0, leave(c, WRITER, 0, me))
  c.same({ "read", "1" }, { mode(c), c.cmd("HGET", LOCK, B .. ":1") })
end)

case("a reader's grant that ran out is forgotten by whoever comes next", function(c)
  reads(c, C .. ":9")
  queued(c, 0, member("r", B, 1))
  acquire(c, WRITER, { member = member("w", A, 2) })
  c.same(false, c.cmd("ZSCORE", QUEUE, member("r", B, 1)))
end)

case("a counter at 0 has given no token yet", function(c)
  c.cmd("SET", COUNTER, 0)
  c.same({ 1, T0, 0 }, acquire(c, READER))
end)

case("a leave of a hold tells that dead waiters are left", function(c)
  reads(c, READER)
  c.cmd("EVAL", "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, '1r' .. ARGV[1] .. ':' .. i .. ':0') end", 1, QUEUE, B)
  c.same(3, leave(c, READER))
end)

case("a reader that goes while others read leaves no lease", function(c)
  reads(c, B .. ":9")
  reads(c, READER)
  c.same(1, release(c, READER))
  c.same({ 0, 1 }, { c.cmd("EXISTS", hold_key(READER)), c.cmd("EXISTS", hold_key(B .. ":9")) })
end)

case("a partial release of a reader that nobody waits for keeps one entry", function(c)
  reads(c, READER, LEASE, 2)
  c.same(2, release(c, READER, 1))
  c.same({ "1", "read" }, { c.cmd("HGET", LOCK, READER), mode(c) })
end)

case("a partial leave keeps the timeouts of what stays", function(c)
  reads(c, READER, LEASE, 3)
  c.same(1, leave(c, READER, 2))
  local there = {}
  for n = 1, 3 do there[n] = c.cmd("EXISTS", hold_key(READER, n)) end
  c.same({ 1, 1, 0 }, there)
end)

case("a waiter keeps the queue for longer than the longest time between two looks", function(c)
  writes(c, C .. ":9:write")
  acquire(c, READER, { member = member("r", A, 1) })
  c.same(120000, c.cmd("PTTL", QUEUE))
end)

case("Redisson's turn goes on to its last millisecond", function(c)
  c.listen(CHANNEL)
  queued(c, text(-(T0_MS + 1)), RECORD)
  local reply = acquire(c, READER, { member = member("r", A, 1) })
  c.same({ 0, 1 }, { reply[1], reply[2] })
end)

case("grants that are open when the lock becomes free are forgotten", function(c)
  reads(c, READER)
  queued(c, 0, member("r", B, 1))
  release(c, READER)
  c.same({}, queue(c))
end)

case("a wait that ends finds its own client's grant that ran out, and keeps its place", function(c)
  local me = member("w", A, 3)
  hears(c, A)
  queued(c, 0, me)
  leave(c, READER)
  c.same({ me, "0" }, queue(c))
  c.same("1", c.cmd("HGET", LOCK, A .. ":3:write"))
end)

case("who may not look whether Redisson waits announces what nobody of ours gets", function(c)
  local java = c.listen(CHANNEL)
  reads(c, C .. ":9")
  c.refuse("pubsub")
  c.run("rw_force", FOUR, A, GRANT)
  c.same({ "1" }, java.heard())
end)

case("in a cluster those of ours that listen to Redisson's channel keep no reader out", function(c)
  c.listen(CHANNEL, true)
  c.listen("holdfast_listening:{k}", true)
  reads(c, B .. ":9")
  c.listen("holdfast_grant:" .. C)
  queued(c, T0, member("w", C, 1))
  c.same(0, leave(c, A .. ":9", 0, member("w", C, 1)))
  c.same(1, acquire(c, READER, { program = "sharded_rw_acquire" })[1])
  c.same(1, c.run("sharded_rw_force", FOUR, A, GRANT))
  c.same(0, c.cmd("EXISTS", QUEUE))
end)

return cases
