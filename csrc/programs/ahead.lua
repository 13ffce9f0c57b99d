--#fragment
-- How many waiters come before the first one of this client; -1: none of its own waits.
local function ahead_of(client)
  for place, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(0', '+inf')) do
    if member:sub(3, 38) == client then return place - 1 end
  end
  return -1
end
