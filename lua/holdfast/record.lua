-- Encodes a list of results as a string, and decodes such a string: nil, booleans, numbers,
-- strings, and tables of these without metatables or cycles.
--
--   N | T | F | D<number>; | S<size>:<bytes> | { key value … }

local locale = require "holdfast.locale"

local record = {}

local MAX_DEPTH = 32

local write

-- Appends the piece to `out`, unless it is longer than `out.left` bytes. → whether it was appended
local function put(out, piece)
  out.left = out.left - #piece
  if out.left < 0 then return false end
  out[#out + 1] = piece
  return true
end

local function write_table(value, out, depth)
  if depth > MAX_DEPTH or getmetatable(value) ~= nil or not put(out, "{") then return false end
  for k, v in pairs(value) do
    if not write(k, out, depth + 1) or not write(v, out, depth + 1) then return false end
  end
  return put(out, "}")
end

-- In a Lua with integers, the float 2.0 must remain a float.
local function write_number(value, out)
  local kind = math.type and math.type(value)
  local text = locale.decimal(kind == "integer" and "%d" or "%.17g", value)
  if kind == "float" and not text:find("[^%d-]") then text = text .. ".0" end
  local is_finite = value == value and value ~= math.huge and value ~= -math.huge
  return is_finite and put(out, "D" .. text .. ";")
end

local WRITERS = {
  ["nil"] = function(_, out) return put(out, "N") end,
  boolean = function(value, out) return put(out, value and "T" or "F") end,
  number = write_number,
  string = function(value, out) return put(out, "S" .. #value .. ":") and put(out, value) end,
  table = write_table,
}

function write(value, out, depth)
  local writer = WRITERS[type(value)]
  return writer ~= nil and writer(value, out, depth)
end

-- Encodes the results in at most `max_size` bytes. Stops after that many bytes, even if the results
-- are much larger. → string | nil if they are too large, nested too deeply or of other types
function record.encode(max_size, ...)
  local out = { left = max_size }
  for i = 1, select("#", ...) do
    if not write((select(i, ...)), out, 1) then return nil end
  end
  return table.concat(out)
end

local read

local function read_table(text, at)
  local value = {}
  while text:sub(at, at) ~= "}" do
    local k, v
    k, at = read(text, at)
    v, at = read(text, at)
    value[k] = v
  end
  return value, at + 1
end

local function read_number(text, at)
  local digits, after = text:match("^([^;]*);()", at)
  return assert(locale.number(digits)), after
end

local function read_string(text, at)
  local size, after = text:match("^(%d+):()", at)
  local stop = after + locale.number(size)
  assert(stop - 1 <= #text)
  return text:sub(after, stop - 1), stop
end

local READERS = {
  N = function(_, at) return nil, at end,
  T = function(_, at) return true, at end,
  F = function(_, at) return false, at end,
  D = read_number,
  S = read_string,
  ["{"] = read_table,
}

function read(text, at)
  return READERS[text:sub(at, at)](text, at + 1)
end

local function read_all(text)
  local values, at = { n = 0 }, 1
  while at <= #text do
    values.n = values.n + 1
    values[values.n], at = read(text, at)
  end
  return values
end

-- Decodes a string that encode returned. → { n = …, … } | nil for any other string
function record.decode(text)
  local ok, values = pcall(read_all, text)
  return ok and values or nil
end

return record
