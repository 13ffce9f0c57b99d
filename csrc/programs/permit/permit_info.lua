-- Reads a semaphore atomically.
--
-- KEYS[1] the free permits, KEYS[2] the fencing counter, KEYS[3] the queue, KEYS[4] the leases
-- ARGV[1] the uuid of the client that asks, or a waiter: "<uuid>:<number>"
--
-- As in info.lua: { "", taken permits, ms until the first lease ends, last token, waiters, ahead,
-- -1, free permits, clock, waited }; -1 ms: no lease ends, -2: no permit is taken; the -1 after
-- `ahead`: a semaphore has no readers
--#include "queue/times.lua"
local CLOCK, WAITED = times()
local NOW = math.floor(CLOCK / 1000)

--#include "queue/ahead.lua"
--#include "base/read_integer.lua"

local now_string = string.format('%.0f', NOW)
local free = read_integer(KEYS[1], redis.call('GET', KEYS[1]))
local expired = redis.call('ZCOUNT', KEYS[4], '-inf', now_string)
local next_end = redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. now_string, '+inf', 'WITHSCORES',
  'LIMIT', 0, 1)[2]
if not next_end then next_end = -2
elseif tonumber(next_end) >= 922337203685477 then next_end = -1
else next_end = next_end - NOW end
return {
  '',
  redis.call('ZCARD', KEYS[4]) - expired,
  next_end,
  redis.call('GET', KEYS[2]) or '0',
  redis.call('ZCOUNT', KEYS[3], '(0', '+inf'),
  ahead_of(ARGV[1]),
  -1,
  (free or 0) + expired,
  CLOCK,
  WAITED,
}
