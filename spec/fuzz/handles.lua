-- Random calls through many handles.
--
-- Two clients with up to three callers each acquire and release through many handles of a few
-- locks, on one small Redis or a quorum of three, in this process. The seed draws everything.
--
--   luajit spec/fuzz/handles.lua [--from S] [--seeds N]  the runs of N seeds, 400 unless given
--   luajit spec/fuzz/handles.lua ... --seconds T         ...or as many as begin in T seconds
--   luajit spec/fuzz/handles.lua --seed S [--trace]      one, as it happens
--
-- Rules:
--
--   gone       a caller's hold does not end without a loss while its handles count entries
--   exclusion  no two callers hold an exclusive lock by their own clocks
--   bytes      a client sends whole commands over each connection
--   end        without faults, every operation ends, and a closed client comes to rest
--   left       then nothing is left on the servers that a lease does not explain
--   error      no call and no finalizer raises an error
--
-- handles_rules.lua has those about holds. Without MALLOC_PERTURB_=165 the rule "bytes" may miss
-- memory that was freed. It depends on the addresses that malloc returns; all else repeats exactly.
--
-- Started at the root of the project, by luajit or lua5.4. A broken rule is shown with the seed and
-- the end of a trace, status 1. HOLDFAST_BUILD: the build directory, ./build.

local jit = rawget(_G, "jit")
local build = os.getenv("HOLDFAST_BUILD") or "./build"
if jit then jit.off() end -- full collections would also mark the traces, and take twice as long

package.path = "./?.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = build .. "/" .. (jit and "luajit" or "lua5.4") .. "/?.so;" .. package.cpath

local usage = require "spec.support.usage"
local run = require "spec.fuzz.handles_run"

local NUMBERS = { from = true, seeds = true, seconds = true, seed = true }
local MAX_LINES = 60 -- of a trace that was not requested
local KEPT = { 7013917 } -- seeds that once broke a rule; they are run before the requested ones

local function parse(args)
  local options, at = {}, 1
  while args[at] do
    local name = args[at]:match("^%-%-(%a+)$")
    if name == "trace" then
      options.trace = true
    elseif NUMBERS[name] then
      at = at + 1
      options[name] = tonumber(args[at]) or usage.fail("--%s needs a number", name)
    else
      usage.fail("unknown option %s", args[at])
    end
    at = at + 1
  end
  return options
end

local function say(...) io.stdout:write(string.format(...), "\n") end

local function print_line(time, text) say("    %9.3f  %s", time, text) end

-- Runs the seed again for the end of its trace.
local function show(seed, found)
  say("seed %d breaks %s: %s", seed, found.rule, found.text)
  local lines = {}
  run(seed, function(time, text) lines[#lines + 1] = { time, text } end)
  for i = math.max(1, #lines - MAX_LINES + 1), #lines do print_line(lines[i][1], lines[i][2]) end
  say("to see all of it: luajit spec/fuzz/handles.lua --seed %d --trace", seed)
end

local function run_seeds(from, count, seconds)
  local started, until_time, done = os.clock(), os.time() + seconds, 0
  while done < count and os.time() < until_time do
    local found = run(from + done)
    done = done + 1
    if found then
      show(from + done - 1, found)
      return false
    end
  end
  say("%d runs from seed %d, %.0f a second, no rule broken", done, from,
    done / math.max(os.clock() - started, 0.001))
  return true
end

usage.help(arg)
local options = parse(arg)
local good
if options.trace then
  local found = run(options.seed or 1, print_line)
  good = not found
  if found then say("breaks %s: %s", found.rule, found.text) end
else
  good = true
  for _, seed in ipairs(options.seed and {} or KEPT) do
    good = run_seeds(seed, 1, math.huge) and good
  end
  good = run_seeds(options.seed or options.from or 1, options.seed and 1 or options.seeds
    or options.seconds and math.huge or 400, options.seconds or math.huge) and good
end
os.exit(good and 0 or 1)
