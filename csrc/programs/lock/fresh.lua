--#fragment
--#section free
-- Defines FREE: whether the lock is free and has no queue, and the caller neither holds it nor
-- waits for it.
local LEASE, TOKEN_TTL = ARGV[5], ARGV[6]
local FREE = ARGV[3] == '0' and ARGV[7] == '' and redis.call('EXISTS', LOCK, QUEUE) == 0
--#end

--#section fresh
-- Fast path: takes the lock if it is FREE, before the program creates its other functions.
-- FINGERPRINT: a guard's fingerprint, or nil for a lock.
if FREE then
  local token, last = next_token(TOKEN_TTL, tonumber(ARGV[9]), nil, keeps(OWNER) and range_end)
  create_hold(LOCK, OWNER, LEASE, FINGERPRINT)
  return { 1, token, 0, ARGV[9] and server_us() or last and 0, last }
end
--#end
