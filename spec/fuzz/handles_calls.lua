-- The operations of one run of handles.lua: how callers begin them, and how they end.
--
-- An operation: { op = the core's, verb, caller, handles = those that it is about, number = its
-- seconds }. A caller has one at a time. One that was dropped is in member.loose until the next
-- collection.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local rules = require "spec.fuzz.handles_rules"

local raw = core.lock

local WAITS = { 0, 0.5, 5, math.huge }

local calls = {}

local function is_calling(member, caller)
  for _, op in ipairs(member.ops) do
    if op.caller == caller then return true end
  end
end

local function label(op)
  local numbers = {}
  for i, handle in ipairs(op.handles) do numbers[i] = handle.number end
  return ("%s by caller %d, handle %s"):format(op.verb, op.caller, table.concat(numbers, " "))
end

local function begin(world, member, op, fn, ...)
  world:say(member, "begins %s", label(op))
  local given = { ... }
  op.op = world:as(member, op.caller, function() return (world:call(fn, compat.unpack(given))) end)
  table.insert(member.ops, op)
end

local VERBS = { "acquire", "acquire", "acquire", "release", "release", "extend", "check", "info",
  "force_release" }

local function verb_for(world, handle, left)
  local prng = world.prng
  local verb = prng:pick(VERBS)
  if verb == "force_release" and (not world.tainted or handle.kind == "permit"
    or prng:chance(70)) then
    return "check"
  end
  if verb ~= "release" then return verb end
  if left <= 0 then return "acquire" end
  return handle.kind == "guard" and prng:chance(50) and "complete" or verb
end

local NUMBER = {
  acquire = function(prng) return prng:pick(WAITS) end,
  extend = function(prng) return prng:range(1, 10) end,
  complete = function(prng) return prng:range(0, 2) end,
}

-- → what this caller could still release through the handle
local function left_of(member, handle, caller)
  local place = rules.place(handle, caller)
  local left = handle.counts[place] or 0
  for _, op in ipairs(member.ops) do
    local same = op.handles[1] == handle and rules.place(handle, op.caller) == place
    if same and rules.RELEASES[op.verb] then left = left - 1 end
  end
  return left
end

function calls.begin_one(world, member)
  local handle, caller = world.prng:pick(member.handles), world.prng:range(1, world.callers)
  if is_calling(member, caller) then return end
  local verb = verb_for(world, handle, left_of(member, handle, caller))
  local number = (NUMBER[verb] or function() return 0 end)(world.prng)
  local record = verb == "complete" and "done" or nil
  begin(world, member, { verb = verb, caller = caller, handles = { handle }, number = number },
    raw.begin, handle.lock, verb, number, record)
end

-- → some handles of plain locks with different keys, of which the caller holds those to release
local function choose_several(world, member, caller, verb)
  local handles, seen = {}, {}
  for _, handle in ipairs(member.handles) do
    local suits = handle.kind == "lock" and not handle.shared and not seen[handle.key]
    if suits and (verb == "acquire_all" or (handle.counts[caller] or 0) > 0) and world.prng:chance(80) then
      seen[handle.key] = true
      handles[#handles + 1] = handle
    end
  end
  return handles
end

function calls.begin_several(world, member)
  local caller = world.prng:range(1, world.callers)
  local verb = world.prng:pick { "acquire_all", "release_all" }
  if world.quorum or is_calling(member, caller) then return end
  local handles, locks = choose_several(world, member, caller, verb), {}
  for i, handle in ipairs(handles) do locks[i] = handle.lock end
  if #locks == 0 then return end
  begin(world, member, { verb = verb, caller = caller, handles = handles, number = 0 },
    raw.begin_all, locks, verb)
end

local function note_result(world, member, op, how, result, message, code)
  local shown = type(result) == "userdata" and "the lock" or type(result) == "table" and "a table"
  world:say(member, "%s %s: %s", how, label(op), shown or message or tostring(result))
  rules.note_end(op, result, code)
end

local function finish(world, member, op)
  note_result(world, member, op, "finishes", world:as(member, op.caller, function()
    return world:call(op.op.finish, op.op)
  end))
end

calls.finish = finish

local ENDS = {}

ENDS[1] = finish

ENDS[2] = function(world, member, op)
  world:say(member, "abandons %s", label(op))
  world:call(op.op.abandon, op.op)
  rules.note_end(op)
end

-- Lets the collector abandon the operation.
ENDS[3] = function(world, member, op)
  world:say(member, "drops %s", label(op))
  op.op = nil
  rules.note_end(op)
  table.insert(member.loose, op)
end

-- Only a release that has been sent can continue on its own.
ENDS[4] = function(world, member, op)
  if not rules.RELEASES[op.verb] then return finish(world, member, op) end
  local results = { world:as(member, op.caller, function()
    return world:call(op.op.detach, op.op)
  end) }
  if results[1] == false then return table.insert(member.ops, op) end
  note_result(world, member, op, "detaches", results[1], results[2], results[3])
end

function calls.end_one(world, member)
  if #member.ops == 0 then return end
  local op = table.remove(member.ops, world.prng:range(1, #member.ops))
  ENDS[world.prng:range(1, #ENDS)](world, member, op)
end

-- Finishes about half of the operations that are done.
function calls.finish_done(world, member)
  for i = #member.ops, 1, -1 do
    local op = member.ops[i]
    if op.op:is_done() and world.prng:chance(50) then
      table.remove(member.ops, i)
      finish(world, member, op)
    end
  end
end

return calls
