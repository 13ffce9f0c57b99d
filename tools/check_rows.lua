-- Finds rows of mutants whose place is gone, and names of mutants that no longer exist: lua5.4
-- tools/check_rows.lua
--
-- Rows are in spec/sim/mutants.lua, spec/sim/core_mutants.lua and spec/mutants/equal.lua. make test
-- leaves out a row without a place; make check runs this tool, which prints the row's function as
-- it is now.

package.path = "./?.lua;" .. package.path
local mutants = require "spec.sim.mutants"
local quick = require "spec.sim.quick"

local problems = mutants.problems()
local function report(...) problems[#problems + 1] = string.format(...) end

-- By name, and those of systems also with their kind.
local named = {}
for _, list in ipairs(mutants.named()) do
  for _, mutant in ipairs(list) do
    named[mutant.name] = true
    if mutant.kind then named[mutant.kind .. " " .. mutant.name] = true end
  end
end

local function check_names(file, list, name_of)
  for _, entry in ipairs(list) do
    local name = name_of(entry)
    if type(name) == "string" and not named[name] then report("%s: no mutant is called %s", file, name) end
  end
end

-- Mutants that no seed needs to find.
local shown = {}
for _, schedule in ipairs(require "spec.sim.schedules") do shown[schedule[3] or ""] = true end
for _, entry in ipairs(require "spec.explore.rare") do shown[entry[1]] = true end
for _, mutant in ipairs(mutants.of_schedules()) do
  if not shown[mutant.name] then report("spec/sim/mutants.lua: nothing shows %s", mutant.name) end
end

local function itself(name) return name end
check_names("spec/sim/quick.lua", quick.single, itself)
check_names("spec/sim/quick.lua", quick.systems, itself)
check_names("spec/sim/schedules.lua", require "spec.sim.schedules",
  function(schedule) return schedule[3] end)
check_names("spec/explore/kept.lua", require "spec.explore.kept",
  function(entry) return entry[4] end)
check_names("spec/explore/rare.lua", require "spec.explore.rare",
  function(entry) return entry[1] end)

local pipe = assert(io.popen "lua5.4 spec/mutants/run.lua --stale")
for line in pipe:lines() do report("%s", line) end
assert(pipe:close())

for _, problem in ipairs(problems) do print(problem) end
if #problems > 0 then os.exit(1) end
print "each row of a mutant has its place"
