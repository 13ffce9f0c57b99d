-- A small model of the locks' API: what each call returns, what a handle knows afterwards, and what
-- the server stores. No time passes; leases count from now.
--
-- A record is what the server stores. A hold is what one owner of a client has on one key, through
-- any of its handles. A handle remembers the holds that it has acquired or re-entered (`entries`),
-- so that it can report a loss after another handle has acquired the key again.
--
-- A shared owner has a hold in each client, all in one record: `others` is the part of a hold's
-- count that other clients entered. A kept lock without a user is `idle` in its client. The client
-- lends it without asking the server, so it may lend a lock that the server no longer has.

local model = {}

local Model = {}
Model.__index = Model

-- `grant_lease`: the clients' option
function model.new(grant_lease)
  return setmetatable({ server = {}, holds = {}, idle = {}, grant_lease = grant_lease }, Model)
end

-- `options`: as for client:lock
function Model.handle(_, client, key, options)
  local home = client .. "/" .. key
  return {
    client = client, key = key, options = options, entries = {}, reported = 0,
    home = home, place = home .. "/" .. (options.owner or ""),
  }
end

local function hold_of(self, handle) return self.holds[handle.place] end

-- Returns the record of the hold, or nil if the server no longer has it.
local function record_of(self, handle, hold)
  local record, owner = self.server[handle.key], handle.options.owner
  local is_ours = record and (record == hold.record or owner and record.owner == owner)
  return is_ours and record or nil
end

local function remove(list, wanted)
  for i, value in ipairs(list) do
    if value == wanted then return table.remove(list, i) end
  end
end

-- ---- losses ----

local function notice(handle, entry)
  if not entry.hold.lost or entry.reported or entry.is_muted then return end
  entry.reported = true
  handle.reported = handle.reported + 1
end

local function drop(handle, entry)
  notice(handle, entry)
  remove(handle.entries, entry)
end

local function entry_of(handle, hold)
  for _, entry in ipairs(handle.entries) do
    if entry.hold == hold then return entry end
  end
end

-- Returns the entry of a lost hold that another hold has replaced, or nil.
local function replaced_loss(self, handle)
  local found
  for _, entry in ipairs(handle.entries) do
    if hold_of(self, handle) == entry.hold then return nil end
    local settled = entry.count == 0 and not hold_of(self, handle)
    if entry.hold.lost and not settled then found = entry end
  end
  return found
end

-- The client finds that the server no longer has the hold.
local function lose(self, handle, hold)
  hold.lost = self.server[handle.key] and "taken" or "deleted"
  handle.last_loss = hold.lost
end

-- ---- calls: each returns true or a code ----

local function enter(self, handle, hold)
  local is_kept = false
  for i = #handle.entries, 1, -1 do
    local entry = handle.entries[i]
    local is_over = entry.hold.lost or hold_of(self, handle) ~= entry.hold
    local keeps = entry.hold.lost and entry.count > 0 and not is_kept
    if is_over and not keeps then drop(handle, entry) end
    is_kept = is_kept or is_over and keeps
  end
  local entry = entry_of(handle, hold)
  if not entry then
    entry = { hold = hold, count = 0 }
    table.insert(handle.entries, entry)
  end
  entry.count = entry.count + 1
  handle.last_loss, handle.has_waited = nil, true
end

local function bounded(hold, lease) return math.min(lease, hold.most) end

local function lease_of(handle)
  return math.min(handle.options.lease, handle.options.max_hold or math.huge)
end

-- Adopts the server's count; entries that are not this client's belong to others.
local function rebase(hold, record)
  local own = hold.count - hold.others
  hold.others, hold.count = math.max(record.count - own, 0), record.count
end

local function re_enter(self, handle, hold)
  local record, lease = record_of(self, handle, hold), bounded(hold, lease_of(handle))
  if not record then
    lose(self, handle, hold)
    return "lost"
  end
  rebase(hold, record)
  hold.count, record.count = hold.count + 1, record.count + 1
  hold.ttl, record.ttl = math.max(hold.ttl, lease), math.max(record.ttl, lease)
  hold.lease = math.max(hold.lease, lease_of(handle))
  if handle.options.owner then hold.draw = record.draw end
  enter(self, handle, hold)
  return true
end

