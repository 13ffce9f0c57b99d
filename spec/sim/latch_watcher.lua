-- The rules of every schedule of a latch, in place of watcher.lua's.
--
--   early    a wait that ends well has seen the latch open
--   missed   a wait that times out has looked at its end
--   late     where nothing goes wrong, a message ends a wait at once
--   twice    a call changes the count once and by what it says, however often its command is run
--   told     …and what it returns is what it did
--   other    a deletion that expects a count opens the latch only at that count
--   asleep   …and no thread of Java keeps sleeping after its message is due

local rules = require "spec.sim.rules"
local wire = require "spec.sim.wire"

local huge, max = math.huge, math.max

local CLOCKS = 0.99 -- how much later a process may end a wait, because its clock is slow
local CALM_GAP = 400000

local Watcher = {}
Watcher.__index = Watcher

function Watcher.new(world, servers, plan)
  local self = setmetatable({
    world = world, server = servers[1], calm = not plan.faults, keys = {}, uuids = {}, effects = {},
    open_spans = { { from = 0, to = huge } }, asleep = {}, late_us = 20 * plan.network[2],
  }, Watcher)
  servers[1].watcher = self
  return self
end

function Watcher:add_key(name)
  self.name, self.keys[name] = name, { claims = {}, wanting = {} }
end

function Watcher:add_process(process)
  self.uuids[process.uuid] = process
end

-- ---- the server ----

-- The server that has the latch.
function Watcher:home() return self.server end

-- Returns whether the server has kept all that was done since then: system_counts.lua.
function Watcher.is_certain() return true end

local function count_of(self, server)
  local entry = (server or self:home()).db.entries[self.name]
  return entry and max(0, tonumber(entry.value)) or 0
end

-- Notes when the latch is open.
local function note_span(self, said)
  local last = self.open_spans[#self.open_spans]
  local open, was_open = count_of(self) == 0, last.to == huge
  if open and not was_open then
    self.open_spans[#self.open_spans + 1] = { from = self.world.now, to = huge, said = said }
  elseif was_open and not open then
    last.to = self.world.now
  end
end

-- A thread of Java sleeps from now on until that many permits are free; nil: it is awake.
function Watcher:sleeps(_, slot, permits)
  self.asleep[slot] = permits and { since = self.world.now, permits = permits }
end

-- → since when a waiter need not wait any more, and whether a message said so | nil
function Watcher:ready_since()
  local last = self.open_spans[#self.open_spans]
  if last.to == huge then return last.from, last.said end
end

local function check_asleep(self)
  for slot, java in pairs(self.asleep) do
    local since, said = self:ready_since(java.permits)
    local gap = since and said and self.world.now - max(since, java.since) or 0
    if self.calm and gap > CALM_GAP then
      self.world:fail("asleep", "%s: java %d sleeps on for %.3f s", self.name, slot, gap / 1e6)
    end
  end
end

function Watcher:before(_, client, _, server)
  local process = client.process
  server.redis:read_clock()
  check_asleep(self)
  self.count = count_of(self, server)
  if process then rules.count_command(self.world, process) end
end

-- args: EVALSHA, its text, 3, latch, note, channel, …
function Watcher:after(name, client, args, _, server)
  local left, note = count_of(self, server), args[5]
  self.world:note("  server %d runs %s for %s: %d left", server.index, tostring(name),
    client.process and client.process.name or "admin", left)
  if note and left ~= self.count then
    if self.effects[note] and self:is_certain(self.effects[note]) then
      self.world:fail("twice", "%s: %s changes the count a second time", self.name, note)
    end
    self.effects[note] = self.effects[note] or self.world.now
  end
  if name:find("latch_down", 1, true) and left ~= self.count and left ~= max(0, self.count - args[8]) then
    self.world:fail("twice", "%s: %s counts from %d to %d", self.name, note, self.count, left)
  end
  if name:find("latch_delete", 1, true) and left ~= self.count and args[8] ~= "0"
      and self.count ~= tonumber(args[8]) then
    self.world:fail("other", "%s: %s opens it at %d, but expects %s", self.name, note, self.count,
      args[8])
  end
  note_span(self, true)
  if client.process and left == 0 and self.count > 0 then
    self.world:signal("freed", client.process, self.name)
  end
end

-- Runs what others do; without an owner, no message is sent.
function Watcher:around(run, owner)
  run()
  note_span(self, owner ~= nil)
end

function Watcher.forget() end

-- ---- calls ----

local function was_open(self, from, to)
  for _, span in ipairs(self.open_spans) do
    if span.from <= to and span.to >= from then return true end
  end
end

local function check_wait(self, task, open, code, asked_at)
  if not self:is_certain(asked_at) then return end
  local now, last = self.world.now, self.open_spans[#self.open_spans]
  if open and not was_open(self, asked_at, now) then
    self.world:fail("early", "%s: %s goes on, but it was never open", self.name, task.name)
  end
  local till = asked_at + task.plan.wait * 1e6 * CLOCKS
  if code == "timeout" and last.to == huge and last.from < till then
    self.world:fail("missed", "%s: %s times out at %.6f, but it is open since %.6f", self.name,
      task.name, now / 1e6, last.from / 1e6)
  end
  local gap = self.late_us + (last.said and 0 or task.process.plan.grant_lease * 1.01e6)
  if self.calm and open and last.to == huge and last.from > asked_at and now - last.from > gap then
    self.world:fail("late", "%s: %s goes on %.6f s after it was opened", self.name, task.name,
      (now - last.from) / 1e6)
  end
end

local function has_changed(verb, result)
  if verb == "count_down" then return result ~= false end
  return result
end

function Watcher.calls() end

-- A call has returned; number: that of its operation.
function Watcher:called(task, verb, result, code, asked_at, number)
  if verb == "await" then return check_wait(self, task, result, code, asked_at) end
  if result == nil then
    if self.calm and code ~= "closed" then
      self.world:fail("told", "%s: %s of %s fails", self.name, verb, task.name)
    end
    return
  end
  local note = wire.note_of(self.name, task.process.uuid, number)
  if not self:is_certain(asked_at) then return end
  if has_changed(verb, result) ~= (self.effects[note] ~= nil) then
    self.world:fail("told", "%s: %s of %s returns %s, but the count %s", self.name, verb, task.name,
      tostring(result), self.effects[note] and "has changed" or "has not changed")
  end
end

-- A latch has no holders.
function Watcher.claim() end
function Watcher.may_lose() end

Watcher.bound = rules.bound

function Watcher:finish()
  rules.check_channels(self.world, self.uuids, self:home().redis)
end

return Watcher
