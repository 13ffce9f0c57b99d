-- The order in which the events of one run happen, where that departs from the deterministic one.
--
-- An event happens at a place: a process or a server. It belongs to a channel: what one link
-- carries one way, the clock of a process, the steps of a task. Each time an event is about to
-- happen is a moment, with a name such as "p1 calls > s1 #3": the third one of its channel. A
-- departure delays the event of a moment until the next one of its place has happened, and what
-- its link carries behind it waits with it; or lets a fault happen first.
--
-- After the last departure each state is compared with those that other runs have had: what each
-- place has seen, in which order, and what is under way to it. A run that gets into one of them
-- stops there. Times count by their order of magnitude only.

local Network = require "spec.sim.network"
local Process = require "spec.sim.process"

local max = math.max

local MAX_DELAY = 30000 -- µs for which an event may be delayed
local ROLES = { "calls", "events", "renewer" }
-- A state is two numbers below these primes.
local PRIME, OTHER_PRIME = 2147483647, 2147483629
local FACTOR, OTHER_FACTOR = 48271, 69621

local Order = {}
Order.__index = Order

-- Reasons for which a run stops before its end.
Order.KNOWN = { rule = "known", text = "another run has had this state" }
Order.VOID = { rule = "void", text = "nothing happens at that place for as long as it may be delayed" }

-- departures: a list of { moment = name, fault = number | nil }, in their order; states: of all
-- runs before, to which those of this run are added; nil: it runs to its end
function Order.new(departures, states)
  return setmetatable({
    departures = departures, done = 0, states = states, held = {}, front = {}, log = {},
    places = {}, channels = {}, channels_of = {}, place_list = {}, happened = 0,
  }, Order)
end

-- ---- hashes ----

local function mix(target, a, b)
  target.a = (target.a * FACTOR + a) % PRIME
  target.b = (target.b * OTHER_FACTOR + b) % OTHER_PRIME
end

local function hash_text(text)
  local a = 7
  for i = 1, #text do a = (a * FACTOR + text:byte(i)) % PRIME end
  return a
end

-- The order of magnitude of a time.
local function magnitude(us)
  local class, limit = 0, 2000
  while us >= limit do class, limit = class + 1, limit * 4 end
  return class
end

-- ---- places and channels ----

