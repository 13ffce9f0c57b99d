-- The command `holdfast`: runs the subcommand. A subcommand is a module with usage, summary,
-- options and main(args) → exit code, where args[1] is the subcommand's name.

local exits = require "holdfast.command.exits"
local help = require "holdfast.lazy" "holdfast.command.help"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local process = require "holdfast.process"

local command = {}

local SUBCOMMANDS = { "run", "lead", "hold", "wait", "latch", "ls", "show", "top", "deadlocks", "doctor", "break",
  "ping", "bench", "acl" }

local function is_subcommand(name)
  for _, subcommand in ipairs(SUBCOMMANDS) do
    if subcommand == name then return true end
  end
  return false
end

local function load(name) return require("holdfast.command." .. name) end

local function print_result(text)
  output.print(text)
  return exits.OK
end

local function dispatch(args)
  local name = args[1]
  if name == "help" and args[2] and is_subcommand(args[2]) then
    return print_result(help.of(load(args[2])))
  end
  if name == "--help" or name == "-h" or name == "help" then
    return print_result(help.overview(SUBCOMMANDS, load))
  end
  if name == "--version" or name == "-V" then
    return print_result("holdfast " .. require "holdfast.version")
  end
  if name == "complete" then return load(name).main(args) end
  if name == nil then
    output.print(help.overview(SUBCOMMANDS, load))
    return exits.USAGE
  end
  if not is_subcommand(name) then
    return output.new("holdfast", {}):fail(exits.USAGE, "usage", help.unknown_subcommand(name, SUBCOMMANDS))
  end
  local subcommand = load(name)
  if options.asks_for(args, "--help", "-h") then return print_result(help.of(subcommand)) end
  return subcommand.main(args)
end

-- `args`: the arguments after the program's name. Ignores SIGXFSZ, so that a write beyond the file
-- size limit returns an error, just like a write to a full disk. → the exit code
function command.main(args)
  process.ignore "XFSZ"
  return output.finish(dispatch(args))
end

return command
