-- Raises a fencing counter to a token that another server issued, so that the next token is higher.
-- Never lowers the counter. Safe to resend.
--
-- KEYS[1] the counter
-- ARGV[1] token, ARGV[2] TTL of our counters in ms, 2^53 - 1 or more: none
--
-- 1 done
--#include "base/clock.lua"
--#include "token/token.lua:token_in"
local COUNTER, token, ttl_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local last = token_in(redis.call('GET', COUNTER))
if last and last >= token then return 1 end
if ttl_ms >= TOKEN_MAX or redis.call('PTTL', COUNTER) == -1 then
  redis.call('SET', COUNTER, ARGV[1])
else
  local ahead_ms = math.floor((token - server_us()) / 1000)
  redis.call('SET', COUNTER, ARGV[1], 'PX', digits(math.max(ttl_ms, ahead_ms)))
end
return 1
