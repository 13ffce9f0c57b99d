-- Redisson's scripts of a lock and of a fenced lock, written from its wire contract.

local redisson = {}

local OWNER = "c8bfa1a5-7ee0-4f14-9d14-7a8e2a0f5f00:1"
local LEASE = 30000

-- KEYS: lock, ARGV: lease, owner
redisson.LOCK = [[
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])]]

-- KEYS: lock, counter, ARGV: lease, owner
redisson.FENCED_LOCK = [[
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('incr', KEYS[2])
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return { -1, tonumber(redis.call('get', KEYS[2])) }
end
return { redis.call('pttl', KEYS[1]), -1 }]]

-- KEYS: lock, channel, latch, ARGV: message, lease, owner, PUBLISH, the latch's milliseconds
redisson.UNLOCK = [[
local done = redis.call('get', KEYS[3])
if done ~= false then return tonumber(done) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
local left = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if left > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1]]

-- The same without a latch, as in Redisson before it could repeat an unlock. KEYS: lock, channel,
-- ARGV: message, lease, owner, PUBLISH
redisson.UNLOCK_LITE = [[
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
local left = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if left > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
return 1]]

-- The name of an unlock's latch. An unlock that finds its latch returns at once, so `id`, 32
-- characters, differs for each unlock.
function redisson.latch(key, id) return ("redisson_unlock_latch:{%s}:%s"):format(key, id) end

-- → the words of a lock, or with a counter of a fenced lock. sha: its script's
function redisson.lock_words(sha, key, counter)
  if counter then return { "EVALSHA", sha, 2, key, counter, LEASE, OWNER } end
  return { "EVALSHA", sha, 1, key, LEASE, OWNER }
end

-- → the words of an unlock; without a latch of UNLOCK_LITE
function redisson.unlock_words(sha, key, latch, latch_ms)
  local channel = ("redisson_lock__channel:{%s}"):format(key)
  if not latch then return { "EVALSHA", sha, 2, key, channel, 0, LEASE, OWNER, "publish" } end
  return { "EVALSHA", sha, 3, key, channel, latch, 0, LEASE, OWNER, "publish", latch_ms }
end

return redisson
