-- What the status page knows of one client's locks.
--
-- Each worker keeps one view for each client, for all requests. A request brings it up to date if
-- it is older than FRESH and no other request does so: first what was shown a moment ago, then SCAN
-- goes on where it stopped, a page at a time, then what was read longest ago: until one, three and
-- five BUDGETs of seconds have gone by.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local locale = require "holdfast.locale"
local kinds = require "holdfast.command.kinds"
local locks = require "holdfast.command.locks"
local names = require "holdfast.names"
local observed = require "holdfast.observed"
local records = require "holdfast.status_record"
local timer = require "holdfast.timer"

local status_view = {}

local FRESH, BUDGET = 0.4, 0.1
local SLOW = 2 -- seconds after which a server that has not answered yet counts as away
local PAGE = 100 -- keys that one SCAN visits
local WAITERS = 20 -- of one lock that are read
local SHOWN_FOR = 3 -- seconds for which what was shown is read first
local NAMES_FOR = 30 -- seconds for which a name is believed
-- Seconds between two searches for deadlocks, at least, and by how often the one before took; and
-- for which somebody must have waited.
local CYCLES_EVERY, CYCLES_SHARE, CYCLES_FROM = 5, 20, 1
local STEP = records.STEP

-- ---- reading ----

-- Owners of one client have one name. It is asked for once, however many requests need it.
-- → { host, pid, name } | nil: it has published nothing
function status_view.who(view, owner)
  local uuid, now = owner:sub(1, 36), core.now()
  local known = view.names[uuid]
  if view.trouble or view.reader and now > view.at + SLOW then return known and known.who end
  if not known or now > known.at + (known.who and NAMES_FOR or 1) then
    known = { at = now, who = known and known.who }
    view.names[uuid] = known
    known.who = names.of(view.client, owner)
  end
  return known.who
end

local function forget_names(view, now)
  for uuid, known in pairs(view.names) do
    if now > known.at + NAMES_FOR then view.names[uuid] = nil end
  end
end

-- A queue gives each wait a place of its own; a fair lock's list does not.
local function name_of(waiter)
  return ("%s %s"):format(waiter.owner, waiter.score or "")
end

-- Since when its waiters wait, as far as they were seen.
local function note_waiters(view, entry, before)
  local known = before and before.waiting or {}
  entry.waiting, entry.waits_since = {}, nil
  for _, waiter in ipairs(entry.queue or {}) do
    local name = name_of(waiter)
    local at = view.record:first_seen(entry.key, name, known[name] or ngx.now())
    entry.waiting[name], waiter.since = at, at
    entry.waits_since = math.min(entry.waits_since or at, at)
  end
  for name in pairs(known) do
    if not entry.waiting[name] then view.record:forget(entry.key, name) end
  end
end

-- Puts `entry`, or nothing, in the place of the one before.
local function replace(view, before, entry)
  view.waiting = view.waiting - (before and before.waiters or 0) + (entry and entry.waiters or 0)
  view.entries[(entry or before).key] = entry
  if not entry then return end
  view.last = view.last + 1
  view.by_age[view.last] = entry
end

local function forget(view, before)
  note_waiters(view, { key = before.key }, before)
  replace(view, before)
end

local function keep(view, entry, now)
  if not view.entries[entry.key] and not entry.held then return end
  local known = view.entries[entry.key]
  if known and kinds[known.kind].found_as == entry.kind then -- again
    entry = locks.read(view.client, entry.key, known.kind) or entry
  end
  if entry.held and entry.waiters > 0 and not view.quorum then
    entry.queue = locks.waiters(view.client, entry, WAITERS)
  end
  local before = view.entries[entry.key]
  if not entry.held then
    if before then forget(view, before) end
    return
  end
  entry.since = observed.since(entry, before, ngx.now())
  note_waiters(view, entry, before)
  view.handed = view.handed + observed.handed_over(before, entry)
  entry.read_at = now
  replace(view, before, entry)
end

-- One step of a scan. A round does not read a lock twice, which each server of a quorum has.
-- → whether it has gone round, what went wrong
local function step(view, scan, now)
  scan.met = scan.met or {}
  local found, message = scan:next(scan.met)
  for _, entry in ipairs(found or {}) do
    scan.met[entry.found_as] = entry
    if not entry.done then keep(view, entry, now) end
  end
  if scan.ended then scan.met, scan.has_ended = nil, true end
  return not found or scan.ended, message
end

local function read_again(view, entry, now)
  local again, _, code = locks.read(view.client, entry.key, entry.kind)
  if again then
    keep(view, again, now)
  elseif code == "conflict" and view.entries[entry.key] then
    forget(view, view.entries[entry.key])
  end
end

local function read_shown(view, now, till)
  for key, at in pairs(view.shown) do
    local entry = view.entries[key]
    if now > at + SHOWN_FOR or not entry then
      view.shown[key] = nil
    elseif entry.read_at < now and core.now() < till then
      read_again(view, entry, now)
    end
  end
end

-- Each scan goes round once at most, and all of them go on by turns. Where one had to wait for a
-- server that does not answer, the others do not wait for it as well.
local function read_new(view, now, till)
  local left, trouble = {}, nil
  for i, scan in ipairs(view.scans) do left[i] = scan end
  repeat
    for i = #left, 1, -1 do
      local round, message = step(view, left[i], now)
      if round then table.remove(left, i) end
      trouble = trouble or message
      if trouble and core.now() > till then break end
    end
  until #left == 0 or core.now() > till
  view.trouble = trouble
end

