--#fragment
-- A reader that comes in where nobody writes or waits, in straight lines: see head.lua. Anything
-- else is left to the text behind it, such as a counter that has no token.
local found = redis.call('HGET', LOCK, 'mode')
local held = found and tonumber(redis.call('HGET', LOCK, OWNER)) or 0
if FROM == 0 and held == 0 and (not found or found == 'read') and OWNER:sub(-6) ~= ':write' then
  local call = redis.call
  local free = call('EXISTS', QUEUE) == 0
    and (found and foreign_waiters(RELEASES) == 0 or not found and call('EXISTS', LOCK) == 0)
  local token = free and (TOKEN_TTL == '0' and 0 or tonumber(call('GET', COUNTER)))
  if token and (token > 0 or TOKEN_TTL == '0') and token < 9007199254740983 then
    if not found then
      call('HSET', LOCK, 'mode', 'read', OWNER, '1')
      local lock, ms = LOCK, LEASE
--#include "ending.lua"
    else
      call('HSET', LOCK, OWNER, '1')
      if call('PTTL', LOCK) < tonumber(LEASE) then call('PEXPIRE', LOCK, LEASE) end
    end
    local tag = LOCK:find('{', 1, true) and LOCK or '{' .. LOCK .. '}'
    call('SET', tag .. ':' .. OWNER .. ':rwlock_timeout:1', '1', 'PX', LEASE)
    return { 1, token, 0 }
  end
end
