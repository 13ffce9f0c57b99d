-- Many items in order, which come and go one by one: in chunks, so that none of this moves or
-- compares all of them.
--
-- An item that is in a list keeps its place: what `before` compares must not change meanwhile.

local sorted = {}

local MOST = 256 -- items of a chunk

-- `before(a, b)`: whether a comes first; of two different items one does.
function sorted.new(before)
  return { before = before, chunks = {}, size = 0 }
end

-- The first place from 1 to `last` for which `reached(place)` holds; last if there is none.
local function first_place(last, reached)
  local low = 1
  while low < last do
    local middle = math.floor((low + last) / 2)
    if reached(middle) then last = middle else low = middle + 1 end
  end
  return low
end

-- Where the item is or would be. → chunk, place in it; none: the list is empty
local function find(list, item)
  local chunks, before = list.chunks, list.before
  if #chunks == 0 then return nil end
  local chunk = first_place(#chunks, function(i) return not before(chunks[i][#chunks[i]], item) end)
  local items = chunks[chunk]
  return chunk, first_place(#items + 1, function(i) return not before(items[i], item) end)
end

local function split(list, chunk)
  local items, behind = list.chunks[chunk], {}
  for i = MOST / 2 + 1, #items do behind[#behind + 1], items[i] = items[i], nil end
  table.insert(list.chunks, chunk + 1, behind)
end

function sorted.insert(list, item)
  local chunk, place = find(list, item)
  list.size = list.size + 1
  if not chunk then
    list.chunks[1] = { item }
    return
  end
  table.insert(list.chunks[chunk], place, item)
  if #list.chunks[chunk] > MOST then split(list, chunk) end
end

-- The item must be in the list.
function sorted.remove(list, item)
  local chunk, place = find(list, item)
  assert(chunk and list.chunks[chunk][place] == item)
  list.size = list.size - 1
  table.remove(list.chunks[chunk], place)
  if #list.chunks[chunk] == 0 then table.remove(list.chunks, chunk) end
end

-- How many items come before this one, which need not be in the list.
function sorted.rank(list, item)
  local chunk, place = find(list, item)
  local rank = (place or 1) - 1
  for i = 1, (chunk or 1) - 1 do rank = rank + #list.chunks[i] end
  return rank
end

-- → a list of at most `most` items, behind the first `skip`
function sorted.slice(list, skip, most)
  local slice = {}
  for _, items in ipairs(list.chunks) do
    for i = skip + 1, math.min(#items, skip + most - #slice) do slice[#slice + 1] = items[i] end
    if #slice == most then break end
    skip = math.max(skip - #items, 0)
  end
  return slice
end

return sorted
