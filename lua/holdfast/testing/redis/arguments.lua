-- Parses command arguments like Redis. An invalid argument ends the command with Redis's message.

local fail = require "holdfast.testing.redis.fail"
local resp = require "holdfast.testing.redis.resp"

local arguments = {}

local INFINITE = { inf = true, infinity = true }

function arguments.integer(text, message)
  return resp.integer(text) or fail(message or "ERR value is not an integer or out of range")
end

function arguments.count(text)
  local message = "ERR value is out of range, must be positive"
  local number = arguments.integer(text, message)
  return number >= 0 and number or fail(message)
end

-- → number | nil
local function double(text)
  if text:find("%s") or text == "" then return nil end
  local number = tonumber(text)
  if number then return number == number and number or nil end
  local sign, word = text:lower():match("^([+-]?)(%a+)$")
  return INFINITE[word] and (sign == "-" and -math.huge or math.huge) or nil
end

function arguments.double(text, message)
  return double(text) or fail(message or "ERR value is not a valid float")
end

-- Parses a bound of a score range. "(" excludes the bound; an empty string is zero.
-- → { value = number, open = whether the bound is excluded }
function arguments.bound(text)
  local open = text:sub(1, 1) == "("
  if open then text = text:sub(2) end
  return { value = text == "" and 0 or double(text) or fail("ERR min or max is not a float"),
    open = open }
end

-- Formats a double like a reply.
function arguments.double_text(number)
  if number == math.huge then return "inf" end
  if number == -math.huge then return "-inf" end
  return ("%.17g"):format(number)
end

function arguments.integer_text(number)
  return ("%.0f"):format(number == 0 and 0 or number)
end

-- Converts 0-based indexes to a 1-based range. Negative indexes count from the end.
-- → first, last (last < first if it is empty)
function arguments.index_range(start, stop, count)
  if start < 0 then start = start + count end
  if stop < 0 then stop = stop + count end
  return math.max(start, 0) + 1, math.min(stop, count - 1) + 1
end

-- Raises an error for an option that only the real server supports, because any reply would be
-- wrong.
function arguments.unsupported(command, option)
  error(("%s %s is not in the small Redis"):format(command, option), 0)
end

return arguments
