--#fragment
-- Takes permits and gives them back, and reclaims those whose lease has ended.
local MIN_RECLAIM, MAX_RECLAIM = 100, 2000 -- bounds on the permits that one script may reclaim

-- → those of these permits that are taken or, if `taken` is false, those that are not
local function filter_taken(ids, taken)
  local filtered = {}
  for _, id in ipairs(ids) do
    local score = redis.call('ZSCORE', LEASES, id)
    if taken == (score ~= false) then filtered[#filtered + 1] = id end
  end
  return filtered
end

-- → those of the requested permits that the owner does not have yet
local function lacking(ids) return filter_taken(ids, false) end

-- Takes those of the requested permits that the owner does not have yet, and sets the lease of all.
-- If the server refuses, the number of free permits is unchanged.
local function take_permits(ids, end_ms)
  local count = #lacking(ids)
  if count > 0 then FREE = redis.call('INCRBY', LOCK, -count) end
  local ok, problem = pcall(set_end, LEASES, ids, end_ms)
  if ok then return end
  if count > 0 then redis.call('INCRBY', LOCK, count) end
  error(problem, 0)
end

-- Counts these permits, which were taken, as free. If the server refuses, stores them with a lease
-- that has ended, so that they are reclaimed later, and fails. → their number
local function add_free(ids)
  if #ids == 0 or not FREE then return #ids end
  FREE = redis.pcall('INCRBY', LOCK, #ids)
  if not tonumber(FREE) then
    set_end(LEASES, ids, NOW)
    redis.call('INCRBY', LOCK, #ids)
  end
  return #ids
end

-- Frees these permits, all of which are taken. → their number
local function free_all(ids)
  if #ids > 0 then redis.call('ZREM', LEASES, unpack(ids)) end
  return add_free(ids)
end

-- Frees those of these permits that are taken. → their number
local function put_back(ids) return free_all(filter_taken(ids, true)) end

-- Reclaims up to `wanted` permits whose lease has ended, but MIN_RECLAIM to MAX_RECLAIM of them if
-- `wanted` is outside those bounds. → their number
local function reclaim(wanted)
  local max_count = math.min(math.max(wanted or 0, MIN_RECLAIM), MAX_RECLAIM)
  return free_all(redis.call('ZRANGEBYSCORE', LEASES, '-inf', digits(NOW), 'LIMIT', '0', max_count))
end

local function redisson_has_permit()
  --#section foreign
  -- Defines foreign: whether Redisson has one of the permits, judged by the ten whose leases end
  -- first and the ten whose leases end last or never. True if the server refuses to say.
  -- Redisson's ids are hexadecimal digits; ours begin with "h", byte 104.
  local ids = redis.pcall('ZRANGE', LEASES, '0', '9')
  local foreign = ids.err ~= nil
  for i = 1, #ids do foreign = foreign or ids[i]:byte() ~= 104 end
  if #ids == 10 and not foreign then
    ids = redis.call('ZRANGE', LEASES, '-10', '-1')
    for i = 1, #ids do foreign = foreign or ids[i]:byte() ~= 104 end
  end
  --#end
  return foreign
end

local function total_permits()
  return (FREE or 0) + redis.call('ZCARD', LEASES)
end
