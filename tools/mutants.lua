-- Mutation testing: changes one place of the programs, of the core or of the API at a time, by
-- rule, and asks the tests.
--
--   lua5.4 tools/mutants.lua                     all of them
--   lua5.4 tools/mutants.lua --part 3/20         the third of twenty equal parts, drawn by --seed
--   lua5.4 tools/mutants.lua --only queue.lua    those of one file; more than one: --only a.lua,b.c
--   lua5.4 tools/mutants.lua --kind programs     or core, or api: lua/holdfast
--   lua5.4 tools/mutants.lua --seed 7            another draw of the parts; 1 unless said
--   lua5.4 tools/mutants.lua --list              prints them and runs nothing
--   lua5.4 tools/mutants.lua --quick             by spec/sim/cases.lua, or by the unit programs,
--                                                alone; what these do not find is noted as left
--   lua5.4 tools/mutants.lua --quick --sanitized …and by those of the file under sanitizers
--   lua5.4 tools/mutants.lua --again             only those that earlier runs left or did not find
--   lua5.4 tools/mutants.lua --unchecked         does not ask first whether the original passes
--   lua5.4 tools/mutants.lua --report            the score and the survivors of all runs so far
--
-- It works in a copy of the tree, build/mutants/<name>/tree (--name, "1" unless said: two runs at a
-- time need two names), and writes one line for each mutant to build/mutants/results: a mutant that
-- is there already is not run again as long as its line, its file and its change are the same.
-- Those of tools/mutants_equal.lua are not run.
--
-- What judges a mutant, until one of them fails, the cheapest first: the compiler (what does not
-- compile is no mutant, and neither is one whose object code is the original's), the unit programs
-- (first those of the file, last those again under sanitizers), the simulator (kept schedules, then
-- some seeds of each plan, then more), and specs that are quick. A mutant of a program is shown to
-- spec/sim/cases.lua first. What takes too long has found it, too. A mutant of the API is shown to
-- the specs of its file, then to those of all files.

local ROOT = "build/mutants"
local RESULTS = ROOT .. "/results"
local PROGRAMS, CORE, API = "csrc/programs", "csrc/core", "lua/holdfast"

-- All files of the core decide but these: connections, text and memory are for the fuzzers and the
-- sanitizers.
local DECIDES_NOTHING = {
  ["buffer.c"] = true, ["failure.c"] = true, ["names.c"] = true, ["programs.c"] = true,
  ["reply.c"] = true,
  ["request.c"] = true, ["ring.c"] = true, ["types.c"] = true, ["url.c"] = true,
}

local SPECS_OF_PROGRAMS = { "protocol", "lock" }
local SPECS_OF_CORE = { "lock", "protocol" }
local SPECS_OF_FILE = {
  ["sharded.lua"] = { "cluster", "shards" }, ["raise.lua"] = { "quorum" },
  ["info.lua"] = { "command" }, ["ahead.lua"] = { "command" },
  ["queue.lua"] = { "foreign" }, ["record.lua"] = { "foreign" },
  ["cluster.c"] = { "shards", "cluster" }, ["slots.c"] = { "shards", "cluster" },
  ["sentinel.c"] = { "sentinel" },
  ["round.c"] = { "quorum" }, ["round_acquire.c"] = { "quorum" }, ["round_calls.c"] = { "quorum" },
  ["votes.c"] = { "quorum" }, ["quorum.c"] = { "quorum" }, ["renewer.c"] = { "watchdog" },
  ["deadlock.c"] = { "deadlocks" }, ["presence.c"] = { "names" }, ["observe.c"] = { "metrics" },
  ["events.c"] = { "waiting" }, ["acquire.c"] = { "waiting" }, ["session.c"] = { "trouble" },
}

-- Those that judge a file of the API first, by its path below lua/holdfast. A file that is not
-- named here has its own.
local LOOPS = { "failing_loops", "loops" }
local SPECS_OF_API_FILE = {
  ["abort.lua"] = { "with_lock", "signal" }, ["admission.lua"] = { "resty" },
  ["circles.lua"] = { "deadlocks" }, ["client.lua"] = { "misuse", "connect", "lock" },
  ["closing.lua"] = { "with_lock", "lock" }, ["compat.lua"] = { "lock", "with_lock" },
  ["driver.lua"] = { "lock", "loops" }, ["events.lua"] = { "observed", "metrics", "model" },
  ["fence_headers.lua"] = { "fence" }, ["holder.lua"] = { "names" },
  ["idempotent.lua"] = { "templates", "model" }, ["idempotent_request.lua"] = { "resty" },
  ["init.lua"] = { "misuse", "lock" }, ["leaving.lua"] = { "async_release", "model" },
  ["lock.lua"] = { "model", "lock", "misuse" }, ["loss.lua"] = { "model", "watchdog" },
  ["native.lua"] = { "lock" }, ["one_by_one.lua"] = { "templates", "misuse" },
  ["options.lua"] = { "misuse", "connect" }, ["read_write_lock.lua"] = { "read_write" },
  ["record.lua"] = { "templates" }, ["replies.lua"] = { "lock" },
  ["servers.lua"] = { "quorum", "shards" }, ["shared_metrics.lua"] = { "resty" },
  ["sorted.lua"] = { "locale" }, ["teller.lua"] = { "async_release", "loops" },
  ["text.lua"] = { "misuse" }, ["traceback.lua"] = { "with_lock" },
  ["loop/copas.lua"] = LOOPS, ["loop/cqueues.lua"] = LOOPS, ["loop/descriptors.lua"] = LOOPS,
  ["loop/init.lua"] = LOOPS, ["loop/luv.lua"] = LOOPS, ["loop/pump.lua"] = LOOPS,
  ["loop/cosockets.lua"] = { "resty" }, ["loop/ngx.lua"] = { "resty" },
}
local SPECS_OF_API = { "model", "lock", "with_lock", "misuse", "multi_lock", "templates" }

-- Those that judge a file of the core first. A file that is not named here has its own.
local QUORUM = { "test_quorum_calls", "test_quorum" }
local UNITS_OF_FILE = {
  ["acquire.c"] = { "test_acquire", "test_detached", "test_read_write", "test_permits" },
  ["alone.c"] = { "test_each_kind", "test_batch", "test_client" },
  ["holding.c"] = { "test_acquire" },
  ["losses.c"] = { "test_holdfast" },
  ["events.c"] = { "test_acquire", "test_client" }, ["holds.c"] = { "test_holds", "test_quorum" },
  ["calls.c"] = { "test_calls", "test_detached" },
  ["poll.c"] = { "test_latch", "test_plain_semaphore" },
  ["slots.c"] = { "test_slots", "test_cluster" },
  ["kind.c"] = { "test_programs", "test_acquire" }, ["nodes.c"] = { "test_client", "test_cluster" },
  ["operation.c"] = {
    "test_client", "test_calls", "test_detached", "test_deadlock", "test_acquire",
  },
  ["registry.c"] = { "test_client" },
  ["renewer.c"] = { "test_renewer", "test_acquire", "test_kept", "test_each_kind" },
  ["round.c"] = QUORUM, ["round_acquire.c"] = QUORUM, ["round_calls.c"] = QUORUM,
  ["quorum.c"] = QUORUM, ["votes.c"] = QUORUM,
  ["shards.c"] = { "test_ring", "test_renewer" },
  ["wire.c"] = {
    "test_wire", "test_acquire", "test_calls", "test_batch", "test_permits", "test_read_write",
  },
}
local UNITS_OF_DRIVER = {
  test_driver = true, test_net = true, test_tls = true, test_system = true, test_ready = true,
  test_ready_portable = true,
}
-- Those of files that decide nothing: they run only first.
local UNITS_OF_BASE = {
  test_buffer = true, test_check = true, test_failure = true, test_reply = true, test_ring = true,
  test_types = true, test_url = true,
}

-- ---- small things ----

local function fail(...)
  io.stderr:write("mutants: ", string.format(...), "\n")
  os.exit(1)
end

local function read(path)
  local file, err = io.open(path, "rb")
  if not file then return nil, err end
  local text = file:read("*a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
end

local function run(command)
  local ok, _, status = os.execute(command)
  return ok == true, status
end

local function output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

local function lines_of(text)
  local lines = {}
  for line in text:gsub("([^\n])$", "%1\n"):gmatch("([^\n]*)\n") do lines[#lines + 1] = line end
  return lines
end

-- ---- what is code ----

local function blank(text)
  return (text:gsub("[^\n]", " "))
end

-- The text with its comments and the insides of its strings blanked, to the same length.
local function code_of_lua(text)
  return (text:gsub("(['\"])([^'\"\n]*)%1", function(quote, inside)
    return quote .. blank(inside) .. quote
  end)
    :gsub("%-%-[^\n]*", blank))
end

local function code_of_c(text)
  text = text:gsub("/%*.-%*/", blank):gsub("//[^\n]*", blank)
  text = text:gsub("\\[\\\"']", "__"):gsub('"([^"\n]*)"', function(inside)
    return '"' .. blank(inside) .. '"'
  end)
  text = text:gsub("'[^'\n][^'\n]?'", blank)
  text = text:gsub("typedef enum[^{;]*%b{}", blank):gsub("%f[^\n%z]#[^\n]*", blank)
  -- What no test can see: what is asserted, room for characters that is larger, rows of numbers.
  text = text:gsub("%f[%w_]assert%b()", blank):gsub("%f[%w_]hf_hold_check%b();", blank)
  text = text:gsub("%f[%w_]char [%w_]+%b[][^;\n]*", function(declared)
    return (declared:gsub("%f[%w_]%d+%f[^%w_]", blank))
  end)
  return (text:gsub("%f[^\n%z][%d%s,]+%f[\n}]", blank))
end

-- ---- the rules ----

-- token between blanks → what it becomes
local OPERATORS = {
  lua = {
    ["=="] = { "~=" }, ["~="] = { "==" }, ["<"] = { "<=", ">=" }, ["<="] = { "<", ">" },
    [">"] = { ">=", "<=" },
    [">="] = { ">", "<" }, ["and"] = { "or" }, ["or"] = { "and" }, ["+"] = { "-" }, ["-"] = { "+" },
    ["*"] = { "/" },
    ["%"] = { "*" },
  },
  c = {
    ["=="] = { "!=" }, ["!="] = { "==" }, ["<"] = { "<=", ">=" }, ["<="] = { "<", ">" },
    [">"] = { ">=", "<=" },
    [">="] = { ">", "<" }, ["&&"] = { "||" }, ["||"] = { "&&" }, ["+"] = { "-" }, ["-"] = { "+" },
    ["/"] = { "*" },
    ["+="] = { "-=" }, ["-="] = { "+=" },
  },
}
local WORDS = {
  ["true"] = "false", ["false"] = "true", ["math.max"] = "math.min", ["math.min"] = "math.max",
  ["not"] = "",
}

-- Each finder calls add(rule, from, to, replacement) with positions in the line.
local find = {}

function find.operators(code, language, add)
  local start = 1
  while true do
    local from, to, token = code:find("%f[^%s](%S+)%f[%s]", start)
    if not from then return end
    for _, other in ipairs(OPERATORS[language][token] or {}) do
      if from > 1 and code:sub(1, from - 1):find("%S") then add("operator", from, to, other) end
    end
    start = to + 1
  end
end

function find.words(code, _, add)
  for from, word, to in code:gmatch("()%f[%w_.]([%l.]+)%f[^%w_.]()") do
    if WORDS[word] then add("word", from, to - 1, WORDS[word]) end
  end
end

function find.negations(code, language, add)
  if language ~= "c" then return end
  for from in code:gmatch("()!%f[%w(]") do add("negation", from, from, "") end
end

-- Where a text is looked at from its first byte, 0 is the same as 1.
local function is_start(before)
  return before:find(":sub%($") or before:find(":find%([^()]*, $")
end

function find.constants(code, language, add)
  for from, number, to in code:gmatch("()%f[%w_.](%d+)%f[^%w_.]()") do
    local negative = code:sub(1, from - 1):find("[^%w%s)%]]%s*%-$")
      or code:sub(1, from - 1):find("%f[%w]%a+ %-$")
    local value = tonumber(number)
    local other = value == 0 and 1 or value == 1 and (negative and 2 or 0) or value == 2
      and negative and 1 or value + 1
    local same = language == "lua" and number == "1" and is_start(code:sub(1, from - 1))
    if not same then add("constant", from, to - 1, ("%d"):format(other)) end
  end
end

-- A condition without a comparison is turned round.
function find.conditions(code, language, add)
  local from, inside, to
  if language == "lua" then
    from, inside, to = code:match("%f[%w]if ()([%w_.]+)() then")
    if not from then from, inside, to = code:match("%f[%w]if ()([%w_.:]+%b())() then") end
    if from then add("condition", from, to - 1, "not (" .. inside .. ")") end
    return
  end
  from, inside, to = code:match("%f[%w]if ()(%b())()")
  if from and not inside:find("[=!<>|&]") then
    add("condition", from, to - 1, "(!" .. inside .. ")")
  end
end

local CALL = { lua = "^%s*[%l_][%w_.:]*%b()%s*$", c = "^%s*[%l_][%w_]*%b();%s*$" }
local GUARDED = { lua = "^%s*if .- then ([%l_][%w_.:]*%b()) end%s*$",
  c = "^%s*if %b() ([%l_][%w_]*%b());%s*$" }
local ASSIGNMENT = {
  lua = "^%s*[%a_][%w_.]*%f[^%w_.] = .*$",
  c = "^%s*[%l_][%w_>.%[%]-]*%f[^%w_>.%]-] [+-|&]?= .*;%s*$",
}

local function is_call(code, language)
  return code:find(CALL[language]) and not code:find("^%s*return") and not code:find("^%s*assert")
end

function find.dropped(code, language, add)
  if is_call(code, language) then add("dropped call", 1, #code, "")
  elseif code:find(GUARDED[language]) then add("dropped call", 1, #code, "")
  elseif code:find(ASSIGNMENT[language]) and not (language == "lua" and code:find("[{,]%s*$")) then
    add("dropped assignment", 1, #code, "")
  end
end

-- Calls whose order changes nothing: one of them writes the words of a failure, or both free.
local function are_independent(one, other)
  local function writes(call) return call:find("^%s*hf_op_fail") end
  local function frees(call)
    return call:find("^%s*[%l_]*free%(") or call:find("^%s*[%l_]*_clear%(")
      or call:find("^%s*hf_reader_close%(")
  end
  return writes(one) or writes(other) or frees(one) and frees(other)
end

-- Verdicts, states and codes of the core: the next one of the same enum.
local next_of = {}

local function read_enums()
  for _, path in ipairs(lines_of(output_of("LC_ALL=C ls " .. CORE .. "/*.[ch] " .. CORE
      .. "/*/*.[ch]"))) do
    local text = read(path):gsub("/%*.-%*/", "")
    for body in text:gmatch("typedef enum[^{;]*(%b{})") do
      local names = {}
      for name in body:gmatch("HF_[%u%d_]+") do names[#names + 1] = name end
      for i, name in ipairs(names) do
        next_of[name] = next_of[name] or #names > 1 and names[i % #names + 1] or nil
      end
    end
  end
end

function find.verdicts(code, language, add)
  if language ~= "c" then return end
  for from, name, to in code:gmatch("()%f[%w_](HF_[%u%d_]+)%f[^%w_]()") do
    if next_of[name] then add("verdict", from, to - 1, next_of[name]) end
  end
end

local FINDERS = { "operators", "words", "negations", "constants", "conditions", "dropped",
  "verdicts" }

local function indentation(line)
  return line:match("^%s*")
end

-- ---- the mutants of a file ----

-- → { file =, line =, rule =, from = text of the line(s), to =, path =, first =, last = } …
local function mutants_of(path)
  local language = path:find("%.lua$") and "lua" or "c"
  local text = assert(read(path))
  local lines = lines_of(text)
  local codes = lines_of((language == "lua" and code_of_lua or code_of_c)(text))
  local list, file = {}, path:match("^lua/(.*)") or path:match("[^/]+$")
  local function add(number, rule, from, to, count)
    if from == to then return end
    list[#list + 1] = {
      path = path, file = file, language = language, line = number, count = count or 1, rule = rule,
      from = from, to = to,
      id = ("%s:%d %s: %s => %s"):format(file, number, rule,
        from:match("^%s*(.-)%s*$"):gsub("\n%s*", " "),
        (to:match("^%s*(.-)%s*$"):gsub("\n%s*", " "))),
    }
  end
  for number, code in ipairs(codes) do
    local line = lines[number]
    for _, name in ipairs(FINDERS) do
      find[name](code, language, function(rule, from, to, other)
        add(number, rule, line, line:sub(1, from - 1) .. other .. line:sub(to + 1))
      end)
    end
    local behind = codes[number + 1]
    local are_calls = behind and is_call(code, language) and is_call(behind, language)
    if are_calls and indentation(code) == indentation(behind)
      and not are_independent(code, behind) then
      add(number, "order of calls", line .. "\n" .. lines[number + 1], lines[number + 1] .. "\n"
        .. line, 2)
    end
  end
  return list
end

-- Their paths.
local function core_files()
  local files = {}
  for _, path in ipairs(lines_of(output_of("LC_ALL=C ls " .. CORE .. "/*.c " .. CORE
      .. "/*/*.c"))) do
    if not DECIDES_NOTHING[path:match("[^/]+$")] then files[#files + 1] = path end
  end
  return files
end

-- Without the command, and without what shows a status: their specs compare what is printed.
local function api_files()
  local files = {}
  local found = output_of("LC_ALL=C ls " .. API .. "/*.lua " .. API .. "/loop/*.lua")
  for _, path in ipairs(lines_of(found)) do
    if not path:find("/status") and not path:find("/version") then files[#files + 1] = path end
  end
  return files
end

local FILES_OF = {
  programs = function() return lines_of(output_of("LC_ALL=C ls " .. PROGRAMS .. "/*.lua")) end,
  core = core_files,
  api = api_files,
}

local function files_of(options)
  local files = {}
  for _, kind in ipairs { "programs", "core", "api" } do
    if not options.kind or options.kind == kind then
      for _, path in ipairs(FILES_OF[kind]()) do files[#files + 1] = path end
    end
  end
  if not options.only then return files end
  local chosen = {}
  for _, path in ipairs(files) do
    local name = "," .. path:match("[^/]+$") .. ","
    if ("," .. options.only .. ","):find(name, 1, true) then chosen[#chosen + 1] = path end
  end
  return chosen
end

-- A number that depends on the mutant and the seed alone.
local function draw(id, seed)
  local hash = seed % 2147483647
  for i = 1, #id do hash = (hash * 31 + id:byte(i)) % 2147483647 end
  return hash * 48271 % 2147483647
end

local function all_mutants(options)
  read_enums()
  local list, known = {}, {}
  for _, path in ipairs(files_of(options)) do
    for _, mutant in ipairs(mutants_of(path)) do
      if not known[mutant.id] then
        list[#list + 1] = mutant
        mutant.name = mutant.id:gsub(":%d+ ", " ", 1)
        local count = (known[mutant.name] or 0) + 1
        known[mutant.id], known[mutant.name] = true, count
        if count > 1 then mutant.name = ("%s (%d)"):format(mutant.name, count) end
      end
      mutant.draw = draw(mutant.id, options.seed)
    end
  end
  return list
end

-- Equal parts of a list in the order of the draw.
local function part_of(list, part)
  if not part then return list end
  local at, count = part:match("^(%d+)/(%d+)$")
  if not at then fail("--part is I/N") end
  table.sort(list, function(a, b) return a.draw < b.draw or a.draw == b.draw and a.id < b.id end)
  local chosen = {}
  for i = tonumber(at), #list, tonumber(count) do chosen[#chosen + 1] = list[i] end
  return chosen
end

-- ---- the copy of the tree ----

local COPIED = ".busted Makefile csrc lua spec tools docs bin examples completions"
local MAKE = "make -s FLAVOURS=luajit CFLAGS=-O0 WARNINGS=-fvisibility=default "
local SANITIZED = "BUILD=build/asan \"SANITIZE=-fsanitize=address,undefined"
  .. " -fno-sanitize-recover=undefined\" "
local CORE_SO = "build/luajit/holdfast/core.so"
local SIM = "luajit spec/sim/run.lua "
local BUSTED = "luajit $(command -v busted) --output=TAP "

local Tree = {}
Tree.__index = Tree

-- builds: false for a copy whose programs are shown to the cases alone; "api" for one whose API is
-- shown to the specs
function Tree.new(name, builds, sanitized)
  local self = setmetatable({ path = ROOT .. "/" .. name .. "/tree", objects = {} }, Tree)
  assert(run(("rm -rf %s && mkdir -p %s && cp -r %s %s"):format(self.path, self.path, COPIED,
    self.path)))
  self.commands = {}
  self.originals = ROOT .. "/" .. name .. "/originals"
  assert(run(("rm -rf %s && mkdir -p %s && cp -r csrc lua %s"):format(self.originals,
    self.originals, self.originals)))
  self.builds, self.is_api = builds == true, builds == "api"
  if not self.builds then
    local goals = builds == "api" and "build" or CORE_SO
    if not self:run(MAKE .. goals, 1800) then fail("the copy does not build: %s", self.path) end
    return self
  end
  self:make("build", "build unit-programs")
  self.sanitized = sanitized
  if sanitized then self:make("build/asan", SANITIZED .. "unit-programs") end
  return self
end

-- → ended well, whether it took too long
function Tree:run(command, seconds)
  local ok, status = run(("cd %s && timeout -k 5 %d sh -c '%s' >last.log 2>&1 </dev/null"):format(
    self.path, seconds, command))
  return ok, status == 124 or status == 137
end

function Tree:original(path)
  return assert(read(self.originals .. "/" .. path))
end

-- What make would do to make each file, by the file's name.
function Tree:read_commands(goals)
  local shown = output_of(("cd %s && %s -n -B %s"):format(self.path, MAKE, goals))
  for line in shown:gsub("\\\n", " "):gmatch("[^\n]+") do
    local made = line:match(" %-o (%S+)$")
    if made then self.commands[made] = line end
  end
end

-- Where make puts the object of this file.
local function object_of(build, path)
  return build .. "/obj/" .. path:gsub("%.c$", "") .. ".o"
end

local function replace(text, from, to)
  local at, behind = text:find(from, 1, true)
  return at and text:sub(1, at - 1) .. to .. text:sub(behind + 1) or text
end

function Tree:make(build, goals)
  if not self:run(MAKE .. goals, 1800) then
    fail("the copy does not build: %s/last.log", self.path)
  end
  self:read_commands(goals)
  self:share_core(build)
end

-- The core as a shared library, so that a mutant is linked once for all unit programs.
function Tree:share_core(build)
  local library = build .. "/libcore.so"
  local objects = {}
  for _, path in ipairs(lines_of(output_of("LC_ALL=C ls " .. CORE .. "/*.c " .. CORE
      .. "/*/*.c"))) do
    objects[#objects + 1] = object_of(build, path)
  end
  local program = self.commands[build .. "/unit/test_acquire"]
  local flags = program:gsub("^%s*mkdir[^;]*;", ""):match("^(.-) %S+%.o ")
  self.commands[library] = ("%s -shared %s -o %s"):format(flags, table.concat(objects, " "),
    library)
  if not self:run(self.commands[library], 120) then fail("the core is no shared library") end
  for made, command in pairs(self.commands) do
    local name = made:match("^" .. build .. "/unit/(test_[%l_]+)$")
    if name and not UNITS_OF_DRIVER[name] then
      local with = replace(command, build .. "/libholdfast_core.a",
        "-rdynamic " .. library)
      if not self:run(with, 120) then fail("%s does not link with %s", name, library) end
    end
  end
end

local MUTATED = { build = "build/mutated.o", ["build/asan"] = "build/asan/mutated.o" }

-- Compiles the file as it stands. optimizer: other flags → whether it compiles, the object's hash
function Tree:compile(build, path, optimizer)
  local object, made = object_of(build, path), MUTATED[build]
  local command = replace(self.commands[object], " -o " .. object, " -o " .. made)
    :gsub(" %-MMD %-MP", " -w")
  if optimizer then command = replace(command, "-O0", optimizer) end
  if not self:run(command, 120) then return false end
  return true, output_of(("sha1sum <%s/%s"):format(self.path, made))
end

-- Links the shared core or the module with the mutant's object.
function Tree:link(build, made, path)
  return self:run(replace(self.commands[made], object_of(build, path), MUTATED[build]), 120)
end

local function with_mutant(mutant, text)
  local lines, at = lines_of(text), mutant.line
  lines[at] = mutant.to
  for i = 2, mutant.count do table.remove(lines, at + i - 1) end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- the ladder ----

-- → those that judge the file first, the others
local function unit_programs(tree, file)
  local first, others, is_first = UNITS_OF_FILE[file] or { "test_" .. file:gsub("%.c$", "") }, {}, {}
  for _, name in ipairs(first) do is_first[name] = true end
  for name in output_of("ls " .. tree.path .. "/build/unit"):gmatch("test_[%l_]+%f[\n]") do
    local judges = not UNITS_OF_DRIVER[name] and not UNITS_OF_BASE[name]
    if judges and not is_first[name] then others[#others + 1] = name end
  end
  return first, others
end

local function fails(tree, command, seconds)
  local ok, slow = tree:run(command, seconds)
  if ok then return nil end
  return slow and "takes too long" or "fails"
end

-- The name of what failed first, from what it printed.
local function first_failure(tree)
  local log = read(tree.path .. "/last.log") or ""
  return (log:match("not ok %d*[ %-]*([^\n]*)") or log:match("(seed %d+ breaks %S+)")
    or log:match("SUMMARY: ([^\n]+)") or log:match("[^\n]+") or "")
    :sub(1, 100)
end

local function spec_fails(tree, name, seconds)
  if not read(tree.path .. "/spec/" .. name .. "_spec.lua") then return nil end
  local how = fails(tree, BUSTED .. "spec/" .. name .. "_spec.lua", seconds)
  return how and ("%s_spec, %s"):format(name, how == "fails" and first_failure(tree) or how)
end

local function sim_fails(tree, arguments)
  local how = fails(tree, SIM .. arguments, 600)
  return how and ("simulator %s, %s"):format(arguments, how == "fails" and first_failure(tree)
    or how)
end

local function cases_fail(tree)
  local how = fails(tree, "mkdir -p sent && lua5.4 tools/embed.lua --sent sent"
    .. " && luajit spec/sim/run.lua --cases --first --texts sent", 60)
  return how and "cases, " .. (how == "fails" and first_failure(tree) or how)
end

-- Runs them until one fails.
local function units_fail(tree, build, names)
  local made = {}
  for _, name in ipairs(names) do
    local path = build .. "/unit/" .. name
    if tree.commands[path] then made[#made + 1] = path end
  end
  local how = fails(tree, ("for unit in %s; do timeout 30 $unit || { code=$?;"
    .. ' echo "stops at $unit"; exit $code; }; done'):format(table.concat(made, " ")), 300)
  if not how then return nil end
  local name = (read(tree.path .. "/last.log") or ""):match("stops at %S*/(%S+)") or "units"
  return ("%s, %s"):format(name, how == "fails" and first_failure(tree) or how)
end

local function specs_fail(tree, names)
  for _, name in ipairs(names or {}) do
    local how = spec_fails(tree, name, 400)
    if how then return how end
  end
end

-- Kept schedules, then some seeds of each plan, then more of all.
local SIMULATIONS = {
  "--kept", "--find --seeds 300", "--find --quorum --seeds 1200", "--find --read-write --seeds 1500",
  "--find --pool --seeds 1500", "--find --system --seeds 200", "--find --from 301 --seeds 1500",
}

local function simulations_fail(tree)
  for _, arguments in ipairs(SIMULATIONS) do
    local how = sim_fails(tree, arguments)
    if how then return how end
  end
end

local function judge_program(tree, mutant, quick)
  if not tree:run(("luajit -b %s /dev/null"):format(mutant.path), 60) then return "invalid" end
  local found = cases_fail(tree)
  if found or quick then return found or "left" end
  local made = "lua5.4 tools/embed.lua && touch csrc/core/lock/kind.c && " .. MAKE
    .. "-o csrc/programs/embedded.h build"
  if not tree:run(made, 120) then return "invalid" end
  return sim_fails(tree, "--find --seeds 300") or specs_fail(tree, SPECS_OF_PROGRAMS)
    or specs_fail(tree, SPECS_OF_FILE[mutant.file])
    or sim_fails(tree, "--find --seeds 1000")
end

local function specs_of_api(mutant)
  local name = mutant.path:sub(#API + 2)
  return SPECS_OF_API_FILE[name] or { (name:gsub("%.lua$", "")) }
end

local function judge_api(tree, mutant, quick)
  if not tree:run(("luajit -b %s /dev/null"):format(mutant.path), 60) then return "invalid" end
  local found = specs_fail(tree, specs_of_api(mutant))
  if found or quick then return found or "left" end
  return specs_fail(tree, SPECS_OF_API)
end

-- The hashes of the original's object, by optimizer.
local function original_object(tree, mutant, optimizer)
  local key = mutant.path .. (optimizer or "")
  if not tree.objects[key] then
    local path = tree.path .. "/" .. mutant.path
    local text = read(path)
    write(path, tree:original(mutant.path))
    tree.objects[key] = select(2, assert(tree:compile("build", mutant.path, optimizer)))
    write(path, text)
  end
  return tree.objects[key]
end

-- The object code of the optimizer: equal to the original's, the mutant changes nothing.
local function is_equal(tree, mutant)
  local _, hash = tree:compile("build", mutant.path, "-O2")
  return hash == original_object(tree, mutant, "-O2")
end

local function judge_core(tree, mutant, quick)
  local path = mutant.path
  local original = original_object(tree, mutant)
  local compiles, hash = tree:compile("build", path)
  if not compiles then return "invalid" end
  if hash == original then return "same" end
  if not tree:link("build", "build/libcore.so", path) then return "invalid" end
  local first, others = unit_programs(tree, mutant.file)
  local found = units_fail(tree, "build", first) or units_fail(tree, "build", others)
  if found then return found end
  if is_equal(tree, mutant) then return "equal" end
  if not tree.sanitized then return "left" end
  tree:compile("build/asan", path)
  tree:link("build/asan", "build/asan/libcore.so", path)
  found = units_fail(tree, "build/asan", first)
  if found or quick then return found or "left" end
  tree:compile("build", path)
  tree:link("build", CORE_SO, path)
  return simulations_fail(tree) or specs_fail(tree, SPECS_OF_CORE)
    or specs_fail(tree, SPECS_OF_FILE[mutant.file])
end

-- → what found it | "invalid", "same", "equal" | "left" | "survives"
local function try(tree, mutant, quick)
  local path = tree.path .. "/" .. mutant.path
  local original = tree:original(mutant.path)
  write(path, with_mutant(mutant, original))
  local judge = mutant.path:find(API, 1, true) and judge_api
    or mutant.language == "lua" and judge_program or judge_core
  local verdict = judge(tree, mutant, quick) or "survives"
  write(path, original)
  return verdict
end

-- What judges must find nothing in the original.
local function check_original(tree, list)
  local names, known = {}, {}
  local function must_not_find(found)
    if found then fail("the original is found, too: %s", found) end
  end
  local function want(more)
    for _, name in ipairs(more or {}) do
      if not known[name] then names[#names + 1] = name end
      known[name] = true
    end
  end
  for _, mutant in ipairs(list) do
    local is_api = mutant.path:find(API, 1, true)
    want(is_api and specs_of_api(mutant) or SPECS_OF_FILE[mutant.file])
    want(is_api and SPECS_OF_API or mutant.language == "lua" and SPECS_OF_PROGRAMS or SPECS_OF_CORE)
  end
  if not tree.builds then
    return must_not_find(tree.is_api and specs_fail(tree, names) or cases_fail(tree))
  end
  local _, units = unit_programs(tree, "")
  local found = units_fail(tree, "build", units) or units_fail(tree, "build/asan", units)
    or cases_fail(tree) or sim_fails(tree, "--kept") or specs_fail(tree, names)
  must_not_find(found)
end

-- Leaves the copy as the original is.
local function restore(tree, language)
  if language == "lua" then
    write(tree.path .. "/csrc/programs/embedded.h", tree:original("csrc/programs/embedded.h"))
  end
end

-- ---- results ----

local function results()
  local known, order = {}, {}
  for _, line in ipairs(lines_of(read(RESULTS) or "")) do
    local verdict, id = line:match("^([^\t]*)\t(.*)$")
    if verdict then
      if not known[id] then order[#order + 1] = id end
      known[id] = verdict
    end
  end
  return known, order
end

local function note(verdict, id)
  local file = assert(io.open(RESULTS, "a"))
  file:write(verdict, "\t", id, "\n")
  file:close()
end

local equal = dofile "tools/mutants_equal.lua"

-- Why it changes nothing | nil
local function reason(mutant)
  return equal[mutant.name]
end

local LIVES = { left = true, survives = true }
local IS_NONE = { invalid = true, same = true, equal = true }

-- Lines of tools/mutants_equal.lua that no mutant has any more.
local function print_stale_lines(list)
  local named = {}
  for _, mutant in ipairs(list) do named[mutant.name] = true end
  for name in pairs(equal) do
    if not named[name] then print("names no mutant: " .. name) end
  end
end

local function report(options)
  local all_of_them = all_mutants(options)
  local known, counts, files, survivors, equals = results(), {}, {}, {}, {}
  for _, mutant in ipairs(all_of_them) do
    local why = reason(mutant)
    local verdict = known[mutant.id] or why and "survives"
    if verdict then
      if why then equals[#equals + 1] = mutant.id .. ": " .. why end
      local count = counts[mutant.file]
      if not count then
        count = { all = 0, found = 0, none = 0 }
        counts[mutant.file], files[#files + 1] = count, mutant.file
      end
      if why or IS_NONE[verdict] then
        count.none = count.none + 1
      else
        count.all = count.all + 1
        if LIVES[verdict] then survivors[#survivors + 1] = mutant.id else count.found =
          count.found + 1 end
      end
    end
  end
  local all, found = 0, 0
  for _, file in ipairs(files) do
    local count = counts[file]
    all, found = all + count.all, found + count.found
    print(("%-16s %5d of %5d found, %d no change"):format(file, count.found, count.all, count.none))
  end
  print(("%d of %d found: %.1f %%"):format(found, all, all > 0 and 100 * found / all or 0))
  for _, id in ipairs(survivors) do print("survives: " .. id) end
  for _, id in ipairs(equals) do print("equal: " .. id) end
  if not options.kind and not options.only then print_stale_lines(all_of_them) end
end

-- ---- the command ----

local VALUES = { part = true, only = true, kind = true, seed = true, name = true }
local FLAGS = { list = true, report = true, again = true, unchecked = true, quick = true,
  sanitized = true }

local function parse(args)
  local options, at = { seed = 1, name = "1" }, 1
  while args[at] do
    local name = args[at]:match("^%-%-(%l+)$")
    if FLAGS[name] then
      options[name] = true
    elseif VALUES[name] then
      at = at + 1
      options[name] = args[at] or fail("--%s needs a value", name)
    else
      fail("unknown option %s", args[at])
    end
    at = at + 1
  end
  options.seed = tonumber(options.seed) or fail("--seed needs a number")
  return options
end

local options = parse(arg)
if options.report then
  report(options)
  os.exit(0)
end
local list = part_of(all_mutants(options), options.part)
if options.list then
  for _, mutant in ipairs(list) do print(mutant.id) end
  os.exit(0)
end

run("mkdir -p " .. ROOT)
local known = results()
local compiles = options.kind ~= "programs" and options.kind ~= "api"
local sanitized = compiles and (not options.quick or options.sanitized)
local builds = compiles or options.kind == "api" and "api" or not options.quick
local tree = Tree.new(options.name, builds, sanitized)
if not options.unchecked then check_original(tree, list) end
local function is_wanted(mutant)
  local verdict = known[mutant.id]
  if reason(mutant) then return false end
  if options.again then return LIVES[verdict] end
  return not verdict or verdict == "left" and not options.quick
end

for i, mutant in ipairs(list) do
  if is_wanted(mutant) then
    local verdict = try(tree, mutant, options.quick)
    restore(tree, mutant.language)
    note(verdict, mutant.id)
    print(("%d/%d %s: %s"):format(i, #list, mutant.id, verdict))
    io.stdout:flush()
  end
end
