-- What must be true in every schedule.
--
-- It looks at the server before and after each program, and is told what the processes believe. A claim is what one
-- owner believes: held until a moment, unless data was lost on the server since the lock was taken.

local floor, max = math.floor, math.max

local MOST_COMMANDS = 150 -- of one process in a second
local CALM_GAP = 400000   -- a released lock and somebody waiting for it
local SLACK = 300000
local CLOCKS_MS = 500     -- by which the ends of a lease may differ

local Watcher = {}
Watcher.__index = Watcher

-- In a calm schedule nothing goes wrong, so nobody needs to wait for a clock but for that of a lease.
function Watcher.new(world, servers, plan)
  local server = servers[1]
  local self = setmetatable({
    world = world, server = server, calm = plan.calm, look_us = plan.grant_lease * 1000000, keys = {}, names = {},
    uuids = {}, shared = {},
  }, Watcher)
  for _, part in ipairs(plan.parts) do
    if part.owner then self.shared[part.owner] = true end
  end
  server.watcher = self
  return self
end

function Watcher:add_key(name, layout)
  self.keys[name] = {
    name = name, layout = layout,
    queue = "holdfast_queue:{" .. name .. "}", counter = "redisson_lock_token:{" .. name .. "}",
    waiters = {}, claims = {}, wanting = {}, last_token = 0, takes = 0, loss_at = -1, lost_token = -1, free_since = 0,
    store = { take = 0 }, take_of = {}, records = {}, prints = {}, done_for_sure = 0,
  }
  self.names[#self.names + 1] = name
end

function Watcher:add_process(process)
  self.uuids[process.uuid] = process
end

-- ---- claims ----

-- Taken before data was lost, and not confirmed since. The processes of a shared owner cannot tell what was whose.
local function is_excused(key, claim)
  if claim.shared then return key.loss_at >= 0 end
  if claim.till > key.loss_at + claim.lease_us then return false end
  if claim.token then return claim.token <= key.lost_token end
  return claim.asked_at <= key.loss_at
end

local function check_pair(self, key, a, b)
  if a.owner == b.owner or is_excused(key, a) or is_excused(key, b) then return end
  self.world:fail("exclusion", "%s: both %s (until %.6f) and %s (until %.6f) hold it", key.name, a.who, a.till / 1e6,
    b.who, b.till / 1e6)
end

-- The claim now ends at `till`; 0: it has ended.
function Watcher:claim(claim, till)
  local key, now = self.keys[claim.key], self.world.now
  if key.granted_to == claim.owner then
    key.granted_to = nil
    if self.calm and now - key.granted_at > CALM_GAP then
      self.world:fail("grant", "%s: %s has heard of its grant after %.3f s", key.name, claim.who, (now - key.granted_at) / 1e6)
    end
  end
  claim.till = till
  if till <= now then
    key.claims[claim.slot] = nil
    return
  end
  key.claims[claim.slot] = claim
  for slot = 1, 12 do
    local other = key.claims[slot]
    if other and other ~= claim and other.till > now then check_pair(self, key, claim, other) end
  end
end

-- The first claim of a hold, after an acquire that is not a re-entry.
function Watcher:granted(claim)
  local key = self.keys[claim.key]
  if not claim.fenced or not claim.token and claim.shared or is_excused(key, claim) then return end
  local take = key.take_of[claim.token]
  if not take then
    self.world:fail("token", "%s: %s has token %s that the server has not given", key.name, claim.who,
      tostring(claim.token))
  elseif take.owner ~= claim.owner then
    self.world:fail("token", "%s: %s has the token of %s", key.name, claim.who, take.owner)
  end
  claim.take = take and take.number
end

-- A write to something that checks tokens. → whether it was accepted
function Watcher:write(claim)
  local key = self.keys[claim.key]
  local store = key.store
  if not claim.token or claim.token < (store.token or 0) then return false end
  if claim.take and claim.take < store.take then
    self.world:fail("fence", "%s: a write of an older hold was accepted", key.name)
  end
  store.token, store.take = claim.token, max(store.take, claim.take or 0)
  return true
end

-- Data of a key is lost, or a lock was taken away: who had it may go on to believe in it.
function Watcher:lose(name)
  local key = self.keys[name]
  key.loss_at, key.lost_token = self.world.now, key.last_token
  key.holder, key.done_until, key.done_for_sure = nil, nil, 0
  key.free_since = max(key.free_since, self.world.now)
end

-- The server is about to lose its data.
function Watcher:forget()
  for _, name in ipairs(self.names) do
    self:lose(name)
    self.keys[name].waiters = {}
  end
end

-- ---- what is to be done once ----

-- → the record that this run is to leave
function Watcher:record(name, task, print)
  local records = self.keys[name].records
  local text = ("D %s %d"):format(task.name, self.world.now)
  records[text] = print
  return text
end

-- A record that was to be left then has been: until then nobody is to run it again.
function Watcher:completed(name, asked_at, until_time)
  local key = self.keys[name]
  if key.loss_at < asked_at then key.done_for_sure = max(key.done_for_sure, floor(until_time)) end
end

-- How an attempt to run ended; record: what it was given of a run before.
function Watcher:begun(name, task, print, asked_at, code, record)
  local key = self.keys[name]
  if not code and key.done_for_sure > self.world.now and key.loss_at < asked_at then
    self.world:fail("once", "%s: %s runs what was done", name, task.name)
  end
  if record then
    local before = key.records[record]
    if not before then
      self.world:fail("record", "%s: %s was given %q, which nobody left", name, task.name, record)
    elseif before ~= "" and print ~= "" and before ~= print then
      self.world:fail("record", "%s: %s was given the record of another request", name, task.name)
    end
  end
  if code == "mismatch" then
    local others = false
    for other in pairs(key.prints) do others = others or other ~= "" and other ~= print end
    if print == "" or not others then self.world:fail("record", "%s: %s matches, and was told not", name, task.name) end
  end
end

-- ---- the server ----

local function live(self, name)
  local entry = self.server.db.entries[name]
  if entry and entry.expires and self.server.redis:now_ms() > entry.expires then return nil end
  return entry
end

-- → holder | nil, its count, whether it is the record of what was done, another holder | nil
local function holder_in(entry)
  if not entry then return nil end
  if entry.kind == "string" then return entry.value, 1 end
  local holder, count, done, others
  for _, field in ipairs(entry.value.fields) do
    if field == "done" then
      done = true
    elseif field ~= "print" and field ~= "by" then
      others = holder
      holder, count = field, tonumber(entry.value.values[field])
    end
  end
  return holder, count, done, others
end

-- → the holder's count of a key as the server has it | nil
function Watcher:count(name, owner)
  local holder, count = holder_in(live(self, name))
  return holder == owner and count or nil
end

local function hears(self, member)
  return self.server.redis.channels["holdfast_grant:" .. member:sub(1, 36)] ~= nil
end

local function owner_of(member)
  return member:match("^[^ ]* (.*)$")
end

-- A grant that ran out: did nobody hear it?
local function check_taken(self, key)
  if self.calm and key.granted_to == key.holder then
    self.world:fail("grant", "%s: granted to %s, which did not take it", key.name, key.holder)
  end
end

-- What time alone has changed.
local function catch_up(self, key)
  local now_ms = self.server.redis:now_ms()
  if key.holder and key.expires and now_ms > key.expires then
    check_taken(self, key)
    key.holder, key.expired = nil, true
    key.free_since = floor(self.server:moment(key.expires + 1))
  end
  if key.done_until and now_ms > key.done_until then
    key.free_since = floor(self.server:moment(key.done_until + 1))
    key.done_until = nil
  end
  if not live(self, key.queue) then key.waiters = {} end
end

function Watcher:before(name, client, args)
  self.server.redis:look_at_clock()
  for _, key_name in ipairs(self.names) do catch_up(self, self.keys[key_name]) end
  if client.process then self:count_command(client.process) end
  self.missed, self.granted_member = {}, {}
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    local queue = live(self, key.queue)
    if queue and queue.value.scores[1] == 0 then
      self.granted_member[key_name] = queue.value.members[1]
      if not key.holder then self.missed[key_name] = queue.value.members[1]:sub(1, 36) end
    end
  end
  if name == "renew" or name == "mutex_renew" then self:check_renewal(client, args) end
end

function Watcher:count_command(process)
  local now = self.world.now
  if now - process.commands_since > 1000000 then process.commands, process.commands_since = 0, now end
  process.commands = process.commands + 1
  if process.commands > MOST_COMMANDS then
    self.world:fail("spin", "%s has sent more than %d commands in a second", process.name, MOST_COMMANDS)
  end
end

function Watcher:check_renewal(client, args)
  local count = tonumber(args[3])
  for i = 1, count do
    local hold = args[3 + count + 2 * i - 1] .. " " .. args[3 + i]
    local released = client.process and client.process.released[hold]
    local vanished = client.process and client.process.vanished[hold]
    if released and client.sent_at > released then
      self.world:fail("renewal", "%s renews %s after its release", client.process.name, args[3 + i])
    end
    if vanished and client.sent_at > vanished + 2e6 * client.process.plan.command_timeout then
      self.world:fail("renewal", "%s renews %s without its owner's word", client.process.name, args[3 + i])
    end
  end
end

local function names_member(args, member)
  for i = 4, #args do
    if args[i] == member then return true end
  end
  return false
end

-- A waiter has left the queue: was there a reason?
local function check_left(self, key, waiter, name, args)
  local member = waiter.member
  local legit = owner_of(member) == key.holder or member == self.granted_member[key.name]
    or names_member(args, member) or not hears(self, member) or self.missed[key.name] == member:sub(1, 36)
    or name == "complete"
  if not legit then self.world:fail("queue", "%s: %s was dropped from the queue", key.name, member) end
end

local function update_waiters(self, key, name, args)
  local queue = live(self, key.queue)
  local score_of = queue and queue.value.score_of or {}
  local kept, known = {}, {}
  for _, waiter in ipairs(key.waiters) do
    if score_of[waiter.member] then
      kept[#kept + 1] = waiter
      known[waiter.member] = true
    else
      check_left(self, key, waiter, name, args)
    end
  end
  for _, member in ipairs(queue and queue.value.members or {}) do
    if member ~= "foreign" and not known[member] then kept[#kept + 1] = { member = member } end
  end
  key.waiters = kept
end

-- Who came before the new holder, still waits and would have heard of a grant?
local function check_order(self, key)
  local queue = live(self, key.queue)
  if not key.holder:find("^%x+%-%x+%-8") then return end
  for _, waiter in ipairs(key.waiters) do
    if owner_of(waiter.member) == key.holder then return end
    local score = queue and queue.value.score_of[waiter.member]
    if score and score > 0 and hears(self, waiter.member) then
      self.world:fail("order", "%s: %s has overtaken %s", key.name, key.holder, waiter.member)
      return
    end
  end
end

local function check_gap(self, key)
  if not self.calm then return end
  local since = nil
  for slot = 1, 12 do
    local wanting = key.wanting[slot]
    if wanting and (not since or wanting < since) then since = wanting end
  end
  local gap = since and self.world.now - max(since, key.free_since) or 0
  local look_us = (key.expired or self.foreign) and self.look_us or 0
  if gap > CALM_GAP + look_us then
    self.world:fail("idle", "%s: free for %.3f s while somebody waits", key.name, gap / 1e6)
  end
end

local function check_claims(self, key)
  local now = self.world.now
  for slot = 1, 12 do
    local claim = key.claims[slot]
    if claim and claim.owner ~= key.holder and claim.till > now and not is_excused(key, claim) then
      self.world:fail("exclusion", "%s: the server gives it to %s while %s holds it until %.6f", key.name, key.holder,
        claim.who, claim.till / 1e6)
    end
  end
end

-- Every token that the server gives is above all before it. One hold may get several: only the last counts.
local function check_token(self, key)
  local entry = live(self, key.counter)
  local token = entry and tonumber(entry.value)
  if not token or token == key.token then return end
  key.token = token
  if token <= key.last_token then
    self.world:fail("token", "%s: %s got token %.0f after %.0f", key.name, tostring(key.holder), token, key.last_token)
  end
  key.last_token = token
  if key.holder then key.take_of[token] = { owner = key.holder, number = key.takes } end
end

-- A grant needs somebody who hears it, and is no way to keep a lock from Redisson's waiters.
local function check_grant(self, key, before)
  if not self.server.redis.channels["holdfast_grant:" .. key.granted_member:sub(1, 36)] then
    self.world:fail("grant", "%s: granted to %s, which cannot hear it", key.name, key.granted_member)
  end
  if before and key.layout == "lock" and self.server.redis.channels["redisson_lock__channel:{" .. key.name .. "}"] then
    self.world:fail("turn", "%s: handed over to %s although Redisson waits", key.name, key.granted_member)
  end
end

local function pass(self, key, before)
  key.takes = key.takes + 1
  self.world:note("  %s passes to %s", key.name, key.holder)
  if key.done_until then self.world:fail("once", "%s: %s runs what was done", key.name, key.holder) end
  check_claims(self, key)
  check_order(self, key)
  if not before then check_gap(self, key) end
end

local function is_granted(self, key)
  local queue = live(self, key.queue)
  return queue and queue.value.scores[1] == 0 and owner_of(queue.value.members[1]) == key.holder
end

-- All or none, but for what an earlier wait of the same owner is granted meanwhile.
local function check_several(self, args, reply)
  local count = tonumber(args[3])
  local owner, took = args[4 + count], reply[1] == 1
  for i = 4, 3 + count, 4 do
    local key = self.keys[args[i]]
    local has = key.holder == owner
    if took and not has or has and key.passed and not took and not is_granted(self, key) then
      self.world:fail("several", "%s: %s %s it, though it %s all", key.name, owner, has and "has" or "lacks",
        took and "got" or "did not get")
    end
  end
end

-- A run that has lost its lease cannot leave a record.
local function check_completed(self, key, before, args)
  local owner = args[4 + tonumber(args[3])]
  if key.done_until and before ~= owner then
    self.world:fail("once", "%s: %s leaves a record, though %s held it", key.name, owner, tostring(before))
  end
end

function Watcher:after(name, client, args, reply)
  local forced = (name == "force" or name == "mutex_force") and type(reply) == "number"
  if forced then self:lose(args[4]) end
  self.world:note("  %s runs %s for %s", "server", name, client.process and client.process.name or "admin")
  for _, key_name in ipairs(self.names) do
    local key = self.keys[key_name]
    local entry = live(self, key_name)
    local holder, _, done, other = holder_in(entry)
    if other then self.world:fail("exclusion", "%s: the server has both %s and %s in it", key_name, holder, other) end
    local before = key.holder
    key.holder, key.expires, key.passed = holder, entry and entry.expires, holder and holder ~= before
    if holder and holder ~= before then
      pass(self, key, before)
      key.granted_to = not names_member(args, holder) and holder:find("^%x+%-%x+%-8") and holder or nil
      key.granted_member, key.granted_at = key.granted_to, self.world.now
      if key.granted_to then check_grant(self, key, before) end
    end
    check_token(self, key)
    if before and not holder then key.free_since, key.expired = self.world.now, false end
    local was_done = key.done_until
    key.done_until = done and entry.expires or nil
    if name == "complete" and not was_done then check_completed(self, key, before, args) end
    update_waiters(self, key, name, args)
  end
  if name == "acquire_all" then check_several(self, args, reply) end
end

-- Foreign commands go by other names.
function Watcher:around(run)
  self:before(nil, {}, {})
  run()
  self:after("foreign", {}, {})
end

-- One of the owner's processes may have lost a hold. Another may keep that alive.
function Watcher:may_lose(owner)
  if self.shared[owner] then self.shared[owner] = false end
end

-- A hold was lost, as its release tells.
function Watcher:lost(plan, handle)
  if plan.owner then self:may_lose(plan.owner) end
  if not (self.calm and plan.renewed and not plan.extend and handle.layout ~= "guard") then return end
  self.world:fail("lost", "%s: the lock was not kept, though nothing went wrong", handle.key)
end

-- ---- operations ----

-- How an acquire ended.
function Watcher.answered() end

-- How long an operation may take, in simulated time; nil: for ever.
function Watcher.bound(process, kind, wait)
  local plan = process.plan
  local timeout = plan.command_timeout
  if kind ~= "acquire" then return (2 * timeout + 0.1) * 1e6 + SLACK end
  if wait == math.huge then return nil end
  return (max(wait, timeout) + timeout + 1.2) * 1.01e6 + SLACK
end

-- ---- the end ----

local function check_queue_left(self, key)
  local queue = live(self, key.queue)
  for _, member in ipairs(queue and queue.value.members or {}) do
    local process = self.uuids[member:sub(1, 36)]
    if process and not process.dead and queue.value.score_of[member] > 0 then
      self.world:fail("leftover", "%s: %s still stands in the queue", key.name, member)
    end
  end
end

local function check_channels_left(self)
  for _, process in pairs(self.uuids) do
    if not process.dead and self.server.redis.channels["holdfast_grant:" .. process.uuid] then
      self.world:fail("leftover", "%s is still subscribed", process.name)
    end
  end
  if next(self.server.redis.patterns) then self.world:fail("leftover", "a pattern is still subscribed to") end
end

-- Nobody has it any more, so the server is to know that: leases are for the dead. A lease that has ended by our clock
-- may have a moment left by the server's.
local function check_lock_left(self, key)
  local entry = live(self, key.name)
  local holder = holder_in(entry)
  local ours = holder and (self.uuids[holder:sub(1, 36)] or self.shared[holder])
  if not (self.calm and ours) then return end
  if entry.expires - self.server.redis:now_ms() > CLOCKS_MS then
    self.world:fail("leftover", "%s: %s still has it on the server", key.name, holder)
  end
end

-- All is over; after `later` microseconds no lease runs any more.
function Watcher:finish(later)
  local world = self.world
  self.server.redis:look_at_clock()
  for _, name in ipairs(self.names) do
    check_queue_left(self, self.keys[name])
    check_lock_left(self, self.keys[name])
  end
  check_channels_left(self)
  world.now = world.now + later
  self.server.redis:look_at_clock()
  for _, name in ipairs(self.names) do
    if live(self, name) then world:fail("leftover", "%s is still there", name) end
  end
  world.now = world.now + 125000000
  self.server.redis:look_at_clock()
  for _, name in ipairs(self.names) do
    if live(self, self.keys[name].queue) then world:fail("leftover", "the queue of %s is still there", name) end
  end
end

return Watcher
