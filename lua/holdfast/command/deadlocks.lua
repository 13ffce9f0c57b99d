-- holdfast deadlocks: lists which owner waits for which, and names the circles.

local exits = require "holdfast.command.exits"
local identity = require "holdfast.command.identity"
local json = require "holdfast.command.json"
local output = require "holdfast.command.output"
local verb = require "holdfast.command.verb"

local deadlocks = {}

deadlocks.usage = "holdfast deadlocks [options]"
deadlocks.summary = "Finds locks whose holders wait for each other. Exit code 1 when there are any."
deadlocks.more = "Callers that hold a lock tell for which other they wait, once they have waited for a quarter\n" ..
  "of a second. A process that stands still for other reasons is not seen."

deadlocks.of_servers = true
deadlocks.options = verb.options(deadlocks, {
  { "all", short = "a", help = "list every wait, also of those that hold nothing" },
  { "json", help = "one JSON object for each deadlock, and with -a for each wait" },
})

local function who(owner, wait, prefix)
  local text = wait[prefix .. "host"] and identity.text {
    host = wait[prefix .. "host"], pid = wait[prefix .. "pid"], name = wait[prefix .. "name"],
  }
  return output.printable(text and ("%s (%s)"):format(text, owner) or owner)
end

local function sentence(wait)
  local holder = wait.holder and ", held by " .. who(wait.holder, wait, "holder_")
    or wait.kind == "permit" and ", whose permits are taken" or ", which is free"
  return ('%s waits for "%s"%s'):format(who(wait.owner, wait, ""), output.printable(wait.key),
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
    local list = {}
    for i, wait in ipairs(cycle) do list[i] = wait_json(wait) end
    output.print(json.object { { "deadlock", json.list(list) } })
  end
  for _, wait in ipairs(all and result.waits or {}) do output.print(wait_json(wait)) end
end

local function print_text(result, all)
  for i, cycle in ipairs(result.cycles) do
    output.print(("deadlock %d, of %d"):format(i, #cycle))
    for _, wait in ipairs(cycle) do output.print("  " .. sentence(wait)) end
  end
  for _, wait in ipairs(all and result.waits or {}) do output.print(sentence(wait)) end
end

function deadlocks.main(args)
  return verb.run(deadlocks, "deadlocks", args, 0, 0, function(client, given, _, out)
    local result, message, code = client:deadlocks()
    if not result then return verb.failed(out, message, code) end
    local show = given.json and print_json or print_text
    show(result, given.all)
    return #result.cycles > 0 and exits.BUSY or exits.OK
  end)
end

return deadlocks
