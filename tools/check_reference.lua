-- Checks that the reference pages match the code: each function, option, error code, loss reason,
-- exit code, metric and name on the server is on exactly one page, and the pages define nothing
-- else. Also checks that a spec calls each public function. The lists are read from the sources.
--
--   lua5.4 tools/check_reference.lua   prints a line for each problem, and exits with 1

package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path

local pages = require "spec.support.pages"
local reference = require "spec.support.reference"

local tools = dofile "tools/files.lua"
local read, list, report, sorted = tools.read, tools.lines_of, tools.fail, tools.sorted

local function set_of(text, pattern)
  local set = {}
  for name in text:gmatch(pattern) do set[name] = true end
  return set
end

-- Returns where the rows' first cells contain names that match: { [name] = { place, … } }. A table
-- that contains a name twice counts as one place.
local function places_in(tables, pattern)
  local places = {}
  for _, found in ipairs(tables) do
    local here = {}
    for _, row in ipairs(found.rows) do
      for name in row[1]:gmatch(pattern) do here[name] = true end
    end
    for name in pairs(here) do
      places[name] = places[name] or {}
      table.insert(places[name], ("%s, %s"):format(found.path, found.heading))
    end
  end
  return places
end

-- `what`: the noun for the names in the set
local function check_once(what, names, places)
  for _, name in ipairs(sorted(names)) do
    local here = places[name] or {}
    if #here == 0 then report("the %s %s stands in no reference page", what, name) end
    if #here > 1 then report("the %s %s stands in %s", what, name, table.concat(here, " and in ")) end
  end
  for _, name in ipairs(sorted(places)) do
    if not names[name] then report("%s: there is no %s %s", places[name][1], what, name) end
  end
end

-- ---- functions ----

-- → every public function, such as "client:lock": the module's functions, and the methods of each
-- class, whose variable is the class's name in capitals
local function public()
  local names = {}
  for _, path in ipairs(list("ls lua/holdfast/*.lua")) do
    local text = "\n" .. read(path)
    for name in text:gmatch("\nfunction (holdfast%.%l[%w_]*)%(") do names[name] = true end
    for class, name in text:gmatch("\nfunction (%u%w*)(:%l[%w_]*)%(") do
      names[class:gsub("(%l)(%u)", "%1_%2"):lower() .. name] = true
    end
  end
  return names
end

-- ---- the library's options ----

-- → the annotated classes of options: { [class] = the set of its fields }
local function annotated()
  local found = {}
  for _, path in ipairs(list("ls lua/holdfast/*.lua")) do
    local fields
    for line in read(path):gmatch("[^\n]+") do
      local class = line:match("^%-%-%-@class (%S+)")
      if class or not line:find("^%-%-%-") then fields = nil end
      if class and class:find("_options$") then
        fields = {}
        found[class] = fields
      end
      local name = fields and line:match("^%-%-%-@field ([%w_]+)")
      if name then fields[name] = true end
    end
  end
  return found
end

-- Headings that do not contain the name of the function whose options follow.
local HEADINGS = {
  ["client:lock"] = "Lock options", ["holdfast.new"] = "Client options", ["holdfast.new: tls"] = "TLS",
  ["holdfast.idempotent_request"] = "Idempotent requests",
}
-- Options that are described in prose, which spec/pages_spec.lua compares with the code.
local IN_PROSE = { ["holdfast.execute_options"] = true, ["holdfast.with_lock_options"] = true }
-- Functions whose options are not annotated.
local NO_CLASS = { ["The status page"] = true }

