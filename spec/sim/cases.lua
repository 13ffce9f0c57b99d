-- What each program does when it is called alone: states of the keys, arguments, replies, the keys
-- afterwards, messages. Some cases are in no schedule, as they need a client of another version, a
-- damaged key or a very long time.
--
-- Each case is { name, run }; run(c) uses
--
--   c.run(program, keys, ...)  calls a program. → reply, an error as { err = text }; for a token
--                              alone, { 1, token, 0 }
--   c.raw(program, keys, ...)  the same, with a token alone as it is
--   c.cmd(...)                 → reply of a command
--   c.listen(channel)          → a subscriber; its received() gives all messages since the last
--   c.pass(ms)                 moves the server's clock on
--   c.same(expected, found, what)
--
-- They run on the small Redis, whose clock stands still; see case_runner.lua.

if not ... then
  io.stderr:write "This is a list. To run it: luajit spec/sim/run.lua --cases\n"
  os.exit(2)
end

local LEASE, GRANT, TTL = 30000, 500, 600000
local T0 = 1700000000000000 -- the server's clock, a multiple of the token grain
local T0_MS = T0 / 1000
local ENDLESS = "9007199254740991"
local QUEUE_MS, OVERDUE = 120000, GRANT / 2
local LOCK, COUNTER, QUEUE, CHANNEL = "k", "redisson_lock_token:{k}", "holdfast_queue:{k}",
  "redisson_lock__channel:{k}"
local FOUR = { LOCK, COUNTER, QUEUE, CHANNEL }
local SECOND = { "j", "redisson_lock_token:{j}", "holdfast_queue:{j}",
  "redisson_lock__channel:{j}" }
local UUID = "1111111%d-0000-8000-8000-000000000000"
local A, B, C = UUID:format(1), UUID:format(2), UUID:format(3)
local OWNER, OTHER = A .. ":1", B .. ":2"
local JAVA = "6f1c2b7a-1111-4222-8333-000000000001:7"
local SHARED = "svc"

local unpack = table.unpack or unpack

local cases = {}

local function case(name, run) cases[#cases + 1] = { name, run } end

-- ---- calls ----

-- more: from, shared, lease, ttl, member, print, floor, program, owner; brief: sends only owner,
-- lease and ttl
local function acquire(c, more)
  more = more or {}
  if more.brief then
    return c.run(more.program, FOUR, more.owner or OWNER, more.lease or LEASE, more.ttl or TTL)
  end
  local args = {
    more.owner or OWNER, GRANT, more.from or 0, more.shared and 1 or 0, more.lease or LEASE,
    more.ttl or TTL,
    more.member or "", more.print, more.floor,
  }
  if more.floor then args[8] = more.print or "" end
  return c.run(more.program or "acquire", FOUR, unpack(args))
end

local function release(c, owner, to, own, lease, program)
  return c.run(program or "release", FOUR, owner or OWNER, GRANT, to or 0, lease or LEASE, own
    or "")
end

local function leave(c, member, to, own, owner, program)
  return c.run(program or "leave", FOUR, owner or OWNER, GRANT, to or 0, member or "", own or "")
end

-- ---- states ----

local function member(client, number, kind, owner, ttl)
  return ("1%s%s:%s:%s"):format(kind or "l", client, number, ttl or TTL)
    .. (owner and " " .. owner or "")
end

local function held(c, owner, count, ms)
  c.cmd("HSET", LOCK, owner or OWNER, count or 1)
  if ms ~= false then c.cmd("PEXPIRE", LOCK, ms or LEASE) end
end

local function mutex_held(c, owner, ms)
  if ms == false then c.cmd("SET", LOCK, owner) else c.cmd("SET", LOCK, owner or OWNER, "PX", ms
    or LEASE) end
end

local function queued(c, score, name)
  c.cmd("ZADD", QUEUE, ("%.0f"):format(score), name)
end

local function record(c, turns, unused, heard, run, till_ms)
  queued(c, -till_ms, ("1f %d %d %s %d"):format(turns, unused, heard == 1 and "-" or heard, run))
end

local function grants_of(c, client) return c.listen("holdfast_grant:" .. client) end

local function text(number) return ("%.0f"):format(number) end

local function grant_text(kind, number, place, token, key, lease)
  return ("1 grant %s %d %s %s %d %s"):format(kind, number, place, token, lease or GRANT, key or LOCK)
end

-- Returns the queue as a list of member, score, …
local function queue(c) return c.cmd("ZRANGE", QUEUE, 0, -1, "WITHSCORES") end

local function dead(c, count)
  c.cmd("EVAL", [[
    for i = 1, tonumber(ARGV[1]) do redis.call('ZADD', KEYS[1], i, '1l' .. ARGV[2] .. ':' .. i .. ':0') end
  ]], 1, QUEUE, count, C)
end

-- ---- tokens ----

-- The TTL that is set; the least TTL that a token leaves unchanged when it looks at the counter's;
-- and when the part of the TTL began in which it does not look (token.lua).
local SET_TTL, KEPT_TTL, PART = TTL + TTL / 32, TTL + TTL / 64, T0 - T0 % (TTL / 64 * 1000)

-- The ways to acquire a lock: by the head, without and with a wait, by a brief call of it, by the
-- text after the head, and on a server whose SET has no GET, which looks at the TTL each time.
local WAYS = {
  [""] = function() return {} end,
  ["a short-argument "] = function() return { brief = true } end,
  ["a waiting "] = function(_, kind) return { member = member(A, 1, kind) } end,
  ["a granted waiter's "] = function(c, kind)
    c.cmd("ZADD", QUEUE, 0, member(A, 1, kind))
    return { member = member(A, 1, kind) }
  end,
  ["an old server's "] = function(c, kind)
    c.refuse_set_get()
    return { member = member(A, 1, kind) }
  end,
}

-- Adds a case for each program that takes a lock. before(c): sets the counter and the clock.
local function token_after(name, before, expected, ttl)
  local function add(program, way, options)
    case(("a token of %s%s %s"):format(way, program, name), function(c)
      local mutex, looks = program == "mutex_acquire", way:find("old") and ttl ~= -1
      before(c)
      local more = options(c, mutex and "m" or "l")
      more.program = program
      c.same({ 1, expected, 0 }, acquire(c, more), "reply")
      c.same(text(expected), c.cmd("GET", COUNTER), "counter")
      local left = looks and (ttl or 0) < KEPT_TTL and SET_TTL or ttl or SET_TTL
      c.same(left, c.cmd("PTTL", COUNTER), "ttl of the counter")
      c.same(mutex and OWNER or { OWNER, "1" }, c.cmd(mutex and "GET" or "HGETALL", LOCK), "lock")
      c.same(LEASE, c.cmd("PTTL", LOCK), "ttl of the lock")
    end)
  end
  for _, program in ipairs { "acquire", "sharded_acquire", "mutex_acquire" } do
    for way, options in pairs(WAYS) do add(program, way, options) end
  end
end

-- Does the same with a counter that is behind the clock, as in most acquires.
local function token_behind(name, counter, ttl, expected_ttl)
  token_after(name, function(c)
    c.clock(T0 + 1)
    c.cmd("SET", COUNTER, counter, unpack(ttl and { "PX", ttl } or {}))
  end, T0 + 8, expected_ttl)
end

token_after("is the server's time if there is no counter", function() end, T0)
token_after("is the server's time rounded up to a multiple of eight", function(c) c.clock(T0 + 1) end, T0 + 8)
token_after("is higher than the last one", function(c)
  c.cmd("SET", COUNTER, text(T0), "PX", 1000)
end, T0 + 8)
-- The counter remains until the clock reaches it.
token_after("is higher than a counter that is far ahead of the clock",
  function(c) c.cmd("SET", COUNTER, "9007199254740976", "PX", 1000) end, 9007199254740984,
  math.floor((9007199254740984 - T0) / 1000))
token_after("leaves room for higher ones when the clock is in the year 2262", function(c)
  c.clock(9223372036000000)
end, 4723372036000000)
token_after("is higher than one drawn in the year 2262", function(c)
  c.clock(9223372036000000)
  c.cmd("SET", COUNTER, "4723372036000000", "PX", SET_TTL)
end, 4723372036000008)
token_after("is higher than the last one when the clock is in the year 2112",
  function(c)
    c.clock(4499999999000000)
    c.cmd("SET", COUNTER, "4499999999000000", "PX", SET_TTL)
    c.clock(4500000000000000)
  end, 4500000000000000, SET_TTL - 1000)
token_after("is the server's time if the counter is not a whole number", function(c)
  c.cmd("SET", COUNTER, "1800000000000000.5", "PX", 1000)
end, T0)
token_after("is the server's time if the counter is at its highest value",
  function(c) c.cmd("SET", COUNTER, "9007199254740983", "PX", 1000) end, T0)
token_after("is the server's time if the counter is negative", function(c)
  c.cmd("SET", COUNTER, "-8", "PX", 1000)
end, T0)
token_after("is 8 if the counter and the server's time are 0", function(c)
  c.clock(0)
  c.cmd("SET", COUNTER, "0", "PX", 1000)
end, 8)
token_after("keeps the counter's TTL if that is long enough", function(c)
  c.cmd("SET", COUNTER, text(T0), "PX", KEPT_TTL)
end, T0 + 8, KEPT_TTL)
token_after("keeps the counter's TTL if that was just set", function(c)
  c.cmd("SET", COUNTER, text(T0 - 80), "PX", SET_TTL)
end, T0, SET_TTL)
token_after("lengthens the counter's TTL if that is too short", function(c)
  c.cmd("SET", COUNTER, text(T0), "PX", KEPT_TTL - 1)
end, T0 + 8)
token_after("shortens the counter's TTL if that is too long", function(c)
  c.cmd("SET", COUNTER, text(T0), "PX", SET_TTL + 1)
end, T0 + 8)
token_after("is the server's time if the counter is at its highest value, whatever its TTL", function(c)
  c.cmd("SET", COUNTER, "9007199254740983", "PX", TTL)
end, T0)
token_after("leaves the counter without a TTL if it had none", function(c)
  c.cmd("SET", COUNTER, text(T0))
end, T0 + 8, -1)
token_after("removes the TTL of a counter that Java has drawn from",
  function(c) c.cmd("SET", COUNTER, text(T0 + 3), "PX", 1000) end, T0 + 8, -1)

token_behind("is the server's time if the counter is behind", text(T0 - 8), TTL, TTL)
token_behind("is the server's time however far the counter is behind", "0", TTL)
token_behind("keeps the counter's longest possible TTL", text(T0 - 80), SET_TTL, SET_TTL)
token_behind("does not check the counter's TTL in the same time slot as the last token", text(PART), 1000, 1000)
token_behind("lengthens the counter's TTL in the next time slot if that is too short", text(PART - 8), KEPT_TTL - 1)
token_behind("keeps the counter's TTL in the next time slot if that is long enough", text(PART - 8), KEPT_TTL, KEPT_TTL)
token_behind("shortens the counter's TTL in the next time slot if that is too long", text(PART - 8), SET_TTL + 1)
token_after("is the server's time rounded up to the next second at the end of a second", function(c)
  c.clock(T0 + 999999)
  c.cmd("SET", COUNTER, text(T0), "PX", KEPT_TTL)
end, T0 + 1000000, KEPT_TTL)
token_after("is the server's time at the last multiple of eight of a second", function(c)
  c.clock(T0 + 999992)
  c.cmd("SET", COUNTER, text(T0), "PX", 1000)
end, T0 + 999992, 1000)
token_behind("gives no TTL to a counter behind the clock without one", text(T0 - 80), nil, -1)
token_behind("removes the TTL of a counter behind the clock that Java has drawn from", text(T0 - 77), TTL, -1)
token_behind("replaces a counter that is not a number", "none", TTL)
token_behind("is the server's time if the counter is a large negative number", "-9200000000000000000", TTL)
token_after("is higher than the last one after the clock was set back", function(c)
  c.cmd("SET", COUNTER, text(T0 + 800), "PX", KEPT_TTL)
end, T0 + 808, KEPT_TTL)

-- None of these may be mistaken for the short call of the program's head (acquire.lua).
for _, program in ipairs { "acquire", "sharded_acquire", "mutex_acquire" } do
  local kind = program == "mutex_acquire" and "m" or "l"
  local function usual(c, more, ttl)
    more.program = program
    c.cmd("SET", COUNTER, text(T0 - 80), unpack(ttl == nil and { "PX", TTL } or {}))
    return acquire(c, more)
  end
  local function untouched(c, ttl)
    c.same({ text(T0 - 80), ttl or TTL }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) }, "counter")
  end

  case(program .. " draws no token with fencing off, even if the counter exists", function(c)
    c.same({ 1, 0, 0 }, usual(c, { ttl = 0 }, false))
    untouched(c, -1)
  end)

  case(program .. " of one server of a quorum draws the floor if the clock is behind it", function(c)
    c.same({ 1, T0 + 800, 0, T0 }, usual(c, { floor = T0 + 800 }))
  end)

  case(program .. " draws a range of tokens for a client that keeps the lock after its release", function(c)
    c.same({ 1, T0, 0, 0, T0 + 250000 }, usual(c, { owner = A .. ":01" }))
    c.same(text(T0 + 250000), c.cmd("GET", COUNTER))
  end)

  case(program .. " draws a single token for an owner whose number merely ends in 0", function(c)
    c.same({ 1, T0, 0 }, usual(c, { owner = A .. ":10" }))
  end)

  case(program .. " refuses a re-entry if the hold has ended", function(c)
    c.same({ -1 }, usual(c, { from = 1 }))
    untouched(c)
  end)

  case(program .. " reports a held lock without writing anything", function(c)
    if kind == "m" then mutex_held(c, OTHER) else held(c, OTHER) end
    c.same({ 0, LEASE, 0, 0, "" }, usual(c, {}))
    untouched(c)
    c.same(0, c.cmd("EXISTS", QUEUE))
  end)

  case(program .. " grants a free lock to the first waiter instead of the caller", function(c)
    local listener = grants_of(c, B)
    queued(c, T0, member(B, 7, kind))
    c.same({ 0, GRANT, 0, 0, "" }, usual(c, {}))
    c.same({ grant_text(kind, 7, text(T0), text(T0)) }, listener.received())
  end)
end

-- ---- the head of acquire, and its brief calls ----

-- → everything on the server
local function everything(c)
  local found = c.cmd("KEYS", "*")
  table.sort(found)
  for i, key in ipairs(found) do
    local kind = c.cmd("TYPE", key).ok
    found[i] = { key, kind, c.cmd("PTTL", key), kind == "string" and c.cmd("GET", key)
      or kind == "hash" and c.cmd("HGETALL", key) or kind == "list" and c.cmd("LRANGE", key, 0, -1)
      or c.cmd("ZRANGE", key, 0, -1, "WITHSCORES") }
  end
  return found
end

-- In each of these cases the head has drawn a token, or was unable to, and leaves the rest to the
-- text after it, which must find the keys unchanged. before(c): sets the counter, and may set the
-- clock.
local function head_gives_up(name, before)
  local function after(c, more)
    c.cmd("FLUSHALL")
    c.clock(T0 + 1)
    before(c)
    local reply = acquire(c, more)
    return { reply, everything(c) }
  end
  for _, program in ipairs { "acquire", "sharded_acquire", "mutex_acquire" } do
    case(("%s gives the same result with short and full arguments for %s"):format(program, name), function(c)
      local expected = after(c, { program = program, print = "" }) -- left alone by the head
      c.same(expected, after(c, { program = program }), "in full")
      c.same(expected, after(c, { program = program, brief = true }), "briefly")
    end)
  end
end

local function with_counter(value, ...)
  local words = { ... }
  return function(c) c.cmd("SET", COUNTER, value, unpack(words)) end
end

head_gives_up("a counter ahead of the clock", with_counter(text(T0 + 800), "PX", 1000))
head_gives_up("a counter without a TTL ahead of the clock", with_counter(text(T0 + 800)))
head_gives_up("a counter that is already at the clock", with_counter(text(T0 + 8), "PX", KEPT_TTL))
head_gives_up("a counter that Java has drawn from", with_counter(text(T0 - 77), "PX", TTL))
head_gives_up("a counter without a TTL that Java has drawn from", with_counter(text(T0 - 77)))
head_gives_up("a counter with a fraction", with_counter("1699999999999992.5", "PX", TTL))
head_gives_up("a counter that is not a number", with_counter("none", "PX", TTL))
head_gives_up("an empty counter", with_counter("", "PX", TTL))
head_gives_up("a counter with arbitrary bytes", with_counter("\0\255\r\n", "PX", TTL))
head_gives_up("a counter with the value nan", with_counter("nan", "PX", TTL))
head_gives_up("a negative counter", with_counter("-8", "PX", TTL))
head_gives_up("a counter at its highest value", with_counter("9007199254740983", "PX", TTL))
head_gives_up("a counter of 2^53 - 1", with_counter("9007199254740991", "PX", TTL))
head_gives_up("a counter of 2^53", with_counter("9007199254740992", "PX", TTL))
head_gives_up("a counter of 20 digits", with_counter("18446744073709551616", "PX", TTL))
head_gives_up("a counter with an exponent", with_counter("1.7e15", "PX", TTL))
head_gives_up("a counter in hexadecimal", with_counter("0x8", "PX", TTL))
head_gives_up("a counter with blanks", with_counter(" " .. text(T0 - 80), "PX", KEPT_TTL))
head_gives_up("a counter of an earlier time slot", with_counter(text(PART - 8), "PX", KEPT_TTL))
head_gives_up("a counter whose TTL is too short", with_counter(text(PART - 8), "PX", KEPT_TTL - 1))
head_gives_up("a counter whose TTL is too long", with_counter(text(PART - 8), "PX", SET_TTL + 1))
head_gives_up("a counter of an earlier time slot without a TTL", with_counter(text(PART - 8)))
head_gives_up("a counter that is a list", function(c) c.cmd("RPUSH", COUNTER, "x") end)
head_gives_up("a clock at the end of a second", function(c)
  c.clock(T0 + 999999)
  c.cmd("SET", COUNTER, text(T0), "PX", KEPT_TTL)
end)
head_gives_up("a clock at the end of a second without a counter", function(c) c.clock(T0 + 999999) end)
head_gives_up("a server that refuses SET with GET", function(c)
  c.refuse_set_get()
  c.cmd("SET", COUNTER, text(T0 - 80), "PX", KEPT_TTL)
end)
head_gives_up("a server that refuses SET with GET, without a counter", function(c) c.refuse_set_get() end)

