--#fragment
-- What more there is to a mutex: see string.lua.

-- Never shortens a TTL: it may be a command that comes late, behind one that made the lease longer.
local function set_holds(lock, owner, _, ms)
  redis.call('SET', lock, owner, 'PX', math.max(redis.call('PTTL', lock), tonumber(ms)))
end

local function holder_of(lock, owner)
  local holder = redis.call('GET', lock)
  return holder, holder and holder == owner and 1 or nil, 'lock'
end
