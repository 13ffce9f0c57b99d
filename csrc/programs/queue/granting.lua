--#fragment
-- The grant to a member of the queue: queue.lua tells what stands there.

-- Gives the free lock to the waiter with these fields, at the place of this text; one that finds no
-- token with its grant asks for one. A client that may not publish leaves its waiters to their
-- clocks: what it has written must not be half done.
local function give(member, place, kind, client, number, ttl_ms, owner, now_us)
  --#section giving
  -- A release has this section in straight lines, which saves 2 % of the usual hand-over. It reads
  -- what give has as its arguments, and defines counted, token and last, so a block has it once.
  local counted, token, last = pcall(next_token, ttl_ms, nil, now_us, keeps(owner) and range_end)
  token = counted and digits(token) .. (last and '-' .. digits(last) or '') or '0'
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
