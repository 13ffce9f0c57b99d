-- Acquires the requested locks, and releases them.
--
-- A run inside another run on the same key re-enters the outer run's lock, as the same owner. The
-- environment alone does not prove that the outer run still exists: a daemon started by a job keeps
-- the environment forever. Therefore the owner must hold the lock now, and the re-entered hold must
-- have the token from the environment.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local exits = require "holdfast.command.exits"
local lazy = require "holdfast.lazy"
local holder = lazy "holdfast.holder"
local holdfast = lazy "holdfast"
local permits = lazy "holdfast.command.permits"
local locale = require "holdfast.locale"
local process = require "holdfast.process"
local replies = lazy "holdfast.replies"
local settings = require "holdfast.command.settings"
local signals = require "holdfast.command.signals"
local target = require "holdfast.command.target"
local waiting = lazy "holdfast.command.waiting"
local unpack = require("holdfast.compat").unpack

local holding = {}

local MAX_INFO_READS = 50 -- maximum reads of a hold count that a slow server may update late
local HOLDER_TIMEOUT = 1 -- seconds to look up the holder's name after the end of a wait
local SHORT_WAIT = 1 -- seconds; a shorter wait is too short to detect that the holder has crashed
local CRASH_PATIENCE = 2 -- seconds; a wait that is long enough to detect that
local GONE = { lost = true, not_held = true }
local NO_REPLY = { unreachable = true, no_quorum = true, denied = true }

holding.reasons = {
  expired = "its lease was about to expire",
  taken = "another owner holds it",
  deleted = "its key was deleted on the server",
  unreachable = "it could not be renewed",
}

local Holding = {}
Holding.__index = Holding

-- `plan`: from target.read. `since`: the time of core.now() when the wait began; default: now
function holding.new(client, plan, out, since)
  since = since or core.now()
  return setmetatable({ client = client, plan = plan, out = out, since = since }, Holding)
end

-- ---- acquiring ----

-- `owner`: the enclosing run's owner, or nil. Runs inside this run may outlive it, so they share
-- its owner, and the lock is free when the last of them has ended.
function Holding:new_lock(key, owner)
  local plan = self.plan
  local opts = {
    lease = plan.lease, watchdog = true, wait = plan.wait, interruptible = true,
  }
  if plan.biz_type then return self.client:mutex(key, opts) end
  if plan.given.permits then
    opts.permits = plan.given.permits
    return permits.lock(self.client, key, opts)
  end
  if plan.mode then
    local read_write_lock = self.client:read_write_lock(key, opts)
    return plan.mode == "read" and read_write_lock:read() or read_write_lock:write()
  end
  opts.owner = owner or core.client.uuid(self.client) .. ":1"
  return self.client:lock(key, opts)
end

-- Returns the first key that an owner from the environment holds but this run cannot re-enter,
-- because one of the two runs uses a read/write lock. Returns nil if there is no such key.
function Holding:self_blocking_key()
  local inherited = target.inherited(self.plan.config)
  for _, key in ipairs(self.plan.keys) do
    local function has(field) return replies.command(self.client, { "HEXISTS", key, field }) == 1 end
    local is_held = inherited[key] and has(inherited[key].owner)
    if is_held and (self.plan.mode or has("mode")) then return key end
  end
end

-- Returns the holds from the environment whose owners hold the locks now: key → { owner, token }.
-- Does not compare tokens in a quorum, because info does not return a hold's token there.
function Holding:enclosing_holds()
  local inherited, inside = target.inherited(self.plan.config), {}
  for _, key in ipairs(self.plan.keys) do
    local info = inherited[key] and self:new_lock(key):info()
    local is_current = info and info.owner == inherited[key].owner
    if is_current and not self.plan.config.servers then
      is_current = info.token and ("%.0f"):format(info.token) == inherited[key].token
    end
    if is_current then inside[key] = inherited[key] end
  end
  return inside
end

function Holding:make_locks(inside)
  local locks = {}
  for i, key in ipairs(self.plan.keys) do
    locks[i] = self:new_lock(key, inside[key] and inside[key].owner)
  end
  self.locks, self.group = locks, #locks == 1 and locks[1] or holdfast.multi_lock(locks)
