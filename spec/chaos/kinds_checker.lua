-- Rules for the history of a chaos round of kinds (spec/chaos/kinds_worker.lua):
--
--   alone    no reader or other writer is valid together with a writer, and no other owner together
--            with an owner of a fair lock
--   permits  no more permits are valid than exist; those of a plain semaphore are in use until they
--            are given back
--   count    at the end all permits of a plain semaphore are free, except those that killed
--            processes may have
--   terms    no term begins before another one is over
--   token    a writer, a fair lock's owner or a leader that began after another had begun has the
--            higher token
--   once     the function of an idempotent run is called once per key
--   whole    some time after the last fault no call fails, and no caller waits longer than a grant
--            lease for a free lock
--   latch    a wait ends at 0, not before; each call counts once

local check_rising = require "spec.chaos.tokens"

local kinds = {}

local huge = math.huge

local function of_key(ops, key)
  local list = {}
  for _, op in ipairs(ops) do
    if op.key == key then list[#list + 1] = op end
  end
  return list
end

-- ---- who is valid when ----

-- Returns an interval for each claim: from its reading to its end, or to the call that releases it.
local function claims_of(ops)
  local ends, list = {}, {}
  for _, op in ipairs(ops) do
    if op.what == "release" then ends[op.owner] = op.start end
  end
  for _, op in ipairs(ops) do
    if op.what == "claim" then
      local to = math.min(op.valid, ends[op.owner] or huge)
      if to > op.stop then list[#list + 1] = { from = op.stop, to = to, op = op } end
    end
  end
  return list
end

-- Returns an interval for each term: from the first to the last time that it was seen running.
local function terms_of(ops)
  local list, by_owner = {}, {}
  for _, op in ipairs(ops) do
    if op.what == "leads" then
      local term = by_owner[op.owner]
      if not term then
        term = { from = op.stop, to = op.stop, op = op }
        by_owner[op.owner], list[#list + 1] = term, term
      end
      term.to = math.max(term.to, op.start)
    end
  end
  return list
end

-- Calls visit(interval, open) for each interval, in the order in which they begin. `open`: owner →
-- one of its intervals that has not ended.
local function sweep(intervals, visit)
  local open = {}
  table.sort(intervals, function(a, b) return a.from < b.from end)
  for _, mine in ipairs(intervals) do
    for owner, other in pairs(open) do
      if other.to <= mine.from then open[owner] = nil end
    end
    local problem = visit(mine, open)
    if problem then return problem end
    local before = open[mine.op.owner]
    if not before or before.to < mine.to then open[mine.op.owner] = mine end
  end
end

local function both_hold(rule, mine, other)
  return { rule = rule, at = mine.from, key = mine.op.key, op = mine.op, other = other.op,
    text = ("%s and %s both have it"):format(other.op.owner, mine.op.owner) }
end

local function check_alone(rule, intervals)
  return sweep(intervals, function(mine, open)
    for owner, other in pairs(open) do
      local readers = mine.op.mode == "read" and other.op.mode == "read"
      if owner ~= mine.op.owner and not readers then return both_hold(rule, mine, other) end
    end
  end)
end

local function check_permits(intervals, permits)
  return sweep(intervals, function(mine, open)
    local sum = tonumber(mine.op.permits)
    for owner, other in pairs(open) do
      if owner ~= mine.op.owner then sum = sum + tonumber(other.op.permits) end
    end
    if sum > permits then
      return { rule = "permits", at = mine.from, key = mine.op.key, op = mine.op,
        text = ("%d permits of %d are held"):format(sum, permits) }
    end
  end)
end

-- ---- the plain semaphore ----

-- Returns an interval for each take: from its end to the call that gives the permits back.
local function takes_until_given(ops)
  local given, list = {}, {}
  for _, op in ipairs(ops) do
    if op.what == "give" then given[op.owner] = op end
  end
  for _, op in ipairs(ops) do
    if op.what == "take" and op.result == "ok" then
      local give = given[op.owner]
      list[#list + 1] = { from = op.stop, to = give and give.start or huge, op = op }
    end
  end
  return list, given
end

-- → how many permits a take certainly has at the end, how many it may have
local function kept_by(take, give, finished)
  local permits = tonumber(take.permits)
  if take.result == "ok" and not give then return permits, permits end
  local done = take.result == "ok" and give.result == "ok" or take.result == "busy"
  return 0, (done or finished[take.by]) and 0 or permits
end

-- A process that ends by itself has completed or undone everything in doubt, unless closing its
-- client timed out.
local function check_count(ops, all, permits, timeout)
  local finished, least, most, free = {}, 0, 0, nil
  local _, given = takes_until_given(ops)
  for _, op in ipairs(all) do
    if op.what == "end" then finished[op.by] = op.stop - op.start < timeout end
  end
  for _, op in ipairs(ops) do
    if op.what == "free" then free = op end
    if op.what == "take" then
      local certain, possible = kept_by(op, given[op.owner], finished)
      least, most = least + certain, most + possible
    end
  end
  local kept = free and permits - tonumber(free.left)
  if not free or kept >= least and kept <= most then return end
  return { rule = "count", at = free.stop, key = free.key, op = free,
    text = ("%d permits of %d are free, %d to %d are kept"):format(free.left, permits, least, most) }
end

-- ---- tokens ----

local function takes_of(ops)
  local list, seen = {}, {}
  for _, op in ipairs(ops) do
    local is_first = op.what == "acquire" and op.result == "ok" and op.mode ~= "read"
      or op.what == "leads" and not seen[op.owner]
    if is_first and op.token then
      seen[op.owner or ""] = true
      list[#list + 1] = op
    end
  end
  return list
end

-- ---- idempotent runs ----

local function check_once(ops)
  local ran = {}
  for _, op in ipairs(ops) do
    if op.what == "ran" then
      if ran[op.key] then
        return { rule = "once", at = op.stop, key = op.key, op = op, other = ran[op.key],
          text = ("%s ran twice"):format(op.key) }
      end
      ran[op.key] = op
    end
  end
end

-- ---- after the last fault ----

local NOTICED = 0.3 -- seconds, besides a grant lease, that a free lock may take on a busy machine
local FAILS = { denied = true, unreachable = true, server = true }

-- Returns an interval for each hold: from the start of its acquire to the end of its release. If
-- that failed, even with `lost`, a renewal with a late reply may have extended the lock on the
-- server, so the interval is a lease longer.
local function holds_of(ops, lease)
  local given, list = {}, {}
  for _, op in ipairs(ops) do
    if op.what == "release" then given[op.owner] = op end
  end
  for _, op in ipairs(ops) do
    if op.what == "acquire" and op.result == "ok" then
      local give = given[op.owner]
      local to = give and give.stop + (give.result == "ok" and 0 or lease) or huge
      list[#list + 1] = { from = op.start, to = to, op = op }
    end
  end
  table.sort(list, function(a, b) return a.from < b.from end)
  return list
end

-- → the longest uninterrupted time, within the call and after `from`, in which nobody else held the
-- lock; when it began
local function longest_gap(holds, op, from)
  local longest, since, free_from = 0, from, math.max(op.start, from)
  local function note(till)
    if till - free_from > longest then longest, since = till - free_from, free_from end
  end
  for _, hold in ipairs(holds) do
    if hold.from >= op.stop then break end
    if hold.op ~= op then
      note(hold.from)
      free_from = math.max(free_from, hold.to)
    end
  end
  note(op.stop)
  return longest, since
end

-- → the keys of the locks for which two tasks contend
local function pairs_of(ops)
  local list, known = {}, {}
  for _, op in ipairs(ops) do
    if op.mode == "pair" and not known[op.key] then
      known[op.key], list[#list + 1] = true, op.key
    end
  end
  return list
end

local NEAR = 0.5 -- seconds before and after
-- More replies than a call waits for in sequence: to connect over TLS, to log in, to send a
-- command.
local REPLIES = 8

-- Returns how slow the machine was: the longest time that another process waited for the reply to a
-- release. Without faults only a slow machine makes a reply late.
local function slowest_reply(ops, by, from, to)
  local slowest = 0
  for _, op in ipairs(ops) do
    if op.start > to + NEAR then break end
    local is_prompt = (op.what == "release" or op.what == "give") and op.result == "ok"
    if is_prompt and op.by ~= by and op.stop > from - NEAR then
      slowest = math.max(slowest, op.stop - op.start)
    end
  end
  return slowest
end

-- Returns whether the machine was too slow for the time that the call gave the server. A call that
-- fails sooner has found a connection attempt that had timed out.
local function was_late(ops, op, timeout)
  if op.result ~= "unreachable" then return false end
  local wait, given = op.wait or 0, timeout
  if wait > 0 and op.stop - op.start >= wait then given = math.min(wait, timeout) end
  return given < REPLIES * slowest_reply(ops, op.by, op.start - given, op.stop)
end

-- A wait for a free lock may take a grant lease, and the time for slow replies.
local function check_wait(ops, holds, op, whole)
  local gap, since = longest_gap(holds, op, whole.from)
  local over = gap - whole.grant - NOTICED
  if over <= 0 or over <= REPLIES * slowest_reply(ops, op.by, since, since + gap) then return end
  return { rule = "whole", at = op.stop, key = op.key, op = op,
    text = ("it waited while %s was free for %.1f s"):format(op.key, gap) }
end

-- `whole`: { from = when everything must work again, grant = the grant lease, lease = the longest
-- lease, timeout = a command's }
local function check_whole(ops, whole)
  for _, op in ipairs(ops) do
    if op.start >= whole.from and FAILS[op.result] and not was_late(ops, op, whole.timeout) then
      return { rule = "whole", at = op.stop, key = op.key, op = op,
        text = ("%s failed as %s although nothing is wrong any more"):format(op.what, op.result) }
    end
  end
  for _, key in ipairs { "own", "fair", (table.unpack or unpack)(pairs_of(ops)) } do
    local own = of_key(ops, key)
    local holds = holds_of(own, whole.lease)
    for _, op in ipairs(own) do
      local waited = op.what == "acquire" and (op.result == "busy" or op.result == "ok")
      local problem = waited and op.stop >= whole.from and check_wait(ops, holds, op, whole)
      if problem then return problem end
    end
  end
end

-- ---- the latch ----

-- → how many calls had begun before a time, how many had returned by then that they counted
local function counted(downs, time)
  local begun, told = 0, 0
  for _, op in ipairs(downs) do
    if op.start < time and op.result ~= "open" then begun = begun + 1 end
    if op.stop < time and op.result == "ok" then told = told + 1 end
  end
  return begun, told
end

local function check_latch(ops, size)
  local downs, lefts = {}, {}
  for _, op in ipairs(ops) do
    if op.what == "down" then downs[#downs + 1] = op end
  end
  local function problem(op, text)
    return { rule = "latch", at = op.stop, key = op.key, op = op, text = text }
  end
  for _, op in ipairs(downs) do
    local left = tonumber(op.left)
    if left and lefts[left] then return problem(op, ("two calls counted to %d"):format(left)) end
    if left then lefts[left] = op end
    local begun = left and counted(downs, op.stop)
    if left and begun < size - left then
      return problem(op, ("%d are to come after %d calls"):format(left, begun))
    end
  end
  for _, op in ipairs(ops) do
    local begun, told = counted(downs, op.what == "await" and op.result == "timeout" and op.start
      or op.stop)
    if op.what == "await" and op.result == "ok" and begun < size then
      return problem(op, ("it is open after %d calls"):format(begun))
    elseif op.what == "await" and op.result == "timeout" and told >= size then
      return problem(op, ("it is closed after %d calls"):format(told))
    end
  end
end

-- ---- all ----

-- `run`: { ops, permits = the semaphore's, latch = its count, timeout = a command's, whole = as for
-- check_whole, or nil }
-- → list of { rule, text, at, key, op, other }
function kinds.check(run)
  local found = {}
  local function note(problem) found[#found + 1] = problem end
  local locks = { "rw", "fair", "own", (table.unpack or unpack)(pairs_of(run.ops)) }
  for _, key in ipairs(locks) do
    note(check_rising(takes_of(of_key(run.ops, key))))
    note(check_alone("alone", claims_of(of_key(run.ops, key))))
  end
  note(check_rising(takes_of(of_key(run.ops, "boss"))))
  note(check_once(run.ops))
  if run.whole then note(check_whole(run.ops, run.whole)) end
  note(check_alone("terms", terms_of(of_key(run.ops, "boss"))))
  note(check_permits(claims_of(of_key(run.ops, "pool")), run.permits))
  local places = of_key(run.ops, "places")
  note(check_permits(takes_until_given(places), run.permits))
  note(check_count(places, run.ops, run.permits, run.timeout))
  note(check_latch(of_key(run.ops, "gate"), run.latch))
  return found
end

return kinds
