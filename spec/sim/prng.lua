-- Pseudo-random numbers that are the same on every machine and under every Lua: two multiplicative
-- congruential generators, combined (L'Ecuyer 1988). Every product stays under 2^53, so doubles and
-- integers agree.

local M1, A1 = 2147483563, 40014
local M2, A2 = 2147483399, 40692
local WARM_UP = 8

local Prng = {}
Prng.__index = Prng

-- seed: an integer from 0 to 2^31
function Prng.new(seed)
  local self = setmetatable({ s1 = seed % (M1 - 1) + 1, s2 = (seed * 7 + 12345) % (M2 - 1) + 1 },
    Prng)
  for _ = 1, WARM_UP do self:next() end
  return self
end

-- An integer from 1 to M1 - 1.
function Prng:next()
  self.s1 = self.s1 * A1 % M1
  self.s2 = self.s2 * A2 % M2
  local z = self.s1 - self.s2
  return z < 1 and z + M1 - 1 or z
end

-- An integer from low to high.
function Prng:range(low, high)
  return low + self:next() % (high - low + 1)
end

-- True in `percent` of 100 cases.
function Prng:chance(percent)
  return self:next() % 100 < percent
end

function Prng:pick(list)
  return list[self:range(1, #list)]
end

return Prng
