-- The rules of every schedule of a fair lock: watcher.lua's, for Redisson's list.

local Watcher = require "spec.sim.watcher"
local wire = require "spec.sim.wire"

local max = math.max

local UNHEARD_US = 3000000 -- how long a dead waiter of Java's may block the list
local MIN_TIMEOUT_MS, LOOKS, MAX_LOOK_MS, CROWD = 5000, 3, 30000, 100
local JAVA_WAIT_MS = 300000

local Fair = setmetatable({}, { __index = Watcher })
Fair.__index = Fair

function Fair.new(world, servers, plan)
  local self = setmetatable(Watcher.new(world, servers, plan), Fair)
  self.java_wait_ms = 0
  for _, part in ipairs(plan.parts) do
    if part.what == "java_fair" then self.java_wait_ms = max(self.java_wait_ms, part.wait * 1000) end
    if part.dies then self.foreign, self.recheck_us = true, self.recheck_us + UNHEARD_US end
    -- It leaves without notifying the waiters after it, even if it was just notified of a release.
    if part.patience then self.foreign = true end
  end
  return self
end

function Fair:add_key(name, kind)
  Watcher.add_key(self, name, kind)
  self.keys[name].list, self.keys[name].timeouts = wire.list_of(name), wire.timeouts_of(name)
end

-- ---- the server ----

local function value_at(self, name, kind)
  local entry = self.server.db.entries[name]
  return entry and entry.kind == kind and entry.value or nil
end

local function waiters_of(self, key)
  local list = value_at(self, key.list, "list")
  return list and list.items or {}
end

local function timeout_of(self, key, owner)
  local zset = value_at(self, key.timeouts, "zset")
  return zset and zset.score_of[owner]
end

local function is_subscribed(self, owner)
  return self.server.redis.channels[wire.channel_of(wire.client_of_owner(owner))] ~= nil
end

-- → the current list: { owner =, till =, subscribed = }, …
local function snapshot(self, key)
  local list = {}
  for i, owner in ipairs(waiters_of(self, key)) do
    list[i] = { owner = owner, till = timeout_of(self, key, owner),
      subscribed = not wire.is_ours(owner) or is_subscribed(self, owner) }
  end
  return list
end

-- Returns whether the waiter's timeout has passed, or its client is gone.
local function is_dead(self, waiter)
  local past = not waiter.till or waiter.till <= self.server.redis:now_ms()
  return past or not waiter.subscribed
end

function Fair:before(name, client, args)
  Watcher.before(self, name, client, args)
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    key.was = snapshot(self, key)
  end
end

local function is_in(list, owner)
  for _, other in ipairs(list) do
    if other == owner then return true end
  end
  return false
end

-- The lock was acquired: checks that the new holder was the first living waiter.
local function check_first(self, key)
  if not key.passed then return end
  for _, waiter in ipairs(key.was) do
    if waiter.owner == key.holder then return end
    if not is_dead(self, waiter) then
      self.world:fail("order", "%s: %s has overtaken %s", key.name, key.holder, waiter.owner)
      return
    end
  end
end

-- A living waiter leaves the list only by itself; in a calm schedule no holdfast waiter dies.
local function check_gone(self, key, args, actor)
  local list = waiters_of(self, key)
  for _, waiter in ipairs(key.was) do
    local owner = waiter.owner
    local own = owner == key.holder or owner == actor or wire.names(args, owner)
    if not is_in(list, owner) and not own then
      local lives = self.calm and wire.is_ours(owner) and waiter.subscribed
      if lives or not is_dead(self, waiter) then
        self.world:fail("queue", "%s: %s was dropped from the list", key.name, owner)
      end
    end
  end
end

-- Waiters that remain keep their order, and new ones come after them. A thread of Java whose
-- timeout has passed removes itself and joins again.
local function check_kept(self, key, actor)
  local list, at = waiters_of(self, key), 0
  for _, waiter in ipairs(key.was) do
    for i, owner in ipairs(list) do
      if owner == waiter.owner then
        local again = owner == actor and is_dead(self, waiter)
        if again then break end
        if i <= at then
          self.world:fail("order", "%s: %s has changed its place", key.name, owner)
        end
        at = i
        break
      end
    end
  end
end

