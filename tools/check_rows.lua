-- Finds rows of mutants whose code is gone, and names of mutants that no longer exist: lua5.4
-- tools/check_rows.lua
--
-- Rows are in spec/sim/mutants.lua, spec/sim/core_mutants.lua and spec/mutants/equal.lua. make test
-- skips a row whose code is gone; make check runs this tool, which prints the row's current
-- function.

package.path = "./?.lua;" .. package.path
local mutants = require "spec.sim.mutants"
local quick = require "spec.sim.quick"

local tools = dofile "tools/files.lua"
local report = tools.fail
for _, problem in ipairs(mutants.problems()) do report("%s", problem) end

-- The mutants, indexed by name; mutants of systems are also indexed by kind and name.
local named = {}
for _, list in ipairs(mutants.named()) do
  for _, mutant in ipairs(list) do
    named[mutant.name] = true
    if mutant.kind then named[mutant.kind .. " " .. mutant.name] = true end
  end
end

-- `column`: the field of an entry that contains the name, or nil for a list of names
local function check_names(file, list, column)
  for _, entry in ipairs(list) do
    local name = column and entry[column] or entry
    if type(name) == "string" and not named[name] then report("%s: no mutant is called %s", file, name) end
  end
end

-- Mutants that seeds do not have to find.
local shown = {}
for _, schedule in ipairs(require "spec.sim.schedules") do shown[schedule[3] or ""] = true end
for _, entry in ipairs(require "spec.explore.rare") do shown[entry[1]] = true end
for _, mutant in ipairs(mutants.of_schedules()) do
  if not shown[mutant.name] then report("spec/sim/mutants.lua: nothing shows %s", mutant.name) end
end

check_names("spec/sim/quick.lua", quick.single)
check_names("spec/sim/quick.lua", quick.systems)
check_names("spec/sim/schedules.lua", require "spec.sim.schedules", 3)
check_names("spec/explore/kept.lua", require "spec.explore.kept", 4)
check_names("spec/explore/rare.lua", require "spec.explore.rare", 1)

for _, line in ipairs(tools.lines_of "lua5.4 spec/mutants/run.lua --stale") do report("%s", line) end
tools.finish()
