--#include "layout.lua"
--#include "queue.lua"
-- Takes the lock away from whoever holds it and passes it on.
--
-- 1 it was locked, 0 it was free
local kind = redis.call('TYPE', LOCK).ok
if kind == 'none' then return 0 end
if kind ~= KIND then return redis.error_reply('WRONGTYPE the key holds a ' .. kind) end
pass_on()
return 1
