-- A Redis sorted set: members ordered by score, then byte by byte. The score of members[i] is
-- scores[i], and also score_of[members[i]]. insertion_ids[member] is unique to each insertion: it
-- changes when a member is removed and added again.

local last_insertion_id = 0

local Zset = {}
Zset.__index = Zset

function Zset.new()
  local self = { members = {}, scores = {}, score_of = {}, insertion_ids = {}, count = 0 }
  return setmetatable(self, Zset)
end

-- Returns the index of the first member that does not sort before (score, member).
local function lower_bound(self, score, member)
  local low, high = 1, self.count + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = self.scores[middle]
    if other < score or other == score and self.members[middle] < member then low = middle
      + 1 else high = middle end
  end
  return low
end

-- → 1-based index | nil
function Zset:rank(member)
  local score = self.score_of[member]
  return score and lower_bound(self, score, member)
end

-- → whether the member existed
function Zset:remove(member)
  local rank = self:rank(member)
  if not rank then return false end
  table.remove(self.members, rank)
  table.remove(self.scores, rank)
  self.score_of[member], self.insertion_ids[member] = nil, nil
  self.count = self.count - 1
  return true
end

-- → whether the member is new
function Zset:set(member, score)
  local id = self.insertion_ids[member]
  self:remove(member)
  local rank = lower_bound(self, score, member)
  table.insert(self.members, rank, member)
  table.insert(self.scores, rank, score)
  self.score_of[member] = score
  self.count = self.count + 1
  if not id then last_insertion_id = last_insertion_id + 1 end
  self.insertion_ids[member] = id or last_insertion_id
  return not id
end

-- Returns the range of indexes whose scores lie between two bounds. A bound is { value = number,
-- open = boolean }; an open bound is exclusive.
-- → first, last (last < first if no score is between them)
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
