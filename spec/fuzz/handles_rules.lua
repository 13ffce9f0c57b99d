-- The rules of handles.lua about holds, by what each handle should count:
--
--   gone       a client counts at least as many holds as its caller's handles, unless it reports a
--              loss
--   exclusion  no two callers hold an exclusive lock by their own clocks, and no more permits are
--              held than there are
--   left       after the close, nothing is left on a server that a lease does not explain
--
-- A handle's `counts` has the holds of each caller that no release has ended; the place 0 is for
-- all callers of a shared owner or of a permit.

local core = require "holdfast.core"

local raw = core.lock

local PERMITS = 3 -- of each semaphore

local rules = { PERMITS = PERMITS, OWNER = "team" }

-- ---- counting ----

function rules.place(handle, caller) return handle.alone and 0 or caller end

local ACQUIRES = { acquire = true, acquire_all = true }
local RELEASES = { release = true, release_all = true, complete = true }
local OVER = { lost = true, not_held = true }
local REFUSED = { conflict = true, busy = true } -- the release has not begun

rules.RELEASES = RELEASES

-- If the client counts one hold, what this handle counted before was lost during the acquire.
local function note_acquired(handle, place)
  local again = raw.holds(handle.lock, math.max(place, 1) + 1) > 1
  handle.counts[place] = again and (handle.counts[place] or 0) + 1 or 1
end

-- Notes what the handles count after this operation. ok: whether it succeeded; code: else why not;
-- neither if nobody has taken its result.
function rules.note_end(op, ok, code)
  for _, handle in ipairs(op.handles) do
    local place = rules.place(handle, op.caller)
    if ACQUIRES[op.verb] and ok then
      note_acquired(handle, place)
    elseif RELEASES[op.verb] and OVER[code] then
      handle.counts[place] = 0
    elseif RELEASES[op.verb] and not REFUSED[code] then
      handle.counts[place] = math.max(0, (handle.counts[place] or 0) - 1)
    end
  end
end

-- ---- the rule "gone" ----

local function claim_name(handle, place) return handle.name .. " of caller " .. place end

-- → the set of claims about which an operation is under way: name → "releases" or "other"
local function pending_claims(member)
  local pending = {}
  for _, list in ipairs { member.ops, member.loose } do
    for _, op in ipairs(list) do
      for _, handle in ipairs(op.handles) do
        local name = claim_name(handle, rules.place(handle, op.caller))
        pending[name] = (RELEASES[op.verb] or pending[name] == "releases") and "releases" or "other"
      end
    end
  end
  return pending
end

-- Calls see(handle, place, number, name) for each caller that the handle counts holds of.
local function each_count(world, member, see)
  for _, handle in ipairs(member.handles) do
    for place = 0, #member.callers do
      if (handle.counts[place] or 0) > 0 then
        see(handle, place, world.number_of(math.max(place, 1)), claim_name(handle, place))
      end
    end
  end
end

-- Adds what a handle says to the claim that it belongs to. Counts end with a loss.
local function add_to_claim(world, claim, handle, place, number)
  local held, why = raw.is_held(handle.lock, number), raw.lost(handle.lock, number)
  claim.lost = claim.lost or why
  if not held and (why or world.tainted) then handle.counts[place] = 0 end
  claim.counts = claim.counts + handle.counts[place]
  claim.holds = math.max(claim.holds, raw.holds(handle.lock, number))
end

local function check_gone(world, member)
  local pending, claims, names = pending_claims(member), {}, {}
  each_count(world, member, function(handle, place, number, name)
    if not claims[name] then
      names[#names + 1] = name
      claims[name] = { counts = 0, holds = 0 }
    end
    add_to_claim(world, claims[name], handle, place, number)
  end)
  for _, name in ipairs(names) do
    local claim = claims[name]
    if claim.counts > claim.holds and not claim.lost and not pending[name] then
      world:note("gone", "client %d: %s: the handles count %d, the client %d, without a loss",
        member.n, name, claim.counts, claim.holds)
    end
  end
end

-- ---- the rule "exclusion" ----

local function add_holder(world, holders, handle, who)
  local of = holders[handle.key] or { permits = 0 }
  holders[handle.key] = of
  if handle.kind == "permit" then
    of.permits = of.permits + handle.permits
    if of.permits > PERMITS then
      world:note("exclusion", "%d permits of %s are held", of.permits, handle.key)
    end
    return
  end
  local writes = handle.kind ~= "read"
  local other = of.writer or writes and of.reader
  if other and other ~= who then
    world:note("exclusion", "%s: %s and %s hold it", handle.key, other, who)
  end
  if writes then of.writer = who else of.reader = who end
end

-- A caller that has begun to release does not count. Whether the lock is held must be asked of all
-- clients at the same time.
local function check_exclusion(world)
  local holders = {}
  for _, member in ipairs(world.members) do
    local pending = pending_claims(member)
    each_count(world, member, function(handle, place, number, name)
      if pending[name] == "releases" or not raw.is_held(handle.lock, number) then return end
      local who = handle.shared and "the shared owner"
        or ("caller %d of client %d"):format(place, member.n)
      add_holder(world, holders, handle, who)
    end)
  end
end

function rules.check(world)
  for _, member in ipairs(world.members) do check_gone(world, member) end
  if not world.tainted then check_exclusion(world) end
end

-- ---- the rule "left" ----

-- Kept on purpose: tokens, and the names of clients.
local KEPT = { "^redisson_lock_token:", "^holdfast_client:" }

local function is_kept(key)
  for _, pattern in ipairs(KEPT) do
    if key:find(pattern) then return true end
  end
end

-- Returns whether a lease explains the key: the release of a shared owner is sent only once, the
-- end of a guard's run that was abandoned leaves it taken, another one a record, a caller a note of
-- its wait, and a deleted read lock the times of its readers.
local function has_lease(world, key, entry)
  local values = entry.kind == "hash" and entry.value.values or {}
  return entry.expires and (values[rules.OWNER] or values.print or key:find("^holdfast_wait:")
    or world.tainted and key:find(":rwlock_timeout:"))
end

-- Returns whether the queue of a deleted lock has only the record of foreign clients, whose score
-- is below -1. The next release would have removed it; it expires with its queue.
local function is_record(world, entry)
  local scores = entry.kind == "zset" and entry.value.scores or {}
  return world.tainted and entry.expires and #scores == 1 and scores[1] < -1
end

-- Calls see(server, key, entry) for all keys that are left on the servers.
local function each_key(world, see)
  for i, server in ipairs(world.servers) do
    server:read_clock()
    for _, database in pairs(server.databases) do
      for _, key in ipairs(database:keys()) do see(i, key, database:find(key)) end
    end
  end
end

-- A semaphore without holders has all of its permits.
local function is_free(key, entry)
  return key:find("^p") and entry.kind == "string" and tonumber(entry.value) == PERMITS
end

-- Checks the servers once the clients have nothing left to undo. leases: whether leases are still
-- running
function rules.check_left(world, leases)
  each_key(world, function(i, key, entry)
    local explained = is_kept(key) or is_free(key, entry) or is_record(world, entry)
      or leases and has_lease(world, key, entry)
    if explained then return end
    world:note("left", "server %d has %s, a %s, %s leases", i, key, entry.kind,
      leases and "not explained by" or "after all")
  end)
end

return rules