local function check_library_options()
  local tables, of = reference.tables_headed("option"), {}
  for _, found in ipairs(reference.tables_headed("field of `tls`")) do tables[#tables + 1] = found end
  for class, fields in pairs(annotated()) do
    if not IN_PROSE[class] then
      local name = assert(reference.function_of[class], class)
      local here = {}
      for _, found in ipairs(tables) do
        local named = found.heading:find("`" .. name .. "(", 1, true)
        if found.heading == HEADINGS[name] or named then
          here[#here + 1], of[found] = found, true
        end
      end
      check_once("option of " .. name, fields, places_in(here, "`([%w_]+)`"))
    end
  end
  for _, found in ipairs(tables) do
    if not of[found] and found.head[2] ~= "subcommands" and not NO_CLASS[found.heading] then
      report("%s, %s: whose options are these?", found.path, found.heading)
    end
  end
end

-- ---- the command ----

-- Replaces the C modules, because the lists of options can be read without them.
local function no_core()
  local stub
  stub = setmetatable({}, {
    __index = function() return stub end, __call = function() return stub end,
    __len = function() return 0 end, __concat = function() return "" end,
  })
  for _, name in ipairs { "core", "process" } do
    package.preload["holdfast." .. name] = function() return stub end
  end
end

local SUBCOMMANDS = "run lead hold wait latch ls show top deadlocks doctor break ping bench acl"

-- → { ["run --wait"] = true, … }
local function options_of_subcommands()
  local found = {}
  for subcommand in SUBCOMMANDS:gmatch("%a+") do
    for _, option in ipairs(require("holdfast.command." .. subcommand).options) do
      if not option.hidden then found[("%s --%s"):format(subcommand, option[1])] = true end
    end
  end
  return found
end

-- → the subcommands in a cell: names such as `run` `lead`, or all except some
local function subcommands_in(cell)
  local named = set_of(cell, "`(%l+)`")
  if not cell:find("^all") then return named end
  local others = {}
  for subcommand in SUBCOMMANDS:gmatch("%a+") do others[subcommand] = not named[subcommand] or nil end
  return others
end

local function check_command_options()
  local places = {}
  local function note(subcommand, cell, found)
    for option in cell:gmatch("`%-%-([%l-]+)`") do
      local name = ("%s --%s"):format(subcommand, option)
      places[name] = places[name] or {}
      table.insert(places[name], ("%s, %s"):format(found.path, found.heading))
    end
  end
  for _, found in ipairs(reference.tables_headed("option")) do
    if found.head[2] == "subcommands" then
      for _, row in ipairs(found.rows) do
        for subcommand in pairs(subcommands_in(row[2])) do note(subcommand, row[1], found) end
      end
    end
  end
  for subcommand in SUBCOMMANDS:gmatch("%a+") do
    for _, found in ipairs(reference.tables_headed(("option of `%s`"):format(subcommand))) do
      for _, row in ipairs(found.rows) do note(subcommand, row[1], found) end
    end
  end
  check_once("option", options_of_subcommands(), places)
end

local function exit_codes()
  local codes = {}
  for name, code in pairs(require("holdfast.command.exits")) do
    if type(code) == "number" and name ~= "OK" then codes[tostring(code)] = true end
  end
  return codes
end

-- → the exit codes in the tables, except the job's: 0 to 255, and 128 + n
local function exits_in_tables()
  local places = places_in(reference.tables_headed("exit code"), "%f[%w](%d+)%f[^%w]")
  places["0"], places["128"], places["255"] = nil, nil, nil
  return places
end

-- ---- lists in C ----

-- → the set of names in a list of rows X(NAME, name)
local function rows_of(path, name)
  return set_of(read(path):match(name .. "%(X%)(.-)\n\n"), "X%([%u_]+, ([%l_]+)")
end

local function error_codes()
  local codes = rows_of("csrc/core/base/failure.h", "HF_CODE_LIST")
  codes.ok, codes.no_memory = nil, nil
  return codes
end

local function metrics()
  local names = {}
  local families = read("lua/holdfast/metrics.lua"):match("\nlocal FAMILIES = (%b{})")
  for name in families:gmatch('{ "([%l_]+)", "%l+", ') do names["holdfast_" .. name] = true end
  return names
end

-- ---- names on the server ----

-- → the prefixes of keys and channels, and the complete names of other keys
local function names_on_server()
  local names = set_of(read("csrc/core/holdfast.h"), 'X%(%l+, "([%l_]+:)"%)')
  for name in read("csrc/core/lock/kind.c"):gmatch('%.channel_prefix = "([%l_:]+)"') do names[name] = true end
  names["holdfast_known"], names["holdfast_once:"] = true, true
  assert(read("csrc/core/link/session.h"):find('"holdfast_known"', 1, true))
  assert(read("lua/holdfast/once.lua"):find('"holdfast_once:"', 1, true))
  return names
end

-- → the pages, as { [path] = true }, on which a name with this prefix is in the first column of a
-- table or begins an item of a list
local function pages_with(prefix)
  local found = {}
  for _, path in ipairs(pages.all()) do
    for _, each in ipairs(reference.tables(path)) do
      for _, row in ipairs(each.rows) do
        if (row[1] or ""):find("`" .. prefix, 1, true) then found[path] = true end
      end
    end
    if read(path):find("\n- `" .. prefix, 1, true) then found[path] = true end
  end
  return found
end

local function is_known(name, prefixes)
  for prefix in pairs(prefixes) do
    if name:sub(1, #prefix) == prefix then return true end
  end
  return false
end

local function check_names_on_server()
  local names, page = names_on_server(), "docs/reference/keys.md"
  for _, name in ipairs(sorted(names)) do
    local here = sorted(pages_with(name))
    if #here ~= 1 or here[1] ~= page then
      report("the name %s is defined in %s, not in %s alone", name, table.concat(here, " and "), page)
    end
  end
  for name in pairs(places_in(reference.tables_headed("name"), "`(%l+_[^`]+)`")) do
    if not is_known(name, names) then report("%s: no name in the sources begins %s", page, name) end
  end
end

-- The pages' names for kinds that have a different name in csrc/core/lock/kind.c.
local CALLED = {
  read = "read/write lock", write = "read/write lock", permit = "semaphore",
  plain_semaphore = "plain semaphore", fair = "fair lock",
}

-- Checks that each kind of lock has a row that describes its key's content.
local function check_kinds()
  local rows = {}
  for _, found in ipairs(reference.tables("docs/reference/keys.md")) do
    for _, row in ipairs(found.rows) do rows[#rows + 1] = row[1] end
  end
  local all = table.concat(rows, "\n")
  for name in read("csrc/core/lock/kind.c"):gmatch('%.name = "([%l_]+)"') do
    local called = CALLED[name] or name
    local shown = all:gsub("%b()", ""):find("`key` of [^\n]*%[" .. called .. "%]")
    if not shown then report("docs/reference/keys.md does not say what the key of a %s holds", called) end
  end
end

-- ---- calls in specs ----

local function check_calls()
  local calls = {}
  for _, path in ipairs(list("find spec -name '*_spec.lua'")) do
    for name in read(path):gmatch("[.:]([%a_][%w_]*)") do calls[name] = true end
  end
  for _, name in ipairs(sorted(public())) do
    if not calls[name:match("[%w_]+$")] then report("no spec calls %s", name) end
  end
end

no_core()
check_once("function", public(), reference.functions())
check_calls()
check_library_options()
check_command_options()
check_once("code", error_codes(), places_in(reference.tables_headed("code"), "`([%l_]+)`"))
check_once("reason", rows_of("csrc/core/holdfast.h", "HF_LOST_LIST"),
  places_in(reference.tables_headed("reason"), "`([%l_]+)`"))
check_once("exit code", exit_codes(), exits_in_tables())
check_once("metric", metrics(), places_in(reference.tables_headed("family"), "`([%l_]+)`"))
check_names_on_server()
check_kinds()
tools.finish()
