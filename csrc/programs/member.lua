--#fragment
-- A waiter of a newer format: it knows how to wait, and is left alone.
local function is_newer(member)
  return member:find('^[2-9]%l%x') ~= nil
end

local function client_of(member)
  return member:sub(3, 38)
end