-- Begins a hold of a record that others have entered `others` times.
local function begin_hold(self, handle, record, others)
  local options, lease = handle.options, lease_of(handle)
  local hold = {
    record = record, count = others + 1, others = others, lease = lease, ttl = lease,
    most = options.max_hold or math.huge, draw = options.fencing ~= false and record.draw or nil,
  }
  self.holds[handle.place] = hold
  enter(self, handle, hold)
  return hold
end

local function ask(self, handle)
  local options, record = handle.options, self.server[handle.key]
  local lease, had_hold = lease_of(handle), hold_of(self, handle)
  if not record then
    record = { owner = options.owner, count = 1, ttl = lease, draw = {} }
    self.server[handle.key] = record
    local hold = begin_hold(self, handle, record, 0)
    if options.keep and not had_hold then hold.range = { last = hold.draw } end
  elseif options.owner and record.owner == options.owner then
    begin_hold(self, handle, record, record.count)
    record.count, record.ttl = record.count + 1, math.max(record.ttl, lease)
  else
    self.holds[handle.place] = nil
    return "busy"
  end
  return true
end

-- ---- kept locks ----

local function may_lend(self, handle, idle)
  local has_token = handle.options.fencing == false or idle.range.last
  return not handle.options.owner and has_token
    and idle.lease <= math.max(self.grant_lease, lease_of(handle))
end

-- The lease on the server does not change until the hold is confirmed.
local function lend(self, handle, idle)
  local hold, range = begin_hold(self, handle, idle.record, 0), idle.range
  hold.ttl, hold.range, hold.is_granted, hold.draw = math.min(hold.ttl, idle.ttl), range, true, nil
  if handle.options.fencing ~= false then
    hold.draw = { behind = range.last }
    range.last = hold.draw
  end
  self.idle[handle.home] = nil
  return true
end

local function release_idle(self, handle)
  local idle = self.idle[handle.home]
  self.idle[handle.home] = nil
  if idle and self.server[handle.key] == idle.record then self.server[handle.key] = nil end
end

function Model:acquire(handle)
  local hold, idle = hold_of(self, handle), self.idle[handle.home]
  if hold and not hold.lost then return re_enter(self, handle, hold) end
  if idle and not hold and may_lend(self, handle, idle) then return lend(self, handle, idle) end
  if not hold then release_idle(self, handle) end
  return ask(self, handle)
end

-- Applies a release to the handle's entry.
local function leave(self, handle, hold)
  local entry = entry_of(handle, hold)
  if not entry then return end
  notice(handle, entry)
  local is_over = hold.lost or hold_of(self, handle) ~= hold
  entry.count = is_over and 0 or math.max(0, entry.count - 1)
  local is_replaced = hold.lost and hold_of(self, handle)
  if entry.count == 0 and not is_replaced then drop(handle, entry) end
end

-- Applies an asynchronous release of a hold that is gone: no call waits for the reply. A handle
-- that released only its part of a re-entered hold does not learn of the loss.
local function release_unseen(self, handle, hold)
  local entry, is_last = entry_of(handle, hold), hold.count == hold.others + 1
  if entry then entry.count = math.max(0, entry.count - 1) end
  if entry and entry.count == 0 and not is_last then drop(handle, entry) end
  hold.lost, hold.is_unseen = self.server[handle.key] and "taken" or "deleted", is_last
  self.holds[handle.place] = nil
end

-- Applies a release of a hold that the server has, or of a kept one that ends in the client.
local function let_go(self, handle, hold, record)
  local is_last = hold.count == hold.others + 1
  if hold.range and is_last then
    self.idle[handle.home] = hold
  elseif record.count == 1 then
    self.server[handle.key] = nil
  else
    local lease = bounded(hold, hold.lease)
    record.count, record.ttl = record.count - 1, math.max(record.ttl, lease)
    hold.ttl = math.max(hold.ttl, lease)
  end
  hold.count = hold.count - 1
  local is_gone = not self.server[handle.key] and not hold.range
  if is_last or is_gone then self.holds[handle.place] = nil end
end

