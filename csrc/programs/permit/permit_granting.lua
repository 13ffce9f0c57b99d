--#fragment
-- Tells the client of the waiter that these fields describe that the waiter got its permits. place:
-- a string.
local function announce_grant(member, place, client, number, ttl_ms)
  local drawn, token = pcall(next_token, ttl_ms, nil, US)
  token = drawn and digits(token) or '0'
  redis.call('ZADD', QUEUE, '0', member)
  redis.pcall('PUBLISH', 'holdfast_grant:' .. client,
    '1 grant p ' .. number .. ' ' .. place .. ' ' .. token .. ' ' .. GRANT_MS .. ' ' .. LOCK)
end
