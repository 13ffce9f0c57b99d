-- What the status page remembers: a point for each STEP seconds of the last ten minutes, the last
-- losses, and since when waiters have been seen.
--
-- With `lua_shared_dict holdfast_status`, or else `holdfast`, all workers have one record. The
-- worker that comes first adds to it until it has not come for LEASE seconds: a count of hand-offs
-- needs one observer. Without a dict each worker has a record of its own.
--
-- The dict `holdfast` has the metrics as well, so the record never throws out what is there: what
-- has no room is missing, and the log says so once.

local locale = require "holdfast.locale"
local timer = require "holdfast.timer"

local status_record = { STEP = 5, SPAN = 600 }

local NAME, SHARED_NAME = "holdfast_status", "holdfast"
local STEP, SPAN = status_record.STEP, status_record.SPAN
local LEASE = 3 * STEP
local WAIT_KEPT = 60 -- seconds for which an unobserved waiter is remembered
local LOSSES = 10 -- that are kept

-- ---- of all workers ----

local shared = { shared = true }
shared.__index = shared

local told = false

-- Returns whether it is written, by `method` of the dict: safe_add or safe_set.
local function write(self, method, name, value, seconds)
  local ok, message = self.dict[method](self.dict, name, value, seconds)
  if not ok and message == "no memory" and not told then
    told = true
    ngx.log(ngx.ERR, "holdfast: lua_shared_dict ", self.dict_name, " is full, so the status page's plots, losses and ",
      "waits are incomplete: give the page a dict of its own with \"lua_shared_dict ", NAME, " 1m;\", or a larger one")
  end
  return ok
end

-- → whether this worker adds to the record, whether it begins to
function shared:adds()
  local name, pid = self.name .. "worker", ngx.worker.pid()
  if write(self, "safe_add", name, pid, LEASE) then return true, true end
  if self.dict:get(name) ~= pid then return false end
  self.dict:expire(name, LEASE)
  return true, false
end

-- Whether no other worker adds to the record.
function shared:may_add()
  local pid = self.dict:get(self.name .. "worker")
  return not pid or pid == ngx.worker.pid()
end

-- This worker ends.
function shared:leave()
  local name = self.name .. "worker"
  if self.dict:get(name) == ngx.worker.pid() then self.dict:delete(name) end
end

-- Calls look() every STEP seconds in one worker, once for each process: with lua_code_cache off
-- each request comes with another Lua state.
function shared:watch(look)
  local name = self.name .. "timer " .. ngx.worker.pid()
  if self.timer or not write(self, "safe_add", name, true, LEASE) then return end
  self.timer = timer.every(STEP, function(ends)
    if ends then return self:leave() end
    write(self, "safe_set", name, true, LEASE)
    if self:may_add() then look() end
  end)
end

function shared:add(at, handed, waiting)
  local handed_before, waiting_before = self:point(at)
  local text = ("%d %d"):format((handed_before or 0) + handed,
    math.max(waiting_before or 0, waiting))
  write(self, "safe_set", self.name .. at, text, SPAN + STEP)
end

-- → hand-offs, most waiters | nothing: nobody looked
function shared:point(at)
  local handed, waiting = (self.dict:get(self.name .. at) or ""):match("^(%d+) (%d+)$")
  if handed then return locale.number(handed), locale.number(waiting) end
end

local FIELDS = { "time", "key", "reason", "class", "owner", "pid" }

-- `loss`: { time, key, reason, class, owner, pid }
function shared:add_loss(loss)
  local texts = {}
  for i, field in ipairs(FIELDS) do texts[i] = ngx.escape_uri(locale.text(loss[field])) end
  write(self, "safe_add", self.name .. "losses", 0)
  local number = self.dict:incr(self.name .. "losses", 1)
  local name = number and self.name .. "loss " .. number % LOSSES
  if name then write(self, "safe_set", name, table.concat(texts, " "), SPAN) end
end

-- → those of the last SPAN seconds, the last one first
function shared:losses()
  local list, last = {}, self.dict:get(self.name .. "losses") or 0
  for number = last, math.max(last - LOSSES + 1, 1), -1 do
    local text, loss, i = self.dict:get(self.name .. "loss " .. number % LOSSES), {}, 0
    for word in (text or ""):gmatch("([^ ]*) ?") do
      if i == #FIELDS then break end
      i = i + 1
      loss[FIELDS[i]] = ngx.unescape_uri(word)
    end
    loss.time, loss.pid = locale.number(loss.time or ""), locale.number(loss.pid or "")
    if text then list[#list + 1] = loss end
  end
  return list
end

local function name_of(self, key, waiter)
  return self.name .. "wait " .. ngx.md5_bin(key .. "\0" .. waiter)
end

-- When any worker saw this waiter first; `at` if none has. Counters do not make way for waiters.
function shared:first_seen(key, waiter, at)
  local dict, name = self.dict, name_of(self, key, waiter)
  local known = dict:get(name)
  if known then
    dict:expire(name, WAIT_KEPT)
  elseif dict:free_space() > dict:capacity() / 2 then
    dict:safe_add(name, at, WAIT_KEPT)
  end
  return math.min(known or at, at)
end

function shared:forget(key, waiter)
  self.dict:delete(name_of(self, key, waiter))
end

-- ---- of this worker ----

local alone = { shared = false }
alone.__index = alone

function alone.adds() return true, false end

function alone.watch() end

function alone:add(at, handed, waiting)
  local handed_before, waiting_before = self:point(at)
  self.points[at] = {
    (handed_before or 0) + handed, math.max(waiting_before or 0, waiting),
  }
  for old in pairs(self.points) do
    if old < at - SPAN then self.points[old] = nil end
  end
end

function alone:point(at)
  local point = self.points[at]
  if point then return point[1], point[2] end
end

function alone:add_loss(loss)
  table.insert(self.lost, 1, loss)
  self.lost[LOSSES + 1] = nil
end

function alone:losses()
  local list = {}
  for i, loss in ipairs(self.lost) do
    if loss.time > ngx.now() - SPAN then list[i] = loss end
  end
  return list
end

function alone.first_seen(_, _, _, at) return at end

function alone.forget() end

-- `id`: the same in all workers that read the same keys.
function status_record.new(id)
  local dict_name = ngx.shared[NAME] and NAME or SHARED_NAME
  local dict = ngx.shared[dict_name]
  if not dict then return setmetatable({ points = {}, lost = {} }, alone) end
  local name = ("status:%s "):format(ngx.encode_base64(ngx.md5_bin(id)))
  return setmetatable({ dict = dict, dict_name = dict_name, name = name }, shared)
end

return status_record
