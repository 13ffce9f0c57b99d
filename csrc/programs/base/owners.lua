--#fragment
--#section ours
-- A pattern for the owners of holdfast's clients: <uuid of version 8>:<number>; in a quorum also
-- <uuid>:<number>.<n>. A shared owner does not match.
local OURS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+%.?%d*$'
--#end

--#section redisson_owner
-- A pattern for Redisson's owners, <uuid>:<thread>. Those of our clients match it as well, except
-- <uuid>:<number>.<n> and a shared owner.
local REDISSON_OWNER =
  '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+$'

-- A client of Redisson was seen at the lock. It may draw from the counter, so the counter must not
-- expire from now on. A key that is not a string is left unchanged.
local function keep_counter()
  if redis.call('PTTL', COUNTER) < 0 then return end
  local text = redis.pcall('GET', COUNTER)
  if type(text) == 'string' then redis.call('SET', COUNTER, text) end
end
--#end
