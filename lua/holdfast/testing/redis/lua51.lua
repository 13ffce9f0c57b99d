-- Runs scripts like Redis: Lua 5.1, where every number is a double, with read-only globals.
--
-- Lua 5.3 and newer distinguish integers from floats, so there a script is rewritten first, line by
-- line: number literals become floats, `a .. b` becomes `a << joint << b` and `#a` becomes `length
-- ^ a`, which have the same precedence; and while a script runs, strings have 5.1's methods. (Lua
-- 5.4.4 may read freed memory when an operand of `a .. b .. c` has a metamethod.) Missing: load,
-- loadstring, coroutine, math.random, and Redis's extra libraries except struct.pack. pairs()
-- visits keys in sorted order, since no run may depend on addresses.

local HAS_INTEGERS = math.type ~= nil
local NAME = "user_script"
local PREFIX = "local joint, length = ... ; "

local floor, format, find, sub = math.floor, string.format, string.find, string.sub
local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local lua51 = {}

-- Formats a number like Lua 5.1.
local function text_of(number)
  return format("%.14g", number)
end

local function truncate(number)
  if number ~= number or number >= 2 ^ 63 or number <= -2 ^ 63 then return number end
  return number >= 0 and floor(number) or -floor(-number)
end

lua51.truncate = truncate

