-- Finds the cycles among owners that wait for each other. The cost grows with the number of waits
-- and holders, not with the length of a chain.
--
-- A wait is { holds = the owners whose caller is waiting, count = the permits it wants, … }. It
-- waits for a resource: a lock or a semaphore. A resource has `holders`, a list of owners (`false`
-- for an unknown one); for a semaphore, the list's field `free` is the number of free permits. A
-- wait is stuck if a holder's caller is stuck; for a semaphore, if the stuck holders leave too few
-- permits. All waits count as stuck at first. Each wait that turns out not to be stuck frees the
-- waits that its holds block, and so on.

local cycles = {}

-- Adds the wait to its resource. Waits with the same list of holders share a resource.
local function add(graph, wait, holders)
  local resource = graph.resources[holders]
  if not resource then
    resource = { holders = holders, waits = {}, stuck_count = 0, next_wait = 1 }
    graph.resources[holders] = resource
  end
  resource.waits[#resource.waits + 1] = wait
  graph.resource_of[wait], graph.stuck[wait] = resource, true
end

local function wants_fewer(a, b)
  return (a.count or 1) < (b.count or 1)
end

-- Counts the resource's stuck holders, while all waits still count as stuck.
local function count_stuck(graph, resource)
  for _, owner in ipairs(resource.holders) do
    local wait = graph.waits[owner]
    if wait then
      resource.stuck_count = resource.stuck_count + 1
      local list = graph.held_by[wait] or {}
      graph.held_by[wait], list[#list + 1] = list, resource
    end
  end
  if resource.holders.free then table.sort(resource.waits, wants_fewer) end
end

local function may_proceed(resource, wait)
  local free = resource.holders.free
  return resource.stuck_count == 0
    or free ~= nil and free + #resource.holders - resource.stuck_count >= (wait.count or 1)
end

local function mark_free(graph, wait)
  if not graph.stuck[wait] then return end
  graph.stuck[wait] = nil
  graph.freed[#graph.freed + 1] = wait
end

-- Frees the waits that need not wait for a stuck holder. On a semaphore, the waits that want the
-- fewest permits come first.
local function free_waits(graph, resource)
  local waits = resource.waits
  while waits[resource.next_wait] and may_proceed(resource, waits[resource.next_wait]) do
    mark_free(graph, waits[resource.next_wait])
    resource.next_wait = resource.next_wait + 1
  end
end

-- Propagates freed waits until only waits in or behind a cycle are stuck.
local function propagate(graph)
  while #graph.freed > 0 do
    local wait = table.remove(graph.freed)
    for _, resource in ipairs(graph.held_by[wait] or {}) do
      resource.stuck_count = resource.stuck_count - 1
      free_waits(graph, resource)
    end
  end
end

-- Sets first_blocker to the first stuck owner, and other_blocker to the first stuck owner of a
-- different wait.
local function set_blockers(graph, resource)
  for _, owner in ipairs(resource.holders) do
    local wait = graph.waits[owner]
    if wait and graph.stuck[wait] then
      resource.first_blocker = resource.first_blocker or owner
      if wait ~= graph.waits[resource.first_blocker] then
        resource.other_blocker = owner
        return
      end
    end
  end
end

-- Returns a stuck owner that blocks this wait, if possible one of a different wait.
local function find_blocker(graph, wait)
  local resource = graph.resource_of[wait]
  if not resource.first_blocker then set_blockers(graph, resource) end
  local first = resource.first_blocker
  return graph.waits[first] == wait and resource.other_blocker or first
end

-- Follows the waits from this one to one that was already visited. `visited`: wait -> its number.
-- → the cycle found | nil
local function walk(graph, wait, visited)
  local path, previous_count = {}, graph.visited_count
  while not visited[wait] do
    path[#path + 1] = wait
    graph.visited_count = graph.visited_count + 1
    visited[wait] = graph.visited_count
    wait.holder = find_blocker(graph, wait)
    wait = graph.waits[wait.holder]
  end
  -- if an earlier walk visited it
  if visited[wait] <= previous_count then return nil end -- any locale: compares numbers
  local cycle = {}
  for i = visited[wait] - previous_count, #path do cycle[#cycle + 1] = path[i] end
  return cycle
end

-- `waits`: owner -> its wait. `holders_of(wait)` returns the same list for the same resource.
-- `is_waiting(wait)` returns whether a stuck wait is still waiting. Sets `holder` in each stuck
-- wait.
-- → a list of cycles, each a list of waits
function cycles.find(waits, holders_of, is_waiting)
  local graph = {
    waits = waits, resources = {}, resource_of = {}, held_by = {}, stuck = {}, freed = {},
    visited_count = 0,
  }
  for _, wait in pairs(waits) do
    if not graph.resource_of[wait] then add(graph, wait, holders_of(wait)) end
  end
  for _, resource in pairs(graph.resources) do count_stuck(graph, resource) end
  for _, resource in pairs(graph.resources) do free_waits(graph, resource) end
  propagate(graph)
  local stuck = {}
  for wait in pairs(graph.stuck) do stuck[#stuck + 1] = wait end
  for _, wait in ipairs(stuck) do
    if not is_waiting(wait) then mark_free(graph, wait) end
  end
  propagate(graph)
  local list, visited = {}, {}
  for wait in pairs(graph.stuck) do list[#list + 1] = walk(graph, wait, visited) end
  return list
end

return cycles
