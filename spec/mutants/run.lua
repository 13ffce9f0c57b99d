-- Mutation testing: changes one place of the programs, the core, the API, the driver or the binding
-- at a time, by rule, and asks the tests.
--
--   lua5.4 spec/mutants/run.lua [OPTION...]      all of them
--
--   --part 3/20         the third of twenty equal parts, drawn by --seed
--   --only queue.lua    those of one file; more than one: --only a.lua,b.c
--   --kind programs     or core; api: lua/holdfast; posix: csrc/posix; binding: csrc/lua
--   --seed 7            another draw of the parts; 1 unless said
--   --list              prints them and runs nothing
--   --quick             by spec/sim/cases.lua, by the unit programs, or by the specs of the file
--                       alone; what these do not find is noted as left
--   --quick --sanitized …and by those of the file under sanitizers
--   --again             only those that earlier runs left or did not find
--   --unchecked         does not ask first whether the original passes
--   --patches FOLDER    those made by hand instead: its files *.patch, each of which changes one
--                       file
--   --stale             prints rows of equal.lua that name no mutant
--   --report            the score and the survivors of all runs so far; of a kind, a part or a file
--                       with these options
--
-- It works in a copy of the tree, build/mutants/<name>/tree (--name, "1" unless said: two runs at a
-- time need two names), and writes one line for each mutant to build/mutants/results: a mutant that
-- is there already is not run again as long as its line, its file and its change are the same.
-- Those of spec/mutants/equal.lua are not run.
--
-- What judges a mutant, until one of them fails, the cheapest first: the compiler (what does not
-- compile is no mutant, and neither is one whose object code is the original's), the unit programs
-- (first those of the file, last those again under sanitizers), the simulator (kept schedules, then
-- some seeds of each plan, then more), and specs that are quick. A mutant of a program is shown to
-- spec/sim/cases.lua first. What takes too long has found it, too. A mutant of the API is shown to
-- the specs of its file, then to those of all files; one of the driver to the unit programs of the
-- driver before that, one of the binding to the kept schedules in between.

package.path = "./?.lua;" .. package.path

local functions = require "spec.sim.functions"
local rules = require "spec.mutants.rules"
local text_of = require "spec.mutants.text"
local usage = require "spec.support.usage"

local fail, read, write, run = text_of.fail, text_of.read, text_of.write, text_of.run
local lines_of, name_of, output_of = text_of.lines_of, text_of.name_of, text_of.output_of
local mutants_of, paths = rules.mutants_of, text_of.paths

local ROOT = "build/mutants"
local RESULTS = ROOT .. "/results"
local PROGRAMS, CORE, API = "csrc/programs", "csrc/core", "lua/holdfast"
local POSIX, BINDING = "csrc/posix", "csrc/lua"

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
  ["info.lua"] = { "command_show" }, ["ahead.lua"] = { "command_show" },
  ["queue.lua"] = { "foreign" }, ["record.lua"] = { "foreign" },
  ["cluster.c"] = { "shards", "cluster" }, ["slots.c"] = { "shards", "cluster" },
  ["sentinel.c"] = { "sentinel" },
  ["round.c"] = { "quorum" }, ["round_acquire.c"] = { "quorum" }, ["round_calls.c"] = { "quorum" },
  ["votes.c"] = { "quorum" }, ["quorum.c"] = { "quorum" }, ["renew.c"] = { "watchdog" },
  ["deadlock.c"] = { "deadlocks" }, ["presence.c"] = { "names" }, ["observe.c"] = { "metrics" },
  ["events.c"] = { "waiting" }, ["acquire.c"] = { "waiting" }, ["session.c"] = { "trouble" },
}

