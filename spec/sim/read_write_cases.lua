-- The programs of read/write locks, called alone: see cases.lua.

local LEASE, GRANT, TTL = 30000, 500, 600000
local T0 = 1700000000000000
local T0_MS = T0 / 1000
local LOCK, COUNTER, QUEUE, CHANNEL = "k", "redisson_lock_token:{k}", "holdfast_queue:{k}",
  "redisson_rwlock:{k}"
local FOUR = { LOCK, COUNTER, QUEUE, CHANNEL }
local UUID = "1111111%d-0000-8000-8000-000000000000"
local A, B, C = UUID:format(1), UUID:format(2), UUID:format(3)
local READER, WRITER = A .. ":1", A .. ":2:write"
local unpack = table.unpack or unpack
local JAVA = "6f1c2b7a-1111-4222-8333-000000000001:7"
local RECORD = "1f 0 0 - 0"
local YIELD = "1f 0 1 - 200" -- our readers have yielded to a writer of Redisson's
local THEIRS = "1f 0 0 1 0" -- one holder of Redisson's was seen

local cases = {}

local function case(name, run) cases[#cases + 1] = { "read/write: " .. name, run } end

local function text(number) return ("%.0f"):format(number) end

local function acquire(c, owner, more)
  more = more or {}
  return c.run(more.program or "rw_acquire", FOUR, owner, GRANT, more.from or 0, 0, more.lease
    or LEASE, more.ttl or TTL,
    more.member or "", "", "", "", more.writer)
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
local function listen_as(c, client) return c.listen("holdfast_grant:" .. client) end
local function mode(c) return c.cmd("HGET", LOCK, "mode") end

-- ---- acquire ----

case("a re-entry of a lost hold reports whether it expired or another owner holds the lock", function(c)
  c.same({ -1 }, acquire(c, READER, { from = 1 }))
  reads(c, B .. ":5")
  c.same({ -2 }, acquire(c, READER, { from = 1 }))
end)

-- Only the first of the two takes the fast path, because a waiter does not.
case("a writer's fast path leaves the same state as the slow one, whatever the counter", function(c)
  local counters = { false, text(T0 - 80), text(T0), text(T0 + 800), text(T0 - 77), "none", "",
    "9007199254740991", "1.7e15", text(T0 - 86400000000) }
  local function after(counter, ttl, counter_ttl, me)
    c.cmd("FLUSHALL")
    if counter then c.cmd("SET", COUNTER, counter) end
    if counter_ttl then c.cmd("PEXPIRE", COUNTER, counter_ttl) end
    local reply = acquire(c, WRITER, { ttl = ttl, member = me })
    return { reply, c.cmd("HGETALL", LOCK), c.cmd("PTTL", LOCK), c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) }
  end
  for _, counter in ipairs(counters) do
    for _, ttl in ipairs { TTL, 0, "9007199254740991" } do
      for _, counter_ttl in ipairs { false, 1000, TTL * 33 / 32 } do
        c.same(after(counter, ttl, counter_ttl, member("w", A, 2)), after(counter, ttl, counter_ttl),
          ("%s, %s, %s"):format(tostring(counter), ttl, tostring(counter_ttl)))
      end
    end
  end
end)

case("an acquire of a free lock returns a writer the token alone, or 0 with fencing off, and a reader a list", function(c)
  local function raw(owner, ttl) return c.raw("rw_acquire", FOUR, owner, GRANT, 0, 0, LEASE, ttl, "") end
  c.same({ { 1, 0, 0 }, 0 }, { raw(READER, 0), c.cmd("EXISTS", COUNTER) })
  c.cmd("DEL", LOCK)
  c.same({ 0, 0 }, { raw(WRITER, 0), c.cmd("EXISTS", COUNTER) })
  c.cmd("DEL", LOCK)
  c.same({ T0, text(T0), "write" }, { raw(WRITER, TTL), c.cmd("GET", COUNTER), mode(c) })
  c.cmd("DEL", LOCK)
  c.same({ { 1, T0, 0 }, text(T0), "read" }, { raw(READER, TTL), c.cmd("GET", COUNTER), mode(c) })
end)

case("the fast path acquires only a lock that a reader may join at once", function(c)
  local states = {
    { "a lock of another kind", function() c.cmd("HSET", LOCK, B .. ":1", 1) end },
    { "a drain", function()
      reads(c, JAVA)
      listen_as(c, C)
      queued(c, T0, member("w", C, 1))
      c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
    end },
    { "a drain without a queue", function()
      reads(c, JAVA)
      c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
    end, "read" },
    { "Redisson's writer waits", function()
      reads(c, C .. ":9")
      return c.listen(CHANNEL)
    end },
  }
  for _, state in ipairs(states) do
    for _, ttl in ipairs { "0", TTL } do
      c.cmd("FLUSHALL")
      local java = state[2]()
      c.cmd("SET", COUNTER, 5)
      local reply = acquire(c, READER, { ttl = ttl })
      if state[3] then c.same({ 1, state[3] }, { reply[1], mode(c) }, state[1])
      else c.same(0, c.cmd("HEXISTS", LOCK, READER), state[1]) end
      if java then java.close() end
    end
  end
end)

case("an acquire reports a lock without a TTL, whether readers or a writer hold it", function(c)
  for _, mode_of_it in ipairs { "read", "write" } do
    local owner = mode_of_it == "write" and C .. ":9:write" or C .. ":9"
    c.cmd("DEL", LOCK)
    c.cmd("HSET", LOCK, "mode", mode_of_it, owner, 1)
    c.cmd("SET", hold_key(owner), 1)
    c.same({ -3 }, acquire(c, WRITER), mode_of_it)
  end
end)

case("an acquire removes an unconfirmed grant if its hold has ended or it is invalid", function(c)
  listen_as(c, B)
  reads(c, A .. ":2")
  queued(c, 0, member("w", A, 2), 0, "no waiter", T0, member("r", A, 3))
  acquire(c, B .. ":5:write", { member = member("w", B, 5) })
  c.same({ member("w", B, 5), text(T0) }, queue(c), "it reads by that name, but does not write")
end)

case("a writer does not acquire the lock while a live reader follows a thousand expired ones", function(c)
  for n = 1, 1100 do c.cmd("HSET", LOCK, "mode", "read", B .. ":" .. n, 1) end
  reads(c, READER)
  c.same(0, acquire(c, WRITER)[1])
  c.same({ "read", "1" }, { mode(c), c.cmd("HGET", LOCK, READER) })
end)

case("a first waiter that takes the lock asks the next one to recheck", function(c)
  for _, kind in ipairs { "r", "w" } do
    local listener, own = listen_as(c, B), member(kind, A, 2)
    listen_as(c, A)
    queued(c, T0 + 1, own, T0 + 2, member("w", B, 3))
    c.same(1, acquire(c, A .. (kind == "r" and ":2" or ":2:write"), { member = own })[1])
    c.same({ "1 recheck 3" }, listener.received())
    c.cmd("FLUSHALL")
  end
end)

case("a reader's re-entry that is sent twice counts once, and has its own lease", function(c)
  reads(c, READER)
  for _ = 1, 2 do c.same({ 1, 0, 0 }, acquire(c, READER, { from = 1, lease = 100 })) end
  c.same("2", c.cmd("HGET", LOCK, READER))
  c.same({ LEASE, 100, LEASE }, { c.cmd("PTTL", hold_key(READER)),
    c.cmd("PTTL", hold_key(READER, 2)), c.cmd("PTTL", LOCK) })
end)

case("a reader's holds beyond the hundredth share the longest lease", function(c)
  reads(c, READER, 100, 100)
  c.same({ 1, 0, 0 }, acquire(c, READER, { from = 100, lease = LEASE }))
  c.same({ 1, 0, 0 }, acquire(c, READER, { from = 101, lease = 100 }))
  c.pass(200)
  c.same({ 1, 0 }, { c.cmd("EXISTS", hold_key(READER, 100)), c.cmd("EXISTS", hold_key(READER, 101)) })
  c.same({ 0, LEASE - 200, 0, 0, "" }, acquire(c, B .. ":5:write"), "it lives by them")
end)

