-- The chaos run's command.
--
--   lua5.4 spec/chaos/run.lua [--seconds S] [--from SEED]   rounds of one seed after the other, for S seconds, 60 unless said
--   lua5.4 spec/chaos/run.lua --seed SEED [--times N]       that round, N times or until it fails
--   lua5.4 spec/chaos/run.lua --defects                     deliberate defects: each must be found
--   lua5.4 spec/chaos/run.lua --seed SEED --defect NAME     one of them
--
-- Started at the root of the project, by lua5.4 or luajit. A broken rule is shown with what happened around it, status 1.
-- HOLDFAST_BUILD: the build directory, ./build. Defects need make sim-defects.

local jit = rawget(_G, "jit")
local build = os.getenv("HOLDFAST_BUILD") or "./build"
package.path = "./?.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = build .. "/" .. (jit and "luajit" or "lua5.4") .. "/?.so;" .. package.cpath

local history = require "spec.chaos.history"
local round = require "spec.chaos.round"
local sys = require "spec.support.sys"

local ROUND = 8          -- seconds of faults
local DEFECT_ROUND = 5
local DEFECT_TRIES = 8
local SHOWN = 40         -- lines
local BEFORE, AFTER = 2.5, 0.2

-- csrc/core/defects.h
local DEFECTS = {
  "NO_VALIDITY", "LEASE_FROM_REPLY", "GRANT_UNBOUND", "STALE_GRANT", "NO_UNDO", "NO_END_OF_WAIT", "LOSS_IGNORED",
  "RENEWAL_AFTER", "COUNT_TWICE", "NO_LOGOUT",
}

local options = { seconds = tonumber(os.getenv("HOLDFAST_CHAOS_SECONDS") or 60), from = 1, times = 1 }
do
  local at = 1
  while arg[at] do
    local name = arg[at]:match("^%-%-(%a+)$") or error("unknown option " .. arg[at], 0)
    if name == "defects" then
      options.defects = true
    else
      at = at + 1
      options[name] = tonumber(arg[at]) or arg[at] or error("--" .. name .. " needs a value", 0)
    end
    at = at + 1
  end
end

local function say(...)
  io.stdout:write(string.format(...), "\n")
  io.stdout:flush()
end

-- ---- what is shown of a failure ----

local function is_near(op, problem)
  local concerns = op.what == "fault" or op.what == "forget" or not problem.key or op.key == problem.key
  local begun = op.start <= problem.at + AFTER
  return concerns and begun and (op.stop >= problem.at - BEFORE and op.stop < math.huge or op.start >= problem.at - BEFORE)
end

local function excerpt(problem, ops)
  local near = {}
  for _, op in ipairs(ops) do
    if is_near(op, problem) then near[#near + 1] = op end
  end
  local origin = ops[1] and ops[1].start or 0
  for i = math.max(1, #near - SHOWN + 1), #near do
    local mark = (near[i] == problem.op or near[i] == problem.other) and ">" or " "
    say("  %s %s", mark, history.describe(near[i], origin))
  end
end

local function show(plan, problems, ops)
  say("%s", round.describe(plan))
  for i, problem in ipairs(problems) do
    say("  breaks %s%s: %s", problem.rule, problem.key and " of " .. problem.key or "", problem.text)
    if problem.op and i <= 2 then excerpt(problem, ops) end
  end
  say("  again: lua5.4 spec/chaos/run.lua --seed %d --times 10%s", plan.seed,
    plan.defect and " --defect " .. plan.defect or "")
end

-- ---- runs ----

local function run(seed, seconds, defect)
  local plan = round.plan(seed, { seconds = seconds, defect = defect })
  local problems, ops = round.run(plan)
  return problems, ops, plan
end

local function run_for(seconds)
  local begun, seed, count, failed = sys.now(), options.from, 0, 0
  repeat
    local problems, ops, plan = run(seed, ROUND)
    count, seed = count + #ops, seed + 1
    if #problems > 0 then
      failed = failed + 1
      show(plan, problems, ops)
    end
  until sys.now() - begun >= seconds
  say("%d rounds, %d operations and claims, %d rounds failed", seed - options.from, count, failed)
  return failed == 0
end

local function run_seed()
  for _ = 1, options.times do
    local problems, ops, plan = run(options.seed, options.defect and DEFECT_ROUND or ROUND, options.defect)
    say("%s: %d operations and claims, %d faults", round.describe(plan), #ops, 0)
    if #problems > 0 then
      show(plan, problems, ops)
      return false
    end
  end
  return true
end

-- → whether all were found
local function run_defects()
  local all = true
  for _, name in ipairs(DEFECTS) do
    local found, tries = nil, 0
    while not found and tries < DEFECT_TRIES do
      tries = tries + 1
      local problems = run(tries, DEFECT_ROUND, name)
      found = problems[1]
    end
    all = all and found ~= nil
    say("%-18s %s", name, found and ("round %d  %-10s %s"):format(tries, found.rule, found.text) or "not found")
  end
  return all
end

local good
if options.defects then good = run_defects()
elseif options.seed then good = run_seed()
else good = run_for(options.seconds) end
os.exit(good and 0 or 1, true)
