-- One run of a schedule: simulated time in whole microseconds, and what happens when.
--
-- Everything that happens goes into `hash`, so equal hashes mean equal runs. The first broken rule ends the run.

local Heap = require "spec.sim.heap"

local MAX_EVENTS = 60000
local MAX_TIME = 600 * 1000000

local World = {}
World.__index = World

-- tell: function(time, text) | nil, told what happens
function World.new(tell)
  return setmetatable({ now = 0, heap = Heap.new(), hash = 0, events = 0, tell = tell, found = nil }, World)
end

function World:at(time, run, a, b, c)
  self.heap:put(time, { run = run, a = a, b = b, c = c })
end

function World:mix(number)
  self.hash = (self.hash * 131 + number) % 2147483647
end

function World:note(template, ...)
  if self.tell then self.tell(self.now, template:format(...)) end
end

-- A rule is broken.
function World:fail(rule, template, ...)
  if self.found then return end
  self.found = { rule = rule, text = template:format(...), time = self.now }
  self:note("BROKEN %s: %s", rule, self.found.text)
end

-- Runs until nothing is left to happen, or a rule is broken.
function World:run()
  while not self.found do
    local event = self.heap:take()
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
