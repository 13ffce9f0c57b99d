-- A semaphore's permits, for the `holdfast` command: the permit of a run, and the list of all
-- holders.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local locale = require "holdfast.locale"
local names = require "holdfast.names"
local replies = require "holdfast.replies"
local unpack = require("holdfast.compat").unpack

local permits = {}

local PAGE = 500 -- COUNT of each SCAN
local MAX_PERMITS = 1000 -- maximum permits to read
local PER_CALL = 100 -- permits that one call of a server program takes back

local function leases_of(key)
  return core.wire.names("permit", key).leases
end

-- ---- a run's permit ----

-- Wraps a permit in the lock methods that holding.lua needs. Each acquire takes a new permit.
local RunPermit = {}
RunPermit.__index = RunPermit

function permits.lock(client, key, opts)
  return setmetatable({ semaphore_key = key, pool = client:semaphore(key, opts) }, RunPermit)
end

function RunPermit:acquire(wait)
  local permit, message, code = self.pool:acquire(1, wait)
  if not permit then return nil, message, code end
  self.permit = permit
  return self
end

function RunPermit:key() return self.semaphore_key end
function RunPermit:owner() return core.lock.owner(self.permit) end

for _, name in ipairs { "token", "token_text", "lost", "remaining", "extend", "release" } do
  RunPermit[name] = function(self, ...) return self.permit[name](self.permit, ...) end
end

-- ---- all holders' permits ----

local function hex(bytes)
  return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

-- A permit's id contains the first 8 and the last 8 digits of the client's uuid. → these 16 digits
-- | nil if the id was not created by holdfast
local function client_digits(id)
  return #id == 16 and id:sub(1, 2) == "hf" and hex(id:sub(3, 10)) or nil
end

-- Returns the clients that have published their identity: digits (see client_digits) → { host, pid,
-- name }
local function read_identities(client)
  local identities_by_digits, prefix = {}, names.prefix(client)
  for _, node in ipairs(core.client.nodes(client)) do
    local cursor = "0"
    repeat
      local reply = replies.command(client,
        { "SCAN", cursor, "MATCH", core.wire.prefixes.client .. "*", "COUNT", PAGE }, node)
      cursor = reply and reply[1] or "0"
      for _, name in ipairs(reply and reply[2] or {}) do
        local uuid = name:sub(1, #prefix) == prefix and name:sub(#prefix + 1) or ""
        identities_by_digits[uuid:sub(1, 8) .. uuid:sub(-8)] = names.read(client, uuid)
      end
    until cursor == "0"
  end
  return identities_by_digits
end

local function seconds_until(ms, now)
  return ms >= 922337203685477 and math.huge or (ms - now) / 1000
end

-- → the owners of permits, with their leases: { { owner, permits, ttl, who }, ... }
function permits.holders(client, key)
  local time = replies.command_for_lock(client, key, "TIME")
  local seconds, micros = locale.number(time and time[1]), locale.number(time and time[2])
  local now = seconds and micros and seconds * 1000 + math.floor(micros / 1000) or 0
  local reply = replies.command_for_lock(client, key, "ZRANGEBYSCORE", leases_of(key),
    ("(%.0f"):format(now), "+inf", "WITHSCORES", "LIMIT", 0, MAX_PERMITS)
  local holders, by_owner, identities_by_digits = {}, {}, nil
  for i = 1, type(reply) == "table" and #reply or 0, 2 do
    local digits, ends_at = client_digits(reply[i]), locale.number(reply[i + 1]) or math.huge
    local ttl = seconds_until(ends_at, now)
    identities_by_digits = identities_by_digits or read_identities(client)
    local owner = digits or hex(reply[i])
    local holder = by_owner[owner]
    if not holder then
      holder = { owner = owner, permits = 0, ttl = ttl, who = identities_by_digits[digits or ""] }
      by_owner[owner], holders[#holders + 1] = holder, holder
    end
    holder.permits = holder.permits + 1
  end
  return holders
end

-- → the ids of the permits that are taken now | nil if there are more than MAX_PERMITS, or if they
-- cannot be read
function permits.taken(client, key)
  local ids = replies.command_for_lock(client, key, "ZRANGEBYSCORE", leases_of(key), "(1",
    "+inf", "LIMIT", 0, MAX_PERMITS + 1)
  return type(ids) == "table" and #ids <= MAX_PERMITS and ids or nil
end

-- Ends the leases of the permits in ARGV, or of all permits if there are none, unless this script
-- has already ended them. Returns the number of leases that it has ended.
local END_LEASES = [[
local ids, ended = ARGV, 0
if not ids[1] then ids = redis.call('ZRANGEBYSCORE', KEYS[1], '(1', '+inf') end
for _, id in ipairs(ids) do
  if (redis.call('ZSCORE', KEYS[1], id) or '1') ~= '1' then
    redis.call('ZADD', KEYS[1], 1, id)
    ended = ended + 1
  end
end
return ended]]

-- Takes back these permits, or all if `ids` is nil or empty, as if their leases had ended, and
-- gives them to the waiters. Reads the number of permits again, because it may have been changed
-- since the user was asked.
-- → whether any permits were taken back | nil, message, code
function permits.take_back(client, entry, lock, ids)
  local ended, message, code = replies.command_for_lock(client, entry.key, "EVAL", END_LEASES, 1,
    leases_of(entry.key), unpack(ids or {}))
  if not ended then return nil, message, code end
  local info
  info, message, code = driver.lock.info(lock)
  if not info then return nil, message, code end
  for _ = 0, math.floor(ended / PER_CALL) do
    local set
    set, message, code = driver.lock.set(lock, info.holds + info.free)
    if not set then return nil, message, code end
  end
  return ended > 0
end

return permits
