-- Once for each fire of a schedule: many clients call at about the same time, and one call counts.
--
-- A record, holdfast_once:KEY, says which call counts, and when it came by the server's clock. It
-- counts for the calls that come less than half a period before or after it. The call that counts
-- holds the lock KEY while it runs, and the record is written under that lock, with its token: what
-- an older holder sends late changes nothing. Without `retry` the record is written before the lock
-- is taken, too, and the other calls of this fire need not wait. See once.lua in csrc/programs.

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
---@field retry? boolean a fire whose run has failed or crashed may run again; false
---@field wait? number seconds to wait for a run that still goes on; the client's
---@field lease? number seconds that the lock outlives a crashed run; the client's. It is renewed in any case
---@field max_hold? number seconds, 0.001 to 1e9, after which the watchdog renews it no longer; no bound
---@field on_lost? fun(lock: holdfast.lock, reason: holdfast.lost_reason)
---@field abort_on_loss? boolean fn gets an error soon after the lock is lost
---@field on_event? fun(event: holdfast.event)
---@field class? string for counters and events; the client's
---@field interruptible? boolean a signal ends the wait

---@class holdfast.fire
---@field state string "claimed": it is about to begin; "running", "done", "failed"
---@field host string
---@field pid integer
---@field name string?
---@field age number seconds since it came, by the server's clock

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

-- Where the record of this key, as it is on the server, is stored.
function once.name(key)
  return PREFIX .. key
end

-- What a record says, at `now_ms` of the server's clock. → holdfast.fire | nil: it is none
function once.parse(text, now_ms)
  local at, state, rest = text:match("^(%d+) ([a-z]+) %d+ [^ ]+ (.*)$")
  if not at then return nil end
  local fire = names.parse(rest) or { host = "?", pid = 0 }
  fire.state, fire.age = state, (now_ms - locale.number(at)) / 1000
  return fire
end

-- ---- one call ----

-- `key`: as on the server. → one call, for the functions below
function once.fire(client, key, period, retry)
  return {
    key = key, retry = retry, reader = driver.reader(client, once.name(key), "lock"),
    by = ("%s:%d"):format(core.client.uuid(client), locks.next_call(client)),
    who = core.client.who(client),
    half_ms = ("%.0f"):format(period * 500), ttl_ms = ("%.0f"):format(period * 2000), at = "",
    token = "0", half = period / 2,
  }
end

local WORDS = {
  claimed = "is about to run", running = "is running", done = "has run", failed = "has failed",
}

-- For the calls that do not count.
local function describe(self, fire)
  if not fire then return ('"%s" has already run for this time'):format(texts.shown(self.key)) end
  return ('"%s" %s for this time, on %s, %s s ago'):format(texts.shown(self.key),
    WORDS[fire.state] or fire.state, holder.text(fire), locale.decimal("%.1f", math.max(fire.age, 0)))
end

-- → true | nil, message, code; for "duplicate" also the call that counts
local function send(self, state)
  local words = { once.name(self.key), self.by, self.at, state, self.token, self.half_ms,
    self.ttl_ms, self.retry and "1" or "0", self.who }
  local reply, message, code = raw.once(self.reader, 1, words)
  if not reply then return nil, message, code end
  self.at = ("%.0f"):format(reply[2])
  if reply[1] == 1 then return true end
  local fire = once.parse(reply[4], reply[3])
  return nil, describe(self, fire), "duplicate", fire
end

-- Before the lock is taken: whether this call may count. A claim without a reply may be there, and
-- is withdrawn. → as send
function once.come(self)
  local may, message, code, fire = send(self, "")
  if not may or self.retry then return may, message, code, fire end
  may, message, code, fire = send(self, "claimed")
  if not may and code ~= "duplicate" then send(self, "unstarted") end
  return may, message, code, fire
end

-- Under the lock: from now on this call counts. → as send
function once.begin(self, lock)
  self.begun, self.token = true, locks.text_of(raw.token(lock))
  return send(self, "running")
end

-- It has not run: another call may count for this fire, unless the server does not learn it.
function once.withdraw(self)
  if self.begun or not self.retry then send(self, "unstarted") end
end

local LEAST_PAUSE, MOST_PAUSE = 0.05, 1 -- seconds

local function is_lost(lock)
  return raw.lost(lock) or raw.first_loss(lock)
end

-- Records how it has ended, "done" or "failed". While the lock is held it tries again, since
-- another call may run as soon as the lock is free: for half a period, after which no call of this
-- fire comes. Not after a loss: then another call may count. `report`: gets message and code of the
-- first failure. Nothing is wrong if a call of the next fire, which waits for the lock, has
-- replaced the record.
-- → true | nil, message, code
function once.finish(self, lock, state, report)
  local pause, till = LEAST_PAUSE, core.now() + self.half
  while not is_lost(lock) do
    local recorded, message, code = send(self, state)
    if recorded or code == "duplicate" then return true end
    if report then report(message, code) end
    report = nil
    local goes_on = core.may_pass(code, true) and raw.is_held(lock) and core.now() < till
    if not goes_on or not raw.pause(lock, pause) then return nil, message, code end
    pause = math.min(2 * pause, MOST_PAUSE)
  end
  return nil, "the lock was lost", "lost"
end

-- ---- client:once ----

-- What client:once returns for the results of with_lock.run_held. A loss is reported there.
local function with_record(unrecorded, ...)
  local code = unrecorded.code
  if not code or code == "lost" or select("#", ...) > 3 and select(3, ...) == "lost" then return ... end
  return templates.unprotected(unrecorded.message, code, ...)
end

local LOST = 'the lock "%s" was lost (%s) before the run began'

-- The lock was just acquired. → as once.run
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
  local unrecorded = {}
  function given.settle(ran)
    local _
    _, unrecorded.message, unrecorded.code = once.finish(self, lock, ran and "done" or "failed")
  end
  return with_record(unrecorded, templates.run_held(lock, given, fn, ...))
end

-- `period`, `opts` and `fn` are checked.
function once.run(client, key, period, defaults, opts, fn, ...)
  loss.notify()
  local given = options.copy(opts)
  given.retry, given.watchdog, given.fencing = nil, true, true
  local lock = locks.new(client, key, given, defaults)
  if given.abort_on_loss then driver.check_hooks(lock) end
  local self = once.fire(client, raw.key(lock), period, opts.retry)
  local may, message, code, fire = once.come(self)
  if not may then return nil, message, code, fire end
  may, message, code = templates.acquire(lock)
  if not may then
    once.withdraw(self)
    return nil, message, code
  end
  return compat.closing(raw.abandon, lock, under_lock, self, lock, given, fn, ...)
end

return once
