-- holdfast ping: checks whether the server replies.

local exits = require "holdfast.command.exits"
local output = require "holdfast.command.output"
local subcommand = require "holdfast.command.subcommand"
local locale = require "holdfast.locale"

local ping = {}

ping.usage = "holdfast ping [options]"
ping.summary = "Check whether the server answers, and how fast."
ping.takes_several_servers = true
ping.options = subcommand.options(ping, {})
ping.examples = {
  "holdfast ping                                    # the configured server",
  "holdfast ping >/dev/null && ./start              # only if it answers",
  "until holdfast ping >/dev/null; do sleep 1; done # wait until it does",
}

function ping.main(args)
  return subcommand.run(ping, "ping", args, 0, 0, function(client, _, _, out)
    local first_seconds, message, code = client:ping()
    local seconds = first_seconds and client:ping()
    if not seconds then return subcommand.failed(out, message, code) end
    output.print(("answered in %s ms (first answer: %s ms)"):format(
      locale.decimal("%.2f", seconds * 1e3), locale.decimal("%.2f", first_seconds * 1e3)))
    return exits.OK
  end)
end

return ping
