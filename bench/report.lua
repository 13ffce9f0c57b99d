-- What the benches share: medians, and a row for each figure with its bar.

local report = {}

function report.median(values)
  table.sort(values)
  local middle = math.floor(#values / 2)
  if #values % 2 == 1 then return values[middle + 1] end
  return (values[middle] + values[middle + 1]) / 2
end

-- relation: "<=", ">=", or nil for a figure without a bar
function report.row(name, value, format, relation, bar)
  local verdict = ""
  if relation == "<=" then verdict = value <= bar and "pass" or "miss" end
  if relation == ">=" then verdict = value >= bar and "pass" or "miss" end
  local limit = relation and relation .. " " .. bar or ""
  print(("%-58s %10s  %-8s %s"):format(name, format:format(value), limit, verdict))
  io.stdout:flush()
end

local GROWTH_MAX = 1.02 -- times the figure of the last release

-- Reports a figure beside that of the last release. bench/run repeats the rows that end with
-- "grown".
function report.growth(name, before, now)
  print(("%-58s %10.0f  %8.3f %s"):format(name, now, now / before, now > before * GROWTH_MAX and "grown" or ""))
  io.stdout:flush()
end

function report.note(text)
  print("-- " .. text)
end

return report
