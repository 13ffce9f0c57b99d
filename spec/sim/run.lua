-- The simulator's command.
--
--   lua5.4 spec/sim/run.lua [--from S] [--seeds N]         runs the schedules of N seeds, 1000 unless said
--   lua5.4 spec/sim/run.lua ... --first                    stops at the first seed that breaks a rule
--   lua5.4 spec/sim/run.lua --seed S --trace               shows one as it happens
--   lua5.4 spec/sim/run.lua ... --quorum             those of N seeds that stand for a quorum
--   lua5.4 spec/sim/run.lua ... --defect NAME              with a deliberate defect (spec/sim/defects.lua)
--   lua5.4 spec/sim/run.lua --defects [--seeds N]          how many seeds it takes to find each of them
--   lua5.4 spec/sim/run.lua --kept                         the seeds of spec/sim/seeds.lua
--
-- Started at the root of the project, by lua5.4 or luajit. The last line tells how many schedules there were, their
-- rate, and a hash of all that happened in them; a broken rule is shown with a small schedule and its trace, status 1.
-- HOLDFAST_BUILD: the build directory, ./build. Defects of the core need make sim-defects.

local jit = rawget(_G, "jit")
local build = os.getenv("HOLDFAST_BUILD") or "./build"
local flavour = jit and "luajit" or "lua5.4"

-- One process runs many short schedules through the same code, of which little is worth a trace.
if jit then require("jit.opt").start("hotloop=500", "hotexit=200") end
collectgarbage("setpause", 400)

local OPTIONS = { ["--from"] = "number", ["--seeds"] = "number", ["--seed"] = "number", ["--trace"] = "flag",
  ["--first"] = "flag", ["--defect"] = "text", ["--defects"] = "flag", ["--kept"] = "flag",
  ["--quorum"] = "flag" }

local function parse(args)
  local options, at = {}, 1
  while args[at] do
    local kind = OPTIONS[args[at]] or error("unknown option " .. args[at], 0)
    local name = args[at]:sub(3)
    if kind == "flag" then
      options[name] = true
    else
      at = at + 1
      local value = kind == "number" and tonumber(args[at]) or kind == "text" and args[at]
      options[name] = value or error("--" .. name .. " needs a " .. kind, 0)
    end
    at = at + 1
  end
  return options
end

local options = parse(arg)
package.path = "./?.lua;" .. package.path
local with_defects = options.defect or options.defects
package.cpath = build .. (with_defects and "/sim/" or "/") .. flavour .. "/?.so;" .. package.cpath

local defects = require "spec.sim.defects"
local minimise = require "spec.sim.minimise"
local plans = require "spec.sim.plan"
local simulator = require "spec.sim.simulator"

local defect = options.defect and (defects.find(options.defect) or error("no defect is called " .. options.defect, 0))
local settings = with_defects and defects.turn_on(defect) or {}

local function say(...)
  io.stdout:write(string.format(...), "\n")
end

local function trace(plan)
  for _, line in ipairs(plans.describe(plan)) do say("    %s", line) end
  return simulator.run(plan, {
    patched = settings.patched,
    tell = function(time, text) say("    %11.6f  %s", time / 1e6, text) end,
  })
end

local function show(seed, plan, found)
  say("seed %d breaks %s at %.6f s: %s", seed, found.rule, found.time / 1e6, found.text)
  say("  the smallest schedule that does:")
  trace(minimise.plan(plan, found.rule, settings))
end

local function run_one(seed, plan_of)
  return simulator.run((plan_of or plans.of)(seed), settings)
end

local function summary(count, events, hash, failed, started)
  local took = os.clock() - started
  say("%d schedules, %d failed, %.0f events each, %.0f a second, trace hash %08x", count, failed, events / count,
    count / math.max(took, 0.001), hash)
end

local SHOWN = 3

-- plan_of: what the seeds stand for
local function run_all(seeds, plan_of)
  local events, hash, failed, started = 0, 0, 0, os.clock()
  for _, seed in ipairs(seeds) do
    local result = run_one(seed, plan_of)
    events, hash = events + result.events, (hash * 31 + result.hash) % 2147483647
    if result.found then
      failed = failed + 1
      if failed <= SHOWN then show(seed, plan_of(seed), result.found) end
      if options.first then break end
    end
  end
  summary(#seeds, events, hash, failed, started)
  return failed == 0
end

local function range(from, count)
  local list = {}
  for seed = from, from + count - 1 do
    if not options.quorum or plans.is_quorum(seed) then list[#list + 1] = seed end
  end
  return list
end

-- Runs seeds until one breaks a rule. → seed, what was found | nil
local function find(from, count)
  for _, seed in ipairs(range(from, count)) do
    local found = run_one(seed).found
    if found then return seed, found end
  end
end

-- → whether all defects were found
local function table_of_defects(from, count)
  local all = true
  for _, entry in ipairs(defects.list()) do
    settings = defects.turn_on(entry)
    local seed, found = find(from, count)
    all = all and seed ~= nil
    say("%-20s %9s  %-10s %s", entry.name, seed and seed - from + 1 or "not found", found and found.rule or "",
      entry.about)
  end
  return all
end

local function hunt(from, count)
  local seed, found = find(from, count)
  if not seed then return false end
  show(seed, plans.of(seed), found)
  return true
end

local from, count = options.seed or options.from or 1, options.seed and 1 or options.seeds or 1000
local good
if options.defects then
  good = table_of_defects(from, count)
elseif options.trace then
  good = not trace(plans.of(from)).found
elseif defect then
  good = hunt(from, count)
elseif options.kept then
  local kept = require "spec.sim.seeds"
  good = run_all(kept.base, plans.base)
  good = run_all(kept.whole, plans.of) and good
else
  good = run_all(range(from, count), plans.of)
end
os.exit(good and 0 or 1)
