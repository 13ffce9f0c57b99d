-- Searches the small worlds of worlds.lua.
--
--   luajit spec/explore/run.lua                    all of them, in each order with one departure
--   luajit spec/explore/run.lua ... --bound N      ...with at most N
--   luajit spec/explore/run.lua ... --seconds S    ...goes on with one more each time until S
--                                                  seconds are over
--   luajit spec/explore/run.lua ... --only TEXT    those whose rows have the text
--   luajit spec/explore/run.lua ... --calm         those without a fault
--   luajit spec/explore/run.lua ... --row ROW      this one
--   luajit spec/explore/run.lua ... --part I/N     every Nth of them
--   luajit spec/explore/run.lua ... --mutant NAME  with a mutant of spec/sim/mutants.lua
--   luajit spec/explore/run.lua --kept             the paths of kept.lua
--   luajit spec/explore/run.lua --rare             the mutants of rare.lua, each in its world
--
-- Started at the root of the project, by luajit or lua5.4. A broken rule is shown with the shortest
-- path that breaks it and its trace, status 1. HOLDFAST_BUILD: the build directory, ./build.
-- Mutants need make sim-mutants, and so do worlds in which processes prove that others are dead:
-- only --rare, --mutant and --row search these.

local jit = rawget(_G, "jit")
local build = os.getenv("HOLDFAST_BUILD") or "./build"
local flavour = jit and "luajit" or "lua5.4"
if jit then require("jit.opt").start("hotloop=500", "hotexit=200") end
collectgarbage("setpause", 400)

package.path = "./?.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
local usage = require "spec.support.usage"

local OPTIONS = {
  ["--bound"] = "number", ["--seconds"] = "number", ["--only"] = "text", ["--row"] = "text",
  ["--part"] = "text", ["--mutant"] = "text", ["--calm"] = "flag", ["--kept"] = "flag", ["--rare"] = "flag",
}

local function parse(args)
  local options, at = {}, 1
  while args[at] do
    local kind = OPTIONS[args[at]] or usage.fail("unknown option %s", args[at])
    local name, value = args[at]:sub(3), true
    if kind ~= "flag" then
      at = at + 1
      value = kind == "number" and tonumber(args[at]) or kind == "text" and args[at]
    end
    options[name] = value or usage.fail("--%s needs a %s", name, kind)
    at = at + 1
  end
  return options
end

-- Returns whether only the build of make sim-mutants can run the world.
local function proves_deaths(row) return row:find(" proves", 1, true) ~= nil end

usage.help(arg)
local options = parse(arg)
local with_mutants = options.mutant or options.kept or options.rare
  or options.row and proves_deaths(options.row)
package.cpath = build .. "/" .. flavour .. "/?.so;" .. package.cpath
if with_mutants then package.cpath = build .. "/sim/" .. flavour .. "/?.so;" .. package.cpath end

local mutants = require "spec.sim.mutants"
local path = require "spec.explore.path"
local search = require "spec.explore.search"
local world = require "spec.explore.world"

local function say(...) io.stdout:write(string.format(...), "\n") end

local function turn_on(name)
  return mutants.turn_on(name and (mutants.find(name) or error("no mutant is called " .. name, 0)))
end

local function made_of(row)
  local ok, made = pcall(world.of, row)
  return ok and made or error(row .. ": " .. made, 0)
end

-- Shows what breaks a rule, as kept.lua can keep it, with its trace.
local function show(row, made, result, settings)
  say("%s breaks %s: %s", made.name, result.found.rule, result.found.text)
  say("  { %q,\n    %q,\n    {", result.found.text, row)
  for _, text in ipairs(path.in_words(result.departures, made)) do say("      %q,", text) end
  say("    } },")
  settings.trace = function(time, text) say("    %10.3f ms  %s", time / 1e3, text) end
  search.run(made, result.departures, nil, settings)
  settings.trace = nil
end

-- ---- all worlds ----

local function is_chosen(row, number)
  if proves_deaths(row) and not with_mutants then return false end
  local part, parts = (options.part or "1/1"):match "^(%d+)/(%d+)$"
  if options.calm and row:find("|", 1, true) then return false end
  return (not options.only or row:find(options.only, 1, true) ~= nil)
    and number % tonumber(parts) == tonumber(part) % tonumber(parts)
end

