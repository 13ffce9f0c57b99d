-- What schedules reach: branches of the programs, states of operations and holds, messages, and
-- pairs of them.
--
-- The programs that the server runs get probes, which keep their lines and their meaning: at each
-- function, at each loop, both ways at each condition, and at each right side of an `and` or `or`.
-- The names of places:
--
--   program <name>:<line> <what>     state <state of an operation or a hold>
--   reply <program> <first number>   message <kind> in <state>: received
--   fault <kind> in <state>          step <program> <program>: run in this order by a process
--   change <state> <state>           of a hold
--
-- States need the build of make sim-mutants.

local core = require "holdfast.core"
local lua51 = require "holdfast.testing.redis.lua51"
local programs = require "spec.sim.programs"
local scripting = require "holdfast.testing.redis.scripting"
local wire = require "spec.sim.wire"

local coverage = { on = false }

local seen = {}           -- the places that the running schedule has reached
local total, count = {}, 0 -- the places that any schedule has reached, and their number
local sites = {}          -- number → "program <name>:<line> <what>"

-- ---- probes ----

local function site(name, line, what)
  sites[#sites + 1] = ("program %s:%d %s"):format(name, line, what)
  return #sites
end

local probes = {}

function probes.reached(number)
  seen[number] = true
  return true
end

function probes.tried(number)
  seen[number] = true
  return false
end

function probes.whether(number, value)
  seen[value and number or number + 1] = true
  return value
end

local function both(name, line, text)
  local number = site(name, line, text .. ": true")
  site(name, line, text .. ": false")
  return number
end

local OPENS = { ["if"] = "if", ["elseif"] = "if", ["while"] = "while", ["for"] = "for" }
local CLOSES = { ["then"] = "if", ["do"] = "while" }

-- Rewrites one program, token by token.
local function probe(name, text)
  local lines = {}
  for line in (text .. "\n"):gmatch("([^\n]*)\n") do lines[#lines + 1] = line end
  local out, at, line, open, header = {}, 1, 1, {}, nil
  local function put(template, ...) out[#out + 1] = template:format(...) end
  while at <= #text do
    local token = lua51.token_at(text, at)
    at = at + #token
    local about = lines[line]
    local top = open[#open]
    if OPENS[token] then
      open[#open + 1] = OPENS[token]
      out[#out + 1] = token
      if token ~= "for" then put(" whether(%d, ", both(name, line, token .. " of " .. about)) end
    elseif CLOSES[token] and (top == CLOSES[token] or top == "for") then
      open[#open] = nil
      put("%s%s", top == "for" and "" or ") ", token)
      if top == "for" then put(" reached(%d) ", site(name, line, "loop of " .. about)) end
    elseif token == "and" then
      put("and reached(%d) and", site(name, line, "and of " .. about))
    elseif token == "or" then
      put("or tried(%d) or", site(name, line, "or of " .. about))
    else
      out[#out + 1] = token
      if token == "function" then header = about end
      if header and token == ")" then
        put(" reached(%d) ", site(name, line, header))
        header = nil
      end
    end
    for _ in token:gmatch("\n") do line = line + 1 end
  end
  return table.concat(out)
end

local names = {}
for name, text in pairs(programs) do names[text] = name end

local function instrument(text)
  return names[text] and probe(names[text], text) or text
end

-- Turns coverage on; call it before the first schedule.
function coverage.turn_on()
  coverage.on = true
  scripting.instrument(instrument, probes)
end

-- ---- states ----

local states_of = core.engine.states
local list = {}

-- → the states of the client's operations and holds now
local function states(process)
  if not states_of then return list, 0 end
  return list, states_of(process.client, list)
end

local function mark(name)
  seen[name] = true
end

function coverage.note_states(process)
  local now, size = states(process)
  for i = 1, size do mark("state " .. now[i]) end
end

local function with_states(process, what)
  local now, size = states(process)
  for i = 1, size do mark(what .. " in " .. now[i]) end
  if size == 0 then mark(what .. " in nothing") end
end

function coverage.fault(process, kind)
  if not process.dead then with_states(process, "fault " .. kind) end
end

function coverage.fed(process, bytes)
  for kind in bytes:gmatch("%l+") do
    if wire.MESSAGES[kind] then with_states(process, "message " .. kind) end
  end
end

function coverage.program(process, name, reply)
  local first = reply
  if type(reply) == "table" then first = reply.err and reply.err:match("^%S+") or reply[1] end
  mark(("reply %s %s"):format(name, tostring(first)))
  if process then
    mark(("step %s %s"):format(process.last_program or "-", name))
    process.last_program = name
  end
end

-- ---- the sum ----

function coverage.begin()
  seen = {}
end

-- → how many places the schedule that has ended was the first to reach, and a list of the states
-- among them
function coverage.finish()
  local new, states_of_it = 0, {}
  for name in pairs(seen) do
    if not total[name] then
      total[name] = true
      new = new + 1
      states_of_it[#states_of_it + 1] = type(name) == "string" and name:match("^state (.*)$") or nil
    end
  end
  count = count + new
  table.sort(states_of_it)
  return new, states_of_it
end

-- Returns whether a schedule has reached this place.
function coverage.knows(name)
  return total[name] or false
end

-- → the legal changes of a hold's state: those that were taken, those that were not. Schedules are
-- not kept for them, as changes in a client that is being collected are taken in any schedule.
function coverage.steps()
  local legal, taken, is_taken, missing = {}, {}, {}, {}
  if core.engine.steps then
    collectgarbage()
    core.engine.steps(legal, taken)
  end
  for _, step in ipairs(taken) do is_taken[step] = true end
  for _, step in ipairs(legal) do
    if not is_taken[step] then missing[#missing + 1] = step end
  end
  return taken, missing
end

function coverage.count()
  return count
end

-- As programs share fragments: → how many branches were reached in any program, how many there are,
-- a sorted list of the others; and for each program { name =, reached =, all = }
function coverage.programs()
  local reached_in_any, order, by_name, by_program = {}, {}, {}, {}
  for number, name in ipairs(sites) do
    local program, what = name:match("^program ([%l_]+):%d+ (.*)$")
    if not by_name[program] then
      by_name[program] = { name = program, reached = 0, all = 0 }
      by_program[#by_program + 1] = by_name[program]
    end
    if reached_in_any[what] == nil then
      reached_in_any[what] = false
      order[#order + 1] = what
    end
    reached_in_any[what] = reached_in_any[what] or total[number] or false
    by_name[program].all = by_name[program].all + 1
    by_name[program].reached = by_name[program].reached + (total[number] and 1 or 0)
  end
  local missing = {}
  for _, what in ipairs(order) do
    if not reached_in_any[what] then missing[#missing + 1] = what end
  end
  table.sort(by_program, function(one, other) return one.name < other.name end)
  return #order - #missing, #order, missing, by_program
end

-- → the other places that were reached: kind → a sorted list
function coverage.others()
  local kinds = {}
  for name in pairs(total) do
    if type(name) == "string" then
      local kind, rest = name:match("^(%l+) (.*)$")
      kinds[kind] = kinds[kind] or {}
      table.insert(kinds[kind], rest)
    end
  end
  for _, names_of_kind in pairs(kinds) do table.sort(names_of_kind) end
  return kinds
end

return coverage
