--#fragment
-- What a read hold carries: the last writer's token.
local function last_token(ttl_ms)
  if ttl_ms == '0' then return 0 end
  local last = tonumber(redis.call('GET', COUNTER))
  if last and last > 0 and last < TOKEN_MOST - TOKEN_GRAIN then return last end
  return next_token(ttl_ms)
end
