-- Checks arguments. Misuse raises an error that blames the caller and names the argument.
--
-- A check is a function of a value. It returns nil if the value is valid; otherwise what it must
-- be, then optionally a suffix for the argument's name that locates the wrong part, such as "[2]",
-- and a description of what was found there.

local core = require "holdfast.core"
local error = require("holdfast.compat").error
local hints = require "holdfast.lazy" "holdfast.hints"
local locale = require "holdfast.locale"

local options = {}

local DURATION_TEXT = "a number of seconds from 0.001 to 1e9"
local MAX_KEY_SIZE = 1048576 -- bytes
local MAX_PART_SIZE = 500000 -- bytes
local MAX_WHOLE = 9007199254740992 -- 2^53

local function is_number(value)
  return type(value) == "number" and value == value
end

-- Returns a check for numbers. `expected`: describes them in the message.
local function number_from(minimum, maximum, expected)
  return function(value)
    local is_valid = is_number(value)
      and value >= minimum and value <= maximum -- any locale: compares numbers
    if not is_valid then return expected end
  end
end

-- Checks a lease, or any other duration that must be positive and finite.
options.duration = number_from(0.001, 1e9, DURATION_TEXT)

-- After 0.5 s, clients that started to wait earlier have announced their waits.
options.deadlock_check = number_from(0.5, 1e9, "a number of seconds from 0.5 to 1e9")

-- Clients that cannot announce that they want a kept lock may wait this long for it.
options.keep = number_from(0, 60, "a number of seconds from 0 to 60")

options.restart_guard = number_from(0, 1e9, "a number of seconds from 0 to 1e9")
options.period = number_from(0.1, 1e9, "a number of seconds from 0.1 to 1e9")
options.wait = number_from(0, math.huge, "a non-negative number of seconds or math.huge")
options.timeout = number_from(0.001, 3600, "a number of seconds from 0.001 to 3600")

-- A fencing counter may be kept forever.
function options.token_ttl(value)
  if value ~= math.huge and options.duration(value) then
    return "math.huge or " .. DURATION_TEXT
  end
end

function options.number_or_default(value)
  if not is_number(value) then return "a number of seconds (0 or less means the default)" end
end

function options.duration_or_default(value)
  if not is_number(value) or value > 0 and options.duration(value) then
    return DURATION_TEXT .. " (0 or less means the default)"
  end
end

function options.key(value)
  if type(value) ~= "string" or value == "" or #value > MAX_KEY_SIZE then
    return "a string of 1 to 1048576 bytes"
  end
end

-- Prefixes of the keys that the library itself uses.
local prefixes = core.wire.prefixes
local RESERVED = {
  prefixes.counter, prefixes.list, prefixes.timeouts, prefixes.queue, prefixes.call, prefixes.fence,
  prefixes.client, prefixes.wait, "holdfast_known",
}

-- Every reserved prefix begins with h or r, so most keys need no other comparison.
local H, R = ("hr"):byte(1, 2)

