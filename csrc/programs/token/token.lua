--#fragment
-- Fencing tokens.
--#section token_in
local TOKEN_MAX = 9007199254740991 -- 2^53 - 1: integers up to here are exact in every client
-- Our tokens are multiples of this, except in a quorum; Redisson draws any whole number.
local TOKEN_GRAIN = 8

-- value: a counter's value. → its last token; nil if the value is not a token, or too high to draw
-- another token after it
local function token_in(value)
  local last = tonumber(value)
  local is_usable = last and last >= 0 and last % 1 == 0 and last < TOKEN_MAX - TOKEN_GRAIN
  return is_usable and last or nil
end
--#end

-- A counter's TTL is set to 1 + 2 * TTL_SPARE times the requested TTL, and set again by the first
-- draw that finds less than 1 + TTL_SPARE times the requested TTL left. Time is divided into
-- periods of TTL_SPARE times the requested TTL: after the first draw in a period, the TTL is long
-- enough until the period ends, so later draws need not check it.
local TTL_SPARE = 1 / 64

-- Draws a token above every earlier one: the clock, or the token after the last one. A lost counter
-- therefore does no harm, unless it was ahead of the clock; such a counter is kept at least until
-- the clock reaches it. The token is written first; the TTL is read and set only if the last token
-- requires it. Servers before 6.2 refuse that first SET, and with a floor nothing is written first.
--
-- A counter that has no TTL, or that Redisson has incremented, is shared with Redisson. Its INCR
-- does not renew a TTL, so such a counter gets none. In a quorum, which has a floor, only we draw.
--
-- After 8, 16, ... consecutive INCRs by Redisson, the counter looks as if only we had used it, and
-- keeps its TTL until Redisson next draws. Tokens never decrease or repeat before the TTL ends:
-- each draw is above the counter. The counter is lost only if Redisson alone draws for the whole
-- TTL; docs/reference/holds.md says what such keys need.
--
-- now_us: the clock, if known. end_of_range: range_end of ranges.lua, to draw a range.
-- → the token, 0 if ttl_ms is '0'; the last token of the range, if one is drawn
local function next_token(ttl_ms, floor, now_us, end_of_range)
  if ttl_ms == '0' then return 0 end
  local now, requested_ms = now_us or server_us(), tonumber(ttl_ms)
  local token = now + -now % TOKEN_GRAIN
  local final = end_of_range and end_of_range(token, now)
  local stored = floor and {}
    or redis.pcall('SET', COUNTER, digits(final or token), 'KEEPTTL', 'GET')
  local last = tonumber(stored)
--#section from_clock
-- Defines from_clock: whether `token` can be drawn from the clock with nothing else to do. The
-- condition is that we have drawn `last`, that it is not ahead of the clock, and that it lies in
-- the same period (TTL_SPARE), so that the counter's TTL is long enough.
local from_clock = last and last < token and last % 8 == 0
  and last >= token - token % (ttl_ms * 15.625)
--#end
  if from_clock and requested_ms < TOKEN_MAX then return token, final or nil end
  if type(stored) == 'table' then last = tonumber(redis.call('GET', COUNTER)) end
  local last_usable = token_in(last)
  if last and not last_usable then last = 0 end
  token = math.max((last or 0) + 1, now, floor or 0)
  if not floor then token = token + -token % TOKEN_GRAIN end
  final = end_of_range and end_of_range(token, now)
  local drawn_by_redisson = last and not floor and last % TOKEN_GRAIN ~= 0
  local ttl_left = last and redis.pcall('PTTL', COUNTER)
  if type(ttl_left) == 'table' then -- refused: the counter remains as it was, and the program fails
    if type(stored) == 'string' then redis.call('SET', COUNTER, stored, 'KEEPTTL') end
    redis.call('PTTL', COUNTER)
  end
  local spare = requested_ms * TTL_SPARE
  local max_ms = math.floor(math.max(requested_ms + 2 * spare, ((final or token) - now) / 1000))
  if drawn_by_redisson or ttl_left == -1 or requested_ms >= TOKEN_MAX then
    redis.call('SET', COUNTER, digits(final or token))
  else
    local valid = last_usable and ttl_left >= max_ms - spare and ttl_left <= max_ms
    redis.call('SET', COUNTER, digits(final or token), 'PX', digits(valid and ttl_left or max_ms))
  end
  return token, final or nil
end
