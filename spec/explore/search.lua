-- Searches a small world: runs it in every order with a limited number of departures from the
-- deterministic one, a fault being one of them.
--
-- The orders with one departure come before those with two, so the first one that breaks a rule is
-- one of the shortest that do. Each path is run from its start: a fork of the process at the
-- departure and its end cost 2 to 3 ms of processor, a whole run 1.6 to 4 ms.

local Order = require "spec.explore.order"
local simulator = require "spec.sim.simulator"

local search = {}

-- The departures of a node are a list whose last one it has itself.
local function departures_of(node)
  local list = {}
  while node.before do
    table.insert(list, 1, node.departure)
    node = node.before
  end
  return list
end

-- Runs a world with these departures; options: those of simulator.run. → result, order
function search.run(world, departures, states, options)
  local order, settings = Order.new(departures, states), { order = nil }
  for name, value in pairs(options or {}) do settings[name] = value end
  settings.order = order
  return simulator.run(world.plan, settings), order
end

local function add_children(node, order, world, level)
  for _, departure in ipairs(order:next_departures(world.faults)) do
    level[#level + 1] = { before = node, departure = departure }
  end
end

-- Runs all of a level. → the next level | nil: a rule is broken, or the time limit has passed
local function run_level(self, level, is_last)
  local next_level = {}
  for _, node in ipairs(level) do
    if self.over and self.over() then return nil end
    local departures = departures_of(node)
    local result, order = search.run(self.world, departures, self.states, self.options)
    self.paths, self.events = self.paths + 1, self.events + result.events
    order.is_cut = result.found == Order.KNOWN
    if result.found and result.found ~= Order.KNOWN and result.found ~= Order.VOID then
      self.found, self.departures = result.found, departures
      return nil
    end
    if result.found == Order.VOID then self.void = self.void + 1
    elseif not is_last then add_children(node, order, self.world, next_level) end
  end
  return next_level
end

-- bound: the most departures; options: those of simulator.run; over: a function that returns
-- whether the time limit has passed, or nil.
-- → { paths, void and events: how many were run; states: how many there were; bound: the most
-- departures for which it was completed, -1: not even without one; complete: whether there are no
-- orders with more; found and departures: what broke a rule, and how, or nil }
function search.world(world, bound, options, over)
  local self = { world = world, states = {}, options = options, over = over, paths = 0, void = 0,
    events = 0, bound = -1 }
  local level = { {} }
  for departures = 0, bound do
    level = run_level(self, level, departures == bound)
    if not level then break end
    self.bound = departures
    if #level == 0 then
      self.complete = departures < bound
      break
    end
  end
  local count = 0
  for _ in pairs(self.states) do count = count + 1 end
  self.states = count
  return self
end

return search
