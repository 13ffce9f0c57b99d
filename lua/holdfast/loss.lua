-- Tells owners that a lock is lost: on_lost callbacks, called in the owner's Lua state at the next
-- call of holdfast, and the error that abort_on_loss raises in a running function.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"

local loss = {}

local EVERY = 1000 -- VM instructions between two looks of abort_on_loss

local watched = setmetatable({}, { __mode = "k" }) -- locks with on_lost that were acquired
local clients = setmetatable({}, { __mode = "k" })

-- The lock's on_lost is called when a hold that was acquired through it is lost.
function loss.watch(lock, client)
  watched[lock] = true
  clients[client], events.heeded = true, true
end

local function tell_all()
  local told = {}
  for lock in pairs(watched) do
    local reason = core.lock.pending_loss(lock)
    if reason then told[#told + 1] = { lock, reason } end
  end
  local failed, failure
  for _, each in ipairs(told) do
    local ok, err = pcall(core.lock.data(each[1]).on_lost, each[1], each[2])
    if not ok and not failed then failed, failure = true, err end
  end
  if failed then error(failure, 0) end
end

-- Called by every method of the API: first, but by those that let go last. An error of a callback
-- comes out of it after all callbacks were called.
function loss.tell()
  if not events.heeded then return end
  events.tell()
  local news = false
  for client in pairs(clients) do
    news = core.client.has_losses(client) or news
  end
  if news then tell_all() end
end

-- Tells losses, and returns what it was given: what a call returns.
function loss.tell_after(...)
  loss.tell()
  return ...
end

if driver.listen then driver.listen(loss.tell) end

-- ---- abort_on_loss ----

local Aborted = { __name = "holdfast.aborted" }
Aborted.__index = Aborted

function Aborted:__tostring()
  return ("holdfast: the lock %q was lost (%s) while it was needed"):format(self.key, self.reason)
end

function loss.is_abort(value, lock)
  return type(value) == "table" and getmetatable(value) == Aborted and value.lock == lock
end

function loss.check_abort(value)
  if type(value) ~= "boolean" then return "a boolean" end
  if value and driver.finish then
    return "absent under ngx_lua (ask lock:lost(), or give on_lost)"
  end
end

-- LuaJIT looks at hooks only in its interpreter, and has one hook for all coroutines.
local jit = compat.jit

local function interpret(on)
  if not jit then return end
  if on then
    jit.off()
    jit.flush()
  else
    jit.on()
  end
end

-- Runs run(...) with an eye on the lock: after a loss the function gets an error.
function loss.abort_on(lock, run, ...)
  local thread, jitted = coroutine.running(), jit and jit.status()
  local before, mask, count = debug.gethook()
  local function hook(event, line)
    if before and event ~= "count" then before(event, line) end
    if event ~= "count" or coroutine.running() ~= thread then return end
    if before and mask == "" then before(event, line) end
    local reason = core.lock.lost(lock)
    if reason then
      error(setmetatable({ lock = lock, key = lock:key(), reason = reason }, Aborted), 0)
    end
  end
  if jitted then interpret(true) end
  debug.sethook(hook, mask or "", EVERY)
  local function restore(...)
    debug.sethook(before, mask or "", count or 0)
    if jitted then interpret(false) end
    return ...
  end
  return restore(run(...))
end

return loss