end

-- Returns whether enclosing runs hold all the locks, so that there is nothing to wait for.
function Holding:is_inside(inside)
  for _, key in ipairs(self.plan.keys) do
    if not inside[key] then return false end
  end
  return true
end

-- In a quorum, a re-entered hold may have a different token, so a hold count above 1 is the proof.
-- A slow server may count the second hold late.
local function is_second_hold(lock, owner)
  for _ = 1, MAX_INFO_READS do
    local info = lock:info()
    if not info or info.owner ~= owner then return false end
    if info.holds > 1 then return true end
  end
  return false
end

-- Returns whether the re-entered holds are the ones from the environment.
function Holding:has_reentered(inside)
  for _, lock in ipairs(self.locks) do
    local inherited = inside[lock:key()]
    local is_expected = not inherited
      or self.plan.config.servers and is_second_hold(lock, inherited.owner)
      or target.token_text(lock) == inherited.token
    if not is_expected then return false end
  end
  return true
end

-- Extends the locks to a full lease if little time is left: a grant that has not been confirmed has
-- a very short lease. Releases the locks if they cannot be extended. → true | nil, message, code
function Holding:ensure_full_lease()
  if self.group:remaining() > self.plan.lease * 0.6 then return true end
  local confirmed, message, code = self.group:extend(self.plan.lease)
  if confirmed then return true end
  self.group:release()
  return nil, message, code
end

-- Returns whether all holders of the locks are crashed runs on this host.
function Holding:was_left_by_crash()
  local plan, has_crashed = self.plan, false
  if not plan.crash_release or plan.mode or plan.given.permits then return false end
  for _, lock in ipairs(self.locks) do
    local info = lock:info()
    local life = info and info.owner and process.life(info.owner)
    if life == "unknown" or life == "alive" then return false end
    has_crashed = has_crashed or life ~= nil
  end
  return has_crashed
end

-- Acquires all locks. If the wait is very short and the last run has crashed, waits until the crash
-- is detected, so that the run does not fail because of it.
function Holding:acquire_group(wait)
  local held, message, code = self.group:acquire(wait)
  local may_retry = code == "busy" and wait < SHORT_WAIT and self:was_left_by_crash()
  if not may_retry then return held, message, code end
  self.is_after_crash = true
  return self.group:acquire(CRASH_PATIENCE)
end

-- Acquires the locks. If this program is stopped and continued, that may interrupt the wait like a
-- signal; the wait is then resumed.
-- → true | nil, message, code | nil, name, "signal"
function Holding:acquire_locks(inside)
  local deadline = core.now() + self.plan.wait
  while true do
    self:make_locks(inside)
    local is_inside = self:is_inside(inside)
    local wait = is_inside and 0 or math.max(deadline - core.now(), 0)
    local held, message, code = self:acquire_group(wait)
    if held and self:has_reentered(inside) then
      self.is_nested = next(inside) ~= nil
      return self:ensure_full_lease()
    end
    if held then self.group:release() end
    if held or is_inside and code == "busy" then
      inside = {}
    elseif code ~= "interrupted" then
      return nil, message, code
    else
      local name = signals.next_terminating()
      if name then return nil, name, "signal" end
    end
  end
end

local function kind_of(plan)
  if plan.biz_type then return "mutex" end
  return plan.mode and "read_write" or plan.given.permits and "semaphore" or "lock"
end

-- Returns the keys in the order in which a multi-lock acquires them.
local function sorted(keys)
  local copy = { unpack(keys) }
  table.sort(copy, locale.is_before)
  return copy
end

function Holding:begin_report()
  local plan, keys = self.plan, sorted(self.plan.keys)
  if not plan.keeps and not self.out:wait_display(plan.given.quiet) then return end
  local name = plan.biz_type and ("%s:%s"):format(plan.biz_type, plan.biz_id)
  local goal, state = "waiting for", "held"
  if plan.keeps then goal, state = "waiting to lead", "led" end
  waiting.begin(self.out, {
    client = self.client, seconds = plan.wait, since = self.since, config = plan.config,
    quiet = plan.given.quiet, key = keys[1], leads = plan.keeps,
    reported_outage = self.reported_outage,
    subject = function(key) return ('%s "%s"'):format(goal, name or key) end,
    poll = waiting.for_locks(keys, kind_of(plan), core.client.uuid(self.client), state),
  })
