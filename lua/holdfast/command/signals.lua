-- The signals that mean something to the command.

local process = require "holdfast.process"

local unpack = table.unpack or unpack

local signals = {}

local TERMINATING = { "HUP", "INT", "QUIT", "TERM", "USR1", "USR2" }
local PASSING = { "TSTP", "CONT", "WINCH", "CHLD" } -- end nothing

local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

signals.passing = set_of(PASSING)
signals.terminating = set_of(TERMINATING)

-- From now on what would end the program ends its wait, and nothing else does: the library leaves
-- the queue for any signal that is caught.
function signals.catch_terminating()
  process.uncatch(unpack(PASSING))
  -- in process 1 of a container: the system collects orphans itself
  if process.pid() == 1 then assert(process.ignore "CHLD") end
  assert(process.catch(unpack(TERMINATING)))
end

-- As well as those that end nothing.
function signals.catch_all()
  process.uncatch "CHLD"
  assert(process.catch(unpack(TERMINATING)))
  assert(process.catch(unpack(PASSING)))
end

-- → the name of a signal that has come and would end the program, nil
function signals.come()
  local name
  repeat name = process.wait(0) until not signals.passing[name or ""]
  return name
end

return signals
