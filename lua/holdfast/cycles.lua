-- The cycles among waits for each other, in a number of steps that grows with the number of waits
-- and holders, however long a chain is.
--
-- A wait is { holds = the owners whose caller waits, count = permits it wants, … }. Its goal has
-- holders: a list of owners, `false` for one that is unknown, with `free` where it is a semaphore.
-- It is stuck if a holder's caller is stuck, too; for a semaphore, if the others leave too few
-- permits. All waits count as stuck until one is found that is not, which frees the waits that its
-- holds block, and so on.

local cycles = {}

-- What is waited for, once for each list of holders.
local function add(graph, wait, holders)
  local goal = graph.goals[holders]
  if not goal then
    goal = { holders = holders, waits = {}, stuck = 0, next = 1 }
    graph.goals[holders] = goal
  end
  goal.waits[#goal.waits + 1] = wait
  graph.goal_of[wait], graph.stuck[wait] = goal, true
end

local function by_count(a, b)
  return (a.count or 1) < (b.count or 1)
end

-- Counts the holders that are stuck, while all waits are.
local function connect(graph, goal)
  for _, owner in ipairs(goal.holders) do
    local wait = graph.waits[owner]
    if wait then
      goal.stuck = goal.stuck + 1
      local list = graph.held[wait] or {}
      graph.held[wait], list[#list + 1] = list, goal
    end
  end
  if goal.holders.free then table.sort(goal.waits, by_count) end
end

local function may_go_on(goal, wait)
  local free = goal.holders.free
  return goal.stuck == 0
    or free ~= nil and free + #goal.holders - goal.stuck >= (wait.count or 1)
end

local function free(graph, wait)
  if not graph.stuck[wait] then return end
  graph.stuck[wait] = nil
  graph.freed[#graph.freed + 1] = wait
end

-- Of a semaphore those that want the fewest permits come first.
local function settle(graph, goal)
  while goal.waits[goal.next] and may_go_on(goal, goal.waits[goal.next]) do
    free(graph, goal.waits[goal.next])
    goal.next = goal.next + 1
  end
end

-- Leaves those stuck that wait for each other.
local function reduce(graph)
  while #graph.freed > 0 do
    local wait = table.remove(graph.freed)
    for _, goal in ipairs(graph.held[wait] or {}) do
      goal.stuck = goal.stuck - 1
      settle(graph, goal)
    end
  end
end

-- The first owner that is stuck and, for its own wait, the first one of another wait.
local function blockers(graph, goal)
  for _, owner in ipairs(goal.holders) do
    local wait = graph.waits[owner]
    if wait and graph.stuck[wait] then
      goal.first = goal.first or owner
      if wait ~= graph.waits[goal.first] then
        goal.other = owner
        return
      end
    end
  end
end

-- The owner of a hold that is stuck and that this wait waits for, rather not its own.
local function blocker(graph, wait)
  local goal = graph.goal_of[wait]
  if not goal.first then blockers(graph, goal) end
  return graph.waits[goal.first] == wait and goal.other or goal.first
end

-- Follows the waits from this one to one that is known. → the cycle on this way | nil
local function walk(graph, wait, places)
  local path, from = {}, graph.walked
  while not places[wait] do
    path[#path + 1] = wait
    graph.walked = graph.walked + 1
    places[wait] = graph.walked
    wait.holder = blocker(graph, wait)
    wait = graph.waits[wait.holder]
  end
  if places[wait] <= from then return nil end -- another walk came here
  local cycle = {}
  for i = places[wait] - from, #path do cycle[#cycle + 1] = path[i] end
  return cycle
end

-- `waits`: by owner. `holders_of(wait)`: the same list for the same goal. `goes_on(wait)`: whether
-- a wait that is stuck goes on. Sets `holder` of each wait that is stuck.
-- → a list of cycles, lists of waits
function cycles.find(waits, holders_of, goes_on)
  local graph = {
    waits = waits, goals = {}, goal_of = {}, held = {}, stuck = {}, freed = {}, walked = 0,
  }
  for _, wait in pairs(waits) do
    if not graph.goal_of[wait] then add(graph, wait, holders_of(wait)) end
  end
  for _, goal in pairs(graph.goals) do connect(graph, goal) end
  for _, goal in pairs(graph.goals) do settle(graph, goal) end
  reduce(graph)
  local stuck = {}
  for wait in pairs(graph.stuck) do stuck[#stuck + 1] = wait end
  for _, wait in ipairs(stuck) do
    if not goes_on(wait) then free(graph, wait) end
  end
  reduce(graph)
  local list, places = {}, {}
  for wait in pairs(graph.stuck) do list[#list + 1] = walk(graph, wait, places) end
  return list
end

return cycles
