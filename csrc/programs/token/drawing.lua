--#fragment
-- Straight-line code: see acquire.lua. Draws a token from the clock in the same way as token.lua,
-- if the counter needs nothing else, except a TTL if it is new. Otherwise leaves the counter
-- unchanged.
--
-- Reads call, COUNTER, time (the reply of TIME) and ttl_ms (the token TTL, with fewer than 16
-- digits). Sets drawn (whether a token was drawn), token, and token_string (made of the clock's
-- digits, because formatting a large number is slow). Draws no token if the microseconds round
-- up to a full second, which has one more digit, or if the clock is far ahead (the section seconds
-- of clock.lua). If the server refuses to set a new counter's TTL, the counter remains without a
-- TTL, which is safe.
local us = time[2] + 0
us = us + -us % 8
token = time[1] * 1000000 + us
if us < 1000000 and token < 4.5e15 then
  token_string = time[1] .. string.format('%06d', us)
  local previous = redis.pcall('SET', COUNTER, token_string, 'KEEPTTL', 'GET')
  local last = tonumber(previous)
--#include "token/token.lua:from_clock"
  drawn = from_clock or not previous
  if not previous then
    redis.pcall('PEXPIRE', COUNTER, string.format('%.0f', ttl_ms * 33 / 32))
  elseif not from_clock and not previous.err then
    call('SET', COUNTER, previous, 'KEEPTTL')
  end
end
