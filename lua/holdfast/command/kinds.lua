-- What a key may contain. The index of each row is the name that the command shows.
--
--   core_kind  the core's kind that reads the key; for a number, the kind whose channel waiters use
--   counts     whether the key holds a number without a TTL; other programs store such numbers, too
--   is_held    for a number: function (count) → whether an acquire or a wait would have to wait
--   state      how `show` describes the key; for a number, `%s` is "closed" or "open"
--   left       how a list describes a number; unit: the noun for `%s`, which the number counts
--   removes    the subcommand that, like `break`, deletes the key
--   has_mode   whether the lock is held either to read or to write
--   is_string  whether the key holds a string; is_mutex: a string from SET NX PX
--   found_as   the row as which a scan for hashes finds it

local core = require "holdfast.core"

local kinds = {
  lock = { core_kind = "lock", state = "held" },
  mutex = { core_kind = "mutex", state = "held, a mutex", is_string = true, is_mutex = true },
  string = { core_kind = "mutex", state = "a string: another program's lock (SET NX), or other data", is_string = true },
  read_write = { core_kind = "write", state = "held", has_mode = true },
  semaphore = { core_kind = "permit", state = "held" },
  fair = { core_kind = "fair", state = "held", found_as = "lock" },
  record = { core_kind = "lock", state = "done" },
  latch = {
    core_kind = "latch", counts = true, state = "a latch, %s", left = "%.0f left",
    removes = "latch delete",
    is_held = function(count) return count > 0 end,
  },
  plain_semaphore = {
    core_kind = "plain_semaphore", counts = true, state = "a plain semaphore", left = "%s free",
    unit = "permit",
    is_held = function(count) return count < 1 end,
  },
  number = {
    counts = true, state = "a number: a latch (%s) or a semaphore", left = "count %.0f",
    is_held = function(count) return count > 0 end,
  },
}

-- name of a number's row → prefix of its channel, which distinguishes the kinds of numbers
kinds.channels = {}
for name, row in pairs(kinds) do
  if row.counts and row.core_kind then kinds.channels[name] = core.kinds[row.core_kind].channel end
end

return kinds
