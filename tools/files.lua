-- Functions that the tools share: they read and write files, read commands' output, and report
-- problems.

local files = {}

function files.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

function files.write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
end

function files.exists(path)
  local file = io.open(path)
  return file ~= nil and file:close()
end

-- "docs/how-to" and "../reference/api.md" → "docs/reference/api.md"
function files.join(base, relative)
  local parts = {}
  for part in (base .. "/" .. relative):gmatch "[^/]+" do
    if part == ".." then parts[#parts] = nil elseif part ~= "." then parts[#parts + 1] = part end
  end
  return table.concat(parts, "/")
end

-- Returns whether a command succeeds, and what it prints.
function files.run(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local output = pipe:read "*a"
  return pipe:close(), output
end

-- Returns the output of a command, which must succeed.
function files.output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  assert(pipe:close(), command)
  return text
end

-- → the command's output as a list of lines
function files.lines_of(command)
  local lines = {}
  for line in files.output_of(command):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  return lines
end

-- → the paths of the sources that match `conditions` of find(1); does not need git
function files.sources(conditions)
  local paths = files.lines_of("LC_ALL=C find * .[!.]* -type f -not -path '.git/*' -not -path 'build*' "
    .. "-not -path '*lua_modules/*' -not -path '*luarocks/*' -not -name '*.so' " .. (conditions or ""))
  table.sort(paths)
  return paths
end

function files.sorted(set)
  local names = {}
  for name in pairs(set) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- for number, line in files.numbered(text) do
function files.numbered(text)
  local number, each = 0, (text .. "\n"):gmatch "(.-)\n"
  return function()
    local line = each()
    number = number + 1
    if line then return number, line end
  end
end

local function blank(piece) return (piece:gsub("[^\n]", " ")) end

-- Returns a C file's code, with comments and strings replaced by blanks. Keeps line breaks.
function files.c_code_of(path)
  return (files.read(path):gsub("/%*.-%*/", blank):gsub("//[^\n]*", blank):gsub('"[^"\n]*"', '""'))
end

local failures = 0

-- Reports a problem.
function files.fail(...)
  failures = failures + 1
  print(string.format(...))
end

-- Ends the program. Exits with 1 if a problem was reported.
function files.finish() os.exit(failures == 0) end

return files
