--#include "layout.lua"
--#include "queue.lua"
-- Ends a wait, or undoes an acquire whose outcome is unknown. A lock granted meanwhile goes to the next one.
--
-- ARGV[3] to      the count that the owner keeps
-- ARGV[4] waiter  its place in the queue, "": none
--
-- 1 the lock had been granted and was passed on, 0 nothing was held
local TO, WAITER = tonumber(ARGV[3]), ARGV[4]

if WAITER ~= '' then redis.pcall('ZREM', QUEUE, WAITER) end
local count = holds_of(LOCK, OWNER)
if not count or count <= TO then return 0 end
if TO > 0 then
  set_holds(LOCK, OWNER, TO, 0)
else
  pass_on()
end
return 1
