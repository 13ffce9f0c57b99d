-- The live page of OpenResty: what is held, by whom, who waits, and the hand-offs of the last ten
-- minutes; the same as JSON with ?json. It only reads.
--
-- Each worker keeps one view for each client. A request brings it up to date if it is older than
-- FRESH: SCAN goes on where it stopped, a page at a time, for at most BUDGET seconds; what it has
-- not met is read again. With a lua_shared_dict one worker looks by the clock as well, so that the
-- view's record has what happened while nobody had the page open.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local json = require "holdfast.command.json"
local locks = require "holdfast.command.locks"
local locale = require "holdfast.locale"
local names = require "holdfast.names"
local records = require "holdfast.status_record"
local shared_metrics = require "holdfast.shared_metrics"

local status = {}

local FRESH, BUDGET = 0.4, 0.3
local SHOWN = 1000 -- locks that the answer lists
local WAITERS = 20 -- of one lock
local SPAN, STEP = records.SPAN, records.STEP -- seconds of the plots, and of each of their points
local NAMES_FOR = 30 -- seconds for which a name is believed

local views = setmetatable({}, { __mode = "k" })

-- ---- reading ----

-- Owners of one client have one name.
local function who(view, owner, now)
  local uuid = owner:sub(1, 36)
  local known = view.names[uuid]
  if not known or now > known.at + (known.who and NAMES_FOR or 1) then
    known = { at = now, who = names.of(view.client, owner) }
    view.names[uuid] = known
  end
  return known.who
end

local function forget_names(view, now)
  for uuid, known in pairs(view.names) do
    if now > known.at + NAMES_FOR then view.names[uuid] = nil end
  end
end

-- Fencing tokens are the server's clock in microseconds, unless locks are taken faster.
local function since(entry, before, now_us)
  if before and before.owner == entry.owner then return before.since end
  local token = entry.token
  local plausible = token and token > now_us - 30 * 86400e6 and token <= now_us + 1e6
  return (plausible and token or now_us) / 1e6
end

-- Places in a queue that does not run empty count exactly; any other change of the holder counts
-- one.
local function handed_over(before, entry)
  if not before then return 0 end
  if before.head and entry.head and entry.head > before.head then
    return entry.head - before.head
  end
  return (before.token ~= entry.token or before.owner ~= entry.owner) and 1 or 0
end

-- A queue gives each wait a place of its own; a fair lock's list does not.
local function name_of(waiter)
  return ("%s %s"):format(waiter.owner, waiter.score or "")
end

-- Since when its waiters wait, as far as they were seen.
local function note_waiters(view, entry, before)
  local known = before and before.waiting or {}
  entry.waiting = {}
  for _, waiter in ipairs(entry.queue or {}) do
    local name = name_of(waiter)
    entry.waiting[name] = view.record:first_seen(entry.key, name, known[name] or ngx.now())
  end
  for name in pairs(known) do
    if not entry.waiting[name] then view.record:forget(entry.key, name) end
  end
end

local function keep(view, entry, now)
  local id = entry.key
  local before = view.entries[id]
  if before and before.kind == "fair" and entry.kind == "lock" then -- found as a hash, again
    entry = locks.read(view.client, id, "fair") or entry
  end
  if not entry.held then
    note_waiters(view, { key = id }, before)
    view.entries[id] = nil
    return
  end
  if entry.waiters > 0 and not view.quorum then
    entry.queue = locks.waiters(view.client, entry.key, WAITERS, entry.kind)
    entry.head = entry.queue[1] and entry.queue[1].score
  end
  entry.since = since(entry, before, ngx.time() * 1e6)
  note_waiters(view, entry, before)
  view.handed = view.handed + handed_over(before, entry)
  entry.read_at = now
  view.entries[id] = entry
end

-- One step of a scan. A round does not read a lock twice, which each server of a quorum has.
-- → whether it has gone round
local function step(view, scan, now)
  scan.met = scan.met or {}
  local found, message = scan:next(scan.met)
  view.trouble = message
  for _, entry in ipairs(found or {}) do
    scan.met[entry.found_as] = entry
    if not entry.done then keep(view, entry, now) end
  end
  if scan.ended then scan.met = nil end
  return not found or scan.ended
end

