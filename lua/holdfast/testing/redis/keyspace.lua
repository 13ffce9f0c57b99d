-- A database's keys. Between commands, no hash, list, set or zset is empty. The first access to an
-- expired entry removes it.
--
-- An entry is { kind = "string" | "hash" | "list" | "set" | "zset", value, expires = ms of server
-- time | nil }.

local fail = require "holdfast.testing.redis.fail"
local Hash = require "holdfast.testing.redis.hash"
local Zset = require "holdfast.testing.redis.zset"

local function new_list() return { items = {}, count = 0 } end

-- A set is stored as a hash whose fields are its members.
local EMPTY = { hash = Hash.new, list = new_list, set = Hash.new, zset = Zset.new }

local Keyspace = {}
Keyspace.__index = Keyspace

-- `now_ms()` returns the server's time
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

-- Returns the value at the key. Fails if it is of a different kind. → value | nil
function Keyspace:get(key, kind)
  local entry = self:find(key)
  if not entry then return nil end
  if entry.kind ~= kind then
    fail("WRONGTYPE Operation against a key holding the wrong kind of value")
  end
  return entry.value
end

-- Returns the hash, list, set or zset at the key; creates it if missing.
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

-- → whether the key existed
function Keyspace:remove(key)
  local existed = self:find(key) ~= nil
  self.entries[key] = nil
  return existed
end

-- Called after elements were removed from the hash, list, set or zset at the key.
function Keyspace:remove_if_empty(key)
  if self.entries[key].value.count == 0 then self.entries[key] = nil end
end

-- Removes args[3] and all later arguments from the hash, set or zset at the key args[2].
-- → how many it contained
function Keyspace:remove_members(args, kind)
  local value, removed = self:get(args[2], kind), 0
  if not value then return 0 end
  for i = 3, #args do
    if value:remove(args[i]) then removed = removed + 1 end
  end
  self:remove_if_empty(args[2])
  return removed
end

-- Returns all keys that have not expired, sorted.
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