-- Those that judge a file of the API first, by its path below lua/holdfast. A file that is not
-- named here has its own.
local LOOPS = { "failing_loops", "loops_*" }
local SPECS_OF_API_FILE = {
  ["abort.lua"] = { "with_lock", "signal" }, ["admission.lua"] = { "resty_*" },
  ["credentials.lua"] = { "credentials" },
  ["client.lua"] = { "misuse*", "connect", "lock" }, ["closing.lua"] = { "with_lock", "lock" },
  ["compat.lua"] = { "lock", "with_lock" }, ["cycles.lua"] = { "deadlocks" },
  ["deadlocks.lua"] = { "deadlocks", "deadlocks_kinds" },
  ["driver.lua"] = { "lock", "loops_*", "deadlocks_kinds" }, ["events.lua"] = { "names", "metrics", "model" },
  ["fence.lua"] = { "fence", "misuse*", "resty_*" }, ["fence_headers.lua"] = { "fence", "resty_*" },
  ["hints.lua"] = { "misuse*" }, ["holder.lua"] = { "names" },
  ["idempotent.lua"] = { "templates", "guard_model", "model" }, ["idempotent_request.lua"] = { "resty_*" },
  ["init.lua"] = { "misuse*", "lock" }, ["latch.lua"] = { "latch", "misuse*" }, ["lead.lua"] = { "lead", "misuse*", "with_lock" },
  ["leader.lua"] = { "leader" }, ["leaving.lua"] = { "async_release", "model" },
  ["lazy.lua"] = { "loads" },
  ["lock.lua"] = { "model", "lock", "misuse*" }, ["loss.lua"] = { "model", "watchdog", "reload" },
  ["multi_lock.lua"] = { "multi_lock", "model", "misuse*" },
  ["native.lua"] = { "lock" }, ["one_by_one.lua"] = { "templates", "misuse*" },
  ["options.lua"] = { "misuse*", "connect" }, ["plain_semaphore.lua"] = { "plain_semaphore", "misuse*" },
  ["read_write_lock.lua"] = { "read_write", "misuse*" }, ["semaphore.lua"] = { "semaphore", "misuse*" },
  ["record.lua"] = { "templates" }, ["replies.lua"] = { "lock", "deadlocks" },
  ["servers.lua"] = { "quorum", "shards" }, ["shared_metrics.lua"] = { "status_*" },
  ["sorted.lua"] = { "observed", "status_*" }, ["notifier.lua"] = { "async_release", "loops_*", "resty_*" },
  ["text.lua"] = { "misuse*", "command_hostile" }, ["timer.lua"] = { "resty_*" }, ["traceback.lua"] = { "with_lock" },
  ["loop/copas.lua"] = LOOPS, ["loop/cqueues.lua"] = LOOPS, ["loop/descriptors.lua"] = LOOPS,
  ["loop/init.lua"] = LOOPS, ["loop/luv.lua"] = LOOPS, ["loop/owner.lua"] = LOOPS,
  ["loop/pump.lua"] = { "failing_loops", "loops_*", "resty_*", "status_*" },
  ["loop/cosockets.lua"] = { "failing_ngx", "resty_*" },
  ["loop/ngx.lua"] = { "failing_ngx", "resty_*" },
}
local SPECS_OF_COMMAND = {
  "command_show", "command_break", "command_output", "command_usage", "command_tls", "command_run_*", "command_hold",
  "command_lead", "margins",
}
local SPECS_OF_API = { "model", "lock", "with_lock", "misuse*", "multi_lock", "templates" }

-- Those that judge a file of the driver first: each file is named here.
local SPECS_OF_POSIX_FILE = {
  ["caller.c"] = { "connect", "threads", "signal", "waiting", "watchdog" },
  ["crash.c"] = { "crash_release", "command_crash" }, ["job.c"] = { "command_crash" },
  ["driver.c"] = { "connect", "threads", "names", "watchdog", "reload" },
  ["links.c"] = { "connect", "threads", "watchdog", "waiting", "loops_*" },
  ["net.c"] = { "connect", "sentinel" }, ["ready.c"] = { "loops_*" },
  ["system.c"] = { "threads", "signal", "connect" }, ["tls.c"] = { "tls" },
  ["watchdog.c"] = { "watchdog", "threads", "async_release" },
}
local SPECS_OF_POSIX = { "lock", "with_lock", "connect", "trouble", "async_release", "model" }

-- …and a file of the binding.
local SPECS_OF_BINDING_FILE = {
  ["batch.c"] = { "multi_lock", "async_release", "lock", "core_calls" },
  ["call.c"] = {
    "lock", "kinds", "core_calls", "fence", "templates", "plain_semaphore", "waiting",
  },
  ["client.c"] = {
    "connect", "misuse*", "core_calls", "shards", "multi_lock", "tls", "cluster", "quorum", "status_*",
  },
  ["engine.c"] = { "core_calls", "loops_*", "failing_loops", "failing_ngx", "resty_*" },
  ["lock.c"] = { "lock", "misuse*", "model", "multi_lock", "loops_*", "watchdog", "lead", "signal" },
  ["module.c"] = { "reload", "threads", "locale", "core_calls", "fence" },
  ["observer.c"] = { "observed", "metrics", "connect", "locale" },
  ["op.c"] = { "lock", "waiting", "loops_*", "with_lock", "model", "trouble" },
  ["owner.c"] = { "lock", "loops_*", "threads", "resty_*", "semaphore" },
  ["support.c"] = { "misuse*", "lock", "core_calls" },
  ["template.c"] = { "templates" }, ["watchdog.c"] = { "watchdog", "connect", "lock" },
  ["wire.c"] = { "keep", "deadlocks", "multi_lock", "status_*" },
}
local SPECS_OF_BINDING = {
  "core_calls", "lock", "with_lock", "misuse*", "multi_lock", "async_release", "model",
}

