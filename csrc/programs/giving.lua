--#fragment
-- Gives the free LOCK to the waiter `member`. It is the text of give in granting.lua, and a part of
-- release.lua, whose usual hand-over would spend 2 % more on a function. Reads what give has as its
-- arguments; defines counted, token and last, so a block has it once.
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
