--#fragment
--#section deaf
-- Returns whether `asked` is a waiter, "<uuid>:<number>", whose client is not listening.
local function is_deaf(asked)
  local channel = 'holdfast_grant:' .. asked:sub(1, 36)
  return #asked > 36 and redis.pcall('PUBSUB', 'NUMSUB', channel)[2] == 0
end
--#end

-- asked: a waiter, or a client's uuid. → the number of waiters before that waiter, or before that
-- client's first waiter; -1 if there is no such waiter, or its client is not listening
local function ahead_of(asked)
  local start = asked .. ':'
  local members = is_deaf(asked) and {} or redis.call('ZRANGEBYSCORE', KEYS[3], '(0', '+inf')
  for index, member in ipairs(members) do
    if member:sub(3, #start + 2) == start then return index - 1 end
  end
  return -1
end
