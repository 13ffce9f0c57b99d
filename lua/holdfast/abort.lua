-- abort_on_loss: a count hook checks whether the lock of a running function is lost, and raises an
-- error in the function.
--
-- Each coroutine has its own hook, but in LuaJIT all coroutines share one. So one hook serves all
-- runs of its coroutine, or of all coroutines, and the last run to end removes it.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local notifier = require "holdfast.notifier"
local traceback = require "holdfast.traceback"

local getinfo, gethook, sethook = debug.getinfo, debug.gethook, debug.sethook
local jit, raw, pcall, xpcall = compat.jit, core.lock, pcall, xpcall
local current_coroutine = compat.current_coroutine

-- VM instructions between checks; prime, so that not each check of a loop falls into a call hook of
-- the program's, in which no other hook runs.
local INTERVAL = 1009
local SHORT_INTERVAL = 1 -- the interval while the error waits for a call into holdfast to return

local abort = {}

local Aborted = { __name = "holdfast.aborted" }
Aborted.__index = Aborted

function Aborted:__tostring()
  return ("holdfast: the lock %q was lost (%s) while it was still needed"):format(core.wire.mask_credentials(self.key), self.reason)
end

function abort.is_loss_of(value, lock)
  return type(value) == "table" and getmetatable(value) == Aborted and value.lock == lock
end

-- Checks the option abort_on_loss: see holdfast.options.
function abort.check(value)
  if type(value) ~= "boolean" then return "a boolean" end
  if value and driver.owner.finish then
    return "false under ngx_lua (check lock:lost(), or set on_lost)"
  end
end

-- ---- runs ----

-- coroutine -> its innermost run: { lock, outer, in_user_code, depth }. The hook raises only in the
-- user's function, and not in an on_lost or on_event called from there.
local runs = setmetatable({}, { __mode = "k" })

local function end_call(run, ...)
  run.in_user_code = false
  return ...
end

local function call_user(run, fn, ...)
  run.in_user_code = true
  return end_call(run, fn(...))
end

-- A message handler for xpcall: from now on the hook does not raise in this run.
local function on_error(value)
  local run = runs[current_coroutine()]
  if run then run.in_user_code = false end
  return traceback.keep(value)
end

-- → the outermost run of this coroutine that may be interrupted and whose lock is lost, the reason
local function find_lost_run()
  local run, depth, found, found_reason = runs[current_coroutine()], notifier.depth(), nil, nil
  while run do
    local reason = run.in_user_code and run.depth == depth and raw.lost(run.lock)
    if reason then found, found_reason = run, reason end
    run = run.outer
  end
  return found, found_reason
end

local library_path = getinfo(1, "S").source:match("^(.*)abort%.lua$")

-- Returns whether the function at this level is the user's, and not part of a call into holdfast:
-- an error could keep that call from releasing what it holds. holdfast calls the user's functions
-- in pcall.
local function is_user_code(level)
  for frame = level + 1, math.huge do
    local info = getinfo(frame, "Sf")
    if not info then return true end
    local fn = info.func
    if fn == call_user or fn == pcall or fn == xpcall then return true end
    if library_path and info.source:sub(1, #library_path) == library_path then return false end
  end
end

-- ---- hooks ----

local hooks = setmetatable({}, { __mode = "k" }) -- the hooks that this module has set

-- In Lua 5.2 only sethook makes the table of hooked coroutines weak, and only when it creates the
-- table. If gethook created it, no coroutine that ever had a hook is garbage-collected.
local function make_hooked_coroutines_weak()
  local hooked = _VERSION == "Lua 5.2" and debug.getregistry()._HKEY
  if not hooked or getmetatable(hooked) then return end
  hooked.__mode = "k"
  setmetatable(hooked, hooked)
end

local restart_compiler = false -- whether LuaJIT's compiler must be turned on again

-- LuaJIT runs hooks only in its interpreter.
local function stop_compiling()
  if not jit or not jit.status() then return end
  restart_compiler = true
  jit.off()
  jit.flush()
end

local function resume_compiling()
  if not restart_compiler then return end
  restart_compiler = false
  jit.on()
end

-- Raises if a lock is lost and the user's code is running. Only the hook calls this: is_user_code
-- counts levels.
local function raise_if_lost(hook, mask, count)
  local run, reason = find_lost_run()
  local may_raise = run and is_user_code(3)
  local interval = run and not may_raise and SHORT_INTERVAL or INTERVAL
  if interval ~= count then sethook(hook, mask, interval) end
  if not may_raise then return end
  local lock = run.lock
  error(setmetatable({ lock = lock, key = lock:key(), reason = reason }, Aborted), 0)
end

-- → a function that removes the hook
local function set_hook()
  local previous, mask, count = gethook()
  local function remove()
    sethook(previous, mask or "", count or 0)
    resume_compiling()
  end
  local function hook(event, line)
    if event ~= "count" then
      if previous then previous(event, line) end
      return
    end
    local _, _, interval = gethook()
    if previous and mask == "" and interval == INTERVAL then previous(event, line) end
    if jit and not next(runs) then return remove() end -- the runs' coroutines were collected
    raise_if_lost(hook, mask or "", interval)
  end
  hooks[hook] = true
  stop_compiling()
  sethook(hook, mask or "", INTERVAL)
  make_hooked_coroutines_weak()
  return remove
end

local remove_shared_hook -- LuaJIT: removes the hook that all runs share

-- Ends the coroutine's innermost run. Removes the hook if no run needs it.
local function end_run(thread, run, remove)
  runs[thread] = run.outer
  if not jit then
    if remove then remove() end
  elseif remove_shared_hook and not next(runs) then
    remove_shared_hook()
    remove_shared_hook = nil
  end
end

-- Calls fn(...), and returns what xpcall returns. Raises an error in fn if the lock is lost. If the
-- coroutine is closed before fn returns, releases the lock in the background.
function abort.call(lock, fn, ...)
  local thread = current_coroutine()
  local run = { lock = lock, outer = runs[thread], in_user_code = false, depth = notifier.depth() }
  local remove = not hooks[gethook()] and set_hook()
  if jit then remove_shared_hook = remove or remove_shared_hook end
  runs[thread] = run
  local function done(...)
    end_run(thread, run, remove)
    return ...
  end
  return done(compat.closing(raw.abandon, lock, compat.xpcall, call_user, on_error, run, fn, ...))
end

return abort