-- What neither scans nor viewers have met now.
local function read_old(view, now, till)
  while view.first <= view.last and core.now() < till do
    local entry = view.by_age[view.first]
    if view.entries[entry.key] == entry then
      if math.max(entry.read_at, entry.tried_at or 0) >= now then return end
      read_again(view, entry, now)
    end
    if view.entries[entry.key] == entry then -- it could not be read
      entry.tried_at = now
      replace(view, entry, entry)
    end
    view.by_age[view.first], view.first = nil, view.first + 1
  end
end

local function read_servers(view, now)
  local from = core.now()
  read_shown(view, now, from + BUDGET)
  read_new(view, now, from + 3 * BUDGET)
  read_old(view, now, from + 5 * BUDGET)
end

-- ---- the last ten minutes ----

local function note(view)
  local adds, begins = view.record:adds()
  if adds then
    local at = math.floor(ngx.time() / STEP) * STEP
    view.record:add(at, begins and 0 or view.handed, view.waiting)
  end
  view.handed = 0
end

local function member_states(view)
  local list = {}
  for i, node in ipairs(core.client.nodes(view.client)) do
    local began = core.now()
    local reply, message = driver.command(view.client, { "PING" }, node)
    list[i] = { up = reply ~= nil, took = core.now() - began, message = message }
  end
  return list
end

-- Whether a request reads for the view. One that is aborted meanwhile does not come back.
local function is_reading(view)
  return view.reader ~= nil and driver.owner.lives(view.reader)
end

-- Why the servers cannot be asked; nil: they answer. In a quorum a minority may be away.
function status_view.away(view)
  if is_reading(view) and core.now() > view.at + SLOW then
    return "no answer within " .. SLOW .. " s"
  end
  if not view.quorum or not view.members then return view.trouble end
  local up = 0
  for _, member in ipairs(view.members) do up = up + (member.up and 1 or 0) end
  if up > #view.members / 2 then return nil end
  return ("%d of %d servers answered"):format(up, #view.members)
end

local function is_of_view(view, cycle)
  for _, wait in ipairs(cycle) do
    if view.entries[wait.key] then return true end
  end
  return false
end

local function find_cycles(ends, view)
  local from = core.now()
  local result = not ends and view.client:deadlocks()
  local took = core.now() - from
  view.cycles_due = from + took + math.max(CYCLES_EVERY, CYCLES_SHARE * took)
  if not result then return end
  view.cycles = {}
  for _, cycle in ipairs(result.cycles) do
    if is_of_view(view, cycle) then view.cycles[#view.cycles + 1] = cycle end
  end
end

-- A deadlock takes two that wait, and lasts. The search goes through all keys, so no request waits
-- for it. `longest_wait`: seconds, or nil
function status_view.look_for_cycles(view, longest_wait)
  if view.waiting < 2 or (longest_wait or 0) < CYCLES_FROM then
    view.cycles = {}
  elseif core.now() >= view.cycles_due and timer.at(0, find_cycles, view) then
    view.cycles_due = math.huge
  end
end

local function read_all(view, now)
  local ok, err = pcall(read_servers, view, now)
  if ok and view.quorum then view.members = member_states(view) end
  view.reader = nil
  if ok then return end
  view.trouble = "a reply from the server was not understood; see nginx's error log"
  ngx.log(ngx.ERR, "holdfast.status: ", locale.text(err))
end

local function go_on(ends, view)
  view.goes_on = false
  if not ends then status_view.refresh(view) end
end

-- Reads what has changed since, unless another request does so. Until each key has been looked at
-- once it goes on by itself, however seldom it is asked.
function status_view.refresh(view)
  local now = core.now()
  if now < view.at + FRESH or is_reading(view) then return end
  view.reader, view.at = driver.owner.mark(), now
  read_all(view, now)
  forget_names(view, now)
  if status_view.away(view) then return end
  view.good_at = ngx.now()
  note(view)
  if view.goes_on or status_view.is_complete(view) then return end
  view.goes_on = timer.at(FRESH, go_on, view)
end

-- Whether each key has been looked at once.
function status_view.is_complete(view)
  for _, scan in ipairs(view.scans) do
    if not scan.has_ended then return false end
  end
  return true
end

-- What the scans could not read, for people; nil: nothing.
function status_view.left_out(view)
  return locks.left_out(view.scans)
end

-- Whether the lease has ended since it was read, as far as is known.
function status_view.is_stale(entry, now)
  return entry.ttl ~= nil and now > entry.read_at + entry.ttl + FRESH
end

-- A listener of the client, for what it loses from now on.
local function note_losses(view)
  return function(event)
    if event.event ~= "lost" then return end
    view.record:add_loss {
      time = ngx.now(), key = event.key, reason = event.code, class = event.class,
      owner = event.owner, pid = ngx.worker.pid(),
    }
  end
end

-- `where`: distinguishes the keys of this client from those of other clients.
function status_view.new(client, pattern, where)
  local scans = locks.scans(client, pattern)
  scans[#scans + 1] = locks.scans(client, pattern, true)[1]
  for _, scan in ipairs(scans) do scan.count = PAGE end
  local view = {
    client = client, quorum = core.client.is_quorum(client), names = {},
    record = records.new(where .. " " .. pattern), handed = 0, at = -FRESH, scans = scans,
    entries = {}, waiting = 0, cycles = {}, cycles_due = 0,
    by_age = {}, first = 1, last = 0, -- entries as they were read; an older one of a key stays
    shown = {}, -- key -> when
  }
  events.listen_too(client, note_losses(view))
  return view
end

return status_view
