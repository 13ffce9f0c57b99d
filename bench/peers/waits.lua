-- How long acquires took, as counts in buckets: bucket b is of those from 2^(b/4) microseconds on,
-- 0 of less than that. Every peer of bench/peers prints its counts like this.

local waits = {}
waits.__index = waits

function waits.new() return setmetatable({}, waits) end

function waits:add(seconds)
  local bucket = math.max(0, math.floor(math.log(math.max(seconds * 1e6, 1)) / math.log(2) * 4))
  self[bucket] = (self[bucket] or 0) + 1
end

function waits:text()
  local list = {}
  for bucket, count in pairs(self) do list[#list + 1] = bucket .. ":" .. count end
  return table.concat(list, " ")
end

-- Adds the counts of a line.
function waits:read(text)
  for digits, count in text:gmatch("(%d+):(%d+)") do
    local bucket = tonumber(digits)
    self[bucket] = (self[bucket] or 0) + tonumber(count)
  end
end

-- → the list of { milliseconds, share of the acquires that took less }
function waits:distribution()
  local buckets, total, below, list = {}, 0, 0, {}
  for bucket, count in pairs(self) do
    buckets[#buckets + 1] = bucket
    total = total + count
  end
  table.sort(buckets)
  for _, bucket in ipairs(buckets) do
    below = below + self[bucket]
    list[#list + 1] = { 2 ^ ((bucket + 1) / 4) / 1000, below / total }
  end
  return list
end

-- → milliseconds
function waits:quantile(share)
  for _, point in ipairs(self:distribution()) do
    if point[2] >= share then return point[1] end
  end
  return 0
end

return waits
