-- For Lua 5.4 and newer: releases a coroutine's lock when coroutine.close ends the coroutine. Older
-- Luas cannot parse this file.

local Guard = {}

-- Closing a coroutine must not wait and cannot yield, so the release happens in the background.
function Guard:__close()
  if self.lock then self.abandon(self.lock) end
end

local function disarm(guard, ...)
  guard.lock = nil
  return ...
end

-- Returns run(...). If the coroutine is closed before run returns, calls abandon(lock), which must
-- not wait.
return function(abandon, lock, run, ...)
  local guard <close> = setmetatable({ abandon = abandon, lock = lock }, Guard)
  return disarm(guard, run(...))
end
