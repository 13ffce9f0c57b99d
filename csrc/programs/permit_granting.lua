--#fragment
-- The grant of permits to a member of the queue.

--#include "parts.lua"
local function announce_grant(member, place, client, number, ttl_ms)
  local last = nil
--#include "permit_giving.lua"
end
