-- What nginx's workers share about the status page: which worker reads the servers, the questions
-- of the others, a point for each STEP seconds of the last ten minutes, and the last losses.
--
-- They share it in `lua_shared_dict holdfast_status`, or else `holdfast`. A lease there decides
-- which worker reads. Another worker takes over when the reading worker exits, or has not renewed
-- the lease for LEASE seconds. The others put their questions into the dict and take the answers
-- from there. Without a dict each worker reads for itself.
--
-- The dict `holdfast` also contains the metrics, so the record never evicts anything: what does not
-- fit is missing, and is logged once.

local core = require "holdfast.core"
local locale = require "holdfast.locale"

local status_record = { STEP = 5, SPAN = 600 }

local NAME, SHARED_NAME = "holdfast_status", "holdfast"
local STEP, SPAN = status_record.STEP, status_record.SPAN
local LEASE = 5 -- seconds
local LOSSES = 10 -- losses that are kept
-- Seconds for which an answer serves others with the same question, after which an unanswered
-- question is repeated, between checks for its answer, and until the asker gives up.
local ANSWER_FOR, REPEAT_AFTER, PAUSE, PATIENCE = 1, 1, 0.02, 8

-- ---- of all workers ----

local shared = { shared = true }
shared.__index = shared

local has_logged = false

-- Writes with the dict's `method`, safe_add or safe_set. → true | false, message
local function write(self, method, name, value, seconds, flags)
  local ok, message = self.dict[method](self.dict, name, value, seconds, flags)
  if not ok and message == "no memory" and self.dict:flush_expired() > 0 then
    ok, message = self.dict[method](self.dict, name, value, seconds, flags)
  end
  if not ok and message == "no memory" and not has_logged then
    has_logged = true
    ngx.log(ngx.ERR, "holdfast: lua_shared_dict ", self.dict_name, " is full, so the status page's plot and losses are ",
      "incomplete, and each worker reads the servers itself: give the page a dict of its own with \"lua_shared_dict ",
      NAME, " 1m;\", or a larger one")
  end
  return ok, message
end

-- Returns whether this worker reads the servers. Each one does if the dict has no room for the
-- lease.
function shared:leads()
  local name = self.name .. "looks"
  if ngx.worker.exiting() then return false end
  local begins, message = write(self, "safe_add", name, self.id, LEASE)
  if begins or message == "no memory" then return true end
  if self.dict:get(name) ~= self.id then return false end
  self.dict:expire(name, LEASE)
  return true
end

-- Gives up the lease, because this worker is exiting.
function shared:leave()
  local name = self.name .. "looks"
  if self.dict:get(name) == self.id then self.dict:delete(name) end
end

-- Returns whether this record may have a timer. One per process may: with lua_code_cache off, each
-- request has a Lua state of its own.
function shared:has_timer()
  local name = self.name .. "timer " .. ngx.worker.pid()
  if write(self, "safe_add", name, self.id, LEASE) then return true end
  if self.dict:get(name) ~= self.id then return false end
  self.dict:expire(name, LEASE)
  return true
end

-- ---- questions ----

local function name_of(self, question)
  return self.name .. "answer " .. ngx.md5_bin(question)
end

-- Asks the worker that reads the servers. `leads()` returns whether this worker does by now.
-- → the answer, the number published with it | nil if there is none
function shared:ask(question, leads)
  local dict, name = self.dict, name_of(self, question)
  local put_at, deadline = -REPEAT_AFTER, core.now() + PATIENCE
  repeat
    local text, number = dict:get(name)
    if text == "" then return nil end
    if text then return text, number end
    if core.now() > put_at + REPEAT_AFTER then
      if not dict:rpush(self.name .. "questions", question) then return nil end
      put_at = core.now()
    end
    ngx.sleep(PAUSE)
  until leads() or core.now() > deadline
end

-- → the next question without an answer | nil
function shared:question()
  local question
  repeat
    question = self.dict:lpop(self.name .. "questions")
  until not question or not self.dict:get(name_of(self, question))
  return question
end

-- Publishes an answer, with a number. If there is no room, publishes an empty string instead:
-- answers must not take the room of counters.
function shared:publish(question, text, number)
  local dict, name = self.dict, name_of(self, question)
  local has_room = dict:free_space() > dict:capacity() / 4
  if has_room and write(self, "safe_set", name, text, ANSWER_FOR, number) then return end
  write(self, "safe_set", name, "", ANSWER_FOR)
end

-- ---- points and losses ----

-- Records the number of waiters at this time, a multiple of STEP. The highest number counts.
function shared:add(at, waiting)
  write(self, "safe_set", self.name .. at, math.max(self:point(at) or 0, waiting), SPAN + STEP)
end

-- → the highest number of waiters | nil if no worker read the servers then
function shared:point(at)
  return self.dict:get(self.name .. at)
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

-- → the losses of the last SPAN seconds, at most LOSSES, the latest first
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

-- ---- of this worker ----

local unshared = { shared = false }
unshared.__index = unshared

function unshared.leads() return true end

function unshared.leave() end

function unshared.has_timer() return true end

function unshared.question() end

function unshared:add(at, waiting)
  self.points[at] = math.max(self.points[at] or 0, waiting)
  for old in pairs(self.points) do
    if old < at - SPAN then self.points[old] = nil end
  end
end

function unshared:point(at)
  return self.points[at]
end

function unshared:add_loss(loss)
  table.insert(self.lost, 1, loss)
  self.lost[LOSSES + 1] = nil
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
  local dict_name = ngx.shared[NAME] and NAME or SHARED_NAME
  local dict = ngx.shared[dict_name]
  if not dict then return setmetatable({ points = {}, lost = {} }, unshared) end
  local name = ("status:%s "):format(ngx.encode_base64(ngx.md5_bin(id)))
  local self = setmetatable({ dict = dict, dict_name = dict_name, name = name }, shared)
  self.id = ("%d %p"):format(ngx.worker.pid(), self)
  return self
end

return status_record
