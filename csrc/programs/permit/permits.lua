--#fragment
-- Permits are stored as in Redisson's RPermitExpirableSemaphore: a string with the number of free
-- permits, and a sorted set of the taken ones: id -> the ms at which its lease ends.
--
-- The owner of one permit is "<uuid>:<number>"; the owner of several permits that were acquired at
-- once is "<uuid>:<number>*<count>". An id has 16 bytes: "hf", the first 4 and the last 4 bytes of
-- the uuid, 4 bytes of the number, and 2 bytes that count the owner's permits from 1.
local function ids_of(owner)
  local number, count = owner:match('^:(%d+)%*?(%d*)$', 37)
  --#section id
  -- Defines id: the first id (permits.lua) of the owner with this number, whose uuid is at the
  -- start of `owner`.
  local head, tail = tonumber(owner:sub(1, 8), 16), tonumber(owner:sub(29, 36), 16)
  local id = 'hf' .. struct.pack('>I4I4I4I2', head, tail, number % 4294967296, 1)
  --#end
  local ids = { id }
  for i = 2, tonumber(count) or 1 do ids[i] = ids[1]:sub(1, 14) .. struct.pack('>I2', i) end
  return ids
end

-- → the ms at which the first of these leases ends, or nil if not all of them are running
local function first_end_of(leases, ids)
  local earliest
  for _, id in ipairs(ids) do
    local score = tonumber(redis.call('ZSCORE', leases, id))
    if not score or score <= NOW then return nil end
    earliest = math.min(earliest or score, score)
  end
  return earliest
end

-- → the ms at which the last existing one of these leases ends, or 0 if none exists
local function last_end_of(leases, ids)
  local last = 0
  for _, id in ipairs(ids) do
    last = math.max(last, tonumber(redis.call('ZSCORE', leases, id)) or 0)
  end
  return last
end

-- Sets the end of these permits' leases. → the number of permits that were not taken
local function set_end(leases, ids, end_ms)
  local score, args = digits(end_ms), {}
  for i, id in ipairs(ids) do
    args[2 * i - 1], args[2 * i] = score, id
  end
  return redis.call('ZADD', leases, unpack(args))
end

-- Does the same as set_end for permits that are taken. A full server refuses a command that needs
-- memory, except after the script's first write, so a write that needs no memory comes first.
local function renew_end(leases, ids, end_ms)
  redis.call('ZREM', leases, '')
  set_end(leases, ids, end_ms)
end
