-- What a program does with a lock: one coroutine of a process, which is one owner.
--
-- The coroutines are created once, in a fixed order, because owners are numbered by them; a task
-- that is still running when its schedule ends gets a request to stop.

local core = require "holdfast.core"
local dead_links = require "spec.sim.dead_links"
local leader = require "spec.sim.leader"
local max_hold = require "spec.sim.max_hold"
local refused = require "spec.sim.refused"
local rotation = require "spec.sim.rotation"
local rules = require "spec.sim.rules"
local several_handles = require "spec.sim.several_handles"
local wire = require "spec.sim.wire"

local raw, operation = core.lock, core.operation
local collect = core.lock_type.__gc
local yield, resume = coroutine.yield, coroutine.resume
local floor, huge = math.floor, math.huge

local WORKERS = 8
local CLOCKS_US = 1500 -- between a process's clock and the world's
local EXPIRING = 3000 -- µs before the end of a wait
local EVERY = 1000 -- a count of holds: more than any caller has
local STOP = {}
local OTHER_HALF = { read = "write", write = "read", permit = "permit" }

local Task = {}
Task.__index = Task

-- ---- coroutines ----

local function work(number)
  local task = yield(number())
  while true do
    local ok, message = pcall(task.run, task)
    if not ok and message ~= STOP then task.world:fail("error", "%s", tostring(message)) end
    task.over = true
    task = yield()
  end
end

local workers = {}

local function make_workers()
  local client = core.client.new { url = "redis://sim", external = true, entropy = ("w"):rep(24) }
  local lock = raw.new(client, { key = "none" })
  for i = 1, WORKERS do
    workers[i] = coroutine.create(work)
    assert(resume(workers[i], function() return raw.owner(lock) end))
  end
end

-- ---- life ----

-- plan: see plan.lua; slot: 1 to 8, no two alike in a schedule
function Task.new(process, plan, slot, watcher)
  if #workers == 0 then make_workers() end
  local self = setmetatable({
    process = process, world = process.world, plan = plan, slot = slot, watcher = watcher,
    claims = {}, handles = {}, waits = {},
    name = process.name .. "/" .. slot, thread = workers[slot],
  }, Task)
  process:at(plan.start, self.go_on, self)
  return self
end

function Task:go_on(what)
  if self.over then return end
  local ok, message = resume(self.thread, what or self)
  assert(ok, message)
end

-- The claim now ends at `till`; 0: it has ended.
local function set_end(self, claim, till)
  claim.ended_at = till <= self.world.now and (claim.ended_at or self.world.now) or nil
  self.watcher:claim(claim, till)
end

-- Ends a task: its process is gone, or the schedule ends.
function Task:die()
  self.dead = true
  for _, claim in ipairs(self.claims) do set_end(self, claim, 0) end
  for _, handle in ipairs(self.handles) do
    self.watcher.keys[handle.key].wanting[self.slot] = nil
  end
end

function Task:stop()
  if self.started and not self.over then self:go_on(STOP) end
end

-- Confirms that its holds may be renewed.
function Task:speak_up()
  if self.over or self.dead or self.vanished then return end
  for _, handle in ipairs(self.handles) do
    if not handle.gone then raw.approve(handle.lock, handle.number) end
  end
end

-- Yields to the process. → when the task was resumed
local function pause(self)
  while true do
    local what = yield()
    if what == STOP then error(STOP, 0) end
    if what ~= "check" then return end
    self:check_now()
  end
end

local function sleep(self, duration)
  local until_time = self.world.now + duration
  self.process:at(until_time, self.go_on, self)
  pause(self)
end

local function wake(sleeper)
  if sleeper.awake then return end
  sleeper.awake = true
  sleeper.task:go_on()
end

-- Sleeps until that signal, and `plan.after` longer, if it comes in time.
local function sleep_till(self, signal, duration)
  local sleeper = { task = self }
  self.process:at(self.world.now + duration, wake, sleeper)
  self.world:on_next(signal, nil, self.plan.after, function()
    self.process:at(self.world.now, wake, sleeper)
  end)
  pause(self)
