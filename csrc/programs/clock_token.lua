--#fragment
-- A part of head.lua and of token.lua. Whether `last` leaves nothing to do but to draw `token` from
-- the clock: it was drawn by us and not ahead of the clock, and in the same part of the counter's
-- TTL, which is long enough then (token.lua).
local lasts = last and last < token and last % 8 == 0 and last >= token - token % (ttl_ms * 15.625)
