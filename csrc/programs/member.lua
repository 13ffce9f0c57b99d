--#fragment
-- One member of a queue: which client it belongs to, and how to send that client a message.

-- A waiter of a newer format: it knows how to wait, and is left alone.
local function is_newer(member)
  return member:find('^[2-9]%l%x') ~= nil
end

local function client_of(member)
  return member:sub(3, 38)
end

local function channel_of(member)
  return 'holdfast_grant:' .. client_of(member)
end

-- A client that may not publish leaves its waiters to their clocks: what it has written must not be
-- half done.
local function send(member, ...)
  redis.pcall('PUBLISH', channel_of(member), '1 ' .. table.concat({ ... }, ' '))
end
