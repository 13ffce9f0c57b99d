-- Did it act like a lock? Rules for the history of a chaos run (spec/chaos/history.lua):
--
--   order      there is an order of all operations on a key, each between its call and its
--              result, that the model of the lock (spec/chaos/model.lua) can follow
--   exclusion  no two owners were locally valid at the same time
--   token      a hold that began after another had begun has the higher token
--   fence      the store has accepted no older token after a newer one, and never refused the
--              holder
--   bound      every call of holdfast returned in time, as long as its process was running
--   unnoticed  if only a minority of the servers had faults, no acquire noticed them, unless the
--              other servers were slow. (A holder may notice: its hold can be on a bare majority
--              for a while.)
--   kept       if only slots moved, and every hold is renewed, no hold was lost

local check_rising = require "spec.chaos.tokens"
local model = require "spec.chaos.model"

local max, min, huge = math.max, math.min, math.huge

local MAX_STATES = 20000 -- for one result; a history that needs more is too complex to judge
local LEAVE = 1           -- seconds that a waiter may take to leave
local SLACK = 5           -- seconds for a busy machine
local PROMPT = 0.09       -- seconds; less than a quorum waits for its slower servers
local LINGER = 5          -- seconds in which an operation may still take effect; no fault is longer

local checker = {}

-- ---- what the operations mean for the model ----

local LOSING = { release = true, check = true, extend = true, acquire = true }

local function effect_of(op, reports)
  local result = op.result
  if op.what == "claim" or op.what == "forget" then return op.what end
  if op.what == "force" then
    if result == "false" then return "free" end
    return "forget", result ~= "true"
  end
  if op.what == "look" then return result == "false" and not reports and "free" or nil end
  if (result == "lost" or result == "not_held") and LOSING[op.what] then
    return op.count > 0 and "lost" or nil
  end
  if op.what ~= "drop" and (result == "ok" or result == "true") then return op.what end
  if op.what == "drop" or op.what == "release" and op.count == 1 then return "drop", true end
  if op.what == "release" and op.count > 1 and result then return "drop" end
  if op.what == "extend" and op.count > 0 then return "doubt", result == nil end
end

-- An operation that may or may not have happened belongs to a hold, and remains open until the hold
-- is over. If it belongs to none, it is open for as long as a fault can delay it.
local function leave_open(op)
  if op.what ~= "force" and op.owner ~= "shared" then
    op.finish = huge
  else
    op.maybe, op.optional = false, true
    op.finish = min(op.stop, op.start + LINGER) + LINGER
  end
end

