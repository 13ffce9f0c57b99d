-- What the status page knows about one client's locks.
--
-- One worker reads from the servers for all workers; status_record decides which. Each poll first
-- reads the queues, since waiters matter most, then the rows on viewers' screens. While a page is
-- open, it also reads the names of all keys, and finally the entries read longest ago.
--
-- Queues and names are read in rounds (holdfast.command.rounds), each spread over as many polls as
-- it needs. A known name is only marked as seen, which costs nothing; a round reads only new ones.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local locale = require "holdfast.locale"
local kinds = require "holdfast.command.kinds"
local locks = require "holdfast.command.locks"
local names = require "holdfast.names"
local options = require "holdfast.options"
local records = require "holdfast.status_record"
local replies = require "holdfast.replies"
local rounds = require "holdfast.command.rounds"
local timer = require "holdfast.timer"

local status_view = {}

local STEP = records.STEP
-- Seconds between polls while a page is open, and otherwise.
local OPEN_PAUSE, CLOSED_PAUSE = 0.5, STEP - 1
local UNREACHABLE_AFTER = 2 -- seconds without a reply after which a server counts as unreachable
local MAX_WAITERS = 20 -- waiters that are read for one lock
local WATCHED_FOR = 60 -- a page counts as open for this many seconds after its last request
local SHOWN_TTL = 3 -- a row that was shown is read before others for this many seconds
local REREAD_SHOWN_AFTER = 1.5 -- seconds after which such a row is read again
local TOO_OLD = 2 -- seconds after which a row that was read is too old to be shown
local IDENTITY_TTL = 30 -- seconds for which a client's identity is valid
-- The pauses between rounds (see rounds.new), and the seconds for which a round of the queues is
-- valid.
local QUEUES = { factor = 100, min_pause = 2, max_pause = 3 }
local LOCKS = { factor = 300, min_pause = 2, max_pause = 30 }
local QUEUES_TTL = 10
local REREAD_AFTER = 10 -- seconds after which a lock is read again, even if it is not shown
-- Seconds that a poll may spend on a round of the queues, on the first round of the locks, and on
-- later ones; and the number of locks that a poll may read one by one after the first round.
local QUEUES_BUDGET, FIRST_BUDGET, BUDGET, MAX_READS = 0.3, 0.4, 0.1, 25
-- Keys that are not locks are remembered for NON_LOCKS_TTL seconds, but only MAX_NON_LOCKS of them.
local MAX_NON_LOCKS, NON_LOCKS_TTL = 100000, 60
-- Deadlocks are searched for only if a waiter has waited for CYCLES_MIN_WAIT seconds. The pause
-- between searches is at least CYCLES_MIN_PAUSE seconds. It is also at least CYCLES_FOUND_FACTOR
-- times as long as the last search took if that found a deadlock, and otherwise CYCLES_FACTOR
-- times as long.
local CYCLES_MIN_PAUSE, CYCLES_MIN_WAIT = 5, 1
local CYCLES_FOUND_FACTOR, CYCLES_FACTOR = 10, 400

-- ---- names ----

-- Reads the identity of an owner's client, and caches it for IDENTITY_TTL seconds, or for 1 s if it
-- is not published. Sends nothing while the servers do not reply.
-- → { host, pid, name } | nil if unknown
function status_view.identity_of(view, owner)
  local uuid, now = owner:sub(1, 36), core.now()
  local known = view.names[uuid]
  local is_slow = view.reading_request and now > view.polled_at + UNREACHABLE_AFTER
  if view.trouble or is_slow then return known and known.who end
  if not known or now > known.at + (known.who and IDENTITY_TTL or 1) then
    known = { at = now, who = known and known.who }
    view.names[uuid] = known
    known.who = names.read(view.client, owner)
  end
  return known.who
end

local function forget_names(view, now)
  for uuid, known in pairs(view.names) do
    if now > known.at + IDENTITY_TTL then view.names[uuid] = nil end
  end