case("a reader that releases some of its holds keeps the longest of their leases", function(c)
  local function has(count)
    c.same({ tostring(count), LEASE, -2 }, { c.cmd("HGET", LOCK, READER),
      c.cmd("PTTL", hold_key(READER, count)), c.cmd("PTTL", hold_key(READER, count + 1)) })
  end
  local function enters_twice_shortly()
    c.cmd("DEL", LOCK)
    reads(c, READER, 100, 2)
    c.same({ 1, 0, 0 }, acquire(c, READER, { from = 2, lease = LEASE }))
  end
  enters_twice_shortly()
  c.same({ 1, 0, 0 }, acquire(c, READER, { from = 1, lease = 100 }))
  has(2)
  enters_twice_shortly()
  c.same({ 1, T0, 0 }, acquire(c, READER, { lease = 100 }))
  has(1)
  enters_twice_shortly()
  c.same(1, leave(c, READER, 2))
  has(2)
  enters_twice_shortly()
  c.same(2, c.run("rw_release", FOUR, READER, GRANT, 1, 100, "", nil))
  has(1)
end)

case("a partial release of a reader never shortens a remaining hold's lease", function(c)
  reads(c, READER, LEASE, 2)
  c.same({ 1, 0, 0 }, acquire(c, READER, { from = 2, lease = 100 }))
  c.same(2, c.run("rw_release", FOUR, READER, GRANT, 2, 50, "", nil))
  c.same({ "2", LEASE, LEASE }, { c.cmd("HGET", LOCK, READER), c.cmd("PTTL", hold_key(READER)),
    c.cmd("PTTL", hold_key(READER, 2)) })
end)

case("a reader's renewal never shortens the lock's TTL, and succeeds on a server out of memory", function(c)
  reads(c, B .. ":1", LEASE)
  reads(c, READER, 700)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.full(true)
  c.same({ 1 }, c.run("rw_renew", { LOCK, hold_key(READER) }, READER, 900))
  c.same({ LEASE, 900 }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", hold_key(READER)) })
end)

case("a reader's release sets the TTL from all holds of the remaining readers", function(c)
  reads(c, B .. ":1", 100)
  c.same({ 1, 0, 0 }, acquire(c, B .. ":1", { from = 1, lease = LEASE }))
  c.cmd("HSET", LOCK, READER, 1)
  c.cmd("SET", hold_key(READER), 1, "PX", 2 * LEASE)
  c.cmd("PEXPIRE", LOCK, 2 * LEASE)
  c.same(1, release(c, READER))
  c.same(LEASE, c.cmd("PTTL", LOCK))
end)

case("a reader that releases the longest lease leaves the lock the longest remaining one", function(c)
  for n = 1, 10 do reads(c, B .. ":" .. n, 1000) end
  reads(c, READER, 100)
  c.same({ 1, 0, 0 }, acquire(c, READER, { from = 1, lease = LEASE }))
  c.same(LEASE, c.cmd("PTTL", LOCK))
  c.same(1, release(c, READER))
  c.same(1000, c.cmd("PTTL", LOCK))
end)

case("a reader's renewal or extension restores its lease if the lease key is missing", function(c)
  local keys = { LOCK, hold_key(READER) }
  reads(c, READER, 1000)
  c.cmd("DEL", hold_key(READER))
  c.same({ 1 }, c.run("rw_renew", keys, READER, 700))
  c.same(700, c.cmd("PTTL", hold_key(READER)))
  c.cmd("DEL", hold_key(READER))
  c.same(1, c.run("rw_extend", { LOCK, QUEUE, hold_key(READER) }, READER, 600, "", "", CHANNEL))
  c.same(600, c.cmd("PTTL", hold_key(READER)))
end)

case("a reader's acquire that is sent twice never shortens a lease", function(c)
  acquire(c, READER)
  c.same({ 1, T0, 0 }, acquire(c, READER, { lease = 100 }))
  c.same({ LEASE, LEASE }, { c.cmd("PTTL", hold_key(READER)), c.cmd("PTTL", LOCK) })
  acquire(c, READER, { lease = 2 * LEASE })
  c.same({ 2 * LEASE, 2 * LEASE }, { c.cmd("PTTL", hold_key(READER)), c.cmd("PTTL", LOCK) })
end)

case("a reader's acquire that is sent twice takes one hold", function(c)
  for _ = 1, 2 do c.same({ 1, T0, 0 }, acquire(c, READER)) end
  c.same({ "mode", "read", READER, "1" }, c.cmd("HGETALL", LOCK))
end)

case("a reader with a shorter lease does not shorten the lock's TTL", function(c)
  reads(c, B .. ":5")
  c.same({ 1, 0, 0 }, acquire(c, READER, { lease = 1000, ttl = 0 }))
  c.same({ LEASE, 1000 }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", hold_key(READER)) })
end)

case("a reader's release sets the lock's TTL to the lease of a remaining reader with two holds", function(c)
  reads(c, B .. ":5", 20000, 2)
  c.same({ 1, 0, 0 }, acquire(c, READER, { ttl = 0 }))
  c.same(1, release(c, READER))
  c.same({ 20000, 0 }, { c.cmd("PTTL", LOCK), c.cmd("EXISTS", hold_key(READER)) })
end)

case("readers acquire, re-enter and release a lock whose key contains a brace", function(c)
  local keys, lease = { "a{k}", COUNTER, QUEUE, CHANNEL }, "a{k}:" .. READER .. ":rwlock_timeout:"
  c.same({ 1, 0, 0 }, c.run("rw_acquire", keys, READER, GRANT, 0, 0, LEASE, 0, ""))
  c.same({ 1, 0, 0 }, c.run("rw_acquire", keys, READER, GRANT, 1, 0, LEASE, 0, ""))
  c.same(2, c.cmd("EXISTS", lease .. 1, lease .. 2))
  c.same(2, c.run("rw_release", keys, READER, GRANT, 1, LEASE, ""))
  c.same(1, c.run("rw_release", keys, READER, GRANT, 0, LEASE, ""))
  c.same(0, c.cmd("EXISTS", "a{k}", lease .. 1, lease .. 2))
end)

case("the writer may also read, but other clients may not", function(c)
  writes(c, WRITER)
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, READER, { writer = B .. ":2:write" }))
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, READER))
  c.same({ 1, T0, 0 }, acquire(c, READER, { writer = WRITER }))
  c.same({ "mode", "write", WRITER, "1", READER, "1" }, c.cmd("HGETALL", LOCK))
  c.same({ 1 }, c.run("rw_renew", { LOCK, LOCK }, WRITER, 40000))
  c.same({ 40000, LEASE }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", hold_key(READER)) })
end)

case("a waiter that missed its grant is queued ahead of the others", function(c)
  writes(c, B .. ":5:write")
  local mine = member("r", A, 1)
  queued(c, 0, mine, T0, member("r", C, 1))
  local said = acquire(c, READER, { member = mine })
  c.same({ 0, 0 }, { said[1], said[3] })
  local first = queue(c)
  c.same(mine, first[1])
  c.same(true, tonumber(first[2]) > 0)
end)

case("readers and writers are queued in order of arrival", function(c)
  writes(c, JAVA)
  local places = {}
  for number, client in ipairs { A, B, C } do
    listen_as(c, client)
    local reply = acquire(c, ("%s:%d:write"):format(client, number),
      { member = member("w", client, number) })
    c.same({ 0, number - 1, number == 1 and 1 or 0 }, { reply[1], reply[3], reply[4] })
    places[number] = member("w", client, number)
  end
  c.same({ THEIRS, unpack(places) }, c.cmd("ZRANGE", QUEUE, 0, -1))
end)

case("an acquire removes a queue entry with an invalid score", function(c)
  writes(c, B .. ":5:write")
  queued(c, "inf", "nobody")
  c.same({ 0, LEASE, 0, 0, text(T0) }, acquire(c, READER, { member = member("r", A, 1) }))
  queued(c, "1e300", "nobody")
  c.same({ 0, LEASE, 1, 0, text(T0 + 1) }, acquire(c, C .. ":1", { member = member("r", C, 1) }))
  c.same({ member("r", A, 1), member("r", C, 1) }, c.cmd("ZRANGE", QUEUE, 0, -1))
end)

