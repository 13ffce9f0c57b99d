-- Builds the status page's JSON reply.

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

local MAX_LOCKS = 100 -- locks in a reply
local MAX_LOCKS_SIZE, MAX_DEADLOCKS_SIZE, MAX_LOSSES_SIZE = 28672, 2048, 2048 -- bytes of each list
local MAX_OPEN_WAITERS, MAX_CLOSED_WAITERS = 20, 5 -- listed in an open row, and in any other
local MAX_STRING, MAX_KEY = 255, 1024 -- bytes of a string, and of a key, that are shown
local SPAN, STEP = records.SPAN, records.STEP

-- ---- one lock ----

-- Formats a time in seconds, to the millisecond.
local function timestamp(time)
  return time and { text = locale.decimal("%.3f", time) }
end

-- Shortens a string, which may be as long as a Redis key.
local function shorten(value, limit)
  limit = limit or MAX_STRING
  return value and #value > limit and value:sub(1, limit) or value
end

-- `lag`: seconds since the last reply of the servers if they no longer reply; else 0.
local function waiter_json(view, waiter, lag)
  local who = views.identity_of(view, waiter.owner) or {}
  return json.object {
    { "owner", shorten(waiter.owner) }, { "host", shorten(who.host) }, { "pid", who.pid },
    { "name", shorten(who.name) }, { "seconds", math.max(ngx.now() - lag - waiter.since, 0) },
    { "at_least", waiter.wait_is_lower_bound },
  }
end

