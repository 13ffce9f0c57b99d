-- Compares the straight-line code at the start of a program with the code behind it, which handles
-- every case: in random states, the program must reply, write and publish the same without the
-- straight-line code.
--
-- What may differ is in no state here: a waiter behind others does not record that Redisson has
-- taken the permit that was left to it (the first waiter does), and an acquire does not check all
-- characters of a holder's uuid.

local Prng = require "spec.sim.prng"
local case_runner = require "spec.sim.case_runner"
local programs = require "spec.sim.programs"
local wire = require "spec.sim.wire"

local unpack = table.unpack or unpack

local LEASE, GRANT, TTL = "30000", "500", "600000"
local NOW = 1700000000000000 -- the small Redis's clock in µs
local UUID = "1111111%d-0000-8000-8000-000000000000"
local A, B, C = UUID:format(1), UUID:format(2), UUID:format(3)
local CLIENTS = { A, B, C }
local JAVA = "6f1c2b7a-1111-4222-8333-000000000001:7"
local JAVA_PERMIT = "0123456789abcdef0123456789abcdef"
local LOCK, COUNTER, QUEUE = "k", "redisson_lock_token:{k}", "holdfast_queue:{k}"
local CHANNEL, LEASES = "redisson_lock__channel:{k}", "{k}:timeout"

local function text(number) return ("%.0f"):format(number) end

-- ---- states ----

local function member(kind, client, number, ttl)
  return ("1%s%s:%s:%s"):format(kind, client, number, ttl or TTL)
end

local GRANTED, WAITING = { "1", "2", "3", "07" }, { "4", "5", "08" }

local function some_member(p, kind, numbers)
  local client, number = p:pick(CLIENTS), p:pick(numbers)
  if p:chance(5) then return ("2%s%s:%s:9"):format(kind, client, number) end
  if p:chance(5) then return "nothing" end
  if p:chance(5) then return member(p:pick { "l", "m", "g", "p", "r" }, client, number) end
  if p:chance(10) then return member(kind, client, number, "0") .. " svc" end
  if kind == "p" and p:chance(20) then
    return member("p", client, number) .. (" %s:%s*2"):format(client, number)
  end
  return member(kind, client, number)
end

-- Fills the queue. own: the caller's member. grant(member): called for a member that has a grant
local function fill_queue(c, p, kind, own, grant)
  if p:chance(25) then return end
  local function add(score, name) c.cmd("ZADD", QUEUE, score, name) end
  if p:chance(40) then
    local age_ms = p:pick { -300, -60, -1, 0, 1, 30, 60, 150, 300, 3000, 100000 }
    local turns = p:pick { "0 0", "1 0", "7 0", "0 1", "0 4", "3 2" }
    add("-" .. text(NOW / 1000 - age_ms), ("1f %s %s %d"):format(turns,
      p:pick { "0", "1", "9", kind == "p" and "0" or "-" }, p:pick { 0, 10, 150, 2000 }))
  end
  for _ = 1, p:range(0, 2) do
    local name = some_member(p, kind, GRANTED)
    if grant(name) then add("0", name) end
  end
  local function add_waiter(score) add(("%.17g"):format(score), some_member(p, kind, WAITING)) end
  if p:chance(20) then add_waiter(-(NOW - p:range(1, 9000000)) / 2 ^ 60) end
  for _ = 1, p:pick { 0, 0, 1, 2, 3 } do
    add_waiter(NOW + p:pick { -30000000, -9000000, -100, -1, 0, 1, 5000000 })
  end
  if p:chance(10) then add_waiter((NOW - 5000000) / 1024) end
  if p:chance(25) and grant(own) then add(p:pick { "0", text(NOW - 1000) }, own) end
  if p:chance(90) then c.cmd("PEXPIRE", QUEUE, p:pick { 200, 2000, 60000, 120000 }) end
end

local function fill_counter(c, p)
  if p:chance(40) then return end
  local since = p:pick { -800, -801, -8, 0, 80 }
  c.cmd("SET", COUNTER, p:pick { text(NOW + since), text(NOW + since), text(NOW + since), "x", "-5" })
  if p:chance(85) then c.cmd("PEXPIRE", COUNTER, p:pick { 600000, 618750, 5000, 100000000 }) end
end