case("a reader's extension applies to existing holds, and notifies others only if it shortens the lease", function(c)
  local listener, java = listen_as(c, B), c.listen(CHANNEL)
  local function extend(ms)
    return c.run("rw_extend", { LOCK, QUEUE, hold_key(READER) }, READER, ms, "", "", CHANNEL)
  end
  reads(c, READER, LEASE, 2)
  queued(c, T0, member("w", B, 7))
  c.same(1, extend(LEASE))
  c.same(1, extend(2 * LEASE))
  c.same({ {}, {} }, { listener.received(), java.received() })
  c.same({ 1, 0 }, { c.cmd("EXISTS", hold_key(READER, 2)), c.cmd("EXISTS", hold_key(READER, 3)) })
  c.same(1, extend(1000))
  c.same({ { "1 recheck 7 1000" }, { "1", "0" } }, { listener.received(), java.received() })
end)

case("a reader's partial release deletes only the leases of the released holds", function(c)
  reads(c, READER, LEASE, 3)
  c.same(2, release(c, READER, 2))
  local there = {}
  for n = 1, 3 do there[n] = c.cmd("EXISTS", hold_key(READER, n)) end
  c.same({ 1, 1, 0 }, there)
end)

case("a reader's release removes its own unconfirmed grant, and no other reader's", function(c)
  reads(c, READER)
  reads(c, B .. ":1")
  queued(c, 0, member("r", A, 1), 0, member("r", B, 1))
  c.same(1, release(c, READER, 0, member("r", A, 1)))
  c.same({ member("r", B, 1), "0" }, queue(c))
  c.same({ 1, T0, 0 }, acquire(c, C .. ":1"), "a grant whose hold is there stays")
  c.same({ member("r", B, 1), "0" }, queue(c))
end)

case("a reader's release removes expired readers if a Redisson client waits", function(c)
  reads(c, READER)
  reads(c, B .. ":1", 100)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.pass(150)
  local java = c.listen(CHANNEL)
  c.same(1, release(c, READER))
  c.same({ "0" }, java.received())
  c.same(0, c.cmd("EXISTS", LOCK))
end)