local function queue_json(view, entry, lag, limit)
  local queue = {}
  for i = 1, math.min(#(entry.queue or {}), limit) do
    queue[i] = waiter_json(view, entry.queue[i], lag)
  end
  return json.list(queue)
end

-- Returns the URL-encoded key if JSON would write part of it as \u00xx (a control character, or
-- bytes that are not UTF-8), or nil.
local function make_link(key)
  return json.value(key):find("\\u00", 1, true) and ngx.escape_uri(key) or nil
end

local function entry_json(view, entry, lag, is_open)
  local who, now = entry.owner and views.identity_of(view, entry.owner) or {}, core.now() - lag
  local is_full_key = #entry.key <= MAX_KEY
  return json.object {
    { "key", shorten(entry.key, MAX_KEY) }, { "key_size", not is_full_key and #entry.key or nil },
    { "link", is_full_key and make_link(entry.key) or nil },
    { "mutex", entry.mutex }, { "kind", entry.kind }, { "count", entry.count },
    { "mode", entry.mode }, { "readers", entry.mode and entry.readers },
    { "permits", entry.permits }, { "available", entry.available },
    { "owner", shorten(entry.owner) }, { "host", shorten(who.host) }, { "pid", who.pid },
    { "name", shorten(who.name) }, { "holds", entry.holds },
    { "ttl", entry.ttl and math.max(entry.ttl - (now - entry.read_at), 0) },
    { "since", timestamp(entry.since) },
    { "token", entry.token and ("%.0f"):format(entry.token) }, { "waiters", entry.waiters },
    { "wait", entry.oldest_wait_since and math.max(ngx.now() - lag - entry.oldest_wait_since, 0) },
    { "wait_at_least", entry.wait_is_lower_bound },
    { "queue", queue_json(view, entry, lag, is_open and MAX_OPEN_WAITERS or MAX_CLOSED_WAITERS) },
    { "break", is_open and is_full_key and shell.break_line(entry.key, kinds[entry.kind].removes)
      or nil },
  }
end

-- ---- search ----

-- Returns the word's failure table for the Knuth-Morris-Pratt algorithm: for each prefix, the
-- length of its longest border. A search takes no longer for a long word than for a short one.
local function failure_table(word)
  local borders, matched = { 0 }, 0
  for i = 2, #word do
    while matched > 0 and word:byte(matched + 1) ~= word:byte(i) do matched = borders[matched] end
    if word:byte(matched + 1) == word:byte(i) then matched = matched + 1 end
    borders[i] = matched
  end
  return borders
end

local LOWER = {}
for byte = 0, 255 do LOWER[byte] = locale.lower(string.char(byte)):byte() end

-- Returns a function that returns whether a text contains the word, ignoring case.
function status_json.finder(word)
  word = locale.lower(word)
  local borders = failure_table(word)
  return function(text)
    local matched = 0
    for i = 1, #text do
      local byte = LOWER[text:byte(i)]
      while matched > 0 and word:byte(matched + 1) ~= byte do matched = borders[matched] end
      if word:byte(matched + 1) == byte then matched = matched + 1 end
      if matched == #word then return true end
    end
    return false
  end
end

-- ---- order ----

local function holder_sort_key(view, entry)
  local known = entry.owner and view.names[entry.owner:sub(1, 36)]
  local who = known and known.who
  return who and ("%s %s %d"):format(who.host, who.name or "", who.pid) or entry.owner or ""
end

-- What each column is sorted by, in ascending order: an earlier start is a longer wait, and comes
-- first. An entry without a value comes last, but one without a holder comes first.
local SORT_KEYS = {
  wait = function(_, entry) return entry.oldest_wait_since or math.huge end,
  held = function(_, entry) return entry.since or math.huge end,
  ttl = function(_, entry) return entry.ttl and entry.ttl + entry.read_at or math.huge end,
  token = function(_, entry) return entry.token or math.huge end,
  waiters = function(_, entry) return -entry.waiters end,
  holder = holder_sort_key,
  key = function(_, entry) return entry.key end,
}

local function is_less(a, b)
  if type(a) == "string" then return locale.is_before(a, b) end
  return a < b -- any locale: compares numbers
end

-- Among equal entries, the longest hold comes first.
local function make_comparator(view, request)
  local get_value = SORT_KEYS[request.sort]
  return function(a, b)
    local value_a, value_b = get_value(view, a), get_value(view, b)
    if value_a ~= value_b then return is_less(value_a, value_b) ~= request.reverse end
    if a.since ~= b.since then return is_less(a.since or math.huge, b.since or math.huge) end
    return locale.is_before(a.key, b.key)
  end
end

-- → the requested entries, the number of their waiters, the longest wait for any lock, that lock's
-- key
local function find_matches(view, request, lag)
  local list, waiting, oldest, longest_key = {}, 0, math.huge, nil
  local contains_word = status_json.finder(request.search)
  for key, entry in pairs(view.entries) do
    local since = entry.oldest_wait_since or math.huge
    if since < oldest then oldest, longest_key = since, key end -- any locale: compares numbers
    if key:sub(1, #request.prefix) == request.prefix and contains_word(key) then
      list[#list + 1], waiting = entry, waiting + entry.waiters
    end
  end
  return list, waiting, longest_key and math.max(ngx.now() - lag - oldest, 0), longest_key
end

-- Skips the first `request.from` entries. → the JSON of the next ones, as many as fit, whether any
-- of them is too old
local function entries_json(view, list, request, lag)
  local texts, bytes_left, some_old = {}, MAX_LOCKS_SIZE, false
  local first = sorted.first(list, request.from + MAX_LOCKS, make_comparator(view, request))
  for i = request.from + 1, #first do
    local text = entry_json(view, first[i], lag, request.open[first[i].key])
    bytes_left = bytes_left - #text
    if bytes_left < 0 and #texts > 0 then break end
    texts[#texts + 1] = text
    some_old = views.mark_shown(view, first[i]) or some_old
  end
  return texts, some_old
end

-- ---- history and problems ----

local function points_json(view)
  local list, last = {}, math.floor(ngx.time() / STEP) * STEP
  for time = last - SPAN + STEP, last, STEP do
    list[#list + 1] = json.object { { "time", time }, { "waiting", view.record:point(time) } }
  end
  return json.list(list)
end

-- Returns the losses of this worker's client, by reason.
local function local_losses(client)
  local lost = {}
  for _, class in ipairs(core.client.classes(client)) do
    for reason, count in pairs(class.lost) do lost[reason] = (lost[reason] or 0) + count end
  end
  return lost
end

local function loss_counts_json(view)
  local lost = shared_metrics.losses() or local_losses(view.client)
  local fields = {}
  for _, reason in ipairs { "expired", "taken", "deleted", "unreachable", "max_hold" } do
    fields[#fields + 1] = { reason, lost[reason] or 0 }
  end
  return { text = json.object(fields) }
end

-- Returns a JSON list of the first texts, as many as fit into `size` bytes.
local function limited_list(texts, size)
  local list = {}
  for _, text in ipairs(texts) do
    size = size - #text
    if size < 0 then break end
    list[#list + 1] = text
  end
  return json.list(list)
end

local function recent_losses_json(recent)
  local texts = {}
  for i, loss in ipairs(recent) do
    texts[i] = json.object {
      { "time", timestamp(loss.time) }, { "key", shorten(loss.key) }, { "reason", loss.reason },
      { "class", shorten(loss.class) }, { "owner", shorten(loss.owner) }, { "pid", loss.pid },
    }
  end
  return limited_list(texts, MAX_LOSSES_SIZE)
end

local function cycle_json(cycle)
  local waits = {}
  for i, wait in ipairs(cycle) do
    waits[i] = json.object {
      { "key", shorten(wait.key) }, { "owner", shorten(wait.owner) }, { "host", shorten(wait.host) },
      { "pid", wait.pid }, { "name", shorten(wait.name) }, { "holder", shorten(wait.holder) },
      { "holder_host", shorten(wait.holder_host) }, { "holder_pid", wait.holder_pid },
      { "holder_name", shorten(wait.holder_name) }, { "break", i == 1 and shell.break_line(wait.key) or nil },
    }
  end
  return json.list(waits).text
end

local function cycles_json(view)
  local texts = {}
  for i, cycle in ipairs(view.cycles) do texts[i] = cycle_json(cycle) end
  return limited_list(texts, MAX_DEADLOCKS_SIZE)
end

local function members_json(view)
  local list = {}
  for i, member in ipairs(view.members or {}) do
    list[i] = json.object {
      { "server", i }, { "up", member.up }, { "seconds", member.latency },
      { "message", shorten(member.message) },
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

-- `request`: { prefix, search, sort, reverse, from, open = the keys whose rows are open }
-- → the JSON, why the servers are unreachable or nil, whether a row is too old to be shown
function status_json.reply(view, request)
  local outage, recent = views.outage(view), view.record:losses()
  local age = view.reachable_at and ngx.now() - view.reachable_at
  local lag = outage and age or 0
  local list, waiting, longest, longest_key = find_matches(view, request, lag)
  if not outage then views.search_for_deadlocks(view, longest) end
  local shown, some_old = entries_json(view, list, request, lag)
  local next_from, knows_count = request.from + #shown, views.knows_count(view)
  local scanned, keys
  if not knows_count then scanned, keys = views.progress(view) end
  return json.object {
    { "server", core.client.server(view.client) }, { "time", timestamp(ngx.now()) },
    { "age", age },
    { "state", observed.state {
      away = outage, deadlocks = #view.cycles, losses = #recent, longest_wait = longest,
      some_down = some_down(view), knows_waiters = views.knows_waiters(view),
    } },
    { "trouble", shorten(outage or view.trouble, MAX_KEY) }, { "left_out", views.describe_unread(view) },
    { "complete", knows_count }, { "looked", scanned }, { "keys", keys },
    { "count", #list }, { "count_age", knows_count and views.count_age(view) or nil },
    { "waiters", waiting }, { "longest_wait", longest },
    { "longest_key", shorten(longest_key) },
    { "from", request.from },
    { "next", next_from < #list and #shown > 0 and next_from or nil },
    { "locks", json.list(shown) }, { "points", points_json(view) },
    { "losses", loss_counts_json(view) }, { "lost", recent_losses_json(recent) },
    { "deadlocks", cycles_json(view) }, { "members", members_json(view) },
    { "shared", view.record.shared },
  }, outage, some_old and not outage
end

-- Returns "" for an argument that was sent several times, or without a value.
local function to_string(value)
  return type(value) == "string" and value or ""
end

-- Parses the arguments of a request.
function status_json.parse_arguments(args)
  local open = {}
  for _, key in ipairs(type(args.open) == "table" and args.open or { args.open }) do
    open[key] = true
  end
  local from = to_string(args.from):match("^%d%d?%d?%d?%d?%d?%d?%d?%d?$")
  return {
    prefix = to_string(args.prefix), search = to_string(args.search), open = open,
    sort = SORT_KEYS[args.sort] and args.sort or "wait", reverse = args.reverse ~= nil,
    from = locale.number(from) or 0,
  }
end

return status_json
