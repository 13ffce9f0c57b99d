-- holdfast top: a live view of the locks, those with the longest waits first.
--
-- Like the status page, the view searches for queues first, since waiters matter most, and then for
-- locks. Both searches run in rounds (holdfast.command.rounds), so that a large server is not
-- scanned in one go. Each poll rereads the locks that are on the screen or have waiters, then
-- others for the rest of half a second, so the load on the server does not grow with the number of
-- locks. The view handles key presses between reads, so that a poll does not block it.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local json = require "holdfast.command.json"
local locks = require "holdfast.command.locks"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local kinds = require "holdfast.command.kinds"
local locale = require "holdfast.locale"
local process = require "holdfast.process"
local rounds = require "holdfast.command.rounds"
local screen = require "holdfast.command.screen"
local table_of = require "holdfast.command.top_table"
local texts = require "holdfast.text"
local subcommand = require "holdfast.command.subcommand"
local width = require "holdfast.command.width"

local top = {}

top.usage = "holdfast top [options] [PATTERN]"
top.summary = "Show locks and waiters, the longest wait first: live on a terminal, otherwise once."

top.takes_several_servers = true
top.options = subcommand.options(top, {
  { "interval", value = "TIME", check = options.duration, help = "time between refreshes (default: 1s)" },
  { "once", help = "print the table once, on a terminal too" },
  { "json", help = "print one JSON object per lock, once" },
})
top.examples = {
  "holdfast top                  # all locks; q quits",
  "holdfast top 'jobs:*'         # those whose key begins with jobs:",
  "holdfast top --once           # a table, on a terminal too",
}

-- The rounds' paces (see rounds.new), and the seconds that each poll spends on a round. The round
-- of locks gets FIRST_BUDGET until it has seen every key once, and LOCKS_BUDGET after that.
local QUEUES = { factor = 100, min_pause = 1, max_pause = 3 }
local LOCKS = { factor = 300, min_pause = 2, max_pause = 30 }
local QUEUES_BUDGET, FIRST_BUDGET, LOCKS_BUDGET = 0.3, 0.5, 0.1
local SLICE = 50 -- locks or names to read before the view checks for input again
-- Seconds after which a poll stops rereading locks that are not on the screen and have no waiters.
local REREAD_BUDGET = 0.5
local AGE_MARGIN = 2 -- the age of rows is shown if it exceeds the interval by this many seconds
local FRAME_ROWS = 5 -- number of screen rows that do not show locks
local FOOTER = "sort by: w wait  n waiters  h held  t TTL  k key   / filter  ↑↓ scroll  q quit"
local FILTER_HELP = "part of a key, then Enter; Esc shows all locks again"

local function by_key(a, b)
  return locale.is_before(a.key, b.key)
end

-- Sorts by value, highest first, then by the number of waiters, then by how long the lock is held.
local function highest_first(value_of)
  return function(a, b)
    local value, other = value_of(a), value_of(b)
    if value == other then value, other = a.waiters, b.waiters end
    if value == other then value, other = a.held_for or 0, b.held_for or 0 end
    if value == other then return by_key(a, b) end
    return value > other -- any locale: compares numbers
  end
end

local SORTS = {
  w = highest_first(function(entry) return entry.waits or 0 end),
  n = highest_first(function(entry) return entry.waiters end),
  h = highest_first(function(entry) return entry.held_for or 0 end),
  t = highest_first(function(entry) return -(entry.ttl or math.huge) end),
  k = by_key,
}

-- ---- reading ----

local View = {}
View.__index = View

-- Stores in the entry when it was read and, as its lease, the longest TTL seen during this hold.
-- `old_entry`: the entry from the previous read, or nil.
local function add_times(entry, old_entry)
  local is_same = old_entry and old_entry.owner == entry.owner and old_entry.token == entry.token
  entry.lease = math.max(entry.ttl or 0, is_same and old_entry.lease or 0)
  entry.read_at = core.now()
  return entry
end

-- Replaces `old_entry` with `entry`. Either may be nil.
function View:replace(old_entry, entry)
  if old_entry then
    self.by_scanned_name[old_entry.scanned_name], self.entries[old_entry.key] = nil, nil
  end
  if entry then
    self.by_scanned_name[entry.scanned_name] = entry
    self.entries[entry.key] = add_times(entry, old_entry)
  end
end

-- Reads a lock of this kind, or of any kind if `kind` is nil. → true | nil, message, code
function View:read(key, kind)
  local entry, message, code
  if kind then entry, message, code = locks.read(self.client, key, kind) end
  if not kind or code == "conflict" then entry, message, code = locks.inspect(self.client, key) end
  if not entry and not locks.concerns_single_key(message, code) then return nil, message, code end
  local old_entry, is_shown = self.entries[key], entry and locks.is_shown(entry)
  if is_shown then entry.scanned_name = old_entry and old_entry.scanned_name or key end
  self:replace(old_entry, is_shown and entry or nil)
  return true
end

