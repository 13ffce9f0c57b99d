-- Code shared by the subcommands that read a server.

local exits = require "holdfast.command.exits"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local settings = require "holdfast.command.settings"

local subcommand = {}

-- Returns a subcommand's options: `own_options`, then the options for the server and the
-- connection, then `more`. The options for several servers are left out unless
-- self.takes_several_servers is set.
function subcommand.options(self, own_options, more)
  local server = { title = settings.options.title }
  for _, option in ipairs(settings.options) do
    local is_for_quorum = option[1] == "restart-guard" or option[1] == "servers" and not self.takes_several_servers
    if not is_for_quorum then server[#server + 1] = option end
  end
  own_options.title = own_options.title or "Options"
  return options.join(own_options, server, more or {})
end

local function check_servers(self, config)
  if config.servers and not self.takes_several_servers then
    return nil, "this subcommand works only with a single server; specify it with --url"
  end
  return true
end

-- Returns whether a message about wrong options must be JSON.
local function wants_json(self, args)
  for _, option in ipairs(self.options) do
    if option[1] == "json" then return options.asks_for(args, "--json") end
  end
end

-- Parses args by self.options, checks the number of words, creates a client, and calls
-- body(client, given, words, out, config). The client may have several servers only if
-- self.takes_several_servers is set. → the exit code
function subcommand.run(self, name, args, min_words, max_words, body)
  local given, words, rest = options.read(self.options, args, 2)
  local out = output.new("holdfast " .. name, given or { json = wants_json(self, args) })
  if not given then return out:fail(exits.USAGE, "usage", words) end
  for _, word in ipairs(rest or {}) do words[#words + 1] = word end
  if #words < min_words then return out:usage_error("too few arguments", self.usage) end
  if #words > max_words then
    return out:usage_error(('unexpected argument "%s"'):format(words[max_words + 1]), self.usage)
  end
  local config, is_allowed, client, message
  config, message = settings.load(given)
  if config then is_allowed, message = check_servers(self, config) end
  if is_allowed then client, message = settings.client(config) end
  if not client then return out:fail(exits.USAGE, "usage", message) end
  local exit = body(client, given, words, out, config)
  client:close()
  return exit
end

-- Reports a failure from the library. → the exit code
function subcommand.failed(out, message, code) return out:fail(exits.of(code), code, message) end

return subcommand
