-- A sequence of random calls that is compared with a model: logs its calls, and reports
-- differences. Its classes have `seed`, `random` from random_run.numbers, and `log`, a list.

local random_run = {}
random_run.__index = random_run

-- → a function that returns random numbers from 1 to `most`, the same in every Lua
function random_run.numbers(seed)
  local state = seed * 7919 % 2147483647
  return function(most)
    for _ = 1, 3 do state = state * 16807 % 2147483647 end
    return state % most + 1
  end
end

-- Creates a class with these methods.
function random_run.kind()
  local kind = setmetatable({}, random_run)
  kind.__index = kind
  return kind
end

function random_run:note(format, ...) self.log[#self.log + 1] = format:format(...) end

function random_run:expect(what, got, want)
  if got == want then return end
  error(("seed %d, after\n  %s\n%s is %s, and the model says %s"):format(self.seed,
    table.concat(self.log, "\n  "), what, tostring(got), tostring(want)), 0)
end

return random_run