-- Checks a key as the server sees it, with the client's prefix.
function options.unreserved_key(value)
  local first = value:byte()
  if first ~= H and first ~= R then return nil end
  for _, name in ipairs(RESERVED) do
    if value:sub(1, #name) == name then
      return ('one that does not begin with "%s", which holdfast uses for its own keys'):format(name)
    end
  end
end

function options.owner(value)
  if type(value) ~= "string" or value == "" or #value > 255 or value == "mode" then
    return 'a string of 1 to 255 bytes other than "mode"'
  end
end

-- A tenant becomes part of ACL patterns, which cannot contain spaces.
function options.tenant(value)
  if type(value) ~= "string" or value == "" or #value > 127 or value:find("[^\33-\126\128-\255]") then
    return "a string of 1 to 127 bytes without spaces or control characters"
  end
end

function options.text(value)
  if type(value) ~= "string" then return "a string" end
end

-- Checks a user or a password. The message never shows it.
function options.secret(value)
  local expected = "a string of at most 511 bytes with no NUL bytes"
  if type(value) ~= "string" and type(value) ~= "number" or #locale.text(value) > 511 then return expected end
  if locale.text(value):find("\0", 1, true) then return expected, "", "one with a NUL byte" end
end

-- Returns a check for whole numbers. `range`: describes them in the message.
function options.whole(minimum, maximum, range)
  return function(value)
    local is_whole = is_number(value) and value % 1 == 0
    if not is_whole or value < minimum or value > maximum then -- any locale: compares numbers
      return "a whole number from " .. range
    end
  end
end

options.replicas = options.whole(1, 1000, "1 to 1000")
options.max_waiters = options.whole(0, 1000000000, "0 to 1e9")

function options.path(value)
  if type(value) ~= "string" or value == "" or value:find("\0", 1, true) then return "a path" end
end

function options.server_name(value)
  if options.path(value) then return "a host name or an IP address" end
end

-- A label for locks that serve the same purpose, so it should not be the key.
function options.class(value)
  if type(value) ~= "string" or #value > 63 or value:find("[^\32-\126]") then
    return "a string of at most 63 printable characters"
  end
end

-- CLIENT SETNAME accepts neither spaces nor control characters.
function options.name(value)
  if type(value) ~= "string" or #value > 127 or value:find("[^\33-\126]") then
    return "a string of at most 127 printable characters without spaces"
  end
end

local function is_integer(value)
  return math.type ~= nil and math.type(value) == "integer"
end

-- Checks a part of a key: a string, or a number in the range in which whole numbers are exact.
function options.name_part(value)
  if type(value) == "string" and value ~= "" and #value <= MAX_PART_SIZE then return nil end
  local exact = is_number(value)
    and (is_integer(value) or value % 1 ~= 0 or math.abs(value) <= MAX_WHOLE)
  if not exact or value == math.huge or value == -math.huge then
    return "a string of 1 to 500000 bytes, or a number (at most 2^53 if whole)"
  end
end

-- Converts a part of a key to a string. In some Luas `..` does not write all digits of an integer.
function options.part_text(value)
  if type(value) == "string" then return value end
  if is_integer(value) then return ("%d"):format(value) end
  return locale.decimal(value % 1 == 0 and "%.0f" or "%.14g", value + 0)
end

-- Checks that the value is userdata of the type `name`.
function options.userdata(value, name)
  if type(value) ~= "userdata" or getmetatable(value) ~= name then return "a " .. name end
end

function options.any_table(value)
  if type(value) ~= "table" then return "a table" end
end

function options.boolean(value)
  if type(value) ~= "boolean" then return "a boolean" end
end

function options.callable(value)
  if type(value) == "function" then return end
  local meta = getmetatable(value)
  if type(meta) ~= "table" or not meta.__call then return "a function" end
end

function options.one_of(...)
  local known = { ... }
  return function(value)
    for _, name in ipairs(known) do
      if value == name then return end
    end
    return 'one of "' .. table.concat(known, '", "') .. '"'
  end
end

-- Checks a string that is not empty, or a function that returns one.
function options.key_or_callable(value)
  if options.key(value) and options.callable(value) then
    return "a non-empty string or a function"
  end
end

function options.client(value)
  return options.userdata(value, "holdfast.client")
end

-- Returns the name of the value's type if it is one of holdfast's types, or nil.
local function type_name(value)
  local name = getmetatable(value)
  if type(name) == "table" then name = rawget(name, "__name") end
  return type(name) == "string" and name:find("^holdfast%.") and name or nil
end

local function shown(value)
  if type(value) == "string" then
    if #value > 40 then return "a string of " .. #value .. " bytes" end
    return string.format("%q", core.wire.mask_credentials(value))
  end
  if type(value) == "number" or type(value) == "boolean" then return locale.text(value) end
  return value == nil and "nil" or "a " .. (type_name(value) or type(value))
end

options.shown = shown

-- Describes a table that is not a list: it has `count` fields, but none at `index`.
local function describe_table(value, count, index)
  if count == 0 then return "an empty table" end
  for name in pairs(value) do
    if type(name) ~= "number" then return "a table with the field " .. shown(name) end
  end
  return "a table with a hole at " .. index
end

-- Checks that a table is a list of 1 to `max_count` values without holes or other fields, and
-- checks each value with `check`.
function options.list(value, max_count, expected, check)
  if type(value) ~= "table" then return expected end
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  for i = 1, math.max(count, 1) do
    if value[i] == nil then return expected, "", describe_table(value, count, i) end
    local problem, suffix, found = check(value[i])
    if problem then return problem, ("[%d]%s"):format(i, suffix or ""), found or shown(value[i]) end
  end
  if count > max_count or count ~= #value then return expected, "", ("a table of %d"):format(count) end
end

-- Raises unless `value` passes `check`. `func_name`: the name of the function that was called;
-- `name`: the argument's; `level`: as for error, seen from the caller.
function options.check_argument(value, check, func_name, name, level)
  local expected, suffix, found = check(value)
  if expected then
    error(("%s: %s%s must be %s, not %s"):format(func_name, name, suffix or "", expected, found
      or shown(value)), level + 1)
  end
  return value
end

-- Copies options that are read again later, because the caller may change the checked table.
function options.copy(given)
  local copy = {}
  for name, value in next, given do copy[name] = value end
  return copy
end

-- Reads each option only once if a metatable supplies it, so that the value checked is the value
-- used.
local function read_once(given, known)
  if getmetatable(given) == nil then return given end
  local copy = options.copy(given)
  for name in pairs(known) do copy[name] = given[name] end
  return copy
end

-- Raises unless `given` is nil or a table of known, valid options. Returns the table to use.
function options.check_options(given, known, func_name, level)
  if given == nil then return {} end
  if type(given) ~= "table" then
    error(("%s: options must be a table, not %s"):format(func_name, shown(given)), level + 1)
  end
  given = read_once(given, known)
  for name, value in pairs(given) do
    local check = known[name]
    if not check then error(("%s: %s"):format(func_name, hints.explain(name, known)), level + 1) end
    options.check_argument(value, check, func_name, name, level + 1)
  end
  return given
end

-- Raises if a call's options follow its function, which would receive them as its only argument.
-- `params`: what comes before the options, for the message. `extra`: the first argument for the
-- function; `...`: the others.
function options.not_after_function(known, func_name, params, level, extra, ...)
  local is_plain = type(extra) == "table" and getmetatable(extra) == nil
  if select("#", ...) > 0 or not is_plain or next(extra) == nil then return end
  for name in next, extra do
    if not known[name] then return end
  end
  error(("%s: options come before the function, as in %s(%s{ %s = … }, fn)"):format(func_name, func_name,
    params, next(extra)), level + 1)
end

-- Raises if a function of `module` was called with a colon. `first`: its first argument.
function options.no_colon(first, module, func_name, level)
  if first == module then
    error(func_name .. ": call it with a dot; a colon passes the module itself", level + 1)
  end
end

-- Raises if `self` is not an object of this class, for example because a method was called with `.`
-- instead of `:`. `class`: a class's table, or the metatable of userdata.
function options.check_self(self, class, func_name, level)
  local meta = getmetatable(self)
  if meta == class or meta and meta == class.__metatable and type(self) == "userdata" then return end
  error(("%s: call it with a colon on a %s, not on %s"):format(func_name, class.__name, shown(self)),
    level + 1)
end

return options
