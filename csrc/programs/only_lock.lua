--#fragment
-- Ends the program unless the key is a lock of this kind.
local kind = redis.call('TYPE', LOCK).ok
if kind == 'none' then return 0 end
if kind ~= KIND then return redis.error_reply('WRONGTYPE the key holds a ' .. kind) end
if not is_lock() then return redis.error_reply('WRONGTYPE the key is not a lock') end