case("acquire and force_release refuse a key that holds another kind of lock", function(c)
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

case("force_release refuses a hash that merely has a field called mode", function(c)
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

case("force_release frees a lock that readers or a writer hold, or that is draining", function(c)
  for name, owner in pairs { read = JAVA, write = JAVA .. ":write", ["drain:17"] = READER } do
    c.cmd("HSET", LOCK, "mode", name, owner, 2)
    c.cmd("PEXPIRE", LOCK, LEASE)
    c.same(1, c.run("rw_force", FOUR, A, GRANT))
    c.same(0, c.cmd("EXISTS", LOCK))
  end
end)

case("force_release with an expected holder frees the lock only if it has this reader or writer", function(c)
  for _, owner in ipairs { JAVA, JAVA .. ":write" } do
    c.cmd("HSET", LOCK, "mode", owner == JAVA and "read" or "write", owner, 2)
    c.cmd("PEXPIRE", LOCK, LEASE)
    c.same({ 0, 1 }, { c.run("rw_force", FOUR, A, GRANT, READER), c.cmd("EXISTS", LOCK) })
    c.same({ 1, 0 }, { c.run("rw_force", FOUR, A, GRANT, owner), c.cmd("EXISTS", LOCK) })
  end
end)

case("an acquire refuses a hash without a TTL instead of treating it as a lock", function(c)
  c.cmd("HSET", LOCK, "mode", "write", JAVA .. ":write", 1)
  c.same({ -3 }, acquire(c, READER))
end)

case("readers share the last writer's token, and the first reader draws one if there is none", function(c)
  c.same({ 1, T0, 0 }, acquire(c, READER))
  c.same({ 1, T0, 0 }, acquire(c, B .. ":1"))
  c.same({ 1, 0, 0 }, acquire(c, C .. ":1", { ttl = 0 }))
  c.cmd("SET", COUNTER, "9007199254740990")
  c.same({ 1, T0, 0 }, acquire(c, C .. ":2"), "one that leaves no room")
end)

case("a writer removes expired readers, waits for live ones, and draws a token", function(c)
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

case("a writer removes hundreds of expired readers, and finds the live one behind them", function(c)
  listen_as(c, A)
  reads(c, B .. ":1")
  for i = 1, 600 do c.cmd("HSET", LOCK, C .. ":" .. i, 1) end
  local waiter = member("w", A, 2)
  queued(c, T0, waiter)
  c.same({ 0, LEASE, 0, 0, text(T0) }, acquire(c, WRITER, { member = waiter }))
  c.same({ "mode", "read", B .. ":1", "1" }, c.cmd("HGETALL", LOCK))
end)

case("an acquire behind a waiter of a newer queue format is refused, and leaves that waiter in the queue", function(c)
  queued(c, T0, "2w" .. B .. ":1:x")
  c.same({ -4 }, acquire(c, READER))
  c.same({ -4 }, acquire(c, WRITER, { member = member("w", A, 2) }))
  c.same({ "2w" .. B .. ":1:x", text(T0) }, queue(c))
end)

case("an acquire removes a first waiter for another kind of lock, and asks it to recheck", function(c)
  local other = listen_as(c, B)
  queued(c, T0, member("l", B, 7))
  queued(c, T0 + 1, "nonsense")
  c.same({ 1, T0, 0 }, acquire(c, READER))
  c.same({ "1 recheck 7" }, other.received())
  c.same({}, queue(c))
end)

case("a writer's expired grant removes all waiters of its client, but a reader's removes only itself", function(c)
  listen_as(c, A)
  listen_as(c, B)
  listen_as(c, C)
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
    "the asking client's grant keeps its place, before the others")
end)

-- ---- granting ----

case("a writer's release grants the lock to all readers at the head, with a token if they want one", function(c)
  local one, two = listen_as(c, A), listen_as(c, B)
  writes(c, WRITER)
  c.cmd("SET", COUNTER, text(T0))
  queued(c, T0, member("r", A, 5), T0 + 1, member("r", B, 6), T0 + 2, member("r", A, 7, 0), T0 + 3,
    member("r", A, 8))
  c.same(1, release(c, WRITER))
  c.same({ ("1 grants r %.0f 500 2 5 %.0f 8 %.0f k"):format(T0, T0, T0 + 3),
    ("1 grants r 0 500 1 7 %.0f k"):format(T0 + 2) },
    one.received())
  c.same({ ("1 grants r %.0f 500 1 6 %.0f k"):format(T0, T0 + 1) }, two.received())
  c.same(4, c.cmd("ZCOUNT", QUEUE, 0, 0))
end)

case("a writer that releases but keeps reading leaves the lock with its read lease", function(c)
  for _, reads_ms in ipairs { LEASE / 2, 2 * LEASE } do
    reads(c, READER, reads_ms)
    writes(c, WRITER)
    c.same(1, release(c, WRITER))
    c.same({ "read", reads_ms }, { mode(c), c.cmd("PTTL", LOCK) })
    c.cmd("FLUSHALL")
  end
end)

case("a grant carries no token if the counter's key has another type", function(c)
  local one = listen_as(c, A)
  writes(c, WRITER)
  c.cmd("HSET", COUNTER, "f", "v")
  queued(c, T0, member("w", A, 5))
  c.same(1, release(c, WRITER))
  c.same({ ("1 grant w 5 %.0f 0 500 k"):format(T0) }, one.received())
end)

case("one command removes at most a thousand dead waiters, and the next one removes the rest", function(c)
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

case("cleaning up behind expired readers removes at most a thousand dead waiters, and reports the rest", function(c)
  reads(c, C .. ":1", 100)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.pass(200)
  c.cmd("EVAL", "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, '1r' .. ARGV[1] .. ':' .. i .. ':0') end", 1, QUEUE, B)
  c.same(3, leave(c, A .. ":9"))
  c.same(500, c.cmd("ZCARD", QUEUE))
end)

case("a release frees the lock even if the queue's key has another type", function(c)
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
  c.same(1, release(c, B .. ":1", 0, member("r", B, 1)), "a grant that was not confirmed")
  c.same(0, c.cmd("EXISTS", LOCK))
end)

-- ---- release, leave ----

case("a release of a lost hold reports whether it expired or another owner holds the lock", function(c)
  c.same(-1, release(c, READER))
  writes(c, B .. ":1:write")
  c.same(-2, release(c, READER))
end)

case("a reader's release that shortens the longest lease notifies the first waiter", function(c)
  local first = listen_as(c, B)
  reads(c, READER, LEASE)
  reads(c, C .. ":1", 500)
  c.cmd("PEXPIRE", LOCK, LEASE)
  queued(c, T0, member("w", B, 4))
  c.same(1, release(c, READER))
  c.same({ "1 recheck 4 500" }, first.received())
  c.same(500, c.cmd("PTTL", LOCK))
end)

case("a reader in the last millisecond of its lease still holds the lock", function(c)
  reads(c, C .. ":7", 100)
  reads(c, READER)
  queued(c, T0, member("w", B, 4))
  local first = listen_as(c, B)
  c.pass(100)
  c.same(0, c.cmd("PTTL", hold_key(C .. ":7")))
  c.same(1, release(c, READER))
  c.same({ "1 recheck 4 1" }, first.received())
  c.same(1, c.cmd("EXISTS", LOCK))
end)

case("a writer that releases keeps reading even in the last millisecond of its read lease", function(c)
  writes(c, WRITER)
  c.cmd("HSET", LOCK, READER, 1)
  c.cmd("SET", hold_key(READER), 1, "PX", 100)
  c.pass(100)
  c.same(1, release(c, WRITER))
  c.same(1, c.cmd("HEXISTS", LOCK, READER))
end)

case("a reader's release among many readers does not check their leases", function(c)
  local first = listen_as(c, B)
  for i = 1, 10 do reads(c, C .. ":" .. i) end
  reads(c, READER)
  queued(c, T0, member("w", B, 4))
  c.pass(LEASE - 1)
  c.same(1, release(c, READER))
  c.same({}, first.received())
end)

case("cleaning up after a waiter by its number removes exactly its grant", function(c)
  reads(c, B .. ":2")
  reads(c, B .. ":20")
  queued(c, 0, member("r", B, 2), 0, member("r", B, 20))
  c.same(1, leave(c, B .. ":2", 0, member("r", B, 2, 0)))
  c.same({ member("r", B, 20), "0" }, queue(c))
end)

case("a reader's partial release renews its remaining holds, and undoing a re-entry removes one hold", function(c)
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

case("a writer that gives up grants a reader behind it the lock, unless a writer holds it", function(c)
  local me, next_one = member("w", A, 2), listen_as(c, B)
  reads(c, C .. ":1")
  queued(c, T0, me, T0 + 1, member("r", B, 3))
  c.same(0, leave(c, WRITER, 0, me))
  c.same("1", c.cmd("HGET", LOCK, B .. ":3"))
  next_one.received()
  c.cmd("DEL", LOCK, QUEUE)
  writes(c, C .. ":1:write")
  queued(c, T0, me, T0 + 1, member("r", B, 3))
  c.same(0, leave(c, WRITER, 0, me))
  c.same({}, next_one.received(), "a holdfast holder hands over")
  c.cmd("DEL", LOCK, QUEUE)
  c.cmd("HSET", LOCK, JAVA, 1)
  queued(c, T0, me, T0 + 1, member("r", B, 3))
  c.same(0, leave(c, WRITER, 0, me), "a lock of another kind")
  c.cmd("DEL", LOCK, QUEUE)
  reads(c, C .. ":1", 100)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.pass(200)
  queued(c, T0, me, T0 + 1, member("w", B, 3))
  c.same(0, leave(c, WRITER, 0, me), "dead readers are removed")
  c.same({ "mode", "write", B .. ":3:write", "1" }, c.cmd("HGETALL", LOCK))
end)

case("a writer that gives up removes expired readers, and reserves the free lock for Redisson", function(c)
  local me, next_one, java = member("w", A, 2), listen_as(c, B), c.listen(CHANNEL)
  reads(c, C .. ":1", 100)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.pass(200)
  queued(c, T0, me, T0 + 1, member("w", B, 3))
  c.same(0, leave(c, WRITER, 0, me))
  c.same(0, c.cmd("EXISTS", LOCK))
  c.same({ true, true }, { (next_one.received()[1] or ""):find("^1 turn 3 ") ~= nil, #java.received() == 1 })
end)

case("the new first waiter is notified to subscribe to Redisson's channel if Redisson holds the lock", function(c)
  local me, next_one = member("w", A, 2), listen_as(c, B)
  for _, hold in ipairs { reads, writes } do
    c.cmd("DEL", LOCK, QUEUE)
    hold(c, hold == reads and JAVA or JAVA .. ":write")
    queued(c, T0, me, T0 + 1, member("w", B, 3))
    c.same(0, leave(c, WRITER, 0, me))
    c.same({ "1 recheck 3" }, next_one.received())
  end
  c.cmd("DEL", LOCK, QUEUE)
  reads(c, READER)
  reads(c, JAVA)
  queued(c, T0, member("w", B, 3))
  c.same(1, release(c, READER))
  c.same({ "1 recheck 3" }, next_one.received())
  c.cmd("DEL", LOCK, QUEUE)
  reads(c, JAVA)
  queued(c, T0, member("r", B, 2), T0 + 1, member("w", B, 3))
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, C .. ":9"))
  c.same({ ("1 grants r %s 500 1 2 %.0f k"):format(c.cmd("GET", COUNTER), T0), "1 recheck 3" },
    next_one.received())
end)

-- ---- Redisson ----

case("a writer's release reserves the lock for Redisson's waiters, and tells the first waiter for how long", function(c)
  local java, first = c.listen(CHANNEL), listen_as(c, B)
  writes(c, WRITER)
  queued(c, T0, member("r", B, 3))
  c.same(1, release(c, WRITER))
  c.same({ "1", "0" }, java.received())
  c.same({ "1 turn 3 5" }, first.received())
  c.same({ RECORD, "-" .. text(T0_MS + 50), member("r", B, 3), text(T0) }, queue(c))
  c.same({ 0, 5, 0, 1, text(T0) }, acquire(c, B .. ":3", { member = member("r", B, 3) }))
  c.same({ 0, 5, 0, 1, "" }, acquire(c, WRITER))
  c.same(0, leave(c, C .. ":1", 0, member("w", C, 1)))
  c.same({ "1 turn 3 50" }, first.received())
  c.clock(T0 - 1000000)
  acquire(c, WRITER, { member = member("w", A, 2) })
  c.same({ "1 recheck 3" }, first.received(), "the server's clock went back")
  c.cmd("DEL", LOCK, QUEUE, COUNTER)
  c.clock(T0)
  reads(c, READER)
  c.same(1, release(c, READER))
  c.same({ "0" }, java.received())
  c.same({ RECORD, "-" .. text(T0_MS + 50) }, queue(c))
  c.same(100, c.cmd("PTTL", QUEUE))
  c.pass(51)
  c.same({ 1, T0 + 51000, 0 }, acquire(c, READER))
  c.same({}, queue(c))
end)

case("holdfast's queue outlives a reservation for Redisson", function(c)
  local java = c.listen(CHANNEL)
  listen_as(c, B)
  writes(c, WRITER)
  queued(c, T0, member("w", B, 3))
  c.same(1, release(c, WRITER))
  c.same(120000, c.cmd("PTTL", QUEUE))
  c.cmd("DEL", QUEUE)
  java.received()
  reads(c, READER)
  writes(c, READER .. ":write")
  c.cmd("PEXPIRE", LOCK, 1)
  c.same(1, release(c, READER .. ":write"))
  c.same({ "read", LEASE }, { mode(c), c.cmd("PTTL", LOCK) })
  c.same({ "1", "0" }, java.received(), "Redisson's readers may come in")
end)

case("a reservation for Redisson ends when a Redisson client holds the lock, or none is subscribed", function(c)
  queued(c, -(T0_MS + 50), RECORD)
  writes(c, JAVA .. ":write")
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, READER))
  c.same({}, queue(c))
  queued(c, -(T0_MS + 50), RECORD)
  c.cmd("DEL", LOCK)
  c.same({ 1, T0, 0 }, acquire(c, READER))
end)

-- ---- runs of Redisson's clients and of holdfast's ----

-- The first of several writers, each of a client of its own, takes the free lock, and the others
-- get it from each other. → the queue's record and the first waiter's messages after each step
local function run_of_ours(c, record, pause_ms)
  c.listen(CHANNEL)
  local clients, seen, members = {}, {}, {}
  for i = 1, 5 do
    clients[i], members[i] = UUID:format(i), member("w", UUID:format(i), 2)
    queued(c, text(T0 + i), members[i])
    if i > 1 then listen_as(c, clients[i]) end
  end
  c.cmd("ZADD", QUEUE, text(-(T0_MS - 50)), record)
  acquire(c, clients[1] .. ":2:write", { member = members[1] })
  for i = 1, 5 do
    seen[i] = c.cmd("ZRANGE", QUEUE, 0, 0)[1]
    if c.cmd("HEXISTS", LOCK, clients[i] .. ":2:write") == 0 then return seen, i end
    c.pass(pause_ms)
    c.same(1, release(c, clients[i] .. ":2:write", 0, members[i]))
  end
  return seen, 6
end

case("after a run of Redisson's, three of our writers follow each other if a client of Redisson's was seen", function(c)
  c.same({ { "1f 1 0 1 50", "1f 2 0 1 50", "1f 3 0 1 50", "1f 0 0 - 50" }, 4 },
    { run_of_ours(c, THEIRS, 0) })
end)

case("after a run of Redisson's in which no client was seen, any number of our writers follow each other", function(c)
  c.same({ "1f 1 0 - 100", "1f 2 0 - 100", "1f 3 0 - 100", "1f 4 0 - 100", "1f 5 0 - 100" },
    (run_of_ours(c, RECORD, 0)))
end)

case("our run ends before it is longer than Redisson's last run", function(c)
  c.same({ { "1f 1 0 1 50", "1f 2 0 1 50", "1f 0 0 - 50" }, 3 }, { run_of_ours(c, THEIRS, 25) })
  c.cmd("FLUSHALL")
  c.clock(T0)
  c.same({ { "1f 1 0 1 50", "1f 0 0 - 50" }, 2 }, { run_of_ours(c, THEIRS, 26) })
end)

case("a release after our run leaves the lock to Redisson for twice as long as its last run", function(c)
  local java, first = c.listen(CHANNEL), listen_as(c, B)
  writes(c, WRITER)
  queued(c, -T0_MS, "1f 3 0 0 80", T0, member("r", B, 3))
  c.same(1, release(c, WRITER))
  c.same({ "1f 0 0 - 110", "-" .. text(T0_MS + 160), member("r", B, 3), text(T0) }, queue(c))
  c.same({ { "1 turn 3 5" }, { "1", "0" } }, { first.received(), java.received() })
  c.cmd("FLUSHALL")
  writes(c, WRITER)
  queued(c, -T0_MS, "1f 1 0 0 80")
  c.same(1, release(c, WRITER))
  c.same({ "1f 2 0 0 80", "-" .. text(T0_MS) }, queue(c), "no waiter: our run goes on")
  c.same(200, c.cmd("PTTL", QUEUE))
  c.same(1, acquire(c, WRITER)[1])
  c.same("1f 2 0 0 80", queue(c)[1], "the acquire keeps the record")
  c.pass(80)
  c.same(1, release(c, WRITER))
  c.same({ "1f 0 0 - 110", "-" .. text(T0_MS + 240) }, queue(c))
  c.same(320, c.cmd("PTTL", QUEUE))
end)

case("our run continues without a waiter after a dead one, but does not skip one in a newer format", function(c)
  c.listen(CHANNEL)
  for _, other in ipairs { member("w", B, 3), "2w" .. B .. ":3:0" } do
    writes(c, WRITER)
    c.cmd("DEL", QUEUE)
    queued(c, -T0_MS, "1f 1 0 0 50", T0, other)
    c.same(1, release(c, WRITER))
    c.same(other:sub(1, 1) == "1" and "1f 2 0 0 50" or "1f 0 0 - 50", queue(c)[1], other)
  end
end)

case("our run keeps the queue's TTL if a live writer waits behind very many dead ones", function(c)
  c.listen(CHANNEL)
  listen_as(c, B)
  writes(c, WRITER)
  queued(c, -T0_MS, "1f 1 0 0 50")
  for i = 1, 2500 do queued(c, T0 + i, member("w", C, i)) end
  queued(c, T0 + 3000, member("w", B, 3))
  c.cmd("PEXPIRE", QUEUE, 120000)
  c.same(3, release(c, WRITER))
  c.same(120000, c.cmd("PTTL", QUEUE))
end)

case("our run that continues with readers lets Redisson's readers in, too", function(c)
  local java = c.listen(CHANNEL)
  listen_as(c, B)
  for kind, received in pairs { r = { "1", "0" }, w = {} } do
    c.cmd("DEL", LOCK, QUEUE)
    writes(c, WRITER)
    queued(c, -T0_MS, "1f 1 0 0 50", T0, member(kind, B, 3))
    c.same(1, release(c, WRITER))
    c.same(kind == "r" and "read" or "write", mode(c))
    c.same({ "1f 2 0 0 50", "-" .. text(T0_MS) }, { unpack(queue(c), 1, 2) }, kind)
    c.same(received, java.received(), kind)
  end
end)

case("a wait that ends begins our run if the next waiter gets the lock", function(c)
  local me = member("w", A, 2)
  c.listen(CHANNEL)
  listen_as(c, B)
  queued(c, text(-(T0_MS - 80)), THEIRS, T0, me, T0 + 1, member("w", B, 3))
  c.same(0, leave(c, WRITER, 0, me))
  c.same("1", c.cmd("HGET", LOCK, B .. ":3:write"))
  c.same({ "1f 1 0 1 80", "-" .. text(T0_MS) }, { unpack(queue(c), 1, 2) })
end)

case("our run begins if the free lock is granted to readers before the writer that asks", function(c)
  local me = member("w", A, 2)
  c.listen(CHANNEL)
  queued(c, text(-(T0_MS - 80)), THEIRS, T0, member("r", B, 3), T0 + 1, me)
  local listener = listen_as(c, B)
  c.same(0, acquire(c, WRITER, { member = me })[1])
  c.same({ "1 recheck 3" }, listener.received())
  c.same(0, leave(c, C .. ":9"))
  c.same({ "read", "1f 1 0 1 80", "-" .. text(T0_MS) }, { mode(c), unpack(queue(c), 1, 2) })
end)

case("a reader that joins others during our run takes a turn of it", function(c)
  c.listen(CHANNEL)
  reads(c, READER)
  queued(c, text(-T0_MS), "1f 2 0 0 50")
  c.same(1, acquire(c, B .. ":1")[1])
  c.same({ "1f 3 0 0 50", 120000 }, { queue(c)[1], c.cmd("PTTL", QUEUE) })
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":2"))
  c.same({ YIELD, "-" .. text(T0_MS + 250) }, queue(c))
end)

