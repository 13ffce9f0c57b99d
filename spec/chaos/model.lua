-- A reentrant mutex with owners, fencing tokens and leases, for one key, as a state that operations
-- change.
--
-- A state has the holder, if there certainly is one (owner, token, count); `valid`, until when
-- nobody else can hold the lock; `lease`, the longest time for which it may run; `last`, the last
-- token; `now`, before which no operation takes effect; and the ghosts: owners whose lock the
-- server has lost without their knowledge.
--
-- An operation is one of the history's, with its `effect`; `of`, the token of its hold; `grant`,
-- the grant lease; `kept`, whether the lock may be lent with the rest of a lease.
--
-- apply(state, op, by) → the states after op has taken effect at some time until `by`; none if it
-- cannot have. States are never changed. Each operation's function tells its conditions and
-- effects. An owner that all processes share has no count, because its processes do not know each
-- other's.

local max, min = math.max, math.min

local MARGIN = 0.002
local LEFT = 1 / 4 -- the least part of a lease that is left when a kept lock is lent

local model = {}

-- Returns until when the holder at least relies on a lease requested at `from`.
function model.lease_end(from, lease)
  return from + lease - min(lease / 100 + 0.002, lease / 4) - MARGIN
end

function model.new() return { last = 0, now = 0, ghosts = {} } end

local function with(state, changes)
  local copy = {}
  for name, value in pairs(state) do copy[name] = value end
  for name, value in pairs(changes) do copy[name] = value end
  return copy
end

local function free(state)
  local copy = with(state, {})
  copy.owner, copy.token, copy.count, copy.valid, copy.lease = nil, nil, nil, nil, nil
  return copy
end

local function without_ghost(state, owner)
  if not state.ghosts[owner] then return state end
  return with(state, { ghosts = with(state.ghosts, { [owner] = false }) })
end

-- Returns a string that is the same for equal states.
function model.key(state)
  local ghosts = {}
  for owner, ghost in pairs(state.ghosts) do
    if ghost then ghosts[#ghosts + 1] = ("%s:%.0f:%.6f"):format(owner, ghost.token, ghost.valid) end
  end
  table.sort(ghosts)
  return ("%s|%.0f|%d|%.6f|%.6f|%.0f|%.6f|%s"):format(state.owner or "", state.token or 0,
    state.count or 0,
    state.valid or 0, state.lease or 0, state.last, state.now, table.concat(ghosts, ","))
end

local function is_shared(op) return op.owner == "shared" end

-- Returns whether the state's holder is this operation's hold.
local function is_holder(state, op)
  return state.owner == op.owner and (is_shared(op) or state.token == op.of)
end

local function ghost_of(state, op)
  local ghost = state.ghosts[op.owner]
  return ghost and (is_shared(op) or ghost.token == op.of) and ghost or nil
end

-- The server has forgotten the holder, but the holder may rely on the lock for the rest of its
-- lease.
local function forget(state, by)
  if not state.owner then return state end
  local ghost = { token = state.token, valid = by + state.lease }
  return with(free(state), { ghosts = with(state.ghosts, { [state.owner] = ghost }) })
end

local apply = {}

local function enter_again(state, op)
  if not is_shared(op) and op.holds ~= state.count + 1 then return {} end
  return { with(state, {
    count = op.holds, valid = max(state.valid, model.lease_end(op.start, op.lease)),
    lease = max(state.lease, op.lease),
  }) }
end

-- Returns the lease until the hold is confirmed.
local function first_lease(op) return min(op.lease, op.grant) * (op.kept and LEFT or 1) end

-- A re-entry has the same token, and adds a hold. A new hold has a higher token, and requires that
-- nobody can hold the lock any more.
function apply.acquire(state, op, by)
  if state.owner == op.owner and state.token == op.token then return enter_again(state, op) end
  local is_new = op.token > state.last and (is_shared(op) or op.holds == 1)
  local is_over = not state.owner or by >= state.valid
  if not is_new or not is_over then return {} end
  return { with(without_ghost(state, op.owner), {
    owner = op.owner, token = op.token, last = op.token, count = op.holds,
    lease = max(op.lease, op.grant),
    valid = model.lease_end(op.start, first_lease(op)),
    now = max(state.now, state.valid or 0),
  }) }
end

-- Removes a hold of the holder. A ghost's release that was sent twice finds nothing, but succeeds.
function apply.release(state, op)
  if ghost_of(state, op) then return { without_ghost(state, op.owner) } end
  if not is_holder(state, op) then return {} end
  if is_shared(op) then return { state, free(state) } end
  if state.count > 1 then return { with(state, { count = state.count - 1 }) } end
  return { free(state) }
end

-- A release without a result: the holder counts one hold less, and the server may learn of it.
function apply.drop(state, op)
  if not is_holder(state, op) then return op.maybe and {} or { state } end
  return apply.release(state, op)
end

-- After an extend that may or may not have been carried out, the shorter of the two leases counts.
local function shortest(state, op)
  return min(state.valid, model.lease_end(op.start, op.seconds))
end

-- A caller learns that its lock is lost, which must be possible by then.
function apply.lost(state, op, by)
  if not is_shared(op) and is_holder(state, op) then
    if op.what == "extend" then state = with(state, { valid = shortest(state, op) }) end
    if by < state.valid then return {} end
  end
  return { without_ghost(state, op.owner) }
end

function apply.check(state, op) return is_holder(state, op) and { state } or {} end

function apply.extend(state, op)
  if not is_holder(state, op) then return {} end
  local valid = model.lease_end(op.start, op.seconds)
  return { with(state, { valid = is_shared(op) and min(state.valid, valid) or valid,
    lease = max(state.lease, op.seconds) }) }
end

-- An extend without a result: the holder relies on the shorter of the two leases.
function apply.doubt(state, op)
  if not is_holder(state, op) then return op.maybe and {} or { state } end
  return { with(state, { valid = shortest(state, op), lease = max(state.lease, op.seconds) }) }
end

-- "It is mine until op.valid."
function apply.claim(state, op)
  if is_holder(state, op) and (is_shared(op) or op.holds == state.count) then
    return { with(state, { valid = max(state.valid, op.valid) }) }
  end
  local ghost = ghost_of(state, op)
  return ghost and op.valid <= ghost.valid and { state } or {}
end

-- "Nobody has it."
function apply.free(state, _, by) return state.owner and by < state.valid and {} or { state } end

function apply.forget(state, _, by) return { forget(state, by) } end

function model.apply(state, op, by)
  if state.now > by then return {} end
  local states = apply[op.effect](state, op, by)
  if op.optional then states = { state, (table.unpack or unpack)(states) } end
  for i, each in ipairs(states) do
    if each.now < op.start then states[i] = with(each, { now = op.start }) end
  end
  return states
end

return model