-- What the scans have not met now, what was read longest ago first.
local function unread(view, now)
  local list = {}
  for _, entry in pairs(view.entries) do
    if entry.read_at < now then list[#list + 1] = entry end
  end
  table.sort(list, function(a, b) return a.read_at < b.read_at end)
  return list
end

local function read_again(view, now, till)
  for _, entry in ipairs(unread(view, now)) do
    if core.now() > till then return end
    local again, _, code = locks.read(view.client, entry.key, entry.kind)
    if again then
      keep(view, again, now)
    elseif code == "conflict" then
      entry.held = false
      keep(view, entry, now)
    end
  end
end

local function read_servers(view, now)
  local till = now + BUDGET
  for _, scan in ipairs(view.scans) do
    repeat
      local round = step(view, scan, now)
    until round or core.now() > till
  end
  read_again(view, now, till + BUDGET)
end

-- ---- the last ten minutes ----

local function note(view)
  local adds, begins = view.record:adds()
  local waiting = 0
  for _, entry in pairs(view.entries) do waiting = waiting + entry.waiters end
  if adds then
    local at = math.floor(ngx.time() / STEP) * STEP
    view.record:add(at, begins and 0 or view.handed, waiting)
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
  return view.reader ~= nil and driver.lives(view.reader)
end

local function refresh(view)
  local now = core.now()
  if now < view.at + FRESH or is_reading(view) then return end
  view.reader, view.at = driver.mark(), now
  local ok, err = pcall(read_servers, view, now)
  if ok and view.quorum then view.members = member_states(view) end
  view.reader = nil
  forget_names(view, now)
  if not ok then error(err, 0) end
  note(view)
end

local function new_view(client, pattern, where)
  local scans = locks.scans(client, pattern)
  scans[#scans + 1] = locks.scans(client, pattern, true)[1]
  return {
    client = client, quorum = core.client.is_quorum(client), entries = {}, names = {},
    record = records.new(where .. " " .. pattern), handed = 0, at = -FRESH,
    scans = scans,
  }
end

local function view_of(client, pattern, where)
  local of_client = views[client] or {}
  views[client] = of_client
  of_client[pattern] = of_client[pattern] or new_view(client, pattern, where)
  return of_client[pattern]
end

-- ---- telling ----

-- Seconds of the clock, to the millisecond.
local function clock(time)
  return { text = locale.decimal("%.3f", time) }
end

local function waiter_json(view, entry, waiter, now)
  local is = who(view, waiter.owner, now) or {}
  return json.object {
    { "owner", waiter.owner }, { "host", is.host }, { "pid", is.pid }, { "name", is.name },
    { "seconds", ngx.now() - entry.waiting[name_of(waiter)] },
  }
end

local function entry_json(view, entry, now)
  local is, queue = entry.owner and who(view, entry.owner, now) or {}, {}
  for i, waiter in ipairs(entry.queue or {}) do queue[i] = waiter_json(view, entry, waiter, now) end
  return json.object {
    { "key", entry.key }, { "mutex", entry.mutex }, { "kind", entry.kind },
    { "count", entry.count },
    { "mode", entry.mode }, { "readers", entry.mode and entry.readers },
    { "permits", entry.permits }, { "available", entry.available },
    { "owner", entry.owner }, { "host", is.host }, { "pid", is.pid },
    { "name", is.name }, { "holds", entry.holds }, { "ttl", entry.ttl },
    { "since", clock(entry.since) },
    { "token", entry.token and ("%.0f"):format(entry.token) }, { "waiters", entry.waiters },
    { "queue", json.list(queue) },
  }
end

local function matching(view, prefix)
  local list = {}
  for _, entry in pairs(view.entries) do
    if entry.key:sub(1, #prefix) == prefix then list[#list + 1] = entry end
  end
  table.sort(list, function(a, b)
    if a.waiters ~= b.waiters then return a.waiters > b.waiters end
    return locale.is_before(a.key, b.key)
  end)
  return list
end

local function points_json(view)
  local list, at = {}, math.floor(ngx.time() / STEP) * STEP
  for time = at - SPAN + STEP, at, STEP do
    local handed, waiting = view.record:point(time)
    list[#list + 1] = json.object {
      { "time", time }, { "hand_offs", handed }, { "waiting", waiting },
    }
  end
  return json.list(list)
end

-- What this worker's client has lost, by reason.
local function own_losses(client)
  local lost = {}
  for _, of in ipairs(core.client.classes(client)) do
    for reason, count in pairs(of.lost) do lost[reason] = (lost[reason] or 0) + count end
  end
  return lost
end

local function losses_json(view)
  local lost = shared_metrics.losses() or own_losses(view.client)
  local fields = {}
  for _, reason in ipairs { "expired", "taken", "deleted", "unreachable" } do
    fields[#fields + 1] = { reason, lost[reason] or 0 }
  end
  return { text = json.object(fields) }
end

local function members_json(view)
  local list = {}
  for i, member in ipairs(view.members or {}) do
    list[i] = json.object {
      { "server", i }, { "up", member.up }, { "seconds", member.took },
      { "message", member.message },
    }
  end
  return view.quorum and json.list(list) or nil
end

local function answer(view, prefix)
  local now, list, shown = core.now(), matching(view, prefix), {}
  for i = 1, math.min(#list, SHOWN) do shown[i] = entry_json(view, list[i], now) end
  return json.object {
    { "server", core.client.server(view.client) }, { "time", clock(ngx.now()) },
    { "trouble", view.trouble },
    { "count", #list }, { "locks", json.list(shown) }, { "points", points_json(view) },
    { "losses", losses_json(view) }, { "members", members_json(view) },
    { "shared", view.record.shared },
  }
end

local HEADERS = {
  ["Cache-Control"] = "no-store",
  ["X-Content-Type-Options"] = "nosniff",
  ["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    .. "connect-src 'self'; frame-ancestors 'none'",
}

-- Looks by the clock as well, from now on, if there is a record of all workers.
local function watch(view)
  view.record:watch(function() refresh(view) end)
end

-- The content handler. `where`: what tells the keys of this client from those of other clients. In
-- init_worker_by_lua nobody has asked: it begins to look.
function status.serve(client, pattern, where)
  pattern = pattern or "*"
  if ngx.get_phase() == "init_worker" then return watch(view_of(client, pattern, where)) end
  local method = ngx.req.get_method()
  if method ~= "GET" and method ~= "HEAD" then return ngx.exit(405) end
  for name, value in pairs(HEADERS) do ngx.header[name] = value end
  local args = ngx.req.get_uri_args()
  if not args.json then
    ngx.header["Content-Type"] = "text/html; charset=utf-8"
    return ngx.print(require "holdfast.status_page")
  end
  local view = view_of(client, pattern, where)
  watch(view)
  refresh(view)
  ngx.header["Content-Type"] = "application/json"
  ngx.print(answer(view, type(args.prefix) == "string" and args.prefix or ""))
end

return status
