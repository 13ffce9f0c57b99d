--#fragment
-- Whether it is "<uuid>:<number>", a waiter, and its client does not listen.
local function is_deaf(asked)
  local channel = 'holdfast_grant:' .. asked:sub(1, 36)
  return #asked > 36 and redis.pcall('PUBSUB', 'NUMSUB', channel)[2] == 0
end
