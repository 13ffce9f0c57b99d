-- Searches the small worlds of worlds.lua.
--
--   luajit spec/explore/run.lua [--bound N] [--seconds S]   all worlds, with at most N departures
--                                                        each (1), or until the time is over
--   luajit spec/explore/run.lua ... --only TEXT           those whose names have the text
--   luajit spec/explore/run.lua ... --mutant NAME         with a mutant of spec/sim/mutants.lua
--
-- Started at the root of the project. HOLDFAST_BUILD: the build directory, ./build.

local jit = rawget(_G, "jit")
local build = os.getenv("HOLDFAST_BUILD") or "./build"
local flavour = jit and "luajit" or "lua5.4"
if jit then require("jit.opt").start("hotloop=500", "hotexit=200") end
collectgarbage("setpause", 400)

local NUMBERS = { ["--bound"] = "bound", ["--seconds"] = "seconds" }
local TEXTS = { ["--only"] = "only", ["--mutant"] = "mutant" , ["--row"] = "row" }
local FLAGS = { ["--trace"] = "trace", ["--all"] = "all" }

local function parse(args)
  local options, at = {}, 1
  while args[at] do
    local word = args[at]
    if FLAGS[word] then options[FLAGS[word]] = true
    else
      at = at + 1
      local value = NUMBERS[word] and tonumber(args[at]) or TEXTS[word] and args[at]
      options[NUMBERS[word] or TEXTS[word] or error("unknown option " .. word, 0)] = value
    end
    at = at + 1
  end
  return options
end

local options = parse(arg)
package.path = "./?.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = build .. "/" .. flavour .. "/?.so;" .. package.cpath
if options.mutant then package.cpath = build .. "/sim/" .. flavour .. "/?.so;" .. package.cpath end

local search = require "spec.explore.search"
local world = require "spec.explore.world"
local worlds = options.row and { options.row } or require "spec.explore.worlds"

local settings = {}
if options.mutant then
  local mutants = require "spec.sim.mutants"
  settings = mutants.turn_on(mutants.find(options.mutant))
end

local function say(...)
  io.stdout:write(string.format(...), "\n")
end

local function in_words(departure, made)
  if departure.fault then
    return ("%s before %s"):format(made.faults[departure.fault].text, departure.moment)
  end
  return "delay " .. departure.moment
end

local function show(made, result)
  say("  breaks %s: %s", result.found.rule, result.found.text)
  for _, departure in ipairs(result.departures) do say("    %s", in_words(departure, made)) end
end

local function trace(made, departures)
  local given = { trace = function(time, text) say("    %9.3f ms  %s", time / 1e3, text) end }
  for name, value in pairs(settings) do given[name] = value end
  search.run(made, departures, nil, given)
end

local started, total, broken, all_states = os.clock(), 0, 0, 0
for _, row in ipairs(worlds) do
  local ok, made = pcall(world.of, row)
  if not ok then error(row .. ": " .. made, 0) end
  if not options.only or row:find(options.only, 1, true) then
    local began = os.clock()
    local result = search.world(made, options.bound or 1, settings, options.seconds and function()
      return os.clock() - started > options.seconds
    end)
    total = total + result.paths
    all_states = all_states + result.states
    say("%-40s bound %d%s  %6d paths %6d void %7d states %5.1f events %6.2f s", made.name, result.bound,
      result.complete and " (all)" or "", result.paths, result.void, result.states, result.events / result.paths, os.clock() - began)
    if result.found then
      broken = broken + 1
      show(made, result)
      if options.trace then trace(made, result.departures) end
      if not options.all then break end
    end
  end
end
say("%d paths, %d states, %d worlds broken, %.1f s", total, all_states, broken, os.clock() - started)
os.exit(broken == 0 and 0 or 1)