-- Reads the lock of a queue, unless the lock is known to have waiters: each poll reads such locks
-- anyway.
local function read_queue(view, _, name)
  local keys, is_fair = locks.keys_for_queue(name)
  for _, key in ipairs(keys) do
    local known = view.entries[key]
    if not known or known.waiters == 0 then
      local kind = is_fair and "fair" or known and not kinds[known.kind].found_as and known.kind or nil
      local ok, message, code = view:read(key, kind)
      if not ok then return nil, message, code end
    end
  end
  return true
end

-- Reads latches and plain semaphores, whose waiters are not in a queue. A quorum has none.
local function finish_queues(view)
  for _, entry in ipairs(view.latches and view.latches:next(view.by_scanned_name) or {}) do
    view:replace(view.entries[entry.key], entry)
  end
  return true
end

local function read_lock(view, scan, name)
  if view.by_scanned_name[name] then return true end
  local entry, message, code = scan:read(name, view.by_scanned_name)
  if entry and not entry.done then view:replace(view.entries[entry.key], entry) end
  if entry ~= nil or not code or locks.concerns_single_key(message, code) then return true end
  return nil, message, code
end

-- Continues a round for `seconds`, or until the user quits. → true | nil, message, code
function View:continue_round(round, seconds)
  local deadline, names = core.now() + seconds, 0
  return round:continue(core.now(), function()
    names = names + 1
    return core.now() > deadline or names % SLICE == 0 and self:handle_events(0) ~= nil
  end)
end

-- Returns whether each of the two rounds has been completed at least once.
function View:is_complete()
  return self.queues.complete_as_of ~= nil and self.locks.complete_as_of ~= nil
end

-- Continues both rounds. → true | nil, message, code
function View:continue_rounds()
  local ok, message, code = self:continue_round(self.queues, QUEUES_BUDGET)
  if not ok then return nil, message, code end
  return self:continue_round(self.locks, self:is_complete() and LOCKS_BUDGET or FIRST_BUDGET)
end

