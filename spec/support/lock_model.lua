-- A small model of the API of locks: what each call returns, what a handle knows afterwards, and
-- what stands on the server. It counts leases from now and lets no time pass.
--
-- A hold is what one client has on one key, through any of its handles. A handle remembers the
-- holds that it has entered (`entries`), so that it can report a loss after another handle has
-- acquired the key again.

local model = {}

local Model = {}
Model.__index = Model

function model.new()
  return setmetatable({ server = {}, holds = {}, tokens = {} }, Model)
end

-- `options`: as for client:lock
function Model:handle(client, key, options)
  self.holds[client] = self.holds[client] or {}
  return { client = client, key = key, options = options, entries = {}, told = 0 }
end

local function hold_of(self, handle)
  return self.holds[handle.client][handle.key]
end

local function remove(list, wanted)
  for i, value in ipairs(list) do
    if value == wanted then return table.remove(list, i) end
  end
end

-- ---- losses ----

local function notice(handle, entry)
  if not entry.hold.lost or entry.told then return end
  entry.told = true
  handle.told = handle.told + 1
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

-- The entry of a lost hold that another one has replaced.
local function replaced_loss(self, handle)
  local found
  for _, entry in ipairs(handle.entries) do
    if hold_of(self, handle) == entry.hold then return nil end
    local settled = entry.count == 0 and not hold_of(self, handle)
    if entry.hold.lost and not settled then found = entry end
  end
  return found
end

-- The server does not have the hold any more.
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

local function bounded(hold, lease)
  return math.min(lease, hold.most)
end

local function lease_of(handle)
  return math.min(handle.options.lease, handle.options.max_hold or math.huge)
end

local function re_enter(self, handle, hold)
  if self.server[handle.key] ~= hold then
    lose(self, handle, hold)
    return "lost"
  end
  hold.count = hold.count + 1
  hold.ttl = math.max(hold.ttl, bounded(hold, lease_of(handle)))
  enter(self, handle, hold)
  return true
end

function Model:acquire(handle)
  local hold, options = hold_of(self, handle), handle.options
  if hold and not hold.lost then return re_enter(self, handle, hold) end
  if self.server[handle.key] then
    self.holds[handle.client][handle.key] = nil
    return "busy"
  end
  hold = { count = 1, fencing = options.fencing ~= false, most = options.max_hold or math.huge }
  hold.ttl = bounded(hold, options.lease)
  self.holds[handle.client][handle.key], self.server[handle.key] = hold, hold
  enter(self, handle, hold)
  return true
end

-- What a release does to the entry of the handle.
local function leave(self, handle, hold)
  local entry = entry_of(handle, hold)
  if not entry then return end
  notice(handle, entry)
  local is_over = hold.lost or hold_of(self, handle) ~= hold
  entry.count = is_over and 0 or math.max(0, entry.count - 1)
  local is_replaced = hold.lost and hold_of(self, handle)
  if entry.count == 0 and not is_replaced then drop(handle, entry) end
end

-- Nobody waits for the reply that says that the hold is gone. A handle whose part of a re-entry
-- ends so learns nothing.
local function release_unseen(self, handle, hold)
  local entry = entry_of(handle, hold)
  if entry then entry.count = math.max(0, entry.count - 1) end
  if entry and entry.count == 0 and hold.count > 1 then drop(handle, entry) end
  hold.lost, hold.is_unseen = self.server[handle.key] and "taken" or "deleted", hold.count == 1
  self.holds[handle.client][handle.key] = nil
end

function Model:release(handle)
  local replaced = replaced_loss(self, handle)
  if replaced then
    local was_told = replaced.count == 0
    handle.last_loss = replaced.hold.lost
    leave(self, handle, replaced.hold)
    return was_told and "not_held" or "lost"
  end
  local hold = hold_of(self, handle)
  if not hold then return "not_held" end
  local is_known = self.server[handle.key] == hold
  if not hold.lost and not is_known and handle.options.async_release then
    release_unseen(self, handle, hold)
    return true
  end
  if hold.lost or not is_known then
    if not hold.lost then lose(self, handle, hold) end
    handle.last_loss = hold.lost
    self.holds[handle.client][handle.key] = nil
    leave(self, handle, hold)
    return "lost"
  end
  hold.count = hold.count - 1
  if hold.count == 0 then
    self.holds[handle.client][handle.key], self.server[handle.key] = nil, nil
  end
  leave(self, handle, hold)
  return true
end

-- `change`: what happens to a hold that stands
local function with_hold(self, handle, change)
  local replaced = replaced_loss(self, handle)
  if replaced then
    handle.last_loss = replaced.hold.lost
    return replaced.count == 0 and "not_held" or "lost"
  end
  local hold = hold_of(self, handle)
  if not hold then return "not_held" end
  if not hold.lost and self.server[handle.key] ~= hold then lose(self, handle, hold) end
  if hold.lost then
    handle.last_loss = hold.lost
    return "lost"
  end
  change(hold)
  return true
end

function Model:check(handle)
  return with_hold(self, handle, function() end)
end

function Model:extend(handle, seconds)
  return with_hold(self, handle, function(hold) hold.ttl = bounded(hold, seconds) end)
end

-- The client's own hold is lost with it.
function Model:force_release(handle)
  local hold = hold_of(self, handle)
  if hold and not hold.lost then hold.lost = "deleted" end
  return self:disturb(handle.key)
end

-- Somebody deletes the lock on the server, or takes it for `lease`. → whether it was locked
function Model:disturb(key, lease)
  local was_locked = self.server[key] ~= nil
  self.server[key] = lease and { count = 1, ttl = lease } or nil
  return was_locked
end

-- ---- what a handle knows ----

local function unseen_loss(handle)
  for _, entry in ipairs(handle.entries) do
    if entry.hold.is_unseen then return entry.hold.lost end
  end
end

-- → held, holds, ttl (0: not held), has a token, lost
function Model:view(handle)
  local hold, replaced = hold_of(self, handle), replaced_loss(self, handle)
  if replaced then return false, 0, 0, false, replaced.hold.lost end
  if hold and not hold.lost then return true, hold.count, hold.ttl, hold.fencing, nil end
  return false, 0, 0, false, hold and hold.lost or unseen_loss(handle) or handle.last_loss
end

-- Whether this may be the reason that the handle gives: of several losses any one.
function Model.may_say(_, handle, reason)
  for _, entry in ipairs(handle.entries) do
    if entry.hold.lost == reason then return true end
  end
  return handle.last_loss == reason
end

-- Tells what is still to be told of losses.
function Model.tell(_, handle)
  for _, entry in ipairs(handle.entries) do notice(handle, entry) end
end

return model