function Model:release(handle)
  local replaced = replaced_loss(self, handle)
  if replaced then
    local was_reported = replaced.count == 0
    handle.last_loss = replaced.hold.lost
    leave(self, handle, replaced.hold)
    return was_reported and "not_held" or "lost"
  end
  local hold = hold_of(self, handle)
  if not hold then return "not_held" end
  local record = record_of(self, handle, hold)
  local is_asked = record or not hold.range or hold.count > 1
  if not hold.lost and not record and is_asked and handle.options.async_release then
    release_unseen(self, handle, hold)
    return true
  end
  if hold.lost or not record and is_asked then
    if not hold.lost then lose(self, handle, hold) end
    handle.last_loss = hold.lost
    self.holds[handle.place] = nil
    leave(self, handle, hold)
    return "lost"
  end
  let_go(self, handle, hold, record)
  leave(self, handle, hold)
  return true
end

-- `change(hold, record)` is called if the hold is not lost
local function with_hold(self, handle, change)
  local replaced = replaced_loss(self, handle)
  if replaced then
    handle.last_loss = replaced.hold.lost
    return replaced.count == 0 and "not_held" or "lost"
  end
  local hold = hold_of(self, handle)
  if not hold then return "not_held" end
  local record = record_of(self, handle, hold)
  if not hold.lost and not record then lose(self, handle, hold) end
  if hold.lost then
    handle.last_loss = hold.lost
    return "lost"
  end
  change(hold, record)
  return true
end

-- Confirms a hold that was lent.
function Model:check(handle)
  return with_hold(self, handle, function(hold, record)
    if not hold.is_granted then return end
    local lease = bounded(hold, hold.lease)
    hold.is_granted = nil
    hold.ttl, record.ttl = math.max(hold.ttl, lease), math.max(record.ttl, lease)
  end)
end

-- Other holds of a shared owner keep the lease that they rely on.
function Model:extend(handle, seconds)
  return with_hold(self, handle, function(hold, record)
    local lease = bounded(hold, seconds)
    hold.lease, hold.ttl, hold.is_granted = seconds, lease, nil
    record.ttl = math.max(lease, handle.options.owner and record.ttl or 0)
  end)
end

-- An idle lock of this client is released first; the caller's own hold is lost with the lock.
function Model:force_release(handle)
  local hold = hold_of(self, handle)
  release_idle(self, handle)
  if hold and not hold.lost then hold.lost = "deleted" end
  return self:disturb(handle.key)
end

-- Another client deletes the lock on the server, or takes it for `lease`. → whether it was locked
function Model:disturb(key, lease)
  local was_locked = self.server[key] ~= nil
  self.server[key] = lease and { count = 1, ttl = lease } or nil
  return was_locked
end

-- ---- what a handle knows ----

-- Returns whether the owner relies on a hold that the server has.
function Model:has_record(handle)
  local hold = hold_of(self, handle)
  return hold and not hold.lost and record_of(self, handle, hold) ~= nil
end

local function unseen_loss(handle)
  for _, entry in ipairs(handle.entries) do
    if entry.hold.is_unseen then return entry.hold.lost end
  end
end

-- → held, holds, ttl (0 if not held), the draw of its token or nil, lost. A draw stands for a
-- token, which is higher than that of its `behind`, or else than all earlier ones for this key.
function Model:view(handle)
  local hold, replaced = hold_of(self, handle), replaced_loss(self, handle)
  if replaced then return false, 0, 0, nil, replaced.hold.lost end
  if hold and not hold.lost then return true, hold.count, hold.ttl, hold.draw, nil end
  return false, 0, 0, nil, hold and hold.lost or unseen_loss(handle) or handle.last_loss
end

-- Returns whether the handle may report this reason. After several losses it may report any of
-- them.
function Model.may_say(_, handle, reason)
  for _, entry in ipairs(handle.entries) do
    if entry.hold.lost == reason then return true end
  end
  return handle.last_loss == reason
end

-- Reports the pending losses.
function Model.report(_, handle)
  for _, entry in ipairs(handle.entries) do notice(handle, entry) end
end

-- For models of objects made of locks.
model.parts = {
  hold_of = hold_of, record_of = record_of, entry_of = entry_of, replaced_loss = replaced_loss,
  lose = lose, enter = enter, leave = leave, let_go = let_go, begin_hold = begin_hold,
  release_idle = release_idle, bounded = bounded, lease_of = lease_of,
}

return model
