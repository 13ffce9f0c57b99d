-- Event loops, and what holdfast needs from one.
--
-- A loop is a table with these functions:
--
--   check()       → true if the calling coroutine can wait here; else nil and where it is, such as
--                 "outside cqueues"
--   spawn(fn)     calls fn() in a coroutine of the loop that runs the caller, now or soon
--   watch(fd)     → { wait = function(self), close = function(self) }: a coroutine of the loop
--                 calls wait repeatedly; wait returns when this descriptor, a number, is readable.
--                 close is called when no coroutine is waiting.
--   signal()      → { wait = function(self, seconds), fire = function(self) }: wait returns true
--                 once fire has been called, even if that was before the wait. Otherwise it may
--                 return false after `seconds`; a loop without timers need not. One coroutine waits
--                 for each signal. fire may be called anywhere, and may resume it at once.
--
-- and optionally `name`, for messages. fire must not propagate an error raised in the coroutine
-- that it resumes.
--
-- holdfast owns the sockets. For each client the loop waits for one descriptor, which becomes
-- readable when there is something to do or a timer has expired.

local compat = require "holdfast.compat"
local owner = require "holdfast.loop.owner"

local loop = {}

local NEEDED = { "check", "spawn", "watch", "signal" }
local NAMES = { cqueues = true, copas = true, luv = true }

loop.names = { "copas", "cqueues", "luv" }

local function report(succeeded, message)
  if not succeeded then io.stderr:write("holdfast: ", compat.error_text(message), "\n") end
end

-- Used in place of a loop where calls block.
loop.none = { owner = owner, report = report }

local function late_message()
  return "the event loop did not run it in time"
end

local wrapped = setmetatable({}, { __mode = "k" }) -- a loop -> its form for the pump

local function wrap(given)
  local descriptors = require "holdfast.loop.descriptors"
  local self = {
    name = given.name or "the event loop",
    check = given.check,
    spawn = given.spawn,
    watch = given.watch,
    signal = given.signal,
    runs_within = 1, -- seconds within which a spawned task runs
    io = descriptors,
    is_over = descriptors.is_over,
    close_at_once = descriptors.close_at_once,
    report = report,
    late_message = late_message,
    owner = owner,
    settings = { uses_event_loop = true }, -- for core.client.new
  }
  function self.begin(pump, task)
    local prepared, message = descriptors.prepare(pump)
    if not prepared then return nil, message end
    local spawned, why = pcall(given.spawn, task)
    if spawned then return true end
    return nil, compat.error_text(why)
  end
  return self
end

-- Checks a user's loop, like the checks in holdfast.options.
function loop.check(given)
  for _, name in ipairs(NEEDED) do
    if type(given[name]) ~= "function" then
      return "a loop with the functions check, spawn, watch and signal", "", "one without " .. name
    end
  end
end

local NO_YIELD = "Lua 5.1 cannot yield inside pcall, which event loops require; use LuaJIT or a newer Lua version"

-- Finds the loop with this name, or takes a user's own, and wraps it. → the loop | nil, why it is
-- not available
function loop.get(given)
  if not compat.yields_in_pcall then return nil, NO_YIELD end
  if NAMES[given] then
    local name = "holdfast.loop." .. given
    local found, module = pcall(require, name)
    if not found then
      package.loaded[name] = nil -- after a failed require, LuaJIT would not load the module again
      return nil, module
    end
    given = module
  end
  if not wrapped[given] then wrapped[given] = wrap(given) end
  return wrapped[given]
end

return loop
