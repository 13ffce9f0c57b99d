-- Commands for strings, for keys of any type, and for their expiry. Each entry is { arity, flags,
-- run(client, args) → reply }. The arity counts the command's name; a negative arity is a minimum.
-- redis.lua describes the flags.

local arguments = require "holdfast.testing.redis.arguments"
local fail = require "holdfast.testing.redis.fail"
local glob = require "holdfast.testing.redis.glob"

local OK = { ok = "OK" }
local EXPIRE_MAX = 9223372036854775807

local commands = {}

local function count_if(list, count_one)
  local total = 0
  for i = 2, #list do total = total + (count_one(list[i]) and 1 or 0) end
  return total
end

-- Returns the time `amount` units from now, or since the epoch if `absolute`, in ms. `unit_ms`: the
-- length of a unit.
local function expiry_time(client, amount, unit_ms, absolute)
  local ms = amount * unit_ms
  if not absolute then ms = ms + client.server:now_ms() end
  return ms < EXPIRE_MAX and ms > -EXPIRE_MAX and ms or nil
end

commands.GET = { 2, "r", function(client, args)
  return client.db:get(args[2], "string") or false
end }

commands.APPEND = { 3, "wm", function(client, args)
  local value = (client.db:get(args[2], "string") or "") .. args[3]
  local entry = client.db:find(args[2])
  client.db:put(args[2], "string", value, entry and entry.expires)
  return #value
end }

local EXPIRY = { EX = { 1000, false }, PX = { 1, false }, EXAT = { 1000, true },
  PXAT = { 1, true } }

local function parse_set_options(args)
  local options = {}
  local at = 4
  local function once(name)
    if options[name] then fail("ERR syntax error") end
    return true
  end
  while at <= #args do
    local name = args[at]:upper()
    if (name == "NX" or name == "XX") and not options.only then
      options.only = name
    elseif name == "GET" then
      options.get = true
    elseif name == "KEEPTTL" and once("expiry") then
      options.keep, options.expiry = true, "KEEPTTL"
    elseif EXPIRY[name] and args[at + 1] and once("expiry") then
      options.expiry, options.amount = name, args[at + 1]
      at = at + 1
    elseif options.only ~= name then
      fail("ERR syntax error")
    end
    at = at + 1
  end
  return options
end

local function expiry_from_options(client, options, command)
  if not options.amount then return nil end
  local amount = arguments.integer(options.amount)
  local unit_ms, absolute = EXPIRY[options.expiry][1], EXPIRY[options.expiry][2]
  local expires = amount > 0 and expiry_time(client, amount, unit_ms, absolute)
  return expires or fail(("ERR invalid expire time in '%s' command"):format(command:lower()))
end

commands.SET = { -3, "wm", function(client, args)
  local options = parse_set_options(args)
  local expires = expiry_from_options(client, options, args[1])
  local old = client.db:find(args[2])
  local reply = options.get and (client.db:get(args[2], "string") or false)
  if options.only == "NX" and old or options.only == "XX" and not old then return reply or false end
  client.db:put(args[2], "string", args[3], options.keep and old and old.expires or expires)
  if options.get then return reply end
  return OK
end }

commands.SETNX = { 3, "wm", function(client, args)
  if client.db:find(args[2]) then return 0 end
  client.db:put(args[2], "string", args[3])
  return 1
end }

for name, expiry in pairs { SETEX = "EX", PSETEX = "PX" } do
  commands[name] = { 4, "wm", function(client, args)
    local expires = expiry_from_options(client, { expiry = expiry, amount = args[3] }, name)
    client.db:put(args[2], "string", args[4], expires)
    return OK
  end }
end

commands.DEL = { -2, "w", function(client, args)
  return count_if(args, function(key) return client.db:remove(key) end)
end }

commands.EXISTS = { -2, "r", function(client, args)
  return count_if(args, function(key) return client.db:find(key) end)
end }

