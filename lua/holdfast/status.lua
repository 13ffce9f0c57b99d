-- The live page of OpenResty: what is held, by whom, who waits, and the hand-offs of the last ten
-- minutes; the same as JSON with ?json. It only reads.
--
-- Each worker keeps one view for each client, for all who look. A request brings it up to date if
-- it is older than FRESH and no other request does so: first what was shown a moment ago, then SCAN
-- goes on where it stopped, a page at a time, then what was read longest ago: until one, three and
-- five BUDGETs of seconds have gone by. Answers are taken from the view, which is in order all the
-- time. With a lua_shared_dict one worker looks by the clock as well, so that the view's record has
-- what happened while nobody had the page open.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local json = require "holdfast.command.json"
local locks = require "holdfast.command.locks"
local locale = require "holdfast.locale"
local names = require "holdfast.names"
local observed = require "holdfast.observed"
local records = require "holdfast.status_record"
local shared_metrics = require "holdfast.shared_metrics"
local sorted = require "holdfast.sorted"

local status = {}

local FRESH, BUDGET = 0.4, 0.1
local PAGE = 100 -- keys that one SCAN visits
local SHOWN, ROOM = 100, 28672 -- locks that one answer lists, and bytes that they may take
local SHOWN_FOR = 3 -- seconds for which what was shown is read first
local WAITERS, FIRST = 20, 5 -- of one lock: that are read, and that are listed unasked
local LONGEST, LONGEST_KEY = 255, 1024 -- bytes of a text that are listed
local SPAN, STEP = records.SPAN, records.STEP -- seconds of the plots, and of each of their points
local NAMES_FOR = 30 -- seconds for which a name is believed

local views = setmetatable({}, { __mode = "k" })

-- ---- reading ----

-- Owners of one client have one name. It is asked for once, however many look meanwhile.
local function who(view, owner, now)
  local uuid = owner:sub(1, 36)
  local known = view.names[uuid]
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
  entry.waiting = {}
  for _, waiter in ipairs(entry.queue or {}) do
    local name = name_of(waiter)
    entry.waiting[name] = view.record:first_seen(entry.key, name, known[name] or ngx.now())
  end
  for name in pairs(known) do
    if not entry.waiting[name] then view.record:forget(entry.key, name) end
  end
end

local function add(view, entry, sign)
  local list = entry.waiters > 0 and view.busy or view.idle
  if sign > 0 then sorted.insert(list, entry) else sorted.remove(list, entry) end
  view.waiting = view.waiting + sign * entry.waiters
end

-- Puts `entry`, or nothing, in the place of the one before.
local function replace(view, before, entry)
  if before then add(view, before, -1) end
  view.entries[(entry or before).key] = entry
  if not entry then return end
  add(view, entry, 1)
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
  if known and known.kind == "fair" and entry.kind == "lock" then -- found as a hash, again
    entry = locks.read(view.client, entry.key, "fair") or entry
  end
  if entry.held and entry.waiters > 0 and not view.quorum then
    entry.queue = locks.waiters(view.client, entry.key, WAITERS, entry.kind)
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
  if scan.ended then scan.met = nil end
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

-- Each scan goes round once at most, and all of them go on by turns.
local function read_new(view, now, till)
  local left, trouble = {}, nil
  for i, scan in ipairs(view.scans) do left[i] = scan end
  repeat
    for i = #left, 1, -1 do
      local round, message = step(view, left[i], now)
      if round then table.remove(left, i) end
      trouble = trouble or message
    end
  until #left == 0 or core.now() > till
  view.trouble = trouble
end

-- What neither scans nor viewers have met now.
local function read_old(view, now, till)
  while view.first <= view.last and core.now() < till do
    local entry = view.by_age[view.first]
    if view.entries[entry.key] == entry then
      if entry.read_at >= now then return end
      read_again(view, entry, now)
    end
    if view.entries[entry.key] == entry then -- it could not be read
      entry.read_at = now
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
  if not ok then
    view.trouble = "a reply of the server was not understood, see nginx's error log"
    ngx.log(ngx.ERR, "holdfast.status: ", locale.text(err))
  end
  note(view)
end

local function by_key(a, b)
  return locale.is_before(a.key, b.key)
end

local function by_waiters(a, b)
  if a.waiters ~= b.waiters then return a.waiters > b.waiters end
  return locale.is_before(a.key, b.key)
end

