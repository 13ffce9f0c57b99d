--#fragment
-- The common case first, before the rest is made: nobody holds the lock, and nobody waits for it.
-- PRINT: of a guard its fingerprint, nil: it is a lock.
local LEASE, TOKEN_TTL = ARGV[5], ARGV[6]

if ARGV[3] == '0' and ARGV[7] == '' and redis.call('EXISTS', LOCK, QUEUE) == 0 then
  local token, last = next_token(TOKEN_TTL, tonumber(ARGV[9]), nil, keeps(OWNER) and range_end)
  create_hold(LOCK, OWNER, LEASE, PRINT)
  return { 1, token, 0, ARGV[9] and server_us() or last and 0, last }
end
