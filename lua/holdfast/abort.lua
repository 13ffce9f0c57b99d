-- abort_on_loss: a count hook checks whether the lock of a running function is lost, and raises an
-- error in the function.
--
-- Hooks belong to coroutines, in LuaJIT to all of them together. So one hook looks after all runs
-- of its coroutine, or of all coroutines; the last run takes it away.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local notifier = require "holdfast.notifier"
local traceback = require "holdfast.traceback"

local getinfo, gethook, sethook = debug.getinfo, debug.gethook, debug.sethook
local jit, raw, pcall, xpcall = compat.jit, core.lock, pcall, xpcall

local EVERY = 1000 -- VM instructions between two checks
local AT_ONCE = 1 -- … when the error has to wait for the end of a call of holdfast

local abort = {}

local Aborted = { __name = "holdfast.aborted" }
Aborted.__index = Aborted

function Aborted:__tostring()
  return ("holdfast: the lock %q was lost (%s) while it was still needed"):format(core.wire.hide_logins(self.key), self.reason)
end

function abort.is_for(value, lock)
  return type(value) == "table" and getmetatable(value) == Aborted and value.lock == lock
end

-- A check, as those of holdfast.options.
function abort.check(value)
  if type(value) ~= "boolean" then return "a boolean" end
  if value and driver.owner.finish then
    return "false under ngx_lua (check lock:lost(), or set on_lost)"
  end
end

-- ---- runs ----

-- coroutine -> its innermost run: { lock, outer, inside, depth }; the hook raises only while it is
-- inside the user's function, and not in an on_lost or on_event that is called meanwhile
local runs = setmetatable({}, { __mode = "k" })
local MAIN = {}

local function here()
  return coroutine.running() or MAIN
end

local function leave(run, ...)
  run.inside = false
  return ...
end

local function enter(run, fn, ...)
  run.inside = true
  return leave(run, fn(...))
end

-- A message handler for xpcall.
local function keep(value)
  local run = runs[here()]
  if run then run.inside = false end
  return traceback.keep(value)
end

-- → the outermost run of this coroutine whose lock is lost, the reason
local function find_lost()
  local run, depth, found, found_reason = runs[here()], notifier.depth(), nil, nil
  while run do
    local reason = run.inside and run.depth == depth and raw.lost(run.lock)
    if reason then found, found_reason = run, reason end
    run = run.outer
  end
  return found, found_reason
end

local library = getinfo(1, "S").source:match("^(.*)abort%.lua$")

-- Whether the function at this level runs for the user: inside a call of holdfast an error could
-- keep it from giving back what it has. But what such a call runs for the user it runs in pcall.
local function is_users(level)
  for at = level + 1, math.huge do
    local info = getinfo(at, "Sf")
    if not info then return true end
    local fn = info.func
    if fn == enter or fn == pcall or fn == xpcall then return true end
    if library and info.source:sub(1, #library) == library then return false end
  end
end

-- ---- hooks ----

local hooks = setmetatable({}, { __mode = "k" }) -- those of ours

-- Lua 5.2 keeps every coroutine that has a hook if gethook was called before the first sethook: the
-- table that it has them in gets its mode there alone.
local function let_hooked_be_collected()
  local hooked = _VERSION == "Lua 5.2" and debug.getregistry()._HKEY
  if not hooked or getmetatable(hooked) then return end
  hooked.__mode = "k"
  setmetatable(hooked, hooked)
end

local compiles = false -- LuaJIT does so when the hook is away

-- LuaJIT runs hooks only in its interpreter.
local function interpret()
  if not jit or not jit.status() then return end
  compiles = true
  jit.off()
  jit.flush()
end

local function compile()
  if not compiles then return end
  compiles = false
  jit.on()
end

-- Called by the hook.
local function check(hook, mask, count)
  local run, reason = find_lost()
  local raises = run and is_users(3)
  local pace = run and not raises and AT_ONCE or EVERY
  if pace ~= count then sethook(hook, mask, pace) end
  if not raises then return end
  local lock = run.lock
  error(setmetatable({ lock = lock, key = lock:key(), reason = reason }, Aborted), 0)
end

-- → a function that takes the hook away again
local function set_hook()
  local before, mask, count = gethook()
  local function remove()
    sethook(before, mask or "", count or 0)
    compile()
  end
  local function hook(event, line)
    if event ~= "count" then
      if before then before(event, line) end
      return
    end
    local _, _, pace = gethook()
    if before and mask == "" and pace == EVERY then before(event, line) end
    if jit and not next(runs) then return remove() end -- their coroutines were collected
    check(hook, mask or "", pace)
  end
  hooks[hook] = true
  interpret()
  sethook(hook, mask or "", EVERY)
  let_hooked_be_collected()
  return remove
end

local remove_shared -- LuaJIT: takes the hook of all runs away

-- Ends the run, and watches again what it was inside of.
local function finish(thread, run, remove)
  runs[thread] = run.outer
  if not jit then
    if remove then remove() end
  elseif remove_shared and not next(runs) then
    remove_shared()
    remove_shared = nil
  end
end

-- Returns xpcall(fn, …, ...) with an eye on the lock: after a loss fn gets an error. A coroutine
-- that is closed meanwhile gives the lock back.
function abort.call(lock, fn, ...)
  local thread = here()
  local run = { lock = lock, outer = runs[thread], inside = false, depth = notifier.depth() }
  local remove = not hooks[gethook()] and set_hook()
  if jit then remove_shared = remove or remove_shared end
  runs[thread] = run
  local function done(...)
    finish(thread, run, remove)
    return ...
  end
  return done(compat.closing(raw.abandon, lock, compat.xpcall, enter, keep, run, fn, ...))
end

return abort
