-- The documents keep up with the code: each public function has a heading in docs/api.md and is called in a spec, each
-- Lua sample compiles, the README shows examples/hello.lua, and links between files lead somewhere.
--
--   lua5.4 tools/check_docs.lua [DOCUMENT...]   exit 1 and a line for each thing that is missing
--
-- Needs the built module. HOLDFAST_URL=…: also runs the samples, on that server.

local core = require "holdfast.core"
local holdfast = require "holdfast"

local missing = 0

local function report(format, ...)
  missing = missing + 1
  io.stderr:write("docs: ", format:format(...), "\n")
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

local function list(command)
  local paths = {}
  for path in io.popen(command):lines() do paths[#paths + 1] = path end
  return paths
end

-- Every function that a program can reach: those of the module, and the methods of each userdata type.
local function public()
  local names = {}
  for name, value in pairs(holdfast) do
    if type(value) == "function" then names[#names + 1] = { "holdfast." .. name, name } end
  end
  for _, meta in pairs(core) do
    local methods = type(meta) == "table" and type(meta.__name) == "string" and meta.__index
    for name in pairs(type(methods) == "table" and methods or {}) do
      names[#names + 1] = { meta.__name:gsub("^holdfast%.", "") .. ":" .. name, name }
    end
  end
  table.sort(names, function(a, b) return a[1] < b[1] end)
  return names
end

local function check_functions()
  local headings, calls = {}, {}
  for name in read("docs/api.md"):gmatch("\n###? `([%w_.:]+)%(") do headings[name] = true end
  for _, path in ipairs(list("find spec -name '*_spec.lua'")) do
    for name in read(path):gmatch("[.:]([%a_][%w_]*)") do calls[name] = true end
  end
  for _, each in ipairs(public()) do
    if not headings[each[1]] then report("docs/api.md has no heading `%s(…)`", each[1]) end
    if not calls[each[2]] then report("no spec calls %s", each[1]) end
  end
end

local function check_sample(path, number, text)
  local chunk, wrong = load(text, ("@%s, sample %d"):format(path, number), "t")
  local ok = chunk ~= nil
  if ok and os.getenv("HOLDFAST_URL") then ok, wrong = pcall(chunk) end
  if not ok then report("%s", wrong) end
end

local function check_link(path, target)
  local file = target:gsub("#.*$", "")
  if file == "" or target:find("^%a+:") then return end
  local relative = path:gsub("[^/]*$", "") .. file
  if not io.open(relative) then report("%s: %s leads nowhere", path, target) end
end

local function check_document(path)
  local text, samples = "\n" .. read(path), 0
  for sample in text:gmatch("\n```lua\n(.-\n)```") do
    samples = samples + 1
    check_sample(path, samples, sample)
  end
  for target in text:gmatch("%]%(([^%s)]+)%)") do check_link(path, target) end
end

local function check_hello()
  local code = read("examples/hello.lua"):gsub("^[^\n]*\n", "")
  if not read("README.md"):find(code, 1, true) then report("README.md does not show examples/hello.lua as it is") end
end

check_functions()
check_hello()
for _, path in ipairs(#arg > 0 and arg or list("ls *.md docs/*.md")) do check_document(path) end
os.exit(missing == 0 and 0 or 1)
