--#fragment
-- Straight-line: see acquire.lua. Draws a token from the clock as token.lua does, if nothing else
-- has to be done to the counter; otherwise leaves the counter unchanged. Reads call, COUNTER, time
-- (the reply of TIME) and ttl_ms (the token TTL, with fewer than 16 digits). Sets drawn (whether a
-- token was drawn) and text (the token). Draws none if the microseconds are rounded up to a second,
-- which adds a digit, or if the clock is far ahead (the section seconds of clock.lua).
local us = time[2] + 0
us = us + -us % 8
local clock = time[1] .. string.format('%06d', us)
local token = clock + 0
if token < 4.5e15 then
  text = clock
  local found = redis.pcall('SET', COUNTER, text, 'KEEPTTL', 'GET')
  local last = tonumber(found)
--#include "token/token.lua:lasts"
  drawn = lasts or not found
  if not found then
    call('SET', COUNTER, text, 'PX', string.format('%.0f', ttl_ms * 33 / 32))
  elseif not lasts and not found.err then
    call('SET', COUNTER, found, 'KEEPTTL')
  end
end
