-- Builds the status page's reply to ?json.

local core = require "holdfast.core"
local json = require "holdfast.command.json"
local kinds = require "holdfast.command.kinds"
local locale = require "holdfast.locale"
local observed = require "holdfast.observed"
local records = require "holdfast.status_record"
local shared_metrics = require "holdfast.shared_metrics"
local shell = require "holdfast.command.shell"
local sorted = require "holdfast.sorted"
local views = require "holdfast.status_view"

local status_json = {}

-- How many locks a reply lists, and the bytes that these, the deadlocks and the losses may take.
local SHOWN, ROOM, DEADLOCK_ROOM, LOSS_ROOM = 100, 28672, 2048, 2048
local OPEN_WAITERS, CLOSED_WAITERS = 20, 5 -- waiters listed for an open row, and for any other
local LONGEST, LONGEST_KEY = 255, 1024 -- bytes of a string, and of a key, that are shown
local SPAN, STEP = records.SPAN, records.STEP

-- ---- one lock ----

-- Formats a time in seconds, to the millisecond.
local function clock(time)
  return time and { text = locale.decimal("%.3f", time) }
end

-- Shortens a string, which may be as long as a Redis key.
local function cut(text, limit)
  return text and #text > (limit or LONGEST) and text:sub(1, limit or LONGEST) or text
end

-- `lag`: seconds since the servers last replied, if they no longer do; else 0.
local function waiter_json(view, waiter, lag)
  local who = views.who(view, waiter.owner) or {}
  return json.object {
    { "owner", cut(waiter.owner) }, { "host", cut(who.host) }, { "pid", who.pid },
    { "name", cut(who.name) }, { "seconds", math.max(ngx.now() - lag - waiter.since, 0) },
    { "at_least", waiter.at_least },
  }
end

