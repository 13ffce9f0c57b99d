-- The exit codes of the command. docs/command.md and docs/holdfast.1 list them.

local locale = require "holdfast.locale"

local exits = {
  OK = 0,
  BUSY = 1,
  USAGE = 64,
  DEADLOCK = 64,
  UNREACHABLE = 69,
  SERVER = 70,
  CONFLICT = 73,
  OUTPUT = 74,
  LOST = 75,
  NO_QUORUM = 76,
  DENIED = 77,
  DUPLICATE = 79,
  CANNOT_START = 126,
  NOT_FOUND = 127,
}

local BY_CODE = {}
for name, number in pairs(exits) do BY_CODE[locale.lower(name)] = number end

exits.help = [[
Exit codes, besides the command's own:
  1 (or -E)   the lock is taken
  64          wrong usage, or the surrounding run holds the lock
  69          the server does not answer
  70          the server answered with an error
  73          the key holds something else
  74          standard output cannot be written
  75          the lock was lost
  76          too few of --servers answered (no quorum)
  77          the server denied permission
  79 (or -E)  --idempotent: already done
  126, 127    the command cannot be run, or was not found
  128 + n     ended by signal n]]

local SIGNALS = { HUP = 1, INT = 2, QUIT = 3, USR1 = 10, USR2 = 12, TERM = 15 }

-- For the code of a failure of the library.
function exits.of(code)
  return BY_CODE[code] or exits.SERVER
end

-- For an end by a signal, by its name or its number.
function exits.of_signal(signal)
  return 128 + (SIGNALS[signal] or signal)
end

return exits
