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

-- Only the first waiter listens to a holder that will not hand over.
local function tell_next_first()
  local holder, member = holder_of(LOCK), first()
  if not holder or holder:find(OURS) or not member then return end
  local wait = parts(member)
  if wait then tell(member, 'look ' .. wait) end
end

local granted, was_first = false, false
if WAITER ~= '' and redis.call('TYPE', QUEUE).ok == 'zset' then
  granted, was_first = tonumber(redis.call('ZSCORE', QUEUE, WAITER)) == 0, first() == WAITER
  redis.call('ZREM', QUEUE, WAITER)
end
local count = holds_of(LOCK, OWNER)
if OWN == 0 and granted then OWN = 1 end
local to = OWN and count and count - OWN or TO
if not count or count <= to then
  if was_first then tell_next_first() end
  return 0
end
if to > 0 then
  set_holds(LOCK, OWNER, to, 0)
else
  pass_on()
end
return 1
