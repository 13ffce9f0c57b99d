-- Leader election: a lock that is acquired again and again. Each hold is a term.
--
-- A term is over as soon as, by this host's clock, its lock is no longer held. That is before any
-- other client can hold the lock. A term's methods work in any coroutine, including those that the
-- leader's function has started.

local abort = require "holdfast.abort"
local compat = require "holdfast.compat"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local leader = require "holdfast.leader"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local options = require "holdfast.options"
local with_lock = require "holdfast.with_lock"

local raw, check_self = driver.lock, options.check_self

local lead = {}

---@class holdfast.lead_options
---@field lease? number seconds for which the term survives a crashed leader; always renewed; default: the client's
---@field max_hold? number seconds, 0.001 to 1e9, after which a term ends; default: no limit
---@field once? boolean return after one term
---@field on_lost? fun(term: holdfast.term, reason: holdfast.lost_reason)
---@field abort_on_loss? boolean raise an error in fn soon after the term is lost
---@field on_change? fun(leader: holdfast.leader) called with each leader that this process learns of
---@field on_event? fun(event: holdfast.event)
---@field class? string for counters and events; default: the client's
---@field interruptible? boolean a signal ends the wait
---@field fencing? boolean default: the client's, which is true unless set
---@field token_ttl? number

lead.options = locks.add_options({
  once = options.boolean,
  abort_on_loss = abort.check,
  on_change = options.callable,
}, { "lease", "max_hold", "on_lost", "on_event", "class", "interruptible", "fencing", "token_ttl" })

-- Raises at `level` if the client does not support these options.
function lead.check(given, defaults, level)
  if given.on_change and defaults.quorum then
    error("client:lead: on_change needs a single server, not a quorum", level + 1)
  end
end

-- ---- the term ----

---@class holdfast.term
local Term = {}
Term.__index = Term
Term.__name = "holdfast.term"

local function is_leader(self)
  return not self.over and not driver.owner.is_exiting() and raw.standing(self.lock) ~= nil
end

-- Returns whether this process is the leader now; no I/O. Under ngx_lua, false if the worker is
-- exiting.
---@return boolean leads
function Term:is_leader()
  check_self(self, Term, "term:is_leader", 2)
  loss.notify()
  return is_leader(self)
end

-- Returns how the term was lost: "expired", "taken", "deleted", "unreachable" or "max_hold"; nil if
-- it was not. No I/O.
---@return holdfast.lost_reason? reason
function Term:lost()
  check_self(self, Term, "term:lost", 2)
  loss.notify()
  if not self.over then self.reason = self.reason or select(2, raw.standing(self.lock)) end
  return self.reason
end

-- Returns this term's fencing token, even after the term, or nil without tokens. Each later leader
-- has a higher token.
---@return integer? token
function Term:token()
  check_self(self, Term, "term:token", 2)
  return self.fencing_token
end

-- Returns the token as a decimal string with all digits, even in Lua versions whose tostring writes
-- only 14.
---@return string? text
function Term:token_text()
  check_self(self, Term, "term:token_text", 2)
  return locks.text_of(self.fencing_token)
end

-- Returns the key on the server, with the client's prefix.
---@return string key
function Term:key()
  check_self(self, Term, "term:key", 2)
  return raw.key(self.lock)
end

-- Ends the current term now, and client:lead once fn has returned. If this term is already over,
-- ends the term that is running now, or the wait for the next one. Outside fn's coroutine, does not
-- wait for the server.
---@return true? resigned
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Term:resign()
  check_self(self, Term, "term:resign", 2)
  local term = self.election.term
  self.election.resigned = true
  if term.over then return true end
  term.over = true
  local extra_holds = raw.holds(term.lock) - 1 -- fn may have re-entered the lock
  for _ = 1, extra_holds do raw.release(term.lock) end
  if extra_holds >= 0 then return loss.notify_after(raw.release(term.lock)) end
  driver.abandon(term.lock)
  driver.interrupt(term.lock)
  return true
end

function lead.is_term(value)
  return getmetatable(value) == Term
end

