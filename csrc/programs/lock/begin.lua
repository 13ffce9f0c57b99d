--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "lock/hash.lua:layout"
local FINGERPRINT = ARGV[8]
--#include "lock/fresh.lua"
--#include "lock/hash.lua:holding"
--#include "CHANNEL:announcing"
--#include "base/owners.lua:ours"
--#include "base/owners.lua:redisson_owner"
--#include "queue/placing.lua"
-- Begins a run that must happen once. During the run the key is a lock with one more field,
-- "print"; then complete.lua replaces it with a record that has "done", "print" and "by" (the
-- owner). A grant writes an empty "print", which matches every fingerprint.
--
-- Takes the arguments and returns the replies of acquiring.lua, and also
--
-- { 3, result }      the run is already done
-- { 4 }              the key has a different fingerprint
local stored = redis.call('HMGET', LOCK, 'print', 'done')
if (stored[1] or '') ~= '' and FINGERPRINT ~= '' and stored[1] ~= FINGERPRINT then return { 4 } end
if stored[1] and stored[2] then
  if ARGV[7] ~= '' then redis.call('ZREM', QUEUE, ARGV[7]) end
  return { 3, stored[2] }
end
--#include "lock/acquiring.lua"
