--#fragment
-- The whole number that a string holds, as Redis writes it; nil: there is no key. Any other text,
-- or a number to which Redis could hardly add: the key has the wrong type. text: what GET returned.
local function whole_number(key, text)
  if not text then return nil end
  local number = (text == '0' or text:find('^%-?[1-9]%d*$')) and tonumber(text)
  if not number or math.abs(number) >= 2 ^ 62 then redis.call('HLEN', key) end
  return number
end
