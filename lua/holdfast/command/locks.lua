-- Reads the locks of a server from outside. SCAN finds them; nothing here changes one.
--
-- A lock is a hash of one field, owner -> count. Another program's hash may look so too: an owner that is not of the
-- form <uuid>:<n> counts only if a fencing counter or a queue stands beside it. A mutex (SET NX PX) is a string
-- <uuid>:<n>.

local core = require "holdfast.core"
local identity = require "holdfast.command.identity"

local locks = {}

local PAGE = 500
local OWNER_SIZE = 255
local UUID_OWNER = "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$"

local function command(client, ...)
  return core.client.command(client, { ... })
end

-- ---- finding ----

local Scan = {}
Scan.__index = Scan

-- Looks for keys that match `pattern`, step by step, on one node after the other. `mutexes`: for those instead of
-- locks.
function locks.scan(client, pattern, mutexes)
  return setmetatable({
    client = client, pattern = pattern or "*", type = mutexes and "string" or "hash", mutexes = mutexes, cursor = "0",
    left = {},
  }, Scan)
end

-- The nodes to look at; those of a cluster are known once it has answered.
function Scan:begin()
  local nodes = core.client.nodes(self.client)
  if #nodes == 0 then
    local answered, message, code = self.client:ping()
    if not answered then return nil, message, code end
    nodes = core.client.nodes(self.client)
  end
  self.left, self.ended = nodes, false
  return true
end

-- SCAN knows TYPE since Redis 6.
function Scan:page()
  local words = { "SCAN", self.cursor, "MATCH", self.pattern, "COUNT", PAGE, self.type and "TYPE", self.type }
  local reply, message, code = core.client.command(self.client, words, self.left[1])
  if reply or code ~= "server" or not self.type then return reply, message, code end
  self.type = nil
  return self:page()
end

local function is_lock(client, key)
  if command(client, "HLEN", key) ~= 1 then return false end
  local entry = locks.read(client, key)
  return entry and entry.owner and (entry.owner:find(UUID_OWNER) or entry.token or entry.waiters > 0) and entry
end

local function is_mutex(client, key)
  local size = command(client, "STRLEN", key)
  if type(size) ~= "number" or size < 38 or size > OWNER_SIZE then return false end
  local entry = locks.read(client, key, true)
  return entry and entry.owner and entry.owner:find(UUID_OWNER) and entry
end

-- One step. → a list of entries that are held; self.ended when all was seen | nil, message, code
function Scan:next()
  local reply, message, code = #self.left > 0, nil, nil
  if not reply then reply, message, code = self:begin() end
  if reply then reply, message, code = self:page() end
  if not reply then return nil, message, code end
  self.cursor = reply[1]
  if self.cursor == "0" then table.remove(self.left, 1) end
  self.ended = #self.left == 0
  local found, check = {}, self.mutexes and is_mutex or is_lock
  for _, key in ipairs(reply[2]) do found[#found + 1] = check(self.client, key) or nil end
  return found
end

-- → all entries, by key | nil, message, code
function Scan:all()
  local list, seen = {}, {}
  repeat
    local found, message, code = self:next()
    if not found then return nil, message, code end
    for _, entry in ipairs(found) do
      if not seen[entry.key] then list[#list + 1] = entry end
      seen[entry.key] = true
    end
  until self.ended
  table.sort(list, function(a, b) return a.key < b.key end)
  return list
end

-- ---- reading one ----

-- Several servers are not asked for the type of a key, but say that it is no lock.
local function is_string(client, key)
  local type = command(client, "TYPE", key)
  if type then return type == "string" end
  return select(3, client:lock(key):info()) == "conflict"
end

-- The library's lock on a key, as it stands there: a lock, or a mutex.
function locks.handle(client, key, mutex)
  if mutex == nil then mutex = is_string(client, key) end
  if mutex then return client:mutex(key), true end
  return client:lock(key), false
end

-- → { key, mutex, owner, holds, ttl, token, waiters }; without owner when it is free | nil, message, code
function locks.read(client, key, mutex)
  if mutex == nil then mutex = false end
  local entry, message, code = locks.handle(client, key, mutex):info()
  if not entry then return nil, message, code end
  entry.key, entry.mutex = key, mutex
  return entry
end

function locks.queue_name(key)
  return "holdfast_queue:" .. (key:find("{", 1, true) and key or "{" .. key .. "}")
end

-- The first waiters: → { { owner, place, score }, ... }
function locks.waiters(client, key, limit)
  local reply = command(client, "ZRANGEBYSCORE", locks.queue_name(key), "(0", "+inf", "WITHSCORES", "LIMIT", 0, limit)
  local list = {}
  for i = 1, type(reply) == "table" and #reply or 0, 2 do
    local owner = reply[i]:match("^%S+ (.*)$") or reply[i]
    list[#list + 1] = { owner = owner, place = #list + 1, score = tonumber(reply[i + 1]) }
  end
  return list
end

-- ---- showing ----

-- A function that tells who an owner is, and asks the server once for each.
function locks.names(client)
  local known = {}
  return function(owner)
    if known[owner] == nil then known[owner] = identity.of(client, owner) or false end
    return known[owner] or nil
  end
end

function locks.seconds(ttl)
  if not ttl then return "-" end
  return ttl == math.huge and "none" or ("%.1f s"):format(ttl)
end

function locks.token(token)
  return token and ("%.0f"):format(token) or "-"
end

-- The fields of an entry for output.json.
function locks.fields(entry, who)
  return {
    { "key", entry.key }, { "held", entry.owner ~= nil }, { "mutex", entry.mutex }, { "owner", entry.owner },
    { "host", who and who.host }, { "pid", who and who.pid }, { "name", who and who.name },
    { "holds", entry.holds }, { "ttl", entry.ttl }, { "token", entry.token }, { "waiters", entry.waiters },
  }
end

return locks
