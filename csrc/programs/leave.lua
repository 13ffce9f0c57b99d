--#include "layout.lua"
--#include "queue.lua"
-- Ends a wait, or undoes an acquire whose outcome is unknown. A lock granted meanwhile goes to the next one.
--
-- ARGV[3] to      the count that the owner keeps
-- ARGV[4] waiter  its place in the queue, "": none
-- ARGV[5] own     of an owner that other processes share, instead of `to`: how many holds to let go of, 0: the one that
--                 was granted to the waiter, if any; "": it is not shared
--
-- 1 the lock had been granted and was passed on, 0 nothing was held
local TO, WAITER, OWN = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

local granted = WAITER ~= '' and tonumber(redis.pcall('ZSCORE', QUEUE, WAITER)) == 0
if WAITER ~= '' then redis.pcall('ZREM', QUEUE, WAITER) end
local count = holds_of(LOCK, OWNER)
if OWN == 0 and granted then OWN = 1 end
local to = OWN and count and count - OWN or TO
if not count or count <= to then return 0 end
if to > 0 then
  set_holds(LOCK, OWNER, to, 0)
else
  pass_on()
end
return 1