end

-- ---- operations ----

function Task:resume_if_done()
  local op = self.op
  if self.over or self.dead or not op or not (operation.is_done(op) or self.impatient) then
    return false
  end
  self:go_on()
  return true
end

-- → how many operations of this task have not ended
function Task:count_calls()
  return self.op and not operation.is_done(self.op) and 1 or 0
end

-- → how many holds it believes to have now
function Task:count_holds()
  local count = 0
  for _, claim in ipairs(self.claims) do
    if claim.lock and not claim.over and claim.till > self.world.now then count = count + 1 end
  end
  return count
end

local function check_bound(check)
  local task = check.task
  if task.op ~= check.op or task.dead or task.over then return end
  local paused = task.process.paused_us - check.paused_us
  if paused > 0 then
    check.paused_us = task.process.paused_us
    task.world:at(task.world.now + paused + 3000, check_bound, check)
    return
  end
  task.world:fail("hang", "%s: %s of %s is not done in time", task.name, check.verb, check.key)
end

-- Called when the task's client was just closed, which releases what the task holds.
function Task:on_closed()
  for _, claim in ipairs(self.claims) do claim.kept = false end
  if self.op and not self.over and not operation.is_done(self.op) then
    self.world:fail("closed", "%s: a call goes on, though its client was closed", self.name)
  end
end

local function grow_impatient(tired)
  local task = tired.task
  if task.op ~= tired.op or task.over then return end
  task.impatient = true
  task:go_on()
end

-- Ends a wait for the key.
function Task:give_up(key)
  if self.over or self.dead or not self.op or self.waits_for ~= key then return end
  self.impatient = true
  self:go_on()
end

