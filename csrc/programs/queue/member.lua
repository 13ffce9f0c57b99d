--#fragment
-- A member of a queue, its client, and how to send a message to that client.

-- Returns whether this is a waiter in a newer format. Only its own client may change it.
local function is_newer(member)
  return member:find('^[2-9]%l%x') ~= nil
end

local function client_of(member)
  return member:sub(3, 38)
end

local function channel_of(member)
  return 'holdfast_grant:' .. client_of(member)
end

-- Sends a waiter's client a message. If this client may not publish, the program continues: its
-- writes must not remain half done, and waiters have timers.
local function send(member, ...)
  redis.pcall('PUBLISH', channel_of(member), '1 ' .. table.concat({ ... }, ' '))
end

--#section parse
--#section form
-- A waiter's queue member: kind, client, number, token TTL, owner
local MEMBER = '^1(%l)([%x-]+):(%d+):(%d+) ?(.*)$'
--#end

-- → kind, client, number, token TTL, owner; nil if it is not a waiter in this format
local function parse(member)
  local kind, client, number, ttl_ms, owner = member:match(MEMBER)
  if owner == '' then owner = client .. ':' .. number end
  return kind, client, number, ttl_ms, owner
end
--#end
