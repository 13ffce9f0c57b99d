--#fragment
--#include "member_form.lua"

-- kind, client, number, token ttl, owner; nil: not a waiter of this format
local function parse(member)
  local kind, client, number, ttl_ms, owner = member:match(MEMBER)
  if owner == '' then owner = client .. ':' .. number end
  return kind, client, number, ttl_ms, owner
end
