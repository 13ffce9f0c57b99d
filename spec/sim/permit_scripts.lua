-- What a client of Redisson's semaphore with leased permits does on the server, written
-- independently: KEYS are the number of free permits, the leases, the channel. Shares no code with
-- what it tests.

local scripts = {}

local TAKE_BACK = [[
  local gone = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[1], 'LIMIT', 0, ARGV[2])
  if #gone > 0 then
    redis.call('ZREM', KEYS[2], unpack(gone))
    local free = redis.call('INCRBY', KEYS[1], #gone)
    if free > 0 then redis.call('PUBLISH', KEYS[3], free) end
  end
]]

-- ARGV: now, how many, until when, their ids → "OK" | ":" and the ms at which a lease ends | false
-- if no permit is taken
scripts.ACQUIRE = TAKE_BACK .. [[
  local free = tonumber(redis.call('GET', KEYS[1]))
  if free and free >= tonumber(ARGV[2]) then
    redis.call('DECRBY', KEYS[1], ARGV[2])
    for i = 4, #ARGV do redis.call('ZADD', KEYS[2], ARGV[3], ARGV[i]) end
    return 'OK'
  end
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  return first[2] and ':' .. first[2] or false
]]

-- ARGV: now, how many, their ids → how many | 0 if the leases have ended
scripts.RELEASE = [[
  for i = 3, #ARGV do
    local till = redis.call('ZSCORE', KEYS[2], ARGV[i])
    if not till or tonumber(till) <= tonumber(ARGV[1]) then return 0 end
  end
]] .. TAKE_BACK .. [[
  local removed = redis.call('ZREM', KEYS[2], unpack(ARGV, 3))
  local free = redis.call('INCRBY', KEYS[1], removed)
  redis.call('PUBLISH', KEYS[3], removed == 1 and free or removed)
  return removed
]]

return scripts
