-- Shows what the command is waiting for: on a terminal as a line that is kept up to date, with
-- --json as events, with --verbose as lines.
--
-- A child process polls the server and prints, so that it never delays the wait, a signal or the
-- job. It prints once a second on a terminal, once a minute elsewhere, and soon after the server
-- stops replying.

local core = require "holdfast.core"
local lazy = require "holdfast.lazy"
local locks = lazy "holdfast.command.locks"
local names = lazy "holdfast.names"
local output = require "holdfast.command.output"
local process = require "holdfast.process"
local settings = require "holdfast.command.settings"
local texts = require "holdfast.text"

local waiting = {}

local MIN_WAIT = 0.5 -- seconds; a shorter wait is not reported
local TERMINAL_PERIOD, LOG_PERIOD = 1, 60 -- seconds between lines
local POLL_PAUSE, LEADER_PAUSE = 5, 2 -- maximum seconds between polls
local RETRY_PAUSE = 1 -- seconds before the next poll after a failure; one failure causes no warning
local REPLY_TIMEOUT = 0.9 -- seconds to wait for a reply, so that the line is redrawn in time
local MAX_SLEEP = 5 -- seconds between checks of whether the command is still waiting
local ECHO_COLUMNS = 3 -- columns left free, because the terminal echoes ^C after the line
local MAX_KEYS, MAX_WAITERS = 10, 100 -- maximum keys and waiters that one poll reads

-- ---- text ----

local ORDINALS = { "st", "nd", "rd" }

function waiting.place(number)
  if number == 1 then return "next in line" end
  local is_teen = number % 100 >= 11 and number % 100 <= 13
  return ("%d%s in line"):format(number, not is_teen and ORDINALS[number % 10] or "th")
end

-- Formats a time as 0:09, 12:05 or 1:02:03.
function waiting.clock(seconds)
  local whole = math.floor(seconds)
  local hours, minutes = math.floor(whole / 3600), math.floor(whole / 60) % 60
  if hours > 0 then return ("%d:%02d:%02d"):format(hours, minutes, whole % 60) end
  return ("%d:%02d"):format(minutes, whole % 60)
end

-- Returns the maximum number of columns that a character occupies; East Asian characters occupy
-- two.
local function width_of(char)
  return #char > 2 and 2 or 1
end

local function width(text)
  local sum = 0
  for char in text:gmatch("[^\128-\191][\128-\191]*") do sum = sum + width_of(char) end
  return sum
end

