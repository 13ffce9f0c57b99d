--#fragment
-- Grants the free lock to a member of the queue: see queue.lua.

-- Gives the free lock to the waiter that these fields describe; `place` is a string. If no token
-- can be drawn, the grant has token 0, and the waiter asks for one. If this client may not publish,
-- the program continues: its writes must not remain half done, and waiters have timers.
local function give(member, place, kind, client, number, ttl_ms, owner, now_us)
  --#section giving
  -- A release includes this section as straight-line code, which makes the usual hand-over 2 %
  -- faster. The section reads the arguments of give, and defines drawn, token and last, so a
  -- block can include it only once.
  local drawn, token, last = pcall(next_token, ttl_ms, nil, now_us, keeps(owner) and range_end)
  token = drawn and digits(token) .. (last and '-' .. digits(last) or '') or '0'
  create_hold(LOCK, owner, GRANT_MS, kind == 'g' and '' or nil)
  redis.call('ZADD', QUEUE, '0', member)
  redis.pcall('PUBLISH', 'holdfast_grant:' .. client,
    '1 grant ' .. kind .. ' ' .. number .. ' ' .. place .. ' ' .. token .. ' ' .. GRANT_MS .. ' '
    .. LOCK)
  if keeps(owner) and redis.call('ZCARD', QUEUE) > 1 then
    redis.pcall('PUBLISH', 'holdfast_grant:' .. client, '1 wish ' .. number)
  end
  --#end
end
