-- Events sorted by (time, number): those with equal times keep the order in which they were put in.

local Heap = {}
Heap.__index = Heap

function Heap.new()
  return setmetatable({ size = 0, number = 0 }, Heap)
end

local function is_before(a, b)
  return a.time < b.time or a.time == b.time and a.number < b.number
end

-- event: a table, whose fields `time` and `number` the heap sets
function Heap:put(time, event)
  self.number = self.number + 1
  event.time, event.number = time, self.number
  local at = self.size + 1
  self.size = at
  while at > 1 do
    local parent = (at - at % 2) / 2
    if not is_before(event, self[parent]) then break end
    self[at] = self[parent]
    at = parent
  end
  self[at] = event
end

local function sift_down(self, event)
  local at, size = 1, self.size
  while true do
    local child = 2 * at
    if child > size then break end
    if child < size and is_before(self[child + 1], self[child]) then child = child + 1 end
    if not is_before(self[child], event) then break end
    self[at] = self[child]
    at = child
  end
  self[at] = event
end

-- → the first event | nil
function Heap:take()
  local first = self[1]
  if not first then return nil end
  local last = self[self.size]
  self[self.size] = nil
  self.size = self.size - 1
  if self.size > 0 then sift_down(self, last) end
  return first
end

return Heap
