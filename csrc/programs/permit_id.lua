--#fragment
-- The time, and the id of one permit: permits.lua tells what it is.
local US = server_us()
local NOW = (US - US % 1000) / 1000

-- The first id of an owner, of which this is the beginning, with this number.
local function first_id(owner, number)
  local head, tail = tonumber(owner:sub(1, 8), 16), tonumber(owner:sub(29, 36), 16)
  return 'hf' .. struct.pack('>I4I4I4I2', head, tail, number % 4294967296, 1)
end
