-- Commands on hashes. strings.lua describes the format of the entries.

local arguments = require "holdfast.testing.redis.arguments"
local fail = require "holdfast.testing.redis.fail"

local commands = {}

local function value_of(client, key, field)
  local hash = client.db:get(key, "hash")
  return hash and hash.values[field]
end

commands.HSET = { -4, "wm", function(client, args)
  if #args % 2 == 1 then
    fail(("ERR wrong number of arguments for '%s' command"):format(args[1]:lower()))
  end
  local hash, added = client.db:open(args[2], "hash"), 0
  for i = 3, #args, 2 do
    if hash:set(args[i], args[i + 1]) then added = added + 1 end
  end
  return added
end }

commands.HMSET = { -4, "wm", function(client, args)
  commands.HSET[3](client, args)
  return { ok = "OK" }
end }

commands.HGET = { 3, "r", function(client, args)
  return value_of(client, args[2], args[3]) or false
end }

commands.HMGET = { -3, "r", function(client, args)
  local list = {}
  for i = 3, #args do list[i - 2] = value_of(client, args[2], args[i]) or false end
  return list
end }

commands.HEXISTS = { 3, "r", function(client, args)
  return value_of(client, args[2], args[3]) and 1 or 0
end }

commands.HLEN = { 2, "r", function(client, args)
  local hash = client.db:get(args[2], "hash")
  return hash and hash.count or 0
end }

commands.HDEL = { -3, "w", function(client, args)
  return client.db:remove_members(args, "hash")
end }

commands.HKEYS = { 2, "r", function(client, args)
  local hash, list = client.db:get(args[2], "hash"), {}
  for i, field in ipairs(hash and hash.fields or {}) do list[i] = field end
  return list
end }

local MAX_SMALL_SIZE = 512 -- fields that a server returns in a single page

-- Returns a page, starting with the last fields, so that the others do not move when the caller
-- removes fields that it has received.
local function page_of(hash, cursor, count)
  local fields, list = hash.fields, {}
  local last = cursor == 0 and #fields or math.min(cursor, #fields)
  local first = cursor == 0 and last <= MAX_SMALL_SIZE and 1 or math.max(1, last - count + 1)
  for i = first, last do
    list[#list + 1] = fields[i]
    list[#list + 1] = hash.values[fields[i]]
  end
  return { ("%d"):format(first - 1), list }
end

commands.HSCAN = { -3, "r", function(client, args)
  if not args[3]:find("^%d+$") then fail("ERR invalid cursor") end
  local hash, count = client.db:get(args[2], "hash"), 10
  if not hash then return { "0", {} } end
  for i = 4, #args, 2 do
    if args[i]:upper() ~= "COUNT" or not args[i + 1] then fail("ERR syntax error") end
    count = arguments.integer(args[i + 1])
    if count < 1 then fail("ERR syntax error") end
  end
  return page_of(hash, tonumber(args[3]), count)
end }

commands.HGETALL = { 2, "r", function(client, args)
  local hash, list = client.db:get(args[2], "hash"), {}
  for _, field in ipairs(hash and hash.fields or {}) do
    list[#list + 1] = field
    list[#list + 1] = hash.values[field]
  end
  return list
end }

commands.HINCRBY = { 4, "wm", function(client, args)
  local amount = arguments.integer(args[4])
  local old = arguments.integer(value_of(client, args[2], args[3]) or "0",
    "ERR hash value is not an integer")
  local value = old + amount
  if value >= 2 ^ 63 or value < -2 ^ 63 then fail("ERR increment or decrement would overflow") end
  client.db:open(args[2], "hash"):set(args[3], arguments.integer_text(value))
  return value
end }

return commands
