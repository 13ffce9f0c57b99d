-- The rules of every schedule of a plain semaphore, in place of watcher.lua's.
--
--   exclusion  nobody believes in more permits than there are
--   twice      a call changes the number once, however often its command is run; what it took comes
--              back at most once
--   told       …and what it returns is what it did
--   leak       at the end what has failed has taken nothing, and every release has been carried out
--              except those that a server refused for good, which their callers learned
--   missed     a wait that times out has looked at its end
--   late       where nothing goes wrong, a message ends a wait at once
--   asleep     …and no thread of Java keeps sleeping after its message is due
--   overtaken  …or sees others take the last permit again and again

local Latch = require "spec.sim.latch_watcher"
local refused = require "spec.sim.refused"
local wire = require "spec.sim.wire"

local CLOCKS = 0.99 -- how much later a process may end a wait, because its clock is slow
local TURN_US = 51000 -- a waiter that arrives during a turn sleeps for as long as a whole turn
local MAX_OVERTAKEN = 6 -- how often holdfast may take permits that a thread of Java waits for

local Watcher = setmetatable({}, { __index = Latch })
Watcher.__index = Watcher

function Watcher.new(world, servers, plan)
  local self = Latch.new(world, servers, plan)
  self.notes, self.believed, self.all, self.free = {}, 0, 0, { since = {} }
  self.turn_till, self.overtaken = 0, {}
  return setmetatable(self, Watcher)
end

-- ---- the server ----

local function free_of(self, server)
  local entry = (server or self:home()).db.entries[self.name]
  return entry and tonumber(entry.value) or 0
end

local MOST = 4 -- most permits that a task asks for

-- Notes since when this many permits are free; said: whether a message said so.
local function note_free(self, said)
  local free = free_of(self)
  for count = 1, MOST do
    local since = self.free.since[count]
    if free < count then self.free.since[count] = nil
    elseif not since then self.free.since[count] = { from = self.world.now, said = said } end
  end
end

-- Notes until when one permit is left to Redisson's waiters.
local function note_turn(self, server)
  local entry = server.db.entries[wire.turns_of(self.name)]
  local till = entry and entry.value:match("^%-(%d+) 1f 0 0 %- ")
  if till then self.turn_till = server:moment(till + 1) end
end

-- A thread of Java has got its permits. Redisson keeps no order among its threads.
function Watcher:serves() self.overtaken = {} end

-- Called when a holdfast client has taken the last permit.
local function note_overtaken(self)
  for slot, java in pairs(self.asleep) do
    local times = (self.overtaken[slot] or 0) + 1
    self.overtaken[slot] = java.permits == 1 and times or nil
    if self.calm and java.permits == 1 and times > MAX_OVERTAKEN then
      self.world:fail("overtaken", "%s: ours have taken the last permit %d times while java %d waits",
        self.name, times, slot)
    end
  end
end

function Watcher:before(name, client, args, server)
  Latch.before(self, name, client, args, server)
  self.was = free_of(self, server)
end

-- The verbs that may lower or raise the number.
local TAKES = { take = true, drain = true }

local function check_change(self, note, change)
  local call = self.notes[note]
  if not call then
    self.world:fail("told", "%s: %s changes the number by %d, and nobody called", self.name, note,
      change)
    return
  end
  call.free_since = self.free.since[call.amount]
  if not self:is_certain(call.at) then return end
  if call.back or call.change and not (TAKES[call.verb] and change == -call.change) then
    self.world:fail("twice", "%s: %s changes the number again, by %d", self.name, note, change)
  elseif call.change then
    call.back = true
  else
    call.change = change
    if call.verb == "give" and not call.returns or call.verb == "set_count" then
      self.all = self.all + change
    end
  end
end

-- args: EVALSHA, its text, 3, semaphore, note, channel, …
function Watcher:after(name, client, args, _, server)
  local free, note = free_of(self, server), args[5]
  self.world:note("  server %d runs %s for %s: %d free", server.index, tostring(name),
    client.process and client.process.name or "admin", free)
  if name and note and free ~= self.was then check_change(self, note, free - self.was) end
  note_turn(self, server)
  if free == 0 and self.was > 0 then note_overtaken(self) end
  note_free(self, true)
