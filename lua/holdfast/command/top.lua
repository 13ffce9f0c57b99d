-- holdfast top: a live view of the locks, those that somebody has waited for longest first.
--
-- The keyspace is scanned a few pages at a time, so that a large server is not scanned in one go. A
-- poll reads again the locks that are on the screen or have waiters, and others for half a second,
-- so that many locks load the server no more than some thousand do. Between two reads the view
-- answers its keys, so a poll does not hold it up.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local json = require "holdfast.command.json"
local locks = require "holdfast.command.locks"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local locale = require "holdfast.locale"
local pages = require "holdfast.pages"
local process = require "holdfast.process"
local screen = require "holdfast.command.screen"
local table_of = require "holdfast.command.top_table"
local verb = require "holdfast.command.verb"
local width = require "holdfast.command.width"

local unpack = table.unpack or unpack

local top = {}

top.usage = "holdfast top [options] [PATTERN]"
top.summary = "Show locks and waiters, the longest wait first: live on a terminal, otherwise once."

top.of_servers = true
top.options = verb.options(top, {
  { "interval", value = "TIME", check = options.lease, help = "time between refreshes (default: 1s)" },
  { "once", help = "print the table once, on a terminal too" },
  { "json", help = "print one JSON object per lock, once" },
})
top.examples = {
  "holdfast top                  # all locks; q quits",
  "holdfast top 'jobs:*'         # those whose key begins with jobs:",
  "holdfast top --once           # a table, on a terminal too",
}

local FIRST = 0.5 -- seconds of each poll for which the first round of the scans goes on
local PAGES = 20 -- of each poll, later
local SLICE = 50 -- locks that are read before the view looks for keys
local COSTS_ITSELF = { conflict = true, server = true } -- of a key that cannot be read any more
local BUDGET = 0.5 -- seconds of each poll for reading again what is neither shown nor waited for
local OLD = 2 -- seconds: an older row than by a usual poll is reported
local FRAME = 5 -- rows of the screen that show no lock
local FOOT = "sort by: w wait  n waiters  h held  t TTL  k key   / filter  ↑↓ scroll  q quit"
local TYPING = "part of a key, then Enter; Esc shows all locks again"

local function by_key(a, b)
  return locale.is_before(a.key, b.key)
end

-- The highest value comes first; of equal ones, the most waiters and then the longest hold.
local function by(value_of)
  return function(a, b)
    local value, other = value_of(a), value_of(b)
    if value == other then value, other = a.waiters, b.waiters end
    if value == other then value, other = a.held_for or 0, b.held_for or 0 end
    if value == other then return by_key(a, b) end
    return value > other -- any locale: numbers
  end
end

local SORTS = {
  w = by(function(entry) return entry.waits or 0 end),
  n = by(function(entry) return entry.waiters end),
  h = by(function(entry) return entry.held_for or 0 end),
  t = by(function(entry) return -(entry.ttl or math.huge) end),
  k = by_key,
}

-- ---- what is there ----

local View = {}
View.__index = View

-- Remembers when it was read and, as its lease, the longest TTL of this hold that was seen;
-- `before`: the last reading.
local function note(entry, before)
  local is_same = before and before.owner == entry.owner and before.token == entry.token
  entry.lease = math.max(entry.ttl or 0, is_same and before.lease or 0)
  entry.read_at = core.now()
  return entry
end

function View:add(found)
  for _, entry in ipairs(found) do
    if not entry.done then self.entries[entry.found_as] = note(entry) end
  end
end

-- Goes on with all scans by turns. The first round takes half a second of each poll, later ones a
-- few pages.
function View:find()
  local left, pages_read, till = { unpack(self.scans) }, 0, core.now() + FIRST
  repeat
    for i = #left, 1, -1 do
      local scan = left[i]
      local found, message, code = scan:next(self.entries)
      if not found then return nil, message, code end
      self:add(found)
      pages_read = pages_read + 1
      if scan.ended then
        table.remove(left, i)
        self.unseen[scan] = nil
      end
    end
    local is_enough = core.now() > till or not next(self.unseen) and pages_read >= PAGES
  until #left == 0 or is_enough or self:attend(0)
  return true
end

-- → the entry now | false: there is none any more | nil, message, code
function View:read_one(name, before)
  local entry, message, code = locks.read(self.client, before.key, before.kind)
  if not entry and (COSTS_ITSELF[code] or pages.is_too_large(message, code)) then return false end
  if not entry then return nil, message, code end
  entry.found_as = name
  return entry.held and note(entry, before)
