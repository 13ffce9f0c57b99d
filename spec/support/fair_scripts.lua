-- What a client of Redisson's fair lock does on the server, written independently: KEYS are the
-- lock, the list, the timeouts. Shares no code with what it tests.

local scripts = {}

local DROP_DEAD = [[
  while true do
    local head = redis.call('LINDEX', KEYS[2], 0)
    local till = head and redis.call('ZSCORE', KEYS[3], head)
    if not till or tonumber(till) > tonumber(ARGV[1]) then break end
    redis.call('LPOP', KEYS[2])
    redis.call('ZREM', KEYS[3], head)
  end
]]

-- ARGV: now, owner, lease, wait → false if it has acquired the lock | the ms to sleep
scripts.ACQUIRE = DROP_DEAD .. [[
  local head, mine = redis.call('LINDEX', KEYS[2], 0), redis.call('HEXISTS', KEYS[1], ARGV[2])
  if redis.call('EXISTS', KEYS[1]) == 0 and (not head or head == ARGV[2]) or mine == 1 then
    if mine == 0 then
      redis.call('LPOP', KEYS[2])
      redis.call('ZREM', KEYS[3], ARGV[2])
      for _, owner in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
        redis.call('ZINCRBY', KEYS[3], -ARGV[4], owner)
      end
    end
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return false
  end
  local left = redis.call('PTTL', KEYS[1])
  if redis.call('ZSCORE', KEYS[3], ARGV[2]) then return math.max(0, left) end
  local last = redis.call('LINDEX', KEYS[2], -1)
  local till = last and redis.call('ZSCORE', KEYS[3], last)
  if till then left = tonumber(till) - ARGV[1] end
  redis.call('ZADD', KEYS[3], left + ARGV[4] + ARGV[1], ARGV[2])
  redis.call('RPUSH', KEYS[2], ARGV[2])
  return left
]]

-- ARGV: now, owner, channel
scripts.RELEASE = DROP_DEAD .. [[
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
  if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then return 1 end
  redis.call('DEL', KEYS[1])
  local head = redis.call('LINDEX', KEYS[2], 0)
  if head then redis.call('PUBLISH', ARGV[3] .. ':' .. head, '0') end
  return 1
]]

-- ARGV: wait, owner
scripts.LEAVE = [[
  local owners, behind = redis.call('LRANGE', KEYS[2], 0, -1), false
  for _, owner in ipairs(owners) do
    if behind then redis.call('ZINCRBY', KEYS[3], -ARGV[1], owner) end
    behind = behind or owner == ARGV[2]
  end
  redis.call('ZREM', KEYS[3], ARGV[2])
  redis.call('LREM', KEYS[2], 0, ARGV[2])
]]

return scripts
