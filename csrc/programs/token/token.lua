--#fragment
-- Fencing tokens.
--#section token_in
local TOKEN_MAX = 9007199254740991 -- 2^53 - 1: exact in every client's numbers
-- Our tokens are multiples of this, except in a quorum; Java draws any other.
local TOKEN_GRAIN = 8

-- text: what a counter contains. → its last token; nil if it is not a token, or none can follow it
local function token_in(text)
  local last = tonumber(text)
  local follows = last and last >= 0 and last % 1 == 0 and last < TOKEN_MAX - TOKEN_GRAIN
  return follows and last or nil
end
--#end

-- A counter's TTL is set to 1 + 2 * TTL_SPARE of the requested one, and set again by the first
-- token that finds less than 1 + TTL_SPARE of it left. Divide time into periods of TTL_SPARE of the
-- requested TTL: until the end of the period in which the last token was drawn, the TTL is long
-- enough.
local TTL_SPARE = 1 / 64

-- Draws a token above every earlier one: the clock, or the token after the last. So a lost counter
-- does no harm, unless it was ahead of the clock; such a counter is kept at least until the clock
-- reaches it. The token is written first, and the rest is done if the last token requires it.
-- Servers before 6.2 refuse that SET, and with a floor nothing is written first.
--
-- A counter without a TTL, or from which Java has drawn, is also Java's: Java's INCR renews no TTL,
-- so the counter gets none. In a quorum, which has a floor, Java draws nothing.
--
-- After 8, 16, ... of Java's INCRs in a row, the counter looks as if only we had used it, and keeps
-- its TTL until the next sign of Java. No token falls or repeats before the TTL ends, because each
-- draw is above the counter. The counter is only lost if Java alone draws for the whole TTL;
-- docs/reference/holds.md says what such keys need.
--
-- now_us: the clock, if known. end_of_range: range_end of ranges.lua, to draw a range.
-- → the token, 0 if ttl_ms is '0'; the last token of the range, if one is drawn
local function next_token(ttl_ms, floor, now_us, end_of_range)
  if ttl_ms == '0' then return 0 end
  local now, least = now_us or server_us(), tonumber(ttl_ms)
  local token = now + -now % TOKEN_GRAIN
  local ends = end_of_range and end_of_range(token, now)
  local stored = floor and {}
    or redis.pcall('SET', COUNTER, digits(ends or token), 'KEEPTTL', 'GET')
  local last = tonumber(stored)
--#section lasts
-- Defines lasts: whether `token` can be drawn from the clock with nothing else to do. `last` must
-- have been drawn by us, not be ahead of the clock, and lie in the same period (TTL_SPARE), so that
-- the counter's TTL is long enough.
local lasts = last and last < token and last % 8 == 0 and last >= token - token % (ttl_ms * 15.625)
--#end
  if lasts and least < TOKEN_MAX then return token, ends or nil end
  if type(stored) == 'table' then last = tonumber(redis.call('GET', COUNTER)) end
  local usable = token_in(last)
  if last and not usable then last = 0 end
  token = math.max((last or 0) + 1, now, floor or 0)
  if not floor then token = token + -token % TOKEN_GRAIN end
  ends = end_of_range and end_of_range(token, now)
  local drawn = last and not floor and last % TOKEN_GRAIN ~= 0
  local ttl_left = last and redis.pcall('PTTL', COUNTER)
  if type(ttl_left) == 'table' then -- refused: the counter is as it was, and the program fails
    if type(stored) == 'string' then redis.call('SET', COUNTER, stored, 'KEEPTTL') end
    redis.call('PTTL', COUNTER)
  end
  local spare = least * TTL_SPARE
  local most = math.floor(math.max(least + 2 * spare, ((ends or token) - now) / 1000))
  if drawn or ttl_left == -1 or least >= TOKEN_MAX then
    redis.call('SET', COUNTER, digits(ends or token))
  else
    local kept = usable and ttl_left >= most - spare and ttl_left <= most
    redis.call('SET', COUNTER, digits(ends or token), 'PX', digits(kept and ttl_left or most))
  end
  return token, ends or nil
end
