--#fragment
-- Takes permits and gives them back, and reclaims those whose lease has ended.
local MIN_BACK, MAX_BACK = 100, 2000 -- limits of the leases that one script reclaims

-- → the taken ones of these permits, or the others
local function which(ids, taken)
  local some = {}
  for _, id in ipairs(ids) do
    local score = redis.call('ZSCORE', LEASES, id)
    if taken == (score ~= false) then some[#some + 1] = id end
  end
  return some
end

-- → those of the owner's permits that it does not have yet
local function lacking(ids)
  return which(ids, false)
end

-- Takes the owner's permits that it does not have yet. If the server refuses, the number of free
-- permits is unchanged.
local function draw(ids, ms)
  local drawn = #lacking(ids)
  if drawn > 0 then FREE = redis.call('INCRBY', LOCK, -drawn) end
  local set, why = pcall(set_end, LEASES, ids, ms)
  if set then return end
  if drawn > 0 then redis.call('INCRBY', LOCK, drawn) end
  error(why, 0)
end

-- Counts these permits, which were taken, as free. If the server refuses, stores them with a lease
-- that has ended, so that they come back later, and fails. → their number
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

-- Frees the taken ones of these permits. → their number
local function put_back(ids)
  return free_all(which(ids, true))
end

-- Reclaims permits whose lease has ended: up to `wanted`, raised or lowered to the limits above. →
-- their number
local function reclaim(wanted)
  local most = math.min(math.max(wanted or 0, MIN_BACK), MAX_BACK)
  return free_all(redis.call('ZRANGEBYSCORE', LEASES, '-inf', digits(NOW), 'LIMIT', '0', most))
end

local function is_foreign()
  --#section foreign
  -- Defines foreign: whether Redisson has one of the permits, judged by the ten that end first and
  -- the ten that end last, such as one without an end. True if the server refuses to say.
  local ids = redis.pcall('ZRANGE', LEASES, '0', '9')
  local foreign = ids.err ~= nil
  for _, id in ipairs(ids) do foreign = foreign or id:sub(1, 2) ~= 'hf' end
  if #ids == 10 and not foreign then
    ids = redis.call('ZRANGE', LEASES, '-10', '-1')
    for _, id in ipairs(ids) do foreign = foreign or id:sub(1, 2) ~= 'hf' end
  end
  --#end
  return foreign
end

local function all_permits()
  return (FREE or 0) + redis.call('ZCARD', LEASES)
end
