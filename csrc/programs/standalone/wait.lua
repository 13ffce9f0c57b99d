-- Records that the owner of a lock is waiting for another lock, and when that wait began.
-- Safe to resend.
--
-- KEYS[1] holdfast_wait:<owner>
-- ARGV[1] "<uuid>:<number> <kind> <key>": the waiter and the lock; ARGV[2] ms waited so far;
-- ARGV[3] TTL in ms
--
-- 1 done
local since, wait = (redis.call('GET', KEYS[1]) or ''):match('^(%d+) (.*)$')
if wait ~= ARGV[1] then
  local now = redis.call('TIME')
  since = ('%.0f'):format(now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[2])
end
redis.call('SET', KEYS[1], since .. ' ' .. ARGV[1], 'PX', ARGV[3])
return 1
