-- The command's exit codes. docs/reference/command.md and docs/holdfast.1 list them.

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
  MAX_RUNTIME = 124, -- like timeout(1)
  CANNOT_START = 126,
  NOT_FOUND = 127,
}

local BY_CODE = {}
for name, number in pairs(exits) do BY_CODE[locale.lower(name)] = number end

-- Each row: an exit code, its meaning, the subcommands that may exit with it.
local MEANINGS = {
  { "1 (or -E)", "the lock is taken", "run hold wait" },
  { "1 (or -E)", "wait: the latch is still closed; set: it is already counting; down: it is open", "latch" },
  { "64", "usage error, or an enclosing run already holds the lock", "run lead hold" },
  { "64", "usage error", "wait latch" },
  { "69", "the server did not answer", "run hold wait latch" },
  { "70", "the server answered with an error", "run hold wait latch" },
  { "73", "the key holds something other than this kind of lock", "run lead hold" },
  { "73", "the key holds something other than a lock", "wait" },
  { "73", "the key holds something other than a latch", "latch" },
  { "74", "could not write to standard output", "hold latch" },
  { "75", "the lock was lost", "run lead hold" },
  { "76", "too few of the --servers answered (no quorum)", "run hold wait" },
  { "77", "the server denied permission", "run lead hold wait latch" },
  { "79 (or -E)", "--idempotent, --once-per: already done", "run" },
  { "124", "--max-runtime: the command ran for too long", "run" },
  { "126, 127", "the command could not be run, or was not found", "run lead" },
  { "128 + n", "terminated by signal n", "run lead hold wait latch" },
}
local RUNS_A_COMMAND = { run = true, lead = true }

-- Returns the exit codes for a subcommand's help.
function exits.help(name)
  local lines = { RUNS_A_COMMAND[name] and "Exit codes, besides the command's own:" or "Exit codes:" }
  for _, row in ipairs(MEANINGS) do
    if (" " .. row[3] .. " "):find(" " .. name .. " ", 1, true) then
      lines[#lines + 1] = ("  %-11s %s"):format(row[1], row[2])
    end
  end
  return table.concat(lines, "\n")
end

local SIGNALS = { HUP = 1, INT = 2, QUIT = 3, USR1 = 10, USR2 = 12, TERM = 15 }

-- Returns the exit code for one of the library's error codes.
function exits.of(code) return BY_CODE[code] or exits.SERVER end

-- Returns the exit code for termination by this signal, a name or a number.
function exits.of_signal(signal) return 128 + (SIGNALS[signal] or signal) end

return exits
