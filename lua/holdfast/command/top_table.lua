-- The table of `holdfast top`.

local locks = require "holdfast.command.locks"
local observed = require "holdfast.observed"
local output = require "holdfast.command.output"
local screen = require "holdfast.command.screen"
local width = require "holdfast.command.width"

local RIGHT_ALIGNED = { false, false, true, true, true, true }
local HELD, WAITERS, WAIT, TTL = 3, 4, 5, 6
local GAP = 2 -- columns between cells

-- Formats a duration more briefly than the other tables do: 42s, 4m50s, 2h10m.
local function duration(seconds)
  if seconds == math.huge then return "none" end
  return (locks.duration(seconds):gsub(" min", "m"):gsub(" ", ""))
end

local function row(entry, who)
  return {
    output.name(entry.key), locks.holder_text(entry, who),
    duration(entry.held_for), ("%d"):format(entry.waiters), duration(entry.waits),
    duration(entry.ttl),
  }
end

local function column_width(rows, column)
  local max_width = 0
  for _, cells in ipairs(rows) do max_width = math.max(max_width, width.of(cells[column])) end
  return max_width
end

-- Shortens keys and holders so that the rows fit into the terminal. If both columns need more than
-- half of the remaining space, each gets half.
local function shorten_cells(rows, columns)
  local space = columns - GAP
  for column = HELD, TTL do space = space - GAP - column_width(rows, column) end
  space = math.max(space, 2)
  local key_width = math.min(column_width(rows, 1), output.MAX_WIDTH)
  local holder_width = column_width(rows, 2)
  if key_width + holder_width > space then
    holder_width = math.min(holder_width, math.max(math.floor(space / 2), space - key_width))
    key_width = space - holder_width
  end
  for _, cells in ipairs(rows) do
    cells[1] = width.elide_middle(cells[1], key_width)
    cells[2] = width.elide_middle(cells[2], holder_width)
  end
end

-- A lease with less than a third left should have been renewed.
local function colour_of(entry, column)
  if column == TTL then return entry.ttl and entry.ttl < entry.lease / 3 and screen.RED or nil end
  if column ~= WAITERS and column ~= WAIT or entry.waiters == 0 then return nil end
  return (entry.waits or 0) < observed.LONG_WAIT and screen.YELLOW or screen.RED
end

-- `who`: the holders' names, where known; `columns`: the terminal's width, or nil for no limit.
-- → a list of lines
return function(entries, who, columns)
  local rows = { { "KEY", "HOLDER", "HELD", "WAITERS", "WAIT", "TTL" } }
  for i, entry in ipairs(entries) do rows[i + 1] = row(entry, who[i]) end
  if columns then shorten_cells(rows, columns) end
  return output.columns(rows, RIGHT_ALIGNED, function(cell, number, column)
    return screen.paint(cell, number == 1 and screen.BOLD or colour_of(entries[number - 1], column))
  end)
end
