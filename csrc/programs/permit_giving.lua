--#fragment
-- Tells the waiter with these parts, at the place of this text, that the permits are its own. The
-- token drawn last is read where it is not known. See giving.lua.
local counted, token = pcall(next_token, ttl_ms, nil, US, nil, last)
token = counted and digits(token) or '0'
redis.call('ZADD', QUEUE, '0', member)
redis.pcall('PUBLISH', 'holdfast_grant:' .. client,
  '1 grant p ' .. number .. ' ' .. place .. ' ' .. token .. ' ' .. GRANT_MS .. ' ' .. LOCK)
