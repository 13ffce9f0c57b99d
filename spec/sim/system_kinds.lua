-- What system_watcher.lua needs to know about a kind of lock: until when a server has a claim,
-- which claims exclude each other, and what remains on the server. With several servers there are
-- locks, mutexes and guards, fair locks, read/write locks, and semaphores with leased permits.
--
-- holders(at, key, uuid) → what the server has for the client with that uuid, as named by
-- name_of(owner); places(at, key, uuid) → how many places in the queue.
--
-- at(name) → the entry of that name | nil, and its server; while a slot moves, names of one lock
-- are on two servers.

local rules = require "spec.sim.rules"
local wire = require "spec.sim.wire"

local floor, huge, max, min = math.floor, math.huge, math.max, math.min

local kinds = {}

-- → the moment at which the entry ends; 0 without a TTL
local function end_of(server, entry)
  return entry and entry.expires and floor(server:moment(entry.expires + 1)) or 0
end

-- ---- locks, mutexes, guards ----

local lock = { one_key = true } -- that each renewal names

function lock.add_key() end

function lock.has_until(at, key, claim)
  local entry, server = at(key.name)
  local holder = entry and entry.kind == "string" and entry.value
  local has = holder == claim.owner
    or entry and entry.kind == "hash" and entry.value.values[claim.owner]
  return has and end_of(server, entry) or 0
end

function lock.excludes(a, b)
  return a.owner ~= b.owner or not a.shared and a.who ~= b.who
end

function lock.is_taken(at, key) return at(key.name) end

local NO_OWNER = { done = true, print = true, by = true, mode = true }

function lock.name_of(owner) return owner end

function lock.holders(at, key, uuid)
  local entry, owners = at(key.name), {}
  local is_lock = entry and (entry.kind == "string" or entry.kind == "hash")
  local fields = is_lock and (entry.kind == "string" and { entry.value } or entry.value.fields)
  for _, owner in ipairs(fields or {}) do
    if not NO_OWNER[owner] and wire.client_of_owner(owner) == uuid then
      owners[#owners + 1] = owner
    end
  end
  return owners
end

-- Counts the places in a queue that is a sorted set.
function lock.places(at, key, uuid)
  local entry, count = at(key.queue or wire.queue_of(key.name)), 0
  for _, member in ipairs(entry and entry.kind == "zset" and entry.value.members or {}) do
    local waits = not wire.is_record(member) and entry.value.score_of[member] > 0
    if waits and wire.client_of(member) == uuid then count = count + 1 end
  end
  return count
end

-- → the name of what is left when no lease runs any more | nil
function lock.left(server, key) return server.db:find(key.name) and key.name end

-- ---- fair locks ----

local fair = setmetatable({}, { __index = lock })

function fair.add_key(key)
  key.list, key.timeouts = wire.list_of(key.name), wire.timeouts_of(key.name)
end

function fair.places(at, key, uuid)
  local entry, count = at(key.list), 0
  for _, owner in ipairs(entry and entry.kind == "list" and entry.value.items or {}) do
    if wire.client_of_owner(owner) == uuid then count = count + 1 end
  end
  return count
end

-- The list has no TTL, like Redisson's: the next waiter removes the dead ones.
function fair.left(server, key)
  local timeouts, now = rules.live(server, key.timeouts), server.redis:now_ms()
  for _, owner in ipairs(timeouts and timeouts.value.members or {}) do
    if timeouts.value.score_of[owner] > now then return "a place of " .. key.name end
  end
  return lock.left(server, key)
end

-- ---- read/write locks ----

local read_write = {}

function read_write.add_key(key)
  key.queue = wire.queue_of(key.name)
end

-- A reader has a separate lease for each entry.
function read_write.has_until(at, key, claim)
  local entry, server = at(key.name)
  local count = entry and tonumber(entry.value.values[claim.owner])
  if not count then return 0 end
  if wire.writes(claim.owner) then return end_of(server, entry) end
  local longest = 0
  for n = 1, count do
    local hold, where = at(wire.hold_key(key.name, claim.owner, n))
    longest = max(longest, end_of(where, hold))
  end
  return min(longest, end_of(server, entry))
end

function read_write.excludes(a, b)
  return a.slot ~= b.slot and (a.kind == "write" or b.kind == "write")
end

read_write.is_taken, read_write.name_of = lock.is_taken, lock.name_of
read_write.holders, read_write.places = lock.holders, lock.places

function read_write.left(server)
  for name in pairs(server.db.entries) do
    local stays = name:find("^redisson_lock_token:") or name:find("^holdfast_known")
    if not stays and rules.live(server, name) then return name end
  end
end

-- ---- permits ----

local permit = {}

function permit.add_key(key, permits)
  key.queue, key.leases = wire.queue_of(key.name), wire.leases_of(key.name)
  key.most = permits
end

local function leases_in(entry)
  return entry and entry.kind == "zset" and entry.value or nil
end

function permit.has_until(at, key, claim)
  local entry, server = at(key.leases)
  local leases, first = leases_in(entry), huge
  for _, id in ipairs(wire.ids_of(claim.owner)) do
    local ends = leases and leases.score_of[id]
    if not ends then return 0 end
    first = min(first, ends)
  end
  return floor(server:moment(first + 1))
end

-- The ids of all permits of an owner have one stem.
local function stem_of(id) return id:sub(1, -3) end

function permit.name_of(owner) return stem_of(wire.ids_of(owner)[1]) end

function permit.holders(at, key, uuid)
  local entry, server = at(key.leases)
  local leases, stems, seen = leases_in(entry), {}, {}
  local client = permit.name_of(uuid .. ":0"):sub(1, -5)
  for _, id in ipairs(leases and leases.members or {}) do
    local stem = stem_of(id)
    local runs = leases.score_of[id] > server.redis:now_ms()
    if runs and stem:sub(1, #client) == client and not seen[stem] then
      stems[#stems + 1], seen[stem] = stem, true
    end
  end
  return stems
end

function permit.count(claim) return #wire.ids_of(claim.owner) end

function permit.is_taken(at, key)
  local leases = leases_in((at(key.leases)))
  return leases and #leases.members > 0
end

function permit.left(server, key)
  local leases, now = leases_in(rules.live(server, key.leases)), server.redis:now_ms()
  for _, id in ipairs(leases and leases.members or {}) do
    if leases.score_of[id] > now then return "a permit of " .. key.name end
  end
end

permit.places = lock.places

kinds.lock, kinds.mutex, kinds.guard, kinds.fair = lock, lock, lock, fair
kinds.read, kinds.write, kinds.permit = read_write, read_write, permit

return kinds
