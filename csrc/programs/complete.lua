--#include "keys.lua"
--#include "clock.lua"
--#include "ranges.lua"
--#include "hash.lua"
--#include "ours.lua"
--#include "placing.lua"
--#include "releases.lua"
--#include "queue.lua"
-- Ends a run that began with begin.lua: keeps its result for a while, or frees the key. Whoever
-- waits is told.
--
-- ARGV[3] keep    ms that the result stays, 0: free the key for the next run
-- ARGV[4] print   the request's fingerprint, "": any
-- ARGV[5] result
--
-- 1 ended, now or by the same command before; 3: likewise, and dead waiters are left to be removed
-- before the next one gets it; not held by this owner: -1 the key is gone, -2 another owner has it
local KEEP, PRINT, RESULT = ARGV[3], ARGV[4], ARGV[5]

if not holds_of(LOCK, OWNER) then
  if redis.call('HGET', LOCK, 'by') == OWNER then return 1 end
  return redis.call('EXISTS', LOCK) == 0 and -1 or -2
end
if KEEP == '0' then return pass_on() end
redis.call('DEL', LOCK)
redis.call('HSET', LOCK, 'done', RESULT, 'print', PRINT, 'by', OWNER)
redis.call('PEXPIRE', LOCK, KEEP)
if redis.call('TYPE', QUEUE).ok == 'zset' then
  for _, member in ipairs(redis.call('ZRANGE', QUEUE, 0, -1)) do
    local _, _, number = parts(member)
    if number then tell(member, 'recheck', number) end
  end
  redis.call('DEL', QUEUE)
end
return 1
