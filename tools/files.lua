-- What the tools read: files, and the output of commands.

local files = {}

function files.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

-- → the output of a command, which must succeed
function files.output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  assert(pipe:close(), command)
  return text
end

-- → the same as a list of lines
function files.lines_of(command)
  local lines = {}
  for line in files.output_of(command):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  return lines
end

return files
