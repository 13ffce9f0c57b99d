--#fragment
-- value: the reply to GET. → the value as an integer, or nil without a key. Raises WRONGTYPE if the
-- value is not an integer in Redis's notation, or if its absolute value is 2^62 or more and adding
-- to it might overflow. HLEN raises the error, because the key holds a string.
local function read_integer(key, value)
  if not value then return nil end
  local number = (value == '0' or value:find('^%-?[1-9]%d*$')) and tonumber(value)
  if not number or math.abs(number) >= 2 ^ 62 then redis.call('HLEN', key) end
  return number
end
