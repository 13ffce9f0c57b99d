--#fragment
-- The usual acquire, straight-line: see acquire.lua. The lock is FREE; the token is the clock, or
-- there is none; and the counter's TTL is long enough (token.lua) or starts now. The program ends
-- with the token as its reply. It continues, with the state unchanged, for a counter without a TTL,
-- a guard, a quorum, an owner that keeps the lock (its number begins with 0), and a counter that is
-- not a number, that Java has drawn from, or that is ahead of the clock. Servers before 6.2 do not
-- know the SET of drawing.lua and always refuse it. call is redis.call.
if FREE and not ARGV[8] and OWNER:byte(38) ~= 48 then
  local ttl_ms, token, text = TOKEN_TTL, 0
  local drawn = ttl_ms == '0'
  if not drawn and #ttl_ms < 16 then
    local time = call('TIME')
--#include "token/drawing.lua"
  end
  if drawn then
--#include "LAYOUT:taking"
    return token
  end
end