end

-- → the names of all entries, and how many come first because they are on the screen or have
-- waiters; of the others, those that were read longest ago come first
function View:by_need()
  local names, others, is_shown = {}, {}, {}
  for i = self.first, self.first + (self.room or 0) - 1 do is_shown[self.list[i] or 0] = true end
  for name, entry in pairs(self.entries) do
    local list = (is_shown[entry] or entry.waiters > 0) and names or others
    list[#list + 1] = name
  end
  table.sort(others, function(a, b)
    return self.entries[a].read_at < self.entries[b].read_at
  end)
  local count = #names
  for i, name in ipairs(others) do names[count + i] = name end
  return names, count
end

-- Polls the server once; ends early if the view has to end. → true | nil, message
function View:poll()
  local names, count = self:by_need()
  local ok, message = self:find()
  if not ok then return nil, message end
  local till = core.now() + BUDGET
  for i, name in ipairs(names) do
    if i > count and core.now() > till then break end
    local entry
    entry, message = self:read_one(name, self.entries[name])
    if entry == nil then return nil, message end
    self.entries[name] = entry or nil
    if i % SLICE == 0 and self:attend(0) then return true end
  end
  self.names, self.known, self.polled_at = locks.names(self.client), {}, core.now()
  return true
end

-- ---- how it looks ----

-- Chooses the entries that are shown, in order.
function View:arrange()
  local list, word = {}, locale.lower(self.filter)
  self.count, self.waiters, self.read_at = 0, 0, self.polled_at
  for _, entry in pairs(self.entries) do
    self.count, self.waiters = self.count + 1, self.waiters + entry.waiters
    self.read_at = math.min(self.read_at, entry.read_at)
    if word == "" or locale.lower(entry.key):find(word, 1, true) then list[#list + 1] = entry end
  end
  table.sort(list, SORTS[self.sort])
  self.list = list
end

local function plural(count, one)
  return ("%d %s%s"):format(count, one, count == 1 and "" or "s")
end

function View:title()
  local left_out = locks.left_out(self.scans)
  return plural(self.count, "lock") .. (next(self.unseen) and " so far, " or ", ")
    .. plural(self.waiters, "waiter") .. (left_out and "; " .. left_out or "")
end

-- The name of an owner, without asking a server that does not answer.
function View:who(owner)
  local uuid = owner and owner:sub(1, 36)
  if uuid and not self.trouble then self.known[uuid] = self.names(owner) end
  return uuid and self.known[uuid]
end

function View:lines(first, last, columns)
  local shown, who = {}, {}
  for i = first, math.min(last, #self.list) do
    shown[#shown + 1] = self.list[i]
    who[#shown] = self:who(self.list[i].owner)
  end
  return table_of(shown, who, columns)
end

-- ---- on a terminal ----

-- How old the oldest row is, if that is more than a poll explains, and why.
function View:age_text()
  local seconds = core.now() - self.read_at
  if self.trouble then
    return ("   %.0f s old: %s"):format(seconds, output.printable(self.trouble))
  end
  return seconds > self.interval + OLD and ("   up to %.0f s old"):format(seconds) or ""
end

function View:filter_line()
  if not self.is_typing and self.filter == "" then return "" end
  return ("filter: %s%s   %d of %s"):format(output.printable(self.filter), self.is_typing and "_" or "",
    #self.list, plural(self.count, "lock"))
end

-- Which of the locks are on the screen, unless all are.
function View:place(room)
  if #self.list <= room then return "" end
  return ("%d-%d of %d"):format(self.first, math.min(self.first + room - 1, #self.list), #self.list)
end

function View:draw()
  local rows, columns = process.size()
  rows, columns = rows or 24, columns or 80
  local room = math.max(rows - FRAME, 1)
  self.first, self.room = math.max(math.min(self.first, #self.list - room + 1), 1), room
  local title = width.cut("holdfast top   " .. self:title(), columns)
  local age = width.cut(self:age_text(), columns - width.of(title))
  local filter = width.cut(self:filter_line(), columns)
  local lines = { title .. screen.paint(age, screen.RED), filter }
  for _, line in ipairs(self:lines(self.first, self.first + room - 1, columns)) do
    lines[#lines + 1] = line
  end
  while #lines < rows - 2 do lines[#lines + 1] = "" end
  lines[rows - 1] = self:place(room)
  lines[rows] = width.cut(self.is_typing and TYPING or FOOT, columns)
  screen.draw(lines, rows)
end

local function pause_program()
  screen.leave()
  process.stop("TSTP", true)
  screen.enter()
end

-- While a filter is typed, its locks are shown.
function View:type(key)
  if key == "enter" or key == "escape" then self.is_typing = false end
  if key == "escape" or key == "clear" then self.filter = "" end
  if key == "backspace" then self.filter = self.filter:gsub("[^\128-\191][\128-\191]*$", "") end
  if not screen.NAMES[key] then self.filter = self.filter .. key end
  self.first = 1
  self:arrange()
end

-- How far each key moves the view, in rows or, of a page's, in screens.
local ROWS = { up = -1, down = 1, home = -math.huge, ["end"] = math.huge }
local SCREENS = { page_up = -1, page_down = 1, [" "] = 1 }

-- → the exit code when it is to end
function View:on_key(key)
  if self.is_typing then return self:type(key) end
  if key == "q" then return exits.OK end
  if key == "/" then self.is_typing = true end
  if key == "escape" then self.filter = "" end
  if SORTS[key] then self.sort, self.first = key, 1 end
  if key == "escape" or SORTS[key] then self:arrange() end
  local step = ROWS[key] or (SCREENS[key] or 0) * self.room
  self.first = math.max(math.min(self.first + step, #self.list - self.room + 1), 1)
end

-- → the exit code when it is to end
function View:on_event(event)
  if event == "input" then
    local bytes = process.keys()
    if not bytes or bytes == "" then return exits.OK end
    for _, key in ipairs(screen.keys(bytes)) do
      local exit = self:on_key(key)
      if exit then return exit end
    end
  elseif event == "TSTP" then
    pause_program()
  elseif event ~= "WINCH" and event ~= "CONT" and event ~= "CHLD" then
    return event == "INT" and exits.OK or exits.of_signal(event)
  end
end

-- Answers keys and signals for so many seconds. → the exit code when it is to end
function View:attend(seconds)
  local due = core.now() + seconds
  while self.is_live and not self.exit do
    local event = process.wait(math.max(due - core.now(), 0), true)
    if not event then return nil end
    self.exit = self:on_event(event)
    if not self.exit then self:draw() end
  end
  return self.exit
end

function View:live(interval)
  self.is_live, self.interval = true, interval
  repeat
    self:arrange()
    self:draw()
    if self:attend(interval) then break end
    local ok, message = self:poll()
    self.trouble = not ok and message or nil
  until self.exit
  return self.exit
end

local function run_live(view, interval)
  process.catch("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "TSTP", "CONT", "WINCH")
  screen.enter()
  local ok, exit = pcall(view.live, view, interval)
  screen.leave()
  if not ok then error(exit, 0) end
  return exit
end

-- ---- once ----

local function print_json(view, out)
  for _, entry in ipairs(view.list) do
    output.print(json.object(locks.fields(entry, view:who(entry.owner))))
  end
  local left_out = locks.left_out(view.scans)
  if left_out then out:problem("warning", {}, left_out) end
end

local function print_table(view)
  output.print(view:title())
  local columns = process.is_terminal(1) and select(2, process.size()) or nil
  if #view.list > 0 then output.print(table.concat(view:lines(1, #view.list, columns), "\n")) end
end

local function print_once(view, given, out)
  while next(view.unseen) do
    local ok, message, code = view:find()
    if not ok then return verb.failed(out, message, code) end
  end
  view:arrange()
  local print_view = given.json and print_json or print_table
  print_view(view, out)
  return exits.OK
end

local function new_view(client, pattern)
  local view = {
    client = client, scans = locks.scans(client, pattern),
    unseen = {}, -- the scans that have not ended once
    entries = {}, list = {}, names = locks.names(client), known = {},
    sort = "w", filter = "", first = 1, polled_at = core.now(),
  }
  for _, scan in ipairs(view.scans) do view.unseen[scan] = true end
  return setmetatable(view, View)
end

function top.main(args)
  return verb.run(top, "top", args, 0, 1, function(client, given, words, out)
    local view = new_view(client, words[1])
    local ok, message, code = view:find()
    if not ok then return verb.failed(out, message, code) end
    local has_terminal = process.is_terminal(0) and process.is_terminal(1)
    if has_terminal and not given.once and not given.json then
      return run_live(view, given.interval or 1)
    end
    return print_once(view, given, out)
  end)
end

return top