local function listen(c, p)
  local all = {}
  for _, client in ipairs(CLIENTS) do
    if p:chance(70) then all[#all + 1] = c.listen("holdfast_grant:" .. client) end
  end
  if p:chance(25) then all[#all + 1] = c.listen(CHANNEL) end
  if p:chance(20) then all[#all + 1] = c.listen(CHANNEL, true) end
  if p:chance(10) then all[#all + 1] = c.listen("holdfast_listening:{k}", true) end
  return all
end

local function any_grant() return true end

-- ---- calls: → the keys, the arguments ----

local FOUR = { LOCK, COUNTER, QUEUE, CHANNEL }
local FIVE = { LOCK, COUNTER, QUEUE, CHANNEL, LEASES }

local function hold(c, p, name, holder)
  if not holder then return end
  local words = name:find "^mutex" and { "SET", LOCK, holder } or { "HSET", LOCK, holder, p:pick { 1, 2 } }
  c.cmd(unpack(words))
  if p:chance(95) then c.cmd("PEXPIRE", LOCK, p:pick { 20000, 30000, 60000 }) end
end

local function fill_lock(c, p, name, own, holders)
  hold(c, p, name, p:pick(holders))
  fill_queue(c, p, name:find "^mutex" and "m" or "l", own, any_grant)
  fill_counter(c, p)
end

local function acquire(c, p, name)
  local kind, number = name:find "^mutex" and "m" or "l", p:pick { "1", "1", "2", "07" }
  local owner, ttl = A .. ":" .. number, p:pick { TTL, TTL, "0", "9007199254740991" }
  local own = member(kind, A, number, ttl)
  local others = { B .. ":1", B .. ":3", C .. ":2", A .. ":2", B .. ":07", JAVA, "svc" }
  fill_lock(c, p, name, own, { false, owner, p:pick(others), p:pick(others) })
  if p:chance(20) then return FOUR, owner, LEASE, ttl end
  local from = p:chance(15) and "1" or "0"
  local words = { owner, GRANT, from, "0", LEASE, ttl, p:chance(75) and own or "" }
  if p:chance(8) then words[8], words[9] = "", text(NOW + 999) end
  return FOUR, unpack(words)
end

local function release(c, p, name)
  local owner = A .. ":" .. p:pick { "1", "1", "2", "07" }
  local own = member(name:find "^mutex" and "m" or "l", A, "3")
  fill_lock(c, p, name, own, { owner, owner, owner, owner, B .. ":1", false })
  if p:chance(50) then return FOUR, owner end
  return FOUR, owner, GRANT, p:pick { "0", "0", "1" }, LEASE, p:pick { "", "", "1", "once" }
end

local function take_permits(c, owner)
  for _, id in ipairs(wire.ids_of(owner)) do c.cmd("ZADD", LEASES, text(NOW / 1000 + 700), id) end
end

local function fill_pool(c, p, own)
  if p:chance(95) then c.cmd("SET", LOCK, p:pick { 0, 0, 0, 1, 1, 3 }) end
  local third = p:chance(30) and A .. ":1" or B .. ":9"
  for _, owner in ipairs { B .. ":9", C .. ":9*2", third } do take_permits(c, owner) end
  if p:chance(25) then c.cmd("ZADD", LEASES, text(NOW / 1000 + 900), JAVA_PERMIT) end
  if p:chance(20) then c.cmd("DEL", LEASES) end
  fill_queue(c, p, "p", own, function(name)
    local owner = name:match "^1p[%x-]+:%d+:%d+ (.*)$" or name:match "^1p([%x-]+:%d+):%d+$"
    local is_usual = owner and wire.is_permit_owner(owner)
    if is_usual and p:chance(80) then take_permits(c, owner) end -- others were reclaimed
    return is_usual
  end)
  fill_counter(c, p)
end

local function permit_acquire(c, p)
  local number, ttl = p:pick { "1", "1", "2" }, p:pick { TTL, TTL, "0" }
  local own = member("p", A, number, ttl)
  fill_pool(c, p, own)
  return FIVE, A .. ":" .. number .. p:pick { "", "", "", "*2" }, GRANT, "0", "0", LEASE, ttl,
    p:chance(75) and own or "", "", "", p:chance(70) and "5" or nil
end

local function permit_release(c, p)
  local own = member("p", A, "1")
  fill_pool(c, p, own)
  if p:chance(90) then take_permits(c, A .. ":1") end
  return FIVE, A .. ":1", GRANT, "0", LEASE, "", p:chance(50) and own or nil
end

local READERS = { A .. ":1", B .. ":1", C .. ":1", JAVA }

local function hold_key(owner, n) return ("{k}:%s:rwlock_timeout:%d"):format(owner, n) end

-- The lock's TTL is that of its longest hold.
local function lives(c, ms)
  if c.cmd("PTTL", LOCK) < ms then c.cmd("PEXPIRE", LOCK, ms) end
end

local function read_as(c, p, owner)
  local count, ms = p:pick { 1, 1, 2 }, p:pick { 10000, 20000, 30000 }
  c.cmd("HSET", LOCK, "mode", "read", owner, count)
  for n = 1, count do c.cmd("SET", hold_key(owner, n), 1, "PX", ms) end
  lives(c, ms)
end

-- mode: what the caller holds, or nil
local function fill_read_write(c, p, owner, mode, own)
  local held = mode or p:pick { "none", "read", "read", "write" }
  if held == "read" then
    if mode then read_as(c, p, owner) end
    for _ = 1, p:range(mode and 0 or 1, 2) do
      local reader = p:pick(READERS)
      if c.cmd("HEXISTS", LOCK, reader) == 0 then read_as(c, p, reader) end
    end
  elseif held == "write" then
    c.cmd("HSET", LOCK, "mode", "write", mode and owner or B .. ":1:write", p:pick { 1, 1, 2 })
    lives(c, p:pick { 20000, 30000 })
  end
  fill_queue(c, p, p:pick { "r", "w" }, own, any_grant)
  fill_counter(c, p)
end

local function read_write_acquire(c, p)
  local writes, number, ttl = p:chance(50), p:pick { "1", "2" }, p:pick { TTL, TTL, "0" }
  local owner, own = A .. ":" .. number, member(writes and "w" or "r", A, number, ttl)
  if writes then owner = owner .. ":write" end
  fill_read_write(c, p, owner, nil, own)
  local from, waiter = p:chance(10) and "1" or "0", p:chance(40) and own or ""
  return FOUR, owner, GRANT, from, "0", LEASE, ttl, waiter, "", "", ""
end

local function read_write_release(c, p)
  local writes = p:chance(50)
  local owner = A .. (writes and ":1:write" or ":1")
  local own = member(writes and "w" or "r", A, "1")
  fill_read_write(c, p, owner, p:chance(90) and (writes and "write" or "read") or nil, own)
  return FOUR, owner, GRANT, p:pick { "0", "0", "0", "1" }, LEASE, "", p:chance(30) and own or nil
end

-- Programs; the function that makes a state and a call; texts in them, and what stands there
-- without the straight-line code.
local ROWS = {
  { "acquire sharded_acquire mutex_acquire", acquire,
    { "holder = SHORT or ARGV[3] == '0',", "holder = false," } },
  { "release sharded_release", release,
    { "if client and #place == 16", "if false" }, { "if kind and place and", "if false and" } },
  { "mutex_release", release, { "if kind and place and", "if false and" } },
  { "rw_acquire sharded_rw_acquire", read_write_acquire,
    { "local FREE = FROM == 0 and", "local FREE = false and" },
    { "if FROM == 0 and holds == 0 and (not", "if false and (not" } },
  { "rw_release sharded_rw_release", read_write_release,
    { "if REMAINING == 0 and holds == 1 and", "if false and" } },
  { "permit_acquire sharded_permit_acquire", permit_acquire,
    { "local ONE = (first_end or ENDLESS) > NOW", "local ONE = false" } },
  { "permit_release sharded_permit_release", permit_release,
    { "if first_two and first_two[1] then", "if false then" } },
}

local function without_head(row, program)
  for i = 3, #row do
    local from, to = program:find(row[i][1], 1, true)
    assert(from and not program:find(row[i][1], to, true), row[i][1])
    program = program:sub(1, from - 1) .. row[i][2] .. program:sub(to + 1)
  end
  return program
end

local READS = {
  string = { "GET" }, hash = { "HGETALL" }, zset = { "ZRANGE", 0, -1, "WITHSCORES" },
}

-- → the keys' contents and TTLs. taken: the caller got its permit; in the long way it was in the
-- queue before that, which then lives longer
local function contents(c, taken)
  local all, keys = {}, { unpack(FIVE) }
  for _, owner in ipairs(READERS) do
    for n = 1, 2 do keys[#keys + 1] = hold_key(owner, n) end
  end
  for _, key in ipairs(keys) do
    local read = READS[c.cmd("TYPE", key).ok] or {}
    local ttl = c.cmd("PTTL", key)
    if taken and key == QUEUE then ttl = 0 end
    all[#all + 1] = read[1] and { c.cmd(read[1], key, unpack(read, 2)), ttl } or "none"
  end
  return all
end

-- → what a call in the state that this seed makes does, in words
local function seen_of(name, program, call, seed)
  local seen
  local function run(c)
    local p = Prng.new(seed)
    local listeners, words = listen(c, p), { n = 0 }
    local function keep(...) words = { n = select("#", ...), ... } end
    keep(call(c, p, name))
    local reply = c.run(name, unpack(words, 1, words.n))
    if type(reply) ~= "table" then reply = { reply } end
    if reply[1] == 0 and reply[3] then reply[3] = math.min(reply[3], 1) end -- may be too high
    seen = { reply.err and "error" or reply, contents(c, name:find "permit" and reply[1] == 1) }
    for _, listener in ipairs(listeners) do seen[#seen + 1] = listener.received() end
  end
  local problem = case_runner.run({ name, run }, { [name] = program })
  return case_runner.in_words(assert(not problem and seen, problem))
end

local long_way = {}

-- Tries `count` states, from seed `from`, with each program. → nil | what differs first
function long_way.check(from, count)
  for _, row in ipairs(ROWS) do
    for name in row[1]:gmatch "%S+" do
      local program = programs[name]
      local long = without_head(row, program)
      for seed = from, from + count - 1 do
        local short_seen = seen_of(name, program, row[2], seed)
        local long_seen = seen_of(name, long, row[2], seed)
        if short_seen ~= long_seen then
          return ("%s, seed %d:\n  %s\nwithout the straight-line code:\n  %s"):format(name, seed,
            short_seen, long_seen)
        end
      end
    end
  end
end

return long_way
