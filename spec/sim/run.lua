-- The simulator's command.
--
--   lua5.4 spec/sim/run.lua [--from S] [--seeds N]         runs the schedules of N seeds, 1000
--                                                          unless said
--   lua5.4 spec/sim/run.lua ... --first                    stops at the first seed that breaks a
--                                                          rule
--   lua5.4 spec/sim/run.lua --seed S --trace               shows one as it happens
--   lua5.4 spec/sim/run.lua ... --quorum             those of N seeds that stand for a quorum
--   lua5.4 spec/sim/run.lua ... --system             failovers, slots that move, clocks that jump,
--                                                    io-threads; --kind sync: one of them
--                                                    (system_plan.lua)
--   lua5.4 spec/sim/run.lua ... --pool               those of N seeds that stand for a semaphore
--   lua5.4 spec/sim/run.lua ... --read-write         those that stand for read/write locks
--   lua5.4 spec/sim/run.lua ... --fair               those that stand for a fair lock
--   lua5.4 spec/sim/run.lua ... --several          those in which callers take several locks in
--                                                    one step
--   lua5.4 spec/sim/run.lua ... --turns            those in which Redisson's clients and ours take
--                                                  one lock again and again
--   lua5.4 spec/sim/run.lua ... --cycles             those in which callers wait for each other
--   lua5.4 spec/sim/run.lua ... --mutant NAME              with a mutant
--                                                          (spec/sim/mutants.lua)
--   lua5.4 spec/sim/run.lua --mutants [--seeds N]          how many seeds it takes to find each of
--                                                          them, and whether the
--                                                         schedules of schedules.lua show theirs
--   lua5.4 spec/sim/run.lua --mutants --known FILE         … with each one's seed in FILE first,
--                                                          such as spec/sim/mutant_seeds.txt
--   lua5.4 spec/sim/run.lua --mutants --quick              those that fall in seconds: quick.lua
--   lua5.4 spec/sim/run.lua --find [--seeds N]             the first that breaks a rule, by its
--                                                          number alone
--   lua5.4 spec/sim/run.lua --cases [--texts DIR]          cases.lua: each program alone; with the
--                                                          texts there; --first: until one fails;
--                                                          --refused: each program also with one
--                                                          command refused (refused_parts.lua)
--   lua5.4 spec/sim/run.lua --kept                         seeds.lua and schedules.lua
--   lua5.4 spec/sim/run.lua --schedule NAME [--trace]      one of schedules.lua
--   lua5.4 spec/sim/run.lua --coverage [--seeds N]         what they reach, and what they do not
--   lua5.4 spec/sim/run.lua --coverage --meet              …and brings each fault and each state
--                                                          together: see meet.lua
--   lua5.4 spec/sim/run.lua --guided [--seeds N]           …and half of them follow it: see
--                                                          guided.lua
--
-- Started at the root of the project, by lua5.4 or luajit. The last line tells how many schedules
-- there were, their rate, and a hash of all that happened in them; a broken rule is shown with a
-- small schedule and its trace, status 1. HOLDFAST_BUILD: the build directory, ./build. Mutants of
-- the core need make sim-mutants; without it coverage knows no states.

local jit = rawget(_G, "jit")
local build = os.getenv("HOLDFAST_BUILD") or "./build"
local flavour = jit and "luajit" or "lua5.4"

-- One process runs many short schedules, little of which is worth a trace.
if jit then require("jit.opt").start("hotloop=500", "hotexit=200") end
collectgarbage("setpause", 400)

package.path = "./?.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
local usage = require "spec.support.usage"

local OPTIONS = {
  ["--from"] = "number", ["--seeds"] = "number", ["--seed"] = "number", ["--trace"] = "flag",
  ["--first"] = "flag",
  ["--mutant"] = "text", ["--mutants"] = "flag", ["--kept"] = "flag", ["--quorum"] = "flag",
  ["--pool"] = "flag", ["--cycles"] = "flag", ["--several"] = "flag", ["--turns"] = "flag",
  ["--read-write"] = "flag", ["--fair"] = "flag", ["--coverage"] = "flag", ["--meet"] = "flag", ["--guided"] = "flag",
  ["--schedule"] = "text", ["--system"] = "flag", ["--kind"] = "text", ["--find"] = "flag",
  ["--cases"] = "flag", ["--refused"] = "flag",
  ["--texts"] = "text", ["--quick"] = "flag", ["--known"] = "text",
}

