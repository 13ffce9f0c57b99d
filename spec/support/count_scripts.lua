-- What clients of Redisson's latch and plain semaphore do on the server, written independently:
-- KEYS are the number and its channel. Shares no code with what it tests.

local scripts = { latch = {}, semaphore = {} }

-- → the remaining count
scripts.latch.await = [[
  return tonumber(redis.call('GET', KEYS[1]) or '0')
]]

scripts.latch.count_down = [[
  local left = redis.call('DECR', KEYS[1])
  if left <= 0 then redis.call('DEL', KEYS[1]) end
  if left == 0 then redis.call('PUBLISH', KEYS[2], '0') end
]]

-- ARGV: the count → whether it was set
scripts.latch.set_count = [[
  if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
  redis.call('SET', KEYS[1], ARGV[1])
  redis.call('PUBLISH', KEYS[2], '1')
  return 1
]]

-- ARGV: how many permits to take → 1 | 0 if too few are free
scripts.semaphore.acquire = [[
  local free = redis.call('GET', KEYS[1])
  if not free or tonumber(free) < tonumber(ARGV[1]) then return 0 end
  redis.call('DECRBY', KEYS[1], ARGV[1])
  return 1
]]

-- ARGV: how many
scripts.semaphore.release = [[
  redis.call('PUBLISH', KEYS[2], redis.call('INCRBY', KEYS[1], ARGV[1]))
]]

return scripts
