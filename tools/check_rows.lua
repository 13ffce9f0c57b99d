-- Rows of mutants whose place is gone: lua5.4 tools/check_rows.lua
--
-- spec/sim/mutants.lua, core_mutants.lua and quick.lua, and tools/mutants_equal.lua. make test
-- leaves such a row out; make check runs this, and prints the function as it is now.

package.path = "./?.lua;" .. package.path
local mutants = require "spec.sim.mutants"
local quick = require "spec.sim.quick"

local problems = mutants.problems()
local function add(list)
  for _, problem in ipairs(list) do problems[#problems + 1] = problem end
end

add(quick.problems(mutants.named()))
local pipe = assert(io.popen("lua5.4 tools/mutants.lua --stale"))
for line in pipe:lines() do add { line } end
assert(pipe:close())

for _, problem in ipairs(problems) do print(problem) end
if #problems > 0 then os.exit(1) end
print "each row of a mutant has its place"
