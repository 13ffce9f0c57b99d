-- Coroutine functions that differ between the Lua versions.

local coroutines = {}

-- Whether the caller runs in a coroutine that may yield.
coroutines.isyieldable = coroutine.isyieldable or function()
  local thread, is_main = coroutine.running()
  return thread ~= nil and not is_main
end

return coroutines
