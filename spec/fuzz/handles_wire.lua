-- Checks the bytes that a client sends over one connection: whole commands, one after the other,
-- each a list of bulk strings whose first word is a name in capitals.

local Wire = {}
Wire.__index = Wire

local SHOWN = 60 -- bytes

function Wire.new() return setmetatable({ commands = 0 }, Wire) end

-- Reads "*3\r\n" or "$3\r\n" at `at`. → the number, the place after it
local function number_at(bytes, at, mark)
  local number, last = bytes:match("^" .. mark .. "(%d+)\r\n()", at)
  return tonumber(number), last
end

-- → the text, the place after it | nil
local function text_at(bytes, at)
  local size, start = number_at(bytes, at, "%$")
  if not size or bytes:sub(start + size, start + size + 1) ~= "\r\n" then return nil end
  return bytes:sub(start, start + size - 1), start + size + 2
end

-- → the place after the command | nil
local function command_at(bytes, at)
  local count, place = number_at(bytes, at, "%*")
  for i = 1, count or 0 do
    local text
    text, place = text_at(bytes, place)
    if not text or i == 1 and not text:find("^%u+$") then return nil end
  end
  return place
end

local function shown(bytes, at)
  return (bytes:sub(at, at + SHOWN - 1):gsub("\r\n", "|"):gsub("[^\32-\126]", "?"))
end

-- The core hands out whole commands only. → what is wrong | nil
function Wire:feed(bytes)
  local at = 1
  while at <= #bytes do
    local next_at = command_at(bytes, at)
    if not next_at then
      return ("no command after %d commands: %s"):format(self.commands, shown(bytes, at))
    end
    at, self.commands = next_at, self.commands + 1
  end
end

return Wire
