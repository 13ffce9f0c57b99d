-- holdfast top: a live view of the locks.
--
-- The keyspace is scanned a few pages at a time and the locks found so far are read again at each
-- poll, so that a large server is not scanned in one go. Hand-offs are seen from outside: one for
-- each change of holder between two polls, so there were at least as many.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local locks = require "holdfast.command.locks"
local observed = require "holdfast.observed"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local locale = require "holdfast.locale"
local pages = require "holdfast.pages"
local process = require "holdfast.process"
local verb = require "holdfast.command.verb"
local width = require "holdfast.command.width"

local top = {}

top.usage = "holdfast top [options] [PATTERN]"
top.summary = "Show locks, holders, waiters and hand-offs: live on a terminal, otherwise just once."

top.of_servers = true
top.options = verb.options(top, {
  { "interval", value = "TIME", check = options.lease, help = "time between refreshes (default: 1s)" },
})
top.examples = {
  "holdfast top                  # all locks; q quits",
  "holdfast top 'jobs:*'         # those whose key begins with jobs:",
  "holdfast top --interval 100ms # more often",
}

local PAGES = 20
local COSTS_ITSELF = { conflict = true, server = true } -- of a key that cannot be read any more
local HEAD = { "KEY", "HOLDER", "HELD", "TTL", "WAITERS", "HAND-OFFS/S" }
local RIGHT = { false, false, true, true, true, true }
local FOOT = "sort by: k key  h hand-offs  w waiters  t time held    q quit"

local SORTS = {
  k = function(a, b) return locale.is_before(a.key, b.key) end,
  h = function(a, b) return a.rate > b.rate end,
  w = function(a, b) return a.waiters > b.waiters end,
  t = function(a, b) return a.since < b.since end,
}

-- ---- what is there ----

local View = {}
View.__index = View

function View:find()
  for _ = 1, PAGES do
    local scan = self.scans[self.turn]
    local found, message, code = scan:next(self.entries)
    if not found then return nil, message, code end
    for _, entry in ipairs(found) do
      local before = self.entries[entry.found_as]
      entry.since = observed.since(entry, before, os.time())
      if not entry.done then self.entries[entry.found_as] = entry end
    end
    if scan.ended then self.turn = self.turn % #self.scans + 1 end
    if scan.ended and self.turn == 1 then break end
  end
  return true
end

-- What the scan has found in this poll was read just now.
function View:read_one(name, before, now)
  local entry, message, code = before, nil, nil
  if before.at then
    entry, message, code = locks.read(self.client, before.key, before.kind)
  end
  if not entry or not entry.held then return entry and false, message, code end
  entry.found_as, entry.at = name, now
  entry.since = observed.since(entry, before, os.time())
  local span = before.at and now - before.at or 0
  entry.rate = span > 0 and observed.handed_over(before, entry) / span or 0
  return entry
end

