--#fragment
-- Sets id: the first id (permits.lua) of the owner that begins with the uuid `owner` and has this
-- number.
local head, tail = tonumber(owner:sub(1, 8), 16), tonumber(owner:sub(29, 36), 16)
local id = 'hf' .. struct.pack('>I4I4I4I2', head, tail, number % 4294967296, 1)
