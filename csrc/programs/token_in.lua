--#fragment
local TOKEN_MOST = 9007199254740991 -- 2^53 - 1: exact in every client's numbers
local TOKEN_GRAIN = 8 -- our tokens are multiples of it, so one that Java has drawn is known

-- The last token, as this text of a counter tells it; nil: none that another one can follow.
local function token_in(text)
  local last = tonumber(text)
  local follows = last and last >= 0 and last % 1 == 0 and last < TOKEN_MOST - TOKEN_GRAIN
  return follows and last or nil
end
