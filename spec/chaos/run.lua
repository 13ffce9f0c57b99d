-- The chaos run's command.
--
--   lua5.4 spec/chaos/run.lua [--seconds S] [--from SEED]   runs rounds, one seed after the other,
--                                                           for S seconds (default 60)
--   lua5.4 spec/chaos/run.lua --seed SEED [--times N]       runs that round N times, or until it
--                                                           fails
--   lua5.4 spec/chaos/run.lua ... --kind KIND               runs only rounds of this kind
--   lua5.4 spec/chaos/run.lua ... --histories DIR           writes there what spec/porcupine checks
--   lua5.4 spec/chaos/run.lua --mutants                     hunts all mutants, which must be found;
--                                                           --hunt NAME hunts one
--   lua5.4 spec/chaos/run.lua --seed SEED --mutant NAME     runs a round with this mutant
--   lua5.4 spec/chaos/run.lua --missing KIND                exits with 1 and the reason if rounds
--                                                           of this kind cannot run here
--
-- Run it from the root of the project, with lua5.4 or luajit. If a rule is broken, it shows what
-- happened around that, and exits with 1. HOLDFAST_BUILD: the build directory (default ./build).
-- Mutants need make sim-mutants.

local jit = rawget(_G, "jit")
local build = os.getenv("HOLDFAST_BUILD") or "./build"
package.path = "./?.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = build .. "/" .. (jit and "luajit" or "lua5.4") .. "/?.so;" .. package.cpath

local usage = require "spec.support.usage"
usage.help(arg)

local export = require "spec.chaos.export"
local history = require "spec.chaos.history"
local process = require "spec.support.process"
local round = require "spec.chaos.round"
local sys = require "spec.support.sys"

local ROUND = 8          -- seconds of faults
local MUTANT_ROUND = 4
local MUTANT_TRIES = 40
local HUNTS = 4          -- at the same time
local SHOWN_BEFORE, SHOWN_AFTER = 30, 4 -- operations
local SHOWN_SECONDS = 3

-- Some mutants of spec/sim/mutants.lua, and the faults that reveal them. kind: of the rounds,
-- default "one"; keep: percent of the holds that are kept until they are lost; slow: skipped by
-- --mutants.
local MUTANTS = {
  { "NO_VALIDITY", { "stop_worker" }, keep = 60 },
  { "GRANT_UNBOUND", { "cut_down", "stop_worker" } },
  { "LOSS_IGNORED", { "reset" }, kind = "loses", keep = 40 },
  { "COUNT_TWICE", { "reset" } },
  { "NO_END_OF_WAIT", { "reset" }, keep = 70 },
  { "take_any", { "reset" } },
  { "token_counts", { "reset" }, kind = "loses" },
  { "token_kept", { "reset" } },
  { "renew_creates", { "reset" }, kind = "loses", keep = 40 },
  { "renew_any", { "reset" }, kind = "loses", keep = 40 },
  { "head_endless", { "kill_worker" } },
  { "head_short", { "stop_worker" }, keep = 40 },
  { "SAME_OWNER", { "reset" } },
  { "CALLERS_OWNER", { "late" }, slow = true },
  { "permit_overdrawn", { "reset" }, kind = "kinds" },
  { "acquire_note_unread", { "cut_reply", "lose_down" }, kind = "kinds", slow = true },
  { "fair_taken", { "reset" }, kind = "kinds" },
  { "writer_joins", { "reset" }, kind = "kinds" },
  { "take_any", { "reset" }, kind = "kinds", id = "take_any-leaders" },
  { "latch_early", { "reset" }, kind = "kinds" },
  { "LATCH_BELIEVES", { "reset" }, kind = "kinds" },
  { "take_any", { "reset" }, kind = "redisson", id = "take_any-redisson" },
  { "ASKING_UNSAID", {}, kind = "slots" },
  { "QUORUM_LESS_ONE", { "reset", "cut_network" }, kind = "network" },
  { "UNCONFIRMED", { "kill_clients" }, kind = "sentinel", keep = 40, slow = true },
}

local options = { seconds = tonumber(os.getenv("HOLDFAST_CHAOS_SECONDS") or 60), from = 1,
  times = 1 }
do
  local at = 1
  while arg[at] do
    local name = arg[at]:match("^%-%-(%a+)$") or usage.fail("unknown option %s", arg[at])
    if name == "mutants" then
      options.mutants = true
    else
      at = at + 1
      options[name] = tonumber(arg[at]) or arg[at] or usage.fail("--%s needs a value", name)
    end
    at = at + 1
  end
end

local function say(...)
  io.stdout:write(string.format(...), "\n")
  io.stdout:flush()
end

-- ---- showing a failure ----

local function concerns(op, problem)
  return op.what == "fault" or op.what == "forget" or not problem.key or op.key == problem.key
end

-- Returns whether this is a claim, or an accepted write, that repeats the owner's last one.
local function repeats(op, last)
  if op.what ~= "claim" and op.what ~= "write" then return false end
  local name = op.what .. op.owner
  local before = last[name]
  last[name] = op
  return before and before.token == op.token and before.holds == op.holds and op.accepted ~= 0
    and math.abs((before.valid or 0) - (op.valid or 0)) < 0.001
end

