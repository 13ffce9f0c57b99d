-- Calls the user's functions for what has happened, one at a time and in order, in whichever
-- coroutine detects it. A function may wait. What happens in the meantime is reported after the
-- function returns, by the same coroutine, or by another if that coroutine ends first.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local now = core.now

local CHECK_EVERY = 1 -- seconds between checks of whether a request still exists
local ROUNDS = 100 -- rounds in which one call reports what the functions themselves cause

local Notifier = {}
Notifier.__index = Notifier

local notifier = {}

-- coroutine -> how many of the user's functions are running there, nested
local depths = setmetatable({}, { __mode = "k" })

local function current_coroutine()
  return coroutine.running() or depths
end

-- Returns how many of these functions the caller runs inside.
function notifier.depth()
  return depths[current_coroutine()] or 0
end

-- gather(add) calls add(item) for everything new; call(item) → true | false, an error
function notifier.new(gather, call)
  local self = {
    gather = gather, call = call,
    queue = {}, first = 1, last = 0,
    turn = false, -- the turn of the coroutine that is notifying
    runs_by = 0, -- used by the pump: when the next coroutine must have begun
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
    mark = mark, thread = thread, of_request = mark ~= nil, of_main = thread == nil,
    checked_at = now(),
  }, weak)
end

local function has_request(turn)
  if now() < turn.checked_at + CHECK_EVERY then return true end
  if turn.mark == nil or not driver.owner.lives(turn.mark) then return false end
  turn.checked_at = now()
  return true
end

-- Returns whether the coroutine that has this turn can still end it. In nginx this is known only
-- from its request.
local function is_living(turn)
  if turn.of_request then return has_request(turn) end
  return turn.of_main or turn.thread ~= nil and coroutine.status(turn.thread) ~= "dead"
end

local function is_taken(self)
  return self.turn and is_living(self.turn)
end

-- ---- notifying ----

-- Queues what has happened. → whether there is something to report
function Notifier.collect(self)
  self.gather(self.add)
  return self.first <= self.last
end

-- Returns whether there is something to report, and no coroutine is reporting.
function Notifier.is_due(self)
  if is_taken(self) then return false end
  return self.first <= self.last or self:collect()
end

local function take(self)
  local item = self.queue[self.first]
  self.queue[self.first] = nil
  self.first = self.first + 1
  return item
end

-- → true | false, an error
local function call_inside(self, item)
  local thread = current_coroutine()
  local depth = depths[thread]
  depths[thread] = (depth or 0) + 1
  local called, err = self.call(item)
  depths[thread] = depth
  return called, err
end

-- → whether no function raised an error, the first error
local function notify_all(self, turn)
  local fine, failure = true, nil
  for _ = 1, ROUNDS do
    while self.turn == turn and self.first <= self.last do
      local called, err = call_inside(self, take(self))
      if fine and not called then fine, failure = false, err end
    end
    if self.turn ~= turn or not self:collect() then break end
  end
  return fine, failure
end

local function end_turn(self, turn, ran, ...)
  if self.turn == turn then self.turn = false end
  if not ran then error(..., 0) end
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
