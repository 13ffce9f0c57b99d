--#fragment
--#section free
-- Whether a caller that neither holds the lock nor waits for it finds it free, without a queue.
local LEASE, TOKEN_TTL = ARGV[5], ARGV[6]
local FREE = ARGV[3] == '0' and ARGV[7] == '' and redis.call('EXISTS', LOCK, QUEUE) == 0
--#end

--#section fresh
-- The lock is FREE (above): before the rest is made.
-- PRINT: of a guard its fingerprint, nil: it is a lock.
if FREE then
  local token, last = next_token(TOKEN_TTL, tonumber(ARGV[9]), nil, keeps(OWNER) and range_end)
  create_hold(LOCK, OWNER, LEASE, PRINT)
  return { 1, token, 0, ARGV[9] and server_us() or last and 0, last }
end
--#end
