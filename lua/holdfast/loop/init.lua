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
--                 once fire is or was called. Otherwise it may return false after `seconds`; a loop
--                 without timers need not. One coroutine waits for each signal. fire may be called
--                 from anywhere, and may resume that coroutine at once.
--
-- and optionally `name`, for messages. fire must not raise an error of the coroutine that it
-- resumes.
--
-- holdfast owns the sockets. For each client the loop waits for one descriptor, which becomes
-- readable when there is something to do or a time is due.

local compat = require "holdfast.compat"
local owner = require "holdfast.loop.owner"

local loop = {}

local NEEDED = { "check", "spawn", "watch", "signal" }
local NAMES = { cqueues = true, copas = true, luv = true }

loop.names = { "copas", "cqueues", "luv" }

local function report(succeeded, message)
  if not succeeded then io.stderr:write("holdfast: ", compat.text(message), "\n") end
end

-- Stands for a loop in a process whose calls block.
loop.none = { owner = owner, report = report }

local function why_late()
  return "the event loop did not run it in time"
end

local made = setmetatable({}, { __mode = "k" }) -- a loop's functions -> the loop that the pump uses

local function make(given)
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
    why_late = why_late,
    owner = owner,
    settings = { looped = true },
  }
  function self.begin(pump, task)
    local prepared, message = descriptors.prepare(pump)
    if not prepared then return nil, message end
    local spawned, why = pcall(given.spawn, task)
    if spawned then return true end
    return nil, compat.text(why)
  end
  return self
end

-- Returns what is missing in a user's loop, or nil. A check like those in holdfast.options.
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
      package.loaded[name] = nil -- LuaJIT would not try it again
      return nil, module
    end
    given = module
  end
  if not made[given] then made[given] = make(given) end
  return made[given]
end

return loop