-- Prints operations that began before the problem and did not end long before it, and a few after
-- it.
local function excerpt(problem, ops)
  local before, after, last = {}, {}, {}
  for _, op in ipairs(ops) do
    local is_marked = op == problem.op or op == problem.other
    if concerns(op, problem) and (is_marked or not repeats(op, last)) then
      if op.start > problem.at then after[#after + 1] = op
      elseif op.stop == math.huge or op.stop > problem.at
        - SHOWN_SECONDS then before[#before + 1] = op end
    end
  end
  local origin = ops[1] and ops[1].start or 0
  local function line(op)
    say("  %s %s", (op == problem.op or op == problem.other) and ">" or " ",
      history.describe(op, origin))
  end
  for i = math.max(1, #before - SHOWN_BEFORE + 1), #before do line(before[i]) end
  for i = 1, math.min(#after, SHOWN_AFTER) do line(after[i]) end
end

local function show(plan, problems, ops)
  say("%s", round.describe(plan))
  for i, problem in ipairs(problems) do
    say("  breaks %s%s: %s", problem.rule, problem.key and " of " .. problem.key or "",
      problem.text)
    if problem.op and i <= 2 then excerpt(problem, ops) end
  end
  say("  again: lua5.4 spec/chaos/run.lua --seed %d --kind %s --times 10%s", plan.seed, plan.kind,
    plan.mutant and " --mutant " .. plan.mutant or "")
end

-- Counts the results, for a line such as "acquire 120 ok, 44 busy; claim 800; ..."
local function tally(counts, ops)
  for _, op in ipairs(ops) do
    local name = (op.theirs and "Redisson's " or "") .. (op.what == "forget" and "fault" or op.what)
    local result = op.result or op.how or op.stop == math.huge and "open" or op.accepted == 0 and "refused"
      or ""
    counts[name] = counts[name] or {}
    counts[name][result] = (counts[name][result] or 0) + 1
  end
end

local function sorted_keys(set)
  local list = {}
  for key in pairs(set) do list[#list + 1] = key end
  table.sort(list)
  return list
end

local function tally_in_words(counts)
  local parts = {}
  for i, what in ipairs(sorted_keys(counts)) do
    local results = {}
    for j, result in ipairs(sorted_keys(counts[what])) do
      results[j] = counts[what][result] .. (result == "" and "" or " " .. result)
    end
    parts[i] = what .. " " .. table.concat(results, ", ")
  end
  return table.concat(parts, "; ")
end

-- ---- runs ----

-- `mutant`: an entry of MUTANTS | nil
local function run(seed, mutant)
  local plan = round.plan(seed, {
    seconds = mutant and MUTANT_ROUND or ROUND, mutant = mutant and mutant[1], faults = mutant
      and mutant[2],
    kind = mutant and (mutant.kind or "one") or options.kind, keep = mutant and mutant.keep,
  })
  local missing = round.missing(plan.kind)
  if missing then error("chaos: " .. missing, 0) end
  local problems, ops = round.run(plan)
  if options.histories and not plan.lossy then
    export.write(("%s/%d-%s"):format(options.histories, seed, plan.kind), ops)
  end
  return problems, ops, plan
end

local function run_for(seconds)
  local begun, seed, counts, failed = sys.now(), options.from, {}, 0
  repeat
    local problems, ops, plan = run(seed)
    seed = seed + 1
    tally(counts, ops)
    if #problems > 0 then
      failed = failed + 1
      show(plan, problems, ops)
    end
  until sys.now() - begun >= seconds
  say("%s", tally_in_words(counts))
  say("%d rounds, %d failed", seed - options.from, failed)
  return failed == 0
end

local function find_mutant(name)
  for _, each in ipairs(MUTANTS) do
    if (each.id or each[1]) == name then return each end
  end
  error("no such mutant: " .. name, 0)
end

local function run_seed()
  local mutant = options.mutant and find_mutant(options.mutant)
  for _ = 1, options.times do
    local problems, ops, plan = run(options.seed, mutant)
    local counts = {}
    tally(counts, ops)
    say("%s\n  %s", round.describe(plan), tally_in_words(counts))
    if #problems > 0 then
      show(plan, problems, ops)
      return false
    end
  end
  return true
end

-- Runs rounds until the mutant is found, and prints the result. → whether it was found
local function hunt(name)
  local mutant, found, tries = find_mutant(name), nil, 0
  while not found and tries < MUTANT_TRIES do
    tries = tries + 1
    found = run(tries, mutant)[1]
  end
  if found and found.rule == "died" then found = nil end
  say("%-18s %s", name, found and ("round %d  %-10s %s"):format(tries, found.rule, found.text)
    or "not found")
  return found ~= nil
end

-- → the mutants that --mutants can hunt here
local function wanted_mutants()
  local list = {}
  for _, each in ipairs(MUTANTS) do
    local name, missing = each.id or each[1], round.missing(each.kind)
    if missing then say("%-18s NOT RUN: %s", name, missing)
    elseif not each.slow then list[#list + 1] = name end
  end
  return list
end

-- Runs several hunts at once, because they mostly sleep. → whether all were found
local function run_mutants()
  local names, running, all, next_one = wanted_mutants(), {}, true, 1
  repeat
    while #running < HUNTS and names[next_one] do
      running[#running + 1] = process.lua { file = "spec/chaos/run.lua",
        args = { "--hunt", names[next_one] } }
      next_one = next_one + 1
    end
    for i = #running, 1, -1 do
      local how, code = running[i]:status()
      if how then
        io.stdout:write(running[i]:output())
        io.stdout:flush()
        all = all and how == "exit" and code == 0
        table.remove(running, i)
      end
    end
    process.sleep(0.05)
  until #running == 0 and not names[next_one]
  return all
end

local function can_run(kind)
  local missing = round.missing(kind)
  if missing then say("%s", missing) end
  return not missing
end

local good
if options.missing then good = can_run(options.missing)
elseif options.mutants then good = run_mutants()
elseif options.hunt then good = hunt(options.hunt)
elseif options.seed then good = run_seed()
else good = run_for(options.seconds) end
os.exit(good and 0 or 1, true)
