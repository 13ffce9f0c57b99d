--#fragment
--#section ours
-- The owners of holdfast's clients: <uuid of version 8>:<number>. A shared owner is another text.
local OURS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-8%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+%.?%d*$'
--#end

--#section javas
-- Redisson's owners are <uuid>:<thread>. A shared owner of ours is another text.
local JAVAS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+$'

-- Redisson has been seen at the lock and may draw from the counter, which must not end from now on.
-- What is no counter is left alone.
local function keep_counter()
  if redis.call('PTTL', COUNTER) < 0 then return end
  local text = redis.pcall('GET', COUNTER)
  if type(text) == 'string' then redis.call('SET', COUNTER, text) end
end
--#end
