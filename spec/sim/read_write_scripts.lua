-- What a client of Redisson's read/write lock does on the server, written independently: KEYS[1] is
-- the lock, KEYS[2] its channel; ARGV are the owner, the lease in ms, and the lock's name as it is
-- in the names of leases. Shares no code with what it tests.

local scripts = {}

local LEASES = [[
  local function lease_of(owner, n) return ARGV[3] .. ':' .. owner .. ':rwlock_timeout:' .. n end
]]

-- → false if it has acquired the lock | the ms to sleep
scripts.READ = LEASES .. [[
  local mode = redis.call('HGET', KEYS[1], 'mode')
  local within = mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[1] .. ':write') == 1
  if mode and mode ~= 'read' and not within then return redis.call('PTTL', KEYS[1]) end
  if not mode then redis.call('HSET', KEYS[1], 'mode', 'read') end
  local n = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('SET', lease_of(ARGV[1], n), 1, 'PX', ARGV[2])
  local left = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', KEYS[1], math.max(left, tonumber(ARGV[2])))
  return false
]]

scripts.WRITE = [[
  local mode, own = redis.call('HGET', KEYS[1], 'mode'), ARGV[1] .. ':write'
  if mode and redis.call('HEXISTS', KEYS[1], own) == 0 then return redis.call('PTTL', KEYS[1]) end
  redis.call('HSET', KEYS[1], 'mode', 'write')
  redis.call('HINCRBY', KEYS[1], own, 1)
  redis.call('PEXPIRE', KEYS[1], math.max(0, redis.call('PTTL', KEYS[1])) + ARGV[2])
  return false
]]

-- → 1 if the lock is free | 0 if others hold it | false if this owner did not
scripts.END_READ = LEASES .. [[
  if not redis.call('HGET', KEYS[1], 'mode') then
    redis.call('PUBLISH', KEYS[2], '0')
    return false
  end
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
  local n = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
  if n == 0 then redis.call('HDEL', KEYS[1], ARGV[1]) end
  redis.call('DEL', lease_of(ARGV[1], n + 1))
  if redis.call('HLEN', KEYS[1]) > 1 then
    local longest = -3
    for _, owner in ipairs(redis.call('HKEYS', KEYS[1])) do
      for i = tonumber(redis.call('HGET', KEYS[1], owner)) or 0, 1, -1 do
        longest = math.max(longest, redis.call('PTTL', lease_of(owner, i)))
      end
    end
    if longest > 0 then
      redis.call('PEXPIRE', KEYS[1], longest)
      return 0
    end
    if redis.call('HGET', KEYS[1], 'mode') == 'write' then return 0 end
  end
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], '0')
  return 1
]]

scripts.END_WRITE = [[
  local mode, own = redis.call('HGET', KEYS[1], 'mode'), ARGV[1] .. ':write'
  if not mode then
    redis.call('PUBLISH', KEYS[2], '1')
    return false
  end
  if mode ~= 'write' or redis.call('HEXISTS', KEYS[1], own) == 0 then return false end
  if redis.call('HINCRBY', KEYS[1], own, -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 0
  end
  redis.call('HDEL', KEYS[1], own)
  if redis.call('HLEN', KEYS[1]) > 1 then
    redis.call('HSET', KEYS[1], 'mode', 'read')
    return 1
  end
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], '1')
  return 1
]]

return scripts