-- Those that judge a file of the core first. A file that is not named here has its own.
local QUORUM = { "test_quorum_calls", "test_quorum_rounds", "test_quorum_holds", "test_quorum" }
local CLUSTER = { "test_cluster", "test_cluster_map", "test_cluster_nodes" }
local DRIVER = { "test_driver_calls", "test_driver_fork", "test_driver" }
local CRASH = { "test_crash_record", "test_crash_job" }
local UNITS_OF_FILE = {
  ["acquire.c"] = {
    "test_acquire", "test_waiting", "test_grants", "test_wait_end", "test_reentry",
    "test_shared_owner", "test_detached", "test_read_write", "test_permits",
  },
  ["alone.c"] = { "test_each_kind", "test_batch", "test_client" },
  ["holding.c"] = { "test_reentry", "test_acquire", "test_shared_owner" },
  ["losses.c"] = { "test_holdfast" },
  ["events.c"] = { "test_waiting", "test_grants", "test_client" },
  ["holds.c"] = { "test_holds", "test_quorum" }, ["claims.c"] = { "test_holds", "test_shared_owner" },
  ["calls.c"] = { "test_calls", "test_release", "test_extend", "test_record", "test_detached" },
  ["poll.c"] = { "test_latch", "test_plain_semaphore" },
  ["slots.c"] = { "test_slots", "test_cluster_map" }, ["cluster.c"] = CLUSTER,
  ["kind.c"] = { "test_each_kind", "test_acquire" },
  ["nodes.c"] = { "test_client", "test_cluster", "test_cluster_nodes" },
  ["operation.c"] = {
    "test_client", "test_calls", "test_release", "test_detached", "test_deadlock", "test_wait_end",
    "test_acquire", "test_waiting",
  },
  ["registry.c"] = { "test_client" },
  ["session.c"] = {
    "test_session", "test_session_connection", "test_session_login", "test_session_replicas",
  },
  ["renew.c"] = {
    "test_renewer", "test_cleaning_up", "test_confirm", "test_approval", "test_reentry", "test_kept",
    "test_each_kind",
  },
  ["leave.c"] = {
    "test_cleaning_up", "test_renewer", "test_reentry", "test_kept", "test_shared_owner",
    "test_each_kind",
  },
  ["task.c"] = { "test_renewer", "test_cleaning_up", "test_approval" },
  ["round.c"] = QUORUM, ["round_acquire.c"] = QUORUM, ["round_calls.c"] = QUORUM,
  ["quorum.c"] = QUORUM, ["votes.c"] = QUORUM,
  ["shards.c"] = { "test_ring", "test_renewer" },
  ["wire.c"] = {
    "test_wire", "test_acquire", "test_waiting", "test_calls", "test_release", "test_extend",
    "test_batch", "test_permits", "test_read_write",
  },
}
-- …and a file of the driver. A file that is not named here has its own.
local UNITS_OF_POSIX_FILE = {
  ["caller.c"] = DRIVER, ["crash.c"] = CRASH, ["job.c"] = CRASH,
  ["links.c"] = { "test_driver_calls", "test_net", "test_driver" }, ["watchdog.c"] = DRIVER,
}
-- Those that contain the half of a file of the driver that is for other systems.
local UNIT_OF_PORTABLE = { ["ready.c"] = "test_ready_portable", ["system.c"] = "test_system" }

-- Those of files that decide nothing: they run only first.
local UNITS_OF_BASE = {
  test_buffer = true, test_check = true, test_failure = true, test_reply = true, test_ring = true,
  test_types = true, test_url = true,
}

local CORE_FILES = CORE .. "/*.c " .. CORE .. "/*/*.c"

-- ---- the copy of the tree ----

local COPIED = ".busted Makefile csrc lua spec tools docs bin examples completions"
local MAKE = "make -s FLAVOURS=luajit CFLAGS=-O0 WARNINGS=-fvisibility=default "
local SANITIZED = "BUILD=build/asan \"SANITIZE=-fsanitize=address,undefined"
  .. " -fno-sanitize-recover=undefined\" "
local CORE_SO = "build/luajit/holdfast/core.so"
local PROCESS_SO = "build/luajit/holdfast/process.so"
local SIM = "luajit spec/sim/run.lua "
local BUSTED = "luajit $(command -v busted) --no-keep-going --output=TAP "

local Tree = {}
Tree.__index = Tree

