-- The help of those scripts in spec that are run as commands: the comment at their beginning.

local usage = {}

local function print_head(script)
  for line in io.lines(script) do
    local text = line:match("^%-%- ?(.*)$")
    if not text then return end
    print(text)
  end
end

-- Prints the help and exits if --help is among the arguments.
function usage.help(args)
  for _, word in ipairs(args) do
    if word == "--help" then
      print_head(args[0])
      os.exit(0)
    end
  end
end

-- Ends the script because its arguments are wrong.
function usage.fail(...)
  io.stderr:write(string.format(...), " (--help)\n")
  os.exit(2)
end

return usage
