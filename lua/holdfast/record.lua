-- Writes a list of results as text and reads it back: nil, booleans, numbers, strings, and tables
-- of these without metatables and cycles.
--
--   N | T | F | D<number>; | S<size>:<bytes> | { key value … }

local record = {}

local DEPTH = 32

local write

local function write_table(value, out, depth)
  if depth > DEPTH or getmetatable(value) ~= nil then return false end
  out[#out + 1] = "{"
  for k, v in pairs(value) do
    if not write(k, out, depth + 1) or not write(v, out, depth + 1) then return false end
  end
  out[#out + 1] = "}"
  return true
end

-- Where Lua has integers, 2.0 is none.
local function write_number(value, out)
  local kind = math.type and math.type(value)
  local text = (kind == "integer" and "%d" or "%.17g"):format(value)
  if kind == "float" and not text:find("[^%d-]") then text = text .. ".0" end
  out[#out + 1] = "D" .. text .. ";"
  return value == value and value ~= math.huge and value ~= -math.huge
end

local WRITERS = {
  ["nil"] = function(_, out) out[#out + 1] = "N" return true end,
  boolean = function(value, out) out[#out + 1] = value and "T" or "F" return true end,
  number = write_number,
  string = function(value, out) out[#out + 1] = "S" .. #value .. ":" .. value return true end,
  table = write_table,
}

function write(value, out, depth)
  local writer = WRITERS[type(value)]
  return writer ~= nil and writer(value, out, depth)
end

-- The results as text of at most `cap` bytes; nil when they are none of the above or too long.
function record.encode(cap, ...)
  local out = {}
  for i = 1, select("#", ...) do
    if not write((select(i, ...)), out, 1) then return nil end
  end
  local text = table.concat(out)
  return #text <= cap and text or nil
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
  return assert(tonumber(digits)), after
end

local function read_string(text, at)
  local size, after = text:match("^(%d+):()", at)
  local stop = after + tonumber(size)
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

-- The values of a text that encode wrote, as { n = …, … }; nil for any other text.
function record.decode(text)
  local ok, values = pcall(read_all, text)
  return ok and values or nil
end

return record
