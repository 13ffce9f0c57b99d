-- For Lua 5.4 and newer: releases a coroutine's lock when coroutine.close ends the coroutine. Older
-- Luas cannot parse this file.

local Guard = {}

-- Closing a coroutine must not wait and cannot yield, so the release happens in the background.
function Guard:__close()
  if self.lock then self.abandon(self.lock) end
end

local spare_guards = {} -- guards of calls that have returned, for reuse

local function disarm(guard, ...)
  guard.lock = nil
  spare_guards[#spare_guards + 1] = guard
  return ...
end

-- Returns run(...). If the coroutine is closed before run returns, calls abandon(lock), which must
-- not wait.
return function(abandon, lock, run, ...)
  local guard <close> = table.remove(spare_guards) or setmetatable({}, Guard)
  guard.abandon, guard.lock = abandon, lock
  return disarm(guard, run(...))
end