case("readers yield to Redisson's writer at once after its run or ours, not after 250 ms", function(c)
  c.listen(CHANNEL)
  for _, record in ipairs { "1f 1 0 - 10", THEIRS } do
    reads(c, READER)
    c.cmd("DEL", QUEUE)
    queued(c, text(-(T0_MS - 100)), record)
    c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":1"), record)
  end
end)

case("a reader that joins Redisson's readers does not end their run", function(c)
  local seen = { THEIRS, "-" .. text(T0_MS - 10) }
  c.listen(CHANNEL)
  reads(c, JAVA)
  queued(c, text(-(T0_MS - 10)), THEIRS)
  c.same(1, acquire(c, READER)[1])
  c.same(seen, queue(c))
end)

case("a Redisson writer's run began when the lock was left to it, or is first seen", function(c)
  local me = member("w", A, 2)
  writes(c, JAVA .. ":write")
  for record, began in pairs { [RECORD] = T0_MS - 10, ["1f 0 0 - 30"] = T0_MS - 40, ["1f 2 0 0 9"] = T0_MS } do
    queued(c, text(-(T0_MS + 40)), record)
    c.same({ 0, LEASE, 0, 1 }, { unpack(acquire(c, WRITER, { member = me }), 1, 4) })
    c.same({ THEIRS, "-" .. text(began), me, text(T0) }, queue(c), record)
    c.cmd("DEL", QUEUE)
  end
  acquire(c, B .. ":9")
  c.same(0, c.cmd("EXISTS", QUEUE), "nobody waits")
end)