-- Each waiter in the list has exactly one timeout, and there are no other timeouts.
local function check_in_step(self, key)
  local list, zset = waiters_of(self, key), value_at(self, key.timeouts, "zset")
  local seen, count = {}, zset and zset.count or 0
  for _, owner in ipairs(list) do
    if seen[owner] or not timeout_of(self, key, owner) then
      self.world:fail("step", "%s: %s stands in the list %s", key.name, owner,
        seen[owner] and "twice" or "without a timeout")
    end
    seen[owner] = true
  end
  if count ~= #list then
    self.world:fail("step", "%s: %d wait, %d have a timeout", key.name, #list, count)
  end
end

-- A holdfast program that finds the lock free, or frees it, leaves no dead waiter at the head. A
-- force of a free lock removes no waiter.
local function check_head(self, key, name, reply)
  if not name:find("^fair_") or name == "fair_info" or key.holder then return end
  local status = type(reply) == "table" and reply[1] or reply
  if type(status) ~= "number" or status < 0 or status > 1 then return end
  if name == "fair_force" and status == 0 then return end
  local owner = waiters_of(self, key)[1]
  if owner and is_dead(self, { till = timeout_of(self, key, owner),
    subscribed = not wire.is_ours(owner) or is_subscribed(self, owner) }) then
    self.world:fail("dead", "%s: free, and %s, which is dead, is the first", key.name, owner)
  end
end

-- → the grant lease of the owner's client, in ms
local function grant_ms_of(self, owner)
  return self.uuids[wire.client_of_owner(owner)].plan.grant_lease * 1000
end

-- → how long a holdfast waiter may block the list when it dies: three rechecks, and what waiters of
-- Java subtract
local function most_timeout(self, key, owner)
  local ahead, theirs, last = 0, 0, nil
  for _, other in ipairs(waiters_of(self, key)) do
    if other == owner then break end
    ahead = ahead + 1
    if not wire.is_ours(other) then theirs, last = theirs + 1, other end
  end
  local look = math.min(grant_ms_of(self, owner) * max(1, ahead / CROWD), MAX_LOOK_MS)
  local ms = max(MIN_TIMEOUT_MS, LOOKS * look)
  if not last then return ms end
  local rest = timeout_of(self, key, last) - self.server.redis:now_ms()
  return ms + max(theirs * JAVA_WAIT_MS, rest)
end

local function check_timeout(self, key, owner)
  local till = timeout_of(self, key, owner)
  if not till then return end
  local left = till - self.server.redis:now_ms()
  if left > most_timeout(self, key, owner) + 1 then
    self.world:fail("timeout", "%s: %s is not dead for %.3f s", key.name, owner, left / 1000)
  elseif left <= grant_ms_of(self, owner) then
    self.world:fail("timeout", "%s: %s is dead in %.3f s, before it looks again", key.name, owner,
      left / 1000)
  end
end

-- The timeouts of Java's waiters after a holdfast waiter build on its timeout, and fall with it.
local function check_behind(self, key, owner)
  local till, theirs, behind = timeout_of(self, key, owner), 0, false
  for _, other in ipairs(self.calm and waiters_of(self, key) or {}) do
    if behind and wire.is_ours(other) then return end
    theirs = theirs + (behind and 1 or 0)
    local left = behind and timeout_of(self, key, other) - till or 0
    local most = 2 * MIN_TIMEOUT_MS + LOOKS * grant_ms_of(self, owner)
    if left > theirs * self.java_wait_ms + most then
      self.world:fail("timeout", "%s: %s, behind %s, is not dead for %.3f s more", key.name, other,
        owner, left / 1000)
      return
    end
    behind = behind or other == owner
  end
end

function Fair:after(name, client, args, reply)
  if name == "fair_force" and type(reply) == "number" then self:lose(args[4]) end
  Watcher.after(self, name, client, args, reply)
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    check_first(self, key)
    check_gone(self, key, args, self.actor)
    check_kept(self, key, self.actor)
    check_in_step(self, key)
  end
  if self.keys[args[4]] then check_head(self, self.keys[args[4]], name, reply) end
  local waits = name == "fair_acquire" and type(reply) == "table" and reply[1] == 0
  if not client.process or not waits then return end
  self.world:signal("waits", client.process, args[4])
  if not wire.waits(args) then return end
  check_timeout(self, self.keys[args[4]], wire.owner_in(args))
  check_behind(self, self.keys[args[4]], wire.owner_in(args))
end

-- Runs what a thread of Java does; owner: the thread's name
function Fair:around(run, owner)
  self.actor = owner
  Watcher.around(self, run)
  self.actor = nil
end

-- ---- the end ----

local function check_list_left(self, key)
  for _, owner in ipairs(waiters_of(self, key)) do
    local process = self.uuids[wire.client_of_owner(owner)]
    if process and not process.dead and not self.late then
      self.world:fail("orphan", "%s: %s still stands in the list", key.name, owner)
    end
  end
end

local function check_own_channels(self)
  for channel in pairs(self.server.redis.channels) do
    local uuid = channel:match("^redisson_lock__channel:.*:([%x-]+):%d+$")
    local process = uuid and self.uuids[uuid]
    if process and not process.dead then
      self.world:fail("orphan", "%s is still subscribed to %s", process.name, channel)
    end
  end
end

function Fair:left_by(uuid)
  for _, name in ipairs(self.names) do
    for _, owner in ipairs(waiters_of(self, self.keys[name])) do
      if wire.client_of_owner(owner) == uuid then return owner, name end
    end
  end
  return Watcher.left_by(self, uuid)
end

function Fair:finish(later)
  for _, name in ipairs(self.names) do check_list_left(self, self.keys[name]) end
  check_own_channels(self)
  Watcher.finish(self, later)
end

return Fair
