-- The command `holdfast`: finds the verb and runs it. A verb is a module with usage, summary,
-- options and main(args) → exit code, where args[1] is the verb.

local exits = require "holdfast.command.exits"
local options = require "holdfast.command.options"
local library_options = require "holdfast.options"
local output = require "holdfast.command.output"
local process = require "holdfast.process"

local command = {}

local VERBS = { "run", "lead", "hold", "wait", "latch", "ls", "show", "top", "deadlocks", "doctor", "break", "ping",
  "bench", "acl" }

local function is_verb(name)
  for _, verb in ipairs(VERBS) do
    if verb == name then return true end
  end
  return false
end

local function load(name)
  return require("holdfast.command." .. name)
end

local SERVER = [[

The server is --url URL, $HOLDFAST_URL, the settings file's url, or else redis://127.0.0.1:6379:
  redis://[user:password@]host[:port][/db]  one server; unix:///path for its socket
  redis+sentinel://host,host/master         the master that these Sentinels report
  redis+cluster://host,host                 the cluster of these nodes
With rediss in place of redis it uses TLS; valkey means the same as redis.]]

local function overview()
  local lines = { "Usage: holdfast SUBCOMMAND [options]", "",
    "Distributed locks on Redis or Valkey, for shells, cron and CI.", "" }
  for _, verb in ipairs(VERBS) do
    lines[#lines + 1] = ("  %-9s %s"):format(verb, load(verb).summary)
  end
  lines[#lines + 1] = SERVER
  lines[#lines + 1] = "\nholdfast SUBCOMMAND --help prints that subcommand's options and examples."
  return table.concat(lines, "\n")
end

local function help_of(verb)
  local parts = { "Usage: " .. verb.usage, verb.summary, options.help(verb.options) }
  parts[#parts + 1] = verb.more
  if verb.examples then parts[#parts + 1] = "Examples:\n  " .. table.concat(verb.examples, "\n  ") end
  return table.concat(parts, "\n\n")
end

local function say(text)
  output.print(text)
  return exits.OK
end

-- Verbs of other programs, and the verb to suggest for each.
local OTHERS = { list = "ls", status = "show", info = "show", lock = "run", exec = "run", acquire = "hold",
  unlock = "break", release = "break" }

local function nearest(word)
  local known = {}
  for _, verb in ipairs(VERBS) do known[verb] = true end
  return OTHERS[word] or library_options.nearest(word, known)
end

local function without_verb(word)
  if word:find("^%-") then
    local near = library_options.nearest(word:gsub("^%-+", ""), { help = true, version = true })
    if near then return ("unknown option %s; did you mean --%s?"):format(word, near) end
    return "options come after the subcommand: holdfast SUBCOMMAND " .. word .. " …"
  end
  local near = nearest(word)
  return ('unknown subcommand "%s";%s holdfast --help lists all subcommands'):format(word, near
    and (" did you mean holdfast %s?"):format(near) or "")
end

local function dispatch(args)
  local name = args[1]
  if name == "help" and args[2] and is_verb(args[2]) then return say(help_of(load(args[2]))) end
  if name == "--help" or name == "-h" or name == "help" then return say(overview()) end
  if name == "--version" or name == "-V" then
    return say("holdfast " .. require("holdfast")._VERSION)
  end
  if name == "complete" then return load(name).main(args) end
  if name == nil then
    output.print(overview())
    return exits.USAGE
  end
  if not is_verb(name) then
    return output.new("holdfast", {}):fail(exits.USAGE, "usage", without_verb(name))
  end
  local verb = load(name)
  if options.asks_for(args, "--help", "-h") then return say(help_of(verb)) end
  return verb.main(args)
end

-- `args`: the words after the program's name. Ignores SIGXFSZ, so that a write beyond the file size
-- limit fails with an error, as on a full disk. → the exit code
function command.main(args)
  process.ignore "XFSZ"
  return output.finish(dispatch(args))
end

return command
