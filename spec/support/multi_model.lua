-- A model of multi-locks, made of handles of the model of locks (lock_model.lua).

local parts = require("spec.support.lock_model").parts

local multi_model = {}

local Multi = {}
Multi.__index = Multi

-- Returns whether one program serves all locks.
local function are_alike(handles)
  local first = handles[1]
  for _, one in ipairs(handles) do
    local a, b = one.options, first.options
    local same = one.client == first.client and not a.owner and a.lease == b.lease
      and a.max_hold == b.max_hold and a.renewed == b.renewed
      and (a.fencing == false) == (b.fencing == false)
    if not same then return false end
  end
  return true
end

-- `locks`: the model; `handles`: in the order in which they are acquired
function multi_model.new(locks, handles)
  return setmetatable({ locks = locks, handles = handles, is_one_step = are_alike(handles) }, Multi)
end

-- ---- all locks at once ----

-- Returns why a member cannot be acquired, or nil.
local function refusal(locks, one)
  local hold = parts.hold_of(locks, one)
  if not hold then return locks.server[one.key] and "busy" or nil end
  if parts.record_of(locks, one, hold) then return nil end
  parts.lose(locks, one, hold)
  return "lost"
end

local function least_lease(locks, handles)
  local least = math.huge
  for _, one in ipairs(handles) do
    local hold, lease = parts.hold_of(locks, one), parts.lease_of(one)
    least = math.min(least, hold and parts.bounded(hold, lease) or lease)
  end
  return least
end

local function take(locks, one, lease)
  local hold = parts.hold_of(locks, one)
  if hold then
    local record = hold.record
    hold.count, record.count = hold.count + 1, record.count + 1
    record.ttl, hold.lease = math.max(record.ttl, lease), math.max(hold.lease, parts.lease_of(one))
    parts.enter(locks, one, hold)
  else
    locks.server[one.key] = { count = 1, ttl = lease, draw = {} }
    hold = parts.begin_hold(locks, one, locks.server[one.key], 0)
    hold.ttl = lease
  end
  hold.ttl = math.max(hold.ttl, lease)
  -- the watchdog renews it soon, or has done that
  if hold.ttl < hold.lease then hold.record.renewed_ttl = parts.bounded(hold, hold.lease) end
end

local function acquire_in_one_step(self)
  for _, one in ipairs(self.handles) do
    local hold = parts.hold_of(self.locks, one)
    if hold and hold.lost then self.locks.holds[one.place] = nil end
    parts.release_idle(self.locks, one)
  end
  for _, one in ipairs(self.handles) do
    local code = refusal(self.locks, one)
    if code then return code end
  end
  local lease = least_lease(self.locks, self.handles)
  for _, one in ipairs(self.handles) do take(self.locks, one, lease) end
  return true
end

-- Releases one member. → whether it was still held | nil if this caller had not acquired it
local function release_one(locks, one)
  local hold = parts.hold_of(locks, one)
  if not hold then return nil end
  local record = parts.record_of(locks, one, hold)
  if record and not hold.lost then
    if hold.count == 1 then hold.range = nil end -- it is released on the server instead of kept
    parts.let_go(locks, one, hold, record)
    parts.leave(locks, one, hold)
    return true
  end
  if not hold.lost then parts.lose(locks, one, hold) end
  one.last_loss = hold.lost
  locks.holds[one.place] = nil
  parts.leave(locks, one, hold)
  return false
end

-- A handle that has lost its hold does not release what another handle has acquired since.
local function release_in_one_step(self)
  local lost, unknown, asked = 0, 0, {}
  for _, one in ipairs(self.handles) do
    local replaced = parts.replaced_loss(self.locks, one)
    if replaced then
      one.last_loss, lost = replaced.hold.lost, lost + 1
      parts.leave(self.locks, one, replaced.hold)
    else
      asked[#asked + 1] = one
    end
  end
  for _, one in ipairs(asked) do
    local released = release_one(self.locks, one)
    unknown, lost = unknown + (released == nil and 1 or 0), lost + (released and 0 or 1)
  end
  if unknown > 0 and unknown == #asked then return "not_held" end
  return lost == 0 or "lost"
end

-- ---- one after the other ----

-- Calls the method for each handle, last one first. → true, or the first failure
local function each(self, count, act, ...)
  local result = true
  for i = count, 1, -1 do
    local code = self.locks[act](self.locks, self.handles[i], ...)
    if result == true then result = code end
  end
  return result
end

local function release_taken(self, count, code)
  each(self, count, "release")
  return code
end

-- The loss of a lock is reported only once all are held.
local function mute(self, one, is_muted)
  local hold = parts.hold_of(self.locks, one)
  local entry = hold and parts.entry_of(one, hold)
  if entry then entry.is_muted = is_muted and hold.count == 1 end
end

-- A fixed lease begins when all are held.
local function start_lease(self, one)
  local held, _, ttl = self.locks:view(one)
  if not one.options.renewed and ttl <= one.options.lease then
    return self.locks:extend(one, one.options.lease)
  end
  return held or self.locks:check(one)
end

-- Calls meanwhile(i) when i handles are acquired.
local function acquire_in_order(self, meanwhile)
  local count = #self.handles
  for i, one in ipairs(self.handles) do
    local code = self.locks:acquire(one)
    if code ~= true then return release_taken(self, i - 1, code) end
    mute(self, one, true)
    meanwhile(i)
  end
  for i = 1, count > 1 and count or 0 do
    local code = start_lease(self, self.handles[i])
    if code ~= true then return release_taken(self, count, code) end
  end
  for _, one in ipairs(self.handles) do mute(self, one, false) end
  return true
end

-- ---- calls: each returns true or a code ----

function Multi:acquire(meanwhile)
  if self.is_one_step then return acquire_in_one_step(self) end
  return acquire_in_order(self, meanwhile)
end

function Multi:release()
  if self.is_one_step then return release_in_one_step(self) end
  return each(self, #self.handles, "release")
end

function Multi:check() return each(self, #self.handles, "check") end

function Multi:extend(seconds) return each(self, #self.handles, "extend", seconds) end

-- → held, remaining
function Multi:view()
  local held, least = true, math.huge
  for _, one in ipairs(self.handles) do
    local is_held, _, ttl = self.locks:view(one)
    held, least = held and is_held, math.min(least, ttl)
  end
  return held, least
end

return multi_model
