--#fragment
-- Fencing tokens.
local TOKEN_MOST = 9007199254740991 -- 2^53 - 1: exact in every client's numbers
local TOKEN_GRAIN = 8 -- our tokens are multiples of it, so one that Java has drawn is known

-- A TTL is set with twice this part more than asked for, and again by the first token that finds
-- less than this part to spare. Then head.lua, which does not look, can leave it as it is while the
-- clock is in the part in which the last token was drawn.
local TTL_SPARE = 1 / 64

-- A token above every earlier one, also when the counter was lost. A counter without a TTL, or from
-- which Java has drawn, is Java's too: Java's INCR renews no TTL, so the counter gets none. In a
-- quorum, where there is a floor, Java draws nothing. now_us: the clock, if it is known.
-- end_of_range: range_end of ranges.lua, if more than one is drawn. known: the last token, where it
-- was read.
-- → the token; and the last one of the range that begins with it
local function next_token(ttl_ms, floor, now_us, end_of_range, known)
  if ttl_ms == '0' then return 0 end
  local last = known or tonumber(redis.call('GET', COUNTER))
  local ttl_left = last and redis.call('PTTL', COUNTER)
  local usable = last and last >= 0 and last < TOKEN_MOST - TOKEN_GRAIN
  if last and not usable then last = 0 end
  local now = now_us or server_us()
  local token = math.max((last or 0) + 1, now, floor or 0)
  if not floor then token = token + -token % TOKEN_GRAIN end
  local ends = end_of_range and end_of_range(token, now)
  local drawn = last and not floor and last % TOKEN_GRAIN ~= 0
  local least = tonumber(ttl_ms)
  local spare = least * TTL_SPARE
  local most = math.floor(least + 2 * spare)
  if usable and not drawn and ttl_left >= least + spare and ttl_left <= most then
    redis.call('INCRBY', COUNTER, digits((ends or token) - last))
  elseif drawn or ttl_left == -1 or least >= TOKEN_MOST then
    redis.call('SET', COUNTER, digits(ends or token))
  else
    redis.call('SET', COUNTER, digits(ends or token), 'PX', digits(most))
  end
  return token, ends or nil
end
