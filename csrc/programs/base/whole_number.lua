--#fragment
-- text: the reply to GET. → the integer in it, or nil if there is no key. If the text is not an
-- integer in Redis's notation, or its absolute value is 2^62 or more, so that Redis could hardly
-- add to it, HLEN raises WRONGTYPE, because the key holds a string.
local function whole_number(key, text)
  if not text then return nil end
  local number = (text == '0' or text:find('^%-?[1-9]%d*$')) and tonumber(text)
  if not number or math.abs(number) >= 2 ^ 62 then redis.call('HLEN', key) end
  return number
end
