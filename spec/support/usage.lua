-- What the scripts in spec that are run as commands say of themselves: the comment they begin with.

local usage = {}

local function print_head(script)
  for line in io.lines(script) do
    local text = line:match("^%-%- ?(.*)$")
    if not text then return end
    print(text)
  end
end

-- Prints it and exits if --help is among the arguments.
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
