-- Runs a job once for each fire of a schedule: many clients call at about the same time, and one
-- call counts.
--
-- A record, holdfast_once:KEY, says which call counts, and when it reached the server, by the
-- server's clock. Calls less than half a period before or after it belong to the same fire. The
-- call that counts holds the lock KEY while it runs, and the record is written under that lock,
-- with its token, so that a late write by an earlier holder changes nothing. Without `retry` the
-- record is also written before the lock is acquired, so that other calls of this fire need not
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
local templates = require "holdfast.with_lock"
local texts = require "holdfast.text"

local raw = driver.lock

local once = {}

---@class holdfast.once_options
---@field retry? boolean allow another run for this fire if its run failed or crashed; default false
---@field wait? number seconds to wait for a run in progress; default: the client's
---@field lease? number seconds that the lock outlives a crashed run; always renewed; default: the client's
---@field max_hold? number seconds, 0.001 to 1e9, after which the watchdog stops renewing; default: no limit
---@field on_lost? fun(lock: holdfast.lock, reason: holdfast.lost_reason)
---@field abort_on_loss? boolean raise an error in fn soon after the lock is lost
---@field on_event? fun(event: holdfast.event)
---@field class? string for counters and events; default: the client's
---@field interruptible? boolean a signal ends the wait

---@class holdfast.fire
---@field state string "claimed" (about to begin), "running", "done" or "failed"
---@field host string
---@field pid integer
---@field name string?
---@field age number seconds since the call reached the server, by the server's clock

once.options = { retry = options.boolean, abort_on_loss = abort.check }
for _, name in ipairs { "wait", "lease", "max_hold", "on_lost", "on_event", "class", "interruptible" } do
  once.options[name] = locks.options[name]
end

function once.period(value)
  if type(value) ~= "number" or not (value >= 0.1 and value <= 1e9) then
    return "a number of seconds from 0.1 to 1e9"
  end
end

local PREFIX = "holdfast_once:"

-- Returns the name of the key's record. `key`: the full key, as stored on the server.
function once.name(key)
  return PREFIX .. key
end

-- Parses a record. `now_ms`: the server's clock now. → holdfast.fire | nil if it is not a record
function once.parse(text, now_ms)
  local at, state, rest = text:match("^(%d+) ([a-z]+) %d+ [^ ]+ (.*)$")
  if not at then return nil end
  local fire = names.parse(rest) or { host = "?", pid = 0 }
  fire.state, fire.age = state, (now_ms - locale.number(at)) / 1000
  return fire
end

-- ---- one call ----

-- `key`: the full key, as stored on the server. → a call, for the functions below
function once.new_call(client, key, period, retry)
  return {
    key = key, retry = retry, handle = driver.reader(client, once.name(key), "lock"),
    by = ("%s:%d"):format(core.client.uuid(client), locks.next_call(client)),
    who = core.client.who(client),
    half_ms = ("%.0f"):format(period * 500), ttl_ms = ("%.0f"):format(period * 2000), at = "",
    token = "0", half_period = period / 2,
  }
end

local WORDS = {
  claimed = "is about to run", running = "is running", done = "has run", failed = "has failed",
}

-- Returns the message of a call that does not count.
local function describe(self, fire)
  if not fire then return ('"%s" has already run for this time'):format(texts.shown(self.key)) end
  return ('"%s" %s for this time, on %s, %s s ago'):format(texts.shown(self.key),
    WORDS[fire.state] or fire.state, holder.text(fire), locale.decimal("%.1f", math.max(fire.age, 0)))
end

-- → true | nil, message, code; for "duplicate" also the call that counts
local function send(self, state)
  local words = { once.name(self.key), self.by, self.at, state, self.token, self.half_ms,
    self.ttl_ms, self.retry and "1" or "0", self.who }
  local reply, message, code = raw.once(self.handle, 1, words)
  if not reply then return nil, message, code end
  self.at = ("%.0f"):format(reply[2])
  if reply[1] == 1 then return true end
  local fire = once.parse(reply[4], reply[3])
  return nil, describe(self, fire), "duplicate", fire
