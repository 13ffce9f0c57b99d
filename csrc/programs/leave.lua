--#include "layout.lua"
--#include "queue.lua"
-- Ends a wait, or undoes an acquire whose outcome is unknown. A lock granted meanwhile goes to the next one.
--
-- ARGV[3] to      the count that the owner keeps
-- ARGV[4] waiter  its place in the queue, "": none
--
-- 1 the lock had been granted and was passed on, 0 nothing was held
local TO, WAITER = tonumber(ARGV[3]), ARGV[4]

-- Only the first waiter listens to a holder that will not hand over.
local function tell_next_first()
  local holder, member = holder_of(LOCK), first()
  if not holder or holder:find(OURS) or not member then return end
  local wait = parts(member)
  if wait then tell(member, 'look ' .. wait) end
end

local was_first = false
if WAITER ~= '' and redis.call('TYPE', QUEUE).ok == 'zset' then
  was_first = first() == WAITER
  redis.call('ZREM', QUEUE, WAITER)
end
local count = holds_of(LOCK, OWNER)
if not count or count <= TO then
  if was_first then tell_next_first() end
  return 0
end
if TO > 0 then
  set_holds(LOCK, OWNER, TO, 0)
else
  pass_on()
end
return 1
