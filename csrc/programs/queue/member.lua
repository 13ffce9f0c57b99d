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

--#section parse
--#section form
-- A waiter's member of a queue: kind, client, number, token ttl, owner
local MEMBER = '^1(%l)([%x-]+):(%d+):(%d+) ?(.*)$'
--#end

-- kind, client, number, token ttl, owner; nil: not a waiter of this format
local function parse(member)
  local kind, client, number, ttl_ms, owner = member:match(MEMBER)
  if owner == '' then owner = client .. ':' .. number end
  return kind, client, number, ttl_ms, owner
end
--#end
