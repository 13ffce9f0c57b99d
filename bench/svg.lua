-- Plots as SVG: lines over an axis, and bars.

local svg = {}

local WIDTH, HEIGHT = 720, 360
local LEFT, RIGHT, TOP, BOTTOM = 72, 170, 36, 48
local COLOURS = { "#0b5394", "#cc4125", "#38761d", "#b45f06", "#674ea7", "#0c7c83", "#7f6000" }
local DASHES = { "none", "6 3", "2 3", "8 3 2 3", "none", "6 3", "2 3" }

local function escape(text)
  return (text:gsub("[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" }))
end

local function text(x, y, content, more)
  return ('<text x="%.1f" y="%.1f" %s>%s</text>'):format(x, y, more or "", escape(content))
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

-- → a function: value → place; the values to be marked
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

local function open(title, x_label, y_label)
  return {
    ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">')
      :format(WIDTH, HEIGHT),
    ('<title>%s</title><rect width="100%%" height="100%%" fill="#fff"/>'):format(escape(title)),
    text(LEFT, 20, title, 'font-size="14" font-weight="bold"'),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, 'text-anchor="middle"'),
    text(16, (TOP + HEIGHT - BOTTOM) / 2, y_label,
      ('text-anchor="middle" transform="rotate(-90 16 %d)"'):format((TOP + HEIGHT - BOTTOM) / 2)),
  }
end

local function line(x1, y1, x2, y2, colour)
  return ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>'):format(x1, y1, x2, y2,
    colour)
end

local function frame(lines, x_of, x_marks, y_of, y_marks, x_text)
  for _, value in ipairs(y_marks) do
    lines[#lines + 1] = line(LEFT, y_of(value), WIDTH - RIGHT, y_of(value), "#ddd")
    lines[#lines + 1] = text(LEFT - 6, y_of(value) + 4, short(value), 'text-anchor="end"')
  end
  for _, value in ipairs(x_marks) do
    lines[#lines + 1] = line(x_of(value), HEIGHT - BOTTOM, x_of(value), HEIGHT - BOTTOM + 4, "#555")
    lines[#lines + 1] = text(x_of(value), HEIGHT - BOTTOM + 18, (x_text or short)(value),
      'text-anchor="middle"')
  end
  lines[#lines + 1] = line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#555")
end

local function legend(lines, names)
  for i, name in ipairs(names) do
    local y = TOP + 18 * (i - 1) + 6
    lines[#lines + 1] = ('<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>')
      :format(WIDTH - RIGHT + 12, y, WIDTH - RIGHT + 40, y, COLOURS[i], DASHES[i])
    lines[#lines + 1] = text(WIDTH - RIGHT + 46, y + 4, name)
  end
end

local function close(lines)
  lines[#lines + 1] = "</svg>\n"
  return table.concat(lines, "\n")
end

-- lines{ title, x_label, y_label, x_log, y_log, x_from, x_to, y_from, y_to, x_marks,
--   series = { { name, points = { { x, y }, … } }, … } }
function svg.lines(plot)
  local lines, names = open(plot.title, plot.x_label, plot.y_label), {}
  local x_of, x_marks = axis(plot.x_from, plot.x_to, plot.x_log, LEFT, WIDTH - RIGHT)
  local y_of, y_marks = axis(plot.y_from, plot.y_to, plot.y_log, HEIGHT - BOTTOM, TOP)
  frame(lines, x_of, plot.x_marks or x_marks, y_of, y_marks)
  for i, series in ipairs(plot.series) do
    local points = {}
    for j, point in ipairs(series.points) do
      points[j] = ("%.1f,%.1f"):format(x_of(math.min(point[1], plot.x_to)), y_of(point[2]))
    end
    names[i] = series.name
    lines[#lines + 1] = ('<polyline fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s" points="%s"/>')
      :format(COLOURS[i], DASHES[i], table.concat(points, " "))
  end
  legend(lines, names)
  return close(lines)
end

-- bars{ title, x_label, y_label, y_to, groups = { "2", … }, series = { { name, values = { … } }, …
-- } }
function svg.bars(plot)
  local lines, names = open(plot.title, plot.x_label, plot.y_label), {}
  local width = (WIDTH - LEFT - RIGHT) / #plot.groups
  local y_of, y_marks = axis(0, plot.y_to, false, HEIGHT - BOTTOM, TOP)
  local marks = {}
  for i in ipairs(plot.groups) do marks[i] = i end
  frame(lines, function(i) return LEFT + (i - 0.5) * width end, marks, y_of, y_marks,
    function(i) return plot.groups[i] end)
  local bar = width * 0.84 / #plot.series
  for i, series in ipairs(plot.series) do
    names[i] = series.name
    for j, value in ipairs(series.values) do
      local x = LEFT + (j - 1) * width + width * 0.08 + (i - 1) * bar
      lines[#lines + 1] = ('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s: %s</title></rect>')
        :format(x, y_of(value), bar * 0.9, HEIGHT - BOTTOM - y_of(value), COLOURS[i],
          escape(series.name), short(value))
    end
  end
  legend(lines, names)
  return close(lines)
end

return svg