local function queue_json(view, entry, lag, limit)
  local queue = {}
  for i = 1, math.min(#(entry.queue or {}), limit) do
    queue[i] = waiter_json(view, entry.queue[i], lag)
  end
  return json.list(queue)
end

-- Returns the key as in a URL if JSON writes part of it as \u00xx (a control character, or bytes
-- that are not UTF-8), or nil.
local function link_of(key)
  return json.value(key):find("\\u00", 1, true) and ngx.escape_uri(key) or nil
end

local function entry_json(view, entry, lag, is_open)
  local who, now = entry.owner and views.who(view, entry.owner) or {}, core.now() - lag
  local is_whole = #entry.key <= LONGEST_KEY
  return json.object {
    { "key", cut(entry.key, LONGEST_KEY) }, { "key_size", not is_whole and #entry.key or nil },
    { "link", is_whole and link_of(entry.key) or nil },
    { "mutex", entry.mutex }, { "kind", entry.kind }, { "count", entry.count },
    { "mode", entry.mode }, { "readers", entry.mode and entry.readers },
    { "permits", entry.permits }, { "available", entry.available },
    { "owner", cut(entry.owner) }, { "host", cut(who.host) }, { "pid", who.pid },
    { "name", cut(who.name) }, { "holds", entry.holds },
    { "ttl", entry.ttl and math.max(entry.ttl - (now - entry.read_at), 0) },
    { "since", clock(entry.since) },
    { "token", entry.token and ("%.0f"):format(entry.token) }, { "waiters", entry.waiters },
    { "wait", entry.waits_since and math.max(ngx.now() - lag - entry.waits_since, 0) },
    { "wait_at_least", entry.waits_at_least },
    { "queue", queue_json(view, entry, lag, is_open and OPEN_WAITERS or CLOSED_WAITERS) },
    { "break", is_open and is_whole and shell.break_line(entry.key, kinds[entry.kind].removes) or nil },
  }
end

-- ---- search ----

-- Returns the word's table for the algorithm of Knuth, Morris and Pratt: for each prefix, the
-- length of its longest border. The search takes no longer for a long word than for a short one.
local function borders_of(word)
  local borders, known = { 0 }, 0
  for i = 2, #word do
    while known > 0 and word:byte(known + 1) ~= word:byte(i) do known = borders[known] end
    if word:byte(known + 1) == word:byte(i) then known = known + 1 end
    borders[i] = known
  end
  return borders
end

local LOWER = {}
for byte = 0, 255 do LOWER[byte] = locale.lower(string.char(byte)):byte() end

-- Returns a function (text) → whether the text contains the word, ignoring case.
function status_json.finder(word)
  word = locale.lower(word)
  local borders = borders_of(word)
  return function(text)
    local known = 0
    for i = 1, #text do
      local byte = LOWER[text:byte(i)]
      while known > 0 and word:byte(known + 1) ~= byte do known = borders[known] end
      if word:byte(known + 1) == byte then known = known + 1 end
      if known == #word then return true end
    end
    return false
  end
end

-- ---- in order ----

local function holder_of(view, entry)
  local known = entry.owner and view.names[entry.owner:sub(1, 36)]
  local who = known and known.who
  return who and ("%s %s %d"):format(who.host, who.name or "", who.pid) or entry.owner or ""
end

-- Sort keys, the lowest first, so the longest wait comes first. An entry without a value comes
-- last, but one without a holder comes first.
local VALUES = {
  wait = function(_, entry) return entry.waits_since or math.huge end,
  held = function(_, entry) return entry.since or math.huge end,
  ttl = function(_, entry) return entry.ttl and entry.ttl + entry.read_at or math.huge end,
  token = function(_, entry) return entry.token or math.huge end,
  waiters = function(_, entry) return -entry.waiters end,
  holder = holder_of,
  key = function(_, entry) return entry.key end,
}

local function is_less(a, b)
  if type(a) == "string" then return locale.is_before(a, b) end
  return a < b -- any locale: numbers
end

-- Among equal entries, the one held longest comes first.
local function order(view, asked)
  local value_of = VALUES[asked.sort]
  return function(a, b)
    local of_a, of_b = value_of(view, a), value_of(view, b)
    if of_a ~= of_b then return is_less(of_a, of_b) ~= asked.reverse end
    if a.since ~= b.since then return is_less(a.since or math.huge, b.since or math.huge) end
    return locale.is_before(a.key, b.key)
  end
end

-- → the requested entries, how many wait for them, the longest wait for any lock, that lock's key
local function matching(view, asked, lag)
  local list, waiting, oldest, longest_key = {}, 0, math.huge, nil
  local has_word = status_json.finder(asked.search)
  for key, entry in pairs(view.entries) do
    local since = entry.waits_since or math.huge
    if since < oldest then oldest, longest_key = since, key end -- any locale: numbers
    if key:sub(1, #asked.prefix) == asked.prefix and has_word(key) then
      list[#list + 1], waiting = entry, waiting + entry.waiters
    end
  end
  return list, waiting, longest_key and math.max(ngx.now() - lag - oldest, 0), longest_key
end

-- Skips the first `asked.from` entries. → the JSON of as many as there is room for, whether one is
-- too old
local function entries_json(view, list, asked, lag)
  local texts, room, some_old = {}, ROOM, false
  local first = sorted.first(list, asked.from + SHOWN, order(view, asked))
  for i = asked.from + 1, #first do
    local text = entry_json(view, first[i], lag, asked.open[first[i].key])
    room = room - #text
    if room < 0 and #texts > 0 then break end
    texts[#texts + 1] = text
    some_old = views.note_shown(view, first[i]) or some_old
  end
  return texts, some_old
end

-- ---- history, and what is wrong ----

local function points_json(view)
  local list, at = {}, math.floor(ngx.time() / STEP) * STEP
  for time = at - SPAN + STEP, at, STEP do
    list[#list + 1] = json.object { { "time", time }, { "waiting", view.record:point(time) } }
  end
  return json.list(list)
end

-- Returns the losses of this worker's client, by reason.
local function own_losses(client)
  local lost = {}
  for _, class in ipairs(core.client.classes(client)) do
    for reason, count in pairs(class.lost) do lost[reason] = (lost[reason] or 0) + count end
  end
  return lost
end

local function loss_counts_json(view)
  local lost = shared_metrics.losses() or own_losses(view.client)
  local fields = {}
  for _, reason in ipairs { "expired", "taken", "deleted", "unreachable", "max_hold" } do
    fields[#fields + 1] = { reason, lost[reason] or 0 }
  end
  return { text = json.object(fields) }
end

-- Returns a JSON list of the first texts, as many as fit into `room` bytes.
local function list_within(texts, room)
  local list = {}
  for _, text in ipairs(texts) do
    room = room - #text
    if room < 0 then break end
    list[#list + 1] = text
  end
  return json.list(list)
end

local function recent_losses_json(recent)
  local texts = {}
  for i, loss in ipairs(recent) do
    texts[i] = json.object {
      { "time", clock(loss.time) }, { "key", cut(loss.key) }, { "reason", loss.reason },
      { "class", cut(loss.class) }, { "owner", cut(loss.owner) }, { "pid", loss.pid },
    }
  end
  return list_within(texts, LOSS_ROOM)
end

local function cycle_json(cycle)
  local waits = {}
  for i, wait in ipairs(cycle) do
    waits[i] = json.object {
      { "key", cut(wait.key) }, { "owner", cut(wait.owner) }, { "host", cut(wait.host) },
      { "pid", wait.pid }, { "name", cut(wait.name) }, { "holder", cut(wait.holder) },
      { "holder_host", cut(wait.holder_host) }, { "holder_pid", wait.holder_pid },
      { "holder_name", cut(wait.holder_name) }, { "break", i == 1 and shell.break_line(wait.key) or nil },
    }
  end
  return json.list(waits).text
end

local function cycles_json(view)
  local texts = {}
  for i, cycle in ipairs(view.cycles) do texts[i] = cycle_json(cycle) end
  return list_within(texts, DEADLOCK_ROOM)
end

local function members_json(view)
  local list = {}
  for i, member in ipairs(view.members or {}) do
    list[i] = json.object {
      { "server", i }, { "up", member.up }, { "seconds", member.took },
      { "message", cut(member.message) },
    }
  end
  return view.quorum and json.list(list) or nil
end

local function some_down(view)
  for _, member in ipairs(view.members or {}) do
    if not member.up then return true end
  end
  return false
end

-- `asked`: { prefix, search, sort, reverse, from, open = the keys whose rows are open }
-- → the JSON, why the servers are unreachable or nil, whether a row is too old to be shown
function status_json.reply(view, asked)
  local away, recent = views.outage(view), view.record:losses()
  local age = view.good_at and ngx.now() - view.good_at
  local lag = away and age or 0
  local list, waiting, longest, longest_key = matching(view, asked, lag)
  if not away then views.look_for_cycles(view, longest) end
  local shown, some_old = entries_json(view, list, asked, lag)
  local next_from, is_complete = asked.from + #shown, views.is_complete(view)
  local looked, keys
  if not is_complete then looked, keys = views.progress(view) end
  return json.object {
    { "server", core.client.server(view.client) }, { "time", clock(ngx.now()) },
    { "age", age },
    { "state", observed.state {
      away = away, deadlocks = #view.cycles, losses = #recent, longest_wait = longest,
      some_down = some_down(view), is_known = views.is_known(view),
    } },
    { "trouble", cut(away or view.trouble, LONGEST_KEY) }, { "left_out", views.left_out(view) },
    { "complete", is_complete }, { "looked", looked }, { "keys", keys },
    { "count", #list }, { "count_age", is_complete and views.count_age(view) or nil },
    { "waiters", waiting }, { "longest_wait", longest },
    { "longest_key", cut(longest_key) },
    { "from", asked.from },
    { "next", next_from < #list and #shown > 0 and next_from or nil },
    { "locks", json.list(shown) }, { "points", points_json(view) },
    { "losses", loss_counts_json(view) }, { "lost", recent_losses_json(recent) },
    { "deadlocks", cycles_json(view) }, { "members", members_json(view) },
    { "shared", view.record.shared },
  }, away, some_old and not away
end

-- An argument may come several times, or without a value.
local function text_of(value)
  return type(value) == "string" and value or ""
end

-- Parses the arguments of a request.
function status_json.parse_arguments(args)
  local open = {}
  for _, key in ipairs(type(args.open) == "table" and args.open or { args.open }) do
    open[key] = true
  end
  local from = text_of(args.from):match("^%d%d?%d?%d?%d?%d?%d?%d?%d?$")
  return {
    prefix = text_of(args.prefix), search = text_of(args.search), open = open,
    sort = VALUES[args.sort] and args.sort or "wait", reverse = args.reverse ~= nil,
    from = locale.number(from) or 0,
  }
end

return status_json
