--#include "hash.lua"
--#include "queue.lua"
--#include "acquiring.lua"
-- Begins a run that must happen once. While it runs the key is a lock with one more field, "print"; complete.lua then
-- leaves "done", "print" and "by", the owner, there for a while. A grant writes no print: whoever has one asks for the
-- lock all the same.
--
-- Arguments and replies are those of acquiring.lua, and
-- ARGV[8] print      the request's fingerprint, "": any
--
-- { 3, result }      it was done
-- { 4 }              the key belongs to a request with another fingerprint
local PRINT = ARGV[8]

local known = redis.call('HMGET', LOCK, 'print', 'done')
if (known[1] or '') ~= '' and PRINT ~= '' and known[1] ~= PRINT then return { 4 } end
if known[2] then
  if WAITER ~= '' then redis.call('ZREM', QUEUE, WAITER) end
  return { 3, known[2] }
end
local reply = acquire()
if reply[1] == 1 and PRINT ~= '' then redis.call('HSET', LOCK, 'print', PRINT) end
return reply