end

-- Calls acquire_locks, and reports what the run is waiting for.
function Holding:acquire_reported(inside)
  self:begin_report()
  local held, message, code = self:acquire_locks(inside)
  process.end_report()
  return held, message, code
end

function Holding:report_acquired(waited)
  for _, lock in ipairs(self.locks) do
    self.out:event("acquired", {
      { "key", lock:key() }, { "owner", lock:owner() }, { "token", lock:token() },
      { "waited", waited },
    }, ('acquired "%s" after %s s'):format(lock:key(), locale.decimal("%.3f", waited)))
  end
end

local function busy_message(plan, message)
  if not plan.biz_type then return message end
  local holder_text = holder.extract(message)
  return ("type=%s id=%s: already running%s"):format(plan.biz_type, plan.biz_id,
    holder_text and ", " .. holder_text or "")
end

-- Finds the holder of a lock that could not be acquired, even if the library has not looked it up.
-- → the message, with the holder if known
function Holding:add_holder(message)
  for _, lock in ipairs(self.locks) do
    self.holder = holder.last_found(lock)
    if not self.holder and message:find('"' .. lock:key() .. '"', 1, true) then
      message, self.holder = holder.describe(lock, message, 0, core.now() + HOLDER_TIMEOUT)
    end
    if self.holder then break end
  end
  return busy_message(self.plan, message)
end

local NESTED_DEADLOCK = "%s: an enclosing run already holds it and must finish first; " ..
  "start this run afterwards, or use another %s"

local function deadlock_message(plan, key)
  if not plan.biz_type then return NESTED_DEADLOCK:format(('cannot acquire "%s"'):format(key), "KEY") end
  return NESTED_DEADLOCK:format(("type=%s id=%s"):format(plan.biz_type, plan.biz_id), "TYPE:ID")
end

-- Acquires the locks. From now on, signals that would end the program interrupt its wait instead,
-- and the terminal no longer stops the program for printing, because the locks must be kept
-- renewed.
-- → true | nil, message, code | nil, name, "signal"
function Holding:acquire()
  local plan = self.plan
  signals.catch_terminating()
  assert(process.ignore "TTOU")
  local name = signals.next_terminating()
  if name then return nil, name, "signal" end
  core.client.introduce(self.client, plan.config.name or "")
  local blocking_key = self:self_blocking_key()
  local inside = (blocking_key or plan.mode or plan.given.permits) and {} or self:enclosing_holds()
  blocking_key = blocking_key or plan.biz_type and next(inside)
  if blocking_key then return nil, deadlock_message(plan, blocking_key), "deadlock" end
  local held, message, code = self:acquire_reported(inside)
  if not held then return nil, code == "busy" and self:add_holder(message) or message, code end
  self:report_acquired(core.now() - self.since)
  return true
end

-- ---- losses ----

-- → how the first lost lock was lost, its key | nothing
function Holding:lost()
  for _, lock in ipairs(self.locks) do
    local reason = lock:lost()
    if reason then return reason, lock:key() end
  end
end

function Holding:first_to_expire()
  local nearest = self.locks[1]
  for _, lock in ipairs(self.locks) do
    if lock:remaining() < nearest:remaining() then nearest = lock end
  end
  return nearest
end

-- Reports that a lock is lost, or will be lost in `left` seconds.
function Holding:report_lost(reason, left, ending)
  local _, key = self:lost()
  key = key or self:first_to_expire():key()
  self.reported_loss = true
  local text = ('lost the lock "%s": %s; %s'):format(key, holding.reasons[reason] or reason, ending)
  self.out:problem("lost", { { "key", key }, { "reason", reason }, { "left", left } }, text)
end

-- ---- the login while the locks are held ----

