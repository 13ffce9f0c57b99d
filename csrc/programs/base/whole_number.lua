--#fragment
-- The whole number in a string as Redis writes it, or nil if there is no key. Any other string, or
-- a number too large for Redis to add to, is an error: the key has the wrong type. text: the reply
-- of GET.
local function whole_number(key, text)
  if not text then return nil end
  local number = (text == '0' or text:find('^%-?[1-9]%d*$')) and tonumber(text)
  if not number or math.abs(number) >= 2 ^ 62 then redis.call('HLEN', key) end
  return number
end
