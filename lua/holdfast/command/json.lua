-- Writes values as JSON: strings, numbers, booleans, lists, and objects given as lists of { name,
-- value }.

local locale = require "holdfast.locale"

local json = {}

local SHORT = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function escape(char)
  return SHORT[char] or ("\\u%04x"):format(char:byte())
end

local SEQUENCES = {
  "[\194-\223][\128-\191]",
  "\224[\160-\191][\128-\191]",
  "[\225-\236\238\239][\128-\191][\128-\191]",
  "\237[\128-\159][\128-\191]",
  "\240[\144-\191][\128-\191][\128-\191]",
  "[\241-\243][\128-\191][\128-\191][\128-\191]",
  "\244[\128-\143][\128-\191][\128-\191]",
}

-- What stands around a sequence does not join when it is taken out.
local function is_utf8(text)
  for _, sequence in ipairs(SEQUENCES) do text = text:gsub(sequence, " ") end
  return not text:find("[\128-\255]")
end

-- Bytes that are no UTF-8 are taken as Latin-1.
local function string_of(text)
  text = text:gsub('["\\]', escape):gsub(locale.CONTROL, escape)
  if not is_utf8(text) then text = text:gsub("[\128-\255]", escape) end
  return '"' .. text .. '"'
end

local function number_of(number)
  if number ~= number or number == math.huge or number == -math.huge then return "null" end
  if number == math.floor(number) and math.abs(number) < 2 ^ 53 then
    return ("%.0f"):format(number)
  end
  return locale.decimal("%.6g", number)
end

-- An object with the fields of `pairs_list` in their order; those without a value are left out.
function json.object(fields)
  local parts = {}
  for _, field in ipairs(fields) do
    if field[2] ~= nil then
      parts[#parts + 1] = string_of(field[1]) .. ":" .. json.value(field[2])
    end
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- `value`: a string, a number, a boolean, or what json.raw made.
function json.value(value)
  local kind = type(value)
  if kind == "string" then return string_of(value) end
  if kind == "number" then return number_of(value) end
  if kind == "boolean" then return value and "true" or "false" end
  return value.text
end

-- A list of texts that are JSON already, as a value.
function json.list(texts)
  return { text = "[" .. table.concat(texts, ",") .. "]" }
end

return json
