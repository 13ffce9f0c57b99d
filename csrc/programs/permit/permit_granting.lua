--#fragment
-- Notifies the waiter that these fields describe of its permits; `place` is a string.
local function announce_grant(member, place, client, number, ttl_ms)
  local counted, token = pcall(next_token, ttl_ms, nil, US)
  token = counted and digits(token) or '0'
  redis.call('ZADD', QUEUE, '0', member)
  redis.pcall('PUBLISH', 'holdfast_grant:' .. client,
    '1 grant p ' .. number .. ' ' .. place .. ' ' .. token .. ' ' .. GRANT_MS .. ' ' .. LOCK)
end