end

-- Runs what others do: threads of Java take permits and give them back, others add some.
function Watcher:around(run, owner)
  local was = free_of(self)
  run()
  if not owner then self.all = self.all + free_of(self) - was end
  note_free(self, owner ~= nil)
end

function Watcher:ready_since(count)
  local since = self.free.since[count]
  if since then return since.from, since.said end
end

-- ---- calls ----

-- Called when a caller believes in `count` more permits.
function Watcher:believe(count)
  self.believed = self.believed + count
  if self.believed > self.all and self:is_certain(0) then
    self.world:fail("exclusion", "%s: %d permits are believed in, there are %d", self.name,
      self.believed, self.all)
  end
end

-- A call begins. Giving back what was taken adds no permit.
function Watcher:calls(task, verb, amount, number)
  local note = wire.note_of(self.name, task.process.uuid, number)
  local returns = verb == "give" and task.plan.calls ~= "give"
  if returns then self.believed = self.believed - amount end
  self.notes[note] = { verb = verb, amount = amount, task = task, returns = returns,
    refused = task.process.closed, at = self.world.now }
end

local function check_wait(self, task, call, taken, code, asked_at)
  local now, since = self.world.now, self.free.since[call.amount]
  local till = asked_at + task.plan.wait * 1e6 * CLOCKS
  if code == "busy" and since and math.max(since.from, self.turn_till) < till then
    self.world:fail("missed", "%s: %s times out at %.6f, but %d are free since %.6f", self.name,
      task.name, now / 1e6, call.amount, since.from / 1e6)
  end
  since = call.free_since or since
  if not (self.calm and taken and since and since.from > asked_at) then return end
  local from = self.turn_till > since.from and self.turn_till + TURN_US or since.from
  local gap = self.late_us + (since.said and 0 or task.process.plan.grant_lease * 1.01e6)
  if now - from > gap then
    self.world:fail("late", "%s: %s goes on %.6f s after there were enough", self.name, task.name,
      (now - from) / 1e6)
  end
end

-- → how a call has changed the number, by its result
local function change_of(call, result)
  if call.verb == "take" then return -call.amount end
  if call.verb == "drain" then return result > 0 and -result or nil end
  if call.verb == "set_count" then return result and call.amount or nil end
  return call.amount
end

local FINAL = { server = true, denied = true }

function Watcher:called(task, verb, result, code, asked_at, number, message)
  local note = wire.note_of(self.name, task.process.uuid, number)
  local call = self.notes[note]
  call.returned, call.good = true, result ~= nil
  call.refused = call.refused
    or not result and FINAL[code] and not refused.says(message, verb == "give")
  if not self:is_certain(asked_at) then return end
  if verb == "take" then check_wait(self, task, call, result, code, asked_at) end
  if result == nil then
    local expected = verb == "take" or code == "interrupted" or code == "closed"
    if self.calm and not expected then
      self.world:fail("told", "%s: %s of %s fails", self.name, verb, task.name)
    end
    return
  end
  if call.back or change_of(call, result) ~= call.change then
    self.world:fail("told", "%s: %s of %s returns %s, but has changed it by %s", self.name, verb,
      task.name, tostring(result), tostring(call.back and 0 or call.change))
  end
  if TAKES[verb] then self:believe(verb == "take" and call.amount or result) end
end

function Watcher.bound(process, verb, wait)
  return Latch.bound(process, verb == "take" and "await" or verb, wait)
end

-- ---- the end ----

-- → by how much the call must have changed the number at the end; nil: it may or may not have
local function final_change(call)
  if call.refused then return 0 end
  if call.verb == "give" then return call.amount end
  if TAKES[call.verb] and not call.good then return 0 end
end

function Watcher:finish()
  Latch.finish(self)
  for note, call in pairs(self.notes) do
    local change, want = call.back and 0 or call.change or 0, final_change(call)
    local judged = self:is_certain(call.at) and not call.task.process.dead
    if judged and want and want ~= change then
      self.world:fail("leak", "%s: %s of %s (%s) has changed it by %d at the end", self.name,
        call.verb, call.task.name, note, change)
    end
  end
end

return Watcher
