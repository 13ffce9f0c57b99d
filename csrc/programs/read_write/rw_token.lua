--#fragment
-- → a read hold's token: the last writer's, or a new one if there is none
local function last_token(ttl_ms)
  if ttl_ms == '0' then return 0 end
  local last = token_in(redis.call('GET', COUNTER)) or 0
  return last > 0 and last or next_token(ttl_ms)
end