-- The clock in µs, from 2^31 on and up to 15, 16 digits and the end of what the head draws.
local CLOCKS = { 2147483640, 2147483648, 4294967296, 999999999999992, 1e15, 4499999999999992,
  4.5e15 }

for _, prefix in ipairs { "", "sharded_", "mutex_" } do
  for _, us in ipairs(CLOCKS) do
    case(("%sacquire at a clock of %.0f stores the token in digits and returns it"):format(prefix, us), function(c)
      c.clock(us)
      for _, after in ipairs { 0, 8 } do
        c.clock(us + after)
        c.cmd("DEL", LOCK)
        local reply = acquire(c, { program = prefix .. "acquire", brief = true })
        c.same({ 1, us + after, 0 }, reply)
        c.same(text(us + after), c.cmd("GET", COUNTER))
      end
    end)
  end

  case(prefix .. "acquire of a free lock returns the token alone, or 0 with fencing off", function(c)
    for _, ttl in ipairs { TTL, 0 } do
      c.same(ttl > 0 and T0 or 0, c.raw(prefix .. "acquire", FOUR, OWNER, LEASE, ttl))
      c.cmd("DEL", LOCK, COUNTER)
      c.same(ttl > 0 and T0 or 0, c.raw(prefix .. "acquire", FOUR, OWNER, GRANT, 0, 0, LEASE, ttl, ""))
      c.cmd("DEL", LOCK, COUNTER)
    end
  end)

  -- A mutex gets its TTL with the key, so only its new counter has none.
  case(prefix .. "acquire leaves no lock without a TTL if the server refuses PEXPIRE", function(c)
    for i, counter in ipairs { text(T0 - 80), false } do
      c.cmd("FLUSHALL")
      if counter then c.cmd("SET", COUNTER, counter, "PX", KEPT_TTL) end
      c.clock(T0 + 8 * i)
      c.refuse("pexpire")
      local reply = acquire(c, { program = prefix .. "acquire", brief = true })
      c.same(prefix == "mutex_" and "nil" or "string", type(reply.err))
      c.same({ prefix == "mutex_" and LEASE or -2, counter and KEPT_TTL or -1 },
        { c.cmd("PTTL", LOCK), c.cmd("PTTL", COUNTER) })
      c.refuse()
      c.cmd("DEL", LOCK)
      c.clock(T0 + 8 * i + 8)
      c.same({ 1, T0 + 8 * i + 8, 0 }, acquire(c, { program = prefix .. "acquire", brief = true }))
    end
  end)
end

for _, prefix in ipairs { "", "sharded_", "mutex_" } do
  local mutex = prefix == "mutex_"
  local kind, taken = mutex and "m" or "l", mutex and mutex_held or held
  local function ask(c) return acquire(c, { program = prefix .. "acquire", brief = true }) end
  local function release_four(c) return c.run(prefix .. "release", FOUR, OWNER) end
  -- Checks that the call writes nothing.
  local function unchanged(c, call, expected)
    local before = everything(c)
    c.same(expected, call(c), "reply")
    c.same(before, everything(c), "what is there")
  end
  local function granted(c, listener)
    local token = c.cmd("GET", COUNTER)
    c.same({ grant_text(kind, 7, text(T0), token, LOCK, 2000) }, listener.received(), "message")
    c.same(mutex and B .. ":7" or { B .. ":7", "1" }, c.cmd(mutex and "GET" or "HGETALL", LOCK), "owner")
    c.same(2000, c.cmd("PTTL", LOCK), "ttl of the lock")
  end

  case(prefix .. "acquire with the short arguments reports a held lock without writing anything", function(c)
    taken(c, OTHER)
    unchanged(c, ask, { 0, LEASE, 0, 0, "" })
  end)

  case(prefix .. "acquire with the short arguments takes one hold if the command is sent twice", function(c)
    c.same({ 1, T0, 0 }, ask(c))
    c.pass(7)
    c.same({ 1, T0 + 7000, 0 }, ask(c))
    c.same(mutex and OWNER or { OWNER, "1" }, c.cmd(mutex and "GET" or "HGETALL", LOCK))
  end)

  case(prefix .. "acquire with the short arguments grants a free lock to its first waiter instead of the caller", function(c)
    local listener = grants_of(c, B)
    queued(c, T0, member(B, 7, kind))
    c.same({ 0, 2000, 0, 0, "" }, ask(c), "reply")
    granted(c, listener)
  end)

  case(prefix .. "acquire with the short arguments draws no token with fencing off", function(c)
    c.same({ 1, 0, 0 }, acquire(c, { program = prefix .. "acquire", brief = true, ttl = 0 }))
    c.same({ LOCK }, c.cmd("KEYS", "*"))
  end)

  for _, before in ipairs { "none", "one with an end" } do
    case(prefix .. "acquire with the short arguments leaves a counter without a TTL if tokens never expire, after " .. before, function(c)
      if before ~= "none" then c.cmd("SET", COUNTER, text(T0 - 8), "PX", TTL) end
      c.same({ 1, T0, 0 }, acquire(c, { program = prefix .. "acquire", brief = true, ttl = ENDLESS }))
      c.same(-1, c.cmd("PTTL", COUNTER))
    end)
  end

  case(prefix .. "release with the short arguments frees a lock without waiters", function(c)
    taken(c)
    c.same({ 1, -1 }, { release_four(c), release_four(c) })
    c.same({}, everything(c))
  end)

  case(prefix .. "release with the short arguments does not free another owner's lock", function(c)
    taken(c, OTHER)
    unchanged(c, release_four, -2)
  end)

  case(prefix .. "release with the short arguments grants the lock to the next waiter", function(c)
    local listener = grants_of(c, B)
    taken(c)
    queued(c, T0, member(B, 7, kind))
    c.same(1, release_four(c))
    granted(c, listener)
  end)

  case(prefix .. "release with the short arguments grants the lock without a token to a waiter with fencing off", function(c)
    local listener = grants_of(c, B)
    taken(c)
    queued(c, T0, member(B, 7, kind, nil, 0))
    c.same(1, release_four(c))
    c.same({ grant_text(kind, 7, text(T0), "0", LOCK, 2000) }, listener.received(), "message")
    c.same(0, c.cmd("EXISTS", COUNTER))
  end)

  case(prefix .. "release with the short arguments skips dead waiters", function(c)
    local listener = grants_of(c, B)
    taken(c)
    for number = 1, 20 do queued(c, T0 - 100 + number, member(C, number, kind)) end
    queued(c, T0, member(B, 7, kind))
    c.same(1, release_four(c))
    granted(c, listener)
  end)
end

case("a release of an idempotent run's key grants it to the next run that waits for it", function(c)
  local listener = grants_of(c, B)
  held(c)
  queued(c, T0, member(B, 7, "g", nil, 0))
  c.same(1, c.run("release", FOUR, OWNER))
  c.same({ grant_text("g", 7, text(T0), "0", LOCK, 2000) }, listener.received(), "message")
  c.same({ B .. ":7", "1", "print", "" }, c.cmd("HGETALL", LOCK))
end)

case("a release with the short arguments frees a lock with both holds of its owner", function(c)
  held(c, OWNER, 2)
  c.same(1, c.run("release", FOUR, OWNER))
  c.same({}, everything(c))
end)

case("an acquire draws no token with fencing off", function(c)
  c.same({ 1, 0, 0 }, acquire(c, { ttl = 0 }))
  c.same(0, c.cmd("EXISTS", COUNTER))
end)

case("the token counter never expires if its TTL is 2^53 - 1", function(c)
  c.same({ 1, T0, 0 }, acquire(c, { ttl = ENDLESS }))
  c.same(-1, c.cmd("PTTL", COUNTER))
end)

case("an acquire of a quorum draws a token at or above the given floor, and returns the server's clock", function(c)
  c.clock(T0 + 3)
  c.same({ 1, T0 + 3, 0, T0 + 3 }, acquire(c, { floor = 5 }))
  c.same(SET_TTL, c.cmd("PTTL", COUNTER))
  c.cmd("DEL", LOCK)
  c.same({ 1, T0 + 4, 0, T0 + 3 }, acquire(c, { floor = 5 }))
  c.same(SET_TTL, c.cmd("PTTL", COUNTER), "its TTL stays, whatever was drawn")
  c.cmd("DEL", LOCK)
  c.same({ 1, T0 + 1000, 0, T0 + 3 }, acquire(c, { floor = T0 + 1000 }))
  held(c)
  c.same({ 1, 0, 0, T0 + 3 }, acquire(c, { from = 1, floor = 5 }))
end)

local KEEPS = member(A, "01") -- a client that will keep the lock

case("the reply to an acquire tells a client that keeps locks whether others wait", function(c)
  local own = grants_of(c, A)
  grants_of(c, B)
  queued(c, T0, KEEPS)
  c.same(1, acquire(c, { owner = A .. ":01", member = KEEPS })[1])
  c.same({}, own.received(), "nobody waits")
  c.cmd("DEL", LOCK)
  queued(c, T0, KEEPS)
  queued(c, T0 + 1, member(B, 1))
  c.same(1, acquire(c, { owner = A .. ":01", member = KEEPS })[1])
  c.same({ "1 wish 01" }, own.received())
end)

