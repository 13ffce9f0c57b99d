-- Finds the cycles among owners that wait for each other. The number of steps grows with the number
-- of waits and holders, not with the length of a chain.
--
-- A wait is { holds = the owners whose caller waits, count = permits it wants, … }. Its goal is the
-- lock that it waits for. A goal has holders: a list of owners, `false` for an unknown one, with
-- the field `free` for a semaphore. A wait is stuck if the caller of a holder is stuck; for a
-- semaphore, if the holders that are not stuck leave too few permits. All waits count as stuck at
-- first. Each wait that turns out not to be stuck frees the waits that its holds block, and so on.

local cycles = {}

-- Adds the wait to its goal. Waits with the same list of holders share a goal.
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

-- Counts the goal's stuck holders, while all waits still count as stuck.
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

local function may_proceed(goal, wait)
  local free = goal.holders.free
  return goal.stuck == 0
    or free ~= nil and free + #goal.holders - goal.stuck >= (wait.count or 1)
end

local function free(graph, wait)
  if not graph.stuck[wait] then return end
  graph.stuck[wait] = nil
  graph.freed[#graph.freed + 1] = wait
end

-- Frees the waits that need not wait for a stuck holder. On a semaphore, those that want the fewest
-- permits come first.
local function settle(graph, goal)
  while goal.waits[goal.next] and may_proceed(goal, goal.waits[goal.next]) do
    free(graph, goal.waits[goal.next])
    goal.next = goal.next + 1
  end
end

-- Propagates freed waits until only waits in or behind a cycle are stuck.
local function reduce(graph)
  while #graph.freed > 0 do
    local wait = table.remove(graph.freed)
    for _, goal in ipairs(graph.held[wait] or {}) do
      goal.stuck = goal.stuck - 1
      settle(graph, goal)
    end
  end
end

-- Sets goal.first to the first stuck owner and goal.other to the first one that belongs to a
-- different wait.
local function find_blockers(graph, goal)
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

-- Returns a stuck owner that this wait waits for, if possible one that is not its own.
local function blocker(graph, wait)
  local goal = graph.goal_of[wait]
  if not goal.first then find_blockers(graph, goal) end
  return graph.waits[goal.first] == wait and goal.other or goal.first
end

-- Follows the waits from this one until it meets one already visited. → the cycle found | nil
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

-- `waits`: owner -> its wait. `holders_of(wait)` returns the same list for the same goal.
-- `is_waiting(wait)` returns whether a stuck wait is still waiting. Sets `holder` of each stuck
-- wait.
-- → a list of cycles, each a list of waits
function cycles.find(waits, holders_of, is_waiting)
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
    if not is_waiting(wait) then free(graph, wait) end
  end
  reduce(graph)
  local list, places = {}, {}
  for wait in pairs(graph.stuck) do list[#list + 1] = walk(graph, wait, places) end
  return list
end

return cycles
