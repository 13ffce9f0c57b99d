-- Checks what callers pass in. Each misuse raises at the caller's level and names the argument.
--
-- A check is a function (value) -> nil when it is fine, or what it must be.

local options = {}

local LEASE_MIN, LEASE_MAX = 0.001, 1e9
local KEY_MAX = 1048576

local function is_number(value)
  return type(value) == "number" and value == value
end

function options.lease(value)
  if not is_number(value) or value < LEASE_MIN or value > LEASE_MAX then
    return "a number of seconds from 0.001 to 1e9"
  end
end

function options.wait(value)
  if not is_number(value) or value < 0 then return "a number of seconds, 0 or more, or math.huge" end
end

-- Any number; what is 0 or less stands for the default.
function options.number_or_default(value)
  if not is_number(value) then return "a number of seconds; 0 or less means the default" end
end

function options.timeout(value)
  if not is_number(value) or value < 0.001 or value > 3600 then return "a number of seconds from 0.001 to 3600" end
end

function options.key(value)
  if type(value) ~= "string" or value == "" or #value > KEY_MAX then return "a string of 1 to 1048576 bytes" end
end

function options.owner(value)
  if type(value) ~= "string" or value == "" or #value > 255 or value == "mode" then
    return 'a string of 1 to 255 bytes other than "mode"'
  end
end

function options.text(value)
  if type(value) ~= "string" then return "a string" end
end

-- A user or a password; what is wrong with it does not show it.
function options.secret(value)
  if (type(value) ~= "string" and type(value) ~= "number") or #tostring(value) > 511 then
    return "a string of at most 511 bytes"
  end
end

function options.replicas(value)
  if not is_number(value) or value < 1 or value > 1000 or value % 1 ~= 0 then return "a whole number from 1 to 1000" end
end

-- Of a file or directory.
function options.path(value)
  if type(value) ~= "string" or value == "" or value:find("\0", 1, true) then return "a path" end
end

-- CLIENT SETNAME takes no spaces and no control characters.
function options.name(value)
  if type(value) ~= "string" or #value > 127 or value:find("[^\33-\126]") then
    return "a string of at most 127 printable characters without spaces"
  end
end

-- What can stand in a key: a string or a number.
function options.name_part(value)
  if type(value) ~= "string" and type(value) ~= "number" or value == "" then return "a non-empty string or a number" end
end

-- Userdata of the type with this name.
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

-- Whether it is a list of 1 to `most` values that all pass, without holes and without other fields.
function options.is_list(value, most, passes)
  if type(value) ~= "table" then return false end
  local count = 0
  for _, each in pairs(value) do
    if not passes(each) then return false end
    count = count + 1
  end
  for i = 1, count do
    if value[i] == nil then return false end
  end
  return count > 0 and count <= most and count == #value
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

local function shown(value)
  if type(value) == "string" then
    if #value > 40 then return "a string of " .. #value .. " bytes" end
    return string.format("%q", value)
  end
  if type(value) == "number" or type(value) == "boolean" then return tostring(value) end
  return value == nil and "nothing" or "a " .. type(value)
end

-- Levenshtein's distance, by rows.
local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local replace = diagonal + (a:byte(i) == b:byte(j) and 0 or 1)
      diagonal = row[j]
      row[j] = math.min(replace, row[j] + 1, row[j - 1] + 1)
    end
  end
  return row[#b]
end

local function nearest(name, known)
  local best, best_distance
  for candidate in pairs(known) do
    local d = distance(name, candidate)
    if not best or d < best_distance or (d == best_distance and candidate < best) then
      best, best_distance = candidate, d
    end
  end
  return best
end

-- Raises unless `value` passes; `what` names the function, `name` the argument; `level` as error's, for the caller.
function options.argument(value, check, what, name, level)
  local wrong = check(value)
  if wrong then error(("%s: %s must be %s, not %s"):format(what, name, wrong, shown(value)), level + 1) end
  return value
end

-- What a metatable answers is asked for once, so that what was checked is what is used.
local function settled(given, known)
  if getmetatable(given) == nil then return given end
  local plain = {}
  for name, value in next, given do plain[name] = value end
  for name in pairs(known) do plain[name] = given[name] end
  return plain
end

-- Raises unless `given` is nil or a table of known options that pass. Returns the table to use.
function options.table(given, known, what, level)
  if given == nil then return {} end
  if type(given) ~= "table" then
    error(("%s: options must be a table, not %s"):format(what, shown(given)), level + 1)
  end
  given = settled(given, known)
  for name, value in pairs(given) do
    local check = known[name]
    if not check then
      local hint = type(name) == "string" and (', did you mean "%s"?'):format(nearest(name, known)) or ""
      error(("%s: unknown option %s%s"):format(what, shown(name), hint), level + 1)
    end
    options.argument(value, check, what, name, level + 1)
  end
  return given
end

-- Raises unless `self` is userdata of this type: a method called with `.` for `:`.
function options.self(self, type_table, what, level)
  if type(self) == "userdata" and getmetatable(self) == type_table.__metatable then return end
  error(("%s: call it with a colon on a %s, not on %s"):format(what, type_table.__name, shown(self)), level + 1)
end

return options
