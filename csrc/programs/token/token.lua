--#fragment
-- Fencing tokens.
--#section token_in
local TOKEN_MOST = 9007199254740991 -- 2^53 - 1: exact in every client's numbers
local TOKEN_GRAIN = 8 -- our tokens are multiples of it, so one that Java has drawn is known

-- The last token, as this text of a counter tells it; nil: none that another one can follow.
local function token_in(text)
  local last = tonumber(text)
  local follows = last and last >= 0 and last % 1 == 0 and last < TOKEN_MOST - TOKEN_GRAIN
  return follows and last or nil
end
--#end

-- A TTL is set with twice this part more than asked for, and again by the first token that finds
-- less than this part to spare. Then the TTL is long enough while the clock is in the part in which
-- the last token was drawn.
local TTL_SPARE = 1 / 64

-- A token above every earlier one, also when the counter was lost: the clock, or the one after the
-- last. It is written first, and the rest is seen to where the last one calls for it: a server
-- before 6.2 refuses that, and so nothing is written where there is a floor. A counter that is
-- ahead of the clock stays at least until the clock has come there. A counter without a TTL, or
-- from which Java has drawn, is Java's too: Java's INCR renews no TTL, so the counter gets none. In
-- a quorum, where there is a floor, Java draws nothing. now_us: the clock, if it is known.
-- end_of_range: range_end of ranges.lua, if more than one is drawn.
-- → the token; and the last one of the range that begins with it
local function next_token(ttl_ms, floor, now_us, end_of_range)
  if ttl_ms == '0' then return 0 end
  local now, least = now_us or server_us(), tonumber(ttl_ms)
  local token = now + -now % TOKEN_GRAIN
  local ends = end_of_range and end_of_range(token, now)
  local stored = floor and {}
    or redis.pcall('SET', COUNTER, digits(ends or token), 'KEEPTTL', 'GET')
  local last = tonumber(stored)
--#section lasts
-- Whether `last` leaves nothing to do but to draw `token` from the clock: it was drawn by us, not
-- ahead of the clock, and in the same part of the counter's TTL, which is then long enough.
local lasts = last and last < token and last % 8 == 0 and last >= token - token % (ttl_ms * 15.625)
--#end
  if lasts and least < TOKEN_MOST then return token, ends or nil end
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
  if drawn or ttl_left == -1 or least >= TOKEN_MOST then
    redis.call('SET', COUNTER, digits(ends or token))
  else
    local kept = usable and ttl_left >= most - spare and ttl_left <= most
    redis.call('SET', COUNTER, digits(ends or token), 'PX', digits(kept and ttl_left or most))
  end
  return token, ends or nil
end
