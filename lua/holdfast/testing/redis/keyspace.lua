-- The keys of one database. An entry is never empty, and never seen past its expiry: whoever looks
-- removes it. entry = { kind = "string" | "hash" | "list" | "zset", value =, expires = ms of server time |
-- nil }

local fail = require "holdfast.testing.redis.fail"
local Hash = require "holdfast.testing.redis.hash"
local Zset = require "holdfast.testing.redis.zset"

local function new_list() return { items = {}, count = 0 } end

local EMPTY = { hash = Hash.new, list = new_list, zset = Zset.new }

local Keyspace = {}
Keyspace.__index = Keyspace

-- now_ms: the server's time, asked at each look
function Keyspace.new(now_ms)
  return setmetatable({ entries = {}, now_ms = now_ms }, Keyspace)
end

-- → entry | nil
function Keyspace:find(key)
  local entry = self.entries[key]
  if entry and entry.expires and self.now_ms() > entry.expires then
    self.entries[key] = nil
    return nil
  end
  return entry
end

-- The value at key, which must be of that kind. → value | nil
function Keyspace:get(key, kind)
  local entry = self:find(key)
  if not entry then return nil end
  if entry.kind ~= kind then
    fail("WRONGTYPE Operation against a key holding the wrong kind of value")
  end
  return entry.value
end

-- The hash, list or zset at key, made if missing.
function Keyspace:open(key, kind)
  local value = self:get(key, kind)
  if not value then
    value = EMPTY[kind]()
    self:put(key, kind, value)
  end
  return value
end

function Keyspace:put(key, kind, value, expires)
  self.entries[key] = { kind = kind, value = value, expires = expires }
end

-- → whether it was there
function Keyspace:remove(key)
  local there = self:find(key) ~= nil
  self.entries[key] = nil
  return there
end

-- After elements were taken out of the hash, list or zset at key.
function Keyspace:trim(key)
  if self.entries[key].value.count == 0 then self.entries[key] = nil end
end

-- All live keys, sorted.
function Keyspace:keys()
  local list = {}
  for key in pairs(self.entries) do list[#list + 1] = key end
  table.sort(list)
  for i = #list, 1, -1 do
    if not self:find(list[i]) then table.remove(list, i) end
  end
  return list
end

return Keyspace
