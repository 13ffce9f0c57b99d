-- The signals that the command handles.

local process = require "holdfast.process"
local unpack = require("holdfast.compat").unpack

local signals = {}

local TERMINATING = { "HUP", "INT", "QUIT", "TERM", "USR1", "USR2" }
local HARMLESS = { "TSTP", "CONT", "WINCH", "CHLD" } -- signals that are not meant to end a program

local function to_set(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

signals.harmless = to_set(HARMLESS)
signals.terminating = to_set(TERMINATING)

-- From now on, signals that would end the program interrupt its wait instead. Other signals are not
-- caught, because any caught signal makes the library leave the queue.
function signals.catch_terminating()
  process.uncatch(unpack(HARMLESS))
  -- As process 1 of a container, this program inherits orphans; while CHLD is ignored, the kernel
  -- reaps them.
  if process.pid() == 1 then assert(process.ignore "CHLD") end
  assert(process.catch(unpack(TERMINATING)))
end

-- Catches all signals, including those that are not meant to end a program.
function signals.catch_all()
  process.uncatch "CHLD"
  assert(process.catch(unpack(TERMINATING)))
  assert(process.catch(unpack(HARMLESS)))
end

-- → the name of a pending signal that would end the program | nil
function signals.next_terminating()
  local name
  repeat name = process.wait(0) until not signals.harmless[name or ""]
  return name
end

return signals
