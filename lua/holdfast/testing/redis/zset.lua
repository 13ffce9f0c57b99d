-- A Redis sorted set: members in the order of (score, bytes). members[i] has scores[i], which is
-- also score_of[member]. births[member] changes when a member is removed and added again.

local births = 0

local Zset = {}
Zset.__index = Zset

function Zset.new()
  return setmetatable({ members = {}, scores = {}, score_of = {}, births = {}, count = 0 }, Zset)
end

-- Returns the first place whose (score, member) is not before the given one.
local function place(self, score, member)
  local low, high = 1, self.count + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = self.scores[middle]
    if other < score or other == score and self.members[middle] < member then low = middle
      + 1 else high = middle end
  end
  return low
end

-- → 1-based place | nil
function Zset:rank(member)
  local score = self.score_of[member]
  return score and place(self, score, member)
end

-- → whether the member existed
function Zset:remove(member)
  local at = self:rank(member)
  if not at then return false end
  table.remove(self.members, at)
  table.remove(self.scores, at)
  self.score_of[member], self.births[member] = nil, nil
  self.count = self.count - 1
  return true
end

-- → whether the member is new
function Zset:set(member, score)
  local birth = self.births[member]
  self:remove(member)
  local at = place(self, score, member)
  table.insert(self.members, at, member)
  table.insert(self.scores, at, score)
  self.score_of[member] = score
  self.count = self.count + 1
  if not birth then births = births + 1 end
  self.births[member] = birth or births
  return not birth
end

-- Returns the places of the scores in a range. A bound is { value =, open = boolean }.
-- → first, last (last < first if there are none)
function Zset:between(min, max)
  local first, last = 1, self.count
  while first <= last and (self.scores[first] < min.value or min.open
      and self.scores[first] == min.value) do
    first = first + 1
  end
  while last >= first and (self.scores[last] > max.value or max.open
      and self.scores[last] == max.value) do
    last = last - 1
  end
  return first, last
end

return Zset
