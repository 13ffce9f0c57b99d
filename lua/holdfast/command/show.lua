-- holdfast show: shows a lock, its holder and its queue.

local exits = require "holdfast.command.exits"
local identity = require "holdfast.command.identity"
local json = require "holdfast.command.json"
local kinds = require "holdfast.command.kinds"
local locks = require "holdfast.command.locks"
local output = require "holdfast.command.output"
local permits = require "holdfast.command.permits"
local records = require "holdfast.command.records"
local subcommand = require "holdfast.command.subcommand"

local show = {}

show.usage = "holdfast show [options] KEY"
show.summary = "Show who holds the lock KEY and who is waiting for it. Exits with 1 if it is free."

show.takes_several_servers = true
show.options = subcommand.options(show, {
  { "json", help = "print one JSON object" },
})
show.examples = {
  "holdfast show backup         # holder, lease, fencing token, queue",
  "holdfast show --json backup  # for scripts",
  "holdfast show -- -odd-key    # a key that begins with -",
}

local MAX_WAITERS = 50 -- maximum waiters to show

local function print_line(name, value)
  if value then output.print(("%-8s %s"):format(name, output.name(value))) end
end

local function state_of(entry)
  local state = kinds[entry.kind].state
  if entry.count then return state:format(entry.count > 0 and "closed" or "open") end
  if not entry.held then return "free" end
  return state .. locks.mode_text(entry, ", ", "")
end

local function print_holder(entry, name_of)
  if entry.owner then
    print_line("owner", entry.owner)
    print_line("who", identity.text(name_of(entry.owner)))
    print_line("holds", ("%d"):format(entry.holds))
    print_line("held", locks.for_duration(entry.held_for))
  end
  if entry.held and not entry.count then print_line("ttl", locks.seconds(entry.ttl)) end
end

local function print_permits(entry)
  if not entry.permits then return end
  print_line("permits", ("%d of %d taken"):format(entry.holds, entry.permits))
  for _, holder in ipairs(entry.holders) do
    print_line("", ("%d by %s, %s"):format(holder.permits, identity.text(holder.who) or holder.owner,
      locks.seconds(holder.ttl)))
  end
end

-- Describes the run that counts for the last scheduled time.
local function run_text(run)
  return run and ("%s on %s, began %s ago"):format(run.state, identity.text(run), locks.seconds(math.max(run.age, 0)))
end

local function run_json(run)
  return run and { text = json.object {
    { "state", run.state }, { "host", run.host }, { "pid", run.pid }, { "name", run.name }, { "age", run.age },
  } }
end

local function print_text(entry, waiters, name_of)
  print_line("key", entry.key)
  print_line("state", state_of(entry))
  print_line("count", entry.count and ("%.0f"):format(entry.count))
  print_permits(entry)
  print_holder(entry, name_of)
  print_line("done", entry.done_ttl and ("for %s more"):format(locks.seconds(entry.done_ttl)))
  print_line("run", run_text(entry.run))
  print_line("token", entry.token and locks.token(entry.token))
  print_line("waiters", ("%d"):format(entry.waiters))
  for _, waiter in ipairs(waiters) do
    local who = identity.text(name_of(waiter.owner))
    local waits = locks.for_duration(waiter.waits, waiter.wait_is_lower_bound)
    print_line(("%6d"):format(waiter.place), (who or waiter.owner) .. (waits and ", " .. waits or ""))
  end
  if entry.waiters > #waiters and not entry.count then print_line("", "…") end
end

local function waiter_json(waiter, who)
  return json.object {
    { "owner", waiter.owner }, { "host", who and who.host }, { "pid", who and who.pid },
    { "name", who and who.name }, { "waits", waiter.waits }, { "at_least", waiter.wait_is_lower_bound },
    { "permits", waiter.permits }, { "ttl", waiter.ttl },
  }
end

local function holders_json(entry)
  local elements = {}
  for i, holder in ipairs(entry.holders or {}) do elements[i] = waiter_json(holder, holder.who) end
  return entry.holders and json.list(elements)
end

local function print_json(entry, waiters, name_of)
  local fields, queue = locks.fields(entry, entry.owner and name_of(entry.owner)), {}
  for i, waiter in ipairs(waiters) do queue[i] = waiter_json(waiter, name_of(waiter.owner)) end
  fields[#fields + 1] = { "run", run_json(entry.run) }
  fields[#fields + 1] = { "holders", holders_json(entry) }
  fields[#fields + 1] = { "queue", json.list(queue) }
  output.print(json.object(fields))
end

function show.main(args)
  return subcommand.run(show, "show", args, 1, 1, function(client, given, words, out)
    local key = words[1]
    if key == "" then return out:fail(exits.USAGE, "usage", "KEY is empty") end
    local entry, message, code = locks.inspect(client, key)
    if not entry then return subcommand.failed(out, message, code) end
    entry.done_ttl = records.ttl(client, key)
    entry.run = records.last_run(client, key)
    entry.holders = entry.permits and permits.holders(client, key)
    local print_entry = given.json and print_json or print_text
    print_entry(entry, locks.waiters(client, entry, MAX_WAITERS), locks.namer(client))
    return entry.held and exits.OK or exits.BUSY
  end)
end

return show
