-- Under ngx_lua: keeps the counters of all workers in a lua_shared_dict, and serves them.
--
-- Each worker adds what its clients have counted since its last addition, so the sums survive
-- reloads and the exits of workers. A sample's name in the dict is "family|suffix|labels".

local core = require "holdfast.core"
local locale = require "holdfast.locale"
local metrics = require "holdfast.metrics"
local timer = require "holdfast.timer"

local shared_metrics = {}

local NAME = "holdfast"
local INTERVAL = 0.25 -- seconds between additions for a client

local added = setmetatable({}, { __mode = "k" }) -- client -> { at, values, dropped, pid }

local DROPPED = "dropped_series|_total|"

-- Adds to a number in the dict. Creates it only with `may_create`, and never evicts another one.
-- → whether it was added | nil, why not
local function increase(dict, name, amount, may_create)
  local sum, message = dict:incr(name, amount)
  if sum or message ~= "not found" then return sum, message end
  local created
  if not may_create then return nil, "no memory" end
  created, message = dict:safe_add(name, amount)
  if message == "exists" then return dict:incr(name, amount) end -- created by another worker
  return created, message
end

local has_logged = false

-- Counts each series that does not fit once, and logs the first one in each worker.
local function record_drop(dict, dropped, name, message)
  if dropped[name] then return end
  dropped[name] = true
  dict:incr(DROPPED, 1)
  if has_logged then return end
  has_logged = true
  if message == "no memory" then message = "no memory is left" end
  ngx.log(ngx.ERR, "holdfast: lua_shared_dict ", NAME, ": ", message, " for ", name,
    "; holdfast_dropped_series_total counts what is missing in the metrics: make the dict larger")
end

-- Adds a sample. → whether the dict still has room
local function add(dict, sample, state, has_room)
  local values = state.values
  local name = ("%s|%s|%s"):format(sample[1], sample[2], sample[3])
  local amount = sample[4] - (values[name] or 0)
  if amount == 0 and values[name] then return has_room end
  local succeeded, message = increase(dict, name, amount, has_room)
  if not succeeded then
    record_drop(dict, state.dropped, name, message)
    return false
  end
  values[name], state.dropped[name] = sample[4], nil
  return has_room
end

-- Returns the state with what was added for the client so far. It is empty at first, even in a
-- worker that was forked from a process that used the client.
local function state_of(client)
  local state, pid = added[client], ngx.worker.pid()
  if state and state.pid == pid then return state end
  added[client] = { at = -INTERVAL, values = {}, dropped = {}, pid = pid }
  return added[client]
end

-- Adds what the client has counted. `force`: even if the previous addition was only a moment ago.
function shared_metrics.add(client, force)
  local dict = ngx.shared[NAME]
  if not dict then return end
  local state, now = state_of(client), core.now()
  if not force and now < state.at + INTERVAL then return end
  state.at = now
  dict:safe_add(DROPPED, 0)
  -- Once one series does not fit, no others are created: they could be parts of an incomplete
  -- histogram.
  local has_room = true
  for _, sample in ipairs(metrics.samples(client)) do
    if sample[1] ~= "holds" then has_room = add(dict, sample, state, has_room) end
  end
end

local scheduled = setmetatable({}, { __mode = "k" }) -- clients whose counts a timer will add
local WITHOUT_TIMERS = { init = true, exit_worker = true }

local function add_now(exiting, client)
  scheduled[client] = nil
  shared_metrics.add(client, true)
  if not exiting and core.client.stats(client).holds > 0 then shared_metrics.add_soon(client) end
end

-- Adds the client's counts soon, and repeatedly while the client holds something.
function shared_metrics.add_soon(client)
  if scheduled[client] or not ngx.shared[NAME] then return end
  scheduled[client] = not WITHOUT_TIMERS[ngx.get_phase()] and timer.at(INTERVAL, add_now, client)
    or nil
  if not scheduled[client] then shared_metrics.add(client, true) end
end

local RANK = { _bucket = 1, _count = 2, _sum = 3, _total = 4 }

local function upper_bound(labels)
  local le = labels:match('le="([^"]+)"$')
  return le == "+Inf" and math.huge or locale.number(le) or 0
end

-- The order of samples: one class after the other, with the buckets of a histogram in order.
local function is_before(a, b)
  local class_a, class_b = a[3]:gsub(',le="[^"]+"$', ""), b[3]:gsub(',le="[^"]+"$', "")
  if class_a ~= class_b then return locale.is_before(class_a, class_b) end
  if a[2] ~= b[2] then return RANK[a[2]] < RANK[b[2]] end
  return upper_bound(a[3]) < upper_bound(b[3])
end

-- A histogram is complete once it has its sum, which is created last.
local function is_complete(known, family, suffix, labels)
  if suffix ~= "_bucket" and suffix ~= "_count" then return true end
  return known[("%s|_sum|%s"):format(family, (labels:gsub(',le="[^"]+"$', "")))]
end

local function samples(dict)
  local list, known, names = {}, {}, dict:get_keys(0)
  for _, name in ipairs(names) do known[name] = true end
  for _, name in ipairs(names) do
    local family, suffix, labels = name:match("^([^|]+)|([^|]*)|(.*)$")
    if family and is_complete(known, family, suffix, labels) then
      list[#list + 1] = { family, suffix, labels, dict:get(name) }
    end
  end
  table.sort(list, is_before)
  return list
end

-- Returns the number of losses in all workers, by reason; nil without a dict.
function shared_metrics.losses()
  local dict, lost = ngx.shared[NAME], {}
  if not dict then return nil end
  for _, name in ipairs(dict:get_keys(0)) do
    local reason = name:match('^losses|_total|.*reason="([a-z_]+)"$')
    if reason then lost[reason] = (lost[reason] or 0) + (dict:get(name) or 0) end
  end
  return lost
end

-- Returns the q of a media type in an Accept header; 0 if it is not listed.
local function quality_of(accept, media_type)
  local highest = 0
  for range in locale.lower(accept):gmatch("[^,]+") do
    if range:match("^%s*([^;%s]*)") == media_type then
      local q = range:match(";%s*q%s*=%s*([%d.]+)")
      highest = math.max(highest, q and locale.number(q) or 1)
    end
  end
  return highest
end

local function format_for(accept)
  local quality = quality_of(accept, "application/openmetrics-text")
  local is_preferred = quality > 0 and quality >= quality_of(accept, "text/plain")
  return is_preferred and metrics.openmetrics or metrics.prometheus
end

-- The content handler.
function shared_metrics.serve(level)
  local dict = ngx.shared[NAME]
  if not dict then
    error(('holdfast.metrics: there is no shared dict; add "lua_shared_dict %s 1m;" to http {}'):format(NAME), level + 1)
  end
  local format = format_for(ngx.var.http_accept or "")
  ngx.header["Content-Type"] = format.content_type
  ngx.print(metrics.render(samples(dict), format))
end

return shared_metrics