case("the run of Redisson's readers goes on while they may enter again", function(c)
  local me = member("w", A, 2)
  listen_as(c, A)
  reads(c, JAVA)
  for ms, run in pairs { [-500] = 500, [1000] = 0 } do
    c.cmd("DEL", QUEUE)
    c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS))
    queued(c, text(-(T0_MS + ms)), THEIRS, T0, me)
    c.same(50, acquire(c, WRITER, { member = me })[2])
    c.same({ "1f 0 0 - " .. run, "-" .. text(T0_MS + 50) }, { unpack(queue(c), 1, 2) })
  end
  c.pass(50)
  acquire(c, WRITER, { member = me })
  c.same({ THEIRS, "drain" }, { queue(c)[1], mode(c):sub(1, 5) })
end)

case("readers of both sides that hold the lock together are not a run of Redisson's", function(c)
  local me = member("w", A, 2)
  reads(c, JAVA)
  reads(c, B .. ":1")
  queued(c, text(-(T0_MS - 40)), THEIRS, T0, me)
  c.same({ 0, 50 }, { unpack(acquire(c, WRITER, { member = me }), 1, 2) })
  c.same({ me, text(T0) }, queue(c))
end)

case("the time for which readers have yielded to Redisson is not a run of Redisson's", function(c)
  c.listen(CHANNEL)
  reads(c, READER)
  acquire(c, B .. ":1", { member = member("r", B, 1) })
  c.cmd("DEL", LOCK)
  c.pass(300)
  c.same(1, acquire(c, B .. ":1", { member = member("r", B, 1) })[1])
  c.same({ YIELD, "-" .. text(T0_MS + 250) }, { unpack(queue(c), 1, 2) })
end)

case("no reader joins while the lock is reserved for Redisson's writers; then readers may join for as long", function(c)
  c.listen(CHANNEL)
  reads(c, READER)
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":1"))
  c.pass(100)
  c.same({ 0, 150, 0, 1, "" }, acquire(c, B .. ":1"))
  c.pass(160)
  c.same({ 1, T0 + 260000, 0 }, acquire(c, B .. ":1"))
  c.same(1, acquire(c, B .. ":2")[1])
  c.pass(239)
  c.same(1, acquire(c, B .. ":3")[1])
  c.pass(1)
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":4"))
  c.clock(T0 - 1000000)
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":4"), "the server's clock went back")
  c.cmd("DEL", QUEUE)
  reads(c, JAVA)
  c.same(1, acquire(c, B .. ":4")[1], "Redisson's readers join, and so do ours")
end)

case("the record of reservations for Redisson's writers is deleted once no Redisson client is subscribed", function(c)
  local java = c.listen(CHANNEL)
  reads(c, READER)
  acquire(c, B .. ":1", { member = member("r", B, 1) })
  c.pass(250)
  c.same(1, acquire(c, B .. ":1", { member = member("r", B, 1) })[1])
  c.same({ YIELD, "-" .. text(T0_MS + 250) }, queue(c))
  java.close()
  c.same(1, acquire(c, B .. ":2")[1])
  c.same(0, c.cmd("EXISTS", QUEUE))
end)

case("a writer that releases but keeps reading reserves the lock for Redisson's writers", function(c)
  c.listen(CHANNEL)
  local first = listen_as(c, B)
  reads(c, READER)
  writes(c, WRITER)
  queued(c, T0, member("r", B, 3))
  c.same(1, release(c, WRITER))
  c.same({ "1 turn 3 250" }, first.received())
end)

case("a waiting holdfast writer keeps new Redisson readers out, except during pauses", function(c)
  local me, java = member("w", A, 2), c.listen(CHANNEL)
  listen_as(c, A)
  reads(c, JAVA)
  c.same({ 0, 50, 0, 1, text(T0) }, acquire(c, WRITER, { member = me }))
  c.same("drain:" .. text(T0_MS + 50), mode(c))
  c.same({ 0, 50, 0, 1, text(T0) }, acquire(c, WRITER, { member = me }))
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, B .. ":1"), "no holdfast reader passes, either")
  c.pass(60)
  c.same({ 0, 50, 0, 1, text(T0) }, acquire(c, WRITER, { member = me }))
  c.same("read", mode(c))
  c.same({ "1", "0" }, java.received())
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

case("a writer keeps new Redisson readers out for an eighth of its wait so far, at most 30 s", function(c)
  local me = member("w", A, 2)
  listen_as(c, A)
  reads(c, JAVA)
  queued(c, text(T0 - 600e6), me)
  c.same({ LEASE, "drain:" .. text(T0_MS + 30000) },
    { acquire(c, WRITER, { member = me })[2], mode(c) })
  c.cmd("DEL", LOCK)
  reads(c, JAVA, 20)
  c.same({ 20, "drain:" .. text(T0_MS + 30000) },
    { acquire(c, WRITER, { member = me })[2], mode(c) })
end)

case("a writer that missed a grant keeps Redisson's readers out based on its wait since", function(c)
  local me = member("w", A, 2)
  listen_as(c, A)
  reads(c, JAVA)
  queued(c, text((T0 - 1024e6 / 128) / 1024), me)
  c.same(1000, acquire(c, WRITER, { member = me })[2])
  c.same("drain:" .. text(T0_MS + 1000), mode(c))
end)

case("a pause for Redisson's readers is ignored if it is over or ends too far in the future", function(c)
  local me = member("w", A, 2)
  for _, ms in ipairs { 51, 100000, -1 } do
    c.cmd("FLUSHALL")
    reads(c, JAVA)
    queued(c, text(-(T0_MS + ms)), RECORD, T0, me)
    acquire(c, WRITER, { member = me })
    local began = T0_MS + math.min(ms - 50, 0)
    c.same({ THEIRS, "-" .. text(began), me, text(T0) }, queue(c), tostring(ms))
    c.same("drain:" .. text(T0_MS + 50), mode(c), tostring(ms))
  end
end)

case("a waiting writer without a subscription keeps its place behind readers that join", function(c)
  reads(c, JAVA)
  listen_as(c, C)
  local me = member("w", A, 2)
  queued(c, T0 - 9, member("r", C, 1))
  local reply = acquire(c, WRITER, { member = me })
  c.same({ 0, 0, text(T0) }, { reply[1], reply[3], reply[5] })
  c.same({ member("r", C, 1), "0", me, text(T0) }, queue(c))
end)

case("a draining lock whose readers have all expired is free", function(c)
  local me = member("w", A, 2)
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50), JAVA, 1)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.same(1, acquire(c, WRITER, { member = me })[1])
  c.cmd("DEL", LOCK)
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50), JAVA, 1)
  c.cmd("PEXPIRE", LOCK, LEASE)
  listen_as(c, B)
  queued(c, T0, me, T0 + 1, member("w", B, 3))
  c.same(0, leave(c, WRITER, 0, me))
  c.same("write", mode(c), "the next waiter gets it")
end)

case("Redisson's readers may join again when no holdfast writer waits", function(c)
  local me, java = member("w", A, 2), c.listen(CHANNEL)
  reads(c, JAVA)
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  queued(c, T0, me)
  c.same(0, leave(c, WRITER, 0, me))
  c.same("read", mode(c))
  c.same({ "1", "0" }, java.received())
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  c.same(1, acquire(c, READER)[1])
  c.same("read", mode(c))
end)

case("Redisson's readers may join again when no holdfast writer waits, even if only holdfast readers hold it", function(c)
  local me, java = member("w", A, 2), c.listen(CHANNEL)
  reads(c, READER)
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  queued(c, T0, me)
  c.same(0, leave(c, WRITER, 0, me))
  c.same("read", mode(c))
  c.same({ "1", "0" }, java.received())
end)

local function drained_by_dead(c)
  listen_as(c, B)
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  queued(c, T0, member("w", A, 2), T0 + 1, member("r", B, 1))
  return c.listen(CHANNEL)
end

case("Redisson's readers may join again when a holdfast reader joins and the waiting writer is dead", function(c)
  reads(c, JAVA)
  local java = drained_by_dead(c)
  c.same(1, acquire(c, B .. ":1", { member = member("r", B, 1) })[1])
  c.same({ "read", 0 }, { mode(c), c.cmd("EXISTS", QUEUE) })
  c.same({ "1", "0" }, java.received())
end)

