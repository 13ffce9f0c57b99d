-- holdfast ls: lists the held locks, and the jobs that count as done.

local exits = require "holdfast.command.exits"
local json = require "holdfast.command.json"
local locks = require "holdfast.command.locks"
local output = require "holdfast.command.output"
local subcommand = require "holdfast.command.subcommand"

local ls = {}

ls.usage = "holdfast ls [options] [PATTERN]"
ls.summary = "List the locks that are held, or only those whose key matches PATTERN."
ls.details = "PATTERN is a glob, as in Redis's SCAN: * matches any text.\n\n" ..
  "A job that has finished under `run --idempotent` is listed with the owner `done`; its TTL is the\n" ..
  "time until it may run again. For a semaphore, the owner column shows how many permits are taken,\n" ..
  "and the TTL is the time until the first lease ends. A closed latch is listed, with its count,\n" ..
  "only while somebody is waiting for it.\n\n" ..
  "HELD is how long the owner has held the lock, and WAIT how long the first waiter has waited, by\n" ..
  "the server's clock. `-` means that it is unknown or does not apply."

ls.takes_several_servers = true
ls.options = subcommand.options(ls, {
  { "mutex", help = "list mutexes (SET NX PX) instead of locks" },
  { "json", help = "print one JSON object per lock" },
})
ls.examples = {
  "holdfast ls          # all locks",
  "holdfast ls 'jobs:*' # those whose key begins with jobs:",
  "holdfast ls --json   # for scripts",
}

local HEAD = { "KEY", "OWNER", "HOLDS", "HELD", "TTL", "TOKEN", "WAITERS", "WAIT" }
local RIGHT_ALIGNED = { false, false, true, true, true, true, true, true }

local function row(entry, who)
  if entry.done then
    return { output.name(entry.key), "done", "-", "-", locks.seconds(entry.done_ttl), "-", "-", "-" }
  end
  return {
    output.name(entry.key), locks.holder_text(entry, who),
    entry.holds and ("%d"):format(entry.holds) or "-", locks.duration(entry.held_for),
    locks.seconds(entry.ttl), locks.token(entry.token), ("%d"):format(entry.waiters),
    locks.duration(entry.waits),
  }
end

local function print_json(entries, name_of)
  for _, entry in ipairs(entries) do
    output.print(json.object(locks.fields(entry, entry.owner and name_of(entry.owner))))
  end
end

local function print_table(entries, name_of)
  local rows = { HEAD }
  for _, entry in ipairs(entries) do
    rows[#rows + 1] = row(entry, entry.owner and name_of(entry.owner))
  end
  if #entries > 0 then
    return output.print(table.concat(output.columns(rows, RIGHT_ALIGNED), "\n"))
  end
  output.hint "no locks"
end

function ls.main(args)
  return subcommand.run(ls, "ls", args, 0, 1, function(client, given, words, out)
    local entries, message, code = locks.all(client, words[1], given.mutex)
    if not entries then return subcommand.failed(out, message, code) end
    local show = given.json and print_json or print_table
    show(entries, locks.namer(client))
    if message then out:problem("warning", {}, message) end
    return exits.OK
  end)
end

return ls
