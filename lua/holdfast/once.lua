-- Runs a job once for each scheduled time: many clients call at about the same time, and one call
-- counts.
--
-- A record, holdfast_once:KEY, says which call counts, and when it reached the server, by the
-- server's clock. Calls less than half a period before or after it are for the same scheduled time.
-- The call that counts holds the lock KEY during its run, and writes the record under that lock,
-- with its token, so that a late write by an earlier holder changes nothing. Without `retry`, it
-- also writes the record before it acquires the lock, so that other calls for this time need not
-- wait. See once.lua in csrc/programs.

local abort = require "holdfast.abort"
local compat = require "holdfast.compat"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local holder = require "holdfast.holder"
local locale = require "holdfast.locale"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local names = require "holdfast.names"
local options = require "holdfast.options"
local with_lock = require "holdfast.with_lock"
local texts = require "holdfast.text"

local raw = driver.lock

local once = {}

---@class holdfast.once_options
---@field retry? boolean allow another run for this scheduled time if a run failed or crashed; default false
---@field wait? number seconds to wait for a run in progress; default: the client's
---@field lease? number seconds for which the lock survives a crashed run; always renewed; default: the client's
---@field max_hold? number seconds, 0.001 to 1e9, after which the watchdog stops renewing; default: no limit
---@field on_lost? fun(lock: holdfast.lock, reason: holdfast.lost_reason)
---@field abort_on_loss? boolean raise an error in fn soon after the lock is lost
---@field on_event? fun(event: holdfast.event)
---@field class? string for counters and events; default: the client's
---@field interruptible? boolean a signal ends the wait

---@class holdfast.scheduled_run
---@field state string "claimed" (about to begin), "running", "done" or "failed"
---@field host string
---@field pid integer
---@field name string?
---@field age number seconds since the call reached the server, by the server's clock

once.options = locks.add_options({ retry = options.boolean, abort_on_loss = abort.check },
  { "wait", "lease", "max_hold", "on_lost", "on_event", "class", "interruptible" })

local PREFIX = "holdfast_once:"

-- Returns the name of the key's record. `key`: the full key on the server.
function once.name(key)
  return PREFIX .. key
end

-- Parses a record. `now_ms`: the server's clock now.
-- → holdfast.scheduled_run | nil if it is not a record
function once.parse(record, now_ms)
  local reached_ms, state, identity = record:match("^(%d+) ([a-z]+) %d+ [^ ]+ (.*)$")
  if not reached_ms then return nil end
  local run = names.parse(identity) or { host = "?", pid = 0 }
  run.state, run.age = state, (now_ms - locale.number(reached_ms)) / 1000
  return run
end

-- ---- one call ----

-- `key`: the full key on the server. → the state of a call, for the functions below
function once.new_call(client, key, period, retry)
  return {
    key = key, retry = retry, handle = driver.reader(client, once.name(key), "lock"),
    call_id = ("%s:%d"):format(core.client.uuid(client), locks.next_call(client)),
    who = core.client.who(client),
    half_period_ms = ("%.0f"):format(period * 500), ttl_ms = ("%.0f"):format(period * 2000),
    reached_at = "", token = "0", half_period_s = period / 2,
  }
end

local STATE_TEXTS = {
  claimed = "is about to run", running = "is running", done = "has run", failed = "has failed",
}

-- Returns the message for a call that does not count. `counted`: the run that counts, or nil.
local function describe(self, counted)
  if not counted then return ('"%s" has already run for this time'):format(texts.shown(self.key)) end
  return ('"%s" %s for this time, on %s, %s s ago'):format(texts.shown(self.key),
    STATE_TEXTS[counted.state] or counted.state, holder.format(counted),
    locale.decimal("%.1f", math.max(counted.age, 0)))
end

-- Sends the state of this call's run. → true | nil, message, code, then for "duplicate" the run
-- that counts
local function send(self, state)
  local args = { once.name(self.key), self.call_id, self.reached_at, state, self.token,
    self.half_period_ms, self.ttl_ms, self.retry and "1" or "0", self.who }
  local reply, message, code = raw.once(self.handle, 1, args)
  if not reply then return nil, message, code end
  self.reached_at = ("%.0f"):format(reply[2])
  if reply[1] == 1 then return true end
  local counted = once.parse(reply[4], reply[3])
  return nil, describe(self, counted), "duplicate", counted
end

