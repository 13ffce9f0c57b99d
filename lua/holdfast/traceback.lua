-- Keeps the traceback of the last error that passed through with_lock, for each coroutine.

local compat = require "holdfast.compat"

local current_coroutine, error_text = compat.current_coroutine, compat.error_text

local traceback = {}

local last = setmetatable({}, { __mode = "k" })

-- A message handler for xpcall that returns the error value unchanged.
function traceback.keep(value)
  last[current_coroutine()] = debug.traceback(error_text(value), 2)
  return value
end

-- Returns the traceback kept in this coroutine, from where the error was raised, or nil.
function traceback.last()
  return last[current_coroutine()]
end

return traceback
