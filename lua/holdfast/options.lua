-- Checks what callers pass in. Misuse raises an error that blames the caller and names the
-- argument.
--
-- A check is a function (value) -> nil if the value is valid; otherwise what it must be and, if
-- only part of it is wrong, that part's place, which follows the argument's name, and how to show
-- it.

local core = require "holdfast.core"
local error = require("holdfast.compat").error
local hints = require "holdfast.lazy" "holdfast.hints"
local locale = require "holdfast.locale"

local options = {}

local MIN_DURATION, MAX_DURATION = 0.001, 1e9 -- seconds
local DURATION = "a number of seconds from 0.001 to 1e9"
local KEY_MAX = 1048576
local PART_MAX = 500000
local MAX_WHOLE = 9007199254740992 -- 2^53

local function is_number(value)
  return type(value) == "number" and value == value
end

-- Checks a lease, or another time that must not be 0 or endless.
function options.duration(value)
  if not is_number(value) or value < MIN_DURATION or value > MAX_DURATION then return DURATION end
end

-- After 0.5 s, clients that started to wait earlier have announced their waits.
function options.deadlock_check(value)
  if not is_number(value) or value < 0.5 or value > MAX_DURATION then
    return "a number of seconds from 0.5 to 1e9"
  end
end

-- Clients that cannot announce that they want a kept lock may wait this long for it.
function options.keep(value)
  if not is_number(value) or value < 0 or value > 60 then
    return "a number of seconds from 0 to 60"
  end
end

-- May be as long as the longest lease.
function options.restart_guard(value)
  if not is_number(value) or value < 0 or value > MAX_DURATION then
    return "a number of seconds from 0 to 1e9"
  end
end

-- A fencing counter may be kept forever.
function options.token_ttl(value)
  if value ~= math.huge and options.duration(value) then
    return "math.huge or " .. DURATION
  end
end

function options.wait(value)
  if type(value) ~= "number" or value ~= value or value < 0 then
    return "a non-negative number of seconds or math.huge"
  end
end

-- Any number; 0 or less means the default.
function options.number_or_default(value)
  if not is_number(value) then return "a number of seconds (0 or less means the default)" end
end

function options.duration_or_default(value)
  if not is_number(value) or value > 0 and options.duration(value) then
    return DURATION .. " (0 or less means the default)"
  end
end

function options.timeout(value)
  if not is_number(value) or value < 0.001 or value > 3600 then
    return "a number of seconds from 0.001 to 3600"
  end
end

function options.key(value)
  if type(value) ~= "string" or value == "" or #value > KEY_MAX then
    return "a string of 1 to 1048576 bytes"
  end
end

-- Prefixes of the keys in which the library stores what belongs to a lock.
local prefixes = core.wire.prefixes
local RESERVED = {
  prefixes.counter, prefixes.list, prefixes.timeouts, prefixes.queue, prefixes.call, prefixes.fence,
  prefixes.client, prefixes.wait, "holdfast_known",
}

local H, R = ("hr"):byte(1, 2)

-- Checks a key as it is on the server.
function options.free_key(value)
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
  local must = "a string of at most 511 bytes with no NUL bytes"
  if type(value) ~= "string" and type(value) ~= "number" or #locale.text(value) > 511 then return must end
  if locale.text(value):find("\0", 1, true) then return must, "", "one with a NUL byte" end
end

-- Returns a check for whole numbers. `range`: describes them in the message.
function options.whole(minimum, maximum, range)
  return function(value)
    local is_whole = is_number(value) and value % 1 == 0
    if not is_whole or value < minimum or value > maximum then -- any locale: numbers
      return "a whole number from " .. range
    end
  end
end

options.replicas = options.whole(1, 1000, "1 to 1000")
options.max_waiters = options.whole(0, 1000000000, "0 to 1e9")

-- The path of a file or directory.
function options.path(value)
  if type(value) ~= "string" or value == "" or value:find("\0", 1, true) then return "a path" end
end

-- The name that a certificate is issued for.
function options.server_name(value)
  if options.path(value) then return "a host name or an IP address" end
end

-- A label for locks with the same use, so it should not be the key.
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

-- Checks a part of a key: a string, or a number that is not so large that whole numbers are
-- rounded.
function options.name_part(value)
  if type(value) == "string" and value ~= "" and #value <= PART_MAX then return nil end
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

