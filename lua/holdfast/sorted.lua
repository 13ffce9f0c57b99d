-- Finds the first few of many items, in order, without sorting all of them.

local sorted = {}

-- heap[1] is the last of the kept items.
local function sink(heap, at, size, before)
  while true do
    local last, left = at, 2 * at
    if left <= size and before(heap[last], heap[left]) then last = left end
    if left < size and before(heap[last], heap[left + 1]) then last = left + 1 end
    if last == at then return end
    heap[at], heap[last] = heap[last], heap[at]
    at = last
  end
end

local function rise(heap, at, before)
  while at > 1 do
    local above = math.floor(at / 2)
    if not before(heap[above], heap[at]) then return end
    heap[at], heap[above] = heap[above], heap[at]
    at = above
  end
end

-- `before(a, b)` returns whether a comes first; for two different items either a or b must.
-- → a list of the first `limit` items of `list`, in order
function sorted.first(list, limit, before)
  local heap, size = {}, 0
  for _, item in ipairs(list) do
    if size < limit then
      size = size + 1
      heap[size] = item
      rise(heap, size, before)
    elseif size > 0 and before(item, heap[1]) then
      heap[1] = item
      sink(heap, 1, size, before)
    end
  end
  for last = size, 2, -1 do
    heap[1], heap[last] = heap[last], heap[1]
    sink(heap, 1, last - 1, before)
  end
  return heap
end

return sorted
