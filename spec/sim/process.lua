-- A process with one holdfast client: the core, driven through core.engine by its own clock.
--
-- Its links have the numbers of core.engine: three for each server, by their roles.
--
-- While it is paused nothing runs in it: bytes wait for it, and its clock continues. A dead process
-- remains dead.

local core = require "holdfast.core"
local Prng = require "spec.sim.prng"
local Sentinels = require "spec.sim.sentinels"
local Slots = require "spec.sim.slots"
local rotation = require "spec.sim.rotation"
local rules = require "spec.sim.rules"
local wire = require "spec.sim.wire"

local engine = core.engine
local ceil, max = math.ceil, math.max

local MAX_ROUNDS = 50
local MAX_TICKS = 2000 -- per second
local ROLES = { "calls", "events", "renewer" }
local ROLE = { calls = 1, events = 2, renewer = 3 }

local Process = {}
Process.__index = Process

local function entropy(seed, index)
  local prng = Prng.new((seed * 31 + index * 1009) % 2147483647)
  local bytes = {}
  for i = 1, 24 do bytes[i] = string.char(prng:range(0, 255)) end
  return table.concat(bytes)
end

-- → the number of the link with that role to the server
function Process.link_to(server, role)
  return (server - 1) * #ROLES + ROLE[role]
end

