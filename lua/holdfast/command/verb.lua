-- What the verbs that read a server share.

local exits = require "holdfast.command.exits"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local settings = require "holdfast.command.settings"

local verb = {}

verb.url = settings.options[1]
verb.servers = settings.options[2]

-- Reads args by self.options, checks that there are so many words, and calls
-- body(client, given, words, out, chosen) on a client of the server. → the exit code
function verb.run(self, name, args, least, most, body)
  local given, words, rest = options.read(self.options, args, 2)
  local out = output.new("holdfast " .. name, given or {})
  if not given then return out:fail(exits.USAGE, "usage", words) end
  for _, word in ipairs(rest or {}) do words[#words + 1] = word end
  if #words < least then return out:fail(exits.USAGE, "usage", "usage: " .. self.usage) end
  if #words > most then
    return out:fail(exits.USAGE, "usage", ('"%s" is too much; usage: %s'):format(words[most + 1], self.usage))
  end
  local chosen, client, message
  chosen, message = settings.load(given)
  if chosen then client, message = settings.client(chosen) end
  if not client then return out:fail(exits.USAGE, "usage", message) end
  local exit = body(client, given, words, out, chosen)
  client:close()
  return exit
end

-- → the exit code of a failure of the library, told
function verb.failed(out, message, code)
  return out:fail(exits.of(code), code, message)
end

return verb
