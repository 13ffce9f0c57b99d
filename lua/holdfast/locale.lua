-- What must be the same in every program, whatever os.setlocale has set: the order of texts,
-- numbers as text, and letters. PUC Lua's <, string.format, tonumber, string.lower and classes such
-- as %a follow the locale. tools/check_locale.lua fails where they are used.

local core = require "holdfast.core"

local locale = {}

-- Whether the bytes of `a` come before those of `b`.
---@param a string
---@param b string
---@return boolean
locale.is_before = core.is_before

-- As string.format with one number, with a point before its fraction.
---@param format string one directive, such as "%.3f"
---@param value number
---@return string
function locale.decimal(format, value)
  return (format:format(value):gsub("[^0-9a-z+-]+", "."))
end

-- As tostring, of a number with a point before its fraction.
function locale.text(value)
  if type(value) ~= "number" then return tostring(value) end
  return (tostring(value):gsub("[^0-9a-z+-]+", "."))
end

-- As tonumber, of a text with a point before its fraction.
---@return number? value nil for anything else
function locale.number(text)
  if type(text) ~= "string" then return tonumber(text) end
  if text:find("[^0-9A-Za-z.+-]") then return nil end
  local point = ("%.1f"):format(0.5):sub(2, -2)
  return tonumber((text:gsub("%.", point)))
end

-- Patterns of one character.
locale.CONTROL = "[^\32-\126\128-\255]"
locale.SPACE = "[ \t\n\v\f\r]"
locale.NOT_SPACE = "[^ \t\n\v\f\r]"

local LOWER = {}
for byte = ("A"):byte(), ("Z"):byte() do LOWER[string.char(byte)] = string.char(byte + 32) end

-- Letters outside of ASCII stay as they are.
---@param text string
---@return string
function locale.lower(text)
  return (text:gsub("[A-Z]", LOWER))
end

return locale
