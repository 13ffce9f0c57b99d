-- What a key may contain, as the command names it: a row for each. No other file of the command
-- names one.
--
--   of         the core's kind that reads it; of a number, that whose channel its waiters listen to
--   counts     it is a number without a TTL, which other programs have, too
--   is_held    of a number: whether an acquire or a wait would have to wait
--   state      how `show` describes it; `%s` of a number is "closed" or "open"
--   left       how a list describes a number
--   removes    `break` deletes it, by this verb of the command
--   has_mode   it is held to read or to write
--   is_string  it is a string; is_mutex: one that SET NX PX has written
--   found_as   the row as which a scan for hashes finds it

local core = require "holdfast.core"

local kinds = {
  lock = { of = "lock", state = "held" },
  mutex = { of = "mutex", state = "held, a mutex", is_string = true, is_mutex = true },
  string = { of = "mutex", state = "a string: another program's lock (SET NX), or other data", is_string = true },
  read_write = { of = "write", state = "held", has_mode = true },
  semaphore = { of = "permit", state = "held" },
  fair = { of = "fair", state = "held", found_as = "lock" },
  record = { of = "lock", state = "done" },
  latch = {
    of = "latch", counts = true, state = "a latch, %s", left = "%.0f left",
    removes = "latch delete",
    is_held = function(count) return count > 0 end,
  },
  plain_semaphore = {
    of = "plain_semaphore", counts = true, state = "a plain semaphore", left = "%.0f permits free",
    is_held = function(count) return count < 1 end,
  },
  number = {
    counts = true, state = "a number: a latch (%s) or a semaphore", left = "count %.0f",
    is_held = function(count) return count > 0 end,
  },
}

-- Numbers differ in their channels: name of the row → the channel's prefix.
kinds.channels = {}
for name, row in pairs(kinds) do
  if row.counts and row.of then kinds.channels[name] = core.kinds[row.of].channel end
end

return kinds