local function parse(args)
  local options, at = {}, 1
  while args[at] do
    local kind = OPTIONS[args[at]] or usage.fail("unknown option %s", args[at])
    local name = args[at]:sub(3)
    if kind == "flag" then
      options[name] = true
    else
      at = at + 1
      local value = kind == "number" and tonumber(args[at]) or kind == "text" and args[at]
      options[name] = value or usage.fail("--%s needs a %s", name, kind)
    end
    at = at + 1
  end
  return options
end

usage.help(arg)
local options = parse(arg)
local covers = options.coverage or options.guided
local with_mutants = options.mutant or options.mutants or covers or options.kind == "crash"
package.cpath = build .. "/" .. flavour .. "/?.so;" .. package.cpath
if with_mutants then package.cpath = build .. "/sim/" .. flavour .. "/?.so;" .. package.cpath end

local mutants = require "spec.sim.mutants"
local literal = require "spec.sim.literal"
local meet = require "spec.sim.meet"
local minimise = require "spec.sim.minimise"
local plans = require "spec.sim.plan"
local simulator = require "spec.sim.simulator"

local mutant = options.mutant and (mutants.find(options.mutant)
  or error("no mutant is called " .. options.mutant, 0))
local settings = with_mutants and mutants.turn_on(mutant) or {}
local coverage = covers and require "spec.sim.coverage"
local guided = options.guided and require "spec.sim.guided".new()
if coverage then
  coverage.turn_on()
  settings.coverage = coverage
end

local function say(...)
  io.stdout:write(string.format(...), "\n")
end

-- Passes each line to `write` like string.format, by default to print it.
local function trace(plan, write)
  write = write or say
  for _, line in ipairs(plans.describe(plan)) do write("    %s", line) end
  return simulator.run(plan, {
    patched = settings.patched, lead = settings.lead,
    trace = function(time, text) write("    %11.6f  %s", time / 1e6, text) end,
  })
end

local MAX_LINES = 50 -- of a trace that was not requested
local FAILED = build .. "/sim-failed.txt"

