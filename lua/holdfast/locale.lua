-- Functions on strings and numbers that do not depend on the locale set by os.setlocale. PUC Lua's
-- <, string.format, tonumber, string.lower and classes such as %a depend on it.
-- tools/check_locale.lua reports their uses.

local core = require "holdfast.core"

local locale = {}

-- Returns whether `a` sorts before `b`, byte by byte.
---@param a string
---@param b string
---@return boolean
locale.is_before = core.is_before

-- Like string.format for one number, but the decimal separator is always a point.
---@param format string one directive, such as "%.3f"
---@param value number
---@return string
function locale.decimal(format, value)
  return (format:format(value):gsub("[^0-9a-z+-]+", "."))
end

-- Like tostring, but the decimal separator is always a point.
function locale.text(value)
  if type(value) ~= "number" then return tostring(value) end
  return (tostring(value):gsub("[^0-9a-z+-]+", "."))
end

-- Like tonumber, but the decimal separator is always a point.
---@return number? value nil if it is not a number
function locale.number(text)
  if type(text) ~= "string" then return tonumber(text) end
  if text:find("[^0-9A-Za-z.+-]") then return nil end
  local point = ("%.1f"):format(0.5):sub(2, -2)
  return tonumber((text:gsub("%.", point)))
end

-- Patterns that match one character.
locale.CONTROL = "[^\32-\126\128-\255]"
locale.SPACE = "[ \t\n\v\f\r]"
locale.NOT_SPACE = "[^ \t\n\v\f\r]"

local LOWER = {}
for byte = ("A"):byte(), ("Z"):byte() do LOWER[string.char(byte)] = string.char(byte + 32) end

-- Like string.lower, for ASCII letters only.
---@param text string
---@return string
function locale.lower(text)
  return (text:gsub("[A-Z]", LOWER))
end

return locale
