--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "lock/hash.lua:layout"
--#include "base/owners.lua:ours"
--#include "base/owners.lua:redisson_owner"
--#include "queue/placing.lua"
--#include "CHANNEL:announcing"
--#include "queue/queue.lua"
--#include "queue/notifying.lua"
-- Ends a run that began with begin.lua. Either stores its result for a while and notifies up to
-- 1000 waiters (leave.lua does the rest), or frees the key and passes it on. Safe to resend.
--
-- ARGV[3] keep         TTL of the result in ms, 0: free the key for the next run
-- ARGV[4] fingerprint  the request's, "": any
-- ARGV[5] result
--
-- 1 ended, now or by an earlier copy of this command; 3 the same, but waiters remain that are dead
-- or must be notified: call leave.lua. Not held by this owner: -1 the key is gone, -2 it is another
-- owner's lock or record
local KEEP, FINGERPRINT, RESULT = ARGV[3], ARGV[4], ARGV[5]
--#include "queue/is_queue.lua"

if not holds_of(LOCK, OWNER) then
  if redis.call('HGET', LOCK, 'by') == OWNER then return is_queue() and notify_done() and 3 or 1 end
  return redis.call('EXISTS', LOCK) == 0 and -1 or -2
end
if KEEP == '0' then return pass_on() end
-- If the server refuses a command, either the lock or the record still exists. The first command
-- removes nothing, but makes a full server accept the script's later writes.
redis.call('HDEL', LOCK, '')
redis.call('HSET', LOCK, 'done', RESULT, 'print', FINGERPRINT, 'by', OWNER)
redis.call('PEXPIRE', LOCK, KEEP)
redis.call('HDEL', LOCK, OWNER)
return is_queue() and notify_done() and 3 or 1
