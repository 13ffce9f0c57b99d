--#fragment
--#section ours
-- Matches the owners of holdfast's clients: <uuid of version 8>:<number>; in a quorum also
-- <uuid>:<number>.<n>. Does not match shared owners.
local OUR_OWNER =
  '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+%.?%d*$'
--#end

--#section redisson_owner
-- Matches Redisson's owners, <uuid>:<thread>, and also our clients' owners, except
-- <uuid>:<number>.<n> and shared owners.
local REDISSON_OWNER =
  '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+$'

-- Called when a client of Redisson was seen at the lock. That client may draw from the counter, so
-- the counter must not expire from now on. Leaves a key that is not a string unchanged.
local function keep_counter()
  if redis.call('PTTL', COUNTER) < 0 then return end
  local token = redis.pcall('GET', COUNTER)
  if type(token) == 'string' then redis.call('SET', COUNTER, token) end
end
--#end