commands.TYPE = { 2, "r", function(client, args)
  local entry = client.db:find(args[2])
  return { ok = entry and entry.kind or "none" }
end }

commands.KEYS = { 2, "r", function(client, args)
  local list = {}
  for _, key in ipairs(client.db:keys()) do
    if glob(args[2], key) then list[#list + 1] = key end
  end
  return list
end }

-- Returns all matching keys at once.
commands.SCAN = { -2, "r", function(client, args)
  if not args[2]:find("^%d+$") then fail("ERR invalid cursor") end
  local pattern = "*"
  for i = 3, #args, 2 do
    local name = args[i]:upper()
    if name == "TYPE" then arguments.unsupported("SCAN", name) end
    if name ~= "MATCH" and name ~= "COUNT" or not args[i + 1] then fail("ERR syntax error") end
    if name == "MATCH" then pattern = args[i + 1] else arguments.integer(args[i + 1]) end
  end
  return { "0", commands.KEYS[3](client, { "KEYS", pattern }) }
end }

commands.DBSIZE = { 1, "r", function(client) return #client.db:keys() end }

local function add(client, key, amount)
  local old = client.db:get(key, "string")
  local value = arguments.integer(old or "0") + amount
  if value >= 2 ^ 63 or value < -2 ^ 63 then fail("ERR increment or decrement would overflow") end
  local entry = client.db:find(key)
  client.db:put(key, "string", arguments.integer_text(value), entry and entry.expires)
  return value
end

commands.INCR = { 2, "wm", function(client, args) return add(client, args[2], 1) end }
commands.DECR = { 2, "wm", function(client, args) return add(client, args[2], -1) end }
commands.INCRBY = { 3, "wm", function(client, args)
  return add(client, args[2], arguments.integer(args[3]))
end }
commands.DECRBY = { 3, "wm", function(client, args)
  return add(client, args[2], -arguments.integer(args[3]))
end }

local function expire_options(args)
  local given = {}
  for i = 4, #args do
    local name = args[i]:upper()
    if name ~= "NX" and name ~= "XX" and name ~= "GT" and name ~= "LT" then
      fail("ERR Unsupported option " .. args[i])
    end
    given[name] = true
  end
  if given.NX and (given.XX or given.GT or given.LT) then
    fail("ERR NX and XX, GT or LT options at the same time are not compatible")
  end
  if given.GT and given.LT then
    fail("ERR GT and LT options at the same time are not compatible")
  end
  return given
end

local function expiry_allowed(given, old, new)
  if given.NX and old or given.XX and not old then return false end
  if given.GT and new <= (old or math.huge) then return false end
  return not (given.LT and old and new >= old)
end

local function expire(client, args, unit_ms)
  local given = expire_options(args)
  local expires = expiry_time(client, arguments.integer(args[3]), unit_ms)
  if not expires then fail(("ERR invalid expire time in '%s' command"):format(args[1]:lower())) end
  local entry = client.db:find(args[2])
  if not entry or not expiry_allowed(given, entry.expires, expires) then return 0 end
  entry.expires = expires
  if expires <= client.server:now_ms() then client.db:remove(args[2]) end
  return 1
end

commands.EXPIRE = { -3, "w", function(client, args) return expire(client, args, 1000) end }
commands.PEXPIRE = { -3, "w", function(client, args) return expire(client, args, 1) end }

local function ttl(client, key, unit_ms)
  local entry = client.db:find(key)
  if not entry then return -2 end
  if not entry.expires then return -1 end
  return math.floor((entry.expires - client.server:now_ms() + math.floor(unit_ms / 2)) / unit_ms)
end

commands.TTL = { 2, "r", function(client, args) return ttl(client, args[2], 1000) end }
commands.PTTL = { 2, "r", function(client, args) return ttl(client, args[2], 1) end }

commands.PERSIST = { 2, "w", function(client, args)
  local entry = client.db:find(args[2])
  if not entry or not entry.expires then return 0 end
  entry.expires = nil
  return 1
end }

return commands
