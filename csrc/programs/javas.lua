--#fragment
-- Redisson's owners are <uuid>:<thread>. A shared owner of ours is another text.
local JAVAS = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+$'