end

-- ---- entries ----

-- Replaces the entry `before` with `entry`. Either may be nil.
local function replace(view, before, entry)
  local key = (entry or before).key
  view.waiting = view.waiting - (before and before.waiters or 0) + (entry and entry.waiters or 0)
  view.entries[key], view.queued[key] = entry, entry and entry.waiters > 0 and entry or nil
  if before then view.seen[before.scanned_name] = nil end
  if not entry then return end
  view.seen[entry.scanned_name] = entry
  view.last = view.last + 1
  view.by_age[view.last] = entry
end

-- Sets the time at which the owner acquired the lock, or nil if unknown. The times that are read
-- for a hold differ slightly, so the first one is kept.
local function set_since(entry, before, now)
  local is_same = before and before.owner == entry.owner and before.token == entry.token
  entry.since = is_same and before.since or entry.held_for and now - entry.held_for
end

-- Sets the time at which each waiter began to wait. Redisson's list for a fair lock contains no
-- times, so a waiter there has waited at least since it was first seen.
local function set_wait_times(entry, before, now)
  local first_seen = {}
  for _, waiter in ipairs(before and before.queue or {}) do
    first_seen[waiter.owner] = waiter.since
  end
  entry.oldest_wait_since = entry.waits and now - entry.waits
  for _, waiter in ipairs(entry.queue or {}) do
    waiter.since = waiter.waits and now - waiter.waits or first_seen[waiter.owner] or now
    waiter.wait_is_lower_bound = waiter.wait_is_lower_bound or not waiter.waits or nil
    if waiter.since <= (entry.oldest_wait_since or math.huge) then
      entry.oldest_wait_since, entry.wait_is_lower_bound = waiter.since, waiter.wait_is_lower_bound
    end
  end
end

-- Stores an entry that was read. `now`: nginx's clock when the read began.
local function store(view, entry, now)
  local before = view.entries[entry.key]
  if not locks.is_shown(entry) then
    if before then replace(view, before) end
    return
  end
  if entry.waiters > 0 and not view.quorum then
    entry.queue = locks.waiters(view.client, entry, MAX_WAITERS)
  end
  set_since(entry, before, now)
  set_wait_times(entry, before, now)
  entry.scanned_name = entry.scanned_name or before and before.scanned_name or entry.key
  entry.read_at, entry.round, entry.queues_round = core.now(), view.locks.number, view.queues.number
  replace(view, view.entries[entry.key], entry)
end

-- Reads the key as a lock of this kind; nil: of any kind.
-- → true | nil, message after a failure that does not concern only this key
local function read_key(view, key, kind)
  local now, entry, message, code = ngx.now(), nil, nil, nil
  if kind then entry, message, code = locks.read(view.client, key, kind) end
  if not kind or code == "conflict" then entry, message, code = locks.inspect(view.client, key) end
  if entry then
    store(view, entry, now)
  elseif not locks.concerns_single_key(message, code) then
    return nil, message
  elseif view.entries[key] then
    replace(view, view.entries[key])
  end
  return true
end

-- ---- rounds ----

local function visit_queue(view, _, name)
  local keys, is_fair = locks.keys_for_queue(name)
  for _, key in ipairs(keys) do
    local known = view.entries[key]
    local is_read = known and known.queues_round == view.queues.number
    local kind = known and known.kind
    if is_fair then kind = "fair" elseif kind and kinds[kind].found_as then kind = nil end
    if not is_read or is_fair and known.kind ~= kind then
      local ok, message = read_key(view, key, kind)
      if not ok then return nil, message end
    end
  end
  return true
end