-- Checks that the value is userdata of the type with this name.
function options.kind(value, name)
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

-- Returns the name of the value's type if it is one of holdfast's, or nil.
local function kind_of(value)
  local name = getmetatable(value)
  if type(name) == "table" then name = rawget(name, "__name") end
  return type(name) == "string" and name:find("^holdfast%.") and name or nil
end

local function shown(value)
  if type(value) == "string" then
    if #value > 40 then return "a string of " .. #value .. " bytes" end
    return string.format("%q", core.wire.hide_logins(value))
  end
  if type(value) == "number" or type(value) == "boolean" then return locale.text(value) end
  return value == nil and "nil" or "a " .. (kind_of(value) or type(value))
end

options.shown = shown

-- Returns why a table with `count` fields, but none at `place`, is not a list.
local function describe_table(value, count, place)
  if count == 0 then return "an empty table" end
  for name in pairs(value) do
    if type(name) ~= "number" then return "a table with the field " .. shown(name) end
  end
  return "a table with a hole at " .. place
end

-- Checks a list of 1 to `max_count` values, with no holes or other fields, and each value by
-- `check`. `must`: describes the list in the message.
function options.list(value, max_count, must, check)
  if type(value) ~= "table" then return must end
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  for i = 1, math.max(count, 1) do
    if value[i] == nil then return must, "", describe_table(value, count, i) end
    local wrong, place, found = check(value[i])
    if wrong then return wrong, ("[%d]%s"):format(i, place or ""), found or shown(value[i]) end
  end
  if count > max_count or count ~= #value then return must, "", ("a table of %d"):format(count) end
end

-- Raises unless `value` passes `check`. `what`: the function's name; `name`: the argument's;
-- `level`: as for error, seen from the caller.
function options.argument(value, check, what, name, level)
  local wrong, place, found = check(value)
  if wrong then
    error(("%s: %s%s must be %s, not %s"):format(what, name, place or "", wrong, found
      or shown(value)), level + 1)
  end
  return value
end

-- Copies options that are read again later, because the caller may change the checked table.
function options.copy(given)
  local own = {}
  for name, value in next, given do own[name] = value end
  return own
end

-- Reads options that come from a metatable only once, so that the values checked are the values
-- used.
local function read_once(given, known)
  if getmetatable(given) == nil then return given end
  local plain = options.copy(given)
  for name in pairs(known) do plain[name] = given[name] end
  return plain
end

-- Raises unless `given` is nil or a table of known, valid options. Returns the table to use.
function options.table(given, known, what, level)
  if given == nil then return {} end
  if type(given) ~= "table" then
    error(("%s: options must be a table, not %s"):format(what, shown(given)), level + 1)
  end
  given = read_once(given, known)
  for name, value in pairs(given) do
    local check = known[name]
    if not check then error(("%s: %s"):format(what, hints.about(name, known)), level + 1) end
    options.argument(value, check, what, name, level + 1)
  end
  return given
end

-- Raises if a call's options follow its function, which would receive them as its only argument.
-- `extra`: the function's first argument; `...`: the others. `call`: the call up to the options,
-- for the message.
function options.not_after_function(known, what, call, level, extra, ...)
  local is_plain = type(extra) == "table" and getmetatable(extra) == nil
  if select("#", ...) > 0 or not is_plain or next(extra) == nil then return end
  for name in next, extra do
    if not known[name] then return end
  end
  error(("%s: options come before the function, as in %s{ %s = … }, fn)"):format(what, call, next(extra)),
    level + 1)
end

-- Raises if a function of `module` was called with a colon. `first`: its first argument.
function options.no_colon(first, module, what, level)
  if first == module then
    error(what .. ": call it with a dot; a colon passes the module itself", level + 1)
  end
end

-- Raises unless `self` is an object of this class, as when a method is called with `.` instead of
-- `:`.
-- `class`: a class's table, or the metatable of userdata.
function options.self(self, class, what, level)
  local own = getmetatable(self)
  if own == class or own and own == class.__metatable and type(self) == "userdata" then return end
  error(("%s: call it with a colon on a %s, not on %s"):format(what, class.__name, shown(self)),
    level + 1)
end

return options
