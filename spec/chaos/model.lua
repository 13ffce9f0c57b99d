-- An owner-aware reentrant mutex with fences and leases, for one key, as a state that operations
-- change.
--
-- A state: the holder as far as it is surely one (owner, token, count), `valid`: until then nobody
-- else can have it, `lease`: the longest that it may run for, `last`: the last token, `now`: no
-- operation takes effect before, and the ghosts: owners whose lock the server has lost without
-- their knowledge.
--
-- An operation is one of the history's, with its `effect`, `of`: the token of the hold that it
-- speaks of, `grant`: the grant lease, `kept`: it may be lent with what is left of a lease.
--
-- apply(state, op, by) → the states after op took effect at some time up to `by`; none: it cannot
-- have. States are never changed. What each operation asks for and does stands with its function;
-- an owner that all processes share has no count, because its processes do not know each other's.

local max, min = math.max, math.min

local MARGIN = 0.002
local LEFT = 1 / 4 -- of a lease, at least, when a kept lock is lent

local model = {}

-- A lease that was asked for at `from` is believed in for at least as long as this.
function model.lease_end(from, lease)
  return from + lease - min(lease / 100 + 0.002, lease / 4) - MARGIN
end

function model.new()
  return { last = 0, now = 0, ghosts = {} }
end

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

-- A text that is the same for equal states.
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

-- Whether it is this operation's hold that the state knows.
local function is_holder(state, op)
  return state.owner == op.owner and (is_shared(op) or state.token == op.of)
end

local function ghost_of(state, op)
  local ghost = state.ghosts[op.owner]
  return ghost and (is_shared(op) or ghost.token == op.of) and ghost or nil
end

-- The server does not know the holder any more, but the holder may go on to believe in it for what
-- its lease had left.
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

-- Until it is confirmed.
local function first_lease(op)
  return min(op.lease, op.grant) * (op.kept and LEFT or 1)
end

-- Entered again: the same token and one hold more. Or anew: a higher token, and nobody can be in it
-- any more.
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

-- One hold less, of an owner that has it. A ghost's release that had to be sent twice finds
-- nothing, and counts.
function apply.release(state, op)
  if ghost_of(state, op) then return { without_ghost(state, op.owner) } end
  if not is_holder(state, op) then return {} end
  if is_shared(op) then return { state, free(state) } end
  if state.count > 1 then return { with(state, { count = state.count - 1 }) } end
  return { free(state) }
end

-- A release without an answer: the holder counts one less, and the server may learn of it.
function apply.drop(state, op)
  if not is_holder(state, op) then return op.maybe and {} or { state } end
  return apply.release(state, op)
end

-- An extend that may have been carried out, with this lease, and need not have been: the shorter of
-- the two counts.
local function shortest(state, op)
  return min(state.valid, model.lease_end(op.start, op.seconds))
end

-- Told that it is lost: not before it can be.
function apply.lost(state, op, by)
  if not is_shared(op) and is_holder(state, op) then
    if op.what == "extend" then state = with(state, { valid = shortest(state, op) }) end
    if by < state.valid then return {} end
  end
  return { without_ghost(state, op.owner) }
end

function apply.check(state, op)
  return is_holder(state, op) and { state } or {}
end

function apply.extend(state, op)
  if not is_holder(state, op) then return {} end
  local valid = model.lease_end(op.start, op.seconds)
  return { with(state, { valid = is_shared(op) and min(state.valid, valid) or valid,
    lease = max(state.lease, op.seconds) }) }
end

-- An extension without an answer: believed in for the shorter of the two.
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
function apply.free(state, _, by)
  return state.owner and by < state.valid and {} or { state }
end

function apply.forget(state, _, by)
  return { forget(state, by) }
end

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
