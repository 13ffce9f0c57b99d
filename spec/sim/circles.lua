-- Keeps which task waits for which, and checks rule *circle*: an acquire ends with `deadlock` only
-- if it was in a circle of waits. In a calm schedule, if all tasks of a circle look for it, exactly
-- one of them ends with `deadlock`, and soon.
--
-- A circle is there from the moment at which the last of its tasks waits. What a client knows of it
-- is older than what is seen here: a hold that has ended may still stand on the server, for as long
-- as nobody could tell it or its process is dead. A wait may for as long as the server believes
-- that its process listens.

local SLOTS = 8 -- of tasks
local LATE = 1000000 -- until others hear, in a calm schedule, that a wait has ended
local STALE = 25000000 -- …in any: a lease lasts for 10 s, and what is under way
local UNHEARD = 3000000 -- …that a wait has ended, or that its process is gone,
local UNHEARD_IN_QUORUM = 14000000 -- …where no queue tells it: what was told stands for 10 s
local SOON = 4 -- times what a task waits before it looks; it looks again after twice as long
local GRACE = 3000000

local Circles = {}
Circles.__index = Circles

function Circles.new(world, watcher, plan)
  local self = setmetatable({
    world = world, watcher = watcher, calm = plan.calm, tasks = {}, claims = {}, keys = {},
    unheard = plan.quorum and UNHEARD_IN_QUORUM or UNHEARD,
  }, Circles)
  for i, key in ipairs(plan.keys) do
    self.keys[i], self.claims[key.name] = key.name, {}
  end
  return self
end

-- Whether it has the key, or had it so short a time ago.
local function has(self, slot, name, late)
  local claim, now = self.claims[name][slot], self.world.now
  return claim and (claim.till > now or now - (claim.ended_at or 0) < late)
end

-- …and whether it waits for the key, or waited.
local function wants(self, task, name, late)
  local ended, process = task.waits[name], task.process
  if ended and process.dead then ended = math.min(ended, process.received_until or 0) end
  return ended and self.world.now - ended < math.min(late, self.unheard)
end

-- → the tasks of a circle that the last one of `path` is to close | nil
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

local function circle_of(self, task, late)
  return close(self, { task, [task] = true }, late)
end

-- Who may wait within its client for a kept lock does not look.
local function looks(task)
  local within = task.plan.keep and #task.process.tasks > 1
  return task.plan.deadlock_check and task.process.plan.introduced and not within
end

local function all_search(tasks)
  for _, task in ipairs(tasks) do
    if not looks(task) then return false end
  end
  return true
end

-- A task has the key of the claim.
function Circles:holds(task, claim)
  self.tasks[task.slot], self.claims[claim.key][task.slot] = task, claim
end

-- A task begins to wait for the key.
function Circles:waits(task, key)
  self.tasks[task.slot], task.waits[key] = task, math.huge
  local tasks = circle_of(self, task, 0)
  if not tasks then return end
  local circle = { since = self.world.now, all_search = all_search(tasks) }
  for _, member in ipairs(tasks) do member.circle = circle end
  self.world:note("%s closes a circle of %d", task.name, #tasks)
end

local function check_told(self, task)
  local circle = task.circle
  if not circle_of(self, task, self.calm and LATE or STALE) then
    self.world:fail("circle", "%s is told that it waits for itself, and does not", task.name)
  elseif self.calm and circle and circle.told then
    self.world:fail("circle", "%s ends, though %s has ended for the same circle", task.name,
      circle.told)
  end
  if circle then circle.told = task.name end
end

local function check_soon(self, task, circle)
  local stood = self.world.now - circle.since
  if stood > SOON * task.plan.deadlock_check * 1e6 + GRACE then
    self.world:fail("circle", "%s has been in a circle for %.3f s, and nobody is told", task.name,
      stood / 1e6)
  end
end

-- Its wait for the key has ended; code: with that failure.
function Circles:ends(task, key, code)
  local circle = task.circle
  if code == "deadlock" and task.plan.deadlock_check then
    check_told(self, task)
  elseif self.calm and circle and circle.all_search and not circle.over
      and circle_of(self, task, 0) then
    check_soon(self, task, circle)
  end
  if circle then circle.over = true end
  task.circle, task.waits[key] = nil, self.world.now
end

return Circles
