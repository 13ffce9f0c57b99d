-- What nginx's workers share for the status page: which worker reads from the servers, the queries
-- of the others, a point for each STEP seconds of the last ten minutes, and the last losses.
--
-- They share it in `lua_shared_dict holdfast_status`, or else `holdfast`. The worker that holds a
-- lease in the dict reads from the servers. Another one takes over when that worker exits, or has
-- not renewed the lease for LEASE seconds. The others put their queries into the dict and take the
-- replies from there. Without a dict, each worker reads from the servers itself.
--
-- The dict `holdfast` also contains the metrics, so the record never evicts anything: if something
-- does not fit, it is missing, and the first such failure is logged.

local core = require "holdfast.core"
local locale = require "holdfast.locale"

local status_record = { STEP = 5, SPAN = 600 }

local DICT, FALLBACK_DICT = "holdfast_status", "holdfast"
local STEP, SPAN = status_record.STEP, status_record.SPAN
local LEASE = 5 -- seconds
local MAX_LOSSES = 10
local REPLY_TTL = 1 -- seconds for which a reply serves other requests with the same query
-- Seconds after which a query without a reply is repeated, between checks for the reply, and until
-- the worker gives up.
local REPEAT_AFTER, CHECK_PAUSE, TIMEOUT = 1, 0.02, 8

-- ---- the record that all workers share ----

local shared = { shared = true }
shared.__index = shared

local has_logged_full = false

-- Writes with the dict's `method`, safe_add or safe_set. → true | false, message
local function write(self, method, name, value, seconds, flags)
  local ok, message = self.dict[method](self.dict, name, value, seconds, flags)
  if not ok and message == "no memory" and self.dict:flush_expired() > 0 then
    ok, message = self.dict[method](self.dict, name, value, seconds, flags)
  end
  if not ok and message == "no memory" and not has_logged_full then
    has_logged_full = true
    ngx.log(ngx.ERR, "holdfast: lua_shared_dict ", self.dict_name, " is full, so the status page's plot and losses are ",
      "incomplete, and each worker reads the servers itself: give the page a dict of its own with \"lua_shared_dict ",
      DICT, " 1m;\", or a larger one")
  end
  return ok, message
end

-- Acquires the lease, or renews it. → whether this worker reads from the servers. If the dict has
-- no room for the lease, each worker does.
function shared:take_lease()
  local name = self.name .. "lease"
  if ngx.worker.exiting() then return false end
  local acquired, message = write(self, "safe_add", name, self.id, LEASE)
  if acquired or message == "no memory" then return true end
  if self.dict:get(name) ~= self.id then return false end
  self.dict:expire(name, LEASE)
  return true
end

-- Gives up the lease, because this worker is exiting.
function shared:give_up_lease()
  local name = self.name .. "lease"
  if self.dict:get(name) == self.id then self.dict:delete(name) end
end

-- Claims this process's timer. → whether this record may start it. Only one may: with
-- lua_code_cache off, each request has its own Lua state.
function shared:claim_timer()
  local name = self.name .. "timer " .. ngx.worker.pid()
  if write(self, "safe_add", name, self.id, LEASE) then return true end
  if self.dict:get(name) ~= self.id then return false end
  self.dict:expire(name, LEASE)
  return true
end

-- ---- queries ----

local function reply_name(self, query)
  return self.name .. "reply " .. ngx.md5_bin(query)
end

-- Sends a query to the worker that reads from the servers. `leads()` returns whether this worker
-- has taken over. → the reply, the HTTP status | nil if there is none
function shared:request(query, leads)
  local dict, name = self.dict, reply_name(self, query)
  local sent_at, deadline = -REPEAT_AFTER, core.now() + TIMEOUT
  repeat
    local reply, status = dict:get(name)
    if reply == "" then return nil end
    if reply then return reply, status end
    if core.now() > sent_at + REPEAT_AFTER then
      if not dict:rpush(self.name .. "queries", query) then return nil end
      sent_at = core.now()
    end
    ngx.sleep(CHECK_PAUSE)
  until leads() or core.now() > deadline