-- Prints the end of a long trace; the file has all of it.
local function say_end(lines)
  if #lines > MAX_LINES then
    local file = assert(io.open(FAILED, "w"))
    file:write(table.concat(lines, "\n"), "\n")
    file:close()
    say("    … %d lines before these are in %s", #lines - MAX_LINES, FAILED)
  end
  for i = math.max(1, #lines - MAX_LINES + 1), #lines do say("%s", lines[i]) end
end

-- what: the name of a schedule, or its seed
local function name_of(what)
  return type(what) == "number" and "seed " .. what or what
end

-- A schedule without a seed is also shown in the form that schedules.lua can keep.
local function show(what, plan, found)
  local name = name_of(what)
  say("%s breaks %s at %.6f s: %s", name, found.rule, found.time / 1e6, found.text)
  say("  the smallest schedule that does:")
  local smallest, lines = minimise.plan(plan, found.rule,
    { patched = settings.patched, lead = settings.lead }), {}
  local function add(...)
    for line in string.format(...):gmatch("[^\n]+") do lines[#lines + 1] = line end
  end
  if options.guided or type(what) ~= "number" then add("local plan = %s", literal(smallest)) end
  trace(smallest, add)
  say_end(lines)
end

local kept = {} -- see meet.lua

local function run_one(plan)
  if coverage then coverage.begin() end
  local result = simulator.run(plan, settings)
  if not coverage then return result end
  local new, states = coverage.finish()
  if guided then guided:look_at(plan, new) end
  meet.keep(kept, states, plan)
  return result
end

local function summary(count, events, hash, failed, started)
  local took = os.clock() - started
  say("%d schedules, %d failed, %.0f events each, %.0f a second, trace hash %08x", count, failed,
    events / count,
    count / math.max(took, 0.001), hash)
end

local MAX_NAMED = 8 -- of failing schedules; the first one is shown
local DELAYS = 10 -- for each kept schedule

-- schedules: a list of { name, plan or a function that makes it }
local function run_all(schedules)
  local events, hash, failed, started = 0, 0, 0, os.clock()
  for _, schedule in ipairs(schedules) do
    local plan = type(schedule[2]) == "function" and schedule[2](schedule[1]) or schedule[2]
    local result = run_one(plan)
    events, hash = events + result.events, (hash * 31 + result.hash) % 2147483647
    if result.found then
      failed = failed + 1
      if failed == 1 then
        show(schedule[1], plan, result.found)
      elseif failed <= MAX_NAMED then
        say("%s breaks %s", name_of(schedule[1]), result.found.rule)
      end
      if options.first then break end
    end
  end
  summary(#schedules, events, hash, failed, started)
  return failed == 0
end

-- plan_of: seed → plan
local function of_seeds(seeds, plan_of)
  local schedules = {}
  for i, seed in ipairs(seeds) do schedules[i] = { seed, plan_of } end
  return schedules
end

local function drawn(seed)
  return options.system and plans.system(seed, options.kind) or plans.of(seed)
end

local function plan_of(seed)
  return guided and guided:plan(seed) or drawn(seed)
end

local function range(from, count)
  local list = {}
  for seed = from, from + count - 1 do
    local chosen = not options.quorum or plans.is_quorum(seed)
    if options["read-write"] then chosen = plans.is_read_write(seed) end
    if options.fair then chosen = plans.is_fair(seed) end
    if options.pool then chosen = plans.is_pool(seed) end
    if options.several then chosen = plans.is_several(seed) end
    if options.turns then chosen = plans.is_turns(seed) end
    if options.cycles then chosen = plans.is_cycle(seed) end
    if chosen then list[#list + 1] = seed end
  end
  return list
end

-- Runs seeds until one breaks a rule. → seed, what was found | nil
local function find(from, count)
  for _, seed in ipairs(range(from, count)) do
    local found = run_one(drawn(seed)).found
    if found then return seed, found end
  end
end

local function chosen_mutants()
  local list = options.system and mutants.of_systems() or mutants.list()
  if not options.quick then return list end
  local quick = require "spec.sim.quick"
  return quick.choose(list, options.system and quick.systems or quick.single)
end

-- → the seed in a mutant's row of the table (spec/sim/mutant_seeds.txt): "name seed rule …", after
-- the kind of system if it has one
local function seed_in(rows, entry)
  local row = entry.kind and entry.kind .. " +" .. entry.name or entry.name
  return tonumber(rows:match("\n" .. row .. " +(%d+) "))
end

-- rows: a table whose seeds are tried first | nil. A mutant whose seed no longer shows it is
-- searched for from `from` on.
local function find_mutant(entry, rows, from, count)
  local known = rows and seed_in(rows, entry)
  if known and known <= count then
    local seed, found = find(known, 1)
    if seed then return seed, found end
    say("the known seed %d does not show %s", known, entry.name)
  end
  return find(from, count)
end

-- → whether all mutants were found
local function table_of_mutants(from, count)
  local all, rows = true, options.known and assert(io.open(options.known)):read("*a")
  for _, entry in ipairs(chosen_mutants()) do
    settings, options.kind = mutants.turn_on(entry), entry.kind
    local seed, found = find_mutant(entry, rows, from, count)
    all = all and seed ~= nil
    if entry.kind then io.stdout:write(("%-10s "):format(entry.kind)) end
    say("%-20s %9s  %-10s %s", entry.name, seed and seed - from + 1 or "not found", found
      and found.rule or "",
      entry.about)
  end
  return all
end

local function hunt(from, count)
  local seed, found = find(from, count)
  if not seed then
    say("no seed from %d to %d shows %s", from, from + count - 1, mutant.name)
    return false
  end
  show(seed, drawn(seed), found)
  return true
end

local function find_only(from, count)
  local seed, found = find(from, count)
  if seed then say("seed %d breaks %s", seed, found.rule) end
  return not seed
end

-- Adds the branches that only the cases reach.
local function cases_add()
  local before, names = select(3, coverage.programs()), {}
  coverage.begin()
  local failed = require "spec.sim.case_runner".run_all(nil, false, true)
  coverage.finish()
  local left = {}
  for _, name in ipairs((select(3, coverage.programs()))) do left[name] = true end
  for _, name in ipairs(before) do
    if not left[name] then names[#names + 1] = name end
  end
  say("reached by spec/sim/cases.lua alone: %d branches", #names)
  for _, name in ipairs(names) do say("  by cases: %s", name) end
  return #failed == 0
end

-- → whether every legal change of a hold's state was taken
local function report_steps()
  local reached, missing = coverage.steps()
  say("legal steps of a hold: %d of %d", #reached, #reached + #missing)
  for _, step in ipairs(missing) do say("  not taken: %s", step) end
  return #missing == 0
end

-- Brings faults and states together. → whether each pair met or has a reason not to, and no rule
-- was broken
local function report_meetings()
  local broken = 0
  local met, all, reasons, missed = meet.all(kept, coverage, function(name, plan, found)
    broken = broken + 1
    if broken == 1 then show(name, plan, found) end
  end)
  say("pairs of a fault and a state: %d of %d, %d break a rule", met, all, broken)
  local order = {}
  for reason in pairs(reasons) do order[#order + 1] = reason end
  table.sort(order)
  for _, reason in ipairs(order) do say("  %d left out: %s", reasons[reason], reason) end
  for _, pair in ipairs(missed) do say("  not met: %s in %s", pair[1], pair[2]) end
  return #missed == 0 and broken == 0
end

-- Reports what was reached and what was not. → whether every branch, every change of state and
-- every pair was
local function report()
  local reached, all, missing, programs = coverage.programs()
  local others = coverage.others()
  for _, program in ipairs(programs) do
    say("%-16s %4d of %4d branches", program.name, program.reached, program.all)
  end
  say("programs: %d of %d branches, each in some program", reached, all)
  for _, name in ipairs(missing) do say("  not reached: %s", name) end
  local good = cases_add()
  local in_all, of_all, left = coverage.programs()
  say("programs, with the cases: %d of %d branches", in_all, of_all)
  for _, name in ipairs(left) do say("  reached by nothing: %s", name) end
  local meetings_good = not options.meet or report_meetings()
  local steps_good = report_steps() or not options.meet
  for _, kind in ipairs { "state", "message", "reply", "fault", "step" } do
    local names = others[kind] or {}
    say("%s: %d", kind, #names)
    for _, name in ipairs(names) do say("  %s", name) end
  end
  return good and #left == 0 and steps_good and meetings_good
end

-- → a copy of the plan with other random delays, as a kept schedule must not depend on them
local function with_delays(plan, which)
  local copy = {}
  for name, value in pairs(plan) do copy[name] = value end
  copy.seed = plan.seed + which
  return copy
end

local function kept_schedules()
  local list = {}
  for _, schedule in ipairs(require "spec.sim.schedules") do
    for which = 0, DELAYS - 1 do
      list[#list + 1] = { schedule[1], with_delays(schedule[2], which) }
    end
  end
  return list
end

local function run_kept()
  local seeds = require "spec.sim.seeds"
  local good = run_all(of_seeds(seeds.base, plans.base))
  good = run_all(of_seeds(seeds.whole, plans.drawn)) and good
  good = run_all(of_seeds(seeds.system, plans.system)) and good
  return run_all(kept_schedules()) and good
end

local function shows(schedule)
  local shown = 0
  settings = mutants.turn_on(mutants.find(schedule[3]))
  for which = 0, DELAYS - 1 do
    if run_one(with_delays(schedule[2], which)).found then shown = shown + 1 end
  end
  say("%-30s %2d of %d with %s", schedule[1], shown, DELAYS, schedule[3])
  return shown > 0
end

-- → whether each kept schedule still shows the mutant that it is kept for
local function show_kept()
  local all = true
  for _, schedule in ipairs(require "spec.sim.schedules") do
    if mutants.find(schedule[3]) then all = shows(schedule) and all end
  end
  return all
end

-- → the texts that tools/embed.lua --sent wrote
local function texts_in(directory)
  local texts = {}
  for name in pairs(require "spec.sim.programs") do
    local file = assert(io.open(directory .. "/" .. name .. ".lua", "rb"))
    texts[name] = file:read("*a")
    file:close()
  end
  return texts
end

local MAX_OF_A_CASE = 1000 -- bytes

local function run_cases()
  local failed, count = require "spec.sim.case_runner".run_all(options.texts
    and texts_in(options.texts), options.first, options.refused)
  for i = 1, math.min(#failed, MAX_LINES) do
    say("case %s: %s", failed[i][1], failed[i][2]:sub(1, MAX_OF_A_CASE))
  end
  say("%d cases, %d failed", count, #failed)
  return #failed == 0
end

local function run_schedule(name)
  for _, schedule in ipairs(require "spec.sim.schedules") do
    if schedule[1] == name then
      if options.trace then return not trace(schedule[2]).found end
      return run_all { schedule }
    end
  end
  error("no schedule is called " .. name, 0)
end

local QUICK_SEEDS = 400

local good
local from, count = options.seed or options.from or 1, options.seed and 1 or options.seeds or 1000
if options.mutants then
  good = table_of_mutants(from, options.quick and QUICK_SEEDS or count)
  good = (options.system or show_kept()) and good
elseif options.schedule then
  good = run_schedule(options.schedule)
elseif options.trace then
  good = not trace(drawn(from)).found
elseif mutant then
  good = hunt(from, count)
elseif options.find then
  good = find_only(from, count)
elseif options.cases then
  good = run_cases()
elseif options.kept then
  good = run_kept()
else
  good = run_all(of_seeds(range(from, count), plan_of))
  if options.coverage then good = report() and good end
end
os.exit(good and 0 or 1)
