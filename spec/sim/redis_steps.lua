-- Random command sequences for Redis, from a seed. They use few names, so that keys of all types
-- clash, and many odd arguments. Integers stay within 2^53, and no key has so short a TTL that the
-- time of day could matter.
--
-- A step is one of
--   { client =, args =, loose =, sorted = }   loose: integers in the reply are times; sorted: its
--                                             order means nothing
--   { fault = "oom" or "noreplicas", on = boolean }
--   { fault = "deny", name = command, on = boolean }
-- Clients from LISTENER on mostly listen.

local Prng = require "spec.sim.prng"
local programs = require "spec.sim.programs"
local sha1 = require("holdfast.core").sha1

local steps = { CLIENTS = 4, LISTENER = 3 }

local KEYS = { "a", "b", "c", "{d}", "e\0f" }
local FIELDS = { "x", "y", "z", "long field", "" }
local VALUES = { "0", "1", "-7", "12", "abc", "", "9007199254740000", "1.5", " 3", "03", "v\r\nw\0",
  "+4" }
local INTEGERS = { "0", "1", "-1", "2", "-3", "7", "100", "x", "", "1.5", "99999999999999999999" }
local SCORES = { "1", "2", "2.5", "-3", "0", "10", "1e3", "inf", "-inf", "0x10", "x", "nan", " 1" }
local BOUNDS = { "1", "(1", "2", "(2.5", "-inf", "+inf", "inf", "(0", "10", "(x", "", "-3" }
local TTLS = { "20000", "500000", "90000000", "0", "-5", "x", "1.5" }
local CHANNELS = { "news", "new", "n[a]ws", "h\\i", "" }
local PATTERNS = { "n*", "ne?s", "n[a-f]ws", "n[^x]w", "*", "n\\[a\\]ws", "[", "h\\\\i", "x" }
local NUMBERS = { "0", "1", "-1.5", "1e15", "123456789012345", "0.1", "1e20", "-2.9", "inf", "0x1F",
  " 7 ", "x", "" }

-- A template is a list of words, of pools to pick from, and of functions(prng, args) that append
-- words.