end

-- → the next query without a reply | nil
function shared:next_query()
  local query
  repeat
    query = self.dict:lpop(self.name .. "queries")
  until not query or not self.dict:get(reply_name(self, query))
  return query
end

-- Publishes a reply and its HTTP status. If the dict has little room left, publishes an empty
-- string instead, because replies must not crowd out the counters.
function shared:publish(query, reply, status)
  local dict, name = self.dict, reply_name(self, query)
  local has_room = dict:free_space() > dict:capacity() / 4
  if has_room and write(self, "safe_set", name, reply, REPLY_TTL, status) then return end
  write(self, "safe_set", name, "", REPLY_TTL)
end

-- ---- points and losses ----

-- Records the number of waiters at `time`, a multiple of STEP. Keeps the highest number.
function shared:add_point(time, waiting)
  write(self, "safe_set", self.name .. time, math.max(self:point(time) or 0, waiting), SPAN + STEP)
end

-- → the highest number of waiters | nil if no worker read from the servers then
function shared:point(time)
  return self.dict:get(self.name .. time)
end

local FIELDS = { "time", "key", "reason", "class", "owner", "pid" }

-- `loss`: { time, key, reason, class, owner, pid }
function shared:add_loss(loss)
  local escaped = {}
  for i, field in ipairs(FIELDS) do escaped[i] = ngx.escape_uri(locale.text(loss[field])) end
  write(self, "safe_add", self.name .. "losses", 0)
  local number = self.dict:incr(self.name .. "losses", 1)
  local name = number and self.name .. "loss " .. number % MAX_LOSSES
  if name then write(self, "safe_set", name, table.concat(escaped, " "), SPAN) end
end

-- → at most MAX_LOSSES losses of the last SPAN seconds, the latest first
function shared:losses()
  local list, last = {}, self.dict:get(self.name .. "losses") or 0
  for number = last, math.max(last - MAX_LOSSES + 1, 1), -1 do
    local stored, loss, i = self.dict:get(self.name .. "loss " .. number % MAX_LOSSES), {}, 0
    for field in (stored or ""):gmatch("([^ ]*) ?") do
      if i == #FIELDS then break end
      i = i + 1
      loss[FIELDS[i]] = ngx.unescape_uri(field)
    end
    loss.time, loss.pid = locale.number(loss.time or ""), locale.number(loss.pid or "")
    if stored then list[#list + 1] = loss end
  end
  return list
end

-- ---- the record of a worker without a dict ----

local unshared = { shared = false }
unshared.__index = unshared

function unshared.take_lease() return true end

function unshared.give_up_lease() end

function unshared.claim_timer() return true end

function unshared.next_query() end

function unshared:add_point(time, waiting)
  self.points[time] = math.max(self.points[time] or 0, waiting)
  for earlier in pairs(self.points) do
    local is_old = earlier < time - SPAN -- any locale: compares numbers
    if is_old then self.points[earlier] = nil end
  end
end

function unshared:point(time)
  return self.points[time]
end

function unshared:add_loss(loss)
  table.insert(self.lost, 1, loss)
  self.lost[MAX_LOSSES + 1] = nil
end

function unshared:losses()
  local list = {}
  for i, loss in ipairs(self.lost) do
    if loss.time > ngx.now() - SPAN then list[i] = loss end
  end
  return list
end

-- `id`: a string, the same in all workers that read the same keys.
function status_record.new(id)
  local dict_name = ngx.shared[DICT] and DICT or FALLBACK_DICT
  local dict = ngx.shared[dict_name]
  if not dict then return setmetatable({ points = {}, lost = {} }, unshared) end
  local name = ("status:%s "):format(ngx.encode_base64(ngx.md5_bin(id)))
  local self = setmetatable({ dict = dict, dict_name = dict_name, name = name }, shared)
  self.id = ("%d %p"):format(ngx.worker.pid(), self)
  return self
end

return status_record
