--#fragment
-- The grant to a member of the queue: queue.lua tells what stands there.

-- Gives the free lock to the waiter with these fields, at the place of this text; one that finds no
-- token with its grant asks for one. A client that may not publish leaves its waiters to their
-- clocks: what it has written must not be half done.
local function give(member, place, kind, client, number, ttl_ms, owner, now_us)
--#include "giving.lua"
end