case("a grant tells a client that keeps locks whether others wait", function(c)
  local own = grants_of(c, A)
  held(c, OTHER)
  queued(c, T0, KEEPS)
  c.same(1, release(c, OTHER))
  c.same(1, #own.received(), "nobody waits")
  c.cmd("DEL", LOCK, QUEUE)
  held(c, OTHER)
  queued(c, T0, KEEPS)
  queued(c, T0 + 1, member(B, 1))
  c.same(1, release(c, OTHER))
  c.same("1 wish 01", own.received()[2])
end)

case("a first waiter learns whether the client that keeps the lock has received its request to release it", function(c)
  local function foreign(waiter)
    return acquire(c, { owner = OTHER, member = waiter })[4]
  end
  held(c, A .. ":01")
  grants_of(c, B)
  c.same({ 2, 0 }, { foreign(member(B, 1)), foreign(member(C, 1)) }, "the first waiter asks")
  local own = grants_of(c, A)
  c.same(0, foreign(member(B, 1)))
  c.same({ "1 wish 01" }, own.received())
end)

case("only the first waiter asks a client to release its kept lock, and learns if that client is not connected", function(c)
  local keeper = B .. ":01"
  grants_of(c, C)
  held(c, keeper)
  c.same(2, acquire(c, { owner = C .. ":1", member = member(C, 1) })[4])
  local own = grants_of(c, B)
  c.same({ 0, {} }, { acquire(c, { member = member(A, 1) })[4], own.received() })
  c.same({ 0, { "1 wish 01" } },
    { acquire(c, { owner = C .. ":1", member = member(C, 1) })[4], own.received() })
  own.close()
  c.same(0, acquire(c, { member = member(A, 1) })[4], "the second one need not care")
end)

case("when the first waiter leaves, the next one is notified to request the kept lock", function(c)
  local listener = grants_of(c, B)
  held(c, A .. ":01")
  queued(c, T0, member(C, 1))
  queued(c, T0 + 1, member(B, 7))
  c.same(0, leave(c, member(C, 1), 0, nil, C .. ":1"))
  c.same({ "1 recheck 7" }, listener.received())
end)

case("a new waiter's acquire that grants the free lock to a client that keeps locks also asks that client to release it", function(c)
  for _, name in ipairs { "", "mutex_" } do
    local own = grants_of(c, A)
    local kept = name == "" and KEEPS or member(A, "01", "m")
    queued(c, T0, kept)
    local newcomer = member(B, 1, name == "" and "l" or "m")
    c.same(0, acquire(c, { program = name .. "acquire", owner = OTHER, member = newcomer })[1])
    local texts = own.received()
    c.same({ 2, "1 wish 01" }, { #texts, texts[2] }, name)
    c.cmd("DEL", LOCK, QUEUE)
    own.close()
  end
end)

case("a client that keeps the lock after its release draws a range of tokens", function(c)
  c.same({ 1, T0, 0, 0, T0 + 250000 }, acquire(c, { owner = A .. ":01" }))
  c.same(text(T0 + 250000), c.cmd("GET", COUNTER))
end)

case("a client that keeps the lock draws a range of tokens again if its acquire is sent again", function(c)
  acquire(c, { owner = A .. ":01" })
  c.same({ 1, T0 + 250008, 0, 0, T0 + 250072 }, acquire(c, { owner = A .. ":01" }))
  c.same({ A .. ":01", "1" }, c.cmd("HGETALL", LOCK))
end)

case("the first token is 1 if the server's clock reads 0", function(c)
  c.clock(0)
  c.same({ 1, 1, 0, 0 }, acquire(c, { floor = 1 }))
end)

-- ---- acquire ----

case("a re-entry adds a hold, and never shortens the lock's TTL", function(c)
  acquire(c)
  c.same({ 1, 0, 0 }, acquire(c, { from = 1, lease = 100 }))
  c.same({ OWNER, "2" }, c.cmd("HGETALL", LOCK))
  c.same(LEASE, c.cmd("PTTL", LOCK))
  c.same({ 1, 0, 0 }, acquire(c, { from = 2, lease = LEASE + 1 }))
  c.same(LEASE + 1, c.cmd("PTTL", LOCK))
end)

case("an acquire that is sent twice takes one hold", function(c)
  acquire(c)
  c.same({ 1, T0 + 8, 0 }, acquire(c))
  c.same({ OWNER, "1" }, c.cmd("HGETALL", LOCK))
end)

case("a re-entry is refused if the hold has ended or another owner holds the lock", function(c)
  c.same({ -1 }, acquire(c, { from = 1 }))
  held(c, OTHER)
  c.same({ -2 }, acquire(c, { from = 1 }))
end)

case("a shared owner's process learns the current number of holds if it expected fewer", function(c)
  held(c, SHARED, 2)
  c.same({ 2, 2 }, acquire(c, { owner = SHARED, shared = true }))
  c.same({ 2, 2 }, acquire(c, { owner = SHARED, shared = true, from = 1 }))
  c.same({ 1, T0, 0 }, acquire(c, { owner = SHARED, shared = true, from = 2 }),
    "a lost counter is drawn from")
  c.same({ 1, T0, 0 }, acquire(c, { owner = SHARED, shared = true, from = 3 }),
    "else the token stays")
  c.same({ 1, 0, 0 }, acquire(c, { owner = SHARED, shared = true, from = 4, ttl = 0 }))
  c.same({ SHARED, "5" }, c.cmd("HGETALL", LOCK))
end)

case("a shared owner's process re-enters if it knows the current number of holds", function(c)
  held(c, SHARED, 1)
  c.same({ 1, 0, 0 }, acquire(c, { owner = SHARED, shared = true, from = 1, ttl = 0 }))
  c.same({ SHARED, "2" }, c.cmd("HGETALL", LOCK))
end)

case("an acquire for a shared owner leaves its client's other waiters in the queue", function(c)
  local first, mine = grants_of(c, A), member(A, 8, "l", SHARED)
  queued(c, 0, member(A, 7))
  queued(c, T0, mine)
  c.same({ 0, GRANT, 0 }, { unpack(acquire(c, { owner = SHARED, shared = true, member = mine }), 1,
    3) })
  c.same("1 grant l 7 ", first.received()[1]:sub(1, 12))
end)

case("a recheck by a shared owner's waiter that was granted a hold does not add another one", function(c)
  local me = member(A, 7, "l", SHARED)
  held(c, SHARED, 3)
  queued(c, 0, me)
  c.same({ 1, T0, 2 }, acquire(c, { owner = SHARED, shared = true, member = me }))
  c.same({ SHARED, "3" }, c.cmd("HGETALL", LOCK))
  c.same({}, queue(c))
  queued(c, 0, me)
  c.same({ 1, T0, -1 }, acquire(c, { owner = SHARED, shared = true, from = 3, member = me }))
  c.same({ SHARED, "3" }, c.cmd("HGETALL", LOCK))
end)

case("a recheck by a shared owner's waiter without a grant does not return the other processes' holds as its own", function(c)
  local me = member(A, 7, "l", SHARED)
  held(c, SHARED, 3)
  queued(c, 5, me)
  c.same({ 2, 3 }, acquire(c, { owner = SHARED, shared = true, member = me }))
  c.same({ me, "5" }, queue(c))
end)

case("an acquire refuses a hash without a TTL instead of treating it as a lock", function(c)
  held(c, OTHER, 1, false)
  c.same({ -3 }, acquire(c))
  c.same({ -3 }, acquire(c, { member = member(A, 1) }))
  c.same({}, queue(c))
end)

case("an acquire of a held lock returns the TTL, and does not join the queue unless it waits", function(c)
  held(c, OTHER, 1, 1234)
  c.same({ 0, 1234, 0, 0, "" }, acquire(c))
  c.same({}, queue(c))
end)

case("a waiter learns that a lock of a shared owner may be released without a hand-off", function(c)
  held(c, SHARED)
  c.same({ 0, LEASE, 0, 1, "" }, acquire(c))
  c.same({ 0, LEASE, 0, 1, text(T0) }, acquire(c, { member = member(A, 1) }))
  c.same({ member(A, 1), text(T0) }, queue(c), "it is no Redisson client: nothing is recorded")
end)

case("a mutex acquire neither takes nor re-enters a read/write lock of the same owner", function(c)
  c.cmd("HSET", LOCK, "mode", "read", OWNER, 1)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.same({ -6, "read_write" }, acquire(c))
  c.same({ -2 }, acquire(c, { from = 1 }))
  c.same({ "mode", "read", OWNER, "1" }, c.cmd("HGETALL", LOCK))
  c.cmd("DEL", LOCK)
  held(c, "mode")
  c.same({ 1, 0, 0 }, acquire(c, { owner = "mode", from = 1 }), "an owner may be called so")
end)

case("a waiter behind a Redisson holder records that in the queue, and removes the token counter's TTL", function(c)
  held(c, JAVA)
  c.cmd("SET", COUNTER, "8", "PX", 1000)
  c.same({ 0, LEASE, 0, 1, "" }, acquire(c, { floor = 1 }))
  c.same(1000, c.cmd("PTTL", COUNTER), "in a quorum Java draws nothing")
  c.same({ 0, LEASE, 0, 1, "" }, acquire(c))
  c.same({ "8", -1 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
  c.same({}, queue(c), "an acquire without a wait records nothing")
  c.same({ 0, LEASE, 0, 1, text(T0) }, acquire(c, { member = member(A, 1) }))
  c.same({ "1f 0 0 1 0", "-" .. text(T0_MS), member(A, 1), text(T0) }, queue(c))
end)

case("an acquire behind a Redisson holder does not change a token counter without a TTL or of another type", function(c)
  held(c, JAVA)
  c.cmd("SET", COUNTER, "8")
  acquire(c)
  c.same({ "8", -1 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
  c.cmd("DEL", COUNTER)
  acquire(c)
  c.same(0, c.cmd("EXISTS", COUNTER))
  c.cmd("HSET", COUNTER, "a", "b")
  c.cmd("PEXPIRE", COUNTER, 1000)
  c.same({ 0, LEASE, 0, 1, "" }, acquire(c))
  c.same(1000, c.cmd("PTTL", COUNTER))
end)

case("an acquire behind a Redisson holder keeps the token counter even in the last millisecond of its TTL", function(c)
  held(c, JAVA)
  c.cmd("SET", COUNTER, "8", "PX", 1000)
  c.pass(1000)
  acquire(c)
  c.same({ "8", -1 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
end)

-- before: turns, unused, heard, ms from now; a reservation lasts for 59 ms; after: the new record's
-- ms from now; nil: unchanged
local function noted(name, before, after)
  case("a waiter behind another library's holder " .. name, function(c)
    held(c, JAVA)
    record(c, before[1], before[2], before[3], 9, T0_MS + before[4])
    acquire(c, { member = member(A, 1) })
    local score = c.cmd("ZRANGE", QUEUE, 0, 0, "WITHSCORES")
    c.same(after and { "1f 0 0 1 0", "-" .. text(T0_MS + after) }
      or { ("1f %d %d %d 9"):format(before[1], before[2], before[3]),
        "-" .. text(T0_MS + before[4]) }, score)
  end)
end
noted("does not rewrite a queue record with the same contents", { 0, 0, 0, 0 })
noted("does not rewrite an earlier queue record with the same contents", { 0, 0, 0, -100 })
noted("rewrites a queue record with a future time", { 0, 0, 0, 1 }, 0)
noted("rewrites the record of a reservation that was used", { 0, 0, 1, 20 }, -39)
noted("rewrites the record of a reservation that had ended when its use was seen", { 0, 0, 1, -10 }, -69)
noted("rewrites a queue record with the present time if the clock was set back", { 0, 0, 1, 60 }, 0)
noted("rewrites a queue record after holds of holdfast clients", { 1, 0, 0, 0 }, 0)
noted("rewrites the record of a reservation that nobody used", { 0, 1, 0, 0 }, 0)
noted("rewrites the record of holds that followed an unused reservation", { 1, 0, 1, -10 }, 0)

-- before: turns, unused, heard, ms from now; after: turns, run, ms from now
local function run_of_ours(name, before, after, owner)
  case("an acquire of the free lock " .. name, function(c)
    record(c, before[1], before[2], before[3], 9, T0_MS + before[4])
    queued(c, T0, member(A, 1))
    queued(c, T0 + 1, member(B, 7))
    c.same(1, acquire(c, { member = member(A, 1), owner = owner })[1])
    local holders = before[3] == 1 and "-" or before[3]
    c.same({ ("1f %d %d %s %d"):format(after[1], before[2], holders, after[2]),
      "-" .. text(T0_MS + after[3]), member(B, 7), text(T0 + 1) }, queue(c))
  end)
end
run_of_ours("records for how long other libraries' clients held it", { 0, 0, 0, -30 }, { 1, 30, 0 })
run_of_ours("records at most two seconds of other libraries' holds", { 0, 0, 0, -2001 }, { 1, 2000, 0 })
run_of_ours("measures other libraries' holds from when the lock was reserved for them", { 0, 0, 1, -10 }, { 1, 69, 0 })
run_of_ours("records no holds of other libraries if the clock was set back", { 0, 0, 0, 300 }, { 1, 0, 0 })
run_of_ours("records no holds of other libraries if a holdfast client held the lock last", { 1, 0, 0, -30 }, { 1, 9, -30 })
run_of_ours("records no holds of other libraries if none of their clients acquired the lock", { 0, 1, 0, -30 }, { 0, 9, -30 })
run_of_ours("by a shared owner records foreign holds", { 0, 0, 0, -30 }, { 1, 30, 0 }, SHARED)

case("an acquire that finds the lock free counts the hold that it grants to the first waiter", function(c)
  local function all_locks() return c.run("acquire_all", FOUR, "", GRANT, LEASE, TTL, OWNER, 0) end
  local ours, theirs = { "1f 1 0 0 9", "1f 2 0 0 9", 30 }, { "1f 0 0 0 9", "1f 1 0 0 30", 0 }
  for _, row in ipairs { { acquire, ours }, { all_locks, ours }, { all_locks, theirs } } do
    local listener, before, after, ms = grants_of(c, B), row[2][1], row[2][2], row[2][3]
    queued(c, -T0_MS + 30, before)
    queued(c, T0, member(B, 7))
    c.same(0, row[1](c)[1])
    c.same({ grant_text("l", 7, text(T0), text(T0)) }, listener.received())
    c.same({ after, "-" .. text(T0_MS - ms), member(B, 7), "0" }, queue(c))
    c.cmd("DEL", LOCK, QUEUE, COUNTER)
    listener.close()
  end
end)

case("a waiter joins the end of the queue, and its rechecks keep its position and renew the queue's TTL", function(c)
  held(c, OTHER)
  local one, two, three = member(A, 1), member(A, 2), member(C, 3)
  c.same({ 0, LEASE, 0, 0, text(T0) }, acquire(c, { member = one }))
  c.same(120000, c.cmd("PTTL", QUEUE))
  c.pass(1000)
  c.same({ 0, LEASE - 1000, 1, 0, text(T0 + 1e6) }, acquire(c, { member = two }))
  c.same(119000, c.cmd("PTTL", QUEUE), "a newcomer behind others does not keep it")
  c.same({ 0, LEASE - 1000, 2, 0, text(T0 + 1e6 + 1) },
    acquire(c, { member = three, owner = C .. ":3" }))
  c.same({ 0, LEASE - 1000, 1, 0, text(T0 + 1e6) }, acquire(c, { member = two }))
  c.same(120000, c.cmd("PTTL", QUEUE))
end)

case("the only waiter behind a grant is the first one, and lets the queue live long", function(c)
  for _, program in ipairs { "acquire", "mutex_acquire" } do
    if program == "acquire" then held(c, OTHER) else mutex_held(c, OTHER) end
    local kind = program == "acquire" and "l" or "m"
    queued(c, 0, member(B, 1, kind))
    c.cmd("PEXPIRE", QUEUE, 2000)
    c.same({ 0, LEASE, 0, 0, text(T0) },
      acquire(c, { program = program, member = member(A, 1, kind) }))
    c.same({ 120000, 2 }, { c.cmd("PTTL", QUEUE), c.cmd("ZCARD", QUEUE) }, program)
    c.cmd("DEL", LOCK, QUEUE)
  end
end)

case("the first waiter learns that a value like a holdfast owner will not be handed over", function(c)
  mutex_held(c, A .. ":worker")
  c.same(1, acquire(c, { program = "mutex_acquire", member = member(B, 1, "m") })[4])
end)

case("the first waiter behind a Redisson holder lets a queue that has only a grant live long", function(c)
  held(c, JAVA)
  queued(c, 0, member(B, 1))
  c.cmd("PEXPIRE", QUEUE, 2000)
  c.same(0, acquire(c, { member = member(A, 1) })[3])
  c.same(120000, c.cmd("PTTL", QUEUE))
end)

-- us: the server's time; T0 is the last place
local function placed(name, us, expected)
  case("a new waiter's score in the queue is " .. name, function(c)
    for _, program in ipairs { "acquire", "mutex_acquire" } do
      for _, owner in ipairs { OTHER, JAVA } do -- in the fast path, and with a foreign holder
        c.cmd("DEL", LOCK, QUEUE)
        c.clock(us)
        if program == "acquire" then held(c, owner) else mutex_held(c, owner) end
        local kind = program == "acquire" and "l" or "m"
        queued(c, T0, member(B, 1, kind))
        local reply = acquire(c, { program = program, member = member(A, 1, kind) })
        c.same(text(expected), reply[5], program .. " behind " .. owner)
        c.same(text(expected), c.cmd("ZSCORE", QUEUE, member(A, 1, kind)))
      end
    end
  end)
end
placed("the server's clock", T0 + 7000042, T0 + 7000042)
placed("the server's clock in the next eight seconds", T0 + 9000042, T0 + 9000042)
placed("after the last one in the same microsecond", T0, T0 + 1)
placed("after the last one if the clock was set back", T0 - 3600e6, T0 + 1)
placed("the server's clock after the year 2112", 4600000000e6, 4600000000e6)
placed("the server's clock after the year 2184", 6800000001e6, (4500000000 + 6800000001 % 2250000000) * 1e6)

for _, score in ipairs { "inf", "1e300", "9007199254740992" } do
  case("an acquire removes a queue entry with an invalid score: " .. score, function(c)
    held(c, OTHER)
    c.cmd("ZADD", QUEUE, score, "nobody")
    local one, two = member(A, 1), member(A, 2)
    c.same({ 0, LEASE, 0, 0, text(T0) }, acquire(c, { member = one }))
    c.cmd("ZADD", QUEUE, score, "nobody")
    c.same({ 0, LEASE, 1, 0, text(T0 + 1) }, acquire(c, { member = two }))
    c.same({ one, two }, c.cmd("ZRANGE", QUEUE, 0, -1))
    c.cmd("ZADD", QUEUE, score, one)
    c.same({ 0, LEASE, 1, 0, text(T0 + 2) }, acquire(c, { member = one }), "a waiter that had such a place")
  end)
end

case("the number of waiters ahead includes unconfirmed grants, and not the record of other libraries", function(c)
  held(c, OTHER)
  record(c, 3, 0, 0, 0, T0_MS - 9)
  queued(c, 0, member(B, 1))
  queued(c, T0, member(B, 2))
  local before = queue(c)
  c.same({ 0, LEASE, 3, 0, text(T0 + 1) }, acquire(c, { member = member(A, 1) }))
  c.cmd("ZREM", QUEUE, member(A, 1))
  c.same(before, queue(c))
end)

-- The score of the first waiter after a holder that does not hand over, if the waiter was passed
-- over or not.
local PASSED = string.format("%.17g", -(T0 - 1) / 2 ^ 60)

local function first_behind_java(c, score, ttl_ms)
  held(c, JAVA)
  record(c, 0, 0, 0, 0, T0_MS)
  c.cmd("ZADD", QUEUE, score, member(A, 1))
  queued(c, T0, member(B, 2))
  c.cmd("PEXPIRE", QUEUE, ttl_ms)
  return function(name, number)
    return acquire(c, { owner = name .. ":" .. number, member = member(name, number) })
  end
end

case("a waiter behind another library's holder moves up if the first waiter is dead", function(c)
  local look = first_behind_java(c, T0 - 1, QUEUE_MS)
  c.same({ 0, LEASE, 0, 1, text(T0) }, look(B, 2))
  c.same(-(T0 - 1) / 2 ^ 60, tonumber(c.cmd("ZSCORE", QUEUE, member(A, 1))))
end)

case("the next waiter counts as first while the first one's recheck is overdue", function(c)
  local listener = grants_of(c, A)
  local look = first_behind_java(c, T0 - 1, QUEUE_MS)
  grants_of(c, B)
  c.pass(OVERDUE - 1)
  c.same({ 0, LEASE - OVERDUE + 1, 1, 1, text(T0), 1 }, look(B, 2))
  c.pass(1)
  c.same({ 0, LEASE - OVERDUE, 0, 1, text(T0) }, look(B, 2))
  c.same({ "1 recheck 1" }, listener.received())
  c.same({ 0, LEASE - OVERDUE, 0, 1, text(T0 - 1) }, look(A, 1))
  c.same({ 0, LEASE - OVERDUE, 1, 1, text(T0), OVERDUE }, look(B, 2))
end)

-- What a waiter does depends on the number of waiters ahead: from 100 on, it asks less often and
-- does not watch the first one.
for ahead, watches in pairs { [99] = true, [100] = false } do
  case(("the waiter behind %d others %s the first one for being overdue"):format(ahead,
    watches and "watches" or "does not watch"), function(c)
    local look = first_behind_java(c, T0 - 1, QUEUE_MS)
    for i = 2, ahead - 1 do queued(c, T0 + i, member(A, i)) end
    grants_of(c, A)
    local reply = look(C, 3)
    c.same({ ahead, watches and OVERDUE or nil }, { reply[3], reply[6] })
  end)
end

case("a new waiter's acquire asks the first waiter to recheck if none has moved past it yet", function(c)
  local listener = grants_of(c, B)
  local look = first_behind_java(c, T0 - 1, QUEUE_MS)
  c.same({ 0, LEASE, 1, 1, text(T0 + 1), OVERDUE }, look(C, 3))
  c.same({ "1 recheck 2" }, listener.received())
end)

case("a waiter moves past an overdue one of its own client, but not past one of a newer queue format", function(c)
  grants_of(c, B)
  local look = first_behind_java(c, T0 - 1, 1000)
  c.same({ 0, LEASE, 1, 1, text(T0 + 1), OVERDUE }, look(A, 3))
  c.same(PASSED, c.cmd("ZSCORE", QUEUE, member(A, 1)))
  c.cmd("ZADD", QUEUE, T0 - 1, "2l" .. C .. ":1:0")
  c.same({ 0, LEASE, 1, 1, text(T0) }, { unpack(look(B, 2), 1, 5) })
end)

case("moving past an overdue waiter keeps its client's other waiters in the queue, and renews the queue's TTL", function(c)
  grants_of(c, B)
  local look = first_behind_java(c, T0 - 1, 1000)
  queued(c, T0 + 5, member(A, 9))
  look(A, 3)
  c.same(PASSED, c.cmd("ZSCORE", QUEUE, member(A, 1)))
  c.same(text(T0 + 5), c.cmd("ZSCORE", QUEUE, member(A, 9)))
  c.cmd("ZADD", QUEUE, T0 - 1, "2l" .. C .. ":1:0")
  c.cmd("PEXPIRE", QUEUE, 1000)
  look(B, 2)
  c.same(QUEUE_MS, c.cmd("PTTL", QUEUE))
end)

case("an acquire behind a first waiter of a newer queue format is refused, and does not notify that waiter", function(c)
  local first = grants_of(c, C)
  record(c, 0, 0, 0, 0, T0_MS - 1000)
  c.cmd("ZADD", QUEUE, T0 - 1, "2l" .. C .. ":1:0")
  c.same({ -4 }, acquire(c, { member = member(A, 1) }))
  c.same({}, first.received())
end)

case("a waiter that later ones moved past still takes the free lock before them", function(c)
  grants_of(c, B)
  local look = first_behind_java(c, PASSED, QUEUE_MS)
  c.cmd("DEL", LOCK)
  c.same(1, look(A, 1)[1])
  c.same({ member(B, 2) }, { queue(c)[3] })
end)

case("a waiter that later ones moved past is removed when one of them gets the lock", function(c)
  grants_of(c, B)
  local look = first_behind_java(c, PASSED, QUEUE_MS)
  c.cmd("DEL", LOCK)
  c.same(1, look(B, 2)[1])
  c.same(1, #c.cmd("ZRANGE", QUEUE, 0, -1), "the record")
  c.cmd("DEL", QUEUE)
  first_behind_java(c, PASSED, QUEUE_MS)
  c.cmd("DEL", LOCK)
  held(c)
  c.same(1, release(c))
  c.same({ member(B, 2), "0" }, { unpack(queue(c), 3) })
end)

case("a lock that another library released is not granted to an overdue first waiter before that one rechecks", function(c)
  local listener = grants_of(c, A)
  local look = first_behind_java(c, T0 - 1, QUEUE_MS)
  c.cmd("DEL", LOCK)
  c.same({ 0, GRANT, 1, 1, text(T0), OVERDUE }, look(B, 2))
  c.same({ 0, GRANT, 0, 1, "" }, acquire(c, { owner = C .. ":3" }), "a newcomer")
  c.same({ "1 recheck 1", "1 recheck 1" }, listener.received())
  c.same(0, c.cmd("EXISTS", LOCK))
  c.same(1, look(A, 1)[1])
end)

case("an acquire grants a lock that another library released to the first live waiter", function(c)
  grants_of(c, B)
  first_behind_java(c, T0 - 1, QUEUE_MS)
  c.cmd("DEL", LOCK)
  c.same({ 0, GRANT, 0, 0, "" }, acquire(c, { owner = C .. ":3" }))
  c.same(1, c.cmd("HEXISTS", LOCK, B .. ":2"))
end)

case("an overdue first waiter gets one more chance to recheck before the next one takes the free lock", function(c)
  grants_of(c, A)
  local look = first_behind_java(c, T0 - 1, QUEUE_MS - OVERDUE)
  c.cmd("DEL", LOCK)
  c.same({ 0, GRANT, 0, 1, text(T0) }, look(B, 2))
  c.same(1, look(B, 2)[1])
end)

case("a waiter moves past invalid queue entries, and removes them once they exceed a hundred", function(c)
  local look = first_behind_java(c, T0 - 1, QUEUE_MS)
  for i = 1, 101 do c.cmd("ZADD", QUEUE, PASSED, "rubbish" .. i) end
  c.cmd("ZADD", QUEUE, T0 - 2, "rubbish")
  c.same({ 0, LEASE, 0, 1, text(T0) }, look(B, 2))
  c.same({ member(A, 1), "rubbish", member(B, 2) }, { queue(c)[3], queue(c)[5], queue(c)[7] })
end)

case("the second waiter requests a kept lock if the first one's recheck is overdue", function(c)
  local own = grants_of(c, C)
  grants_of(c, A)
  held(c, C .. ":01")
  queued(c, T0 - 1, member(A, 1))
  queued(c, T0, member(B, 2))
  c.cmd("PEXPIRE", QUEUE, QUEUE_MS - 2 * GRANT + 1)
  local function look() return acquire(c, { owner = B .. ":2", member = member(B, 2) }) end
  c.same({ 0, LEASE, 1, 0, text(T0), 1 }, look())
  c.same({}, own.received(), "the first one may still recheck")
  c.pass(1)
  c.same({ 0, LEASE - 1, 0, 0, text(T0) }, look())
  c.same({ "1 wish 01" }, own.received())
end)

case("a granted waiter that finds the lock free begins our run, too", function(c)
  record(c, 0, 0, 2, 0, T0_MS - 9)
  queued(c, 0, member(A, 1))
  c.same(1, acquire(c, { member = member(A, 1) })[1])
  c.same({ "1f 1 0 2 9", "-" .. text(T0_MS) }, queue(c))
end)

case("only the first waiter counts another library's holders, and at most nine of them", function(c)
  local function counted(holders, me)
    held(c, JAVA)
    record(c, 0, 0, 0, 0, T0_MS - 9)
    c.cmd("ZREM", QUEUE, "1f 0 0 0 0")
    queued(c, -(T0_MS - 9), ("1f 0 0 %d 0"):format(holders))
    queued(c, T0, member(A, 1))
    queued(c, T0 + 1, member(B, 2))
    acquire(c, { member = me })
    local first = c.cmd("ZRANGE", QUEUE, 0, 0, "WITHSCORES")
    c.cmd("FLUSHALL")
    return first
  end
  local since = "-" .. text(T0_MS - 9)
  c.same({ "1f 0 0 3 0", since }, counted(2, member(A, 1)))
  c.same({ "1f 0 0 2 0", since }, counted(2, member(B, 2)))
  c.same({ "1f 0 0 9 0", since }, counted(9, member(A, 1)))
end)

case("a new waiter behind another library's holder records that this library used its reservation", function(c)
  held(c, JAVA)
  record(c, 3, 0, 0, 0, T0_MS + 50)
  queued(c, T0, member(B, 2))
  c.cmd("PEXPIRE", QUEUE, QUEUE_MS)
  grants_of(c, B)
  c.same({ 0, LEASE, 1, 1, text(T0 + 1), OVERDUE }, acquire(c, { member = member(A, 1) }))
  c.same({ "1f 0 0 1 0", text(-T0_MS), member(B, 2), text(T0), member(A, 1), text(T0 + 1) }, queue(c))
end)

case("an acquire by the current holder succeeds even if others are waiting", function(c)
  held(c, OTHER)
  queued(c, T0, member(A, 1))
  c.same({ 1, T0, 0 }, acquire(c, { owner = OTHER, member = member(B, 2) }))
  c.same({ member(A, 1), text(T0) }, queue(c))
end)

case("an acquire that does not wait, and a re-entry, never join the queue", function(c)
  held(c, OTHER)
  queued(c, T0, member(B, 1))
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c))
  c.same({ -2 }, acquire(c, { from = 1, member = member(A, 2) }))
  c.same({ member(B, 1), text(T0) }, queue(c))
end)

case("an acquire of a lock without a TTL is refused even if others are waiting", function(c)
  held(c, OTHER, 1, false)
  queued(c, T0, member(A, 1))
  c.same({ -3 }, acquire(c, { member = member(A, 2) }))
  c.same({ member(A, 1), text(T0) }, queue(c))
end)

case("a new waiter's score is the server's time if the queue is empty or has only waiters that were put back at its head", function(c)
  held(c, OTHER)
  record(c, 0, 0, 0, 0, T0_MS - 9)
  c.same({ 0, LEASE, 0, 0, text(T0) }, acquire(c, { member = member(A, 1) }))
  c.same(120000, c.cmd("PTTL", QUEUE))
  c.cmd("DEL", QUEUE)
  queued(c, 5, member(B, 5))
  c.same({ 0, LEASE, 1, 0, text(T0) }, acquire(c, { member = member(A, 1) }))
  c.cmd("DEL", QUEUE)
  queued(c, 1e14, member(B, 5))
  c.same({ 0, LEASE, 1, 0, text(T0) }, acquire(c, { member = member(A, 1) }))
  c.cmd("DEL", QUEUE)
  queued(c, 1e14 + 1, member(B, 5))
  c.same({ 0, LEASE, 1, 0, text(T0) }, acquire(c, { member = member(A, 1) }))
  c.cmd("DEL", QUEUE)
  queued(c, 0, member(B, 5))
  c.same({ 0, LEASE, 0, 0, text(T0) }, acquire(c, { member = member(A, 1) }))
  c.same(120000, c.cmd("PTTL", QUEUE), "behind a grant")
end)

case("a waiter that missed its grant is put back at the head of the queue if another owner holds the lock", function(c)
  held(c, OTHER)
  queued(c, 0, member(A, 1))
  queued(c, T0, member(C, 1))
  c.same({ 0, LEASE, 0, 0, text(T0 / 1024) }, acquire(c, { member = member(A, 1) }))
  c.same({ member(A, 1), text(T0 / 1024), member(C, 1), text(T0) }, queue(c))
end)

case("a waiter that missed its grant acquires the lock if it is free", function(c)
  queued(c, 0, member(A, 1))
  c.same({ 1, T0, 0 }, acquire(c, { member = member(A, 1) }))
  c.same({}, queue(c))
end)

case("a grant missed by a dead client removes all of that client's waiters", function(c)
  queued(c, 0, member(C, 1))
  queued(c, T0, member(C, 2))
  queued(c, T0 + 1, member(A, 1))
  c.same({ 1, T0, 0 }, acquire(c, { member = member(A, 1) }))
  c.same({}, queue(c))
end)

case("a missed grant is repeated at once if an acquire for another owner shows that its client is alive", function(c)
  local listener = grants_of(c, A)
  queued(c, 0, member(A, 1))
  queued(c, T0, member(A, 2))
  c.same({ 0, GRANT, 0, 0, "" }, acquire(c, { owner = A .. ":9" }))
  c.same({ grant_text("l", 1, text(T0 / 1024), text(T0)) }, listener.received())
  c.same({ member(A, 1), "0", member(A, 2), text(T0) }, queue(c))
  c.same({ A .. ":1", "1" }, c.cmd("HGETALL", LOCK))
  c.same(GRANT, c.cmd("PTTL", LOCK))
end)

case("a missed grant removes all waiters of a client that is subscribed but sends no recheck",
  function(c)
  for _, recorded in ipairs { false, true } do
    c.cmd("DEL", LOCK, QUEUE, COUNTER)
    local listener = grants_of(c, C)
    if recorded then record(c, 0, 1, 0, 0, T0_MS - 1) end
    queued(c, 0, member(C, 1))
    queued(c, 5, member(C, 2))
    c.same({ 1, T0, 0 }, acquire(c))
    c.same({}, listener.received())
    c.same(0, c.cmd("EXISTS", QUEUE))
    listener.close()
  end
end)

case("a missed grant leaves other clients' waiters in the queue", function(c)
  local listener = grants_of(c, B)
  queued(c, 0, member(C, 1))
  queued(c, 5, member(B, 7))
  c.same({ 0, GRANT, 0, 0, "" }, acquire(c))
  c.same({ grant_text("l", 7, "5", text(T0)) }, listener.received())
end)

case("a grant missed by a dead client removes its waiters even while the lock is reserved for other libraries", function(c)
  record(c, 0, 1, 0, 0, T0_MS + 50)
  queued(c, 0, member(C, 1))
  c.same({ 0, 50, 0, 1, "" }, acquire(c))
  c.same({ "1f 0 1 0 0", "-" .. text(T0_MS + 50) }, queue(c))
end)

case("a missed grant removes at most a thousand of its client's waiters in one command", function(c)
  local listener = grants_of(c, C)
  queued(c, 0, member(C, 9999))
  dead(c, 1001)
  c.same({ 0, GRANT, 0, 0, "" }, acquire(c))
  c.same(1, #listener.received())
  c.same(1, c.cmd("ZCOUNT", QUEUE, 1, 5000))
end)

case("a lock that is released before its grant is confirmed is not granted to the same waiter again", function(c)
  local listener = grants_of(c, B)
  held(c, B .. ":7")
  queued(c, 0, member(B, 7))
  c.same(1, release(c, B .. ":7"))
  c.same({}, listener.received())
  c.same(0, c.cmd("EXISTS", LOCK, QUEUE))
end)

case("an acquire grants the free lock to a waiter with the lowest possible score", function(c)
  local listener = grants_of(c, B)
  queued(c, 1, member(B, 7))
  c.same({ 0, GRANT, 0, 0, "" }, acquire(c))
  c.same({ grant_text("l", 7, "1", text(T0)) }, listener.received())
end)

case("an acquire grants the free lock to the first live waiter, not to the caller", function(c)
  local listener = grants_of(c, B)
  queued(c, 3, member(C, 1))
  queued(c, 5, member(B, 7))
  c.same({ 0, GRANT, 0, 0, "" }, acquire(c))
  c.same({ grant_text("l", 7, "5", text(T0)) }, listener.received())
  c.same({ member(B, 7), "0" }, queue(c))
  c.same({ B .. ":7", "1" }, c.cmd("HGETALL", LOCK))
end)

case("a grant to a waiter with fencing off carries no token", function(c)
  local listener = grants_of(c, B)
  queued(c, 5, member(B, 7, "l", "team one", 0))
  acquire(c)
  c.same({ grant_text("l", 7, "5", "0") }, listener.received())
  c.same({ "team one", "1" }, c.cmd("HGETALL", LOCK))
end)

case("a grant carries no token if the counter's key has another type", function(c)
  local listener = grants_of(c, B)
  c.cmd("HSET", COUNTER, "no", "counter")
  queued(c, 5, member(B, 7))
  held(c)
  c.same(1, release(c))
  c.same({ grant_text("l", 7, "5", "0") }, listener.received())
end)

case("a first waiter that rechecks takes the free lock itself", function(c)
  queued(c, 5, member(A, 1))
  queued(c, 6, member(B, 7))
  grants_of(c, B)
  c.same({ 1, T0, 0 }, acquire(c, { member = member(A, 1) }))
  c.same({ member(B, 7), "6" }, queue(c))
end)

case("an acquire behind a waiter of a newer queue format is refused, and leaves that waiter in the queue", function(c)
  queued(c, 5, "2x" .. C .. ":1")
  c.same({ -4 }, acquire(c))
  c.same({ "2x" .. C .. ":1", "5" }, queue(c))
end)

case("an acquire removes invalid entries from the head of the queue", function(c)
  queued(c, 5, "nonsense")
  queued(c, 6, "1l")
  c.same({ 1, T0, 0 }, acquire(c))
  c.same({}, queue(c))
end)

case("an acquire removes a first waiter for another kind of lock, and asks it to recheck", function(c)
  local listener = grants_of(c, B)
  queued(c, 5, member(B, 7, "m"))
  c.same({ 1, T0, 0 }, acquire(c))
  c.same({ "1 recheck 7" }, listener.received())
  c.same({}, queue(c))
  queued(c, 5, member(B, 8, "g"))
  c.cmd("DEL", LOCK)
  c.same({ -6, "guard" }, acquire(c), "the next one runs")
  c.same({ grant_text("g", 8, "5", text(T0 + 8)) }, listener.received())
end)

case("one command removes at most a thousand dead waiters, and the next one removes the rest", function(c)
  dead(c, 1007)
  c.same({ 0, 1, 0, 0, "" }, acquire(c))
  c.same(1, c.cmd("ZCARD", QUEUE))
  c.same({ 1, T0, 0 }, acquire(c))
  c.same(0, c.cmd("ZCARD", QUEUE))
end)

-- ---- the free lock that is left to others ----

local function left_free(name, ms, heard, listens, reply)
  case("a free lock " .. name, function(c)
    record(c, 0, 1, heard, 0, T0_MS + ms)
    if listens then c.listen(CHANNEL) end
    c.same(reply, acquire(c))
  end)
end
left_free("is reserved for polling clients for a while", 100, 0, false, { 0, 100, 0, 1, "" })
left_free("is reserved for polling clients until the last millisecond of their reservation", 1, 0, false, { 0, 1, 0, 1, "" })
left_free("is reserved for polling clients for at most 250 ms", 250, 0, false, { 0, 250, 0, 1, "" })
left_free("is not reserved for polling clients if the clock was set back", 251, 0, false, { 1, T0, 0 })
left_free("is not reserved for polling clients at the end of their reservation", 0, 0, false, { 1, T0, 0 })
left_free("is not reserved for polling clients after their reservation", -1, 0, false, { 1, T0, 0 })
left_free("is reserved for subscribed clients for a while", 50, 1, true, { 0, 50, 0, 1, "" })
left_free("is not reserved for clients that have unsubscribed", 50, 1, false, { 1, T0, 0 })

case("the record of polling clients is deleted when their reservation ends if nobody waits", function(c)
  record(c, 0, 1, 0, 0, T0_MS - 1)
  c.same({ 1, T0, 0 }, acquire(c))
  c.same(0, c.cmd("EXISTS", QUEUE))
end)

case("an acquire removes a queue entry with a negative score that is not a valid record", function(c)
  queued(c, -T0_MS - 100, "1f 1 2 3")
  c.same({ 1, T0, 0 }, acquire(c))
  c.same({}, queue(c))
end)

-- ---- mutexes ----

case("a mutex is stored as a string with a TTL", function(c)
  c.same({ 1, T0, 0 }, acquire(c, { program = "mutex_acquire" }))
  c.same({ OWNER, LEASE }, { c.cmd("GET", LOCK), c.cmd("PTTL", LOCK) })
  c.same({ 0, LEASE, 0, 0, "" }, acquire(c, { program = "mutex_acquire", owner = OTHER }))
  c.same(-2, release(c, OTHER, 0, "", LEASE, "mutex_release"))
  c.same(1, release(c, OWNER, 0, "", LEASE, "mutex_release"))
  c.same(-1, release(c, OWNER, 0, "", LEASE, "mutex_release"))
  c.same(0, c.cmd("EXISTS", LOCK, QUEUE))
end)

case("an acquire of a mutex that is sent twice never shortens its TTL", function(c)
  c.same({ 1, T0, 0 }, acquire(c, { program = "mutex_acquire" }))
  c.same({ 1, T0 + 8, 0 }, acquire(c, { program = "mutex_acquire", lease = 10 }))
  c.same(LEASE, c.cmd("PTTL", LOCK))
  c.same({ 1, T0 + 16, 0 }, acquire(c, { program = "mutex_acquire", lease = 2 * LEASE }))
  c.same(2 * LEASE, c.cmd("PTTL", LOCK))
end)

case("a mutex without a TTL counts as held by another library", function(c)
  mutex_held(c, "them", false)
  c.same({ 0, -1, 0, 1, "" }, acquire(c, { program = "mutex_acquire" }))
  c.same({}, queue(c))
  c.same({ 0, -1, 0, 1, text(T0) }, acquire(c,
    { program = "mutex_acquire", member = member(A, 1, "m") }))
  c.same({ "1f 0 0 1 0", "-" .. text(T0_MS), member(A, 1, "m"), text(T0) }, queue(c))
end)

case("a shared owner's mutex counts as one hold", function(c)
  mutex_held(c, SHARED)
  c.same({ 2, 1 }, acquire(c, { program = "mutex_acquire", owner = SHARED, shared = true }))
end)

case("a free mutex is not reserved for subscribed clients of other libraries", function(c)
  record(c, 0, 1, 1, 0, T0_MS + 50)
  c.listen(CHANNEL)
  c.same({ 1, T0, 0 }, acquire(c, { program = "mutex_acquire" }))
end)

-- before: turns, unused, run, ms since its time; after: what the release writes, and whether it
-- grants
local function poller(name, before, after, granted, owner)
  case("when a mutex is released, " .. name, function(c)
    local listener = grants_of(c, B)
    mutex_held(c, owner)
    if before then record(c, before[1], before[2], 0, before[3], T0_MS - before[4]) end
    queued(c, T0, member(B, 7, "m"))
    c.same(1, release(c, owner, 0, "", LEASE, "mutex_release"))
    c.same({ granted and grant_text("m", 7, text(T0), text(T0)) or "1 turn 7 20" }, listener.received())
    c.same({ after[1], "-" .. text(T0_MS + after[2]), member(B, 7, "m"), granted and "0"
      or text(T0) }, queue(c))
    c.same(granted and B .. ":7", c.cmd("GET", LOCK))
  end)
end
poller("the first hand-over creates a record in the queue", nil, { "1f 0 1 0 0", 0 }, true)
poller("the mutex is reserved for polling clients after a second", { 0, 1, 0, 1000 },
  { "1f 0 2 0 0", 250 }, false)
poller("the mutex is not reserved for polling clients before a second", { 0, 1, 0, 999 }, { "1f 0 1 0 0", -999 }, true)
poller("the mutex is reserved for polling clients after four seconds if they did not use the last reservation", { 0, 3, 0, 4000 }, { "1f 0 4 0 0", 250 }, false)
poller("the mutex is not reserved again before four seconds if they did not use the last reservation", { 0, 3, 0, 3999 }, { "1f 0 3 0 0", -3999 }, true)
poller("the mutex is reserved for polling clients after sixty-four seconds at the latest", { 0, 9, 0, 64000 }, { "1f 0 10 0 0", 250 }, false)
poller("the mutex is not reserved before sixty-four seconds if polling clients ignored nine reservations", { 0, 9, 0, 63999 }, { "1f 0 9 0 0", -63999 }, true)
poller("the mutex is not reserved for polling clients after their hold was released by force", { 0, 0, 0, 30 }, { "1f 1 0 0 0", -30 }, true)
poller("the holds of holdfast clients are counted in the queue's record", { 4, 0, 10, 20 }, { "1f 5 0 0 10", -20 }, true)
poller("it is reserved for polling clients after six holds by holdfast that lasted as long as theirs", { 6, 0, 10, 10 }, { "1f 0 1 0 0", 250 }, false)
poller("it is not reserved for polling clients after only five holds by holdfast", { 5, 0, 10, 20 }, { "1f 6 0 0 10", -20 }, true)
poller("it is not reserved for polling clients before holdfast's holds have lasted as long as theirs", { 6, 0, 10, 9 }, { "1f 7 0 0 10", -9 }, true)
poller("it is reserved for polling clients at once if the clock was set back", { 6, 0, 10, -3600000 }, { "1f 0 1 0 0", 250 }, false)
poller("it is reserved for polling clients if the clock was set back even if they ignored the last reservation", { 0, 1, 0, -251 }, { "1f 0 2 0 0", 250 }, false)
poller("it is not reserved for polling clients during another reservation", { 0, 1, 0, -250 }, { "1f 0 1 0 0", 250 }, true)
poller("a shared owner's hold is not counted as one of another library", { 0, 0, 0, 30 }, { "1f 0 1 0 0", 0 }, true,
  SHARED)
poller("a shared owner's later holds are not counted as those of another library", { 1, 0, 5, 30 }, { "1f 2 0 0 5", -30 }, true, SHARED)

case("a shared owner's acquire grants the free lock to the first waiter, not to itself", function(c)
  local listener = grants_of(c, B)
  queued(c, T0, member(B, 7))
  c.same(0, acquire(c, { owner = SHARED, shared = true, member = member(C, 1, "l", SHARED) })[1])
  c.same({ grant_text("l", 7, text(T0), text(T0)) }, listener.received())
end)

-- seconds: how long the queue has not been empty
local function old(name, seconds, granted, place)
  case("at a release after the queue has existed for " .. name, function(c)
    local listener = grants_of(c, B)
    place = place or T0 - seconds * 1e6
    held(c)
    queued(c, place, member(B, 7))
    c.same(1, release(c))
    c.same({ granted and grant_text("l", 7, text(place), text(T0)) or "1 turn 7 20" }, listener.received())
    c.same(granted and { member(B, 7), "0" } or { "1f 0 5 0 0", "-" .. text(T0_MS + 250),
      member(B, 7), text(place) }, queue(c))
    c.same(granted and { B .. ":7", "1" } or {}, c.cmd("HGETALL", LOCK))
  end)
end
old("eight seconds, the next waiter gets the lock", 8, true)
old("more than eight seconds, the lock is reserved for polling clients", 8.000001, false)
old("more than eight seconds, a waiter put back at the head gets the lock", nil, true, 1e14)

local LASTING = "1f 0 4 0 0"

-- T0 begins a new period of eight seconds of the server's clock. us: the last place
local function lasts(name, us, writes, more)
  case("a long-lived queue " .. name, function(c)
    more = more or {}
    if more.mutex then mutex_held(c, OTHER) else held(c, more.holder or OTHER) end
    if more.print then c.cmd("HSET", LOCK, "print", more.print) end
    if more.record then record(c, 3, 0, 0, 0, T0_MS - 9) end
    queued(c, us, member(B, 1, more.kind))
    local me = member(A, 1, more.kind)
    local reply = acquire(c, { member = me, program = more.program, print = more.print })
    c.same({ 0, LEASE, text(math.max(us + 1, T0)) }, { reply[1], reply[2], reply[5] })
    c.same(writes and text(-T0_MS) or nil, c.cmd("ZSCORE", QUEUE, LASTING) or nil)
    c.cmd("ZREM", QUEUE, LASTING)
    c.clock(T0 + 8e6)
    acquire(c, { member = me, program = more.program, print = more.print })
    c.same(nil, c.cmd("ZSCORE", QUEUE, LASTING) or nil, "it is asked for again")
  end)
end
lasts("is recorded by the first waiter of each new period of eight seconds", T0 - 1, true)
lasts("is recorded by the first waiter that arrives after an hour", T0 - 3600e6, true)
lasts("is not recorded twice in the same period of eight seconds", T0, false)
lasts("is not recorded behind a waiter that was put back at the head", 1e14, false)
lasts("is not recorded if the queue already has a record", T0 - 1, false, { record = true })
lasts("is not recorded behind another library's holder", T0 - 1, false, { holder = JAVA })
lasts("of a mutex is not recorded", T0 - 1, false, { mutex = true, kind = "m", program = "mutex_acquire" })
lasts("of an idempotent run is not recorded", T0 - 1, false, { print = "P", kind = "g", program = "begin" })

case("a release reserves the lock for polling clients once the queue has not been empty for 8 s", function(c)
  local listener = grants_of(c, B)
  held(c)
  queued(c, T0 - 1, member(A, 1))
  acquire(c, { owner = B .. ":7", member = member(B, 7) })
  c.cmd("ZREM", QUEUE, member(A, 1))
  c.pass(7999)
  c.same(1, release(c))
  c.same({ grant_text("l", 7, text(T0), text(T0 + 7999e3)) }, listener.received())
  c.same({ LASTING, text(-T0_MS), member(B, 7), "0" }, queue(c))
  queued(c, T0 + 7999e3, member(B, 8))
  c.pass(1)
  c.same(1, release(c, B .. ":7"))
  c.same({ "1 turn 8 20" }, listener.received())
  c.same({ "1f 0 5 0 0", text(-(T0_MS + 8250)), member(B, 8), text(T0 + 7999e3) }, queue(c))
end)

case("a grant to a waiter that was put back at the head contains its score with all digits", function(c)
  local place = "1660156250000.5"
  for _, program in ipairs { "release", "mutex_release" } do
    local kind = program == "release" and "l" or "m"
    local listener = grants_of(c, B)
    if kind == "l" then held(c) else mutex_held(c) end
    c.cmd("ZADD", QUEUE, place, member(B, 7, kind))
    c.same(1, release(c, OWNER, 0, "", LEASE, program))
    c.same({ grant_text(kind, 7, place, text(T0)) }, listener.received())
    c.cmd("DEL", LOCK, QUEUE, COUNTER)
  end
end)

case("a grant to a waiter whose tokens never expire removes the token counter's TTL", function(c)
  for _, program in ipairs { "release", "mutex_release" } do
    local kind = program == "release" and "l" or "m"
    grants_of(c, B)
    if kind == "l" then held(c) else mutex_held(c) end
    queued(c, T0, member(B, 7, kind, nil, ENDLESS))
    c.same(1, release(c, OWNER, 0, "", LEASE, program))
    c.same({ text(T0), -1 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
    c.cmd("DEL", LOCK, QUEUE, COUNTER)
  end
end)

-- before: turns, unused, run, ms since its time; the next waiter has waited for 0 or 30 s
local function behind_record(name, before, granted)
  for _, seconds in ipairs { 0, 30 } do
    local place = T0 - seconds * 1e6
    case(("a released lock %s, if its next waiter has waited for %d s"):format(name, seconds), function(c)
      local listener = grants_of(c, B)
      held(c)
      record(c, before[1], before[2], 0, before[3], T0_MS - before[4])
      queued(c, place, member(B, 7))
      c.same(1, release(c))
      c.same({ granted and grant_text("l", 7, text(place), text(T0)) or "1 turn 7 20" }, listener.received())
      c.same(granted and { B .. ":7", "1" } or {}, c.cmd("HGETALL", LOCK))
    end)
  end
end
behind_record("is reserved for polling clients sixteen seconds after the last unused reservation", { 0, 5, 0, 16000 }, false)
behind_record("is handed over within sixteen seconds of the last unused reservation", { 0, 5, 0, 15999 }, true)
behind_record("is handed over while it is reserved for polling clients", { 0, 1, 0, -250 }, true)
behind_record("is reserved for polling clients if the clock was set back", { 0, 1, 0, -251 }, false)
behind_record("is reserved for polling clients that were seen, after six holds by holdfast", { 6, 0, 10, 10 }, false)

case("a release removes its own unconfirmed grant from a queue with a record of other libraries", function(c)
  local listener = grants_of(c, B)
  held(c)
  record(c, 0, 5, 0, 0, T0_MS)
  queued(c, 0, member(A, 1))
  queued(c, T0, member(B, 7))
  c.same(1, release(c))
  c.same({ grant_text("l", 7, text(T0), text(T0)) }, listener.received())
  c.same({ "1f 0 5 0 0", "-" .. text(T0_MS), member(B, 7), "0" }, queue(c))
end)

case("a released idempotent run's key is never reserved for other libraries", function(c)
  local listener = grants_of(c, B)
  c.cmd("HSET", LOCK, OWNER, 1)
  c.cmd("PEXPIRE", LOCK, LEASE)
  queued(c, T0 - 1e7, member(B, 7, "g"))
  c.same(1, release(c))
  c.same({ grant_text("g", 7, text(T0 - 1e7), text(T0)) }, listener.received())
end)

-- before: turns, unused, run, ms since its time, 1: the reservation was not used; after: what the
-- release, or the leave after an expired hold, writes, or for how many ms it leaves the lock to
-- those clients
local function window_after(name, before, after)
  local function add(when, expires)
    case(("when a lock that Redisson waits for %s, %s"):format(when, name), function(c)
      local listener = grants_of(c, B)
      c.listen(CHANNEL)
      if not expires then held(c) end
      record(c, before[1], before[2], before[5] or 0, before[3], T0_MS - before[4])
      queued(c, T0, member(B, 7))
      c.same(expires and 0 or 1, (expires and leave or release)(c))
      local ms = tonumber(after)
      c.same({ ms and "1 turn 7 " .. ms or grant_text("l", 7, text(T0), text(T0)) }, listener.received())
      c.same({ ms and ("1f 0 %d - %d"):format(before[2], ms - 50) or after,
        "-" .. text(T0_MS + (ms or -before[4])), member(B, 7), ms and text(T0) or "0" }, queue(c))
    end)
  end
  add("is released")
  if before[1] > 0 and before[4] > 0 then add("has expired before its owner leaves", true) end
end
case("a release reserves the lock for a subscribed Redisson client before holdfast's first waiter", function(c)
  local ours, theirs = grants_of(c, B), c.listen(CHANNEL)
  held(c)
  queued(c, T0, member(B, 7))
  c.same(1, release(c))
  c.same({ "1 turn 7 50" }, ours.received())
  c.same(1, #theirs.received())
  c.same(0, c.cmd("EXISTS", LOCK))
end)

-- The number of an owner that keeps the lock begins with 0; such an owner draws a range of tokens.
case("a grant lasts for the grant lease, and contains a range of tokens for a client that keeps locks", function(c)
  for _, number in ipairs { "7", "07" } do
    local listener = grants_of(c, B)
    held(c)
    c.cmd("ZADD", QUEUE, T0, ("1l%s:%s:%d"):format(B, number, TTL))
    c.same(1, release(c))
    c.same(GRANT, c.cmd("PTTL", LOCK))
    local token = listener.received()[1]:match("^1 grant l %d+ %d+ ([%d%-]+) ")
    c.same(number == "07", token:find("-", 1, true) ~= nil)
    c.cmd("DEL", LOCK, QUEUE, COUNTER)
    listener.close()
  end
end)

window_after("a holdfast client gets it if holdfast's holds then last as long as Redisson's", { 1, 0, 20, 10 }, "1f 2 0 0 20")
window_after("it is reserved for Redisson if another hold by holdfast would exceed Redisson's time", { 1, 0, 20, 11 }, 50)
window_after("it is reserved for Redisson after three holds by holdfast", { 3, 0, 2000, 10 }, 50)
window_after("holdfast gets a fifth hold if five holders of Redisson's were seen", { 4, 0, 2000, 10, 5 }, "1f 5 0 5 2000")
window_after("it is reserved for Redisson after as many holds by holdfast as Redisson's that were seen", { 5, 0, 2000, 10, 5 }, 50)
window_after("holdfast gets a fifth hold after an unused reservation if its holds then last as long", { 4, 0, 20, 16, 1 }, "1f 5 0 - 20")
window_after("it is reserved for Redisson if a fifth hold by holdfast would exceed an unused reservation", { 4, 0, 20, 17, 1 }, 50)
window_after("it is reserved for twice as long as Redisson needed the last time", { 2, 0, 30, 31 }, 60)
window_after("it is reserved for twice as long if the last reservation was not used", { 2, 0, 60, 61, 1 }, 120)
window_after("it is reserved for at most 200 ms", { 2, 0, 199, 200, 1 }, 200)
window_after("it is reserved for 50 ms if Redisson did not even come within 200 ms", { 2, 0, 200, 201, 1 }, 50)
window_after("it is reserved for Redisson if Redisson has not held it before", { 1, 0, 0, 1 }, 50)
window_after("it is reserved for Redisson if the end of Redisson's last hold is unknown", { 0, 0, 20, 0 }, 50)
window_after("it is reserved for Redisson even if Redisson ignored the last reservation", { 1, 1, 20, 0 }, 50)
window_after("it is reserved for Redisson if the clock was set back", { 1, 0, 20, -1 }, 50)
window_after("it is reserved for Redisson if the clock was set back by an hour", { 1, 0, 20, -3600000 }, 50)

case("a release deletes the record of polling clients if only dead waiters are queued", function(c)
  mutex_held(c)
  record(c, 0, 1, 0, 0, T0_MS - 1000)
  queued(c, T0, member(C, 1, "m"))
  c.same(1, release(c, OWNER, 0, "", LEASE, "mutex_release"))
  c.same({}, queue(c), "no waiter lives, and no record is kept")
end)

case("our run continues if only Redisson waits, and its record has a TTL", function(c)
  for _, listens in ipairs { true, false } do
    local java = c.listen(CHANNEL)
    if not listens then java.close() end
    held(c)
    record(c, 1, 0, 0, 30, T0_MS - 10)
    c.same(1, release(c))
    c.same(listens and { "1f 2 0 0 30", "-" .. text(T0_MS - 10) } or {}, queue(c))
    if listens then
      c.same(200, c.cmd("PTTL", QUEUE))
      c.same(1, acquire(c)[1])
      c.same("1f 2 0 0 30", queue(c)[1])
      c.pass(30)
      c.same(1, release(c))
      c.same("1f 0 0 - 10", queue(c)[1])
      c.same({ "0", "0" }, java.received())
    end
    c.cmd("FLUSHALL")
    c.clock(T0)
    java.close()
  end
end)

case("a release updates the record of polling clients only if there is one", function(c)
  grants_of(c, B)
  held(c)
  queued(c, T0, member(B, 7))
  release(c)
  c.same({ member(B, 7), "0" }, queue(c))
  c.cmd("DEL", LOCK, QUEUE)
  held(c)
  record(c, 5, 0, 0, 10, T0_MS - 20)
  queued(c, T0, member(B, 7))
  release(c)
  c.same({ "1f 6 0 0 10", "-" .. text(T0_MS - 20), member(B, 7), "0" }, queue(c))
end)

-- ---- release ----

case("a release does not free another owner's lock", function(c)
  c.same(-1, release(c))
  held(c, OTHER)
  c.same(-2, release(c))
  c.same({ OTHER, "1" }, c.cmd("HGETALL", LOCK))
end)

for _, program in ipairs { "release", "sharded_release", "mutex_release" } do
  local function hold(c, owner)
    if program == "mutex_release" then mutex_held(c, owner) else held(c, owner) end
  end

  case(program .. " frees the lock of its owner, and no other owner's", function(c)
    c.same(-1, release(c, OWNER, 0, "", LEASE, program))
    hold(c, OTHER)
    c.same(-2, release(c, OWNER, 0, "", LEASE, program))
    c.same(1, c.cmd("EXISTS", LOCK))
    c.same(1, release(c, OTHER, 0, "", LEASE, program))
    c.same(-1, release(c, OTHER, 0, "", LEASE, program), "sent twice")
    c.same({}, c.cmd("KEYS", "*"))
  end)

  case(program .. " for a shared owner releases only the process's own holds", function(c)
    hold(c, SHARED)
    c.same(2, release(c, SHARED, 0, 0, LEASE, program))
    c.same(1, c.cmd("EXISTS", LOCK))
    c.same(1, release(c, SHARED, 5, 1, LEASE, program))
    c.same({}, c.cmd("KEYS", "*"))
  end)

  case(program .. " to one hold keeps the lock held", function(c)
    hold(c, OWNER)
    c.same(2, release(c, OWNER, 1, "", LEASE, program))
    c.same(1, c.cmd("EXISTS", LOCK))
  end)

  case(program .. " frees the lock even if the queue's key has another type", function(c)
    hold(c, OWNER)
    c.cmd("SET", QUEUE, "text")
    c.listen(CHANNEL)
    c.same(1, release(c, OWNER, 0, "", LEASE, program))
    c.same({ 0, "text" }, { c.cmd("EXISTS", LOCK), c.cmd("GET", QUEUE) })
  end)

  case(program .. " grants the lock to a waiter that is subscribed", function(c)
    local listener = grants_of(c, B)
    hold(c, OWNER)
    queued(c, T0, member(B, 7, program == "mutex_release" and "m" or "l"))
    c.same(1, release(c, OWNER, 0, "", LEASE, program))
    c.same(1, #listener.received())
    c.same(1, c.cmd("EXISTS", LOCK))
  end)
end

case("a partial release renews the remaining holds, and never shortens the TTL", function(c)
  held(c, OWNER, 3, 1000)
  c.same(2, release(c, OWNER, 2))
  c.same({ OWNER, "2" }, c.cmd("HGETALL", LOCK))
  c.same(LEASE, c.cmd("PTTL", LOCK))
  c.same(2, release(c, OWNER, 1, "", 10))
  c.same(LEASE, c.cmd("PTTL", LOCK))
  c.same(2, release(c, OWNER, 1, "", LEASE + 1), "also when sent twice")
  c.same(LEASE + 1, c.cmd("PTTL", LOCK))
  c.same({ OWNER, "1" }, c.cmd("HGETALL", LOCK))
end)

case("a release for a shared owner leaves the other processes' holds", function(c)
  held(c, SHARED, 3)
  c.same(2, release(c, SHARED, 0, 1))
  c.same({ SHARED, "2" }, c.cmd("HGETALL", LOCK))
  c.same(1, release(c, SHARED, 5, 2))
  c.same(0, c.cmd("EXISTS", LOCK))
end)

case("a release that expects one hold does not free a lock with two", function(c)
  held(c, OWNER, 2)
  c.same(2, release(c, OWNER, 0, "once"))
  c.same({ OWNER, "2" }, c.cmd("HGETALL", LOCK))
  held(c, OWNER, 1)
  c.same(-2, release(c, OTHER, 0, "once"))
  c.same(1, release(c, OWNER, 0, "once"))
  c.same(-1, release(c, OWNER, 0, "once"), "sent twice")
  mutex_held(c)
  c.same(1, release(c, OWNER, 0, "once", LEASE, "mutex_release"))
end)

case("a release is published to Redisson's subscribers even if no holdfast client waits", function(c)
  held(c)
  local java = c.listen(CHANNEL)
  c.cmd("SET", COUNTER, "8", "PX", 1000)
  c.same(1, release(c))
  c.same({ "0" }, java.received())
  c.same({ "1f 0 0 - 0", "-" .. text(T0_MS + 50) }, queue(c))
  c.same(50, c.cmd("PTTL", QUEUE))
  c.same(-1, c.cmd("PTTL", COUNTER))
end)

-- A holdfast waiter whose host was cut off may still be subscribed to its patterns; monitoring
-- tools may have others.
case("a release does not reserve the lock for Redisson if only pattern subscriptions match its channel", function(c)
  for _, pattern in ipairs { "redisson_lock__channel:*", "*" } do
    local watcher = c.watch(pattern)
    c.cmd("SET", COUNTER, text(T0), "PX", TTL)
    held(c)
    c.same(1, release(c))
    c.same({ 0, TTL }, { c.cmd("EXISTS", QUEUE), c.cmd("PTTL", COUNTER) })
    c.same({ 1, T0 + 8, 0 }, acquire(c))
    watcher.close()
    c.cmd("FLUSHALL")
  end
end)

case("a release without waiters or subscribers deletes all keys of the lock", function(c)
  held(c)
  c.same(1, release(c))
  c.same({}, c.cmd("KEYS", "*"))
end)

case("a release frees the lock even if the queue's key has another type", function(c)
  held(c)
  c.cmd("SET", QUEUE, "text")
  c.listen(CHANNEL)
  c.same(1, release(c))
  c.same({ 0, "text" }, { c.cmd("EXISTS", LOCK), c.cmd("GET", QUEUE) })
end)

case("a holdfast client's release reserves the lock for Redisson before holdfast's next waiter", function(c)
  local listener, java = grants_of(c, B), c.listen(CHANNEL)
  held(c)
  c.cmd("SET", COUNTER, "8", "PX", 1000)
  queued(c, T0, member(B, 7))
  c.same(1, release(c))
  c.same({ "1 turn 7 50" }, listener.received())
  c.same({ "0" }, java.received())
  c.same({ "1f 0 0 - 0", "-" .. text(T0_MS + 50), member(B, 7), text(T0) }, queue(c))
  c.same(-1, c.cmd("PTTL", QUEUE), "the waiters keep it")
  c.same(-1, c.cmd("PTTL", COUNTER))
  c.same(0, c.cmd("EXISTS", LOCK))
end)

case("a release by the only holdfast client reserves the lock for Redisson again after its hold", function(c)
  c.listen(CHANNEL)
  held(c)
  record(c, 1, 0, 0, 9, T0_MS - 5)
  c.same(1, release(c))
  c.same({ "1f 0 0 - 0", "-" .. text(T0_MS + 50) }, queue(c))
  c.same(50, c.cmd("PTTL", QUEUE))
end)

case("a reservation for Redisson preserves what the queue records about polling clients", function(c)
  c.listen(CHANNEL)
  held(c)
  record(c, 4, 3, 0, 9, T0_MS - 5)
  queued(c, T0, member(C, 7))
  c.same(1, release(c))
  c.same({ "1f 0 3 - 0", "-" .. text(T0_MS + 50) }, queue(c))
  c.same(50, c.cmd("PTTL", QUEUE))
end)

case("a release before the grant is confirmed removes that grant from the queue", function(c)
  local listener = grants_of(c, B)
  held(c)
  queued(c, 0, member(A, 1))
  queued(c, T0, member(B, 7))
  c.same(1, release(c))
  c.same(1, #listener.received())
  c.same({ member(B, 7), "0" }, queue(c))
end)

case("a release frees the lock without removing a waiter of a newer queue format", function(c)
  local java = c.listen(CHANNEL)
  java.close()
  held(c)
  queued(c, 5, "2x" .. C .. ":1")
  c.same(1, release(c))
  c.same({ "2x" .. C .. ":1", "5" }, queue(c))
  c.same(0, c.cmd("EXISTS", LOCK))
end)

case("a release reports that it left dead waiters, and the next command removes them", function(c)
  held(c)
  dead(c, 1006)
  c.same(3, release(c))
  c.same(1, c.cmd("ZCARD", QUEUE))
  c.same(0, leave(c))
  c.same(0, c.cmd("ZCARD", QUEUE))
end)

case("a release that reserves the lock for Redisson does not report the dead waiters it left", function(c)
  c.listen(CHANNEL)
  held(c)
  dead(c, 1006)
  c.cmd("PEXPIRE", QUEUE, 90000)
  c.same(1, release(c))
  c.same("1f 0 0 - 0", c.cmd("ZRANGE", QUEUE, 0, 0)[1])
  c.same(90000, c.cmd("PTTL", QUEUE), "the dead may be followed by the living")
end)

case("a lock's reservation for Redisson has a TTL if the release removed the last of many dead waiters", function(c)
  c.listen(CHANNEL)
  held(c)
  dead(c, 1005)
  c.same(1, release(c))
  c.same({ "1f 0 0 - 0", "-" .. text(T0_MS + 50) }, queue(c))
  c.same(50, c.cmd("PTTL", QUEUE))
end)

-- ---- leave ----

case("a waiter that gives up leaves the queue, and deletes it if empty", function(c)
  held(c, OTHER)
  queued(c, T0, member(A, 1))
  c.same(0, leave(c, member(A, 1)))
  c.same(0, c.cmd("EXISTS", QUEUE))
  c.same({ OTHER, "1" }, c.cmd("HGETALL", LOCK))
end)

case("a waiter that gives up deletes a queue that then has only a record of other libraries", function(c)
  held(c, OTHER)
  record(c, 0, 0, 0, 0, T0_MS)
  queued(c, T0, member(A, 1))
  c.same(0, leave(c, member(A, 1)))
  c.same(0, c.cmd("EXISTS", QUEUE))
end)

case("undoing an acquire frees the lock even if the queue's key has another type", function(c)
  held(c)
  c.cmd("SET", QUEUE, "text")
  c.same(1, leave(c, member(A, 1)))
  c.same("text", c.cmd("GET", QUEUE))
  c.same(0, leave(c, member(A, 1)))
end)

case("a waiter that gives up with an unconfirmed grant passes the lock to the next waiter", function(c)
  local listener = grants_of(c, B)
  held(c)
  queued(c, 0, member(A, 1))
  queued(c, T0, member(B, 7))
  c.same(1, leave(c, member(A, 1)))
  c.same({ grant_text("l", 7, text(T0), text(T0)) }, listener.received())
  c.same({ B .. ":7", "1" }, c.cmd("HGETALL", LOCK))
end)

case("undoing an acquire passes the lock to the next waiter even if the queue has a record of other libraries", function(c)
  local listener = grants_of(c, B)
  held(c)
  record(c, 1, 0, 0, 10, T0_MS - 5)
  queued(c, T0, member(B, 7))
  c.same(1, leave(c))
  c.same({ grant_text("l", 7, text(T0), text(T0)) }, listener.received())
  c.same({ "1f 2 0 0 10", "-" .. text(T0_MS - 5), member(B, 7), "0" }, queue(c))
end)

case("undoing a re-entry keeps the owner's earlier holds and their TTL", function(c)
  held(c, OWNER, 3, 1000)
  c.same(1, leave(c, "", 2))
  c.same({ OWNER, "2" }, c.cmd("HGETALL", LOCK))
  c.same(1000, c.cmd("PTTL", LOCK))
  c.same(0, leave(c, "", 2))
  c.same({ OWNER, "2" }, c.cmd("HGETALL", LOCK))
  c.pass(1000)
  c.same(1, leave(c, "", 1))
  c.same(0, c.cmd("PTTL", LOCK), "not even in its last millisecond")
end)

case("a shared owner's waiter that gives up releases only the hold it was granted", function(c)
  local me = member(A, 1, "l", SHARED)
  held(c, SHARED, 3)
  queued(c, 0, me)
  c.same(1, leave(c, me, 0, 0, SHARED))
  c.same({ SHARED, "2" }, c.cmd("HGETALL", LOCK))
  queued(c, 5, me)
  c.same(0, leave(c, me, 0, 0, SHARED))
  c.same({ SHARED, "2" }, c.cmd("HGETALL", LOCK))
  c.same(0, c.cmd("EXISTS", QUEUE))
  c.same(1, leave(c, "", 0, 1, SHARED))
  c.same({ SHARED, "1" }, c.cmd("HGETALL", LOCK))
  c.same(1, leave(c, "", 0, 1, SHARED))
  c.same(0, c.cmd("EXISTS", LOCK))
  c.same(0, leave(c, "", 0, 1, SHARED))
end)

case("cleaning up after a shared owner's waiter by its number releases the hold it was granted", function(c)
  held(c, SHARED, 3)
  queued(c, 0, member(A, 12, "l", SHARED))
  c.same(0, leave(c, member(A, 1, "l", nil, 0), 0, "", A .. ":1"))
  c.same(1, c.cmd("ZCARD", QUEUE), "another number")
  c.same(0, leave(c, member(B, 12, "l", nil, 0), 0, "", B .. ":12"))
  c.same(1, c.cmd("ZCARD", QUEUE), "another client")
  c.same(1, leave(c, member(A, 12, "l", nil, 0), 0, "", A .. ":12"))
  c.same({ SHARED, "2" }, c.cmd("HGETALL", LOCK))
  c.same(0, c.cmd("EXISTS", QUEUE))
  c.same(0, leave(c, member(A, 12, "l", nil, 0), 0, "", A .. ":12"))
  c.same({ SHARED, "2" }, c.cmd("HGETALL", LOCK))
end)

case("cleaning up after a shared owner's waiter without a grant releases no hold", function(c)
  held(c, SHARED, 3)
  queued(c, 5, member(A, 12, "l", SHARED))
  c.same(0, leave(c, member(A, 12, "l", nil, 0), 0, "", A .. ":12"))
  c.same({ SHARED, "3" }, c.cmd("HGETALL", LOCK))
end)

case("a waiter that leaves grants the free lock to the next one, and records the end of other libraries' holds", function(c)
  grants_of(c, B)
  record(c, 0, 0, 0, 0, T0_MS - 300)
  queued(c, 5, member(A, 1))
  queued(c, 6, member(B, 7))
  c.same(0, leave(c, member(A, 1)))
  c.same({ "1f 1 0 0 300", text(-T0_MS), member(B, 7), "0" }, queue(c))
end)

case("undoing a shared owner's acquire that took no hold releases nothing", function(c)
  held(c, SHARED, 3)
  c.same(0, leave(c, "", 0, 0, SHARED))
  c.same(0, leave(c, member(A, 1, "l", SHARED), 0, 0, SHARED))
  c.same({ SHARED, "3" }, c.cmd("HGETALL", LOCK))
end)

case("when the first waiter behind another library's holder leaves, the next one is notified to recheck", function(c)
  local listener = grants_of(c, B)
  held(c, JAVA)
  queued(c, 5, member(A, 1))
  queued(c, 6, member(B, 7))
  c.same(0, leave(c, member(A, 1)))
  c.same({ "1 recheck 7" }, listener.received())
  c.cmd("DEL", LOCK)
  held(c, OTHER)
  queued(c, 5, member(A, 1))
  c.same(0, leave(c, member(A, 1)))
  c.same({}, listener.received(), "a holdfast client will hand over")
  c.cmd("DEL", QUEUE, LOCK)
  held(c, JAVA)
  queued(c, 5, member(A, 1))
  c.same(0, leave(c, member(A, 1)), "there is none")
  queued(c, 5, "2x" .. C)
  c.same(0, leave(c, member(A, 1)))
end)

case("a waiter that leaves removes dead ones ahead of the new first waiter", function(c)
  local listener = grants_of(c, B)
  held(c, JAVA)
  queued(c, 5, member(A, 1))
  queued(c, 6, member(C, 1))
  queued(c, 7, member(B, 7))
  c.same(0, leave(c, member(A, 1)))
  c.same({ "1 recheck 7" }, listener.received())
  c.same({ member(B, 7), "7" }, queue(c))
end)

case("a waiter that leaves does not delete a finished run's record", function(c)
  c.cmd("HSET", LOCK, "done", "x", "print", "", "by", OTHER)
  c.cmd("PEXPIRE", LOCK, 1000)
  queued(c, 5, member(A, 1))
  queued(c, 6, member(B, 7))
  c.same(0, leave(c, member(A, 1)))
  c.same({ member(B, 7), "6" }, queue(c))
end)

case("a free lock is granted to the next waiter when the first one leaves", function(c)
  local listener = grants_of(c, B)
  queued(c, 5, member(A, 1))
  queued(c, 6, member(B, 7))
  c.same(0, leave(c, member(A, 1)))
  c.same({ grant_text("l", 7, "6", text(T0)) }, listener.received())
end)

case("when the first waiter leaves, the next one is notified of the reservation for other libraries", function(c)
  local listener = grants_of(c, B)
  record(c, 0, 1, 0, 0, T0_MS + 30)
  queued(c, 5, member(A, 1))
  queued(c, 6, member(B, 7))
  c.same(0, leave(c, member(A, 1)))
  c.same({ "1 turn 7 30" }, listener.received())
  c.same(0, c.cmd("EXISTS", LOCK))
end)

case("cleaning up notifies the next waiter even in the last millisecond of a reservation for other libraries", function(c)
  local listener = grants_of(c, B)
  record(c, 0, 1, 0, 0, T0_MS + 1)
  queued(c, 6, member(B, 7))
  c.same(0, leave(c))
  c.same({ "1 turn 7 1" }, listener.received())
end)

case("a missed grant is repeated if another waiter of its client leaves, which shows that the client is alive", function(c)
  local listener = grants_of(c, A)
  queued(c, 0, member(A, 2))
  queued(c, 5, member(A, 1))
  c.same(0, leave(c, member(A, 1)))
  c.same({ grant_text("l", 2, text(T0 / 1024), text(T0)) }, listener.received())
end)

case("cleaning up reports that it left dead waiters in the queue", function(c)
  dead(c, 1007)
  c.same(3, leave(c))
  c.same(1, c.cmd("ZCARD", QUEUE))
end)

-- ---- extend, renew ----

local function extend(c, lease, least, name, owner, program)
  return c.run(program or "extend", { LOCK, QUEUE }, owner or OWNER, lease, least or "", name or "",
    CHANNEL)
end

case("an extension succeeds only for the owner of the lock", function(c)
  c.same(-1, extend(c, 100))
  held(c, OTHER, 1, 1000)
  c.same(-2, extend(c, 100))
  c.same(1000, c.cmd("PTTL", LOCK))
  c.same(1, extend(c, 0, "", "", OTHER))
  c.same(1000, c.cmd("PTTL", LOCK))
  c.same(1, extend(c, 2000, "", "", OTHER))
  c.same(2000, c.cmd("PTTL", LOCK))
end)

case("an extension shortens the lease only if the TTL is not above the caller's limit", function(c)
  held(c, OWNER, 1, 1000)
  c.same(1, extend(c, 900, 999))
  c.same(1000, c.cmd("PTTL", LOCK))
  c.same(1, extend(c, 1000, 999))
  c.same(1000, c.cmd("PTTL", LOCK))
  c.same(1, extend(c, 900, 1000))
  c.same(900, c.cmd("PTTL", LOCK))
  c.same(1, extend(c, 901, 1))
  c.same(901, c.cmd("PTTL", LOCK))
end)

case("confirming a grant removes it from the queue, but a mere check does not", function(c)
  held(c, OWNER, 1, 400)
  queued(c, 0, member(A, 1))
  queued(c, 5, member(B, 7))
  c.same(1, extend(c, 0, "", member(A, 1)))
  c.same(4, #queue(c))
  c.same(1, extend(c, LEASE, 0, member(A, 1)))
  c.same({ member(B, 7), "5" }, queue(c))
  c.same(1, extend(c, LEASE, "", ""))
  c.same({ member(B, 7), "5" }, queue(c))
end)

case("an extension that shortens the lease notifies the first waiter and Redisson", function(c)
  local listener, java = grants_of(c, B), c.listen(CHANNEL)
  held(c, OWNER, 1, 1000)
  record(c, 0, 0, 0, 0, T0_MS)
  queued(c, 0, member(C, 1))
  queued(c, 5, member(B, 7))
  queued(c, 6, member(B, 8))
  c.same(1, extend(c, 1000))
  c.same(1, extend(c, 1001))
  c.same({ {}, {} }, { listener.received(), java.received() })
  c.same(1, extend(c, 1000))
  c.same({ { "1 recheck 7 1000" }, { "0" } }, { listener.received(), java.received() })
  c.same(1, extend(c, 900, 10))
  c.same({ {}, {} }, { listener.received(), java.received() }, "the TTL stayed")
  c.cmd("DEL", QUEUE)
  c.same(1, extend(c, 900))
  c.cmd("SET", QUEUE, "no queue")
  c.same(1, extend(c, 800, "", member(A, 1)))
  c.same(800, c.cmd("PTTL", LOCK))
end)

case("a mutex is extended only by its owner", function(c)
  c.same(-1, extend(c, 10, "", "", OWNER, "mutex_extend"))
  mutex_held(c, OTHER)
  c.same(-2, extend(c, 10, "", "", OWNER, "mutex_extend"))
  local java = c.listen(CHANNEL)
  c.same(1, extend(c, 10, "", "", OTHER, "mutex_extend"))
  c.same(10, c.cmd("PTTL", LOCK))
  c.same({}, java.received())
end)

case("in a cluster a shortened lease is published on both the plain and the sharded channel", function(c)
  local plain, sharded = c.listen(CHANNEL), c.listen(CHANNEL, true)
  held(c, OWNER, 1, 1000)
  c.same(1, extend(c, 900, "", "", OWNER, "sharded_extend"))
  c.same({ { "0" }, { "0" } }, { plain.received(), sharded.received() })
end)

case("a renewal of several locks reports a result for each, and shortens no TTL", function(c)
  held(c, OWNER, 2, 1000)
  c.cmd("HSET", "other", OTHER, 1)
  c.cmd("SET", "text", OWNER)
  local keys = { LOCK, "gone", "other", "text" }
  c.same({ 1, -1, -2, -2 }, c.run("renew", keys, OWNER, 2000, OWNER, 2000, OWNER, 2000, OWNER,
    2000))
  c.same({ 2000, 0, -1, -1 }, {
    c.cmd("PTTL", LOCK), c.cmd("EXISTS", "gone"), c.cmd("PTTL", "other"), c.cmd("PTTL", "text"),
  })
  c.same({ 1 }, c.run("renew", { LOCK }, OWNER, 500))
  c.same(2000, c.cmd("PTTL", LOCK))
  c.same({ OWNER, "2" }, c.cmd("HGETALL", LOCK))
  c.same({ -2, 1 }, c.run("mutex_renew", { LOCK, "text" }, OWNER, 2000, OWNER, 2000))
  c.same(2000, c.cmd("PTTL", "text"))
end)

-- ---- guards ----

local function begin(c, more)
  more = more or {}
  more.program, more.ttl, more.print = "begin", 0, more.print or ""
  return acquire(c, more)
end

local function complete(c, keep, print, result, owner)
  return c.run("complete", FOUR, owner or OWNER, GRANT, keep, print, result)
end

case("an idempotent run stores its fingerprint, and refuses a request with a different one", function(c)
  c.same({ 1, 0, 0 }, begin(c, { print = "P" }))
  c.same("P", c.cmd("HGET", LOCK, "print"))
  c.same({ 4 }, begin(c, { print = "Q", owner = OTHER }))
  c.same({ 0, LEASE, 0, 0, "" }, begin(c, { print = "P", owner = OTHER }))
  c.same({ 0, LEASE, 0, 0, "" }, begin(c, { owner = OTHER }), "an acquire without a fingerprint matches any")
  c.same({ 1, 0, 0 }, begin(c, { print = "P" }), "sent twice")
end)

case("an idempotent run without a fingerprint stores an empty one", function(c)
  begin(c)
  c.same({ OWNER, "1", "print", "" }, c.cmd("HGETALL", LOCK))
  c.same({ 0, LEASE, 0, 0, "" }, begin(c, { print = "P", owner = OTHER }))
  c.cmd("DEL", LOCK)
  queued(c, 5, member(A, 1, "g"))
  c.same({ 1, 0, 0 }, begin(c, { print = "P", member = member(A, 1, "g") }))
  c.same("P", c.cmd("HGET", LOCK, "print"), "also where others wait")
end)

-- Keys that are not a run. `begin` leaves each as it was.
local function not_a_run(name, kind, make)
  case("an idempotent run is refused on the key of " .. name, function(c)
    make(c)
    local before = c.cmd("HGETALL", LOCK)
    c.same({ -6, kind }, begin(c, { print = "P" }))
    c.same({ -6, kind }, begin(c, { member = member(A, 1, "g", nil, 0) }))
    c.same({}, queue(c))
    c.same(before, c.cmd("HGETALL", LOCK))
  end)
end
not_a_run("a lock", "lock", function(c) held(c, OTHER) end)
not_a_run("a lock of the same owner", "lock", function(c) held(c, OWNER) end)
not_a_run("a lock of Redisson", "lock", function(c) held(c, JAVA) end)
not_a_run("a lock of a shared owner", "lock", function(c) held(c, SHARED) end)
not_a_run("a lock of a shared owner that is called done", "lock", function(c) held(c, "done") end)
not_a_run("a read/write lock", "read_write", function(c)
  held(c)
  c.cmd("HSET", LOCK, "mode", "read")
end)

case("an idempotent run does not begin if its acquire grants the key to a waiter for a lock", function(c)
  local listener = grants_of(c, B)
  queued(c, 5, member(B, 7))
  c.same({ -6, "lock" }, begin(c))
  c.same({ grant_text("l", 7, "5", text(T0)) }, listener.received())
end)

case("an idempotent run begins at once, without a reservation for other libraries", function(c)
  for _, heard in ipairs { 0, 1 } do
    grants_of(c, B)
    c.listen(CHANNEL)
    record(c, 0, 1, heard, 0, T0_MS + 50)
    queued(c, 5, member(A, 1, "g", nil, 0))
    c.same({ 1, 0, 0 }, begin(c, { member = member(A, 1, "g", nil, 0) }))
    c.cmd("DEL", LOCK, QUEUE)
  end
end)

case("an acquire of a lock is refused on an idempotent run's key during the run and after it", function(c)
  local function is_guards()
    local before = c.cmd("HGETALL", LOCK)
    c.same({ -6, "guard" }, acquire(c))
    c.same({ -6, "guard" }, acquire(c, { owner = OTHER, member = member(B, 2) }))
    c.same({ -6, "guard" }, acquire(c, { owner = SHARED, shared = true }))
    c.same({ -2 }, acquire(c, { owner = OTHER, from = 1 }))
    c.same({}, queue(c))
    c.same(before, c.cmd("HGETALL", LOCK))
  end
  begin(c, { print = "P" })
  is_guards()
  c.cmd("DEL", LOCK)
  begin(c)
  is_guards()
  queued(c, 5, member(A, 1))
  c.same({ -6, "guard" }, acquire(c, { owner = OTHER, member = member(B, 2) }),
    "behind a waiter, too")
  c.cmd("DEL", QUEUE)
  complete(c, 5000, "", "result")
  is_guards()
end)

case("an idempotent run that completes stores its result, and notifies and removes all waiters", function(c)
  local listener = grants_of(c, B)
  begin(c, { print = "P" })
  queued(c, 5, member(B, 7, "g"))
  c.cmd("ZADD", QUEUE, 6, "2x")
  queued(c, 7, member(B, 8, "g"))
  c.same(1, complete(c, 5000, "P", "result"))
  c.same({ "1 recheck 7", "1 recheck 8" }, listener.received())
  c.same(0, c.cmd("EXISTS", QUEUE))
  c.same(5000, c.cmd("PTTL", LOCK))
  c.same({ "result", "P", OWNER }, c.cmd("HMGET", LOCK, "done", "print", "by"))
  c.same(3, c.cmd("HLEN", LOCK))
  c.same({ 3, "result" }, begin(c, { print = "P", owner = OTHER }))
  c.same({ 4 }, begin(c, { print = "Q", owner = OTHER }))
  queued(c, 5, member(B, 7, "g"))
  c.same({ 3, "result" }, begin(c, { owner = OTHER, member = member(B, 7, "g") }))
  c.same({}, queue(c))
  c.same(1, complete(c, 5000, "P", "result"), "sent twice")
  c.same(-2, complete(c, 5000, "P", "another", OTHER))
  c.same("result", c.cmd("HGET", LOCK, "done"))
end)

case("an idempotent run that completes notifies a thousand waiters, and later commands notify the rest", function(c)
  local listener = grants_of(c, B)
  begin(c)
  local function waiting(count)
    for i = 1, count do queued(c, i, member(B, i, "g")) end
  end
  waiting(2001)
  c.same(3, complete(c, 5000, "P", "result"))
  c.same(1000, #listener.received())
  c.same(3, leave(c, "", 0, "", OTHER))
  c.same(1000, #listener.received())
  c.same(0, leave(c, "", 0, "", OTHER))
  c.same({ "1 recheck 2001" }, listener.received())
  c.same({}, queue(c))
  waiting(1001)
  c.same(3, complete(c, 5000, "P", "result"), "sent twice")
  c.same(1, complete(c, 5000, "P", "result"), "and again")
  c.same(1001, #listener.received())
  c.same({ 3, "result" }, begin(c, { owner = OTHER }))
  c.cmd("HDEL", LOCK, "by")
  waiting(1)
  c.same(0, leave(c, "", 0, "", OTHER), "no record")
  c.same({ member(B, 1, "g"), "1" }, queue(c))
end)

case("an idempotent run that completes leaves waiters for locks or of a newer queue format in the queue", function(c)
  local listener = grants_of(c, B)
  begin(c)
  c.cmd("ZADD", QUEUE, 4, "2l" .. C)
  queued(c, 5, member(B, 7))
  queued(c, 6, member(B, 8, "g"))
  c.same(3, complete(c, 5000, "P", "result"))
  c.same({ "1 recheck 8" }, listener.received())
  c.same({ "2l" .. C, "4", member(B, 7), "5" }, queue(c))
  c.same(0, leave(c, "", 0, "", OTHER))
end)

case("an idempotent run cannot be completed by another owner", function(c)
  c.same(-1, complete(c, 5000, "", "x"))
  held(c, OTHER)
  c.same(-2, complete(c, 5000, "", "x"))
  c.same(-2, complete(c, 0, "", "x"))
  c.same({ OTHER, "1" }, c.cmd("HGETALL", LOCK))
end)

case("an idempotent run completes even if the queue's key has another type", function(c)
  held(c)
  c.cmd("SET", QUEUE, "text")
  c.same(1, complete(c, 5000, "", "x"))
  c.same("text", c.cmd("GET", QUEUE))
end)

case("an idempotent run that stores no result grants its key to the next waiter", function(c)
  local listener = grants_of(c, B)
  held(c)
  queued(c, 5, member(B, 7, "g", nil, 0))
  c.same(1, complete(c, 0, "", ""))
  c.same({ grant_text("g", 7, "5", "0") }, listener.received())
  c.same({ B .. ":7", "1", "print", "" }, c.cmd("HGETALL", LOCK))
  c.cmd("DEL", QUEUE, LOCK)
  held(c)
  dead(c, 1002)
  c.same(3, complete(c, 0, "", ""))
end)

-- ---- force ----

local function force(c, program, holder) return c.run(program or "force", FOUR, OWNER, GRANT, holder) end

local function forced(name, before, reply)
  case("force_release " .. name, function(c)
    before(c)
    local existed = c.cmd("EXISTS", LOCK)
    local found = force(c)
    c.same(reply, type(found) == "table" and found.err or found)
    c.same(type(reply) == "number" and 0 or existed, c.cmd("EXISTS", LOCK))
  end)
end
local NO_LOCK = "WRONGTYPE the key is not a lock"
local function fields(...)
  local all = { ... }
  return function(c)
    c.cmd("HSET", LOCK, unpack(all))
    c.cmd("PEXPIRE", LOCK, LEASE)
  end
end
forced("returns 0 if the key does not exist", function() end, 0)
forced("frees a lock", fields(OTHER, 1), 1)
forced("frees Redisson's lock", fields(JAVA, 1), 1)
forced("frees the lock of a Java thread with a negative number", fields((JAVA:gsub(":7", ":-7")), 1), 1)
forced("frees a quorum's hold that was restored on a server without a counter", fields(OTHER .. ".2", 1), 1)
forced("ends an idempotent run", fields(OTHER, 1, "print", "P"), 1)
forced("deletes the record of a finished idempotent run", fields("done", "x", "print", "P", "by", OTHER), 1)
forced("frees a lock of the caller's own owner", fields(OWNER, 2), 1)
forced("frees the lock of an owner called print", function(c)
  fields("print", 1)(c)
  c.cmd("SET", COUNTER, 1)
end, 1)
forced("frees a shared owner's lock that has a counter", function(c)
  fields(SHARED, 1)(c)
  c.cmd("SET", COUNTER, 1)
end, 1)
forced("frees a shared owner's lock that has a queue", function(c)
  fields(SHARED, 1)(c)
  queued(c, 5, member(C, 1))
end, 1)
forced("refuses a hash whose only field is not a client's owner name", fields(SHARED, 1), NO_LOCK)
forced("refuses a hash whose hold count is not a number", fields(OTHER, "x"), NO_LOCK)
forced("refuses a hash with two owners", fields(OTHER, 1, OWNER, 1), NO_LOCK)
forced("refuses a hash without a TTL", function(c) held(c, OTHER, 1, false) end, NO_LOCK)
forced("refuses an incomplete record of an idempotent run", fields("done", "x", "print", "P"), NO_LOCK)
forced("frees a lock in its last millisecond", function(c)
  fields(OTHER, 1)(c)
  c.pass(LEASE)
end, 1)
forced("refuses a string", function(c)
  c.cmd("SET", LOCK, "x")
end, "WRONGTYPE the key holds a string")
forced("reports that it left dead waiters in the queue", function(c)
  held(c, OTHER)
  dead(c, 1002)
end, 3)

case("force_release of a lock grants it to the next waiter, and force_release of a mutex deletes any string", function(c)
  local listener = grants_of(c, B)
  held(c, OTHER)
  queued(c, 5, member(B, 7))
  c.same(1, force(c))
  c.same({ grant_text("l", 7, "5", text(T0)) }, listener.received())
  c.same("WRONGTYPE the key holds a hash", force(c, "mutex_force").err)
  c.cmd("DEL", LOCK, QUEUE)
  mutex_held(c, "them", false)
  c.same(1, force(c, "mutex_force"))
  c.same(0, force(c, "mutex_force"))
end)

case("force_release with an expected holder frees only that owner's lock or mutex", function(c)
  for program, hold in pairs { force = held, mutex_force = mutex_held } do
    hold(c, OTHER)
    c.same({ 0, 0 }, { force(c, program, OWNER), force(c, program, OTHER .. "0") })
    c.same({ 1, 1 }, { c.cmd("EXISTS", LOCK), force(c, program, OTHER) })
    c.same({ 0, 0 }, { c.cmd("EXISTS", LOCK), force(c, program, OTHER) })
  end
  fields("done", "x", "print", "P", "by", OTHER)(c)
  c.same({ 0, 1 }, { force(c, "force", OTHER), c.cmd("EXISTS", LOCK) })
end)

case("force_release with an expected holder also frees a hold that this owner's quorum has restored", function(c)
  for program, hold in pairs { force = held, mutex_force = mutex_held } do
    for restored, owner in pairs { [OTHER .. ".12"] = OTHER, [OTHER .. "3.1"] = OTHER .. "3" } do
      hold(c, restored)
      c.same({ 0, 0, 0 }, {
        force(c, program, OWNER), force(c, program, restored .. "1"), force(c, program, owner .. ".1.2"),
      })
      c.same({ 0, 1 }, { force(c, program, owner:sub(1, -2)), c.cmd("EXISTS", LOCK) })
      c.same({ 1, 0 }, { force(c, program, owner), c.cmd("EXISTS", LOCK) })
      hold(c, restored)
      c.same({ 1, 0 }, { force(c, program, restored), c.cmd("EXISTS", LOCK) })
    end
    c.cmd("SET", COUNTER, 8)
    hold(c, SHARED .. ".1")
    c.same({ 0, 1 }, { force(c, program, SHARED), c.cmd("EXISTS", LOCK) }, "another shared owner")
    c.cmd("DEL", LOCK, COUNTER)
  end
end)

-- ---- wait ----

case("a waiter that publishes its wait again preserves the time at which the wait began", function(c)
  local keys = { "holdfast_wait:" .. OWNER }
  local began = ("%.0f"):format(T0_MS - 300)
  c.same(1, c.run("wait", keys, A .. ":2 l k", 300, 5000))
  c.same(began .. " " .. A .. ":2 l k", c.cmd("GET", keys[1]))
  c.same(1, c.run("wait", keys, A .. ":2 l k", 900, 5000))
  c.same(began .. " " .. A .. ":2 l k", c.cmd("GET", keys[1]), "the same wait goes on")
  c.same(1, c.run("wait", keys, A .. ":3 l other", 100, 5000))
  c.same(("%.0f"):format(T0_MS - 100) .. " " .. A .. ":3 l other", c.cmd("GET", keys[1]),
    "another wait")
  c.same(5000, c.cmd("PTTL", keys[1]))
end)

-- ---- info, raise ----

case("info returns owner, holds, TTL, token and queue length in one consistent reply", function(c)
  local keys = { LOCK, COUNTER, QUEUE }
  c.same({ "", 0, -2, "0", 0, -1, -1, 0, T0, -1 }, c.run("info", keys, A))
  held(c, OTHER, 3, 1000)
  c.cmd("SET", COUNTER, "17")
  record(c, 0, 0, 0, 0, T0_MS)
  queued(c, 0, member(A, 1))
  queued(c, 5, member(B, 7))
  queued(c, 6, member(A, 2))
  local waited = T0 - 5 * 1024
  c.same({ OTHER, 3, 1000, "17", 2, 1, -1, 0, T0, waited }, c.run("info", keys, A))
  c.same({ OTHER, 3, 1000, "17", 2, 0, -1, 0, T0, waited }, c.run("info", keys, B))
  c.same({ OTHER, 3, 1000, "17", 2, -1, -1, 0, T0, waited }, c.run("info", keys, C))
  c.cmd("DEL", LOCK)
  c.same({ "", 0, -2, "17", 2, 0, -1, 0, T0, waited }, c.run("mutex_info", keys, B))
  mutex_held(c, "them", 900)
  c.same({ "them", 1, 900, "17", 2, 0, -1, 0, T0, waited }, c.run("mutex_info", keys, B))
end)

case("info returns how long the first waiter has waited", function(c)
  local function waited() return c.run("info", { LOCK, COUNTER, QUEUE }, A)[10] end
  queued(c, -1, member(C, 1))
  c.same(-1, waited(), "it was passed over")
  queued(c, T0 / 1024 - 1e6, member(A, 1))
  c.same(1024e6, waited(), "a place in front is from its return")
  queued(c, T0 - 3e6, member(A, 2))
  queued(c, T0 - 2e6, member(A, 3))
  c.same(3e6, waited(), "the first one that kept its place")
  c.cmd("ZREM", QUEUE, member(A, 2), member(A, 3))
  queued(c, T0 + 1, member(A, 2))
  c.same(0, waited(), "its place is ahead of the clock")
end)

case("info returns a given waiter's position in the queue while its client is subscribed", function(c)
  local function ahead(asked, program)
    return c.run(program or "info", { LOCK, COUNTER, QUEUE }, asked)[6]
  end
  queued(c, 5, member(B, 7))
  queued(c, 6, member(A, 2))
  queued(c, 7, member(A, "03", "l", SHARED))
  c.same({ -1, 1 }, { ahead(A .. ":2"), ahead(A) }, "nobody listens")
  local a = grants_of(c, A)
  c.same({ 1, 2, 1 }, { ahead(A .. ":2"), ahead(A .. ":03"), ahead(A) })
  c.same({ -1, -1, -1 }, { ahead(A .. ":1"), ahead(A .. ":20"), ahead(A .. ":3") })
  c.same({ 1, -1 }, { ahead(A .. ":2", "mutex_info"), ahead(B .. ":7", "mutex_info") })
  queued(c, 0, member(A, 2))
  c.same(-1, ahead(A .. ":2"), "it has the lock by a grant")
  c.refuse("pubsub|numsub")
  c.same(0, ahead(B .. ":7"), "the server does not say who listens")
  a.close()
end)

case("info returns the owner of an idempotent run, and none after the run has completed", function(c)
  local keys = { LOCK, COUNTER, QUEUE }
  fields(OTHER, 1, "print", "P")(c)
  c.same({ OTHER, 1, LEASE, "0", 0, -1, -1, 0, T0, -1 }, c.run("info", keys, A))
  c.cmd("DEL", LOCK)
  fields("done", "x", "print", "P", "by", OTHER)(c)
  c.same({ "", 0, LEASE, "0", 0, -1, -1, 0, T0, -1 }, c.run("info", keys, A))
end)

case("raising a token counter gives it a TTL until the server's clock reaches the token", function(c)
  c.same(1, c.run("raise", { COUNTER }, text(T0 + 5000000), 1000))
  c.same(5000, c.cmd("PTTL", COUNTER))
end)

case("raising a token counter replaces a value that no token can follow", function(c)
  for _, value in ipairs { "9007199254740991", "inf", "nan", "-1", "12.5" } do
    c.cmd("SET", COUNTER, value, "PX", 10)
    c.same(1, c.run("raise", { COUNTER }, 10, 1000))
    c.same("10", c.cmd("GET", COUNTER), value)
  end
end)

case("a shared owner joins with a valid token even if the counter holds a value that no token can follow", function(c)
  c.cmd("SET", COUNTER, "1e300")
  held(c, SHARED, 1)
  c.same({ 1, T0, 0 }, acquire(c, { owner = SHARED, shared = true, from = 1 }))
end)

-- Each waiter used to become the first of an empty queue, and removed the one before it.
case("waiters stay in the queue, in order, even in the year 2262", function(c)
  c.clock(9223372036000000)
  held(c, OTHER)
  for number = 1, 3 do
    local owner = A .. ":" .. number
    local reply = acquire(c, { owner = owner, member = member(A, number) })
    c.same({ number - 1, text(4723372036000000 + number - 1) }, { reply[3], reply[5] })
  end
end)

case("raising a token counter never lowers it or shortens its TTL", function(c)
  local function raise(token, ttl) return c.run("raise", { COUNTER }, token, ttl) end
  c.same(1, raise(10, 1000))
  c.same({ "10", 1000 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
  c.same(1, raise(10, 500))
  c.same({ "10", 1000 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
  c.same(1, raise(9, 500))
  c.same("10", c.cmd("GET", COUNTER))
  c.same(1, raise(11, 500))
  c.same({ "11", 500 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
  c.same(1, raise(12, ENDLESS))
  c.same({ "12", -1 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
  c.same(1, raise(13, 500))
  c.same({ "13", -1 }, { c.cmd("GET", COUNTER), c.cmd("PTTL", COUNTER) })
end)

-- ---- several ----

local EIGHT = {}
for i = 1, 4 do EIGHT[i], EIGHT[4 + i] = FOUR[i], SECOND[i] end

local function acquire_all(c, from_one, from_two, ttl)
  return c.run("acquire_all", EIGHT, "", GRANT, LEASE, ttl or TTL, OWNER, from_one or 0, OWNER,
    from_two or 0)
end

case("an acquire of several locks takes all of them, or none", function(c)
  c.same({ 1, T0, T0 }, acquire_all(c))
  c.same({ "1", "1" }, { c.cmd("HGET", LOCK, OWNER), c.cmd("HGET", "j", OWNER) })
  c.same({ LEASE, LEASE, SET_TTL }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", "j"),
    c.cmd("PTTL", SECOND[2]) })
  c.same({ 1, 0, 0 }, acquire_all(c, 1, 1))
  c.same({ "2", "2" }, { c.cmd("HGET", LOCK, OWNER), c.cmd("HGET", "j", OWNER) })
  c.cmd("DEL", "j")
  c.same({ -1, 2 }, acquire_all(c, 2, 2))
  c.cmd("HSET", "j", OTHER, 1)
  c.cmd("PEXPIRE", "j", 1000)
  c.same({ -2, 2 }, acquire_all(c, 2, 2))
  c.same({ 0, 2, 1000 }, acquire_all(c, 2, 0))
  c.same("2", c.cmd("HGET", LOCK, OWNER))
  c.cmd("DEL", LOCK)
  c.same({ 0, 2, 1000 }, acquire_all(c))
  c.same(0, c.cmd("EXISTS", LOCK))
  c.cmd("DEL", "j")
  c.same({ 1, 0, 0 }, acquire_all(c, 0, 0, 0))
end)

case("an acquire of several locks that is sent again takes no second hold", function(c)
  acquire_all(c)
  queued(c, 5, member(B, 7))
  c.same({ 1, T0 + 8, T0 + 8 }, acquire_all(c))
  c.same({ OWNER, "1" }, c.cmd("HGETALL", LOCK))
  c.same({ OWNER, "1" }, c.cmd("HGETALL", "j"))
end)

case("a re-entry or partial release of several locks that is sent again changes each count once", function(c)
  acquire_all(c)
  for _ = 1, 2 do c.same({ 1, 0, 0 }, acquire_all(c, 1, 1)) end
  local function counts() return { c.cmd("HGET", LOCK, OWNER), c.cmd("HGET", "j", OWNER) } end
  c.same({ "2", "2" }, counts())
  for _ = 1, 2 do
    c.same({ 2, 2 }, c.run("release_all", EIGHT, "", GRANT, OWNER, 1, LEASE, OWNER, 1, LEASE))
    c.same({ "1", "1" }, counts())
  end
end)

case("an acquire of several locks never overtakes a waiter for one of them", function(c)
  local listener = grants_of(c, B)
  queued(c, 5, member(B, 7))
  c.same({ 0, 1, GRANT }, acquire_all(c))
  c.same({ grant_text("l", 7, "5", text(T0)) }, listener.received())
  c.same({ 0, 1, GRANT }, acquire_all(c))
  c.cmd("DEL", LOCK, QUEUE)
  queued(c, 5, "2x" .. C)
  c.same({ 0, 1, -2 }, acquire_all(c))
  c.cmd("DEL", QUEUE)
  record(c, 0, 1, 0, 0, T0_MS + 10)
  c.same({ 0, 1, -2 }, acquire_all(c))
  c.cmd("DEL", QUEUE)
  record(c, 0, 1, 0, 0, T0_MS - 10)
  c.same({ 1, T0 + 8, T0 }, acquire_all(c))
end)

case("an acquire of several locks takes one during our run if only Redisson waits for it", function(c)
  c.listen(CHANNEL)
  held(c)
  record(c, 1, 0, 0, 30, T0_MS - 10)
  c.same(1, release(c))
  c.same("1f 2 0 0 30", queue(c)[1])
  c.same(1, acquire_all(c)[1])
  c.same("1f 2 0 0 30", queue(c)[1])
  c.same({ 1, 1 }, c.run("release_all", EIGHT, "", GRANT, OWNER, 0, LEASE, OWNER, 0, LEASE))
end)

case("an acquire of several locks that grants one to a waiter records the end of other libraries' holds", function(c)
  grants_of(c, B)
  record(c, 0, 0, 0, 0, T0_MS - 300)
  queued(c, 5, member(B, 7))
  c.same({ 0, 1, GRANT }, acquire_all(c))
  c.same({ "1f 1 0 0 300", text(-T0_MS), member(B, 7), "0" }, queue(c))
end)

case("an acquire of several locks uses each lock's own queue and channel", function(c)
  local listener = grants_of(c, B)
  c.cmd("ZADD", SECOND[3], 5, member(B, 7))
  c.same({ 0, 2, GRANT }, acquire_all(c))
  c.same({ grant_text("l", 7, "5", text(T0), "j") }, listener.received())
  c.cmd("DEL", "j", SECOND[3])
  c.cmd("ZADD", SECOND[3], -T0_MS - 50, "1f 0 1 - 0")
  local first = c.listen(CHANNEL)
  c.same({ 1, T0, T0 + 8 }, acquire_all(c))
  first.close()
  c.cmd("DEL", LOCK, "j")
  c.cmd("ZADD", SECOND[3], -T0_MS - 50, "1f 0 1 - 0")
  c.listen(SECOND[4])
  c.same({ 0, 2, -2 }, acquire_all(c))
end)

case("an acquire of several locks repeats a live client's missed grant, and removes a dead client's waiters", function(c)
  local listener = grants_of(c, A)
  queued(c, 0, member(A, 7))
  c.same({ 0, 1, GRANT }, acquire_all(c))
  c.same({ grant_text("l", 7, text(T0 / 1024), text(T0)) }, listener.received())
  c.cmd("DEL", LOCK, QUEUE, COUNTER)
  listener = grants_of(c, C)
  queued(c, 0, member(C, 1))
  queued(c, 5, member(C, 2))
  c.same({ 1, T0, T0 }, acquire_all(c))
  c.same({}, listener.received())
end)

case("an acquire of several locks is refused if one key holds another kind", function(c)
  c.cmd("HSET", "j", "done", "x", "print", "", "by", OTHER)
  c.cmd("PEXPIRE", "j", LEASE)
  c.same({ -6, 2, "guard" }, acquire_all(c))
  c.cmd("DEL", "j")
  c.cmd("HSET", "j", OWNER, 1, "print", "")
  c.cmd("PEXPIRE", "j", LEASE)
  c.same({ -6, 2, "guard" }, acquire_all(c))
  c.cmd("HSET", LOCK, "mode", "write", OTHER .. ":write", 1)
  c.cmd("PEXPIRE", LOCK, LEASE)
  c.same({ -6, 1, "read_write" }, acquire_all(c))
  c.same(0, c.cmd("EXISTS", COUNTER, SECOND[2]))
end)

case("an acquire of several locks removes dead waiters from their queues", function(c)
  queued(c, 0, member(C, 1))
  queued(c, 5, member(C, 2))
  c.same({ 1, T0, T0 }, acquire_all(c))
  c.same(0, c.cmd("EXISTS", QUEUE))
  c.cmd("DEL", LOCK, "j")
  dead(c, 1002)
  c.same({ 0, 1, -2 }, acquire_all(c))
end)

local function release_all(c, to_one, to_two)
  return c.run("release_all", EIGHT, "", GRANT, OWNER, to_one or 0, LEASE, OWNER, to_two or 0,
    LEASE)
end

case("a release of several locks notifies each lock's own waiters", function(c)
  local listener, java = grants_of(c, B), c.listen(SECOND[4])
  acquire_all(c)
  c.cmd("ZADD", SECOND[3], 5, member(B, 7))
  c.same({ 1, 1 }, release_all(c))
  c.same({ "1 turn 7 50" }, listener.received())
  c.same({ "0" }, java.received())
  c.same(-1, c.cmd("PTTL", SECOND[2]), "the counter is Java's, too")
end)

case("a partial release of several locks sets each lock's own lease", function(c)
  held(c, OWNER, 2, 1000)
  c.cmd("HSET", "j", OTHER, 3)
  c.cmd("PEXPIRE", "j", 1000)
  c.same({ 2, 2 }, c.run("release_all", EIGHT, "", GRANT, OWNER, 1, 2000, OTHER, 2, 3000))
  c.same({ OWNER, "1" }, c.cmd("HGETALL", LOCK))
  c.same({ OTHER, "2" }, c.cmd("HGETALL", "j"))
  c.same({ 2000, 3000 }, { c.cmd("PTTL", LOCK), c.cmd("PTTL", "j") })
end)

case("a release of several locks frees and reports on each one separately", function(c)
  local listener = grants_of(c, B)
  c.same({ -1, -1 }, release_all(c))
  acquire_all(c)
  queued(c, 5, member(B, 7))
  c.same({ 1, 1 }, release_all(c))
  c.same({ grant_text("l", 7, "5", text(T0 + 8)) }, listener.received())
  c.same(0, c.cmd("EXISTS", "j"))
  c.cmd("SET", "j", "text")
  c.same({ -2, -2 }, release_all(c))
  c.cmd("DEL", LOCK, "j", QUEUE)
  held(c, OWNER, 3, 1000)
  c.same({ 2, -1 }, release_all(c, 2))
  c.same({ "2", LEASE }, { c.cmd("HGET", LOCK, OWNER), c.cmd("PTTL", LOCK) })
  c.same({ 2, -1 }, release_all(c, 1))
  c.same("1", c.cmd("HGET", LOCK, OWNER))
  dead(c, 1002)
  c.same({ 3, -1 }, release_all(c))
end)

-- ---- in a cluster with sharded channels ----

local LISTENING = "holdfast_listening:{k}"

case("in a cluster a release finds Redisson's subscribers on the plain and on the sharded channel", function(c)
  local listener = grants_of(c, B)
  local function round(...)
    c.cmd("DEL", LOCK, QUEUE)
    held(c)
    queued(c, T0, member(B, 7))
    local channels, heard = {}, {}
    for i, channel in ipairs { ... } do channels[i] = c.listen(channel[2], channel[1]) end
    c.same(1, release(c, OWNER, 0, "", LEASE, "sharded_release"))
    for i, channel in ipairs(channels) do
      heard[i] = channel.received()
      channel.close()
    end
    return listener.received()[1]:match("^1 (%a+)"), heard
  end
  c.same({ "grant", {} }, { round() })
  c.same({ "turn", { { "0" } } }, { round({ true, CHANNEL }) })
  c.same({ "turn", { { "0" } } }, { round({ false, CHANNEL }) })
  c.same({ "grant", { {}, {} } }, { round({ true, CHANNEL }, { true, LISTENING }) })
  c.same({ "turn", { { "0" }, { "0" }, {} } },
    { round({ true, CHANNEL }, { true, CHANNEL }, { true, LISTENING }) })
end)

case("in a cluster a release is published on every channel that has subscribers", function(c)
  local function round(...)
    c.cmd("DEL", LOCK, QUEUE)
    held(c)
    local channels, heard = {}, {}
    for i, sharded in ipairs { ... } do channels[i] = c.listen(CHANNEL, sharded) end
    c.same(1, release(c, OWNER, 0, "", LEASE, "sharded_release"))
    for i, channel in ipairs(channels) do
      heard[i] = channel.received()
      channel.close()
    end
    return heard, queue(c)[1] or "nothing"
  end
  c.same({ {}, "nothing" }, { round() })
  c.same({ { { "0" } }, "1f 0 0 - 0" }, { round(true) })
  c.same({ { { "0" } }, "1f 0 0 - 0" }, { round(false) })
  c.same({ { { "0" }, { "0" } }, "1f 0 0 - 0" }, { round(true, false) })
end)

case("in a cluster a free lock is reserved for Redisson's subscribers of either channel", function(c)
  local function round(...)
    c.cmd("DEL", LOCK, QUEUE)
    record(c, 0, 1, 1, 0, T0_MS + 50)
    local channels = {}
    for i, channel in ipairs { ... } do channels[i] = c.listen(channel[2], channel[1]) end
    local reply = acquire(c, { program = "sharded_acquire", ttl = 0 })
    for _, channel in ipairs(channels) do channel.close() end
    return reply
  end
  c.same({ 1, 0, 0 }, round())
  c.same({ 0, 50, 0, 1, "" }, round({ true, CHANNEL }))
  c.same({ 0, 50, 0, 1, "" }, round({ false, CHANNEL }))
  c.same({ 1, 0, 0 }, round({ true, CHANNEL }, { true, LISTENING }))
  c.same({ 0, 50, 0, 1, "" }, round({ true, CHANNEL }, { true, LISTENING }, { false, CHANNEL }))
  c.same({ 0, 50, 0, 1, "" }, round({ true, CHANNEL }, { false, CHANNEL }))
end)

-- ---- servers that forbid channels ----

case("a release frees the lock without a notification if the user may not publish", function(c)
  held(c)
  queued(c, T0, member(B, 7))
  c.refuse("pubsub|numsub", "publish")
  c.same(1, release(c))
  c.same(0, c.cmd("EXISTS", LOCK))
  c.same({}, queue(c))
  record(c, 0, 1, 1, 0, T0_MS + 50)
  c.same({ 1, T0, 0 }, acquire(c))
  c.cmd("DEL", QUEUE, COUNTER)
  c.same(1, release(c))
  c.same({}, c.cmd("KEYS", "*"), "clients that cannot be notified do not count")
end)

case("a release does not reserve the lock for Redisson if the user may not publish", function(c)
  c.listen(CHANNEL)
  c.refuse("publish")
  held(c)
  c.same(1, release(c, OWNER, 0, "", LEASE, "sharded_release"))
  c.same({}, c.cmd("KEYS", "*"))
end)

case("in a cluster a release does not reserve the lock for Redisson if the user may not publish", function(c)
  c.refuse("pubsub|numsub", "pubsub|shardnumsub", "publish", "spublish")
  for round = 1, 2 do
    c.cmd("DEL", LOCK, QUEUE)
    held(c)
    c.same(1, release(c, OWNER, 0, "", LEASE, "sharded_release"))
    c.same(round - 1, c.cmd("EXISTS", QUEUE))
    if round == 1 then
      record(c, 0, 1, 1, 0, T0_MS + 50)
      c.same({ 1, 0, 0 }, acquire(c, { program = "sharded_acquire", ttl = 0 }))
    end
    c.cmd("DEL", LOCK, QUEUE)
    held(c)
    queued(c, T0, member(B, 7))
    c.same(1, release(c, OWNER, 0, "", LEASE, "sharded_release"))
    c.same({ 0, round - 1 }, { c.cmd("EXISTS", LOCK), c.cmd("EXISTS", QUEUE) })
    c.refuse("publish")
    c.listen(CHANNEL, true)
    c.listen(CHANNEL)
  end
end)

case("a release grants the lock to the next waiter if the user may not count sharded subscribers", function(c)
  local listener = grants_of(c, B)
  c.refuse("pubsub|shardnumsub")
  held(c)
  queued(c, T0, member(B, 7))
  c.same(1, release(c, OWNER, 0, "", LEASE, "sharded_release"))
  c.same("grant", listener.received()[1]:match("^1 (%a+)"))
end)

case("a waiter does not ask a holder that keeps no locks to release its lock", function(c)
  local listener = grants_of(c, B)
  held(c, OTHER)
  c.same(0, acquire(c, { member = member(A, 1) })[1])
  c.same({}, listener.received())
end)

case("a client that keeps its lock is asked to release it by the first waiter only", function(c)
  local listener = grants_of(c, B)
  held(c, B .. ":07")
  c.same(0, acquire(c, { member = member(A, 1) })[1])
  c.same({ "1 wish 07" }, listener.received())
  c.same(0, acquire(c, { owner = A .. ":2", member = member(A, 2) })[1])
  c.same({}, listener.received())
end)

case("a release grants a mutex to the first waiter even if polling clients are recorded", function(c)
  local first, second = grants_of(c, B), grants_of(c, C)
  mutex_held(c)
  record(c, 0, 3, 0, 0, T0_MS - 9)
  queued(c, T0, member(B, 1, "m"))
  queued(c, T0 + 1, member(C, 1, "m"))
  c.same(1, release(c, OWNER, 0, "", LEASE, "mutex_release"))
  c.same({ 1, 0 }, { #first.received(), #second.received() })
  c.same(B .. ":1", c.cmd("GET", LOCK))
end)

for _, each in ipairs(require "spec.sim.permit_cases") do cases[#cases + 1] = each end
for _, each in ipairs(require "spec.sim.latch_cases") do cases[#cases + 1] = each end
for _, each in ipairs(require "spec.sim.plain_cases") do cases[#cases + 1] = each end
for _, each in ipairs(require "spec.sim.read_write_cases") do cases[#cases + 1] = each end
for _, each in ipairs(require "spec.sim.fair_cases") do cases[#cases + 1] = each end
for _, each in ipairs(require "spec.sim.fence_cases") do cases[#cases + 1] = each end
for _, each in ipairs(require "spec.sim.once_cases") do cases[#cases + 1] = each end

return cases
