-- Finds the first few of many items, in order, without sorting all of them: a bounded heap.

local sorted = {}

-- heap[1] is the last of the kept items.
local function sift_down(heap, index, size, before)
  while true do
    local last, child = index, 2 * index
    if child <= size and before(heap[last], heap[child]) then last = child end
    if child < size and before(heap[last], heap[child + 1]) then last = child + 1 end
    if last == index then return end
    heap[index], heap[last] = heap[last], heap[index]
    index = last
  end
end

local function sift_up(heap, index, before)
  while index > 1 do
    local parent = math.floor(index / 2)
    if not before(heap[parent], heap[index]) then return end
    heap[index], heap[parent] = heap[parent], heap[index]
    index = parent
  end
end

-- `before(a, b)` returns whether a comes first; of two different items, one must come first.
-- → a list of the first `limit` items of `list`, in order
function sorted.first(list, limit, before)
  local heap, size = {}, 0
  for _, item in ipairs(list) do
    if size < limit then
      size = size + 1
      heap[size] = item
      sift_up(heap, size, before)
    elseif size > 0 and before(item, heap[1]) then
      heap[1] = item
      sift_down(heap, 1, size, before)
    end
  end
  for last = size, 2, -1 do
    heap[1], heap[last] = heap[last], heap[1]
    sift_down(heap, 1, last - 1, before)
  end
  return heap
end

return sorted