-- Works in any coroutine, like the methods above.
-- → the token of a term that is not over | nil, how the term was lost, or nil if it was not
function lead.token_of(term)
  if is_leader(term) then return term.fencing_token end
  return nil, term.reason or select(2, raw.standing(term.lock))
end

function Term:__tostring()
  local state = is_leader(self) and "leader" or self.reason and "lost: " .. self.reason or "over"
  return ("holdfast.term: %s (%s)"):format(raw.key(self.lock), state)
end

-- ---- terms one after the other ----

local MIN_PAUSE, MAX_PAUSE = 0.1, 1 -- seconds

local EXITING, RESIGNED = "the worker is exiting", "the leader resigned before its term began"

-- `election`: shared by the terms of one client:lead: { term, resigned, has_led, watch }. `term`:
-- the last one; `has_led`: whether this process has led before, so that a missing right no longer
-- ends the call; `watch`: the result of leader.new_watch.
local function new_term(election, client, key, given, defaults)
  local term = setmetatable({ over = false, election = election }, Term)
  election.term = term
  local on_lost = given.on_lost
  term.lock = locks.unshared(client, key, {
    lease = given.lease, max_hold = given.max_hold, watchdog = true, wait = math.huge,
    interruptible = given.interruptible, class = given.class, keep = 0,
    on_event = given.on_event, fencing = given.fencing, token_ttl = given.token_ttl,
    on_lost = on_lost and function(_, reason)
      term.reason = reason
      on_lost(term, reason)
    end,
  }, defaults)
  raw.data(term.lock).leader_term = term
  if election.watch then leader.watch(election.watch, term.lock) end
  return term
end

-- → why there are no further terms | nil if there are
local function why_ended(election)
  return election.resigned and RESIGNED or driver.owner.is_exiting() and EXITING or nil
end

-- Releases a lock that was lost, or whose leader has resigned, before its term began.
-- → message, code
local function release_unused(lock)
  local _, message, code = raw.release(lock)
  return message, code or "lost"
end

-- Waits until a term holds its lock, or the leader has resigned. If a term loses its lock before it
-- begins, replaces it with a new one. → the term | nil, message, code
local function wait_for_term(election, term, next_term)
  local acquired, paused, message, code
  local pause = MIN_PAUSE
  repeat
    loss.notify()
    if why_ended(election) then return nil, why_ended(election), "interrupted" end
    acquired, message, code = with_lock.acquire(term.lock)
    election.has_led = election.has_led or acquired ~= nil
    if acquired and not election.resigned and raw.is_held(term.lock) then return term end
    if acquired then
      message, code = release_unused(term.lock)
      term = next_term()
    end
    if why_ended(election) then return nil, why_ended(election), "interrupted" end
    if not core.is_transient(code, election.has_led) then return nil, message, code end
    paused, message, code = raw.pause(term.lock, pause)
    pause = math.min(2 * pause, MAX_PAUSE)
  until not paused
  return nil, message, code
end

-- Calls fn(term, ...) under the term's lock. → the same as client:with_lock
local function run_term(term, given, fn, ...)
  local watch = term.election.watch
  term.fencing_token = raw.token(term.lock)
  return with_lock.run_held(term.lock, given, function(_, ...)
    if watch then leader.announce_and_report(watch, term.lock) end
    return fn(term, ...)
  end, ...)
end

local function pack(...)
  return { n = select("#", ...), ... }
end

-- `given` and `fn` must already have been checked.
function lead.run(client, key, given, defaults, fn, ...)
  local election, results = { resigned = false }, nil
  given = options.copy(given)
  election.watch = given.on_change and leader.new_watch(given.on_change, election)
  local function next_term() return new_term(election, client, key, given, defaults) end
  repeat
    local first = next_term()
    if given.abort_on_loss then driver.check_hooks(first.lock) end
    local term, message, code = wait_for_term(election, first, next_term)
    if not term and not (election.resigned and results) then return nil, message, code end
    if not term then break end
    results = pack(run_term(term, given, fn, ...))
    term.reason, term.over = term.reason or raw.lost(term.lock), true
  until given.once or election.resigned or driver.owner.is_exiting()
  return compat.unpack(results, 1, results.n)
end

return lead