local function chosen_rows()
  local rows = {}
  for number, row in ipairs(options.row and { options.row } or require "spec.explore.worlds") do
    if is_chosen(row, number) then rows[#rows + 1] = row end
  end
  return rows
end

local function is_time_over() return options.seconds and os.clock() > options.seconds end

local function say_world(made, result, seconds)
  say("%-44s %d%s departures  %6d paths %7d states %6.2f s", made.name, result.bound,
    result.complete and ", all," or "", result.paths, result.states, seconds)
end

-- Searches all with this bound. → whether each is done and no rule is broken, paths, states
local function search_all(rows, bound, settings)
  local paths, states, complete = 0, 0, 0
  for _, row in ipairs(rows) do
    local made, began = made_of(row), os.clock()
    local result = search.world(made, bound, settings, is_time_over)
    paths, states = paths + result.paths, states + result.states
    say_world(made, result, os.clock() - began)
    if result.found then
      show(row, made, result, settings)
      return false, paths, states
    end
    if is_time_over() then break end
    complete = complete + 1
  end
  say("%d of %d worlds with %d departures, %d paths, %d states, %.1f s", complete, #rows, bound,
    paths, states, os.clock())
  return true, paths, states
end

-- → whether no rule is broken
local function deepen(rows, settings)
  local bound = options.bound or 1
  local good = search_all(rows, bound, settings)
  while good and options.seconds and not is_time_over() do
    bound = bound + 1
    good = search_all(rows, bound, settings)
  end
  return good
end

-- ---- paths that are kept ----

-- The programs in which the text stands, with another one in its place.
local function programs_with(text, other)
  local patched = {}
  for name, program in pairs(require "spec.sim.programs") do
    local from, to = program:find(text, 1, true)
    if from then patched[name] = program:sub(1, from - 1) .. other .. program:sub(to + 1) end
  end
  assert(next(patched), "no program has the text " .. text)
  return { patched = patched }
end

-- → what is wrong | nil
local function kept_problem(entry, mutant)
  local made = made_of(entry[2])
  local departures = path.of(entry[3], made)
  local settings = turn_on(type(mutant) == "string" and mutant or nil)
  if type(mutant) == "table" then settings = programs_with(mutant[1], mutant[2]) end
  local result, order = search.run(made, departures, nil, settings)
  local found = result.found and ("%s: %s"):format(result.found.rule, result.found.text)
  if not mutant then
    if found then return found end
    return order.done < #departures and "it does not happen any more" or nil
  end
  return not found and "it does not show its mutant" or nil
end

local function run_kept()
  local kept, failed = require "spec.explore.kept", 0
  for _, entry in ipairs(kept) do
    local mutant = entry[4]
    -- make check reports a mutant that has no place any more
    if type(mutant) == "string" and not mutants.find(mutant) then mutant = nil end
    local problem = kept_problem(entry) or mutant and kept_problem(entry, mutant)
    if problem then
      failed = failed + 1
      say("%s: %s", entry[1], problem)
    end
  end
  say("%d kept paths, %d failed", #kept, failed)
  return failed == 0
end

-- ---- mutants ----

local function row_called(name)
  for _, row in ipairs(require "spec.explore.worlds") do
    if row:sub(1, #name + 1) == name .. ":" then return row end
  end
  error("no world is called " .. name, 0)
end

-- Searches the worlds that are left out without mutants. → whether no rule is broken
local function search_proving()
  local rows = {}
  for _, row in ipairs(require "spec.explore.worlds") do
    if proves_deaths(row) then rows[#rows + 1] = row end
  end
  return (search_all(rows, 1, turn_on(nil)))
end

local function run_rare()
  if not search_proving() then return false end
  local missed, all = 0, 0
  for _, entry in ipairs(require "spec.explore.rare") do
    local made, began = made_of(row_called(entry[2])), os.clock()
    local result = search.world(made, entry[3] or 1, turn_on(entry[1]))
    say("%-22s %-10s %6d paths %6.2f s  %s", entry[1], result.found and result.found.rule
      or "not found", result.paths, os.clock() - began, made.name)
    missed, all = missed + (result.found and 0 or 1), all + 1
  end
  say("%d of %d mutants, %.1f s", all - missed, all, os.clock())
  return missed == 0
end

local good
if options.kept then
  good = run_kept()
elseif options.rare then
  good = run_rare()
else
  good = deepen(chosen_rows(), turn_on(options.mutant))
end
os.exit(good and 0 or 1)
