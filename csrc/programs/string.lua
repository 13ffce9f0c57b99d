--#fragment
-- How a mutex stands on the server, as SET key owner NX PX leaves it: a string, the owner. Others
-- may set it without a TTL; they poll, so nobody needs a message of a release.
local KIND, KINDS = 'string', 'm'

local function holds_of(lock, owner)
  return redis.call('GET', lock) == owner and 1 or nil
end

local function create_hold(lock, owner, ms)
  redis.call('SET', lock, owner, 'PX', ms)
end