function Tree.new(name, goals)
  local self = setmetatable({ path = ROOT .. "/" .. name .. "/tree", objects = {} }, Tree)
  assert(run(("rm -rf %s && mkdir -p %s && cp -r %s %s"):format(self.path, self.path, COPIED,
    self.path)))
  self.commands = {}
  self.originals = ROOT .. "/" .. name .. "/originals"
  assert(run(("rm -rf %s && mkdir -p %s && cp -r csrc lua %s"):format(self.originals,
    self.originals, self.originals)))
  self:make(goals)
  return self
end

local MAX_PATIENCE = 4 -- times: a mutant that loops for ever is load, too

-- → how long `seconds` of an idle machine may take now
local function patience(seconds)
  local load = tonumber((read("/proc/loadavg") or ""):match("^[%d.]+")) or 1
  return math.ceil(seconds * math.min(MAX_PATIENCE, math.max(1, load)))
end

-- → ended well, whether it took too long
function Tree:run(command, seconds)
  local ok, status = run(("cd %s && timeout -k 5 %d sh -c '%s' >last.log 2>&1 </dev/null"):format(
    self.path, patience(seconds), command))
  return ok, status == 124 or status == 137
end

function Tree:original(path) return assert(read(self.originals .. "/" .. path)) end

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
  local flavour = path:find(BINDING, 1, true) and "luajit/" or ""
  return build .. "/obj/" .. flavour .. path:gsub("%.c$", "") .. ".o"
end

local function replace(text, from, to)
  local at, behind = text:find(from, 1, true)
  return at and text:sub(1, at - 1) .. to .. text:sub(behind + 1) or text
end

function Tree:make(goals)
  if not self:run(MAKE .. goals, 1800) then
    fail("the copy does not build: %s/last.log", self.path)
  end
  self:read_commands(goals)
end

-- The unit programs again, under sanitizers.
function Tree:sanitize(goals)
  self:make(SANITIZED .. goals)
  self.sanitized = true
end

