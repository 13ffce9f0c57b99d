-- Parses a subcommand's arguments by its list of options, which is also the source of its help.
--
-- An option is { "name", short = "n", aliases = { "other-name" }, value = "TIME", check =
-- function(text) → value | nil, what it must be, help = "…", group = title of its group in the
-- help, implies = a switch that it also sets, hidden = true if the help omits it }. Without
-- `value`, the option is a switch.

local locale = require "holdfast.locale"
local lazy = require "holdfast.lazy"
local hints = lazy "holdfast.hints"
local library_options = require "holdfast.options"
local texts = require "holdfast.text"

local unpack = table.unpack or unpack

local options = {}

local UNITS = { ms = 0.001, s = 1, m = 60, h = 3600, d = 86400, w = 604800 }

local MAX_LENGTH = 64 -- bytes of a duration, because matching is slow on a long string

-- Parses a duration such as 90, 1.5, 5m or 1h30m. → seconds | nil
local function duration(text)
  local number = locale.number(text)
  if number then return number end
  if #text > MAX_LENGTH then return nil end
  local sum = 0
  local rest = text:gsub("(%d+%.?%d*)([a-z]+)", function(amount, unit)
    if not UNITS[unit] then return nil end
    sum = sum + locale.number(amount) * UNITS[unit]
    return ""
  end)
  return text ~= "" and rest == "" and sum or nil
end

local function duration_from(minimum)
  local expected = ("a duration from %s s to 1e9 s, such as 90, 1.5, 5m or 1h30m"):format(
    locale.decimal("%g", minimum))
  return function(text)
    local seconds = duration(text)
    if seconds and seconds >= minimum and seconds <= 1e9 then return seconds end
    return nil, expected
  end
end

options.seconds = duration_from(0)
options.duration = duration_from(0.1)

function options.timeout(text)
  local seconds = duration(text)
  if seconds and not library_options.timeout(seconds) then return seconds end
  return nil, "a duration from 0.001 s to 1h"
end

function options.exit_code(text)
  local number = locale.number(text)
  if number and number >= 0 and number <= 255 and number == math.floor(number) then
    return number
  end
  return nil, "an exit code from 0 to 255"
end

function options.count(text)
  local number = locale.number(text)
  if number and number >= 1 and number <= 1e9 and number == math.floor(number) then
    return number
  end
  return nil, "a whole number from 1 to 1e9"
end

function options.text(text)
  if text ~= "" then return text end
  return nil, "non-empty"
end

-- Checks a name. It is stored at the end of a line, after host and pid.
function options.name(text)
  if text ~= "" and #text <= 127 and texts.printable(text) == text then return text end
  return nil, "1 to 127 printable characters"
end

local function by_short(known, name)
  for _, option in ipairs(known) do
    if option.short == name then return option end
  end
end

-- → the options, indexed by long name and alias
local function by_long(known)
  local all = {}
  for _, option in ipairs(known) do
    all[option[1]] = option
    for _, alias in ipairs(option.aliases or {}) do all[alias] = option end
  end
  return all
end

local function unknown_message(shown, suggestion)
  return ("unknown option %s;%s --help lists all options"):format(shown, suggestion
    and (" did you mean --%s?"):format(suggestion) or "")
end

-- In flock, --timeout means --wait; in other programs it limits the job. → what to use instead
local function timeout_message(all)
  if not all["max-runtime"] then return "there is no --timeout; to limit the wait, use --wait (-w)" end
  return "there is no --timeout; use --wait (-w) to limit the wait for the lock, " ..
    "or --max-runtime to limit the job"
end

local function set(values, option, text, shown)
  if not option.value then
    values[option[1]] = true
    if text then return nil, shown .. " takes no value" end
    return true
  end
  if not text then return nil, shown .. " needs a value: " .. option.value end
  local value, expected = (option.check or options.text)(text)
  if value == nil then return nil, ('%s must be %s, not "%s"'):format(shown, expected, text) end
  values[option[1]] = value
  if option.implies then values[option.implies] = true end
  return true
end

local Reader = {}
Reader.__index = Reader

function Reader:next()
  self.at = self.at + 1
  return self.args[self.at]
end

function Reader:long(argument)
  local name, text = argument:match("^%-%-([^=]+)=(.*)$")
  name = name or argument:sub(3)
  local all = by_long(self.known)
  local option = all[name]
  if name == "timeout" and all.wait then return nil, timeout_message(all) end
  if not option then return nil, unknown_message("--" .. name, hints.nearest(name, all)) end
  if option.value and text == nil then text = self:next() end
  return set(self.values, option, text, "--" .. name)
end

-- Parses arguments such as -nv, -w5 and -w 5.
function Reader:short(argument)
  for i = 2, #argument do
    local name = argument:sub(i, i)
    local option = by_short(self.known, name)
    if not option then return nil, unknown_message("-" .. name) end
    if option.value then
      local text = argument:sub(i + 1)
      return set(self.values, option, text ~= "" and text or self:next(), "-" .. name)
    end
    set(self.values, option, nil, "-" .. name)
  end
  return true
end

function Reader:read_argument(argument)
  if argument:sub(1, 2) == "--" then return self:long(argument) end
  if argument:sub(1, 1) == "-" and #argument > 1 then return self:short(argument) end
  self.words[#self.words + 1] = argument
  return true
end

-- → values by name, other arguments, arguments after "--" or nil | nil, message
function options.read(known, args, from)
  local self = setmetatable({ known = known, args = args, at = from - 1, values = {}, words = {} },
    Reader)
  for argument in self.next, self do
    if argument == "--" then
      return self.values, self.words, { unpack(args, self.at + 1) }
    end
    local ok, message = self:read_argument(argument)
    if not ok then return nil, message end
  end
  return self.values, self.words
end

-- Returns whether args contain one of the switches, even if the other arguments are invalid.
function options.asks_for(args, switch, other)
  for i = 2, #args do
    if args[i] == "--" then return false end
    if args[i] == switch or args[i] == other then return true end
  end
  return false
end

-- Joins lists of options. The title of each list heads its options in the help.
function options.join(...)
  local all = {}
  for _, list in ipairs { ... } do
    for _, option in ipairs(list) do
      local own = { group = list.title }
      for name, value in pairs(option) do own[name] = value end
      all[#all + 1] = own
    end
  end
  return all
end

return options
