--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "lock/hash.lua:layout"
local PRINT = ARGV[8]
--#include "lock/fresh.lua"
--#include "lock/hash.lua:holding"
--#include "CHANNEL:announcing"
--#include "base/owners.lua:ours"
--#include "base/owners.lua:javas"
--#include "queue/placing.lua"
-- Begins a run that must happen once. During the run the key is a lock with one more field,
-- "print"; then complete.lua replaces it by a record with "done", "print" and "by" (the owner). A
-- grant writes an empty print, which matches every fingerprint.
--
-- Arguments and replies are those of acquiring.lua, and
--
-- { 3, result }      the run is already done
-- { 4 }              the key has a different fingerprint
local known = redis.call('HMGET', LOCK, 'print', 'done')
if (known[1] or '') ~= '' and PRINT ~= '' and known[1] ~= PRINT then return { 4 } end
if known[1] and known[2] then
  if ARGV[7] ~= '' then redis.call('ZREM', QUEUE, ARGV[7]) end
  return { 3, known[2] }
end
--#include "lock/acquiring.lua"
