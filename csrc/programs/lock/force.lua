--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "LAYOUT:layout"
--#include "LAYOUT:holding"
--#include "base/owners.lua:ours"
--#include "base/owners.lua:redisson_owner"
--#include "queue/placing.lua"
--#include "CHANNEL:announcing"
--#include "queue/queue.lua"
-- Takes the lock away from its holder and passes it on. A key that is not a lock is left unchanged.
-- Not safe to resend: it would hit the next holder.
--
-- Every string counts as a mutex. A hash is a lock if it has a TTL and either is the record of a
-- run, or has one owner with a count and one of these: the owner is ARGV[1]; it has the form
-- <uuid>:<n> or, in a quorum, <uuid>:<n>.<m>; the lock's counter or queue exists.
--
-- ARGV[3] holder  only if this owner, or in a quorum its <owner>.<m>, holds the lock; may be left
--                 out
--
-- 1 it was locked; 3 the same, but dead waiters remain: call leave.lua; 0 it was free, or another
-- owner holds it
local function is_lock()
  if KEY_TYPE == 'string' then return true end
  local holder = holder_of(LOCK)
  local print_count = redis.call('HEXISTS', LOCK, 'print')
  local by_count = redis.call('HEXISTS', LOCK, 'by')
  if redis.call('PTTL', LOCK) < 0 then return false end
  if not holder then return by_count == 1 end
  local fields = 1 + (holder == 'print' and 0 or print_count)
  if redis.call('HLEN', LOCK) ~= fields or not holds_of(LOCK, holder) then return false end
  if holder == OWNER or holder:find(REDISSON_OWNER) or holder:find(OUR_OWNER) then return true end
  return redis.call('EXISTS', COUNTER, QUEUE) > 0
end

--#section only_lock
-- Ends the program unless the key is a lock of this kind, and the expected owner holds it.
local kind = redis.call('TYPE', LOCK).ok
if kind == 'none' then return 0 end
if kind ~= KEY_TYPE then return redis.error_reply('WRONGTYPE the key holds a ' .. kind) end
if not is_lock() then return redis.error_reply('WRONGTYPE the key is not a lock') end
local holder = holder_of(LOCK) or ''
local original = holder:find(OUR_OWNER) and holder:match('^[^.]+') -- without .<m>
if ARGV[3] and ARGV[3] ~= holder and ARGV[3] ~= original then return 0 end
--#end
return pass_on()