-- → the number of the server at the link's other end
function Process.server_of(link)
  return ceil(link / #ROLES)
end

local function role_of(link)
  return ROLES[(link - 1) % #ROLES + 1]
end

local function links_to(servers, with_renewer)
  local links = {}
  for link = 1, servers * #ROLES do
    if with_renewer or role_of(link) ~= "renewer" then links[#links + 1] = link end
  end
  return links
end

local function name_of(self, link)
  local role = role_of(link)
  if self.network:server_count() == 1 then return role end
  return role .. " of s" .. Process.server_of(link)
end

-- Finds new links: clients of a system discover nodes over time.
local function find_links(self)
  local count = engine.links(self.client)
  if count == self.link_count then return end
  self.link_count = count
  self.links = links_to(count / #ROLES, self.plan.renewer_link)
end

local URLS = { sentinel = Sentinels.url(), sync = Sentinels.url(), cluster = Slots.url() }
local SYNC_TIMEOUT = 0.3

local function urls_of(servers)
  local urls = {}
  for i = 1, servers do urls[i] = "redis://s" .. i end
  return urls
end

-- plan: see plan.lua
function Process.new(world, network, plan, index, seed)
  local self = setmetatable({
    world = world, network = network, plan = plan, index = index, name = "p" .. index,
    prng = Prng.new((seed * 17 + index * 7919) % 2147483647),
    rate = plan.rate, base = plan.base, near = plan.near, far = plan.far, cuts = plan.cuts,
      half_open = plan.half_open,
    late = plan.late or 0,
    up_blocked = {}, down_blocked = {}, paused_until = 0, paused_us = 0, lost_at = 0, dead = false,
    connections = {}, up_at = {}, tasks = {}, common = {}, released = {}, vanished = {}, done = {},
    asked_at = {}, granted_at = {}, -- wait -> time
    placed = {}, -- key -> when the server last gave it a place in the queue
    actions = {}, states = {},
    answered = 0, ticks = 0, ticks_since = 0, commands = 0, commands_since = 0, calls = 0,
    late_commands = 0,
    links = links_to(network:server_count(), plan.renewer_link),
  }, Process)
  self.client = assert(core.client.new {
    url = plan.url or URLS[plan.system] or "redis://sim", sync_replicas = plan.sync and 1 or nil,
    sync_timeout = plan.sync and SYNC_TIMEOUT or nil,
    mode = plan.servers and "quorum" or "one", servers = plan.servers and urls_of(plan.servers),
    restart_guard = plan.restart_guard or 0, external = true, needs_approval = plan.needs_approval
      or false,
    renewer_link = plan.renewer_link,
    entropy = entropy(seed, index), credentials = network.servers[1].known and rotation.log_in,
    connect_timeout = plan.connect_timeout, command_timeout = plan.command_timeout,
      grant_lease = plan.grant_lease,
  })
  self:enter()
  self.uuid = core.client.uuid(self.client)
  if plan.introduced then engine.introduce(self.client, self.name) end
  if plan.crash_release then
    engine.see_lives(self.client)
    self:tell_life(false)
  end
  return self
end

function Process:latency()
  return self.prng:range(self.near, self.far)
end

-- → the time on its clock, in seconds
function Process:clock(at)
  return self.base + (at or self.world.now) * 1e-6 * self.rate
end

-- → the moment at which its clock shows this many seconds
function Process:moment(seconds)
  return (seconds - self.base) / self.rate * 1e6
end

function Process:enter()
  engine.set_now(self.client, self:clock())
end

-- ---- time ----

local function is_spinning(self)
  local now = self.world.now
  if now - self.ticks_since > 1000000 then self.ticks, self.ticks_since = 0, now end
  self.ticks = self.ticks + 1
  return self.ticks > MAX_TICKS
end

local function check_tasks(self)
  for _, task in ipairs(self.tasks) do task:wake_to_check() end
end

local function tick(self, at)
  local now = self.world.now
  if self.dead or self.tick_at ~= at then return end
  if self.paused_until > now then
    self.tick_at = self.paused_until + self.prng:range(0, 2000)
    self.world:at(self.tick_at, tick, self, self.tick_at)
    return
  end
  self.tick_at = nil
  if is_spinning(self) then
    self.world:fail("spin", "%s ticks more than %d times a second", self.name, MAX_TICKS)
  end
  self:enter()
  engine.tick(self.client)
  check_tasks(self)
  self:pump()
end

local function schedule_tick(self)
  local deadline = engine.deadline(self.client)
  if deadline == math.huge then
    self.tick_at = nil
    return
  end
  local at = max(ceil(self:moment(deadline)) + 1, self.world.now + 1)
  if self.tick_at == at then return end
  self.tick_at = at
  self.world:at(at, tick, self, at)
end

local function run_later(self, run, argument)
  if self.dead then return end
  if self.paused_until > self.world.now then
    self.world:at(self.paused_until + 1, run_later, self, run, argument)
    return
  end
  self:enter()
  run(argument)
  self:pump()
end

-- Runs it in the process: later if the process is paused then, never if it is dead.
function Process:at(time, run, argument)
  self.world:at(time, run_later, self, run, argument)
end

-- ---- its connections ----

local function say(self, connection, bytes)
  self.world:mix(#bytes)
  connection:send(bytes)
end

-- → whether something was done
local function serve(self, link)
  local want = engine.wants(self.client, link)
  if want == "login" then
    rotation.log_in(self, engine, link)
    return true
  elseif want == "open" then
    engine.opening(self.client, link)
    self.connections[link] = self.network:connect(self, link, engine.server(self.client, link))
    self.world:signal("opens", self)
    self.world:note("%s opens %s", self.name, name_of(self, link))
    return true
  elseif want == "close" then
    self.world:note("%s closes %s", self.name, name_of(self, link))
    self.connections[link]:reset()
    self.connections[link] = nil
    engine.closed(self.client, link, "closed")
    return true
  end
  local pieces = engine.output(self.client, link)
  if not pieces then return false end
  say(self, self.connections[link], table.concat(pieces))
  return true
end

-- ---- the owners' word ----

local function answer(self)
  for _, task in ipairs(self.tasks) do task:speak_up() end
end

-- → whether a hold of an attended client has begun to ask for approval
local function is_asked(self)
  if not self.plan.needs_approval then return false end
  local _, _, asked = engine.advance(self.client, self.done, self.actions)
  if asked == self.answered then return false end
  self.answered = asked
  self:at(self.world.now + self.prng:range(0, 5000), answer, self)
  return true
end

local function resume_tasks(self)
  local resumed = false
  for _, task in ipairs(self.tasks) do resumed = task:resume_if_done() or resumed end
  return resumed
end

local list = {}

-- Signals the states of the client's operations and holds; only in the build of make sim-mutants.
local function tell_states(self)
  local count = assert(engine.states, "make sim-mutants has not been run")(self.client, list)
  local now = {}
  for i = 1, count do
    if not self.states[list[i]] and not now[list[i]] then
      self.world:signal("state " .. list[i], self)
    end
    now[list[i]] = true
  end
  self.states = now
end

local function check_load(self)
  local operations, held = engine.load(self.client)
  rules.check_load(self, operations, held)
end

-- Does all that is due at this moment.
function Process:pump()
  for _ = 1, MAX_ROUNDS do
    local busy = is_asked(self)
    busy = resume_tasks(self) or busy
    if self.plan.system then find_links(self) end
    for _, link in ipairs(self.links) do busy = serve(self, link) or busy end
    if not busy then
      if self.world.coverage then self.world.coverage.note_states(self) end
      if self.world.watches_states then tell_states(self) end
      check_load(self)
      return schedule_tick(self)
    end
  end
  self.world:fail("spin", "%s finds no end of what to do", self.name)
end

function Process:connected(connection)
  self:enter()
  engine.opened(self.client, connection.link)
  self:pump()
end

function Process:fed(connection, bytes)
  local coverage = self.world.coverage
  if coverage then coverage.fed(self, bytes) end
  for _, wait in ipairs(wire.grants_in(bytes)) do self.granted_at[wait] = self.world.now end
  self.world:mix(self.world.now % 1000003)
  self:enter()
  engine.feed(self.client, connection.link, bytes)
  if not self.plan.busy then check_tasks(self) end
  self:pump()
end

function Process:lost(connection, reason)
  connection.given_up = true
  self.up_at[connection.link] = connection.up_stalled_until > self.world.now and 0
    or connection.up_at
  self.connections[connection.link] = nil
  self.lost_at = self.world.now
  self.world:signal("loses", self)
  self.world:note("%s loses %s: %s", self.name, name_of(self, connection.link), reason)
  self:enter()
  engine.closed(self.client, connection.link, reason)
  self:pump()
end

-- → whether nothing is left to be undone on the server
function Process:is_quiet()
  self:enter()
  return engine.is_quiet(self.client)
end

-- Checks that nothing is left at the end.
function Process:check_end()
  if self.dead then return end
  self:enter()
  local holds = core.client.stats(self.client).holds
  if self.closed then
    if not engine.is_quiet(self.client) then
      self.world:fail("orphan", "%s is closed, and has not let go", self.name)
    end
  elseif holds > 0 then self.world:fail("orphan", "%s still has %d holds", self.name, holds) end
  for _, link in ipairs(self.links) do
    local listens = role_of(link) == "events" and self.connections[link]
    if listens then self.world:fail("orphan", "%s still listens", self.name) end
  end
end

-- ---- what may happen to it ----

-- plan.commands: the client whose locks are also entered by the runs inside this one
function Process:tell_life(ended)
  engine.tell_life(self.uuid, ended)
  if self.plan.commands then engine.tell_life(self.plan.commands, ended, true) end
end

local function prove(self) self:tell_life(true) end

-- proved_after: µs until other processes on the host can prove it, with plan.crash_release
function Process:crash(noticed_after, proved_after)
  self.dead = true
  if self.plan.crash_release then
    self.world:at(self.world.now + (proved_after or 0), prove, self)
  end
  for _, link in ipairs(self.links) do
    local connection = self.connections[link]
    if connection then connection:orphan(noticed_after) end
  end
  self.connections = {}
  for _, task in ipairs(self.tasks) do task:die() end
end

function Process:pause(duration)
  self.paused_us = self.paused_us + duration
  self.paused_until = max(self.paused_until, self.world.now + duration)
end

local function end_waits(ended)
  for _, task in ipairs(ended.process.tasks) do task:give_up(ended.key) end
end

-- Ends the process's waits for the key.
function Process:give_up(key)
  self:at(self.world.now, end_waits, { process = self, key = key })
end

local function close_client(closing)
  local self = closing.process
  self.closed = true
  engine.close(self.client)
  for _, task in ipairs(self.tasks) do task:on_closed() end
  check_tasks(self)
  rules.closes(closing.watcher, self)
end

-- The program closes its client, and continues.
function Process:close(watcher)
  self:at(self.world.now, close_client, { process = self, watcher = watcher })
end

function Process:drop(link, delay)
  local connection = self.connections[link]
  if connection then connection:drop(delay) end
end

-- Drops all connections to the address with that number.
function Process:drop_all(address, delay)
  for _, link in ipairs(self.links) do
    local connection = self.connections[link]
    if connection and connection.address == address then connection:drop(delay) end
  end
end

-- Events in a process, exported to name them in an order of events (spec/explore/order.lua).
Process.tick, Process.run_later = tick, run_later

return Process
