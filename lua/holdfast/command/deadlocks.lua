-- holdfast deadlocks: shows cycles of owners that wait for each other; with --all, shows every
-- wait.

local exits = require "holdfast.command.exits"
local identity = require "holdfast.command.identity"
local json = require "holdfast.command.json"
local output = require "holdfast.command.output"
local shell = require "holdfast.command.shell"
local subcommand = require "holdfast.command.subcommand"
local core = require "holdfast.core"

local deadlocks = {}

deadlocks.usage = "holdfast deadlocks [options]"
deadlocks.summary = "Find holders that are waiting for each other. Exits with 1 if there are any."
deadlocks.details = "This subcommand sees only callers that hold a lock and have been waiting for another for at\n"
  .. "least a quarter of a second. It does not see a process that is stuck for any other reason."

deadlocks.takes_several_servers = true
deadlocks.options = subcommand.options(deadlocks, {
  { "all", short = "a", help = "list every wait, including those of callers that hold nothing" },
  { "json", help = "print one JSON object per deadlock and, with -a, one per wait" },
})
deadlocks.examples = {
  "holdfast deadlocks                   # prints each cycle",
  "holdfast deadlocks --all             # and all other waits",
  "holdfast deadlocks --json || ./alert # exits with 1 if there are any",
}

-- Describes the process of an owner. Returns nil if the owner has not published its identity.
local function process_text(wait, prefix)
  return wait[prefix .. "host"] and identity.text {
    host = wait[prefix .. "host"], pid = wait[prefix .. "pid"], name = wait[prefix .. "name"],
  }
end

local function owner_text(owner, wait, prefix)
  local text = process_text(wait, prefix)
  return output.name(text and ("%s (%s)"):format(text, owner) or owner)
end

local function wait_text(wait)
  local holder = wait.holder and ", held by " .. owner_text(wait.holder, wait, "holder_")
    or core.kinds[wait.kind].has_permits and ", whose permits are taken" or ", which is free"
  return ('%s waits for "%s"%s'):format(owner_text(wait.owner, wait, ""), output.name(wait.key),
    holder)
end

local function wait_json(wait)
  return json.object {
    { "key", wait.key }, { "kind", wait.kind }, { "owner", wait.owner }, { "host", wait.host }, { "pid", wait.pid },
    { "name", wait.name },
    { "holder", wait.holder }, { "holder_host", wait.holder_host },
    { "holder_pid", wait.holder_pid },
    { "holder_name", wait.holder_name },
  }
end

local function print_json(result, all)
  for _, cycle in ipairs(result.cycles) do
    local waits = {}
    for i, wait in ipairs(cycle) do waits[i] = wait_json(wait) end
    output.print(json.object { { "deadlock", json.list(waits) } })
  end
  for _, wait in ipairs(all and result.waits or {}) do output.print(wait_json(wait)) end
end

local function parties_text(cycle)
  local parties, seen = {}, {}
  for _, wait in ipairs(cycle) do
    local party = output.name(process_text(wait, "") or wait.owner)
    if not seen[party] then parties[#parties + 1] = party end
    seen[party] = true
  end
  return table.concat(parties, ", ")
end

local ONE_HOLDER_TEXT = '  The next in line then gets "%s". %s is not stopped: it runs on as if it held the lock\n' ..
  "  until its next renewal."
local HOLDERS_TEXT = '  The next in line then gets "%s". Its holders are not stopped: they run on as if they held the lock\n' ..
  "  until their next renewals."

local function print_advice(cycle)
  local wait = cycle[1]
  local holder = wait.holder and output.name(process_text(wait, "holder_") or wait.holder)
  output.print("  To resolve it, end one of these processes: " .. parties_text(cycle))
  output.print("  or break one of the locks: " .. shell.break_line(wait.key))
  output.print((holder and ONE_HOLDER_TEXT or HOLDERS_TEXT):format(output.name(wait.key), holder))
end

local function print_text(result, all)
  for i, cycle in ipairs(result.cycles) do
    output.print(("deadlock %d, a cycle of length %d"):format(i, #cycle))
    for _, wait in ipairs(cycle) do output.print("  " .. wait_text(wait)) end
    print_advice(cycle)
  end
  for _, wait in ipairs(all and result.waits or {}) do output.print(wait_text(wait)) end
  if #result.cycles == 0 then output.hint "no deadlocks" end
end

function deadlocks.main(args)
  return subcommand.run(deadlocks, "deadlocks", args, 0, 0, function(client, given, _, out)
    local result, message, code = client:deadlocks()
    if not result then return subcommand.failed(out, message, code) end
    local show = given.json and print_json or print_text
    show(result, given.all)
    return #result.cycles > 0 and exits.BUSY or exits.OK
  end)
end

return deadlocks
