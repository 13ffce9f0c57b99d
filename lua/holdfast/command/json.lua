-- Encodes values as JSON. Objects are given as lists of { name, value }.

local locale = require "holdfast.locale"
local texts = require "holdfast.text"

local json = {}

local ESCAPED = {} -- byte → its escape sequence

for byte = 0, 255 do ESCAPED[string.char(byte)] = ("\\u%04x"):format(byte) end
for char, short in pairs { ['"'] = '"', ["\\"] = "\\", ["\n"] = "n", ["\r"] = "r", ["\t"] = "t" } do
  ESCAPED[char] = "\\" .. short
end

-- Escapes a code point. Uses a surrogate pair for a code point above 16 bits.
local function escaped_code_point(code)
  if code < 0x10000 then return ("\\u%04x"):format(code) end
  local rest = code - 0x10000
  return ("\\u%04x\\u%04x"):format(0xd800 + math.floor(rest / 1024), 0xdc00 + rest % 1024)
end

-- Encodes a string. If it is not valid UTF-8, all its bytes are treated as Latin-1.
local function encode_string(value)
  local quoted, is_utf8 = value:gsub('["\\]', ESCAPED), true
  local shown = texts.escape(quoted, function(char, code)
    if code then return escaped_code_point(code) end
    is_utf8 = is_utf8 and char:byte() < 128
    return ESCAPED[char]
  end)
  if not is_utf8 then shown = quoted:gsub("[^\32-\126]", ESCAPED) end
  return '"' .. shown .. '"'
end

local function encode_number(number)
  if number ~= number or number == math.huge or number == -math.huge then return "null" end
  if number == math.floor(number) and math.abs(number) < 2 ^ 53 then
    return ("%.0f"):format(number)
  end
  return locale.decimal("%.6g", number)
end

-- Encodes an object with these fields, in this order. Omits fields whose value is nil.
function json.object(fields)
  local parts = {}
  for _, field in ipairs(fields) do
    if field[2] ~= nil then
      parts[#parts + 1] = encode_string(field[1]) .. ":" .. json.value(field[2])
    end
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- `value`: a string, a number, a boolean, or { text = JSON }.
function json.value(value)
  local kind = type(value)
  if kind == "string" then return encode_string(value) end
  if kind == "number" then return encode_number(value) end
  if kind == "boolean" then return value and "true" or "false" end
  return value.text
end

-- Returns a list as a value. `elements`: the list's elements, already encoded as JSON.
function json.list(elements)
  return { text = "[" .. table.concat(elements, ",") .. "]" }
end

return json