-- → what the blocking call returns
local function await(self, op, verb, key, seconds, patience)
  local process, world = self.process, self.world
  self.op, self.impatient = op, false
  local bound = self.watcher.bound(process, verb, seconds)
  if bound and not operation.is_done(op) then
    world:at(world.now + floor(bound), check_bound,
      { task = self, op = op, verb = verb, key = key, paused_us = process.paused_us
        - math.max(0, process.paused_until - world.now) })
  end
  if patience then
    process:at(world.now + patience, grow_impatient, { task = self, op = op })
  end
  self:check_now()
  while not operation.is_done(op) and not self.impatient do pause(self) end
  self.op = nil
  local result, message, code, record = operation.finish(op)
  world:note("%s %s %s: %s", self.name, verb, key, message and code .. ", " .. message or "done")
  world:mix(message and #message or 1)
  return result, message, code, record
end

local function perform(self, handle, verb, seconds, patience, record)
  self.process.calls = self.process.calls + 1
  self.waits_for = verb == "acquire" and handle.key
  self.world:signal(verb, self.process, handle.key)
  local asked_at = self.world.now
  local closed, op = self.process.closed, raw.begin(handle.lock, verb, seconds, record)
  local result, message, code, left = await(self, op, verb, handle.key, seconds, patience)
  dead_links.check(self, verb, handle.key, seconds or 0, asked_at, code, message)
  if closed and code ~= "closed" then
    self.world:fail("closed", "%s: %s of %s ends with %s, though its client was closed", self.name,
      verb, handle.key, code or "success")
  end
  return result, message, code, left
end

local function begin_release(self, handle)
  self.process.calls = self.process.calls + 1
  self.waits_for = false
  self.world:signal("release", self.process, handle.key)
  return raw.begin(handle.lock, "release")
end

-- Sends a detached release, unless another command is in its way.
local function send_release(self, handle)
  local op = begin_release(self, handle)
  local sent, message, code = operation.detach(op)
  if sent == false then return await(self, op, "release", handle.key, 0, self.plan.hasty and 0) end
  self.world:note("%s sends the release of %s%s", self.name, handle.key, message and ": " .. message
    or "")
  return sent, message, code
end

local function perform_all(self, handles, verb)
  local locks, keys = {}, {}
  self.waits_for = false
  for i, handle in ipairs(handles) do locks[i], keys[i] = handle.lock, handle.key end
  return await(self, raw.begin_all(locks, verb), verb, table.concat(keys, "+"), 0,
    self.plan.patience)
end

-- ---- what is believed ----

-- A quorum's hold that has ended must not come back after another owner had the lock. It may only
-- seem to have ended, as a reply that arrived in time may be read late.
local function check_revived(self, claim, till)
  local last, now = self.world.last_granted[claim.key], self.world.now
  local ended = claim.till > 0 and claim.till + CLOCKS_US < now and till > now
  if ended and last and last.owner ~= claim.owner and last.at > claim.till then
    self.world:fail("revived", "%s: %s believed in it until %.6f, and believes again until %.6f",
      claim.key, claim.who, claim.till / 1e6, till / 1e6)
  end
end

-- Records the state that the handles report now.
function Task:check_now()
  if self.term then leader.check(self) end
  for _, claim in ipairs(self.claims) do
    if not claim.over then
      local left = raw.remaining(claim.lock)
      local till = left > 0 and floor(self.process:moment(self.process:clock() + left)) or 0
      check_revived(self, claim, till)
      max_hold.check(self, claim, left, raw.lost(claim.lock))
      if till ~= claim.till then set_end(self, claim, till) end
      if left == 0 then
        claim.over = true
        self.watcher:may_lose(claim.owner)
      end
    end
  end
end

function Task:wake_to_check()
  if self.over or self.dead or #self.claims == 0 and not self.term then return end
  self:go_on("check")
end

-- → how many holds the task has as this owner | nil: unknown now
function Task:share_of(owner, key)
  if self.plan.owner ~= owner or self.plan.key ~= key and not self.plan.also
      and not self.plan.several then
    return 0
  end
  if self.process.closed then return 0 end
  if self.op then return nil end
  local share = 0
  for _, handle in ipairs(self.handles) do
    share = share + (handle.key == key and handle.share or 0)
  end
  return share
end

local function check_count(self, handle)
  if handle.shared or self.watcher.late then return end
  if not raw.is_held(handle.lock) then return end
  local holds = raw.holds(handle.lock)
  local count = self.watcher:count(handle.key, raw.owner(handle.lock), holds)
  if count and count ~= holds then
    self.world:fail("count", "%s: %s counts %d holds, the server %d", handle.key, self.name, holds,
      count)
  end
end

-- → the lock that shows what the caller believes: the handle's own, or one that stays alive while
-- its caller uses several (several_handles.lua)
local function witness_of(handle)
  return (handle.witness or handle).lock
end

local function claim_of(self, handle, asked_at)
  local owner = raw.owner(handle.lock)
  local claim = {
    key = handle.key, owner = owner, who = self.name, slot = self.slot, lock = witness_of(handle),
    till = 0,
    kept = self.plan.renewed and not self.plan.extend and not self.plan.max_hold
      and not self.process.plan.needs_approval
      -- one command at a time
      and self.plan.entries == 0 and not self.plan.steps
      and self.plan.lease > 2 * self.process.plan.command_timeout,
    token = raw.token(handle.lock), asked_at = asked_at,
    fenced = handle.kind ~= "guard" and self.plan.token_ttl > 0, shared = handle.shared,
    kind = handle.kind, keep = handle.kind ~= "guard" and self.plan.keep,
    lease_us = math.max(self.plan.lease, self.plan.extend or 0,
      self.process.plan.grant_lease) * 1.02e6 + 5000,
  }
  max_hold.begin(self, claim, handle, asked_at)
  handle.owner = owner
  self.claims[#self.claims + 1] = claim
  self.world.cycles:holds(self, claim)
  self.watcher:granted(claim)
  self.was_in = true
  if self.watcher.majority and not self.watcher.system then
    self.world.last_granted[claim.key] = { owner = owner, at = self.world.now }
  end
  return claim
end

local function known_claim(self, handle)
  for _, claim in ipairs(self.claims) do
    if claim.lock == witness_of(handle) and not claim.over then return claim end
  end
end

-- A hold that was lost and acquired again has left two claims.
local function unclaim(self, handle)
  for i = #self.claims, 1, -1 do
    local claim = self.claims[i]
    if claim.lock == witness_of(handle) then
      claim.over = true
      set_end(self, claim, 0)
      table.remove(self.claims, i)
    end
  end
end

-- ---- steps ----

-- → the name of what the handle holds, or held last
local function hold_name(handle)
  return (handle.owner or raw.owner(handle.lock)) .. " " .. handle.key
end

-- Signals the end of a wait a little before it, so that something else can end at that moment.
local function announce_end(self, wait)
  if wait == 0 or wait == huge then return end
  local at = floor(self.world.now + wait * 1e6 / self.process.rate) - EXPIRING
  self.world:at(math.max(self.world.now, at), self.world.signal, self.world, "expiring",
    self.process)
end

-- Changes this task's share of a shared owner's holds.
local function add_share(self, handle, change)
  if not handle.shared then return end
  handle.share = handle.share + change
  self.watcher:share_changed(self.plan.owner, handle.key)
end

-- One of the handles lost its hold: tells the watcher, unless its max_hold may have been over.
local function lost(self, handles)
  for _, handle in ipairs(handles) do
    if max_hold.may_end(self, handle) then return end
  end
  self.watcher:lost(self.plan, handles[1])
  rotation.lost(self, handles[1])
end

-- Returns whether its process has another task with the same owner. An acquire that waits for that
-- task may enter a lock that was free when it began.
local function shares_owner(self)
  for _, other in ipairs(self.process.tasks) do
    local same = other.plan.owner == self.plan.owner
    if other ~= self and self.plan.owner and same then return true end
  end
  return false
end

local function acquire(self, handle, wait, patience)
  local key = self.watcher.keys[handle.key]
  announce_end(self, wait)
  local asked_at, paused_us = self.world.now, self.process.paused_us
  local entered = raw.is_held(witness_of(handle))
  self.process.released[hold_name(handle)] = nil
  if wait > 0 and not entered and not patience then key.wanting[self.slot] = asked_at end
  key.prints[self.plan.print or ""] = true
  if wait > 0 then self.world.cycles:waits(self, handle.key) end
  local ok, message, code, record = perform(self, handle, "acquire", wait, patience)
  if wait > 0 then self.world.cycles:ends(self, handle.key, code) end
  self.watcher:answered(self, handle.key, code, asked_at, paused_us, message)
  local enters = entered or shares_owner(self)
  refused.check_wait(self, handle.key, wait, enters, asked_at, code, message)
  rotation.check(self, handle.key, asked_at, code, message)
  if handle.kind == "guard" then
    self.watcher:begun(handle.key, self, self.plan.print or "", asked_at, code, record)
  end
  if not ok then
    rules.note_failed_call(self.process)
    self.world:signal("failed", self.process, handle.key)
    if code == "busy" and self.plan.alone then
      self.world:fail("order", "%s: %s is kept out by its own hold", handle.key, self.name)
    end
    if code == "lost" then lost(self, { handle }) end
    add_share(self, handle, 0)
    key.wanting[self.slot] = nil
    if entered then self:check_now() end
    return nil, code
  end
  local claim = entered and known_claim(self, handle) or claim_of(self, handle, asked_at)
  add_share(self, handle, 1)
  key.wanting[self.slot] = nil
  self:check_now()
  check_count(self, handle)
  handle.held_at = self.world.now
  return true, claim
end

local function release(self, handle, last)
  if last then unclaim(self, handle) end
  local ok, message, code
  local ends_at = self.world.now / 1e6 + raw.remaining(handle.lock)
  if self.plan.async then ok, message, code = send_release(self, handle)
  else ok, message, code = perform(self, handle, "release", 0, self.plan.hurry) end
  if last and not ok then
    refused.expect_release(self, handle, ends_at - self.world.now / 1e6, message)
  end
  if code == "lost" or code == "not_held" and self.plan.common then lost(self, { handle }) end
  if ok or code == "interrupted" then -- it continues
    add_share(self, handle, -1)
  elseif handle.shared then
    self.watcher:may_lose(self.plan.owner)
  end
  if last and ok and not handle.shared and not wire.keeps(handle.owner or "") then
    self.process.released[hold_name(handle)] = self.world.now
  end
  if not last then
    self:check_now()
    if ok and not self.plan.async then check_count(self, handle) end
  end
  return ok, code
end

-- A re-entry in the middle of a hold.
local function hold_again(self, handle, claim)
  if not raw.is_held(handle.lock) then return end
  local ok, entered = acquire(self, handle, 0)
  if not ok then return end
  sleep(self, self.plan.holds_again)
  self:check_now()
  release(self, handle, entered ~= claim)
end

local function hold(self, handle, claim)
  local plan = self.plan
  for _, nap in ipairs(plan.naps) do
    if plan.till then sleep_till(self, plan.till, nap) else sleep(self, nap) end
    if claim.fenced then self.watcher:write(claim) end
    self:check_now()
  end
  for _ = 1, plan.checks or 0 do
    if not perform(self, handle, "check", 0) then break end
    self:check_now()
  end
  if plan.check then perform(self, handle, "check", 0, plan.hurry) self:check_now() end
  if plan.extend then perform(self, handle, "extend", plan.extend, plan.hurry) self:check_now() end
  if plan.holds_again then hold_again(self, handle, claim) end
  if plan.stays then
    sleep(self, plan.stays)
    self:check_now()
  end
  if plan.resize then perform(self, handle, "set", plan.resize) end
end

local function new_lock(self, key, kind, lease, token_ttl)
  local plan = self.plan
  return raw.new(self.process.client, {
    self.process.client, key = key, kind = kind, lease = lease or plan.lease, wait = 1,
    keep = kind ~= "guard" and plan.keep or nil, max_hold = plan.max_hold,
    renewed = plan.renewed,
    owner = plan.owner, token_ttl = kind == "guard" and 0 or token_ttl or plan.token_ttl,
    fingerprint = kind == "guard" and plan.print or nil, permits = plan.permits,
      initial_permits = plan.initial_permits,
    deadlock_check = plan.deadlock_check,
  })
end

-- → the handle that tasks of the process share
local function common_lock(self, key, kind)
  local name, common = kind .. " " .. key, self.process.common
  common[name] = common[name] or new_lock(self, key, kind)
  return common[name]
end

local function new_handle(self, key, kind, lease, token_ttl)
  local plan = self.plan
  local lock = (plan.common and common_lock or new_lock)(self, key, kind, lease, token_ttl)
  local handle = { lock = lock, key = key, kind = kind, shared = plan.owner ~= nil, share = 0,
    number = raw.number(lock) }
  self.handles[#self.handles + 1] = handle
  return handle
end

-- Ends a request without a release: it no longer confirms its holds, until that is noticed.
local function vanish(self, handles)
  self.vanished = true
  if self.plan.owner then self.watcher:may_lose(self.plan.owner) end
  for _, handle in ipairs(handles) do
    local noticed_at = self.world.now + self.plan.noticed
    unclaim(self, handle)
    if self.watcher.vanishes then self.watcher:vanishes(handle.key, handle.owner, noticed_at) end
    self.process.vanished[hold_name(handle)] = self.world.now + floor(self.longest_lease * 1e6)
    self.process:at(noticed_at, function() raw.abandon(handle.lock, handle.number, EVERY) end)
  end
end

local function vanish_or_drop(self, handle, count)
  local plan = self.plan
  if plan.finish == "vanish" then
    vanish(self, { handle })
    return handle
  end
  if plan.finish == "drop" then
    unclaim(self, handle)
    handle.gone = true
    if plan.owner then self.watcher:may_lose(plan.owner) end -- the next release releases it, too
    collect(handle.lock)
    return new_handle(self, handle.key, handle.kind)
  end
  for i = count, 1, -1 do
    release(self, handle, i == 1)
  end
  return handle
end

-- A reader must not write: it would wait for itself.
local function upgrade(self)
  local other = new_handle(self, self.plan.key, "write")
  local ok, code = acquire(self, other, self.plan.wait)
  if ok then return release(self, other, true) end
  if code ~= "deadlock" and raw.is_held(self.handles[1].lock) then
    self.world:fail("upgrade", "%s: %s reads, and was told %s", other.key, self.name, code)
  end
end

-- A writer also reads; "after": it continues as a reader; "within": it releases the read lock first
local function read_too(self, handle, count)
  local other = new_handle(self, self.plan.key, "read")
  local ok, claim = acquire(self, other, 0)
  if not ok and raw.is_held(handle.lock) and self.watcher.calm then
    self.world:fail("own", "%s: %s writes, and may not read", handle.key, self.name)
  end
  if not ok then return false end
  if self.plan.reads == "within" then return release(self, other, true) and false end
  for i = count, 1, -1 do release(self, handle, i == 1) end
  hold(self, other, claim)
  release(self, other, true)
  return true
end

local function with_second(self, claim)
  local second = new_handle(self, self.plan.also, "lock")
  if not acquire(self, second, self.plan.wait == huge and 2 or self.plan.wait) then return end
  sleep(self, self.plan.gap)
  if claim.fenced then self.watcher:write(claim) end
  release(self, second, true)
end

local function handles_round(self, witness)
  local leases, token_ttls = self.plan.leases or {}, self.plan.token_ttls or {}
  several_handles.round(self, witness, {
    new_handle = function(place)
      return new_handle(self, witness.key, witness.kind, leases[place], token_ttls[place])
    end,
    acquire = acquire, release = release, begin_release = begin_release, unclaim = unclaim,
    sleep = sleep,
  })
  return witness
end

local function lock_round(self, handle)
  local plan = self.plan
  if plan.steps then return handles_round(self, handle) end
  local ok, claim = acquire(self, handle, plan.wait, plan.patience)
  if not ok then return handle end
  local count = 1
  for _ = 1, plan.entries do
    if acquire(self, handle, plan.wait == huge and 5 or plan.wait) then count = count + 1 end
  end
  hold(self, handle, claim)
  if plan.also then with_second(self, claim) end
  if plan.upgrades then upgrade(self) end
  if plan.reads and read_too(self, handle, count) then return handle end
  if plan.force then
    unclaim(self, handle)
    perform(self, handle, "force_release", 0)
  end
  return vanish_or_drop(self, handle, count)
end

-- Takes the lock by force from its holder. If the task confirms, takes the lock only from the owner
-- that it has read a while before.
local function force_round(self, handle)
  local plan, info = self.plan, nil
  sleep(self, plan.naps[1])
  if plan.confirms then
    info = perform(self, handle, "info", 0)
    sleep(self, plan.confirms)
  end
  local taken = perform(self, handle, "force_release", 0, nil, info and info.owner)
  if taken and self.watcher.took_by_force then
    self.watcher:took_by_force(self.process, handle.key)
  end
  return handle
end

local function complete(self, handle)
  local plan, watcher = self.plan, self.watcher
  local asked_at, record = self.world.now, watcher:record(handle.key, self, plan.print or "")
  local ends_at = asked_at / 1e6 + raw.remaining(handle.lock)
  local ok, message = perform(self, handle, "complete", plan.keep, nil, record)
  if ok then watcher:completed(handle.key, asked_at, asked_at + plan.keep * 990000)
  elseif watcher.not_completed then watcher:not_completed(handle.owner) end
  if not ok then
    refused.expect_record(self, handle.key, record, ends_at - self.world.now / 1e6, message)
  end
end

local function guard_round(self, handle)
  local plan = self.plan
  local ok, claim = acquire(self, handle, plan.wait, plan.patience)
  if not ok then return handle end
  hold(self, handle, claim)
  if plan.finish == "vanish" then
    vanish(self, { handle })
    return handle
  end
  unclaim(self, handle)
  if plan.finish == "release" then
    release(self, handle, true)
  else
    complete(self, handle)
  end
  return handle
end

-- ---- several locks as one ----

local function check_none(self, handles, entered)
  for i, handle in ipairs(handles) do
    if not entered[i] and raw.is_held(handle.lock) then
      self.world:fail("several", "%s: %s has it, though it did not get all", handle.key, self.name)
    end
  end
end

-- Acquires the locks atomically. → claims | nil, code
local function acquire_together(self, handles)
  local asked_at, entered, claims = self.world.now, {}, {}
  for i, handle in ipairs(handles) do
    entered[i] = raw.is_held(handle.lock)
    self.process.released[hold_name(handle)] = nil
  end
  local ok, _, code = perform_all(self, handles, "acquire_all")
  if code == "busy" and self.plan.alone then
    self.world:fail("order", "%s is kept out by its own hold of %s", self.name, handles[1].key)
  end
  if code == "lost" then lost(self, handles) end
  if not ok then
    check_none(self, handles, entered)
    self:check_now()
    return nil, code
  end
  for i, handle in ipairs(handles) do
    claims[i] = entered[i] and known_claim(self, handle) or claim_of(self, handle, asked_at)
  end
  self:check_now()
  for _, handle in ipairs(handles) do
    if not self.plan.forsaken then check_count(self, handle) end
  end
  return claims
end

-- all: none is held after this, though releases may be under way
local function release_taken(self, handles, last, all)
  for i = last, 1, -1 do release(self, handles[i], all or raw.holds(handles[i].lock) <= 1) end
end

-- In a calm schedule a lock of a set remains held until the whole set is, whatever its lease is.
local function start_lease(self, handle)
  local held, code = raw.is_held(handle.lock), nil
  if not (held and self.plan.renewed) then
    local verb = self.plan.renewed and "check" or "extend"
    local _
    held, _, code = perform(self, handle, verb, self.plan.lease)
  end
  if code == "lost" and self.watcher.calm and not self.plan.patience
      and not max_hold.may_end(self, handle) then
    self.world:fail("several", "%s: %s loses it before it has all", handle.key, self.name)
  end
  return held
end

-- Acquires the locks one after the other, each through its queue, as multi_lock does. → claims |
-- nil
local function acquire_in_order(self, handles, by)
  local claims = {}
  for i, handle in ipairs(handles) do
    local ok, claim = acquire(self, handle, math.max(0, by - self.world.now) / 1e6)
    if not ok then return release_taken(self, handles, i - 1) end
    claims[i] = claim
    raw.collect(handle.lock)
  end
  for _, handle in ipairs(handles) do
    if not start_lease(self, handle) then return release_taken(self, handles, #handles) end
    self:check_now()
  end
  for _, handle in ipairs(handles) do raw.settle(handle.lock) end
  return claims
end

local function acquire_several(self, handles)
  local by = self.world.now + self.plan.wait * 1e6
  local claims, code = acquire_together(self, handles)
  local may_pass = code == "busy" or code == "unreachable"
  if claims or not may_pass or self.world.now >= by then return claims end
  return acquire_in_order(self, handles, by)
end

-- The handles are collected one after the other.
local function forsake(self, handles)
  for i, handle in ipairs(handles) do
    self.process:at(self.world.now + i * self.plan.forsaken, function()
      unclaim(self, handle)
      raw.abandon(handle.lock)
    end)
  end
end

-- all: see release_taken
local function release_together(self, handles, all)
  local plan, last = self.plan, {}
  for i, handle in ipairs(handles) do
    last[i] = all or raw.holds(handle.lock) <= 1
    if last[i] then unclaim(self, handle) end
  end
  if plan.forsaken and not plan.twice then forsake(self, handles) end
  local ok, _, code = perform_all(self, handles, "release_all")
  if code == "lost" and not plan.forsaken then lost(self, handles) end
  for i, handle in ipairs(handles) do
    if last[i] and ok then self.process.released[hold_name(handle)] = self.world.now end
    if not last[i] and ok and not plan.forsaken then check_count(self, handle) end
  end
  self:check_now()
  if plan.forsaken and not plan.twice then sleep(self, #handles * plan.forsaken) end
end

-- Enters the locks again by other handles. Either these are collected while the first ones are
-- released, or the first ones while these enter.
local function enter_twice(self, handles)
  local others = {}
  for i, handle in ipairs(handles) do others[i] = new_handle(self, handle.key, "lock") end
  if self.plan.twice == "enter" then forsake(self, handles) end
  local entered = acquire_together(self, others)
  for i, handle in ipairs(handles) do
    unclaim(self, handle)
    unclaim(self, others[i])
  end
  if self.plan.twice == "release" then
    forsake(self, others)
    return release_together(self, handles)
  end
  sleep(self, #handles * self.plan.forsaken)
  if entered then release_together(self, others) end
end

local function several_round(self, handles)
  local plan, count = self.plan, 1
  local claims = acquire_several(self, handles)
  if not claims then return end
  if plan.twice then return enter_twice(self, handles) end
  for _ = 1, plan.entries do
    if acquire_together(self, handles) then count = count + 1 end
  end
  for i, handle in ipairs(handles) do hold(self, handle, claims[i]) end
  if plan.finish == "vanish" then return vanish(self, handles) end
  for i = 1, count do
    local all = plan.async and i == count
    if plan.together then release_together(self, handles, all)
    else release_taken(self, handles, #handles, all) end
  end
end

local function run_several(self)
  local plan, handles = self.plan, {}
  for i, key in ipairs(plan.several) do handles[i] = new_handle(self, key, "lock") end
  for _ = 1, plan.rounds do
    several_round(self, handles)
    if self.vanished then return end
    sleep(self, plan.gap)
  end
end

-- ---- a latch ----

local WAITS = { await = true, take = true }

-- → its result
local function call_noted(self, handle, verb, amount)
  local plan, waits = self.plan, WAITS[verb]
  local asked_at, seconds = self.world.now, waits and plan.wait or amount
  self.process.calls = self.process.calls + 1
  self.waits_for = waits and handle.key
  self.world:signal(waits and "acquire" or "release", self.process, handle.key)
  local op, number = raw.begin(handle.lock, verb, seconds)
  self.watcher:calls(self, verb, amount, number)
  local result, message, code = await(self, op, verb, handle.key, seconds, plan.patience)
  if self.dead then return nil end
  self.watcher:called(self, verb, result, code, asked_at, number, message)
  if waits then refused.check_wait(self, handle.key, seconds, false, asked_at, code, message) end
  return result
end

local function run_latch(self)
  local handle = new_handle(self, self.plan.key, "latch")
  for _ = 1, self.plan.rounds do
    call_noted(self, handle, self.plan.calls, self.plan.amount)
    sleep(self, self.plan.gap)
  end
end

-- ---- a plain semaphore ----

local function permits_round(self, handle)
  local plan = self.plan
  local result = call_noted(self, handle, plan.calls, plan.amount)
  local taken = plan.calls == "take" and result and plan.amount or plan.calls == "drain" and result
  if not taken or taken == 0 then return end
  sleep(self, plan.naps[1])
  call_noted(self, handle, "give", taken)
end

local function run_plain_semaphore(self)
  local handle = new_handle(self, self.plan.key, "plain_semaphore")
  for _ = 1, self.plan.rounds do
    permits_round(self, handle)
    sleep(self, self.plan.gap)
  end
end

local RUNS = { latch = run_latch, plain_semaphore = run_plain_semaphore }

function Task:run()
  self.started = true
  local plan = self.plan
  if plan.calls then return RUNS[plan.kind](self) end
  if plan.leads then return leader.run(self, { sleep = sleep, await = await }) end
  self.longest_lease = math.max(plan.lease, plan.extend or 0)
  if plan.several then return run_several(self) end
  local handle = new_handle(self, plan.key, plan.kind)
  local other = plan.swaps and new_handle(self, plan.key, OTHER_HALF[plan.kind])
  local round = plan.breaks and force_round or plan.kind == "guard" and guard_round or lock_round
  for _ = 1, plan.rounds do
    if other then handle, other = other, handle end
    handle = round(self, handle)
    if self.vanished then return end
    sleep(self, plan.gap)
  end
end

return Task
