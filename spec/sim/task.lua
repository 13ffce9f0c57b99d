-- What a program does with a lock: one coroutine of a process, and so one owner.
--
-- The coroutines are made once, in a fixed order, since owners are numbered by them; a task that is not over when its
-- schedule ends is told to stop.

local core = require "holdfast.core"

local raw, operation = core.lock, core.operation
local ONE = { is_done = operation.is_done, finish = operation.finish }
local ALL = { is_done = raw.is_done_all, finish = raw.finish_all }
local collect = core.lock_type.__gc
local yield, resume = coroutine.yield, coroutine.resume
local floor, huge = math.floor, math.huge

local WORKERS = 8
local STOP = {}

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
    process = process, world = process.world, plan = plan, slot = slot, watcher = watcher, claims = {}, handles = {},
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

-- Ends a task that is not over: its process is gone, or the schedule ends.
function Task:die()
  self.dead = true
  for _, claim in ipairs(self.claims) do self.watcher:claim(claim, 0) end
  for _, handle in ipairs(self.handles) do self.watcher.keys[handle.key].wanting[self.slot] = nil end
end

function Task:stop()
  if self.started and not self.over then self:go_on(STOP) end
end

-- Its holds may be renewed.
function Task:speak_up()
  if self.over or self.dead or self.vanished then return end
  for _, handle in ipairs(self.handles) do
    if not handle.gone then raw.allow(handle.lock) end
  end
end

-- Gives the process the turn. → when somebody has gone on with this task
local function pause(self)
  while true do
    local what = yield()
    if what == STOP then error(STOP, 0) end
    if what ~= "look" then return end
    self:look_now()
  end
end

local function sleep(self, duration)
  local until_time = self.world.now + duration
  self.process:at(until_time, self.go_on, self)
  pause(self)
end

-- ---- operations ----

function Task:resume_if_done()
  local op = self.op
  if self.over or self.dead or not op or not (self.way.is_done(op) or self.impatient) then return false end
  self:go_on()
  return true
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
  task.world:fail("hang", "%s: %s of %s is not done in time", task.name, check.kind, check.key)
end

local function grow_impatient(tired)
  local task = tired.task
  if task.op ~= tired.op or task.over then return end
  task.impatient = true
  task:go_on()
end