case("Redisson's readers may join again when a reader's acquire finds a reservation for Redisson's writers and a dead waiting writer", function(c)
  reads(c, C .. ":9")
  local java = drained_by_dead(c)
  c.same({ 0, 250, 0, 1, "" }, acquire(c, C .. ":1"))
  c.same("read", mode(c))
  c.same({ "1", "0" }, java.received())
end)

case("Redisson's readers may join again when a reader releases and the waiting writer is dead", function(c)
  reads(c, JAVA)
  reads(c, READER)
  local java = drained_by_dead(c)
  c.same(1, release(c, READER))
  c.same("read", mode(c))
  c.same({ "1", "0" }, java.received())
  reads(c, READER)
  c.cmd("DEL", QUEUE)
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  c.same(1, release(c, READER))
  c.same("read", mode(c), "the queue has ended")
  c.same({ "1", "0" }, java.received())
end)

case("a live waiting writer keeps Redisson's readers out while other holdfast clients come and go", function(c)
  listen_as(c, A)
  reads(c, JAVA)
  reads(c, READER)
  local java, drains = drained_by_dead(c), mode(c)
  c.same(0, acquire(c, B .. ":1", { member = member("r", B, 1) })[1])
  c.same(1, release(c, READER))
  c.same(0, leave(c, B .. ":1", 0, member("r", B, 1)))
  c.same(drains, mode(c))
  c.same({}, java.received())
end)

-- ---- extend, renew, info ----

