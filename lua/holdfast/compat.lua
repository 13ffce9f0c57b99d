-- Hides the differences among Lua 5.1 to 5.5 and LuaJIT.

local compat = { jit = rawget(_G, "jit") }

local is_plain_5_1 = _VERSION == "Lua 5.1" and not compat.jit
local MAIN = {} -- stands for the main coroutine

local unpack = table.unpack or unpack
compat.unpack = unpack

-- Lua 5.1 does not pass xpcall's arguments on to the function.
if select(2, xpcall(function(given) return given end, error, true)) then
  compat.xpcall = xpcall
else
  function compat.xpcall(fn, handler, ...)
    local arguments, count = { ... }, select("#", ...)
    return xpcall(function() return fn(unpack(arguments, 1, count)) end, handler)
  end
end

-- Returns the level that compat.error must pass to error to blame the caller that is `level` calls
-- above it. Lua 5.1 counts a tail call as a level of its own; other versions drop its caller.
local function with_tail_calls(level)
  local calls, depth = 0, 2
  repeat
    depth = depth + 1
    local info = debug.getinfo(depth, "S")
    if not info then return level + 1 end
    if info.what ~= "tail" then calls = calls + 1 end
  until calls == level
  return depth - 1
end

if is_plain_5_1 then
  function compat.error(message, level)
    error(message, with_tail_calls(level))
  end
else
  compat.error = error
end

-- Returns a string for an error value, even if its __tostring raises or does not return a string.
function compat.error_text(value)
  local ok, text = pcall(tostring, value)
  if ok and type(text) == "string" then return text end
  return ("(an error value of type %s that cannot be converted to text)"):format(type(value))
end

compat.yields_in_pcall = not is_plain_5_1

compat.isyieldable = coroutine.isyieldable or function()
  local thread, is_main = coroutine.running()
  return thread ~= nil and not is_main
end

-- Returns the running coroutine, or a value that stands for the main one.
function compat.current_coroutine()
  return coroutine.running() or MAIN
end

-- See closing.lua. Only Lua 5.4 and newer can close a coroutine.
if _VERSION >= "Lua 5.4" then -- any locale: the two strings can differ only in a digit
  compat.closing = require "holdfast.closing"
else
  function compat.closing(_, _, run, ...) return run(...) end
end

-- A traceback names functions after the fields of loaded modules. Lua's own functions are behind
-- __index here, so that a traceback shows the user's call of error as "error".
return setmetatable({}, { __index = compat })