-- way: ONE or ALL, by how the operation was begun. → what the blocking call returns
local function await(self, op, way, kind, key, seconds, patience)
  local process, world = self.process, self.world
  self.op, self.way, self.impatient = op, way, false
  local bound = self.watcher.bound(process, kind, seconds)
  if bound and not way.is_done(op) then
    world:at(world.now + floor(bound), check_bound,
      { task = self, op = op, kind = kind, key = key, paused_us = process.paused_us
        - math.max(0, process.paused_until - world.now) })
  end
  if patience then
    process:at(world.now + patience, grow_impatient, { task = self, op = op })
  end
  self:look_now()
  while not way.is_done(op) and not self.impatient do pause(self) end
  self.op = nil
  local result, message, code, record = way.finish(op)
  world:note("%s %s %s: %s", self.name, kind, key, message and code .. ", " .. message or "done")
  world:mix(message and #message or 1)
  return result, message, code, record
end

local function perform(self, handle, kind, seconds, patience, record)
  local op = raw.begin(handle.lock, kind, seconds, record)
  return await(self, op, ONE, kind, handle.key, seconds, patience)
end

local function perform_all(self, handles, kind)
  local locks, keys = {}, {}
  for i, handle in ipairs(handles) do locks[i], keys[i] = handle.lock, handle.key end
  return await(self, raw.begin_all(locks, kind), ALL, kind, table.concat(keys, "+"), 0, self.plan.patience)
end

-- ---- what is believed ----

-- Takes note of what the handles say now.
function Task:look_now()
  for _, claim in ipairs(self.claims) do
    if not claim.over then
      local left = raw.remaining(claim.lock)
      local till = left > 0 and floor(self.process:moment(self.process:clock() + left)) or 0
      if till ~= claim.till then self.watcher:claim(claim, till) end
      if left == 0 then
        claim.over = true
        self.watcher:may_lose(claim.owner)
      end
    end
  end
end

function Task:look()
  if self.over or self.dead or #self.claims == 0 then return end
  self:go_on("look")
end

local function check_count(self, handle)
  if handle.shared then return end
  if not raw.is_held(handle.lock) then return end
  local holds = raw.holds(handle.lock)
  local count = self.watcher:count(handle.key, raw.owner(handle.lock), holds)
  if count and count ~= holds then
    self.world:fail("count", "%s: %s counts %d holds, the server %d", handle.key, self.name, holds, count)
  end
end

local function claim_of(self, handle, asked_at)
  local owner = raw.owner(handle.lock)
  local claim = {
    key = handle.key, owner = owner, who = self.name, slot = self.slot, lock = handle.lock, till = 0,
    token = raw.token(handle.lock), asked_at = asked_at, fenced = handle.layout ~= "guard", shared = handle.shared,
    lease_us = math.max(self.plan.lease, self.plan.extend or 0, self.process.plan.grant_lease) * 1.02e6 + 5000,
  }
  self.claims[#self.claims + 1] = claim
  self.watcher:granted(claim)
  return claim
end

local function known_claim(self, handle)
  for _, claim in ipairs(self.claims) do
    if claim.lock == handle.lock and not claim.over then return claim end
  end
end

local function unclaim(self, handle)
  for i, claim in ipairs(self.claims) do
    if claim.lock == handle.lock then
      claim.over = true
      self.watcher:claim(claim, 0)
      table.remove(self.claims, i)
      return
    end
  end
end

-- ---- steps ----

local function hold_name(handle)
  return raw.owner(handle.lock) .. " " .. handle.key
end

local function acquire(self, handle, wait, patience)
  local key = self.watcher.keys[handle.key]
  local asked_at, paused_us = self.world.now, self.process.paused_us
  local entered = raw.is_held(handle.lock)
  self.process.released[hold_name(handle)] = nil
  if wait > 0 and not entered and not patience then key.wanting[self.slot] = asked_at end
  key.prints[self.plan.print or ""] = true
  local ok, _, code, record = perform(self, handle, "acquire", wait, patience)
  self.watcher:answered(self, handle.key, code, asked_at, paused_us)
  if handle.layout == "guard" then
    self.watcher:begun(handle.key, self, self.plan.print or "", asked_at, code, record)
  end
  if not ok then
    key.wanting[self.slot] = nil
    if entered then self:look_now() end
    return nil, code
  end
  local claim = entered and known_claim(self, handle) or claim_of(self, handle, asked_at)
  key.wanting[self.slot] = nil
  self:look_now()
  check_count(self, handle)
  return true, claim
end

local function release(self, handle, last)
  if last then unclaim(self, handle) end
  local ok, _, code = perform(self, handle, "release", 0)
  if code == "lost" then self.watcher:lost(self.plan, handle) end
  if last and ok and not handle.shared then self.process.released[hold_name(handle)] = self.world.now end
  if not last then
    self:look_now()
    if ok then check_count(self, handle) end
  end
  return ok, code
end

local function hold(self, handle, claim)
  local plan = self.plan
  for _, nap in ipairs(plan.naps) do
    sleep(self, nap)
    if claim.fenced then self.watcher:write(claim) end
    self:look_now()
  end
  if plan.check then perform(self, handle, "check", 0) self:look_now() end
  if plan.extend then perform(self, handle, "extend", plan.extend) self:look_now() end
end

local function new_handle(self, key, layout)
  local plan = self.plan
  local lock = raw.new(self.process.client, {
    self.process.client, key = key, layout = layout, lease = plan.lease, wait = 1, renewed = plan.renewed,
    owner = plan.owner, token_ttl = layout == "guard" and 0 or plan.token_ttl,
    print = layout == "guard" and plan.print or nil,
  })
  local handle = { lock = lock, key = key, layout = layout, shared = plan.owner ~= nil }
  self.handles[#self.handles + 1] = handle
  return handle
end

-- A request that ends without a word: nobody answers for its holds any more, until somebody notices.
local function vanish(self, handles)
  self.vanished = true
  if self.plan.owner then self.watcher:may_lose(self.plan.owner) end
  for _, handle in ipairs(handles) do
    unclaim(self, handle)
    self.process.vanished[hold_name(handle)] = self.world.now + floor(self.longest_lease * 1e6)
    self.process:at(self.world.now + self.plan.noticed, raw.abandon, handle.lock)
  end
end

local function let_go(self, handle, count)
  local plan = self.plan
  if plan.finish == "vanish" then
    vanish(self, { handle })
    return handle
  end
  if plan.finish == "drop" then
    unclaim(self, handle)
    handle.gone = true
    collect(handle.lock)
    return new_handle(self, handle.key, handle.layout)
  end
  for i = count, 1, -1 do
    release(self, handle, i == 1)
  end
  return handle
end

local function with_second(self, claim)
  local second = new_handle(self, self.plan.also, "lock")
  if not acquire(self, second, self.plan.wait == huge and 2 or self.plan.wait) then return end
  sleep(self, self.plan.gap)
  if claim.fenced then self.watcher:write(claim) end
  release(self, second, true)
end

local function lock_round(self, handle)
  local plan = self.plan
  local ok, claim = acquire(self, handle, plan.wait, plan.patience)
  if not ok then return handle end
  local count = 1
  for _ = 1, plan.entries do
    if acquire(self, handle, plan.wait == huge and 5 or plan.wait) then count = count + 1 end
  end
  hold(self, handle, claim)
  if plan.also then with_second(self, claim) end
  if plan.force then
    unclaim(self, handle)
    perform(self, handle, "force_release", 0)
  end
  return let_go(self, handle, count)
end

local function complete(self, handle)
  local plan, watcher = self.plan, self.watcher
  local asked_at, record = self.world.now, watcher:record(handle.key, self, plan.print or "")
  local ok = perform(self, handle, "complete", plan.keep, nil, record)
  if ok then watcher:completed(handle.key, asked_at, asked_at + plan.keep * 990000) end
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

-- In a single step. → claims | nil, code
local function acquire_together(self, handles)
  local asked_at, entered, claims = self.world.now, {}, {}
  for i, handle in ipairs(handles) do
    entered[i] = raw.is_held(handle.lock)
    self.process.released[hold_name(handle)] = nil
  end
  local ok, _, code = perform_all(self, handles, "acquire_all")
  if not ok then
    check_none(self, handles, entered)
    self:look_now()
    return nil, code
  end
  for i, handle in ipairs(handles) do
    claims[i] = entered[i] and known_claim(self, handle) or claim_of(self, handle, asked_at)
  end
  self:look_now()
  for _, handle in ipairs(handles) do check_count(self, handle) end
  return claims
end

local function give_back(self, handles, last)
  for i = last, 1, -1 do release(self, handles[i], raw.holds(handles[i].lock) <= 1) end
end

local function start_lease(self, handle)
  if not self.plan.renewed then return perform(self, handle, "extend", self.plan.lease) end
  return raw.is_held(handle.lock) or perform(self, handle, "check", 0)
end

-- One after the other, each through its queue, as multi_lock does it. → claims | nil
local function acquire_in_order(self, handles)
  local claims, by = {}, self.world.now + self.plan.wait * 1e6
  for i, handle in ipairs(handles) do
    local ok, claim = acquire(self, handle, math.max(0, by - self.world.now) / 1e6)
    if not ok then return give_back(self, handles, i - 1) end
    claims[i] = claim
  end
  for _, handle in ipairs(handles) do
    if not start_lease(self, handle) then return give_back(self, handles, #handles) end
    self:look_now()
  end
  return claims
end

local function acquire_several(self, handles)
  local claims, code = acquire_together(self, handles)
  if claims or code ~= "busy" or self.plan.wait == 0 then return claims end
  return acquire_in_order(self, handles)
end

local function release_together(self, handles)
  local last = {}
  for i, handle in ipairs(handles) do
    last[i] = raw.holds(handle.lock) <= 1
    if last[i] then unclaim(self, handle) end
  end
  local ok, _, code = perform_all(self, handles, "release_all")
  if code == "lost" then self.watcher:lost(self.plan, handles[1]) end
  for i, handle in ipairs(handles) do
    if last[i] and ok then self.process.released[hold_name(handle)] = self.world.now end
    if not last[i] and ok then check_count(self, handle) end
  end
  self:look_now()
end

local function several_round(self, handles)
  local plan, count = self.plan, 1
  local claims = acquire_several(self, handles)
  if not claims then return end
  for _ = 1, plan.entries do
    if acquire_together(self, handles) then count = count + 1 end
  end
  for i, handle in ipairs(handles) do hold(self, handle, claims[i]) end
  if plan.finish == "vanish" then return vanish(self, handles) end
  for _ = 1, count do
    if plan.together then release_together(self, handles) else give_back(self, handles, #handles) end
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

function Task:run()
  self.started = true
  local plan = self.plan
  self.longest_lease = math.max(plan.lease, plan.extend or 0)
  if plan.several then return run_several(self) end
  local handle = new_handle(self, plan.key, plan.layout)
  for _ = 1, plan.rounds do
    handle = (plan.layout == "guard" and guard_round or lock_round)(self, handle)
    if self.vanished then return end
    sleep(self, plan.gap)
  end
end

return Task
