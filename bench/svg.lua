-- Plots as SVG: lines over an axis, with the name of each line at its end. The first line is
-- thick: the plot is about it. The background is transparent, and the colours follow the page,
-- light or dark. At the width of a phone the text is still some 10 px high.

local svg = {}

local WIDTH, HEIGHT = 480, 330
local LEFT, RIGHT, TOP, BOTTOM = 44, 136, 38, 40
local LINE_HEIGHT = 15
local LIGHT = { "#0550ae", "#a04100", "#6639ba", "#116329", "#a8286e", "#57606a", "#7d4e00", "#0b6e7a" }
local DARK = { "#6cb6ff", "#f0883e", "#c4a5ff", "#6bc46d", "#ff8fc7", "#b6c2cf", "#e3b341", "#56d4dd" }
local DASHES = { "none", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4", "4 4" }

local function colours(list)
  local rules = {}
  for i, colour in ipairs(list) do
    rules[i] = (".s%d { stroke: %s } .n%d { fill: %s }"):format(i, colour, i, colour)
  end
  return table.concat(rules, " ")
end

local STYLE = ([[
<style>
  text { font: 13px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328 }
  .title, .n1 { font-weight: 600 } .title { font-size: 14px }
  polyline { fill: none; stroke-width: 1.5; stroke-linejoin: round } polyline.s1 { stroke-width: 4 }
  .grid { stroke: #d1d9e0 } .axis { stroke: #59636e } .lead { stroke-width: 1 }
  %s
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .grid { stroke: #3d444d } .axis { stroke: #b1bac4 }
    %s
  }
</style>]]):format(colours(LIGHT), colours(DARK))

local function escape(text)
  return (text:gsub("[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" }))
end

local function text(x, y, content, class, anchor)
  return ('<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>'):format(x, y, class,
    anchor or "start", escape(content))
end

local function line(x1, y1, x2, y2, class)
  return ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>'):format(x1, y1, x2, y2, class)
end

local function short(value)
  if value >= 1000 then return ("%gk"):format(value / 1000) end
  return ("%g"):format(value)
end

-- → 1, 2 or 5 times a power of ten, so that there are about five steps
local function step_of(range)
  local step = 10 ^ math.floor(math.log(range / 5, 10))
  for _, factor in ipairs { 1, 2, 5, 10 } do
    if range / (step * factor) <= 6 then return step * factor end
  end
end

-- → a function: value → position; the values to mark
local function axis(from, to, logarithmic, low, high)
  local marks = {}
  if logarithmic then
    local first, last = math.log(from, 10), math.log(to, 10)
    for power = math.ceil(first - 1e-9), math.floor(last + 1e-9) do
      marks[#marks + 1] = 10 ^ power
    end
    return function(value)
      return low + (math.log(math.max(value, from), 10) - first) / (last - first) * (high - low)
    end, marks
  end
  for value = from, to + 1e-9, step_of(to - from) do marks[#marks + 1] = value end
  return function(value) return low + (value - from) / (to - from) * (high - low) end, marks
end

local function frame(lines, x_of, x_marks, y_of, y_marks)
  for _, value in ipairs(y_marks) do
    lines[#lines + 1] = line(LEFT, y_of(value), WIDTH - RIGHT, y_of(value), "grid")
    lines[#lines + 1] = text(LEFT - 6, y_of(value) + 4, short(value), "mark", "end")
  end
  for _, value in ipairs(x_marks) do
    lines[#lines + 1] = line(x_of(value), HEIGHT - BOTTOM, x_of(value), HEIGHT - BOTTOM + 4, "axis")
    lines[#lines + 1] = text(x_of(value), HEIGHT - BOTTOM + 17, short(value), "mark", "middle")
  end
  lines[#lines + 1] = line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "axis")
end

-- Moves the labels apart, each as near as possible to the end of its line.
local function spread(ends)
  table.sort(ends, function(a, b)
    if a.y ~= b.y then return a.y < b.y end
    return a.number < b.number
  end)
  local lowest = TOP
  for i, each in ipairs(ends) do
    local room = (#ends - i) * LINE_HEIGHT
    each.label_y = math.max(lowest, math.min(each.y, HEIGHT - BOTTOM - room))
    lowest = each.label_y + LINE_HEIGHT
  end
end

local function label(lines, ends)
  spread(ends)
  for _, each in ipairs(ends) do
    local x = WIDTH - RIGHT + 20
    lines[#lines + 1] = line(each.x, each.y, x - 3, each.label_y, "lead s" .. each.number)
    lines[#lines + 1] = text(x, each.label_y + 4, each.name, "n" .. each.number)
  end
end

-- lines{ title (says the unit of y), x_label, x_log, y_log, x_from, x_to, y_from, y_to, x_marks,
--   series = { { name, points = { { x, y }, … } }, … } }: at most eight series
function svg.lines(plot)
  local lines = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">')
      :format(WIDTH, HEIGHT, WIDTH, HEIGHT),
    ("<title>%s</title>"):format(escape(plot.title)),
    STYLE,
    text(4, 18, plot.title, "title"),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, plot.x_label, "mark", "middle"),
  }
  local x_of, x_marks = axis(plot.x_from, plot.x_to, plot.x_log, LEFT, WIDTH - RIGHT)
  local y_of, y_marks = axis(plot.y_from, plot.y_to, plot.y_log, HEIGHT - BOTTOM, TOP)
  frame(lines, x_of, plot.x_marks or x_marks, y_of, y_marks)
  local ends = {}
  for i = #plot.series, 1, -1 do
    local series, points = plot.series[i], {}
    for j, point in ipairs(series.points) do
      local x, y = x_of(math.min(point[1], plot.x_to)), y_of(point[2])
      points[j] = ("%.1f,%.1f"):format(x, y)
      ends[i] = { x = x, y = y, number = i, name = series.name }
    end
    lines[#lines + 1] = ('<polyline class="s%d" stroke-dasharray="%s" points="%s"/>'):format(i,
      assert(DASHES[i], "more series than colours"), table.concat(points, " "))
  end
  label(lines, ends)
  lines[#lines + 1] = "</svg>\n"
  return table.concat(lines, "\n")
end

return svg
