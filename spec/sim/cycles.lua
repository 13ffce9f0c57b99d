-- Records which task waits for which, and checks the rule *cycle*: an acquire ends with `deadlock`
-- only if it was in a cycle of waits. In a calm schedule, if all tasks of a cycle check for
-- deadlocks, exactly one of them soon ends with `deadlock`.
--
-- A cycle exists from the moment at which the last of its tasks waits. A client can learn of an end
-- later than this file: the server keeps a hold that has ended if no client could release it or its
-- process is dead, and a wait for as long as it believes that the process is subscribed.

local SLOTS = 8 -- number of tasks
local LATE = 1000000 -- µs until others learn that a wait has ended, in a calm schedule
local STALE = 25000000 -- the same in any schedule: a lease of 10 s, and messages under way
local UNSEEN = 3000000 -- µs until others learn that a wait has ended because its process is gone
local UNSEEN_IN_QUORUM = 14000000 -- the same without a queue: a published wait remains for 10 s
local SOON = 4 -- after this many times its first wait, a task has checked for a deadlock
local GRACE = 3000000

local Cycles = {}
Cycles.__index = Cycles

function Cycles.new(world, watcher, plan)
  local self = setmetatable({
    world = world, watcher = watcher, calm = plan.calm, tasks = {}, claims = {}, keys = {},
    unseen = plan.quorum and UNSEEN_IN_QUORUM or UNSEEN,
  }, Cycles)
  for i, key in ipairs(plan.keys) do
    self.keys[i], self.claims[key.name] = key.name, {}
  end
  return self
end

-- Returns whether the task has the key, or had it less than `late` ago.
local function has(self, slot, name, late)
  local claim, now = self.claims[name][slot], self.world.now
  return claim and (claim.till > now or now - (claim.ended_at or 0) < late)
end

-- Returns whether the task waits for the key, or did so less than `late` ago.
local function wants(self, task, name, late)
  local ended, process = task.waits[name], task.process
  if ended and process.dead then ended = math.min(ended, process.received_until or 0) end
  return ended and self.world.now - ended < math.min(late, self.unseen)
end

-- → the tasks of a cycle that begins with `path`, if its last task closes it | nil
local function close(self, path, late)
  local task = path[#path]
  for _, name in ipairs(self.keys) do
    for slot = 1, wants(self, task, name, late) and SLOTS or 0 do
      local holder = has(self, slot, name, late) and self.tasks[slot]
      if holder == path[1] and #path > 1 then return path end
      if holder and not path[holder] then
        path[#path + 1], path[holder] = holder, true
        if close(self, path, late) then return path end
        path[#path], path[holder] = nil, nil
      end
    end
  end
end

local function cycle_of(self, task, late)
  return close(self, { task, [task] = true }, late)
end

-- A task that may wait within its client for a kept lock does not check for deadlocks.
local function checks(task)
  local within = task.plan.keep and #task.process.tasks > 1
  return task.plan.deadlock_check and task.process.plan.introduced and not within
end

local function all_search(tasks)
  for _, task in ipairs(tasks) do
    if not checks(task) then return false end
  end
  return true
end

-- A task has acquired the key of the claim.
function Cycles:holds(task, claim)
  self.tasks[task.slot], self.claims[claim.key][task.slot] = task, claim
end

-- A task begins to wait for the key.
function Cycles:waits(task, key)
  self.tasks[task.slot], task.waits[key] = task, math.huge
  local tasks = cycle_of(self, task, 0)
  if not tasks then return end
  local cycle = { since = self.world.now, all_search = all_search(tasks) }
  for _, member in ipairs(tasks) do member.cycle = cycle end
  self.world:note("%s closes a cycle of %d", task.name, #tasks)
end

local function check_deadlock(self, task)
  local cycle = task.cycle
  if not cycle_of(self, task, self.calm and LATE or STALE) then
    self.world:fail("cycle", "%s ends with deadlock, and does not wait for itself", task.name)
  elseif self.calm and cycle and cycle.ended then
    self.world:fail("cycle", "%s ends, though %s has ended for the same cycle", task.name,
      cycle.ended)
  end
  if cycle then cycle.ended = task.name end
end

local function check_soon(self, task, cycle)
  local stood = self.world.now - cycle.since
  if stood > SOON * task.plan.deadlock_check * 1e6 + GRACE then
    self.world:fail("cycle", "%s has been in a cycle for %.3f s, and no wait has ended", task.name,
      stood / 1e6)
  end
end

-- The task's wait for the key has ended; code: how it failed
function Cycles:ends(task, key, code)
  local cycle = task.cycle
  if code == "deadlock" and task.plan.deadlock_check then
    check_deadlock(self, task)
  elseif self.calm and cycle and cycle.all_search and not cycle.over
      and cycle_of(self, task, 0) then
    check_soon(self, task, cycle)
  end
  if cycle then cycle.over = true end
  task.cycle, task.waits[key] = nil, self.world.now
end

return Cycles
