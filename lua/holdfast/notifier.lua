-- Calls the user's functions for events, one at a time and in order, in the coroutine that detects
-- the event. A function may wait. Events that occur in the meantime are reported after the function
-- returns, by the same coroutine, or by another if that coroutine ends first.

local core = require "holdfast.core"
local current_coroutine = require("holdfast.compat").current_coroutine
local driver = require "holdfast.driver"

local now = core.now

local CHECK_INTERVAL = 1 -- seconds between checks whether a request still exists
local MAX_ROUNDS = 100 -- a round reports the events that the functions of the last one caused

local Notifier = {}
Notifier.__index = Notifier

local notifier = {}

-- coroutine -> the number of the user's functions that are running in it, nested
local depths = setmetatable({}, { __mode = "k" })

-- Returns the number of such functions that are running in this coroutine.
function notifier.depth()
  return depths[current_coroutine()] or 0
end

-- gather(add) calls add(item) for each new event; call(item) → true | false, an error
function notifier.new(gather, call)
  local self = {
    gather = gather, call = call,
    queue = {}, first = 1, last = 0,
    turn = false, -- the turn of the coroutine that is notifying
    runs_by = 0, -- used by the pump: the time by which the next coroutine must have begun
  }
  function self.add(item)
    self.queue[self.last + 1] = item
    self.last = self.last + 1
  end
  return setmetatable(self, Notifier)
end

-- ---- the turn ----

local weak = { __mode = "v" }

local function new_turn()
  local mark, thread = driver.owner.mark(), coroutine.running()
  return setmetatable({
    mark = mark, thread = thread, in_request = mark ~= nil, in_main = thread == nil,
    checked_at = now(),
  }, weak)
end

local function has_request(turn)
  if now() < turn.checked_at + CHECK_INTERVAL then return true end
  if turn.mark == nil or not driver.owner.is_alive(turn.mark) then return false end
  turn.checked_at = now()
  return true
end

-- Returns whether the coroutine that has this turn can still end it. In nginx, only its request
-- shows that.
local function is_alive(turn)
  if turn.in_request then return has_request(turn) end
  return turn.in_main or turn.thread ~= nil and coroutine.status(turn.thread) ~= "dead"
end

local function is_taken(self)
  return self.turn and is_alive(self.turn)
end

-- ---- notifying ----

-- Queues the new events. → whether the queue has any
function Notifier.collect(self)
  self.gather(self.add)
  return self.first <= self.last
end

-- Returns whether there is something to report, and no coroutine is reporting.
function Notifier.is_due(self)
  if is_taken(self) then return false end
  return self.first <= self.last or self:collect()
end

local function pop(self)
  local item = self.queue[self.first]
  self.queue[self.first] = nil
  self.first = self.first + 1
  return item
end

-- → true | false, an error
local function call_nested(self, item)
  local thread = current_coroutine()
  local depth = depths[thread]
  depths[thread] = (depth or 0) + 1
  local called, err = self.call(item)
  depths[thread] = depth
  return called, err
end

-- → whether no function raised an error, the first error
local function notify_all(self, turn)
  local ok, failure = true, nil
  for _ = 1, MAX_ROUNDS do
    while self.turn == turn and self.first <= self.last do
      local called, err = call_nested(self, pop(self))
      if ok and not called then ok, failure = false, err end
    end
    if self.turn ~= turn or not self:collect() then break end
  end
  return ok, failure
end

local function end_turn(self, turn, succeeded, ...)
  if self.turn == turn then self.turn = false end
  if not succeeded then error(..., 0) end
  return ...
end

-- → whether no function raised an error, the first error
function Notifier.notify(self)
  if not self:is_due() then return true end
  local turn = new_turn()
  self.turn = turn
  return end_turn(self, turn, pcall(notify_all, self, turn))
end

return notifier