local function new_view(client, pattern, where)
  local scans = locks.scans(client, pattern)
  scans[#scans + 1] = locks.scans(client, pattern, true)[1]
  for _, scan in ipairs(scans) do scan.count = PAGE end
  return {
    client = client, quorum = core.client.is_quorum(client), names = {},
    record = records.new(where .. " " .. pattern), handed = 0, at = -FRESH, scans = scans,
    entries = {}, busy = sorted.new(by_waiters), idle = sorted.new(by_key), waiting = 0,
    by_age = {}, first = 1, last = 0, -- entries as they were read; an older one of a key stays
    shown = {}, -- key -> when
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

-- A text may be as long as a key of Redis.
local function cut(text, most)
  return text and #text > most and text:sub(1, most) or text
end

local function waiter_json(view, entry, waiter, now)
  local is = who(view, waiter.owner, now) or {}
  return json.object {
    { "owner", cut(waiter.owner, LONGEST) }, { "host", cut(is.host, LONGEST) }, { "pid", is.pid },
    { "name", cut(is.name, LONGEST) },
    { "seconds", ngx.now() - entry.waiting[name_of(waiter)] },
  }
end

local function entry_json(view, entry, now, waiters)
  local is, queue = entry.owner and who(view, entry.owner, now) or {}, {}
  for i = 1, math.min(#(entry.queue or {}), waiters) do
    queue[i] = waiter_json(view, entry, entry.queue[i], now)
  end
  return json.object {
    { "key", cut(entry.key, LONGEST_KEY) },
    { "key_size", #entry.key > LONGEST_KEY and #entry.key or nil },
    { "mutex", entry.mutex }, { "kind", entry.kind }, { "count", entry.count },
    { "mode", entry.mode }, { "readers", entry.mode and entry.readers },
    { "permits", entry.permits }, { "available", entry.available },
    { "owner", cut(entry.owner, LONGEST) }, { "host", cut(is.host, LONGEST) }, { "pid", is.pid },
    { "name", cut(is.name, LONGEST) }, { "holds", entry.holds }, { "ttl", entry.ttl },
    { "since", clock(entry.since) },
    { "token", entry.token and ("%.0f"):format(entry.token) }, { "waiters", entry.waiters },
    { "queue", json.list(queue) },
  }
end

-- Those with waiters: → at most `most` of them behind the first `from`, how many, their waiters
local function busy(view, prefix, from, most)
  if prefix == "" then return sorted.slice(view.busy, from, most), view.busy.size, view.waiting end
  local list, count, waiting = {}, 0, 0
  for _, entry in ipairs(sorted.slice(view.busy, 0, view.busy.size)) do
    if entry.key:sub(1, #prefix) == prefix then
      count, waiting = count + 1, waiting + entry.waiters
      if count > from and #list < most then list[#list + 1] = entry end
    end
  end
  return list, count, waiting
end

-- What comes behind all keys with this prefix; nil: nothing.
local function behind(prefix)
  local head, last = prefix:match("^(.*)([^\255])\255*$")
  return head and { key = head .. string.char(last:byte() + 1) }
end

-- Those without: → as busy
local function idle(view, prefix, from, most)
  local list, stop = view.idle, behind(prefix)
  local before = sorted.rank(list, { key = prefix })
  local count = (stop and sorted.rank(list, stop) or list.size) - before
  return sorted.slice(list, before + from, math.max(math.min(most, count - from), 0)), count
end

-- → the locks behind the first `from`, at most SHOWN, how many there are, how many wait for them
local function page(view, prefix, from)
  local list, busy_count, waiting = busy(view, prefix, from, SHOWN)
  local rest, idle_count = idle(view, prefix, math.max(from - busy_count, 0), SHOWN - #list)
  for _, entry in ipairs(rest) do list[#list + 1] = entry end
  return list, busy_count + idle_count, waiting
end

-- → texts of as many as there is room for
local function entries_json(view, list, open)
  local now, texts, room = core.now(), {}, ROOM
  for i, entry in ipairs(list) do
    local text = entry_json(view, entry, now, open[entry.key] and WAITERS or FIRST)
    room = room - #text
    if room < 0 and i > 1 then break end
    texts[i], view.shown[entry.key] = text, now
  end
  return texts
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

-- `asked`: { prefix, from, open = the keys whose queues are listed longer }
local function answer(view, asked)
  local list, count, waiting = page(view, asked.prefix, asked.from)
  local shown = entries_json(view, list, asked.open)
  local behind_shown = asked.from + #shown
  return json.object {
    { "server", core.client.server(view.client) }, { "time", clock(ngx.now()) },
    { "trouble", cut(view.trouble, LONGEST_KEY) },
    { "count", count }, { "waiters", waiting }, { "from", asked.from },
    { "next", behind_shown < count and #shown > 0 and behind_shown or nil },
    { "locks", json.list(shown) }, { "points", points_json(view) },
    { "losses", losses_json(view) }, { "members", members_json(view) },
    { "shared", view.record.shared },
  }
end

-- An argument may come several times, or without a value.
local function asked_for(args)
  local open = {}
  for _, key in ipairs(type(args.open) == "table" and args.open or { args.open }) do
    open[key] = true
  end
  local from = type(args.from) == "string" and args.from:match("^%d%d?%d?%d?%d?%d?%d?%d?%d?$")
  return {
    prefix = type(args.prefix) == "string" and args.prefix or "",
    from = locale.number(from) or 0, open = open,
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
  ngx.print(answer(view, asked_for(args)))
end

return status
