--#fragment
-- text: the reply to GET. → the number in it, or nil if there is no key.
-- If text is not a whole number as Redis writes it, or is 2^62 or more in size, which leaves Redis
-- too little room to add to it, HLEN raises WRONGTYPE, because the key holds a string.
local function whole_number(key, text)
  if not text then return nil end
  local number = (text == '0' or text:find('^%-?[1-9]%d*$')) and tonumber(text)
  if not number or math.abs(number) >= 2 ^ 62 then redis.call('HLEN', key) end
  return number
end
