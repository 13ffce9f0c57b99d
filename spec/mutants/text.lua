-- Files, commands and their lines, for spec/mutants/run.lua.

local text = {}

function text.fail(...)
  io.stderr:write("mutants: ", string.format(...), "\n")
  os.exit(1)
end

function text.read(path)
  local file, err = io.open(path, "rb")
  if not file then return nil, err end
  local whole = file:read("*a")
  file:close()
  return whole
end

function text.write(path, whole)
  local file = assert(io.open(path, "wb"))
  assert(file:write(whole)) assert(file:close())
end

function text.run(command)
  local ok, _, status = os.execute(command)
  return ok == true, status
end

function text.output_of(command)
  local pipe = assert(io.popen(command))
  local whole = pipe:read("*a")
  pipe:close()
  return whole
end

function text.lines_of(whole)
  local lines = {}
  for line in whole:gsub("([^\n])$", "%1\n"):gmatch("([^\n]*)\n") do lines[#lines + 1] = line end
  return lines
end

-- The paths that these patterns of the shell match.
function text.paths(patterns) return text.lines_of(text.output_of("LC_ALL=C ls " .. patterns)) end

function text.name_of(path) return path:match("[^/]+$") end

return text