case("a reader's extension sets its leases, and the lock's TTL if no other reader holds it", function(c)
  local function extend(owner, ms, most, waiter)
    local lease = owner == WRITER and LOCK or hold_key(owner)
    return c.run("rw_extend", { LOCK, QUEUE, lease }, owner, ms, most or "", waiter or "", CHANNEL)
  end
  c.same(-1, extend(READER, 100))
  reads(c, READER, 1000)
  local first = listen_as(c, B)
  queued(c, 0, member("r", A, 1), T0, member("w", B, 4))
  c.same(1, extend(READER, 0))
  c.same(1, extend(READER, 500, "", member("r", A, 1)))
  c.same({ 500, 500 }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", hold_key(READER)) })
  c.same({ "1 recheck 4 500" }, first.received())
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

case("a renewal extends each of a reader's holds, and reports keys of another type as lost", function(c)
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

case("info returns the writer, or else one reader, and the number of readers", function(c)
  local function info(uuid) return c.run("rw_info", { LOCK, COUNTER, QUEUE }, uuid or A) end
  c.same({ "", 0, -2, "0", 0, -1, 0, 0, T0, -1 }, info())
  reads(c, READER, LEASE, 2)
  reads(c, B .. ":1")
  queued(c, T0, member("w", B, 4), T0 + 1, member("w", A, 4))
  c.same({ READER, 2, LEASE, "0", 2, 1, 2, 0, T0, 0 }, info())
  c.same(0, info(B)[6])
  c.cmd("SET", COUNTER, "8")
  writes(c, WRITER)
  c.same({ WRITER, 1, LEASE, "8", 2, 1, 2, 0, T0, 0 }, info())
end)

case("info returns a waiter's position in the queue only while its client is subscribed", function(c)
  local function ahead(asked) return c.run("rw_info", { LOCK, COUNTER, QUEUE }, asked)[6] end
  queued(c, T0, member("w", B, 4), T0 + 1, member("r", A, 4))
  c.same({ -1, 1 }, { ahead(A .. ":4"), ahead(A) })
  c.listen("holdfast_grant:" .. A)
  c.same({ 1, -1 }, { ahead(A .. ":4"), ahead(A .. ":5") })
end)

case("force_release frees the lock, deletes its leases, and notifies Redisson", function(c)
  local java = c.listen(CHANNEL)
  c.same(0, c.run("rw_force", FOUR, A, GRANT))
  reads(c, READER, LEASE, 2)
  c.same(1, c.run("rw_force", FOUR, A, GRANT))
  c.same({ QUEUE }, c.cmd("KEYS", "*"))
  c.same({ "1", "0" }, java.received())
end)

-- ---- in a cluster with sharded channels, and where a client may not query channels ----

case("in a cluster a release notifies Redisson clients on both the plain and the sharded channel", function(c)
  local sharded = c.listen(CHANNEL, true)
  reads(c, READER)
  c.same(1, release(c, READER, 0, nil, "sharded_rw_release"))
  c.same({ "0" }, sharded.received())
  local plain = c.listen(CHANNEL)
  c.cmd("DEL", QUEUE)
  writes(c, WRITER)
  c.same(1, release(c, WRITER, 0, nil, "sharded_rw_release"))
  c.same({ "1", "0" }, sharded.received())
  c.same({ "1", "0" }, plain.received())
  reads(c, READER)
  c.cmd("DEL", QUEUE)
  c.same({ 0, 250, 0, 1, "" }, acquire(c, B .. ":1", { program = "sharded_rw_acquire" }))
end)

case("a client that may neither query subscribers nor publish still acquires and releases", function(c)
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

case("a waiting reader joins the readers that hold the lock when it rechecks", function(c)
  local me = member("r", A, 1)
  reads(c, B .. ":9")
  queued(c, T0, me)
  c.same(1, acquire(c, READER, { member = me })[1])
  c.same({}, queue(c))
end)

case("a writer that gives up lets the next readers join, and Redisson's readers again", function(c)
  local me = member("w", A, 2)
  listen_as(c, B)
  listen_as(c, C)
  reads(c, C .. ":9")
  c.cmd("HSET", LOCK, "mode", "drain:" .. text(T0_MS + 50))
  queued(c, T0, me, T0 + 1, member("r", B, 1), T0 + 2, member("w", C, 2))
  c.same(0, leave(c, WRITER, 0, me))
  c.same({ "read", "1" }, { mode(c), c.cmd("HGET", LOCK, B .. ":1") })
end)

case("the next acquire removes a reader's expired grant", function(c)
  reads(c, C .. ":9")
  queued(c, 0, member("r", B, 1))
  acquire(c, WRITER, { member = member("w", A, 2) })
  c.same(false, c.cmd("ZSCORE", QUEUE, member("r", B, 1)))
end)

case("a reader draws a token if the counter is 0", function(c)
  c.cmd("SET", COUNTER, 0)
  c.same({ 1, T0, 0 }, acquire(c, READER))
end)

case("undoing a reader's acquire reports that it left dead waiters in the queue", function(c)
  reads(c, READER)
  c.cmd("EVAL", "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, '1r' .. ARGV[1] .. ':' .. i .. ':0') end", 1, QUEUE, B)
  c.same(3, leave(c, READER))
end)

case("a reader that releases while others read deletes only its own lease", function(c)
  reads(c, B .. ":9")
  reads(c, READER)
  c.same(1, release(c, READER))
  c.same({ 0, 1 }, { c.cmd("EXISTS", hold_key(READER)), c.cmd("EXISTS", hold_key(B .. ":9")) })
end)

case("a reader's partial release keeps one of two holds", function(c)
  reads(c, READER, LEASE, 2)
  c.same(2, release(c, READER, 1))
  c.same({ "1", "read" }, { c.cmd("HGET", LOCK, READER), mode(c) })
end)

case("undoing a reader's re-entry deletes only that hold's lease", function(c)
  reads(c, READER, LEASE, 3)
  c.same(1, leave(c, READER, 2))
  local there = {}
  for n = 1, 3 do there[n] = c.cmd("EXISTS", hold_key(READER, n)) end
  c.same({ 1, 1, 0 }, there)
end)

case("a waiter's queue outlives the longest time between two rechecks", function(c)
  writes(c, C .. ":9:write")
  acquire(c, READER, { member = member("r", A, 1) })
  c.same(120000, c.cmd("PTTL", QUEUE))
end)

case("a reader waits until the last millisecond of a reservation for Redisson", function(c)
  c.listen(CHANNEL)
  queued(c, text(-(T0_MS + 1)), RECORD)
  local reply = acquire(c, READER, { member = member("r", A, 1) })
  c.same({ 0, 1 }, { reply[1], reply[2] })
end)

case("a release that frees the lock removes unconfirmed grants", function(c)
  reads(c, READER)
  queued(c, 0, member("r", B, 1))
  release(c, READER)
  c.same({}, queue(c))
end)

case("cleaning up repeats its own client's missed grant instead of removing that waiter", function(c)
  local me = member("w", A, 3)
  listen_as(c, A)
  queued(c, 0, me)
  leave(c, READER)
  c.same({ me, "0" }, queue(c))
  c.same("1", c.cmd("HGET", LOCK, A .. ":3:write"))
end)

case("force_release by a client that may not query subscribers still publishes the release", function(c)
  local java = c.listen(CHANNEL)
  reads(c, C .. ":9")
  c.refuse("pubsub|numsub")
  c.run("rw_force", FOUR, A, GRANT)
  c.same({ "1", "0" }, java.received())
end)

case("in a cluster holdfast's own subscriptions to Redisson's channel keep no reader out", function(c)
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

case("Redisson's readers may join until the last millisecond of a pause", function(c)
  local me = member("w", A, 2)
  reads(c, JAVA)
  queued(c, text(-(T0_MS + 50)), RECORD, T0, me)
  local reply = acquire(c, WRITER, { member = me })
  c.same({ 0, 50, "read" }, { reply[1], reply[2], mode(c) })
end)

case("a waiter that missed its grant gets a score at the head of the queue", function(c)
  local me = member("r", A, 1)
  writes(c, C .. ":9:write")
  queued(c, 0, me, T0, member("r", B, 1))
  acquire(c, READER, { member = me })
  c.same(T0 / 1024, tonumber(c.cmd("ZSCORE", QUEUE, me)))
  c.cmd("DEL", LOCK, QUEUE)
  reads(c, C .. ":9")
  queued(c, 0, member("w", A, 2), T0, member("r", B, 1))
  acquire(c, WRITER, { member = member("w", A, 2) })
  c.same(T0 / 1024, tonumber(c.cmd("ZSCORE", QUEUE, member("w", A, 2))))
end)

case("cleaning up in the last millisecond of a reservation for Redisson notifies the next waiter", function(c)
  local listener = listen_as(c, B)
  c.listen(CHANNEL)
  queued(c, text(-(T0_MS + 1)), RECORD, T0, member("r", B, 1))
  c.same(0, leave(c, A .. ":9"))
  c.same({ "1 turn 1 1" }, listener.received())
end)

case("a reader's release looks for expired readers among up to eight others", function(c)
  for others, left in pairs { [8] = "write", [9] = "read" } do
    c.cmd("DEL", LOCK, QUEUE)
    local listener = listen_as(c, C)
    reads(c, READER)
    for n = 1, others do c.cmd("HSET", LOCK, B .. ":" .. n, 1) end
    c.cmd("PEXPIRE", LOCK, 2 * LEASE) -- theirs
    queued(c, T0, member("w", C, 1))
    c.same(1, release(c, READER))
    c.same(left, mode(c), others)
    listener.close()
  end
end)

case("a reader's release removes an expired reader, and leaves the others' longest lease", function(c)
  for _, waiter in ipairs { "", member("w", C, 1) } do
    c.cmd("DEL", LOCK, QUEUE)
    local listener = listen_as(c, C)
    reads(c, B .. ":1", 1000)
    c.cmd("HSET", LOCK, B .. ":2", 1)
    reads(c, READER)
    if waiter ~= "" then queued(c, T0, waiter) end
    c.same(1, release(c, READER))
    c.same(1000, c.cmd("PTTL", LOCK), waiter)
    c.same({ "mode", "read", B .. ":1", "1" }, c.cmd("HGETALL", LOCK), waiter)
    listener.close()
  end
end)

case("a reader's release leaves the longest lease, whichever reader has it", function(c)
  for _, ms in ipairs { { 9000, 300, 1000 }, { 300, 1000, 9000 } } do
    c.cmd("DEL", LOCK)
    for i = 1, 3 do reads(c, B .. ":" .. i, ms[i]) end
    reads(c, READER)
    c.same(1, release(c, READER))
    c.same(9000, c.cmd("PTTL", LOCK))
  end
end)

case("a writer that releases only its read hold keeps the write lease", function(c)
  reads(c, READER)
  c.cmd("HSET", LOCK, "mode", "write", WRITER, 1)
  c.same(1, release(c, READER))
  c.same({ "mode", "write", WRITER, "1" }, c.cmd("HGETALL", LOCK))
  c.same(LEASE, c.cmd("PTTL", LOCK))
end)

case("a reader's release preserves another reader's longer lease", function(c)
  reads(c, READER, 1000)
  reads(c, B .. ":1")
  c.same(1, release(c, READER))
  c.same(LEASE, c.cmd("PTTL", LOCK))
end)

case("a reader's release among 150 expired ones frees the lock unless a live reader remains", function(c)
  for _, lives in ipairs { true, false } do
    c.cmd("DEL", LOCK)
    for n = 1, 150 do c.cmd("HSET", LOCK, B .. ":" .. n, 1) end
    if lives then reads(c, C .. ":1", 1000) end
    for _ = 1, 3 do
      reads(c, READER)
      c.same(1, release(c, READER))
    end
    c.same(lives and 1 or 0, c.cmd("EXISTS", LOCK))
  end
end)

case("a writer that others moved past behind a Redisson writer still acquires before them", function(c)
  writes(c, JAVA)
  queued(c, T0, member("w", A, 2), T0 + 1, member("w", B, 2))
  listen_as(c, B)
  local function look(client)
    return acquire(c, client .. ":2:write", { member = member("w", client, 2) })
  end
  c.same({ 0, LEASE, 0, 1 }, { unpack(look(B), 1, 4) })
  c.cmd("DEL", LOCK)
  c.same(1, look(A)[1])
end)

case("a waiting writer that does not recheck in time no longer keeps Redisson's readers out", function(c)
  reads(c, JAVA)
  listen_as(c, A)
  queued(c, T0, member("w", A, 2), T0 + 1, member("r", B, 1))
  acquire(c, WRITER, { member = member("w", A, 2) })
  c.same("drain", mode(c):sub(1, 5))
  c.pass(GRANT / 2)
  c.same(1, acquire(c, B .. ":1", { member = member("r", B, 1) })[1])
  c.same("read", mode(c))
end)

case("a lock that becomes free is announced even if the queue's key has another type", function(c)
  local java = c.listen(CHANNEL)
  reads(c, C .. ":9")
  c.cmd("SET", QUEUE, 1)
  c.run("rw_force", FOUR, A, GRANT)
  c.same({ "1", "0" }, java.received())
end)

case("repeating a missed grant to the only waiter renews the queue's TTL", function(c)
  listen_as(c, A)
  queued(c, 0, member("r", A, 1))
  c.pass(GRANT)
  c.same(0, acquire(c, WRITER)[1], "the waiter comes first")
  c.same({ member("r", A, 1), "0" }, queue(c))
  c.same(120000, c.cmd("PTTL", QUEUE))
end)

case("a release that reserves the lock for Redisson removes dead waiters, and notifies the first live one", function(c)
  c.listen(CHANNEL)
  local listener = listen_as(c, C)
  writes(c, WRITER)
  queued(c, T0, member("w", B, 1), T0 + 1, member("w", C, 3))
  c.same(1, release(c, WRITER))
  c.same({ "1 turn 3 5" }, listener.received())
  c.same({ RECORD, member("w", C, 3) }, c.cmd("ZRANGE", QUEUE, 0, -1))
end)

case("a reader's release notifies the first live waiter, behind dead ones, of the shorter lease and of Redisson", function(c)
  local listener = listen_as(c, C)
  reads(c, JAVA, 1000)
  reads(c, READER)
  for i = 1, 120 do queued(c, T0 + i, member("w", B, i)) end
  queued(c, T0 + 200, member("w", C, 3))
  c.same(1, release(c, READER))
  c.same({ "1 recheck 3 1000", "1 recheck 3" }, listener.received())
end)

case("a release that removes a thousand dead waiters leaves the next live one to a later command", function(c)
  c.listen(CHANNEL)
  local listener = listen_as(c, C)
  writes(c, WRITER)
  for i = 1, 1002 do queued(c, T0 + i, member("w", B, i)) end
  queued(c, T0 + 2000, member("w", C, 3))
  c.same(1, release(c, WRITER))
  c.same({}, listener.received())
  c.same(3, c.cmd("ZCARD", QUEUE))
end)

return cases
