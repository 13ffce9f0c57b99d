-- Lua 5.4 and newer: gives back what a coroutine has when coroutine.close ends it. Older Luas
-- cannot read this file.

local Guard = {}

-- Closing a coroutine must not wait, and may not yield: the background does it.
function Guard:__close()
  if self.lock then self.abandon(self.lock) end
end

local function disarm(guard, ...)
  guard.lock = nil
  return ...
end

-- Returns run(...). When the coroutine is closed meanwhile, abandon(lock) is called, which does not
-- wait.
return function(abandon, lock, run, ...)
  local guard <close> = setmetatable({ abandon = abandon, lock = lock }, Guard)
  return disarm(guard, run(...))
end