-- Fetches the login that the watchdog needs to renew the locks. Never waits.
function Holding:tick()
  local failure = settings.tick(self.plan.config, self.client)
  if failure == nil then return end
  local lock = self:first_to_expire()
  local key, left = lock:key(), math.max(lock:remaining(), 0)
  if not failure then
    self.out:problem("resumed", { { "key", key } }, ('got a login again; renewing the lock "%s"'):format(key))
    return
  end
  local text = '%s; will retry; without a login the lock "%s" expires in %.0f s'
  self.out:problem("warning", { { "code", "unreachable" }, { "key", key }, { "left", left } },
    text:format(failure, key, left))
end

-- ---- releasing ----

-- Returns the time at which each lock's lease ends, or nil if one of the locks is not held.
function Holding:expiry_times()
  if self:lost() then return nil end
  local now, times = core.now(), {}
  for i, lock in ipairs(self.locks) do
    times[i] = now + lock:remaining()
    if times[i] <= now then return nil end
  end
  return times
end

-- Reports why the lock was not released.
function Holding:report_unreleased(lock, code, text)
  self.out:problem("warning", { { "code", code }, { "key", lock:key() } }, text)
end

local EXPIRES = "%s; the lock will expire in at most %.0f s"
local EXPIRED = 'cannot release "%s" in time; the lock expired with its lease'

-- Releases a lock. `no_reply_code`: the error code if the server did not reply to an earlier
-- release, or nil. In that case the client releases this lock in the background, until the client
-- is closed.
-- → true | nil, message, code
local function release_one(lock, no_reply_code)
  if not no_reply_code then return lock:release() end
  driver.abandon(lock)
  return nil, ('cannot release "%s": the release before it failed with %s'):format(lock:key(), no_reply_code),
    no_reply_code
end

-- Releases all locks, and prints a warning for each one that it could not release.
-- → true | nil, message if a lock was lost
function Holding:release()
  local expiry_times, reason, no_reply_code = self:expiry_times(), self:lost(), nil
  local loss = reason and ("the lock was lost: " .. (holding.reasons[reason] or reason))
  for i = #self.locks, 1, -1 do
    local lock = self.locks[i]
    local seconds_left = lock:remaining()
    local released, message, code = release_one(lock, no_reply_code)
    no_reply_code = no_reply_code or NO_REPLY[code] and code
    if released then
      self.out:event("released", { { "key", lock:key() } }, ('released "%s"'):format(lock:key()))
    elseif not GONE[code] then
      self:report_unreleased(lock, code, EXPIRES:format(message, math.ceil(seconds_left)))
    elseif expiry_times and core.now() >= expiry_times[i] then
      -- it expired while its release waited for the server, so it does not count as lost
      self:report_unreleased(lock, "unreachable", EXPIRED:format(lock:key()))
    else
      loss = code == "lost" and message or loss or message
    end
  end
  if loss then return nil, loss end
  return true
end

function Holding:close()
  self.client:close()
end

-- ---- the exit code ----

local function refusal_exit(given, code)
  local exit = given["busy-exit"]
  if code == "duplicate" then return given["duplicate-exit"] or exit or exits.DUPLICATE end
  return exit or exits.BUSY
end

-- Reports that the lock is taken, or that the job is already done. An exit code of 0 means that
-- this does not count as a failure. → the exit code
function Holding:refused(message, code)
  local given = self.plan.given
  local exit = refusal_exit(given, code)
  local is_silent = (given.quiet or exit == 0) and not given.json and not given.verbose
  return is_silent and exit or self.out:fail(exit, code, message, self.holder)
end

-- Reports that acquire has failed. → the exit code
function Holding:failed(message, code)
  if code == "signal" then
    local text = "terminated by " .. message .. " before anything was started"
    self.out:event("signal", { { "signal", message } }, text)
    return exits.of_signal(message)
  end
  if code == "busy" or code == "duplicate" then return self:refused(message, code) end
  return self.out:fail(exits.of(code), code, message)
end

-- Reports a loss, unless a loss was reported before. → the exit code
function Holding:failed_by_loss(message)
  return self.reported_loss and exits.LOST or self.out:fail(exits.LOST, "lost", message)
end

return holding