local function concat_text(value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return text_of(value) end
  error("attempt to concatenate a " .. kind .. " value", 3)
end

-- The metatable of `joint`, and of the result of `a << joint`, which contains `a` as a string.
local half = {}
local joint = setmetatable({}, half)

function half.__shl(left, right)
  if right == joint then return setmetatable({ concat_text(left) }, half) end
  return left[1] .. concat_text(right)
end

local length = setmetatable({}, {
  __pow = function(_, value)
    local kind = type(value)
    if kind ~= "string" and kind ~= "table" then
      error("attempt to get length of a " .. kind .. " value", 2)
    end
    return #value + 0.0
  end,
})

-- Returns the quoted string that starts at `start`.
local function quoted_at(text, start)
  local quote = sub(text, start, start)
  local at = start + 1
  while true do
    local stop = find(text, "[\\" .. quote .. "]", at)
    if not stop then return sub(text, start) end
    if sub(text, stop, stop) == quote then return sub(text, start, stop) end
    at = stop + 2
  end
end

local function long_at(text, at)
  local _, opened, level = find(text, "^%[(=*)%[", at)
  if not opened then return nil end
  local _, stop = find(text, "]" .. level .. "]", opened + 1, true)
  return sub(text, at, stop or #text)
end

local function comment_at(text, at)
  if sub(text, at, at + 1) ~= "--" then return nil end
  local long = long_at(text, at + 2)
  return long and "--" .. long or text:match("^[^\n]*", at)
end

local function number_at(text, at)
  local hex = text:match("^0[xX]%x+", at)
  if hex then return hex, format("%d.0", tonumber(hex)) end
  local number = text:match("^%d+%.?%d*[eE][+-]?%d+", at) or text:match("^%.%d+[eE][+-]?%d+", at)
    or text:match("^%d+%.?%d*", at) or text:match("^%.%d+", at)
  if not number then return nil end
  return number, find(number, "[.eE]") and number or number .. ".0"
end

local OPERATORS = { ["..."] = "...", [".."] = " <<joint<< ", ["#"] = " length^", ["~="] = "~=" }

local function operator_at(text, at)
  for size = 3, 1, -1 do
    local operator = sub(text, at, at + size - 1)
    if OPERATORS[operator] then return operator, OPERATORS[operator] end
  end
  local char = sub(text, at, at)
  -- an operator that Lua 5.1 lacks must fail, even if this Lua has it
  if find(char, "[&|~]") or find(text, "^//", at) or find(text, "^<<", at)
      or find(text, "^>>", at) then
    return char, char .. " ? "
  end
  return char, char
end

local function token_at(text, at)
  local plain = text:match("^%s+", at) or comment_at(text, at) or text:match("^[%a_][%w_]*", at)
    or long_at(text, at)
    or find(text, "^[\"']", at) and quoted_at(text, at)
  if plain then return plain, plain end
  local token, replacement = number_at(text, at)
  if token then return token, replacement end
  return operator_at(text, at)
end

lua51.token_at = token_at

local function rewrite(text)
  local out, at = { PREFIX }, 1
  while at <= #text do
    local token, replacement = token_at(text, at)
    out[#out + 1] = replacement
    at = at + #token
  end
  return table.concat(out)
end

local function as_text(value)
  return type(value) == "number" and text_of(value) or value
end

local function as_integer(value)
  return type(value) == "number" and truncate(value) or value
end

local function as_is(value)
  return value
end

local CONVERSIONS = { s = as_text, i = as_integer, [" "] = as_is }

-- Wraps fn: converts numbers in its first four arguments to strings (s) or integers (i).
local function convert_arguments(fn, signature)
  local convert = {}
  for i = 1, 4 do convert[i] = CONVERSIONS[sub(signature .. "   ", i, i)] end
  local c1, c2, c3, c4 = convert[1], convert[2], convert[3], convert[4]
  return function(a, b, c, d) return fn(c1(a), c2(b), c3(c), c4(d)) end
end

local strings = { upper = string.upper }
for name, signature in pairs {
  sub = "sii ", rep = "si  ", byte = "sii ", find = "ssi ", match = "ssi ", gmatch = "ss  ",
  gsub = "sssi",
  len = "s   ", lower = "s   ", upper = "s   ", reverse = "s   ",
} do
  strings[name] = convert_arguments(string[name], signature)
end

function strings.char(...)
  local codes = { ... }
  for i, code in ipairs(codes) do codes[i] = as_integer(code) end
  return string.char(unpack(codes))
end

local function format_argument(directive, value)
  if find(directive, "[diuoxXc]") then
    local number = truncate(assert(tonumber(value), "number expected"))
    return math.type and math.type(number) ~= "integer" and math.mininteger or number
  end
  if directive == "s" and type(value) ~= "string" then
    if type(value) ~= "number" then error("bad argument to 'format' (string expected)", 3) end
    return text_of(value)
  end
  return value
end

function strings.format(template, ...)
  local arguments, count = { ... }, 0
  for directive in template:gsub("%%%%", ""):gmatch("%%[-+ #0]*%d*%.?%d*(%a)") do
    count = count + 1
    arguments[count] = format_argument(directive, arguments[count])
  end
  return format(template, unpack(arguments, 1, count))
end

local function number_from(text, base)
  if base then return tonumber(text, base) end
  local number = tonumber(text)
  if number then return number + 0.0 end
  if type(text) ~= "string" then return nil end
  local sign, word = text:lower():match("^%s*([+-]?)(%a+)%s*$")
  if word == "inf" or word == "infinity" then return sign == "-" and -math.huge or math.huge end
  return word == "nan" and 0 / 0 or nil
end

local function to_text(value)
  return type(value) == "number" and text_of(value) or tostring(value)
end

local function key_before(a, b)
  local kind_a, kind_b = type(a), type(b)
  if kind_a ~= kind_b then return kind_a < kind_b end
  if kind_a == "number" or kind_a == "string" then return a < b end
  return tostring(a) < tostring(b)
end

local function sorted_pairs(t)
  local keys = {}
  for key in next, t do keys[#keys + 1] = key end
  table.sort(keys, key_before)
  local at = 0
  return function()
    at = at + 1
    return keys[at], t[keys[at]]
  end, t
end

local function join(list, separator, first, last)
  local texts = {}
  for i = first or 1, last or #list do texts[#texts + 1] = concat_text(list[i]) end
  return table.concat(texts, as_text(separator))
end

-- Redis passes an error to the script as a string, not as a table.
local function unwrap_error(ok, ...)
  local value = ...
  if not ok and type(value) == "table" and type(value.err) == "string" then
    return false, value.err
  end
  return ok, ...
end

local function protected_call(fn, ...)
  return unwrap_error(pcall(fn, ...))
end

local function readonly(members)
  return setmetatable({}, {
    __index = members,
    __newindex = function() error("Attempt to modify a readonly table", 2) end,
  })
end

lua51.readonly = readonly

local math_library = { huge = math.huge, pi = math.pi, pow = function(a, b) return a ^ b end }
for _, name in ipairs { "abs", "exp", "fmod", "log", "max", "min", "modf", "sqrt" } do
  math_library[name] = math[name]
end
function math_library.floor(number) return floor(number) + 0.0 end
function math_library.ceil(number) return math.ceil(number) + 0.0 end

-- struct.pack for big-endian integers, such as ">I4I2". Values that are too large wrap around.
local struct_library = {}

function struct_library.pack(layout, ...)
  local sizes, bytes = layout:match("^>([I%d]+)$"), {}
  assert(sizes and not sizes:gsub("I[1-7]", ""):find("."), "struct.pack: only whole numbers")
  local values = { ... }
  for size in sizes:gmatch("%d") do
    local value, part = number_from(table.remove(values, 1)), {}
    for i = tonumber(size), 1, -1 do
      part[i] = string.char(floor(value % 256))
      value = floor(value / 256)
    end
    bytes[#bytes + 1] = table.concat(part)
  end
  return table.concat(bytes)
end

local library = {
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next,
  pairs = sorted_pairs,
  pcall = protected_call, rawequal = rawequal, rawget = rawget, rawset = rawset, select = select,
  setmetatable = setmetatable, tonumber = number_from, tostring = to_text, type = type,
    unpack = unpack,
  xpcall = xpcall, _VERSION = "Lua 5.1",
  string = readonly(strings), math = readonly(math_library), struct = readonly(struct_library),
  table = readonly { concat = join, insert = table.insert, remove = table.remove,
    sort = table.sort },
}

-- Returns the globals of scripts: the libraries and `extra`.
function lua51.globals(extra)
  for name, value in pairs(library) do extra[name] = value end
  extra._G = extra
  return setmetatable(extra, {
    __index = function(_, name)
      error(("Script attempted to access nonexistent global variable '%s'"):format(tostring(name)),
        2)
    end,
    __newindex = function() error("Attempt to modify a readonly table", 2) end,
  })
end

local function load_with(text, globals)
  if pcall(load, "") then return load(text, "@" .. NAME, "t", globals) end
  local chunk, message = loadstring(text, "@" .. NAME) -- Lua 5.1
  return chunk and setfenv(chunk, globals), message
end

-- → chunk for lua51.run | nil, message
function lua51.compile(text, globals)
  return load_with(HAS_INTEGERS and rewrite(text) or text, globals)
end

local string_methods = { __index = strings }
for _, event in ipairs { "add", "sub", "mul", "div", "mod", "pow" } do
  local operate = assert((loadstring or load)(("return function(a, b) return a %s b end"):format(
    ({ add = "+", sub = "-", mul = "*", div = "/", mod = "%", pow = "^" })[event])))()
  string_methods["__" .. event] = function(a, b)
    local x, y = number_from(a), number_from(b)
    if not x or not y then
      error(("attempt to perform arithmetic on a %s value"):format(type(x and b or a)), 2)
    end
    return operate(x, y)
  end
end
function string_methods.__unm(a)
  return -(number_from(a) or error("attempt to perform arithmetic on a string value", 2))
end

-- Returns the script's current line, or 1 if a tail call has removed its stack frame.
local function script_line()
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return 1 end
    if info.source == "@" .. NAME then return info.currentline end
    level = level + 1
  end
end

local function with_line(value)
  local message
  if type(value) == "table" then
    message = type(value.err) == "string" and value.err or "ERR unknown error"
  else
    message = "ERR " .. tostring(value)
  end
  return { text = message, line = script_line() }
end

-- → true, the script's value | false, { text =, line = }
function lua51.run(chunk)
  if not HAS_INTEGERS then return xpcall(chunk, with_line) end
  local outside = debug.getmetatable("")
  debug.setmetatable("", string_methods)
  local ok, value = xpcall(chunk, with_line, joint, length)
  debug.setmetatable("", outside)
  return ok, value
end

return lua51