-- Sorts the keys by how urgently they must be reread: first the locks on the screen or with
-- waiters, then the others, least recently read first. → the keys, the number of keys in the first
-- group
function View:by_priority()
  local keys, others, is_shown = {}, {}, {}
  for i = self.first, self.first + (self.room or 0) - 1 do is_shown[self.list[i] or 0] = true end
  for key, entry in pairs(self.entries) do
    local list = (is_shown[entry] or entry.waiters > 0) and keys or others
    list[#list + 1] = key
  end
  table.sort(others, function(a, b)
    return self.entries[a].read_at < self.entries[b].read_at
  end)
  local count = #keys
  for i, key in ipairs(others) do keys[count + i] = key end
  return keys, count
end

-- Rereads known locks. → true | nil, message
function View:reread_locks(keys, count)
  local deadline = core.now() + REREAD_BUDGET
  for i, key in ipairs(keys) do
    if i > count and core.now() > deadline then break end
    local entry, ok, message = self.entries[key], true, nil
    if entry then ok, message = self:read(key, entry.kind) end
    if not ok then return nil, message end
    if i % SLICE == 0 and self:handle_events(0) then return true end
  end
  return true
end

-- Polls the server once. Stops early if the user quits. → true | nil, message
function View:poll()
  local keys, count = self:by_priority()
  local ok, message = self:continue_rounds()
  if ok then ok, message = self:reread_locks(keys, count) end
  if not ok then return nil, message end
  self.names, self.known, self.polled_at = locks.namer(self.client), {}, core.now()
  return true
end

-- ---- layout ----

-- Selects and sorts the entries to show.
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

function View:title()
  local left_out = locks.describe_unread(rounds.scans(self))
  return texts.plural(self.count, "lock") .. (self:is_complete() and ", " or " so far, ")
    .. texts.plural(self.waiters, "waiter") .. (left_out and "; " .. left_out or "")
end

-- Returns the owner's { host, pid, name }, if known. Does not query a server that has not replied.
function View:identify(owner)
  local uuid = owner and owner:sub(1, 36)
  if uuid and not self.trouble then self.known[uuid] = self.names(owner) end
  return uuid and self.known[uuid]
end

function View:lines(first, last, columns)
  local shown, who = {}, {}
  for i = first, math.min(last, #self.list) do
    shown[#shown + 1] = self.list[i]
    who[#shown] = self:identify(self.list[i].owner)
  end
  return table_of(shown, who, columns)
end

-- ---- on a terminal ----

-- Returns the age of the oldest row, followed by the error if the last poll failed. Returns "" if
-- the last poll succeeded and the next one is not late.
function View:age_text()
  local seconds = core.now() - self.read_at
  if self.trouble then
    return ("   %.0f s old: %s"):format(seconds, output.printable(self.trouble))
  end
  return seconds > self.interval + AGE_MARGIN and ("   up to %.0f s old"):format(seconds) or ""
end

function View:filter_line()
  if not self.is_typing and self.filter == "" then return "" end
  return ("filter: %s%s   %d of %s"):format(output.printable(self.filter), self.is_typing and "_" or "",
    #self.list, texts.plural(self.count, "lock"))
end

-- Describes which locks are on the screen. Returns "" if all of them are.
function View:position_text(room)
  if #self.list <= room then return "" end
  return ("%d-%d of %d"):format(self.first, math.min(self.first + room - 1, #self.list), #self.list)
end

function View:draw()
  local rows, columns = process.terminal_size()
  rows, columns = rows or 24, columns or 80
  local room = math.max(rows - FRAME_ROWS, 1)
  self.first, self.room = math.max(math.min(self.first, #self.list - room + 1), 1), room
  local title = width.cut("holdfast top   " .. self:title(), columns)
  local age = width.cut(self:age_text(), columns - width.of(title))
  local filter = width.cut(self:filter_line(), columns)
  local lines = { title .. screen.paint(age, screen.RED), filter }
  for _, line in ipairs(self:lines(self.first, self.first + room - 1, columns)) do
    lines[#lines + 1] = line
  end
  while #lines < rows - 2 do lines[#lines + 1] = "" end
  lines[rows - 1] = self:position_text(room)
  lines[rows] = width.cut(self.is_typing and FILTER_HELP or FOOTER, columns)
  screen.draw(lines, rows)
end

local function pause_program()
  screen.leave()
  process.stop("TSTP", true)
  screen.enter()
end

-- Handles a key press while the user is typing a filter, and shows the matching locks.
function View:on_typed_key(key)
  if key == "enter" or key == "escape" then self.is_typing = false end
  if key == "escape" or key == "clear" then self.filter = "" end
  if key == "backspace" then self.filter = self.filter:gsub("[^\128-\191][\128-\191]*$", "") end
  if not screen.KEY_NAMES[key] then self.filter = self.filter .. key end
  self.first = 1
  self:arrange()
end

-- How far each key scrolls the view, in rows or in screens.
local ROWS = { up = -1, down = 1, home = -math.huge, ["end"] = math.huge }
local SCREENS = { page_up = -1, page_down = 1, [" "] = 1 }

-- → the exit code if the user quits | nil
function View:on_key(key)
  if self.is_typing then return self:on_typed_key(key) end
  if key == "q" then return exits.OK end
  if key == "/" then self.is_typing = true end
  if key == "escape" then self.filter = "" end
  if SORTS[key] then self.sort, self.first = key, 1 end
  if key == "escape" or SORTS[key] then self:arrange() end
  local step = ROWS[key] or (SCREENS[key] or 0) * self.room
  self.first = math.max(math.min(self.first + step, #self.list - self.room + 1), 1)
end

-- → the exit code if the user quits | nil
function View:on_event(event)
  if event == "input" then
    local bytes = process.read_keys()
    if not bytes or bytes == "" then return exits.OK end
    for _, key in ipairs(screen.parse_keys(bytes)) do
      local exit = self:on_key(key)
      if exit then return exit end
    end
  elseif event == "TSTP" then
    pause_program()
  elseif event ~= "WINCH" and event ~= "CONT" and event ~= "CHLD" then
    return event == "INT" and exits.OK or exits.of_signal(event)
  end
end

-- Handles keys and signals for `seconds`. → the exit code if the user quits | nil
function View:handle_events(seconds)
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
    if self:handle_events(interval) then break end
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
    output.print(json.object(locks.fields(entry, view:identify(entry.owner))))
  end
  local left_out = locks.describe_unread(rounds.scans(view))
  if left_out then out:problem("warning", {}, left_out) end
end

local function print_table(view)
  output.print(view:title())
  local columns = process.is_terminal(1) and select(2, process.terminal_size()) or nil
  if #view.list > 0 then output.print(table.concat(view:lines(1, #view.list, columns), "\n")) end
end

local function print_once(view, given, out)
  while not view:is_complete() do
    local ok, message, code = view:continue_rounds()
    if not ok then return subcommand.failed(out, message, code) end
  end
  view:arrange()
  local print_view = given.json and print_json or print_table
  print_view(view, out)
  return exits.OK
end

local function new_view(client, pattern)
  local view = {
    client = client,
    entries = {}, -- key -> entry
    by_scanned_name = {}, -- the name under which a scan found the lock -> entry
    list = {}, names = locks.namer(client), known = {},
    sort = "w", filter = "", first = 1, polled_at = core.now(),
  }
  local queues, held, latches = locks.rounds(client, pattern or "*")
  view.latches = latches
  view.queues = rounds.new(view, queues, QUEUES, read_queue, finish_queues)
  view.locks = rounds.new(view, held, LOCKS, read_lock)
  return setmetatable(view, View)
end

function top.main(args)
  return subcommand.run(top, "top", args, 0, 1, function(client, given, words, out)
    local view = new_view(client, words[1])
    local ok, message, code = view:continue_rounds()
    if not ok then return subcommand.failed(out, message, code) end
    local has_terminal = process.is_terminal(0) and process.is_terminal(1)
    if has_terminal and not given.once and not given.json then
      return run_live(view, given.interval or 1)
    end
    return print_once(view, given, out)
  end)
end

return top
