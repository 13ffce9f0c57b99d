--#fragment
--#section ours
-- The owners of holdfast's clients: <uuid of version 8>:<number>; in a quorum also
-- <uuid>:<number>.<n>. A shared owner does not match.
local OURS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+%.?%d*$'
--#end

--#section javas
-- Redisson's owners are <uuid>:<thread>. Those of our clients match, too, except
-- <uuid>:<number>.<n> and a shared owner.
local JAVAS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+$'

-- Redisson was seen at the lock and may draw from the counter, so the counter must not expire from
-- now on. A key that is not a string is left unchanged.
local function keep_counter()
  if redis.call('PTTL', COUNTER) < 0 then return end
  local text = redis.pcall('GET', COUNTER)
  if type(text) == 'string' then redis.call('SET', COUNTER, text) end
end
--#end
