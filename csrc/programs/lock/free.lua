--#fragment
-- The usual acquire, in straight-line code: see acquire.lua. call is redis.call. Defines TOKEN. If
-- it is not nil, the program takes the lock, which is FREE, and returns TOKEN: 0 without fencing,
-- otherwise the clock rounded up to a multiple of TOKEN_GRAIN, so clients can reject a number that
-- is the reply to another command. The counter's TTL is long enough (token.lua) or was just set.
--
-- If TOKEN is nil, nothing has changed, and the code that follows decides. TOKEN is nil if the lock
-- is not FREE; in a quorum; for an owner that keeps the lock (its number begins with 0); for a
-- token TTL of 16 digits or more, which asks for a counter without a TTL; and if the counter is not
-- a number, Redisson has incremented it, it is ahead of the clock, or its TTL must be set. Servers
-- before 6.2 always refuse the SET in drawing.lua.
local TOKEN = nil
if FREE and not ARGV[8] and OWNER:byte(38) ~= 48 then
  local ttl_ms, drawn, token, token_string = TOKEN_TTL, TOKEN_TTL == '0', 0
  if not drawn and #ttl_ms < 16 then
    local time = call('TIME')
--#include "token/drawing.lua"
  end
  if drawn then TOKEN = token end
end
