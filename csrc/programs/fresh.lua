--#fragment
-- The lock is FREE (free.lua): before the rest is made.
-- PRINT: of a guard its fingerprint, nil: it is a lock.
if FREE then
  local token, last = next_token(TOKEN_TTL, tonumber(ARGV[9]), nil, keeps(OWNER) and range_end)
  create_hold(LOCK, OWNER, LEASE, PRINT)
  return { 1, token, 0, ARGV[9] and server_us() or last and 0, last }
end
