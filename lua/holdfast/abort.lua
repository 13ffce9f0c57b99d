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

local INTERVAL = 1000 -- VM instructions between checks
local SHORT_INTERVAL = 1 -- the same, while the error has to wait until a call of holdfast returns

local abort = {}

local Aborted = { __name = "holdfast.aborted" }
Aborted.__index = Aborted

function Aborted:__tostring()
  return ("holdfast: the lock %q was lost (%s) while it was still needed"):format(core.wire.hide_logins(self.key), self.reason)
end

function abort.is_for(value, lock)
  return type(value) == "table" and getmetatable(value) == Aborted and value.lock == lock
end

-- Checks the option abort_on_loss, like the checks in holdfast.options.
function abort.check(value)
  if type(value) ~= "boolean" then return "a boolean" end
  if value and driver.owner.finish then
    return "false under ngx_lua (check lock:lost(), or set on_lost)"
  end
end

-- ---- runs ----

-- coroutine -> its innermost run: { lock, outer, inside, depth }. The hook raises only while the
-- run is inside the user's function, and not in an on_lost or on_event called in the meantime.
local runs = setmetatable({}, { __mode = "k" })
local MAIN = {}

local function current_coroutine()
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

-- A message handler for xpcall: from now on no check raises in the run.
local function on_error(value)
  local run = runs[current_coroutine()]
  if run then run.inside = false end
  return traceback.keep(value)
end

-- → the outermost run of this coroutine that may be interrupted and whose lock is lost, the reason
local function find_lost()
  local run, depth, found, found_reason = runs[current_coroutine()], notifier.depth(), nil, nil
  while run do
    local reason = run.inside and run.depth == depth and raw.lost(run.lock)
    if reason then found, found_reason = run, reason end
    run = run.outer
  end
  return found, found_reason
end

local library = getinfo(1, "S").source:match("^(.*)abort%.lua$")

-- Returns whether the function at this level belongs to the user and not to a call of holdfast: an
-- error could keep that call from releasing what it holds. Functions of the user that holdfast
-- calls run in pcall.
local function is_user_code(level)
  for at = level + 1, math.huge do
    local info = getinfo(at, "Sf")
    if not info then return true end
    local fn = info.func
    if fn == enter or fn == pcall or fn == xpcall then return true end
    if library and info.source:sub(1, #library) == library then return false end
  end
end

-- ---- hooks ----

local hooks = setmetatable({}, { __mode = "k" }) -- the hooks that this module has set

-- In Lua 5.2 only sethook makes the table of hooked coroutines weak, and only when it creates the
-- table. If gethook created it, no coroutine that ever had a hook is collected.
local function make_hooked_weak()
  local hooked = _VERSION == "Lua 5.2" and debug.getregistry()._HKEY
  if not hooked or getmetatable(hooked) then return end
  hooked.__mode = "k"
  setmetatable(hooked, hooked)
end

local restart_compiler = false -- whether to turn LuaJIT's compiler on again after the hook

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
local function check(hook, mask, count)
  local run, reason = find_lost()
  local raises = run and is_user_code(3)
  local pace = run and not raises and SHORT_INTERVAL or INTERVAL
  if pace ~= count then sethook(hook, mask, pace) end
  if not raises then return end
  local lock = run.lock
  error(setmetatable({ lock = lock, key = lock:key(), reason = reason }, Aborted), 0)
end

-- → a function that removes the hook
local function set_hook()
  local before, mask, count = gethook()
  local function remove()
    sethook(before, mask or "", count or 0)
    resume_compiling()
  end
  local function hook(event, line)
    if event ~= "count" then
      if before then before(event, line) end
      return
    end
    local _, _, pace = gethook()
    if before and mask == "" and pace == INTERVAL then before(event, line) end
    if jit and not next(runs) then return remove() end -- their coroutines were collected
    check(hook, mask or "", pace)
  end
  hooks[hook] = true
  stop_compiling()
  sethook(hook, mask or "", INTERVAL)
  make_hooked_weak()
  return remove
end

local remove_shared -- LuaJIT: removes the hook that all runs share

-- Ends the run; the run around it is the coroutine's innermost one again. Removes the hook if no
-- run needs it.
local function finish(thread, run, remove)
  runs[thread] = run.outer
  if not jit then
    if remove then remove() end
  elseif remove_shared and not next(runs) then
    remove_shared()
    remove_shared = nil
  end
end

-- Returns xpcall(fn, …, ...) and watches the lock: after a loss an error is raised in fn. If the
-- coroutine is closed before fn returns, the lock is released in the background.
function abort.call(lock, fn, ...)
  local thread = current_coroutine()
  local run = { lock = lock, outer = runs[thread], inside = false, depth = notifier.depth() }
  local remove = not hooks[gethook()] and set_hook()
  if jit then remove_shared = remove or remove_shared end
  runs[thread] = run
  local function done(...)
    finish(thread, run, remove)
    return ...
  end
  return done(compat.closing(raw.abandon, lock, compat.xpcall, enter, on_error, run, fn, ...))
end

return abort