local function some(low, high, ...)
  local pools = { ... }
  return function(prng, args)
    for _ = 1, prng:range(low, high) do
      for _, pool in ipairs(pools) do args[#args + 1] = prng:pick(pool) end
    end
  end
end

local function one_of(...)
  local lists = { ... }
  return function(prng, args)
    for _, word in ipairs(prng:pick(lists)) do args[#args + 1] = word end
  end
end

-- No two are equal, as GT and LT compare moments.
local function distinct_ttl(prng, args)
  args[#args + 1] = tostring(prng:range(1, 1000000) * 1000 + 20000)
end

local function build(prng, template)
  local args = {}
  for _, item in ipairs(template) do
    if type(item) == "string" then
      args[#args + 1] = item
    elseif type(item) == "table" then
      args[#args + 1] = prng:pick(item)
    else
      item(prng, args)
    end
  end
  return args
end

local SET_OPTIONS = one_of({}, {}, { "NX" }, { "xx" }, { "PX", "70000" }, { "EX", "100" },
  { "KEEPTTL" }, { "GET" },
  { "NX", "GET" }, { "PX", "500000", "NX" }, { "EX" }, { "FOO" }, { "NX", "XX" },
  { "KEEPTTL", "PX", "90000" },
  { "EXAT", "99999999999" }, { "PXAT", "99999999999999" }, { "PX", "0" }, { "EX", "x" },
  { "NX", "NX" },
  { "PX", "1", "EX", "1" })

local STRINGS = {
  { "GET", KEYS }, { "SET", KEYS, VALUES, SET_OPTIONS }, { "SET", KEYS, VALUES, SET_OPTIONS },
  { "DEL", some(1, 2, KEYS) }, { "EXISTS", some(1, 3, KEYS) }, { "TYPE", KEYS }, { "INCR", KEYS },
  { "DECR", KEYS },
  { "INCRBY", KEYS, INTEGERS }, { "DECRBY", KEYS, INTEGERS }, { "KEYS", { "*", "[ab]", "?", "\\{*" } }, { "DBSIZE" },
  { "PEXPIRE", KEYS, TTLS }, { "PEXPIRE", KEYS, distinct_ttl, { "NX", "XX", "GT", "LT", "FOO" } },
  { "PEXPIRE", KEYS, distinct_ttl, some(2, 2, { "NX", "XX", "GT", "LT" }) },
  { "EXPIRE", KEYS, { "100", "4000", "0", "-1" } }, { "PTTL", KEYS }, { "TTL", KEYS },
  { "PERSIST", KEYS }, { "APPEND", KEYS, VALUES }, { "SETNX", KEYS, VALUES },
  { "SETEX", KEYS, { "100", "0", "-1", "x" }, VALUES }, { "PSETEX", KEYS, { "70000", "0", "1.5" }, VALUES },
}

local HASHES = {
  { "HSET", KEYS, some(1, 3, FIELDS, VALUES) }, { "HSET", KEYS, some(1, 3, FIELDS, VALUES) },
  { "HGET", KEYS, FIELDS },
  { "HDEL", KEYS, some(1, 2, FIELDS) }, { "HEXISTS", KEYS, FIELDS },
  { "HMGET", KEYS, some(1, 3, FIELDS) },
  { "HKEYS", KEYS }, { "HGETALL", KEYS },
  { "HSCAN", KEYS, "0", one_of({}, { "COUNT", "100" }, { "count", "0" }, { "COUNT" }) },
  { "HLEN", KEYS }, { "HINCRBY", KEYS, FIELDS, INTEGERS },
  { "HMSET", KEYS, some(1, 2, FIELDS, VALUES) },
}

local ZSETS = {
  { "ZADD", KEYS, some(1, 3, SCORES, FIELDS) }, { "ZADD", KEYS, some(1, 3, SCORES, FIELDS) },
  { "ZADD", KEYS, some(1, 2, { "NX", "XX", "CH" }), some(1, 2, SCORES, FIELDS) },
  { "ZREM", KEYS, some(1, 2, FIELDS) }, { "ZINCRBY", KEYS, SCORES, FIELDS },
  { "ZRANGE", KEYS, INTEGERS, INTEGERS, one_of({}, { "WITHSCORES" }, { "REV" },
    { "rev", "withscores" }, { "X" }) },
  { "ZRANGEBYSCORE", KEYS, BOUNDS, BOUNDS,
    one_of({}, { "WITHSCORES" }, { "LIMIT", "1", "2" }, { "limit", "0", "-1" },
      { "LIMIT", "-1", "1" },
      { "LIMIT", "x", "1" }) },
  { "ZSCORE", KEYS, FIELDS }, { "ZRANK", KEYS, FIELDS }, { "ZCARD", KEYS },
  { "ZCOUNT", KEYS, BOUNDS, BOUNDS },
  { "ZREMRANGEBYSCORE", KEYS, BOUNDS, BOUNDS }, { "ZPOPMIN", KEYS, some(0, 1, INTEGERS) },
}

local LISTS = {
  { "RPUSH", KEYS, some(1, 3, FIELDS) }, { "RPUSH", KEYS, some(1, 3, FIELDS) },
  { "LPUSH", KEYS, some(1, 2, FIELDS) }, { "LPOP", KEYS }, { "LLEN", KEYS }, { "LINDEX", KEYS, INTEGERS },
  { "LRANGE", KEYS, INTEGERS, INTEGERS }, { "LREM", KEYS, INTEGERS, FIELDS },
  { "RPOP", KEYS, some(0, 1, INTEGERS) },
}

local SETS = {
  { "SADD", KEYS, some(1, 3, FIELDS) }, { "SADD", KEYS, some(1, 2, INTEGERS) },
  { "SREM", KEYS, some(1, 2, FIELDS) }, { "SISMEMBER", KEYS, FIELDS }, { "SCARD", KEYS },
  { "SMEMBERS", KEYS },
}

local SERVER = {
  { "PING" }, { "PING", VALUES }, { "ECHO", VALUES }, { "TIME", "x", "y" },
  { "SELECT", { "0", "0", "1", "16", "-1", "x" } },
  { "WAIT", "0", "0" }, { "WAIT", { "x", "1" }, { "1", "-1", "x" } },
  { "FLUSHALL", some(0, 1, { "SYNC", "FOO" }) },
  { "CLIENT", "SETNAME", { "me", "", "two words" } }, { "CLIENT", "GETNAME" }, { "CLIENT", "NOPE" },
  { "CLIENT" },
  { "CLIENT", "KILL", { "ID", "TYPE", "X" }, { "0", "x", "999999999", "master" } },
  { "SCRIPT", "EXISTS", sha1("return 1"), "abc" },
  { "SCRIPT", "FLUSH", some(0, 1, { "ASYNC", "FOO" }) },
  { "SCRIPT", "LOAD", { "return 1", "return (" } }, { "EVALSHA", { sha1("return 1"), "abc" }, "0" },
  { "AUTH", VALUES }, { "AUTH", "default", VALUES }, { "AUTH", "nobody", "x" },
  { "NOPE", some(0, 3, VALUES) },
}

local MESSAGES = {
  { "PUBLISH", CHANNELS, VALUES }, { "PUBLISH", CHANNELS, VALUES },
  { "PUBSUB", "CHANNELS", some(0, 1, PATTERNS) },
  { "PUBSUB", "NUMSUB", some(0, 3, CHANNELS) }, { "PUBSUB", "NUMPAT" }, { "PUBSUB", "NOPE" },
}

local LISTENING = {
  { "SUBSCRIBE", some(1, 3, CHANNELS) }, { "SUBSCRIBE", some(1, 3, CHANNELS) },
  { "PSUBSCRIBE", some(1, 2, PATTERNS) },
  { "UNSUBSCRIBE", some(0, 2, CHANNELS) }, { "PUNSUBSCRIBE", some(0, 2, PATTERNS) }, { "PING" },
  { "PING", VALUES },
  { "GET", KEYS },
}

local WRAPPERS = {
  "return redis.call(unpack(ARGV))",
  "return redis.pcall(unpack(ARGV))",
  "local ok, reply = pcall(redis.call, unpack(ARGV)) return { tostring(ok), type(reply), reply }",
  "local list = { redis.pcall(unpack(ARGV)), redis.pcall('PING') } list[3] = 'end' return list",
}

local SCRIPTS = {
  "return { tostring(tonumber(ARGV[1])), type(tonumber(ARGV[2])), tostring(tonumber('1f', 16)) }",
  "return ARGV[1] .. (tonumber(ARGV[2]) or 2) / 3",
  "return { 1, 2.9, -2.9, true, false, 'x', { ok = 'fine' }, { err = 'E no' }, { 1, { 2 } }, nil, 4 }",
  "return { #ARGV, #KEYS, #ARGV[1], KEYS[1], 'n' .. #ARGV }",
  "return string.format('%d|%s|%5.2f|%x|%%|%s', 3.7, 12, 2.345, 255.9, type(ARGV[1]))",
  "redis.call('SET', 'n', tonumber(ARGV[1]) or 0.5) return redis.call('GET', 'n')",
  "return { ('abcdef'):sub(1.5, 3.9), ('x'):rep(2.7), (('a.b'):gsub('%.', '-')), ('k=v'):match('(%w)=(%w)') }",
  "local t = {} for k, v in ipairs(ARGV) do t[#t + 1] = k .. '=' .. v end return table.concat(t, ',')",
  "local t = { 3, 1, 2 } table.sort(t) table.insert(t, 9) table.remove(t, 1) return table.concat(t, ' ', 1, 3)",
  "return struct.pack('>I4I4I2I1', #ARGV, 4294967295, '258', 7)",
  "return redis.error_reply(ARGV[1])",
  "return redis.status_reply(ARGV[1])",
  "return { math.floor(7.9) .. '', math.max(1, 2.5) .. '', 2^53 .. '', 10 % 3 .. '', -7 % 3 .. '', 7 / 2 .. '' }",
  "local a = nil\nreturn a.b",
  "return undefined_name",
  "created = 1",
  "error(ARGV[1])",
  "error({ err = 'E own' })",
  "return {",
  "return select('#', unpack(ARGV)) .. _VERSION .. tostring(ARGV[9])",
  "return { next({}) == nil, rawget({ 5 }, 1), ARGV[1] == ARGV[2], ARGV[1] < ARGV[2], not nil and 1 or 2 }",
  "local s = redis.sha1hex(ARGV[1]) return { s, s:len(), s:upper():lower() == s, s:byte(1) }",
  "return '10' + 5 .. '' .. '3' * '4'",
}

local LOOSE = { PTTL = true, TTL = true }
local SORTED = {
  KEYS = true, SMEMBERS = true, CHANNELS = true, UNSUBSCRIBE = true, PUNSUBSCRIBE = true,
}

local function has(args, names)
  for _, word in ipairs(args) do
    if names[word:upper()] then return true end
  end
  return false
end

local function step_of(client, args)
  return { client = client, args = args, loose = has(args, LOOSE), sorted = has(args, SORTED) }
end

-- Changes the number of arguments, or the spelling of the name.
local function spoil(prng, args)
  local may_be_longer = args[1] ~= "ZRANK" -- from Redis 7.2 on, it takes an option
  if prng:chance(3) and may_be_longer then args[#args + 1] = "more" end
  if prng:chance(3) and #args > 1 then args[#args] = nil end
  if prng:chance(10) then args[1] = args[1]:lower() end
  return args
end

local function talker(prng)
  return prng:range(1, steps.LISTENER - 1)
end

local function from(templates)
  return function(prng)
    return step_of(talker(prng), spoil(prng, build(prng, prng:pick(templates))))
  end
end

local kinds = {}

kinds.strings, kinds.hashes, kinds.zsets = from(STRINGS), from(HASHES), from(ZSETS)
kinds.lists, kinds.sets = from(LISTS), from(SETS)
kinds.server, kinds.messages = from(SERVER), from(MESSAGES)

function kinds.listening(prng)
  return step_of(prng:range(steps.LISTENER, steps.CLIENTS),
    spoil(prng, build(prng, prng:pick(LISTENING))))
end

function kinds.wrapped(prng)
  local inner = build(prng, prng:pick(prng:pick { STRINGS, HASHES, ZSETS, SERVER, MESSAGES,
    LISTENING }))
  if inner[1] == "WAIT" then inner = { "PING" } end -- a script may send it since Redis 7.2
  local args = { "EVAL", prng:pick(WRAPPERS), "0" }
  for _, word in ipairs(spoil(prng, inner)) do args[#args + 1] = word end
  return step_of(talker(prng), args)
end

function kinds.script(prng)
  local args = { "EVAL", prng:pick(SCRIPTS), prng:pick { "0", "1", "2", "1", "9", "x", "-1" } }
  for _ = 1, prng:range(3, 5) do args[#args + 1] = prng:pick(prng:pick { NUMBERS, VALUES }) end
  return step_of(talker(prng), args)
end

function kinds.fault(prng)
  if prng:chance(50) then
    return { fault = prng:pick { "oom", "noreplicas" }, on = prng:chance(30) }
  end
  local name = prng:pick { "hset", "zadd", "publish", "pubsub|numsub", "script|load", "set",
    "eval" }
  return { fault = "deny", name = name, on = prng:chance(30) }
end

-- The real programs, on two locks.

local UUIDS = { "0a0a0a0a-1111-8222-8333-444444444444", "1b1b1b1b-1111-8222-8333-444444444444",
  "2c2c2c2c-1111-8222-8333-444444444444" }
local JAVA = "3d3d3d3d-1111-4222-8333-444444444444:17"
local LOCKS = { "lock", "{lock}2" }
local OFTEN_FIRST = { 1, 1, 1, 1, 1, 1, 2 }
local LEASES = { "30000", "60000" }
local TOKEN_TTLS = { "0", "600000", "600000", "700000" }

local digests = {}

local function digest_of(name)
  digests[name] = digests[name] or sha1(programs[name])
  return digests[name]
end

local function keys_of(lock)
  return { lock, "counter:" .. lock, "queue:" .. lock, "releases:" .. lock }
end

local function owner_of(prng)
  return prng:chance(6) and JAVA or prng:pick(UUIDS) .. ":" .. prng:pick(OFTEN_FIRST)
end

local function waiter_of(prng, owner)
  if prng:chance(1) then return "odd" end
  return ("%s:%d:%s %s"):format(owner:sub(1, 36), prng:pick(OFTEN_FIRST), prng:pick(TOKEN_TTLS),
    owner)
end

local function maybe_waiter(prng, owner)
  return prng:chance(60) and waiter_of(prng, owner) or ""
end

-- name → function(prng, keys, owner): its ARGV
local calls = {}

function calls.acquire(prng, _, owner)
  return { owner, "20000", prng:pick { "0", "0", "0", "0", "0", "1", "2" },
    prng:pick { "0", "0", "0", "1" },
    prng:pick(LEASES), prng:pick(TOKEN_TTLS), maybe_waiter(prng, owner) }
end

function calls.begin(prng, keys, owner)
  local values = calls.acquire(prng, keys, owner)
  values[8] = prng:pick { "", "", "print", "other" }
  return values
end

local function maybe_own(prng)
  return prng:pick { "", "", "0", "1" }
end

function calls.release(prng, _, owner)
  return { owner, "20000", prng:pick { "0", "0", "1" }, prng:pick(LEASES), maybe_own(prng) }
end

function calls.leave(prng, _, owner)
  return { owner, "20000", prng:pick { "0", "0", "1" }, maybe_waiter(prng, owner), maybe_own(prng) }
end

function calls.complete(prng, _, owner)
  return { owner, "20000", prng:pick { "0", "50000" }, prng:pick { "", "print" },
    prng:pick(VALUES) }
end

function calls.force(_, _, owner) return { owner, "20000" } end

function calls.extend(prng, keys, owner)
  keys[2], keys[3], keys[4] = keys[3], nil, nil
  return { owner, prng:pick { "0", "40000", "90000" }, prng:pick { "0", "1" } }
end

function calls.info(prng, keys, owner)
  keys[4] = nil
  return { maybe_waiter(prng, owner) }
end

function calls.renew(prng, keys, owner)
  for i = 1, 4 do keys[i] = LOCKS[i] end
  return { owner, prng:pick(LEASES), owner_of(prng), prng:pick(LEASES) }
end

local function both_locks(keys)
  for i, lock in ipairs(LOCKS) do
    for j, key in ipairs(keys_of(lock)) do keys[4 * i - 4 + j] = key end
  end
end

function calls.acquire_all(prng, keys, owner)
  both_locks(keys)
  return { owner, "20000", prng:pick(LEASES), prng:pick(TOKEN_TTLS),
    prng:pick { "0", "0", "0", "1" },
    prng:pick { "0", "0", "0", "1" } }
end

function calls.release_all(prng, keys, owner)
  both_locks(keys)
  return { owner, "20000", prng:pick { "0", "0", "1" }, prng:pick(LEASES),
    prng:pick { "0", "0", "1" },
    prng:pick(LEASES) }
end

local OFTEN = { "acquire", "acquire", "acquire", "acquire", "release", "release", "release",
  "leave", "force", "extend",
  "info", "renew" }
local SELDOM = { "acquire_all", "release_all", "begin", "begin", "complete" }

-- Rarely a program of a mutex, which has its own keys.
local function choose_program(prng)
  local name = prng:pick(prng:chance(75) and OFTEN or SELDOM)
  if prng:chance(20) and programs["mutex_" .. name] then return name, "mutex_" .. name, "mutex" end
  return name, name, LOCKS[prng:pick(OFTEN_FIRST)]
end

local function program_step(prng)
  local name, title, lock = choose_program(prng)
  local owner, keys = owner_of(prng), keys_of(lock)
  local values = calls[name](prng, keys, owner)
  local args = prng:chance(30) and { "EVALSHA", digest_of(title) } or { "EVAL", programs[title] }
  args[3] = tostring(#keys)
  for _, key in ipairs(keys) do args[#args + 1] = key end
  for _, value in ipairs(values) do args[#args + 1] = value end
  local step = step_of(talker(prng), args)
  step.loose, step.title = true, title
  return step
end

-- What else may happen to the keys of a lock, above all expiry.
local function fault(prng)
  local keys = keys_of(LOCKS[prng:pick(OFTEN_FIRST)])
  local owner = owner_of(prng)
  local list = prng:pick {
    { { "DEL", keys[1] }, { "DEL", keys[1] }, { "DEL", keys[1] }, { "DEL", keys[1] },
      { "DEL", keys[3] },
      { "DEL", keys[2] } },
    { { "HGETALL", keys[1] }, { "ZRANGE", keys[3], "0", "-1", "WITHSCORES" },
      { "PTTL", keys[prng:range(1, 3)] } },
    { { "SET", keys[2], prng:pick(VALUES) }, { "PERSIST", keys[1] }, { "PERSIST", keys[2] },
      { "HSET", keys[1], owner, prng:pick { "1", "2", "x" } }, { "PEXPIRE", keys[1], "90000" },
      { "ZADD", keys[3], prng:pick { "0", "1", "2.5", "-99999999999999" },
        prng:pick { "foreign", "1f 6 0 0 0", "1f 0 2 0 0", waiter_of(prng, owner) } } },
  }
  if prng:chance(3) then list = { { "SET", keys[1], "x" }, { "SET", keys[3], "x" } } end
  return step_of(talker(prng), prng:pick(list))
end

local function lock_listening(prng)
  local channels = { "releases:" .. prng:pick(LOCKS) }
  for _, uuid in ipairs(UUIDS) do channels[#channels + 1] = "holdfast_grant:" .. uuid end
  local name = prng:pick { "SUBSCRIBE", "SUBSCRIBE", "SUBSCRIBE", "UNSUBSCRIBE" }
  return step_of(prng:range(steps.LISTENER, steps.CLIENTS), { name, prng:pick(channels) })
end

local PLAIN_KINDS = { "strings", "hashes", "zsets", "zsets", "lists", "sets", "server", "messages", "listening",
  "wrapped", "script" }

local function any_step(prng)
  return kinds[prng:pick(PLAIN_KINDS)](prng)
end

local function lock_step(prng)
  local percent = prng:range(1, 100)
  if percent <= 75 then return program_step(prng) end
  if percent <= 90 then return lock_listening(prng) end
  return fault(prng)
end

-- A sequence of `count` steps. Odd seeds are about locks, even ones about single commands.
function steps.generate(seed, count)
  local prng = Prng.new(seed)
  local with_faults = prng:chance(30)
  local list = {}
  for i = 1, count do
    if with_faults and prng:chance(4) then
      list[i] = kinds.fault(prng)
    elseif seed % 2 == 1 then
      list[i] = lock_step(prng)
    else
      list[i] = any_step(prng)
    end
  end
  return list
end

local function shown(word)
  if #word > 200 then word = "<" .. #word .. " bytes, sha1 " .. sha1(word) .. ">" end
  return (("%q"):format(word):gsub("\\\n", "\\n"):gsub("[%z\1-\31\127-\255]", function(char)
    return ("\\x%02x"):format(char:byte())
  end))
end

function steps.describe(step)
  if step.fault then
    return ("fault %s %s %s"):format(step.fault, step.name or "", step.on and "on" or "off")
  end
  local words = {}
  for i, word in ipairs(step.args) do words[i] = shown(word) end
  return ("client %d: %s%s"):format(step.client, step.title and step.title .. " " or "",
    table.concat(words, " "))
end

return steps
