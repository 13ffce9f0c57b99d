-- A task that leads: the real holdfast.lead on the locks of a simulated client.
--
-- Its calls of the driver run in the task's coroutine and in the schedule's time. All processes of
-- a schedule share one Lua state here, but each one is notified only of its own losses.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local floor = math.floor
local LEASE_OF_CALLS = { acquire = math.huge, release = 0 }
local FILE = "./lua/holdfast/lead.lua"

local leader = {}

local tasks = setmetatable({}, { __mode = "k" }) -- coroutine -> the task that leads in it
local active -- the client whose turn it is

local function current()
  return tasks[coroutine.running()]
end

for _, verb in ipairs { "acquire", "release", "pause" } do
  local blocking = driver.lock[verb]
  driver.lock[verb] = function(lock, seconds)
    local task = current()
    if not task then return blocking(lock, seconds) end
    return task.call(lock, verb, seconds or LEASE_OF_CALLS[verb])
  end
end

local has_losses, pending_loss = core.client.has_losses, core.lock.pending_loss

function core.client.has_losses(client)
  return (not active or client == active) and has_losses(client)
end

function core.lock.pending_loss(lock)
  return (not active or core.lock.data(lock).client == active) and pending_loss(lock) or nil
end

-- ---- the module, or a mutant of it ----

local modules = {}

-- text: of a mutant | nil
local function module_of(text)
  local name = text or FILE
  modules[name] = modules[name] or (text and assert(load(text, "@" .. FILE))()
    or assert(loadfile(FILE))())
  return modules[name]
end

-- ---- a term ----

-- Records the state that the term reports now; call it in the task's coroutine.
function leader.check(task)
  local mine = task.term
  active = task.process.client
  local leads = mine.term:is_leader()
  local left = leads and core.lock.standing(mine.term.lock) or 0
  task.watcher:leads(mine, leads,
    leads and floor(task.process:moment(task.process:clock() + left)) or 0)
  active = nil
end

local function serve(task, term, number)
  local plan = task.plan
  task.term = { term = term, who = task.name, task = task, number = number,
    asked_at = task.asked_at, lease_us = plan.lease * 1.02e6 + 5000 }
  task.watcher:begins(task.term)
  leader.check(task)
  for _, nap in ipairs(plan.naps) do
    task.sleep(nap)
    leader.check(task)
  end
  if number < plan.rounds then return end
  active = task.process.client
  task.resigned, task.term.resigned = true, true
  term:resign()
  active = nil
  leader.check(task)
end

-- Passes on the results of wait(...). Its error ends the schedule, and whatever the task does after
-- it raises the same error.
local function unless_stopped(task, ran, ...)
  if not ran then task.stopped = ... end
  if task.stopped then error(task.stopped, 0) end
  return ...
end

local function wait(task, run, ...)
  active = nil
  return unless_stopped(task, pcall(run, task, ...))
end

-- An acquire has succeeded: the task continues later, as its plan says.
local function go_on_late(task)
  local delays = task.plan.delays
  if not delays then return end
  task.acquires = (task.acquires or 0) + 1
  task.sleep(delays[task.acquires % #delays + 1])
end

local function call_of(task, tools)
  return function(lock, verb, seconds)
    local process = task.process
    if task.stopped then error(task.stopped, 0) end
    process.calls = process.calls + 1
    task.locks[lock] = true
    if verb == "acquire" then task.asked_at = task.world.now end
    task.world:signal(verb, process, task.plan.key)
    if verb == "release" and task.term then task.term.ends = true end
    local result, message, code = wait(task, tools.await, core.lock.begin(lock, verb, seconds),
      verb, task.plan.key, seconds)
    if verb == "acquire" and result then go_on_late(task) end
    active = process.client
    return result, message, code
  end
end

-- tools: { sleep, await } of task.lua
function leader.run(task, tools)
  local plan, number = task.plan, 0
  task.locks, task.call = {}, call_of(task, tools)
  task.sleep = function(duration) wait(task, tools.sleep, duration) end
  tasks[coroutine.running()] = task
  local defaults = { prefix = "", lease = plan.lease, wait = 1, keep = 0, class = "", classes = {},
    token_ttl = 600 }
  local given = { once = plan.once, on_lost = not plan.unwatched and function(term, reason)
    task.watcher:told(task, term, reason)
  end or nil }
  local result, _, code = module_of(task.world.lead).run(task.process.client, plan.key, given,
    defaults, function(term)
      number = number + 1
      serve(task, term, number)
      return "served"
    end)
  local last = task.term
  active, task.term = nil, nil
  tasks[coroutine.running()] = nil
  task.watcher:leads_no_more(task, number, result, code)
  if last then task.watcher:ends(last, result, code) end
end

return leader