-- Returns the longest beginning of the text that fits into this many columns.
local function cut(text, columns)
  local parts, left = {}, columns
  for char in text:gmatch("[^\128-\191][\128-\191]*") do
    left = left - width_of(char)
    if left < 0 then break end
    parts[#parts + 1] = char
  end
  return table.concat(parts)
end

-- Returns a line that fits into this many columns. Shortens the part before the place and the time.
-- → the line, its width
function waiting.line(subject, state, place, seconds, columns)
  local tail = (place and waiting.place(place) .. ", " or "") .. waiting.clock(seconds)
  local head = output.printable(subject) .. ": "
  if state then head, tail = head .. output.printable(state), ", " .. tail end
  if columns and width(head .. tail) > columns then
    head = cut(head, columns - width(tail) - 1) .. "…"
    tail = cut(tail, columns - width(head) + 1)
  end
  return head .. tail, width(head .. tail)
end

-- ---- goals of a wait ----

-- A goal is a function(client) that reads the state of what the command is waiting for.
-- → { key, state, place, held_since = a time of core.now(), and for --json owner, who, count,
-- token } | nil, message, code

local function state_of(entry, who, verb)
  if entry.permits then return locks.holder_text(entry) .. " taken" end
  if not entry.held then return nil end
  return (entry.count and "" or verb .. " by ") .. locks.holder_text(entry, who)
end

-- Returns a function that looks up a holder's { host, pid, name }, and caches it once it is known.
local function cached_lookup()
  local known = {}
  return function(client, owner)
    known[owner] = known[owner] or names.read(client, owner)
    return known[owner]
  end
end

local function new_finding(client, entry, verb, name_of, place)
  local who = entry.owner and name_of(client, entry.owner)
  return {
    key = entry.key, state = state_of(entry, who, verb), place = place, owner = entry.owner,
    who = who, count = entry.count, token = entry.token,
    held_since = entry.held_for and core.now() - entry.held_for,
  }
end

local function place_in(client, entry, uuid)
  if entry.waiters == 0 or core.client.is_quorum(client) then return nil end
  for _, waiter in ipairs(locks.waiters(client, entry, MAX_WAITERS)) do
    if waiter.owner:sub(1, #uuid) == uuid then return waiter.place end
  end
end

-- The command acquires locks one after the other, so it is waiting for the first one that it does
-- not hold yet. `uuid`: the waiting client's uuid; `verb`: "held" or "led".
function waiting.for_locks(keys, kind, uuid, verb)
  local name_of, current = cached_lookup(), 1
  return function(client)
    local first
    for i = current, math.min(#keys, current + MAX_KEYS - 1) do
      local entry, message, code = locks.read(client, keys[i], kind)
      if not entry then return nil, message, code end
      local place = place_in(client, entry, uuid)
      local is_own = entry.owner and entry.owner:sub(1, #uuid) == uuid
      if place then
        current = i
        return new_finding(client, entry, verb, name_of, place)
      end
      first = first or entry.held and not is_own and entry or nil
    end
    current = first and current or 1
    return new_finding(client, first or { key = keys[current] }, verb, name_of)
  end
end

-- `first_held(client)` → the first held lock's entry, or false if all are free | nil, message, code
function waiting.for_free(keys, first_held)
  local name_of = cached_lookup()
  return function(client)
    local entry, message, code = first_held(client)
    if entry == nil then return nil, message, code end
    return new_finding(client, entry or { key = keys[1] }, "held", name_of)
  end
end

function waiting.for_latch(key)
  return function(client)
    local count, message, code = client:latch(key):count()
    if not count then return nil, message, code end
    return { key = key, count = count, state = ("%.0f left"):format(count) }
  end
end

-- ---- in the child process ----

local Report = {}
Report.__index = Report

local function outage_text(client, message, code)
  if code == "no_quorum" then return "too few servers are answering" end
  return code == "unreachable" and "no answer from " .. core.client.server(client) or message
end

function Report:check()
  local found, message, code = self.poll(self.client)
  self.failures = not found and (self.failures or 0) + 1 or 0
  self.found = found
    or { key = self.found.key, state = outage_text(self.client, message, code), code = code }
  if found then self.reported_outage = false end
end

-- Reports a new leader at once, unless a live line shows it. A leader that has not published its
-- name yet is reported after the next poll.
function Report:report_leader()
  local found = self.found
  if not self.leads or self.is_live or not found.owner or found.owner == self.leader then return end
  local old_leader, may_report = self.leader, found.who or self.unnamed == found.owner
  self.unnamed = found.owner
  if not old_leader or may_report then self.leader = found.owner end
  if not old_leader or not may_report then return end
  local who = found.who or {}
  self.out:event("leader", {
    { "key", found.key }, { "owner", found.owner }, { "host", who.host }, { "pid", who.pid },
    { "name", who.name }, { "token", found.token },
  }, ('"%s" is now %s'):format(output.printable(found.key), output.printable(found.state)))
end

-- Reports once in each outage that the wait continues without the server. Does nothing if a live
-- line shows that.
function Report:report_outage()
  if self.is_live or self.reported_outage or self.failures < 2 then return end
  self.reported_outage = true
  self.out:problem("warning", { { "key", self.found.key }, { "code", self.found.code } },
    ("%s: %s; still waiting"):format(self.subject(self.found.key), self.found.state))
end

-- → the seconds for which the holder has held the lock | nil if not known
local function held_for(found)
  return found.held_since and core.now() - found.held_since
end

function Report:line(columns)
  local found, held = self.found, held_for(self.found)
  local state = held and ("%s for %s"):format(found.state, texts.duration(held)) or found.state
  local waited = core.now() - self.since
  return waiting.line(self.subject(found.key), state, found.place, waited, columns)
end

-- Draws the line. If the terminal has become narrower, the old line occupies several rows.
function Report:draw()
  local columns = select(2, process.terminal_size(2)) or 80
  local rows = math.max(math.ceil((self.drawn or 0) / columns), 1)
  local line
  line, self.drawn = self:line(columns - ECHO_COLUMNS)
  local up = rows > 1 and ("\27[%dA\27[J"):format(rows - 1) or ""
  if process.may_draw() then process.say("\r" .. up .. line .. "\27[K") end
end

function Report:print()
  if self.is_live then return self:draw() end
  local found = self.found
  local who = found.who or {}
  self.out:event("waiting", {
    { "key", found.key }, { "owner", found.owner }, { "host", who.host }, { "pid", who.pid },
    { "name", who.name }, { "held_for", held_for(found) }, { "count", found.count },
    { "place", found.place },
    { "waited", core.now() - self.since },
    { "code", found.code }, { "message", found.code and found.state },
  }, (self:line()))
end

-- Sleeps until `deadline`. Redraws the line after the terminal has been resized, and after this
-- process returns to the foreground.
local function sleep_until(self, deadline)
  while process.parent_is_running() and core.now() < deadline do
    local name = process.wait(math.max(math.min(deadline - core.now(), MAX_SLEEP), 0))
    if name and self.drawn then self:draw() end
  end
end

function Report:run()
  local period = self.is_live and TERMINAL_PERIOD or LOG_PERIOD
  local next_line = core.now() + MIN_WAIT
  self.waiter:close() -- this child process has inherited the client's connections
  self.client = assert(settings.client(self.config, {}))
  if self.is_live then process.catch("WINCH", "CONT") end
  local next_poll = next_line
  while process.parent_is_running() do
    sleep_until(self, next_poll)
    self:check()
    self:report_leader()
    if self.is_reported and core.now() >= next_line then
      self:print()
      next_line = self.since + period * (math.floor((core.now() - self.since) / period) + 1)
    end
    self:report_outage()
    local pause = self.failures > 0 and RETRY_PAUSE or self.leads and LEADER_PAUSE or POLL_PAUSE
    next_poll = core.now() + pause
    if self.is_reported then next_poll = math.min(next_poll, next_line) end
  end
end

-- ---- start and end of a wait ----

local function limited(seconds, max_seconds)
  return math.min(seconds or max_seconds, max_seconds)
end

local function with_short_timeouts(config)
  local copy = {}
  for name, value in pairs(config) do copy[name] = value end
  copy.connect_timeout = limited(config.connect_timeout, REPLY_TIMEOUT)
  copy.command_timeout = limited(config.command_timeout, REPLY_TIMEOUT)
  return copy
end

-- Starts to show what the command is waiting for, until waiting.finish, if the options request it
-- and the wait is not short. The fields of `wait`:
--   client           the client that waits
--   seconds, since   the wait's limit, and core.now() when it began
--   config           from settings.load
--   quiet            whether --quiet is set
--   key              the first key
--   subject(key)     → "waiting for …"
--   poll             a goal (see above)
--   leads            whether to become leader: then new leaders and outages are always reported
--   reported_outage  whether an outage has already been reported
function waiting.begin(out, wait)
  local shown = out:wait_display(wait.quiet)
  if not shown and not wait.leads or wait.seconds < MIN_WAIT then return end
  local report = setmetatable({
    out = out, is_live = shown == "line", is_reported = shown ~= nil,
    reported_outage = wait.reported_outage, leads = wait.leads,
    waiter = wait.client, config = with_short_timeouts(wait.config), since = wait.since,
    subject = wait.subject, poll = wait.poll, found = { key = wait.key },
  }, Report)
  process.end_report_on_signals("HUP", "INT", "QUIT", "TERM", "USR1", "USR2")
  process.begin_report(function() report:run() end)
end

-- Stops showing the wait. Must be called before any other output, and before the job starts.
function waiting.finish()
  process.end_report()
end

return waiting