-- The core as a shared library, so that a mutant is linked once for all unit programs.
function Tree:share_core(build)
  local library = build .. "/libcore.so"
  local objects = {}
  for _, path in ipairs(paths(CORE_FILES)) do objects[#objects + 1] = object_of(build, path) end
  local program = self.commands[build .. "/unit/test_acquire"]
  local flags = program:gsub("^%s*mkdir[^;]*;", ""):match("^(.-) %S+%.o ")
  self.commands[library] = ("%s -shared %s -o %s"):format(flags, table.concat(objects, " "),
    library)
  if not self:run(self.commands[library], 120) then fail("the core is no shared library") end
  for made, command in pairs(self.commands) do
    local name = made:match("^" .. build .. "/unit/(test_[%l_]+)$")
    if name then
      local with = replace(command, build .. "/libholdfast_core.a", "-rdynamic " .. library)
      if not self:run(with, 120) then fail("%s does not link with %s", name, library) end
    end
  end
end

local MUTATED = { build = "build/mutated.o", ["build/asan"] = "build/asan/mutated.o" }

-- Compiles the file as it stands. optimizer: other flags → whether it compiles, the object's hash
function Tree:compile(build, path, optimizer)
  local object, made = object_of(build, path), optimizer and "build/other.o" or MUTATED[build]
  local command = replace(self.commands[object], " -o " .. object, " -o " .. made)
    :gsub(" %-MMD %-MP", " -w"):gsub("%-O0", optimizer or "%0")
  if not self:run(command, 120) then return false end
  return true, output_of(("sha1sum <%s/%s"):format(self.path, made))
end

-- Links what is made with the mutant's object.
function Tree:link(build, made, path)
  return self:run(replace(self.commands[made], object_of(build, path), MUTATED[build]), 120)
end

-- The text of a file as the patch of a mutant that was made by hand leaves it.
local function patched(mutant)
  return output_of(("patch --quiet --output=- %s <%q"):format(mutant.path, mutant.patch))
end

local function with_mutant(mutant, text)
  if mutant.patch then return patched(mutant) end
  local lines, at = lines_of(text), mutant.line
  lines[at] = mutant.to
  for i = 2, mutant.count do table.remove(lines, at + i - 1) end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- the ladder ----

-- → the unit programs that judge a file first, the others
local function unit_programs(tree, file, first_of)
  local first, others, is_first = first_of[file] or { "test_" .. file:gsub("%.c$", "") }, {}, {}
  for _, name in ipairs(first) do is_first[name] = true end
  for name in output_of("ls " .. tree.path .. "/build/unit"):gmatch("test_[%l_]+%f[\n]") do
    if not UNITS_OF_BASE[name] and not is_first[name] then others[#others + 1] = name end
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

local function spec_fails(tree, path, seconds)
  local command = BUSTED .. path
  local how = fails(tree, command, seconds)
  -- On a busy machine one may fail that has nothing wrong: as in make test, it has another try.
  if how == "fails" then how = fails(tree, command, seconds) end
  local name = path:match("([^/]+)%.lua$")
  return how and ("%s, %s"):format(name, how == "fails" and first_failure(tree) or how)
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
  local each = ("for unit in %s; do timeout %d $unit || { code=$?;"
    .. ' echo "stops at $unit"; exit $code; }; done'):format(table.concat(made, " "), patience(30))
  local how = fails(tree, each, 300)
  if not how then return nil end
  local name = (read(tree.path .. "/last.log") or ""):match("stops at %S*/(%S+)") or "units"
  return ("%s, %s"):format(name, how == "fails" and first_failure(tree) or how)
end

-- A name may be a pattern of the shell. → the files that it names, at least one
local function specs_named(name)
  local list = paths(("spec/%s_spec.lua 2>/dev/null"):format(name))
  return list[1] and list or fail("no file is called spec/%s_spec.lua", name)
end

local function specs_fail(tree, names)
  for _, name in ipairs(names or {}) do
    for _, path in ipairs(specs_named(name)) do
      local how = spec_fails(tree, path, 120)
      if how then return how end
    end
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

-- ---- the judges: → what found it, "invalid", "same", "equal", "left" or nil: it survives ----

local function compiles_lua(tree, mutant)
  return tree:run(("luajit -b %s /dev/null"):format(mutant.path), 60)
end

local function judge_program(tree, mutant, quick)
  if not compiles_lua(tree, mutant) then return "invalid" end
  local found = cases_fail(tree)
  if found or quick then return found or "left" end
  local made = "lua5.4 tools/embed.lua && touch csrc/core/lock/kind.c && " .. MAKE
    .. "-o csrc/programs/embedded.h build"
  if not tree:run(made, 120) then return "invalid" end
  local first, specs = mutant.kind.specs(mutant)
  return sim_fails(tree, "--find --seeds 300") or specs_fail(tree, specs)
    or specs_fail(tree, first) or sim_fails(tree, "--find --seeds 1000")
end

local function judge_api(tree, mutant, quick)
  if not compiles_lua(tree, mutant) then return "invalid" end
  local first, specs = mutant.kind.specs(mutant)
  local found = specs_fail(tree, first)
  if found or quick then return found or "left" end
  return specs_fail(tree, specs)
end

-- The hash of the object that the original makes of a source, by optimizer.
local function original_object(tree, mutant, source, optimizer)
  local key = mutant.path .. source .. (optimizer or "")
  if not tree.objects[key] then
    local path = tree.path .. "/" .. mutant.path
    local text = read(path)
    write(path, tree:original(mutant.path))
    tree.objects[key] = select(2, assert(tree:compile("build", source, optimizer)))
    write(path, text)
  end
  return tree.objects[key]
end

-- Compiles the source, the mutant's own file unless said. → "invalid" | "same" | nil
local function compile(tree, mutant, source)
  source = source or mutant.path
  local original = original_object(tree, mutant, source)
  local compiles, hash = tree:compile("build", source)
  return not compiles and "invalid" or hash == original and "same" or nil
end

-- The object code of the optimizer: equal to the original's, the mutant changes nothing.
local function is_equal(tree, mutant, source)
  source = source or mutant.path
  local _, hash = tree:compile("build", source, "-O2")
  return hash == original_object(tree, mutant, source, "-O2")
end

local function judge_core(tree, mutant, quick)
  local path = mutant.path
  local none = compile(tree, mutant)
  if none then return none end
  if not tree:link("build", "build/libcore.so", path) then return "invalid" end
  local units, others = unit_programs(tree, mutant.file, UNITS_OF_FILE)
  local found = units_fail(tree, "build", units) or units_fail(tree, "build", others)
  if found then return found end
  if is_equal(tree, mutant) then return "equal" end
  if not tree.sanitized then return "left" end
  tree:compile("build/asan", path)
  tree:link("build/asan", "build/asan/libcore.so", path)
  found = units_fail(tree, "build/asan", units)
  if found or quick then return found or "left" end
  tree:link("build", CORE_SO, path)
  local first, specs = mutant.kind.specs(mutant)
  return simulations_fail(tree) or specs_fail(tree, specs) or specs_fail(tree, first)
end

-- Unit programs of the driver, linked with the object that was made of the source.
local function driver_fails(tree, build, units, source)
  for _, name in ipairs(units) do
    local links = tree:link(build, build .. "/unit/" .. name, source)
    local found = not links and "invalid" or units_fail(tree, build, { name })
    if found then return found end
  end
end

-- The half for other systems is code of one unit program alone.
local function judge_portable(tree, mutant, unit)
  local source = "spec/unit/" .. unit .. ".c"
  local none = compile(tree, mutant, source)
  if none then return none end
  local found = driver_fails(tree, "build", { unit }, source)
  if found then return found end
  if is_equal(tree, mutant, source) then return "equal" end
  if not tree.sanitized then return "left" end
  tree:compile("build/asan", source)
  return driver_fails(tree, "build/asan", { unit }, source)
end

-- The unit program that includes the file has a copy of it, also of what both halves share.
local function included_fails(tree, unit)
  local source = "spec/unit/" .. unit .. ".c"
  return tree:compile("build", source) and driver_fails(tree, "build", { unit }, source)
end

local function judge_posix(tree, mutant, quick)
  local path, name = mutant.path, name_of(mutant.path)
  local none, portable = compile(tree, mutant), UNIT_OF_PORTABLE[name]
  if none == "same" and portable then return judge_portable(tree, mutant, portable) end
  if none then return none end
  local units, others = unit_programs(tree, name, UNITS_OF_POSIX_FILE)
  local found = driver_fails(tree, "build", units, path)
  if found then return found end
  if is_equal(tree, mutant) then return "equal" end
  found = driver_fails(tree, "build", others, path) or portable and included_fails(tree, portable)
  if found or not tree.sanitized then return found or "left" end
  tree:compile("build/asan", path)
  found = driver_fails(tree, "build/asan", units, path)
  if found or quick then return found or "left" end
  tree:compile("build", path)
  tree:link("build", CORE_SO, path)
  tree:link("build", PROCESS_SO, path)
  local first, specs = mutant.kind.specs(mutant)
  return specs_fail(tree, first) or specs_fail(tree, specs)
end

local function judge_binding(tree, mutant, quick)
  local none = compile(tree, mutant)
  if none then return none end
  if is_equal(tree, mutant) then return "equal" end
  if not tree:link("build", CORE_SO, mutant.path) then return "invalid" end
  local first, specs = mutant.kind.specs(mutant)
  local found = name_of(mutant.path) == "engine.c" and sim_fails(tree, "--kept")
    or specs_fail(tree, first)
  if found or quick then return found or "left" end
  return sim_fails(tree, "--kept") or specs_fail(tree, specs)
end

-- ---- the kinds ----

local function core_files()
  local files = {}
  for _, path in ipairs(paths(CORE_FILES)) do
    if not DECIDES_NOTHING[name_of(path)] then files[#files + 1] = path end
  end
  return files
end

-- Without the command, and without what shows a status: their specs compare what is printed.
local function api_files()
  local files = {}
  for _, path in ipairs(paths(API .. "/*.lua " .. API .. "/loop/*.lua")) do
    if not path:find("/status") and not path:find("/version") then files[#files + 1] = path end
  end
  return files
end

-- → those of the file, those of all files that are not among them
local function without_those_of(first, all)
  local rest, is_first = {}, {}
  for _, name in ipairs(first) do is_first[name] = true end
  for _, name in ipairs(all) do
    if not is_first[name] then rest[#rest + 1] = name end
  end
  return first, rest
end

local function specs_of(first_of, all)
  return function(mutant) return without_those_of(first_of[name_of(mutant.path)] or {}, all) end
end

local function specs_of_api(mutant)
  local name = mutant.path:sub(#API + 2)
  local first = SPECS_OF_API_FILE[name] or name:find("^command/") and SPECS_OF_COMMAND
    or { (name:gsub("%.lua$", "")) }
  return without_those_of(first, SPECS_OF_API)
end

local function all_units_fail(tree)
  local _, units = unit_programs(tree, "", {})
  return units_fail(tree, "build", units)
    or tree.sanitized and units_fail(tree, "build/asan", units)
end

local function schedules_or_specs_fail(tree, specs)
  return sim_fails(tree, "--kept") or specs_fail(tree, specs)
end

-- Of each:
--   folder                      where its files stand
--   files()                     the paths that are changed
--   goals, quick_goals          what make builds in the copy; with --quick, where that is less
--   prepare(tree, sanitized)    what else the copy needs
--   judge(tree, mutant, quick)  see the judges
--   specs(mutant)               → those of the file, those of all files
--   check(tree, quick, specs)   → what finds the original, too, of what judges
local KINDS = {
  {
    name = "programs", folder = PROGRAMS, judge = judge_program,
    files = function() return paths(PROGRAMS .. "/*/*.lua") end,
    goals = "build", quick_goals = CORE_SO,
    specs = specs_of(SPECS_OF_FILE, SPECS_OF_PROGRAMS),
    check = function(tree, quick, specs)
      return cases_fail(tree) or not quick and schedules_or_specs_fail(tree, specs)
    end,
  },
  {
    name = "core", folder = CORE, judge = judge_core, files = core_files,
    goals = "build unit-programs",
    prepare = function(tree, sanitized)
      tree:share_core("build")
      if sanitized then tree:sanitize("unit-programs") tree:share_core("build/asan") end
    end,
    specs = specs_of(SPECS_OF_FILE, SPECS_OF_CORE),
    check = function(tree, quick, specs)
      return all_units_fail(tree) or not quick and schedules_or_specs_fail(tree, specs)
    end,
  },
  {
    name = "api", folder = API, judge = judge_api, files = api_files, goals = "build",
    specs = specs_of_api,
    check = function(tree, _, specs) return specs_fail(tree, specs) end,
  },
  {
    name = "posix", folder = POSIX, judge = judge_posix, goals = "build unit-programs",
    files = function() return paths(POSIX .. "/*.c") end,
    prepare = function(tree, sanitized)
      if sanitized then tree:sanitize("unit-programs") end
    end,
    specs = specs_of(SPECS_OF_POSIX_FILE, SPECS_OF_POSIX),
    check = function(tree, quick, specs)
      return all_units_fail(tree) or not quick and specs_fail(tree, specs)
    end,
  },
  {
    name = "binding", folder = BINDING, judge = judge_binding, goals = "build",
    files = function() return paths(BINDING .. "/*.c") end,
    specs = specs_of(SPECS_OF_BINDING_FILE, SPECS_OF_BINDING),
    check = function(tree, _, specs) return schedules_or_specs_fail(tree, specs) end,
  },
}

local function chosen_kinds(options)
  local chosen = {}
  for _, kind in ipairs(KINDS) do
    if not options.kind or options.kind == kind.name then chosen[#chosen + 1] = kind end
  end
  return chosen[1] and chosen or fail("no kind %s", options.kind)
end

-- → what found it | "invalid", "same", "equal" | "left" | "survives"
local function try(tree, mutant, quick)
  local path = tree.path .. "/" .. mutant.path
  local original = tree:original(mutant.path)
  write(path, with_mutant(mutant, original))
  local verdict = mutant.kind.judge(tree, mutant, quick) or "survives"
  write(path, original)
  return verdict
end

-- What judges must find nothing in the original.
local function check_original(tree, kind, list, quick)
  local names, known = {}, {}
  for _, mutant in ipairs(list) do
    for _, specs in ipairs { kind.specs(mutant) } do
      for _, name in ipairs(specs) do
        if not known[name] then names[#names + 1] = name end
        known[name] = true
      end
    end
  end
  local found = kind.check(tree, quick, names)
  if found then fail("the original is found, too: %s", found) end
end

-- ---- those that change nothing ----

local equal = require "spec.mutants.equal"

-- → the mutants of a file by their functions, as spec/mutants/equal.lua names these
local function by_place(list)
  local places = {}
  for _, mutant in ipairs(list) do
    local place = mutant.func == "" and mutant.file or mutant.file .. ":" .. mutant.func
    places[place] = places[place] or {}
    table.insert(places[place], mutant)
  end
  return places
end

-- → those of a function whose change has the text, or is the text if there is one; how many
-- different changes they make
local function with_change(own, text)
  local found, exact, changes, count = {}, {}, {}, 0
  for _, mutant in ipairs(own) do
    if mutant.change == text then exact[#exact + 1] = mutant end
    if mutant.change:find(text, 1, true) then
      if not changes[mutant.change] then count = count + 1 end
      found[#found + 1], changes[mutant.change] = mutant, true
    end
  end
  if exact[1] then return exact, 1 end
  return found, count
end

-- Says of the mutants that a row names why they change nothing. → nil | what is wrong with the row
local function apply_row(row, places)
  local place, text, why, which = row[1], row[2], row[3], row[4]
  local found, changes = with_change(places[place] or {}, text)
  if changes ~= 1 or which and not found[which] then
    return ("%s of %s: %s"):format(changes > 1 and "several mutants" or "no mutant", place, text)
  end
  for i, mutant in ipairs(found) do
    if not which or which == i then mutant.why = why end
  end
end

local function note_equal(list)
  local places = by_place(list)
  for _, row in ipairs(equal) do
    if places[row[1]] then apply_row(row, places) end
  end
  return list
end

-- The function that a row names, as it is now.
local function present_text(place, path)
  local text, own = path and read(path), place:match(":([^:]+)$")
  if not (text and own) then return "" end
  local from, to = functions.find(path, text, own)
  return from and "\n" .. text:sub(from, to) or ""
end

-- Prints rows of spec/mutants/equal.lua that name no mutant, or several that differ.
local function print_stale_rows(paths_of_all)
  local list, path_of = {}, {}
  for _, path in ipairs(paths_of_all) do
    for _, mutant in ipairs(mutants_of(path)) do
      list[#list + 1], path_of[mutant.file] = mutant, path
    end
  end
  local places = by_place(list)
  for _, row in ipairs(equal) do
    local problem = apply_row(row, places)
    local path = path_of[row[1]:match("^[^:]+")]
    if problem then print("equal.lua names " .. problem .. present_text(row[1], path)) end
  end
end

-- ---- which are drawn ----

-- A number that depends on the mutant and the seed alone.
local function draw(id, seed)
  local hash = seed % 2147483647
  for i = 1, #id do hash = (hash * 31 + id:byte(i)) % 2147483647 end
  return hash * 48271 % 2147483647
end

-- Those in a folder that change a file of this kind.
local function mutants_of_patches(kind, folder)
  local list = {}
  for _, patch in ipairs(paths(folder .. "/*.patch")) do
    local path = assert(read(patch)):match("%+%+%+ b/(%S+)")
    if path:find(kind.folder .. "/", 1, true) == 1 then
      local id = ("%s %s"):format(name_of(patch), path)
      list[#list + 1] = {
        path = path, file = name_of(path), id = id, patch = patch, kind = kind,
        draw = #list,
      }
    end
  end
  return list
end

-- Those of the files of a kind.
local function mutants_of_kind(kind, options)
  if options.patches then return mutants_of_patches(kind, options.patches) end
  local list, known = {}, {}
  for _, path in ipairs(kind.files()) do
    local named = "," .. name_of(path) .. ","
    local wanted = not options.only or ("," .. options.only .. ","):find(named, 1, true)
    for _, mutant in ipairs(wanted and note_equal(mutants_of(path)) or {}) do
      if not known[mutant.id] then list[#list + 1] = mutant end
      known[mutant.id] = true
      mutant.kind, mutant.draw = kind, draw(mutant.id, options.seed)
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

local LIVES = { left = true, survives = true }
local IS_NONE = { invalid = true, same = true, equal = true }

local function report(options)
  local all_of_them = {}
  for _, kind in ipairs(chosen_kinds(options)) do
    for _, mutant in ipairs(part_of(mutants_of_kind(kind, options), options.part)) do
      all_of_them[#all_of_them + 1] = mutant
    end
  end
  local known, counts, files, survivors, equals = results(), {}, {}, {}, {}
  for _, mutant in ipairs(all_of_them) do
    local why = mutant.why
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
end

-- ---- the command ----

local VALUES = { patches = true, part = true, only = true, kind = true, seed = true, name = true }
local FLAGS = {
  list = true, report = true, stale = true, again = true, unchecked = true, quick = true,
  sanitized = true,
}

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

local function is_wanted(mutant, known, options)
  local verdict = known[mutant.id]
  if mutant.why then return false end
  if options.again then return LIVES[verdict] end
  return not verdict or verdict == "left" and not options.quick
end

-- In a copy of the tree that is made for this kind.
local function judge_all(kind, list, options)
  local known = results()
  local tree = Tree.new(options.name, options.quick and kind.quick_goals or kind.goals)
  if kind.prepare then kind.prepare(tree, not options.quick or options.sanitized) end
  if not options.unchecked then check_original(tree, kind, list, options.quick) end
  for i, mutant in ipairs(list) do
    if is_wanted(mutant, known, options) then
      local verdict = try(tree, mutant, options.quick)
      note(verdict, mutant.id)
      print(("%d/%d %s: %s"):format(i, #list, mutant.id, verdict))
      io.stdout:flush()
    end
  end
end

usage.help(arg)
local options = parse(arg)
rules.read_enums()
if options.report then
  report(options)
  os.exit(0)
end
if options.stale then
  local all = {}
  for _, kind in ipairs(KINDS) do
    for _, path in ipairs(kind.files()) do all[#all + 1] = path end
  end
  print_stale_rows(all)
  os.exit(0)
end
run("mkdir -p " .. ROOT)
for _, kind in ipairs(chosen_kinds(options)) do
  local list = part_of(mutants_of_kind(kind, options), options.part)
  if not options.list then
    judge_all(kind, list, options)
  else
    for _, mutant in ipairs(list) do print(mutant.id) end
  end
end
