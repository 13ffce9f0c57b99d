-- The programs of a fair lock, called alone: see cases.lua.

local LEASE, GRANT, TTL = 30000, 500, 600000
local T0 = 1700000000000000
local T0_MS = T0 / 1000
local LOCK, COUNTER, LIST, CHANNEL, TIMEOUTS = "k", "redisson_lock_token:{k}",
  "redisson_lock_queue:{k}", "redisson_lock__channel:{k}", "redisson_lock_timeout:{k}"
local FIVE = { LOCK, COUNTER, LIST, CHANNEL, TIMEOUTS }
local UUID = "1111111%d-0000-8000-8000-000000000000"
local A, B, C = UUID:format(1), UUID:format(2), UUID:format(3)
local OWNER, OTHER, THIRD = A .. ":1", B .. ":1", C .. ":1"
local JAVA, JAVA2 = "6f1c2b7a-1111-4222-8333-000000000001:7",
  "6f1c2b7a-1111-4222-8333-000000000002:7"
local OURS_MS, JAVA_MS, DEAF_MS = 5000, 300000, 3000

local cases = {}

local function case(name, run) cases[#cases + 1] = { "fair: " .. name, run } end

local function acquire(c, owner, more)
  more = more or {}
  return c.run(more.program or "fair_acquire", FIVE, owner, more.grant or GRANT, more.from or 0, 0,
    more.lease or LEASE, TTL, more.waits and "waits" or "")
end

local function waits(c, owner, more)
  more = more or {}
  more.waits = true
  return acquire(c, owner, more)
end

local function release(c, owner, to, program)
  return c.run(program or "fair_release", FIVE, owner, GRANT, to or 0, LEASE, "")
end

local function leave(c, owner, to, waiter)
  return c.run("fair_leave", FIVE, owner, GRANT, to or 0, waiter or "", "")
end

local function force(c) return c.run("fair_force", FIVE, OWNER, GRANT) end

local function holds(c, owner, count)
  c.cmd("HSET", LOCK, owner, count or 1)
  c.cmd("PEXPIRE", LOCK, LEASE)
end

-- { owner, its timeout from now } …
local function listed(c, waiters)
  for _, waiter in ipairs(waiters) do
    c.cmd("RPUSH", LIST, waiter[1])
    if waiter[2] then c.cmd("ZADD", TIMEOUTS, T0_MS + waiter[2], waiter[1]) end
  end
end

local function list(c) return c.cmd("LRANGE", LIST, 0, -1) end

local function timeout(c, owner)
  local score = tonumber(c.cmd("ZSCORE", TIMEOUTS, owner) or nil)
  return score and score - T0_MS
end

local function listen_as(c, owner) return c.listen("holdfast_grant:" .. owner:sub(1, 36)) end

-- ---- acquire ----

case("an acquire of a free lock takes one hold even if the command is sent twice", function(c)
  for _ = 1, 2 do
    local reply = acquire(c, OWNER)
    c.same({ 1, 0 }, { reply[1], reply[3] })
  end
  c.same({ OWNER, "1" }, c.cmd("HGETALL", LOCK))
  c.same(LEASE, c.cmd("PTTL", LOCK))
end)

case("an acquire of a free lock returns the token alone, or 0 with fencing off", function(c)
  for _, ttl in ipairs { TTL, 0 } do
    c.same(ttl > 0 and T0_MS * 1000 or 0, c.raw("fair_acquire", FIVE, OWNER, GRANT, 0, 0, LEASE, ttl, ""))
    c.same({ OWNER, "1" }, c.cmd("HGETALL", LOCK))
    c.cmd("DEL", LOCK, COUNTER)
  end
end)

case("an acquire fails with a conflict on the key of an idempotent run or of a read/write lock", function(c)
  local function is_refused(kind, ...)
    c.cmd("HSET", LOCK, ...)
    c.same({ -3 }, acquire(c, OWNER), "without a TTL it is not a lock")
    c.cmd("PEXPIRE", LOCK, LEASE)
    c.same({ -6, kind }, acquire(c, OWNER))
    c.same({ -6, kind }, waits(c, OTHER))
    c.same({ 0, LEASE }, { c.cmd("EXISTS", LIST), c.cmd("PTTL", LOCK) })
    c.cmd("DEL", LOCK)
  end
  is_refused("guard", OTHER, 1, "print", "")
  is_refused("guard", OWNER, 1, "print", "P")
  is_refused("guard", "done", "x", "print", "", "by", OTHER)
  is_refused("read_write", "mode", "read", OWNER, 1)
end)

case("a re-entry never shortens the TTL, and reports whether a lost hold expired or was taken over", function(c)
  holds(c, OWNER)
  for _ = 1, 2 do c.same({ 1, 0, 0 }, acquire(c, OWNER, { from = 1, lease = 100 })) end
  c.same({ "2", LEASE }, { c.cmd("HGET", LOCK, OWNER), c.cmd("PTTL", LOCK) })
  c.same({ -2 }, acquire(c, OTHER, { from = 1 }))
  c.cmd("DEL", LOCK)
  c.same({ -1 }, acquire(c, OWNER, { from = 1 }))
end)

case("an acquire refuses a hash without a TTL instead of treating it as a lock", function(c)
  c.cmd("HSET", LOCK, JAVA, 1)
  c.same({ -3 }, acquire(c, OWNER))
end)

case("a waiter whose acquire is sent again after it succeeded is not queued again", function(c)
  local first = waits(c, OWNER)
  c.same({ 1, 0 }, { first[1], first[3] })
  c.same(1, waits(c, OWNER)[1])
  c.same({ OWNER, "1" }, c.cmd("HGETALL", LOCK))
  c.same({}, list(c))
end)

case("a waiter is queued once, at the end, and each recheck extends its timeout", function(c)
  holds(c, JAVA)
  listed(c, { { OTHER, 6000 } })
  c.same({ 0, LEASE, 1, 0, "" }, waits(c, OWNER))
  c.same({ OTHER, OWNER }, list(c))
  c.same(OURS_MS, timeout(c, OWNER))
  c.pass(400)
  c.same({ 0, LEASE - 400, 1, 0, "" }, waits(c, OWNER))
  c.same({ OTHER, OWNER }, list(c))
  c.same(400 + OURS_MS, timeout(c, OWNER))
end)

case("with a long grant lease a waiter's timeout is long enough for three rechecks", function(c)
  holds(c, JAVA)
  waits(c, OWNER, { grant = 4000 })
  c.same(12000, timeout(c, OWNER))
end)

case("a waiter behind Redisson clients adds their timeouts to its own", function(c)
  holds(c, OTHER)
  listed(c, { { JAVA, LEASE + JAVA_MS }, { JAVA2, LEASE + 2 * JAVA_MS } })
  waits(c, OWNER)
  c.same(2 * JAVA_MS + OURS_MS, timeout(c, OWNER))
end)

case("a waiter behind Redisson clients adds their timeouts to its own even if those are unusually long", function(c)
  holds(c, OTHER)
  listed(c, { { JAVA, LEASE + 900000 } })
  waits(c, OWNER)
  c.same(LEASE + 900000 + OURS_MS, timeout(c, OWNER))
end)

case("a waiter whose timeout is moved earlier also moves those of Redisson clients behind it earlier", function(c)
  holds(c, JAVA)
  listed(c, { { OWNER, JAVA_MS }, { JAVA2, JAVA_MS + 7000 }, { "x" }, { OTHER, 6000 },
    { "y", JAVA_MS } })
  waits(c, OWNER)
  c.same({ OURS_MS, OURS_MS + 7000, 6000, JAVA_MS },
    { timeout(c, OWNER), timeout(c, JAVA2), timeout(c, OTHER), timeout(c, "y") })
end)

case("a recheck replaces infinite timeouts with ordinary ones", function(c)
  holds(c, JAVA)
  listed(c, { { OWNER }, { JAVA2 } })
  for _, owner in ipairs { OWNER, JAVA2 } do c.cmd("ZADD", TIMEOUTS, "inf", owner) end
  c.same({ 0, LEASE, 0, 0, "" }, waits(c, OWNER))
  c.same({ OURS_MS, OURS_MS }, { timeout(c, OWNER), timeout(c, JAVA2) })
end)

case("a waiter that acquires or leaves moves the timeouts of Redisson clients behind it earlier", function(c)
  listed(c, { { OWNER, JAVA_MS }, { JAVA, JAVA_MS + 7000 } })
  c.same(1, waits(c, OWNER)[1])
  c.same({ JAVA }, list(c))
  c.same({ OURS_MS + 7000 }, { timeout(c, JAVA), timeout(c, OWNER) })
  listed(c, { { OTHER, 2 * JAVA_MS }, { JAVA2, 2 * JAVA_MS + 9000 } })
  c.same(0, leave(c, OTHER, 0, "waits"))
  c.same(OURS_MS + 7000 + OURS_MS + 9000, timeout(c, JAVA2))
end)

case("a waiter that leaves gives the Redisson client behind it a timeout of at least 5 s", function(c)
  holds(c, JAVA)
  listed(c, { { OWNER, 2 * JAVA_MS }, { JAVA2, JAVA_MS } })
  c.same(0, leave(c, OWNER, 0, "waits"))
  c.same({ JAVA2 }, list(c))
  c.same(OURS_MS, timeout(c, JAVA2))
end)

case("a waiter that leaves moves no Redisson client's timeout into the past even if the waiter ahead has timed out", function(c)
  holds(c, JAVA)
  listed(c, { { THIRD, -1000 }, { OWNER, JAVA_MS }, { JAVA2, JAVA_MS + 7000 } })
  c.same(0, leave(c, OWNER, 0, "waits"))
  c.same({ THIRD, JAVA2 }, list(c))
  c.same(OURS_MS + 7000, timeout(c, JAVA2))
end)

-- Lists `count` holdfast waiters, each with a later timeout.
local function listed_crowd(c, count, ms)
  for i = 1, count do listed(c, { { C .. ":" .. i, (ms or 6000) + i } }) end
end

case("a waiter whose recheck extends its timeout does not change the timeouts behind it", function(c)
  holds(c, OTHER)
  listed(c, { { OWNER, 4000 }, { JAVA, JAVA_MS + 7000 } })
  c.same(0, waits(c, OWNER)[3])
  c.same({ OURS_MS, JAVA_MS + 7000 }, { timeout(c, OWNER), timeout(c, JAVA) })
end)

for grant, turn in pairs { [20] = 500, [1000] = 500, [1002] = 501, [4000] = 2000 } do
  case(("a notified waiter has %d ms with a grant lease of %d"):format(turn, grant), function(c)
    local listener = listen_as(c, OTHER)
    holds(c, OWNER)
    listed(c, { { OTHER, JAVA_MS }, { JAVA, JAVA_MS + 7000 } })
    c.same(1, c.run("fair_release", FIVE, OWNER, grant, 0, LEASE, ""))
    c.same({ "1 recheck 1" }, listener.received())
    c.same({ turn, turn + 7000 }, { timeout(c, OTHER), timeout(c, JAVA) })
  end)
end

case("in a queue of 100 or more a newcomer adds its timeout to that of the last waiter", function(c)
  holds(c, JAVA)
  listed_crowd(c, 99)
  listed(c, { { OTHER, 2 * JAVA_MS + 4000 } })
  c.same({ 0, LEASE, 100, 0, "" }, waits(c, OWNER))
  c.same(2 * JAVA_MS + OURS_MS, timeout(c, OWNER))
  listed(c, { { THIRD .. "00", 6000 } })
  c.pass(400)
  c.same({ 0, LEASE - 400, 101, 0, "" }, waits(c, OWNER))
  c.same({ 2 * JAVA_MS + 400 + OURS_MS, 102 }, { timeout(c, OWNER), c.cmd("LLEN", LIST) })
  c.same(OWNER, c.cmd("LINDEX", LIST, 100))
  c.cmd("LPOP", LIST)
  c.same(99, waits(c, OWNER)[3])
  c.same(400 + OURS_MS, timeout(c, OWNER))
end)

case("a waiter behind hundreds rechecks less often, and its timeout still covers three rechecks", function(c)
  holds(c, JAVA)
  listed_crowd(c, 250)
  c.same(250, waits(c, OWNER, { grant = 4000 })[3])
  c.same(30000, timeout(c, OWNER))
  c.same(250, waits(c, OWNER, { grant = 20000 })[3])
  c.same(90000, timeout(c, OWNER)) -- rechecks at most 30 s apart
end)

case("in a long queue a newcomer behind a Redisson client leaves room for that client's 5-minute timeout", function(c)
  holds(c, OTHER)
  listed_crowd(c, 100)
  for _, ms in ipairs { JAVA_MS + 7000, -1000 } do
    listed(c, { { JAVA, ms } })
    c.same(101, waits(c, OWNER)[3])
    c.same(math.max(ms, 0) + JAVA_MS + OURS_MS, timeout(c, OWNER))
    c.same(0, leave(c, OWNER, 0, "waits"))
    c.cmd("LREM", LIST, -1, JAVA)
    c.same(100, c.cmd("LLEN", LIST))
  end
end)

case("in a long queue a newcomer behind a waiter without a timeout gets an ordinary timeout", function(c)
  holds(c, JAVA)
  listed_crowd(c, 100)
  listed(c, { { OTHER } })
  c.same(101, waits(c, OWNER)[3])
  c.same(OURS_MS, timeout(c, OWNER))
end)

case("in a long queue a recheck replaces a waiter's expired timeout with an ordinary one", function(c)
  holds(c, JAVA)
  listed_crowd(c, 100)
  listed(c, { { OWNER, -JAVA_MS } })
  c.same({ 100, OURS_MS }, { waits(c, OWNER)[3], timeout(c, OWNER) })
end)

case("a waiter that leaves from behind the first hundred does not change any timeouts", function(c)
  holds(c, JAVA)
  listed_crowd(c, 103)
  c.same(0, leave(c, C .. ":102", 0, "waits"))
  c.same({ C .. ":101", C .. ":103" }, c.cmd("LRANGE", LIST, 100, -1))
  c.same({ 102, 6103 }, { c.cmd("ZCARD", TIMEOUTS), timeout(c, C .. ":103") })
  c.same(0, leave(c, C .. ":100", 0, "waits"))
  c.same({ C .. ":99", C .. ":101" }, c.cmd("LRANGE", LIST, 98, 99))
end)

case("a waiter that leaves from the first hundred moves the timeouts of Redisson clients behind it earlier", function(c)
  holds(c, JAVA)
  listed_crowd(c, 99)
  listed(c, { { OWNER, JAVA_MS }, { JAVA2, JAVA_MS + 7000 } })
  c.same(0, leave(c, OWNER, 0, "waits"))
  c.same(6099 + OURS_MS + 7000, timeout(c, JAVA2))
end)

case("a waiter that has a timeout but is missing from the queue is queued again", function(c)
  holds(c, JAVA)
  listed(c, { { OTHER, 6000 } })
  c.cmd("ZADD", TIMEOUTS, T0_MS + 6000, OWNER)
  c.same(1, waits(c, OWNER)[3])
  c.same({ OTHER, OWNER }, list(c))
end)

case("one command changes at most a thousand timeouts, so it never blocks the server for long", function(c)
  listed(c, { { OWNER, JAVA_MS } })
  for i = 1, 1001 do listed(c, { { "java" .. i, JAVA_MS } }) end
  c.same(1, waits(c, OWNER)[1])
  c.same({ OURS_MS, OURS_MS, JAVA_MS },
    { timeout(c, "java1"), timeout(c, "java1000"), timeout(c, "java1001") })
end)

case("an acquire of a free lock never overtakes the queue, but notifies its first waiter", function(c)
  local listener = listen_as(c, OTHER)
  listed(c, { { OTHER, 6000 } })
  c.same({ 0, GRANT, 0, 0, "" }, acquire(c, OWNER))
  c.same({ 0, GRANT, 1, 0, "" }, waits(c, OWNER))
  c.same({ "1 recheck 1", "1 recheck 1" }, listener.received())
  c.same(1, waits(c, OTHER)[1])
  c.same({ OWNER }, list(c))
end)

case("only the first waiter is notified when the holder shortens its lease", function(c)
  local java, behind = c.listen(CHANNEL .. ":" .. JAVA), c.listen(CHANNEL .. ":" .. JAVA2)
  c.same(1, acquire(c, OWNER)[1])
  listed(c, { { JAVA, JAVA_MS }, { JAVA2, 2 * JAVA_MS } })
  c.same(1, c.run("fair_extend", { LOCK, LIST }, OWNER, LEASE + 1, "", "", CHANNEL))
  c.same({ {}, {} }, { java.received(), behind.received() })
  c.same(1, c.run("fair_extend", { LOCK, LIST }, OWNER, 900, "", "", CHANNEL))
  c.same({ { "0" }, {} }, { java.received(), behind.received() })
  c.cmd("DEL", LIST)
  c.same(1, c.run("fair_extend", { LOCK, LIST }, OWNER, 800, "", "", CHANNEL))
  c.same({ {}, {} }, { java.received(), behind.received() })
end)

case("a waiter learns from the reply how soon the first waiter times out", function(c)
  local listener = listen_as(c, OTHER)
  listed(c, { { OTHER, 200 } })
  c.same({ 0, 200, 1, 0, "" }, waits(c, OWNER))
  listener.close()
end)

case("an acquire removes waiters at the head without a timeout, with an expired one, or without a connection",
  function(c)
    listed(c, { { JAVA }, { JAVA2, 0 }, { OTHER, 6000 } })
    c.same(1, acquire(c, OWNER)[1])
    c.same({}, list(c))
    c.same(0, c.cmd("EXISTS", TIMEOUTS))
  end)

case("an acquire removes dead waiters ahead of a live one, with their timeouts", function(c)
  listen_as(c, OTHER)
  listed(c, { { JAVA }, { JAVA2, 0 }, { OTHER, 6000 } })
  c.same(0, acquire(c, OWNER)[1])
  c.same({ { OTHER }, { OTHER } }, { list(c), c.cmd("ZRANGE", TIMEOUTS, 0, -1) })
end)

case("an acquire deletes timeouts that are left without a queue", function(c)
  c.cmd("ZADD", TIMEOUTS, T0_MS + 9000, JAVA)
  c.same(1, waits(c, OWNER)[1])
  c.same(0, c.cmd("EXISTS", TIMEOUTS))
end)

case("one command removes at most a thousand dead waiters, and the next one removes the rest", function(c)
  for i = 1, 1003 do c.cmd("RPUSH", LIST, "dead" .. i) end
  c.same({ 0, 1, 3, 0, "" }, waits(c, OWNER))
  c.same(1, waits(c, OWNER)[1])
  for i = 1, 1003 do c.cmd("RPUSH", LIST, "dead" .. i) end
  c.same({ 3, 0 }, { release(c, OWNER), leave(c, THIRD) })
  c.same({}, list(c))
  for i = 1, 1003 do c.cmd("RPUSH", LIST, "dead" .. i) end
  c.same(3, leave(c, THIRD))
end)

-- ---- release, leave, force ----

case("a release notifies only the first waiter, whether holdfast's or Redisson's", function(c)
  local ours, theirs = listen_as(c, OTHER), c.listen(CHANNEL .. ":" .. JAVA)
  holds(c, OWNER)
  listed(c, { { JAVA, JAVA_MS }, { OTHER, 6000 } })
  c.same(1, release(c, OWNER))
  c.same({ "0" }, theirs.received())
  c.same({}, ours.received())
  c.same(JAVA_MS, timeout(c, JAVA))
  c.cmd("LPOP", LIST)
  holds(c, OWNER)
  c.same(1, release(c, OWNER))
  c.same({ "1 recheck 1" }, ours.received())
  c.same({}, theirs.received())
end)

case("a first Redisson waiter that is not subscribed at a release gets 3 s, once, to take the lock", function(c)
  holds(c, OWNER)
  listed(c, { { JAVA, JAVA_MS } })
  c.same(1, release(c, OWNER))
  c.same(DEAF_MS, timeout(c, JAVA))
  c.pass(1000)
  c.same({ 0, GRANT, 1, 0, "" }, waits(c, OTHER))
  c.same(DEAF_MS, timeout(c, JAVA))
  c.pass(2000)
  c.same(1, waits(c, OTHER)[1])
end)

case("a pattern subscription does not make a release count a Redisson waiter as subscribed", function(c)
  c.watch("redisson_lock__channel:*")
  holds(c, OWNER)
  listed(c, { { JAVA, JAVA_MS } })
  c.same(1, release(c, OWNER))
  c.same(DEAF_MS, timeout(c, JAVA))
end)

case("a partial release extends the remaining hold's lease, and never shortens it", function(c)
  for _, ms in ipairs { 1000, 2 * LEASE } do
    holds(c, OWNER, 2)
    c.cmd("PEXPIRE", LOCK, ms)
    c.same(2, release(c, OWNER, 1))
    c.same({ "1", math.max(ms, LEASE) }, { c.cmd("HGET", LOCK, OWNER), c.cmd("PTTL", LOCK) })
  end
end)

case("a partial release notifies no waiter, because the lock remains held", function(c)
  local listener = c.listen(CHANNEL .. ":" .. JAVA)
  holds(c, OWNER, 2)
  listed(c, { { JAVA, JAVA_MS } })
  c.same(2, release(c, OWNER, 1))
  c.same({}, listener.received())
  c.same({ -2, "1" }, { release(c, OTHER), c.cmd("HGET", LOCK, OWNER) })
  c.same({ 1, -1 }, { release(c, OWNER), release(c, OWNER) })
end)

case("in a cluster a release notifies a Redisson waiter on both the plain and the sharded channel", function(c)
  local sharded, plain = c.listen(CHANNEL .. ":" .. JAVA, true), c.listen(CHANNEL .. ":" .. JAVA)
  holds(c, OWNER)
  listed(c, { { JAVA, JAVA_MS } })
  c.same(1, release(c, OWNER, 0, "sharded_fair_release"))
  c.same({ { "0" }, { "0" } }, { sharded.received(), plain.received() })
  c.same(JAVA_MS, timeout(c, JAVA))
end)

case("a release frees the lock even if the client is not allowed to publish", function(c)
  for _, owner in ipairs { JAVA, OTHER } do
    local listener = listen_as(c, OTHER)
    holds(c, OWNER)
    listed(c, { { owner, 6000 } })
    c.refuse("publish")
    c.same(1, release(c, OWNER))
    c.refuse()
    c.same(0, c.cmd("EXISTS", LOCK))
    c.cmd("DEL", LIST, TIMEOUTS)
    listener.close()
  end
end)

case("a release frees the lock even if the queue's key has another type", function(c)
  c.cmd("SET", LIST, "v")
  holds(c, OWNER)
  c.same(1, release(c, OWNER))
  c.same(0, leave(c, OWNER, 0, "waits"))
  c.same("v", c.cmd("GET", LIST))
end)

case("a release frees the lock even if the timeouts' key has another type", function(c)
  c.cmd("SET", TIMEOUTS, "v")
  c.cmd("RPUSH", LIST, OTHER)
  for _, releases in ipairs {
    function() return release(c, OWNER) end,
    function() return leave(c, OWNER, 0, "waits") end,
    function() return force(c) end,
  } do
    holds(c, OWNER)
    c.same(1, releases())
    c.same(0, c.cmd("EXISTS", LOCK))
  end
  c.same({ OTHER }, list(c))
end)

case("a waiter that gives up leaves the queue, and notifies the next waiter if the lock is free", function(c)
  local listener = listen_as(c, THIRD)
  listed(c, { { OTHER, 6000 }, { THIRD, 6000 } })
  c.same(0, leave(c, OTHER, 0, "waits"))
  c.same({ THIRD }, list(c))
  c.same({ "1 recheck 1" }, listener.received())
  holds(c, OWNER)
  c.same(0, leave(c, OTHER, 0, "waits"))
  c.same({}, listener.received())
end)

case("undoing an acquire that did not wait leaves the same owner's waiter in the queue", function(c)
  holds(c, JAVA)
  waits(c, OWNER)
  c.same(0, leave(c, OWNER))
  c.same({ { OWNER }, OURS_MS }, { list(c), timeout(c, OWNER) })
end)

case("undoing a re-entry removes only the holds that it added", function(c)
  holds(c, OWNER, 3)
  c.same({ 1, "2" }, { leave(c, OWNER, 2), c.cmd("HGET", LOCK, OWNER) })
  c.same({ 0, "2" }, { leave(c, OWNER, 2), c.cmd("HGET", LOCK, OWNER) })
  c.same({ 1, 0 }, { leave(c, OWNER, 0), c.cmd("EXISTS", LOCK) })
end)

case("force_release frees a lock, and refuses a key that holds anything else", function(c)
  local listener = c.listen(CHANNEL .. ":" .. JAVA)
  c.same(0, force(c))
  holds(c, JAVA2)
  listed(c, { { JAVA, JAVA_MS } })
  c.same({ 1, 0 }, { force(c), c.cmd("EXISTS", LOCK) })
  c.same({ "0" }, listener.received())
  c.same({ JAVA }, list(c))
  c.cmd("DEL", LIST, TIMEOUTS)
  for _, make in ipairs {
    function() c.cmd("SET", LOCK, "v") end,
    function() c.cmd("HSET", LOCK, JAVA, 1) end,
    function() holds(c, JAVA) c.cmd("HSET", LOCK, "mode", "read") end,
    function() holds(c, JAVA, "x") end,
    function() holds(c, "somebody") end,
  } do
    make()
    c.same("WRONGTYPE", (force(c).err or ""):match("^%S+"))
    c.cmd("DEL", LOCK)
  end
  holds(c, "somebody")
  c.cmd("SET", COUNTER, 5)
  c.same(1, force(c))
end)

case("info returns the owner, its holds and TTL, the last token and the number of waiters", function(c)
  local function info(uuid) return c.run("fair_info", { LOCK, COUNTER, LIST }, uuid) end
  c.same({ "", 0, -2, "0", 0, -1, -1, 0, T0, -1 }, info(A))
  holds(c, JAVA, 2)
  c.cmd("SET", COUNTER, 5)
  listed(c, { { JAVA2, JAVA_MS }, { OWNER, 6000 } })
  c.same({ JAVA, 2, LEASE, "5", 2, 1, -1, 0, T0, -1 }, info(A))
  c.same({ JAVA, 2, LEASE, "5", 2, -1, -1, 0, T0, -1 }, info(B))
end)

case("info returns a waiter's position in the queue only while its client is subscribed", function(c)
  local function ahead(asked)
    return c.run("fair_info", { LOCK, COUNTER, LIST }, asked)[6]
  end
  listed(c, { { JAVA2, JAVA_MS }, { OWNER, 6000 } })
  c.same({ -1, 1 }, { ahead(OWNER), ahead(A) }, "nobody listens")
  local a = c.listen("holdfast_grant:" .. A)
  c.same({ 1, -1, -1 }, { ahead(OWNER), ahead(OWNER .. "0"), ahead(OWNER:sub(1, 37) .. "9") })
  a.close()
end)

case("undoing a re-entry keeps the first of two holds", function(c)
  holds(c, OWNER, 2)
  c.same(1, leave(c, OWNER, 1))
  c.same("1", c.cmd("HGET", LOCK, OWNER))
end)

case("force_release frees a lock that a Redisson client holds", function(c)
  holds(c, JAVA)
  c.same(1, force(c))
  c.same(0, c.cmd("EXISTS", LOCK))
end)

case("force_release frees a lock in the last millisecond of its lease", function(c)
  holds(c, OWNER)
  c.pass(LEASE)
  c.same(0, c.cmd("PTTL", LOCK))
  c.same(1, force(c))
end)

return cases
