--#fragment
-- The usual acquire, straight-line: see acquire.lua. Defines TOKEN: with it, the program takes the
-- lock, which is FREE, and ends with the token as its reply. 0: no fencing. The token is the clock,
-- and the counter's TTL is long enough (token.lua) or starts now. nil: the state is unchanged, and
-- the code that follows decides; so for a counter without a TTL, a guard, a quorum, an owner that
-- keeps the lock (its number begins with 0), and a counter that is not a number, that Java has
-- drawn from, or that is ahead of the clock. So this token is a multiple of TOKEN_GRAIN, by which
-- clients tell the reply from a stray one. Servers before 6.2 do not know the SET of drawing.lua
-- and always refuse it. call is redis.call.
local TOKEN = nil
if FREE and not ARGV[8] and OWNER:byte(38) ~= 48 then
  local ttl_ms, drawn, token, text = TOKEN_TTL, TOKEN_TTL == '0', 0
  if not drawn and #ttl_ms < 16 then
    local time = call('TIME')
--#include "token/drawing.lua"
  end
  if drawn then TOKEN = token end
end
