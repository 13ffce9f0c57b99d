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
  local maximum = 0
  for _, cells in ipairs(rows) do maximum = math.max(maximum, width.of(cells[column])) end
  return maximum
end

-- Shortens keys and holders so that the rows fit into the terminal. Neither column gets more than
-- half of the remaining space if the other needs its half.
local function shorten_cells(rows, columns)
  local left = columns - GAP
  for column = HELD, TTL do left = left - GAP - column_width(rows, column) end
  left = math.max(left, 2)
  local key, holder = math.min(column_width(rows, 1), output.MAX_WIDTH), column_width(rows, 2)
  if key + holder > left then
    holder = math.min(holder, math.max(math.floor(left / 2), left - key))
    key = left - holder
  end
  for _, cells in ipairs(rows) do
    cells[1], cells[2] = width.elide_middle(cells[1], key), width.elide_middle(cells[2], holder)
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
