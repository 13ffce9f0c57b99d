-- Keeps the traceback of the last error that passed through with_lock, for each coroutine.

local text = require("holdfast.compat").text

local traceback = {}

local last = setmetatable({}, { __mode = "k" })
local MAIN = {}

local function here()
  return coroutine.running() or MAIN
end

-- A message handler for xpcall: the error value stays as it is.
function traceback.keep(value)
  last[here()] = debug.traceback(text(value), 2)
  return value
end

-- The traceback kept in this coroutine, where the error was raised; nil when there is none.
function traceback.last()
  return last[here()]
end

return traceback
