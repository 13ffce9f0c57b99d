-- The documents keep up with the code: each public function has a heading in docs/api.md and is called in a spec, each
-- Lua sample compiles, the README shows examples/hello.lua, and links between files lead somewhere.
--
--   lua5.4 tools/check_docs.lua [DOCUMENT...]   exit 1 and a line for each thing that is missing
--
-- HOLDFAST_URL=…: also runs the samples, on that server; needs the built module.

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

-- Every public function, as "client:lock": those of the module, and the methods of each class, which is named like it
-- in capitals.
local function public()
  local names = {}
  for _, path in ipairs(list("ls lua/holdfast/*.lua")) do
    local text = "\n" .. read(path)
    for name in text:gmatch("\nfunction (holdfast%.%l[%w_]*)%(") do names[#names + 1] = name end
    for class, name in text:gmatch("\nfunction (%u%w*)(:%l[%w_]*)%(") do
      names[#names + 1] = class:gsub("(%l)(%u)", "%1_%2"):lower() .. name
    end
  end
  table.sort(names)
  return names
end

local function check_functions()
  local headings, calls = {}, {}
  for name in read("docs/api.md"):gmatch("\n###? `([%w_.:]+)%(") do headings[name] = true end
  for _, path in ipairs(list("find spec -name '*_spec.lua'")) do
    for name in read(path):gmatch("[.:]([%a_][%w_]*)") do calls[name] = true end
  end
  for _, each in ipairs(public()) do
    if not headings[each] then report("docs/api.md has no heading `%s(…)`", each) end
    if not calls[each:match("[%w_]+$")] then report("no spec calls %s", each) end
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