-- Reads latches, plain semaphores, and locks that had waiters before this round but were not found
-- in it. Records the number of waiters.
local function finish_queues(view)
  local now = ngx.now()
  for _, entry in ipairs(view.latches and view.latches:next() or {}) do store(view, entry, now) end
  local gone = {}
  for _, entry in pairs(view.queued) do
    if entry.queues_round ~= view.queues.number then gone[#gone + 1] = entry end
  end
  for _, entry in ipairs(gone) do
    local ok, message = read_key(view, entry.key, entry.kind)
    if not ok then return nil, message end
  end
  view.record:add_point(math.floor(ngx.time() / STEP) * STEP, view.waiting)
  return true
end

local function add_non_lock(view, name)
  view.non_locks_left = view.non_locks_left - 1
  if view.non_locks_left >= 0 then view.non_locks[name] = true end
end

local function visit_lock(view, scan, name)
  local known = view.seen[name]
  if known then known.round = view.locks.number end
  if known or view.non_locks[name] then return true end
  view.reads_left = view.reads_left - 1
  local now = ngx.now()
  local entry, message, code = scan:read(name)
  if entry and not entry.done then store(view, entry, now) end
  if entry == false or code == "conflict" then add_non_lock(view, name) end
  if entry ~= nil or not code or locks.concerns_single_key(message, code) then return true end
  return nil, message
end

-- Removes the entries without waiters that no scan has found since the round began.
local function finish_locks(view)
  local number, gone = view.locks.number, {}
  for _, entry in pairs(view.entries) do
    if entry.round ~= number and entry.waiters == 0 then gone[#gone + 1] = entry end
  end
  for _, entry in ipairs(gone) do replace(view, entry) end
  return true
end

local function forget_non_locks(view, now)
  if now < view.non_locks_at + NON_LOCKS_TTL then return end
  view.non_locks, view.non_locks_left, view.non_locks_at = {}, MAX_NON_LOCKS, now
end

-- Sets the number of keys on the servers, or nil if they do not report it.
local function count_keys(view)
  local sum = 0
  for _, node in ipairs(core.client.nodes(view.client)) do
    sum = sum + (replies.command(view.client, { "DBSIZE" }, node) or 0)
  end
  view.keys = sum > 0 and sum or nil
end

-- ---- a poll ----

-- Reads the rows on viewers' screens.
local function read_shown(view, now, deadline)
  for key in pairs(options.copy(view.shown)) do -- other requests add keys during a read
    local entry, shown_at = view.entries[key], view.shown[key] or now
    if now > shown_at + SHOWN_TTL or not entry then
      view.shown[key] = nil
    elseif entry.read_at < now - REREAD_SHOWN_AFTER and core.now() < deadline then
      local ok, message = read_key(view, key, entry.kind)
      if not ok then return nil, message end
    end
  end
  return true
end

-- Returns the entry read longest ago, after dropping entries that have been replaced.
local function find_oldest(view)
  while view.first <= view.last do
    local entry = view.by_age[view.first]
    if view.entries[entry.key] == entry then return entry end
    view.by_age[view.first], view.first = nil, view.first + 1
  end
end

-- Rereads the entries that were read more than REREAD_AFTER seconds ago.
local function read_old(view, now, deadline)
  local entry = find_oldest(view)
  while entry and entry.read_at < now - REREAD_AFTER and view.reads_left > 0
    and core.now() < deadline do
    view.reads_left = view.reads_left - 1
    local ok, message = read_key(view, entry.key, entry.kind)
    if not ok then return nil, message end
    entry = find_oldest(view)
  end
  return true
end

local function is_watched(view, now)
  return now < view.requested_at + WATCHED_FOR
end

-- Removes locks without waiters, which are not read while no page is open.
local function forget_locks(view)
  view.locks:abort()
  view.locks.complete_as_of = nil
  for _, entry in pairs(view.entries) do entry.round = nil end
  finish_locks(view)
end

-- Returns a function that returns whether a round must pause.
local function make_pause_check(view, deadline)
  return function() return core.now() > deadline or view.reads_left < 0 end
end

-- While a page is open, continues the round of the locks and reads old entries again.
-- → true | nil, message
local function read_locks(view, now, started_at)
  if not is_watched(view, now) then
    if view.locks.complete_as_of or view.locks.began then forget_locks(view) end
    find_oldest(view) -- drops replaced entries
    return true
  end
  local is_first = not status_view.knows_count(view)
  if is_first and not view.locks.began then count_keys(view) end
  view.reads_left = is_first and math.huge or MAX_READS
  forget_non_locks(view, now)
  local deadline = started_at + (is_first and FIRST_BUDGET or BUDGET)
  local ok, message = view.locks:continue(now, make_pause_check(view, deadline))
  if ok then ok, message = read_old(view, now, deadline) end
  return ok, message
end

-- Reads from the servers. Pings a single server first, because between rounds there may be nothing
-- to read; member_states pings the servers of a quorum. → nil | what went wrong
local function read_servers(view, now)
  view.reads_left = math.huge
  local ok, message = true, nil
  if not view.quorum then ok, message = view.client:ping() end
  local deadline = core.now() + QUEUES_BUDGET
  if ok then ok, message = view.queues:continue(now, make_pause_check(view, deadline)) end
  if ok then ok, message = read_shown(view, now, core.now() + BUDGET) end
  if ok then ok, message = read_locks(view, now, core.now()) end
  return not ok and message or nil
end

local function member_states(view)
  local states = {}
  for i, node in ipairs(core.client.nodes(view.client)) do
    local started_at = core.now()
    local reply, message = driver.command(view.client, { "PING" }, node)
    states[i] = { up = reply ~= nil, latency = core.now() - started_at, message = message }
  end
  return states
end

-- Returns whether a request is updating the view. An aborted request never clears
-- reading_request, so this checks that the request is alive.
local function is_reading(view)
  return view.reading_request ~= nil and driver.owner.is_alive(view.reading_request)
end

-- Returns why the servers are unreachable, or nil. In a quorum, a minority may be down.
function status_view.outage(view)
  if is_reading(view) and core.now() > view.polled_at + UNREACHABLE_AFTER then
    return "no answer within " .. UNREACHABLE_AFTER .. " s"
  end
  if not view.quorum or not view.members then return view.trouble end
  local up = 0
  for _, member in ipairs(view.members) do up = up + (member.up and 1 or 0) end
  if up > #view.members / 2 then return nil end
  return ("%d of %d servers answered"):format(up, #view.members)
end

local function concerns_view(view, cycle)
  for _, wait in ipairs(cycle) do
    if view.entries[wait.key] then return true end
  end
  return false
end

local function find_cycles(exiting, view)
  local started_at = core.now()
  local result = not exiting and view.client:deadlocks()
  local now = core.now()
  if result then view.cycles = {} end
  for _, cycle in ipairs(result and result.cycles or {}) do
    if concerns_view(view, cycle) then view.cycles[#view.cycles + 1] = cycle end
  end
  local factor = #view.cycles > 0 and CYCLES_FOUND_FACTOR or CYCLES_FACTOR
  view.cycles_due = now + math.max(CYCLES_MIN_PAUSE, factor * (now - started_at))
end

-- Searches for deadlocks in a timer, because the search scans all keys. Skips it if there can be no
-- lasting deadlock, which needs two waiters. `longest_wait`: seconds, or nil
function status_view.search_for_deadlocks(view, longest_wait)
  if view.waiting < 2 or (longest_wait or 0) < CYCLES_MIN_WAIT then
    view.cycles = {}
  elseif core.now() >= view.cycles_due and timer.at(0, find_cycles, view) then
    view.cycles_due = math.huge
  end
end

local function read_all(view, now)
  local ok, result = pcall(read_servers, view, now)
  if ok and view.quorum then view.members = member_states(view) end
  view.reading_request = nil
  view.trouble = result
  if ok then return end
  view.trouble = "a reply from the server was not understood; see nginx's error log"
  ngx.log(ngx.ERR, "holdfast.status: ", locale.text(result))
end

-- Reads from the servers, unless a request is doing so or has just done so.
function status_view.refresh(view)
  local now = core.now()
  local pause = is_watched(view, now) and OPEN_PAUSE or CLOSED_PAUSE
  if now < view.polled_at + pause or is_reading(view) then return end
  view.reading_request, view.polled_at = driver.owner.mark(), now
  read_all(view, now)
  forget_names(view, now)
  if not status_view.outage(view) then view.reachable_at = ngx.now() end
end

-- Returns whether the waiters are known: the last complete round of the queues is recent.
function status_view.knows_waiters(view)
  local complete_as_of = view.queues.complete_as_of
  return complete_as_of ~= nil and core.now() <= complete_as_of + QUEUES_TTL
end

-- Returns whether the number of locks is known.
function status_view.knows_count(view)
  return view.locks.complete_as_of ~= nil
end

-- Returns the seconds since the start of the round that counted the locks.
function status_view.count_age(view)
  return core.now() - view.locks.complete_as_of
end

-- → the number of keys that the round of the locks has scanned, the approximate number of all keys
-- or nil if unknown
function status_view.progress(view)
  local scanned = math.floor(view.locks.scanned_count / #view.locks.scans)
  return math.min(scanned, view.keys or scanned), view.keys
end

-- Returns a message about what the scans could not read, or nil.
function status_view.describe_unread(view)
  return locks.describe_unread(rounds.scans(view))
end

-- Called for each request of a page.
function status_view.record_request(view)
  local now = core.now()
  if not is_watched(view, now) then forget_locks(view) end
  view.requested_at = now
end

-- Marks this lock as shown on a viewer's screen. → whether its entry is too old to be shown
function status_view.mark_shown(view, entry)
  local now = core.now()
  view.shown[entry.key] = now
  return now > entry.read_at + TOO_OLD
end

-- ---- which worker reads ----

-- Removes everything that was read.
local function clear(view)
  local queues, held, latches = locks.rounds(view.client, view.pattern, true)
  view.latches = latches
  view.queues = rounds.new(view, queues, QUEUES, visit_queue, finish_queues)
  view.locks = rounds.new(view, held, LOCKS, visit_lock, finish_locks)
  view.entries = {} -- key -> entry
  view.queued = {} -- key -> entry, only for locks with waiters
  view.seen = {} -- the name under which a scan found the lock -> entry
  view.waiting, view.cycles, view.cycles_due = 0, {}, 0
  view.by_age, view.first, view.last = {}, 1, 0 -- entries in read order, even replaced ones
  view.shown = {} -- key -> the time at which it was last shown
  view.non_locks, view.non_locks_left, view.non_locks_at = {}, MAX_NON_LOCKS, core.now()
  view.trouble, view.reachable_at, view.polled_at, view.members = nil, nil, -STEP, nil
end

-- Returns whether to update this view periodically. Without a dict, each worker would have to
-- update its own view, so workers do that only while a page is open.
function status_view.is_needed(view)
  return view.record.shared or is_watched(view, core.now())
end

-- Returns whether this worker is the one that reads from the servers. When that changes, removes
-- everything that was read.
function status_view.update_role(view)
  local leads = view.record:take_lease()
  if leads ~= view.was_leading then clear(view) end
  view.was_leading = leads
  return leads
end

-- Returns a listener that records the client's losses.
local function loss_recorder(view)
  return function(event)
    if event.event ~= "lost" then return end
    view.record:add_loss {
      time = ngx.now(), key = event.key, reason = event.code, class = event.class,
      owner = event.owner, pid = ngx.worker.pid(),
    }
  end
end

-- `servers_id`: a string that identifies the client's servers.
function status_view.new(client, pattern, servers_id)
  local view = {
    client = client, pattern = pattern, quorum = core.client.is_quorum(client), names = {},
    record = records.new(servers_id .. " " .. pattern), requested_at = -WATCHED_FOR,
  }
  clear(view)
  events.add_listener(client, loss_recorder(view))
  return view
end

return status_view