local function place(self, name)
  local known = self.places[name]
  if not known then
    known = { name = name, a = hash_text(name), b = 1, at = 0, made = 0 }
    self.places[name] = known
    self.place_list[#self.place_list + 1] = known
  end
  return known
end

-- in_order: whether its events stay in order; place_of: a function of the event, or nil: the place
local function channel(self, name, place_name, in_order, place_of)
  local known = self.channels[name]
  if not known then
    known = { name = name, place = place(self, place_name), count = 0, hash = hash_text(name),
      in_order = in_order, place_of = place_of }
    self.channels[name] = known
  end
  return known
end

-- The commands that concern the server's data and its subscribers.
local COMMANDS = { "EVAL", "SUBSCRIBE", "subscribe" }

local function concerns_data(connection)
  local item = connection.up_way[connection.up_way.first]
  local bytes = item and item.argument and item.argument.bytes
  if not bytes then return connection.link % #ROLES == 2 end
  for _, command in ipairs(COMMANDS) do
    if bytes:find(command, 1, true) then return true end
  end
  return false
end

-- Connections begin and end independently of each other.
local function place_of_arrival(self, event)
  local there = event.channel
  return concerns_data(event.a) and there.place or place(self, there.name)
end

local function link_channel(self, connection, up)
  local process, server = connection.process.name, "s" .. connection.server.index
  local role = ROLES[(connection.link - 1) % #ROLES + 1]
  if up then
    return channel(self, process .. " " .. role .. " > " .. server, server, true, place_of_arrival)
  end
  return channel(self, server .. " > " .. process .. " " .. role, process, true)
end

local function step_channel(self, process, argument)
  local task = type(argument) == "table" and (argument.task or argument)
  local name = type(task) == "table" and task.name or process.name
  return channel(self, name .. " goes on", process.name)
end

local function find_channel(self, event)
  local run, subject = event.run, event.a
  if run == Network.up_arrives or run == Network.finish then
    return link_channel(self, subject, true)
  elseif run == Network.down_arrives or run == Network.dropped then
    return link_channel(self, subject, false)
  elseif run == Process.tick then
    return channel(self, subject.name .. " clock", subject.name)
  elseif run == Process.run_later then
    return step_channel(self, subject, event.c)
  elseif type(subject) == "table" and subject.slot and subject.listener then
    return channel(self, subject.name .. " goes on", "s1")
  end
end

-- → the channel of an event | nil: it only looks, or belongs to the schedule
local function channel_of(self, event)
  local run = event.run
  if run == Process.run_later then return find_channel(self, event) end
  local of_run = self.channels_of[run]
  if not of_run then
    of_run = {}
    self.channels_of[run] = of_run
  end
  local subject = event.a
  if type(subject) ~= "table" then return nil end
  local known = of_run[subject]
  if known == nil then
    known = find_channel(self, event) or false
    of_run[subject] = known
  end
  return known or nil
end

local function is_empty(way) return way.first > way.last end

-- Returns whether nothing comes of the event.
local function is_void(event)
  local run, subject = event.run, event.a
  if run == Network.up_arrives then return subject.up_lost or is_empty(subject.up_way) end
  if run == Network.down_arrives then
    return subject.process.dead or subject.given_up or subject.down_lost or subject.down_forgotten
      or is_empty(subject.down_way)
  end
  if run == Process.tick then return subject.dead or subject.tick_at ~= event.b end
  return run == Process.run_later and subject.dead
end

-- ---- the events ----

-- An event is known by the place that makes it, and by what has happened there.
local function make(self, run, a, b, c)
  local event, origin = { run = run, a = a, b = b, c = c, cause = self.cause }, self.origin
  origin.made = origin.made + 1
  event.channel = channel_of(self, event)
  event.hash = (origin.a * FACTOR + origin.made) % PRIME
  event.other_hash = (origin.b * OTHER_FACTOR + origin.made) % OTHER_PRIME
  if event.channel then event.hash = (event.hash + event.channel.hash) % PRIME end
  return event
end

-- Takes over the choice of what happens next in the world.
function Order:begin(world)
  self.world, self.origin = world, place(self, "schedule")
  function world.at(_, time, run, a, b, c)
    local event = make(self, run, a, b, c)
    if self.caught then table.insert(self.caught, event) else world.heap:put(time, event) end
  end
  function world.next() return self:next() end
end

-- Lets a fault of the schedule happen next: it is one event for each server that it hits.
local function put_fault_first(self, number)
  local caught = {}
  self.caught = caught
  self.world:signal("explore " .. number, nil, nil)
  self.caught = nil
  for i = #caught, 1, -1 do
    caught[i].time = self.world.now
    table.insert(self.front, 1, caught[i])
  end
end

-- ---- states ----

local function is_before(a, b)
  return a.time < b.time or a.time == b.time and a.number < b.number
end

local pending = {}

-- Sorts the events under way into `pending`. → their number
local function sort_pending(self)
  local count = 0
  for i = 1, self.world.heap.size do
    local event = self.world.heap[i]
    if event.channel and not is_void(event) then
      local at = count
      while at > 0 and is_before(event, pending[at]) do
        pending[at + 1] = pending[at]
        at = at - 1
      end
      pending[at + 1] = event
      count = count + 1
    end
  end
  return count
end

local state = { a = 0, b = 0 }

-- → a number for all that has happened and is under way
local function state_now(self)
  state.a, state.b = 0, 0
  for _, each in ipairs(self.place_list) do mix(state, each.a, each.b) end
  local now = self.world.now
  for i = 1, sort_pending(self) do
    local event = pending[i]
    local soon = magnitude(event.time - now)
    mix(state, event.hash + soon, event.other_hash + soon)
  end
  return state.a * 4194304 + state.b % 4194304
end

local function stop(self, why) self.world.found = why end

-- ---- what happens next ----

local function hold(self, event)
  self.held[#self.held + 1] = { event, channel = event.channel, place = event.place,
    since = event.time }
end

-- Those that wait for something at this place go on.
local function let_go(self, happened)
  for i = #self.held, 1, -1 do
    local held = self.held[i]
    if held.place == happened.place then
      table.remove(self.held, i)
      for j = #held, 1, -1 do table.insert(self.front, 1, held[j]) end
    end
  end
end

local function is_last_departure_done(self) return self.done == #self.departures end

local function look_at_state(self)
  if not self.states or not is_last_departure_done(self) then return end
  if #self.held > 0 or #self.front > 0 then return end
  local now = state_now(self)
  if self.states[now] then return stop(self, Order.KNOWN) end
  self.states[now] = true
end

-- Also delays the events that must happen after a delayed one.
local function is_behind(self, event)
  if not event.channel.in_order then return false end
  for _, held in ipairs(self.held) do
    if held.channel == event.channel then
      held[#held + 1] = event
      return true
    end
  end
  return false
end

-- Returns whether something is delayed for longer than it may be. event: the next one | nil
local function is_too_late(self, event)
  if not event then return true end
  for _, held in ipairs(self.held) do
    if event.time - held.since > MAX_DELAY then return true end
  end
  return false
end

local function happens(self, event)
  local there, now = event.place, max(event.time, self.world.now)
  local since = magnitude(now - there.at)
  mix(there, event.hash + since, event.other_hash + since)
  event.time, there.at, there.made = now, now, 0
  event.channel.count = event.channel.count + 1
  self.origin, self.last, self.cause = there, event, event
  self.happened = self.happened + 1
  event.happened = self.happened
  return event
end

-- The name of the moment at which the event with that number in its channel is about to happen,
-- after this number of delays.
local function name_of(of, number, delays)
  return of.name .. " #" .. number .. (" again"):rep(delays)
end

-- A fault changes what its place sees from now on, and what the process whose channel it is does,
-- although their events may remain the same: a key is gone.
local function note_fault(self, event, number)
  local there = event.channel.place
  local process = place(self, event.channel.name:match "p%d+" or there.name)
  mix(there, number, number)
  if process ~= there then mix(process, number, number) end
  self.fault_done = true
end

-- Departs from the order at this moment, if that is planned. → whether something else happens first
local function depart(self, event)
  local departure = self.departures[self.done + 1]
  if not departure
      or departure.moment ~= name_of(event.channel, event.channel.count + 1, event.delays or 0) then
    return false
  end
  self.done = self.done + 1
  if departure.fault then
    note_fault(self, event, departure.fault)
    table.insert(self.front, 1, event)
    put_fault_first(self, departure.fault)
    return true
  end
  event.delays = (event.delays or 0) + 1
  hold(self, event)
  return true
end

local function note_moment(self, event)
  self.log[#self.log + 1] = { place = event.place, event = event, channel = event.channel,
    number = event.channel.count + 1, delays = event.delays or 0, time = event.time }
end

-- → the next event that may happen | nil
local function next_allowed(self)
  while true do
    local event = table.remove(self.front, 1) or self.world.heap:take()
    if not event or not event.channel or not is_behind(self, event) then return event end
  end
end

function Order:next()
  if self.last then
    let_go(self, self.last)
    self.last = nil
    look_at_state(self)
    if self.world.found then return nil end
  end
  while true do
    local event = next_allowed(self)
    if #self.held > 0 and is_too_late(self, event) then return stop(self, Order.VOID) end
    if not event or not event.channel or is_void(event) then return event end
    local place_of = event.channel.place_of
    event.place = place_of and place_of(self, event) or event.channel.place
    if is_last_departure_done(self) then note_moment(self, event) end
    if not depart(self, event) then return happens(self, event) end
  end
end

-- ---- what to try next ----

-- Returns whether the event comes of the other one, directly or not.
local function comes_of(event, other)
  while event and event.happened ~= other.happened do
    if event.happened and event.happened < other.happened then return false end
    event = event.cause
  end
  return event ~= nil
end

-- Returns whether something else happens there soon after the moment with that number in the log.
local function may_wait(self, number)
  local log = self.log
  local this = log[number]
  for i = number + 1, #log do
    local other = log[i]
    if other.time - this.time > MAX_DELAY then return false end
    if other.place == this.place and other.event ~= this.event
        and not (this.channel.in_order and other.channel == this.channel)
        and this.event.happened and not comes_of(other.event, this.event) then
      return true
    end
  end
  return self.is_cut
end

-- faults: a list of { concerns = function(channel) }. → a list of departures that may follow those
-- of this run
function Order:next_departures(faults)
  local list = {}
  for number, entry in ipairs(self.log) do
    local moment = name_of(entry.channel, entry.number, entry.delays)
    if may_wait(self, number) then list[#list + 1] = { moment = moment } end
    for i, fault in ipairs(not self.fault_done and faults or {}) do
      if fault.concerns(entry.channel) then list[#list + 1] = { moment = moment, fault = i } end
    end
  end
  return list
end

return Order