-- Called before the lock is acquired: asks whether this call may count, and without `retry` claims
-- the scheduled time. Withdraws a claim that got no reply, because it may have been stored.
-- → the same as send
function once.claim(self)
  local allowed, message, code, counted = send(self, "")
  if not allowed or self.retry then return allowed, message, code, counted end
  allowed, message, code, counted = send(self, "claimed")
  if not allowed and code ~= "duplicate" then send(self, "unstarted") end
  return allowed, message, code, counted
end

-- Called under the lock: from now on, this call counts. → the same as send
function once.mark_running(self, lock)
  self.has_begun, self.token = true, locks.text_of(raw.token(lock))
  return send(self, "running")
end

-- Called if this call has not run: as soon as the server knows that, another call may count for
-- this scheduled time.
function once.withdraw(self)
  if self.has_begun or not self.retry then send(self, "unstarted") end
end

local MIN_PAUSE, MAX_PAUSE = 0.05, 1 -- seconds

local function loss_reason(lock)
  return raw.lost(lock) or raw.first_loss(lock)
end

-- Records how the run has ended, "done" or "failed". Retries after temporary failures while the
-- lock is held, because another call may run as soon as the lock is free. Gives up after half a
-- period: by then all calls for this scheduled time have been made. Stops after a loss, when
-- another call may count. A "duplicate" is a success: a call for the next time has replaced the
-- record. Calls `report` with the message and code of the first failure.
-- → true | nil, message, code
function once.finish(self, lock, state, report)
  local pause, deadline = MIN_PAUSE, core.now() + self.half_period_s
  while not loss_reason(lock) do
    local recorded, message, code = send(self, state)
    if recorded or code == "duplicate" then return true end
    if report then report(message, code) end
    report = nil
    local may_retry = core.is_transient(code, true) and raw.is_held(lock) and core.now() < deadline
    if not may_retry or not raw.pause(lock, pause) then return nil, message, code end
    pause = math.min(2 * pause, MAX_PAUSE)
  end
  return nil, "the lock was lost", "lost"
end

-- ---- client:once ----

-- Returns the results of with_lock.run_held, which reports a loss itself, or the failure to write
-- the record.
local function add_record_failure(record_failure, ...)
  local code = record_failure.code
  if not code or code == "lost" or select("#", ...) > 3 and select(3, ...) == "lost" then return ... end
  return with_lock.fail_unprotected(record_failure.message, code, ...)
end

local LOST_MESSAGE = 'the lock "%s" was lost (%s) before the run began'

-- Runs fn under the lock, which was just acquired. → the same as once.run
local function run_under_lock(self, lock, given, fn, ...)
  local allowed, message, code, counted = once.mark_running(self, lock)
  if allowed and not raw.is_held(lock) then
    local reason = loss_reason(lock) or "released"
    allowed, message, code = nil, LOST_MESSAGE:format(texts.shown(self.key), reason), "lost"
  end
  if not allowed then
    if code ~= "duplicate" then once.withdraw(self) end
    raw.release(lock)
    return loss.notify_after(nil, message, code, counted)
  end
  local record_failure = {}
  function given.settle(succeeded)
    local state, _ = succeeded and "done" or "failed", nil
    _, record_failure.message, record_failure.code = once.finish(self, lock, state)
  end
  return add_record_failure(record_failure, with_lock.run_held(lock, given, fn, ...))
end

-- An event loop may raise an error while the state is sent, before the lock is released.
local function return_or_abandon(lock, succeeded, ...)
  if succeeded then return ... end
  raw.abandon(lock)
  error((...), 0)
end

-- `period`, `opts` and `fn` must already have been checked.
function once.run(client, key, period, defaults, opts, fn, ...)
  loss.notify()
  local given = options.copy(opts)
  given.retry, given.watchdog, given.fencing = nil, true, true
  local lock = locks.new(client, key, given, defaults)
  if given.abort_on_loss then driver.check_hooks(lock) end
  local self = once.new_call(client, raw.key(lock), period, opts.retry)
  local allowed, message, code, counted = once.claim(self)
  if not allowed then return nil, message, code, counted end
  allowed, message, code = with_lock.acquire(lock)
  if not allowed then
    once.withdraw(self)
    return nil, message, code
  end
  return return_or_abandon(lock,
    compat.closing(raw.abandon, lock, pcall, run_under_lock, self, lock, given, fn, ...))
end

return once
