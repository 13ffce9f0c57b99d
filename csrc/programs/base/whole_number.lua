--#fragment
-- text: the reply of GET. → the number in it, or nil if there is no key.
-- If text is not a whole number as Redis writes it, or is too large for Redis to add to it, the
-- HLEN raises WRONGTYPE, because the key has a string.
local function whole_number(key, text)
  if not text then return nil end
  local number = (text == '0' or text:find('^%-?[1-9]%d*$')) and tonumber(text)
  if not number or math.abs(number) >= 2 ^ 62 then redis.call('HLEN', key) end
  return number
end
