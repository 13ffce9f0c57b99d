-- One run of a schedule: simulated time in whole microseconds, and the events in it.
--
-- Every event goes into `hash`, so equal hashes mean equal runs. The first broken rule ends the
-- run.

local Heap = require "spec.sim.heap"

local MAX_EVENTS = 200000
local MAX_TIME = 1200 * 1000000 -- the dead may remain in a fair lock's list for 15 minutes

local EACH = 6 -- how many signals of a name a fault for each of them counts

local World = {}
World.__index = World

-- trace: function(time, text) | nil, called for each line of the trace
function World.new(trace)
  return setmetatable({ now = 0, heap = Heap.new(), hash = 0, events = 0, trace = trace,
    found = nil, awaited = {}, signals = {}, next_awaited = {}, last_granted = {} }, World)
end

function World:at(time, run, a, b, c)
  self.heap:put(time, { run = run, a = a, b = b, c = c })
end

-- Calls run(argument, process, key) `after` microseconds after the signal number `nth` of that
-- name; 0: after each of the first EACH.
function World:on(name, nth, after, run, argument)
  if name:find("^state ") then self.watches_states = true end
  local awaited = self.awaited[name] or {}
  self.awaited[name] = awaited
  awaited[nth] = awaited[nth] or {}
  table.insert(awaited[nth], { after = after, run = run, argument = argument })
end

-- Calls run(argument) `after` microseconds after the next signal of that name, of this process;
-- nil: of any.
function World:on_next(name, process, after, run, argument)
  self.next_awaited[name] = self.next_awaited[name] or {}
  table.insert(self.next_awaited[name], { process = process, after = after, run = run,
    argument = argument })
end

local function wake_next(self, name, process)
  local rest = {}
  for _, waiting in ipairs(self.next_awaited[name]) do
    if waiting.process == process or not waiting.process then
      self:at(self.now + waiting.after, waiting.run, waiting.argument)
    else
      rest[#rest + 1] = waiting
    end
  end
  self.next_awaited[name] = rest
end

-- Something has happened to a process, and perhaps to a key.
function World:signal(name, process, key)
  if self.next_awaited[name] then wake_next(self, name, process) end
  local awaited = self.awaited[name]
  if not awaited then return end
  local number = (self.signals[name] or 0) + 1
  self.signals[name] = number
  for _, nth in ipairs { number <= EACH and 0 or -1, number } do
    for _, waiting in ipairs(awaited[nth] or {}) do
      self:at(self.now + waiting.after, waiting.run, waiting.argument, process, key)
    end
  end
end

function World:mix(number)
  self.hash = (self.hash * 131 + number) % 2147483647
end

function World:note(template, ...)
  if self.trace then self.trace(self.now, template:format(...)) end
end

-- A rule is broken.
function World:fail(rule, template, ...)
  if self.found then return end
  self.found = { rule = rule, text = template:format(...), time = self.now }
  self:note("BROKEN %s: %s", rule, self.found.text)
end

-- → what happens next | nil
function World:next()
  return self.heap:take()
end

-- Runs until nothing is left to happen, or a rule is broken.
function World:run()
  while not self.found do
    local event = self:next()
    if not event then return end
    self.now = event.time
    self.events = self.events + 1
    if self.events > MAX_EVENTS or self.now > MAX_TIME then
      self:fail("quiet", "still busy after %d events and %.1f s", self.events, self.now / 1e6)
      return
    end
    event.run(event.a, event.b, event.c)
  end
end

return World