-- Polls the server once. → true | nil, message, code
function View:poll()
  local ok, message, code = self:find()
  if not ok then return nil, message, code end
  local now, list = core.now(), {}
  for name, before in pairs(self.entries) do
    local entry
    entry, message, code = self:read_one(name, before, now)
    if entry == nil and not COSTS_ITSELF[code] and not pages.is_too_large(message, code) then
      return nil, message, code
    end
    self.entries[name] = entry or nil
    list[#list + 1] = entry or nil
  end
  self.list, self.names = list, locks.names(self.client)
  return true
end

-- ---- how it looks ----

function View:sorted()
  local before = SORTS[self.sort]
  table.sort(self.list, function(a, b)
    if before(a, b) or before(b, a) then return before(a, b) end
    return locale.is_before(a.key, b.key)
  end)
  return self.list
end

function View:title()
  local waiters, rate = 0, 0
  for _, entry in ipairs(self.list) do
    waiters, rate = waiters + entry.waiters, rate + entry.rate
  end
  local left_out = locks.left_out(self.scans)
  return ("%d lock%s, %d waiter%s, at least %s hand-offs/s%s"):format(
    #self.list, #self.list == 1 and "" or "s", waiters, waiters == 1 and "" or "s",
    locale.decimal("%.1f", rate), left_out and "; " .. left_out or "")
end

function View:row(entry)
  local holder = locks.holder_text(entry, entry.owner and self.names(entry.owner))
  return {
    output.name(entry.key), holder, ("%.0f s"):format(os.time() - entry.since),
    locks.seconds(entry.ttl), ("%d"):format(entry.waiters), locale.decimal("%.1f", entry.rate),
  }
end

function View:lines(most)
  local rows = { HEAD }
  for i, entry in ipairs(self:sorted()) do
    if most and i > most then break end
    rows[#rows + 1] = self:row(entry)
  end
  return output.columns(rows, RIGHT)
end

-- ---- on a terminal ----

local SCREEN_ON, SCREEN_OFF = "\27[?1049h\27[?25l", "\27[?25h\27[?1049l"

local function screen(on)
  process.raw(on)
  io.stdout:write(on and SCREEN_ON or SCREEN_OFF)
  io.stdout:flush()
end

function View:draw()
  local rows, columns = process.size()
  rows, columns = rows or 24, columns or 80
  local trouble = self.trouble and "   " .. output.printable(self.trouble) or ""
  local lines = { "holdfast top   " .. self:title() .. trouble, "" }
  for _, line in ipairs(self:lines(math.max(rows - 5, 1))) do lines[#lines + 1] = line end
  while #lines < rows - 1 do lines[#lines + 1] = "" end
  lines[rows] = FOOT
  for i = 1, #lines do lines[i] = width.cut(lines[i], columns) .. "\27[K" end
  io.stdout:write("\27[H", table.concat(lines, "\r\n", 1, rows), "\27[J")
  io.stdout:flush()
end

local function pause_program()
  screen(false)
  process.stop("TSTP", true)
  screen(true)
end

-- → the exit code when it is to end
function View:on_event(event)
  if event == "input" then
    local keys = process.keys()
    if not keys or keys == "" then return exits.OK end
    for key in keys:gmatch(".") do
      if key == "q" then return exits.OK end
      if SORTS[key] then self.sort = key end
    end
  elseif event == "TSTP" then
    pause_program()
  elseif event ~= "WINCH" and event ~= "CONT" and event ~= "CHLD" then
    return event == "INT" and exits.OK or exits.of_signal(event)
  end
end

function View:live(interval)
  while true do
    local ok, message = self:poll()
    self.trouble = not ok and message or nil
    local due = core.now() + interval
    repeat
      self:draw()
      local event = process.wait(math.max(due - core.now(), 0), true)
      local exit = event and self:on_event(event)
      if exit then return exit end
    until not event
  end
end

local function run_live(view, interval)
  process.catch("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "TSTP", "CONT", "WINCH")
  screen(true)
  local ok, exit = pcall(view.live, view, interval)
  screen(false)
  if not ok then error(exit, 0) end
  return exit
end

-- ---- once ----

local function print_once(view, interval, out)
  process.wait(interval)
  local ok, message, code = view:poll()
  if not ok then return verb.failed(out, message, code) end
  output.print(view:title())
  if #view.list > 0 then output.print(table.concat(view:lines(), "\n")) end
  return exits.OK
end

function top.main(args)
  return verb.run(top, "top", args, 0, 1, function(client, given, words, out)
    local view = setmetatable({
      client = client, scans = locks.scans(client, words[1]), turn = 1, entries = {}, list = {},
      sort = "h",
    }, View)
    local ok, message, code = view:poll()
    if not ok then return verb.failed(out, message, code) end
    local live = process.is_terminal(0) and process.is_terminal(1)
    return (live and run_live or print_once)(view, given.interval or 1, out)
  end)
end

return top
