-- Parses a subcommand's arguments by its list of options, which is also the source of its help.
--
-- An option is { "name", short = "n", aliases = { "other-name" }, value = "TIME", check =
-- function(text) → value | nil, what the text must be, help = "…", group = the title of the
-- option's group in the help, implies = a switch that the option also sets, hidden = true if the
-- help omits the option }. Without `value`, the option is a switch.

local locale = require "holdfast.locale"
local lazy = require "holdfast.lazy"
local hints = lazy "holdfast.hints"
local texts = require "holdfast.text"
local unpack = require("holdfast.compat").unpack

local options = {}

local UNITS = { ms = 0.001, s = 1, m = 60, h = 3600, d = 86400, w = 604800 }

local MAX_LENGTH = 64 -- maximum bytes of a duration, because matching a long string is slow

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

local function whole(text)
  local number = locale.number(text)
  return number and number % 1 == 0 and number or nil
end

-- Returns a check for numbers. `parse`: text → number | nil; `expected`: describes them in the
-- message.
local function number_from(parse, minimum, maximum, expected)
  return function(text)
    local number = parse(text)
    local is_valid = number and number >= minimum and number <= maximum -- any locale: numbers
    if is_valid then return number end
    return nil, expected
  end
end

local DURATION_TEXT = "a duration from %s s to 1e9 s, such as 90, 1.5, 5m or 1h30m"

options.seconds = number_from(duration, 0, 1e9, DURATION_TEXT:format("0"))
options.duration = number_from(duration, 0.1, 1e9, DURATION_TEXT:format("0.1"))
options.timeout = number_from(duration, 0.001, 3600, "a duration from 0.001 s to 1h")
options.exit_code = number_from(whole, 0, 255, "an exit code from 0 to 255")
options.count = number_from(whole, 1, 1e9, "a whole number from 1 to 1e9")

function options.text(text)
  if text ~= "" then return text end
  return nil, "non-empty"
end

-- Checks a holder's name, which is stored at the end of a line, after host and pid.
function options.name(text)
  if text ~= "" and #text <= 127 and texts.printable(text) == text then return text end
  return nil, "1 to 127 printable characters"
end

local function by_short(definitions, name)
  for _, option in ipairs(definitions) do
    if option.short == name then return option end
  end
end

-- → the options, indexed by long name and alias
local function by_long(definitions)
  local options_by_name = {}
  for _, option in ipairs(definitions) do
    options_by_name[option[1]] = option
    for _, alias in ipairs(option.aliases or {}) do options_by_name[alias] = option end
  end
  return options_by_name
end

local function unknown_message(label, suggestion)
  return ("unknown option %s;%s --help lists all options"):format(label, suggestion
    and (" did you mean --%s?"):format(suggestion) or "")
end

-- In flock, --timeout means --wait; in other programs it limits the job. → the message that says
-- what to use instead
local function timeout_message(options_by_name)
  if not options_by_name["max-runtime"] then return "there is no --timeout; to limit the wait, use --wait (-w)" end
  return "there is no --timeout; use --wait (-w) to limit the wait for the lock, " ..
    "or --max-runtime to limit the job"
end

local function set(values, option, text, label)
  if not option.value then
    values[option[1]] = true
    if text then return nil, label .. " takes no value" end
    return true
  end
  if not text then return nil, label .. " needs a value: " .. option.value end
  local value, expected = (option.check or options.text)(text)
  if value == nil then return nil, ('%s must be %s, not "%s"'):format(label, expected, text) end
  values[option[1]] = value
  if option.implies then values[option.implies] = true end
  return true
end

local Reader = {}
Reader.__index = Reader

function Reader:next()
  self.index = self.index + 1
  return self.args[self.index]
end

function Reader:long(argument)
  local name, text = argument:match("^%-%-([^=]+)=(.*)$")
  name = name or argument:sub(3)
  local options_by_name = by_long(self.definitions)
  local option = options_by_name[name]
  if name == "timeout" and options_by_name.wait then return nil, timeout_message(options_by_name) end
  if not option then
    return nil, unknown_message("--" .. name, hints.nearest(name, options_by_name))
  end
  if option.value and text == nil then text = self:next() end
  return set(self.values, option, text, "--" .. name)
end

-- Parses arguments such as -nv, -w5 and -w 5.
function Reader:short(argument)
  for i = 2, #argument do
    local name = argument:sub(i, i)
    local option = by_short(self.definitions, name)
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

-- Parses args[first] and all later arguments.
-- → values by name; the other arguments; the arguments after "--", or nil | nil, message
function options.read(definitions, args, first)
  local self = setmetatable({
    definitions = definitions, args = args, index = first - 1, values = {}, words = {},
  }, Reader)
  for argument in self.next, self do
    if argument == "--" then
      return self.values, self.words, { unpack(args, self.index + 1) }
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

-- Joins lists of options. In the help, the title of each list comes before the list's options.
function options.join(...)
  local joined = {}
  for _, list in ipairs { ... } do
    for _, option in ipairs(list) do
      local copy = { group = list.title }
      for name, value in pairs(option) do copy[name] = value end
      joined[#joined + 1] = copy
    end
  end
  return joined
end

return options