-- Sets the effects of the operations on a key, and the token of the hold that they are about. A
-- failed acquire has no effect that the other operations could reveal.
local function prepare(ops, grant, reports)
  local tokens, list = {}, {}
  for _, op in ipairs(ops) do
    op.count, op.grant = tonumber(op.count) or 0, grant
    if op.what == "acquire" and op.token then tokens[op.owner] = op.token end
    if op.what ~= "force" and op.owner then op.of = op.token or tokens[op.owner] end
    op.effect, op.maybe = effect_of(op, reports)
    op.finish = op.stop
    if op.maybe then leave_open(op) end
    if op.effect and (op.finish < huge or op.maybe) then list[#list + 1] = op end
  end
  return list
end

-- ---- the order ----

local function events_of(ops)
  local events = {}
  for _, op in ipairs(ops) do
    events[#events + 1] = { time = op.start, op = op, is_call = true }
    if op.finish < huge then events[#events + 1] = { time = op.finish, op = op } end
  end
  table.sort(events, function(a, b)
    if a.time ~= b.time then return a.time < b.time end
    if a.is_call ~= b.is_call then return a.is_call or false end
    return a.op.number < b.op.number
  end)
  return events
end

-- A configuration: a state, and which of the pending operations have taken effect.
local function key_of(state, done)
  local numbers = {}
  for number in pairs(done) do numbers[#numbers + 1] = number end
  table.sort(numbers)
  return model.key(state) .. "/" .. table.concat(numbers, ",")
end

local function add(set, state, done)
  local key = key_of(state, done)
  if set.known[key] then return false end
  set.known[key] = true
  set[#set + 1] = { state = state, done = done }
  return true
end

local function new_set() return { known = {} } end

local function changed(done, number, value)
  local copy = {}
  for each in pairs(done) do copy[each] = true end
  copy[number] = value
  return copy
end

-- Returns all configurations in which `op`, whose result arrives now, has taken effect.
local function answer(configurations, pending, op, now)
  local reached, result = new_set(), new_set()
  for _, each in ipairs(configurations) do
    if each.done[op.number] then
      add(result, each.state, changed(each.done, op.number, nil))
    else
      add(reached, each.state, each.done)
    end
  end
  local at = 1
  while reached[at] do
    local state, done = reached[at].state, reached[at].done
    for _, other in ipairs(pending) do
      for _, after in ipairs(not done[other.number] and model.apply(state, other, now) or {}) do
        if other == op then add(result, after, done) else add(reached, after,
          changed(done, other.number, true)) end
      end
    end
    at = at + 1
    if at > MAX_STATES then return nil end
  end
  return result
end

-- Drops operations without a result that can no longer have an effect, because their hold is over
-- in every configuration.
local function drop_outdated(pending, configurations)
  local least = huge
  for _, each in ipairs(configurations) do
    least = min(least, each.state.token or each.state.last + 1)
  end
  for i = #pending, 1, -1 do
    local op = pending[i]
    if op.maybe and op.of and op.of < least then
      table.remove(pending, i)
      for _, each in ipairs(configurations) do each.done[op.number] = nil end
    end
  end
end

local function remove(list, value)
  for i, each in ipairs(list) do
    if each == value then return table.remove(list, i) end
  end
end

local function state_in_words(state, origin)
  if not state.owner then return ("free, last token %.0f"):format(state.last) end
  return ("%s x%d, token %.0f, valid until %.3f or longer"):format(state.owner, state.count or 0,
    state.token,
    state.valid - origin)
end

-- → nil, or what is wrong
local function check_order(ops, origin)
  local configurations, pending = new_set(), {}
  add(configurations, model.new(), {})
  for _, event in ipairs(events_of(ops)) do
    local op = event.op
    if event.is_call then
      pending[#pending + 1] = op
    else
      local after = answer(configurations, pending, op, event.time)
      if not after or #after == 0 then
        local before = state_in_words(configurations[#configurations].state, origin)
        return {
          rule = "order", at = event.time, op = op,
          text = after and "the last operation below fits in no order with those before it; the lock was then: " .. before
            or "too many possible orders to judge",
        }
      end
      remove(pending, op)
      configurations = after
      drop_outdated(pending, configurations)
    end
  end
end

-- ---- two holders ----

local ENDS = { release = true, drop = true, extend = true, force = true }

-- Returns when each owner was certainly valid: from the reading of a claim to its end, or to the
-- next call that may end it.
local function intervals_of(ops)
  local next_end, list = {}, {}
  for i = #ops, 1, -1 do
    local op = ops[i]
    if op.owner and ENDS[op.what] then next_end[op.owner] = op.start end
    if op.what == "claim" then
      local to = min(op.valid, next_end[op.owner] or huge)
      if to > op.stop then list[#list + 1] = { from = op.stop, to = to, op = op } end
    end
  end
  table.sort(list, function(a, b) return a.from < b.from end)
  return list
end

-- Returns whether the server had forgotten the claim's lock, and the claim is not newer than that.
local function is_excused(claim, losses, leases)
  local lease = leases[claim.owner]
  for _, loss in ipairs(losses) do
    if claim.start <= loss.stop + lease and loss.start <= claim.valid and claim.valid <= loss.stop
        + lease then
      return true
    end
  end
  return false
end

local function longest_leases(ops)
  local leases = {}
  for _, op in ipairs(ops) do
    if op.owner then
      leases[op.owner] = max(leases[op.owner] or op.grant, op.lease or 0, op.seconds or 0)
    end
  end
  return leases
end

local function losses_of(ops)
  local losses = {}
  for _, op in ipairs(ops) do
    if op.effect == "forget" then losses[#losses + 1] = op end
  end
  return losses
end

local function check_exclusion(ops)
  local losses, leases, open = losses_of(ops), longest_leases(ops), {}
  for _, mine in ipairs(intervals_of(ops)) do
    for owner, other in pairs(open) do
      if other.to <= mine.from then
        open[owner] = nil
      elseif owner ~= mine.op.owner and not is_excused(other.op, losses, leases)
          and not is_excused(mine.op, losses, leases) then
        return {
          rule = "exclusion", at = mine.from, op = mine.op, other = other.op,
          text = ("%s and %s both hold it"):format(owner, mine.op.owner),
        }
      end
    end
    local before = open[mine.op.owner]
    if not before or before.to < mine.to then open[mine.op.owner] = mine end
  end
end

-- ---- tokens ----

local function check_tokens(ops)
  local takes = {}
  for _, op in ipairs(ops) do
    if op.what == "acquire" and op.result == "ok" and op.owner ~= "shared" and op.holds == 1 then
      takes[#takes + 1] = op
    end
  end
  return check_rising(takes)
end

-- ---- the store ----

-- `log`: lines "KEY TOKEN OWNER ACCEPTED", in the order in which the store saw them
local function check_store_log(log)
  local last = {}
  for _, line in ipairs(log) do
    local key, token, owner, accepted = line:match("^(%S+) (%S+) (%S+) (%d)$")
    token = tonumber(token)
    if accepted == "1" and token < (last[key] or 0) then
      return { rule = "fence", at = huge, text = ("the store accepted %s of %s after a newer token"):format(line, owner) }
    end
    if accepted == "1" then last[key] = token end
  end
end

-- An owner that is valid before and after a write had the newest token in between.
local function check_writes(ops)
  local losses, leases, refused = losses_of(ops), longest_leases(ops), {}
  for _, op in ipairs(ops) do
    local owner = op.owner
    if op.what == "write" then
      refused[owner] = op.accepted == 0 and owner ~= "shared" and op or nil
    elseif op.what == "claim" and refused[owner] and refused[owner].token == op.token
        and not is_excused(op, losses, leases) then
      return { rule = "fence", at = op.stop, op = op, other = refused[owner],
        text = "the store refused the holder's write" }
    elseif owner and op.what ~= "claim" then
      refused[owner] = nil
    end
  end
end

-- ---- bounds ----

local function paused(op, pauses)
  local sum = 0
  for _, pause in ipairs(pauses[op.by] or {}) do
    sum = sum + max(0, min(op.stop, pause.to) - max(op.start, pause.from))
  end
  return sum
end

-- `finished`: name -> true for processes that ended by themselves
local function check_bounds(ops, pauses, finished, timeout)
  for _, op in ipairs(ops) do
    local is_open = op.stop == huge
    local took = is_open and 0 or op.stop - op.start - paused(op, pauses)
    local bound = max(op.wait or 0, timeout) + timeout + LEAVE + SLACK
    if op.what ~= "fault" and op.what ~= "forget" and not op.theirs
        and (took > bound or is_open and finished[op.by]) then
      return {
        rule = "bound", at = min(op.stop, op.start + 100), op = op,
        text = is_open and "it never came back" or ("it took %.1f s"):format(took),
      }
    end
  end
end

local function check_unnoticed(ops, pauses)
  for _, op in ipairs(ops) do
    local is_first = op.what == "acquire" and tonumber(op.count) == 0 and op.stop
      - op.start < PROMPT
    if is_first and (op.result == "unreachable" or op.result == "no_quorum")
        and paused(op, pauses) == 0 then
      return { rule = "unnoticed", at = op.stop, op = op,
        text = "a minority of the servers was enough to stop an acquire" }
    end
  end
end

local function check_kept(ops)
  for _, op in ipairs(ops) do
    if op.result == "lost" then
      return { rule = "kept", at = op.stop, op = op, text = "a hold was lost while slots moved" }
    end
  end
end

-- ---- all ----

local function by_key(ops)
  local keys, names = {}, {}
  for _, op in ipairs(ops) do
    if op.key and not keys[op.key] then
      keys[op.key] = {}
      names[#names + 1] = op.key
    end
  end
  for _, op in ipairs(ops) do
    for _, key in ipairs(names) do
      if op.key == key then keys[key][#keys[key] + 1] = op end
    end
    if op.what == "forget" and not op.key then
      for _, key in ipairs(names) do
        local copy = {}
        for name, value in pairs(op) do copy[name] = value end
        copy.key = key
        keys[key][#keys[key] + 1] = copy
      end
    end
  end
  table.sort(names)
  return keys, names
end

-- `run`: { ops, log = the store's, grant, timeout, pauses = { name = { { from, to } } },
--   finished = { name = true },
--   unnoticed = whether only a minority of the servers had faults,
--   kept = whether only slots moved,
--   reports = whether it is a quorum, whose is_locked is only a report }
-- → list of { rule, text, at, key, op, other }, empty if no rule is broken
function checker.check(run)
  local found = {}
  local function note(problem, key)
    if problem then
      problem.key = key
      found[#found + 1] = problem
    end
  end
  local keys, names = by_key(run.ops)
  local origin = run.ops[1] and run.ops[1].start or 0
  for _, key in ipairs(names) do
    local effective = prepare(keys[key], run.grant, run.reports)
    note(check_tokens(keys[key]), key)
    note(check_exclusion(keys[key]), key)
    note(check_order(effective, origin), key)
    note(check_writes(keys[key]), key)
  end
  note(check_store_log(run.log or {}))
  note(check_bounds(run.ops, run.pauses or {}, run.finished or {}, run.timeout))
  if run.unnoticed then note(check_unnoticed(run.ops, run.pauses or {})) end
  if run.kept then note(check_kept(run.ops)) end
  return found
end

return checker