end

-- Called before the lock is acquired: asks whether this call may count, and without `retry` claims
-- the fire. A claim that got no reply may have been stored, so it is withdrawn. → like send
function once.claim(self)
  local may, message, code, fire = send(self, "")
  if not may or self.retry then return may, message, code, fire end
  may, message, code, fire = send(self, "claimed")
  if not may and code ~= "duplicate" then send(self, "unstarted") end
  return may, message, code, fire
end

-- Called under the lock: from now on this call counts. → like send
function once.begin(self, lock)
  self.begun, self.token = true, locks.text_of(raw.token(lock))
  return send(self, "running")
end

-- Called if this call has not run: as soon as the server knows that, another call may count for
-- this fire.
function once.withdraw(self)
  if self.begun or not self.retry then send(self, "unstarted") end
end

local MIN_PAUSE, MAX_PAUSE = 0.05, 1 -- seconds

local function is_lost(lock)
  return raw.lost(lock) or raw.first_loss(lock)
end

-- Records how the run has ended, "done" or "failed". Retries after temporary failures while the
-- lock is held, because another call may run as soon as it is free. Gives up after half a period:
-- by then all calls of this fire have been made. Stops after a loss, when another call may count. A
-- "duplicate" is a success: a call of the next fire has replaced the record. `report` is called
-- with the message and code of the first failure.
-- → true | nil, message, code
function once.finish(self, lock, state, report)
  local pause, deadline = MIN_PAUSE, core.now() + self.half_period
  while not is_lost(lock) do
    local recorded, message, code = send(self, state)
    if recorded or code == "duplicate" then return true end
    if report then report(message, code) end
    report = nil
    local may_retry = core.may_pass(code, true) and raw.is_held(lock) and core.now() < deadline
    if not may_retry or not raw.pause(lock, pause) then return nil, message, code end
    pause = math.min(2 * pause, MAX_PAUSE)
  end
  return nil, "the lock was lost", "lost"
end

-- ---- client:once ----

-- Turns the results of with_lock.run_held, which reports a loss itself, into those of client:once.
local function with_record(record_failure, ...)
  local code = record_failure.code
  if not code or code == "lost" or select("#", ...) > 3 and select(3, ...) == "lost" then return ... end
  return templates.unprotected(record_failure.message, code, ...)
end

local LOST = 'the lock "%s" was lost (%s) before the run began'

-- Runs fn under the lock, which was just acquired. → like once.run
local function under_lock(self, lock, given, fn, ...)
  local may, message, code, fire = once.begin(self, lock)
  if may and not raw.is_held(lock) then
    may, message, code = nil, LOST:format(texts.shown(self.key), is_lost(lock) or "released"), "lost"
  end
  if not may then
    if code ~= "duplicate" then once.withdraw(self) end
    raw.release(lock)
    return loss.notify_after(nil, message, code, fire)
  end
  local record_failure = {}
  function given.settle(ran)
    local _
    _, record_failure.message, record_failure.code = once.finish(self, lock, ran and "done" or "failed")
  end
  return with_record(record_failure, templates.run_held(lock, given, fn, ...))
end

-- `period`, `opts` and `fn` must already have been checked.
function once.run(client, key, period, defaults, opts, fn, ...)
  loss.notify()
  local given = options.copy(opts)
  given.retry, given.watchdog, given.fencing = nil, true, true
  local lock = locks.new(client, key, given, defaults)
  if given.abort_on_loss then driver.check_hooks(lock) end
  local self = once.new_call(client, raw.key(lock), period, opts.retry)
  local may, message, code, fire = once.claim(self)
  if not may then return nil, message, code, fire end
  may, message, code = templates.acquire(lock)
  if not may then
    once.withdraw(self)
    return nil, message, code
  end
  return compat.closing(raw.abandon, lock, under_lock, self, lock, given, fn, ...)
end

return once
