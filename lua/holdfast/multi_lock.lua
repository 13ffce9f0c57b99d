-- Several locks as one: after an acquire either all are held or none.
--
-- All programs take the locks in one order, by key and then by server, so those that take them
-- one after the other never deadlock. Locks of one client are first tried in a single step;
-- when one of them is taken, and for locks of different clients, they are taken in order, each
-- through its queue, and rolled back if one cannot be had.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local locale = require "holdfast.locale"
local loss = require "holdfast.loss"
local options = require "holdfast.options"

local raw = driver.lock
local argument, check_self = options.argument, options.self
local notify, notify_after = loss.notify, loss.notify_after

local WAIT_EACH = 1.5
local MOST = 1024

---@class holdfast.multi_lock
local MultiLock = {}
MultiLock.__index = MultiLock
MultiLock.__name = "holdfast.multi_lock"

local multi_lock = {}

function multi_lock.check_keys(value)
  return options.list(value, MOST, "a list of 1 to 1024 keys", options.key)
end

local function check_lock(value)
  return options.kind(value, core.lock_type.__metatable)
end

function multi_lock.check_locks(value)
  return options.list(value, MOST, "a list of 1 to 1024 locks", check_lock)
end

local function copy(locks)
  return { compat.unpack(locks) }
end

local function client_of(lock)
  return raw.data(lock).client
end

local function is_before(a, b)
  return locale.is_before(raw.key(a), raw.key(b))
end

-- Whether sorted[i] and one beside it have the same key: locks of different clients.
local function is_tied(sorted, i)
  local key, before, behind = raw.key(sorted[i]), sorted[i - 1], sorted[i + 1]
  return before and raw.key(before) == key or behind and raw.key(behind) == key or false
end

-- The databases where the lock is, as text that is the same in all programs once the client is
-- connected, if the servers report their run ids. `connects`: the client first sends a command.
local function place_of(lock, connects)
  local client, key = client_of(lock), raw.key(lock)
  local names, known = core.client.processes(client, key)
  if connects and not known then
    raw.ttl(lock)
    names = core.client.processes(client, key)
  end
  table.sort(names, locale.is_before)
  return table.concat(names, " ")
end

-- The places of locks that have one key, lock → text; nil: there are no such locks. Raises when two
-- of them have one place.
local function places_of(sorted, connects, what, level)
  local places, seen = {}, {}
  for i, lock in ipairs(sorted) do
    if is_tied(sorted, i) then
      local place = place_of(lock, connects)
      local name = raw.key(lock) .. "\0" .. place
      if seen[name] then
        error(("%s: the key %q is given twice"):format(what, core.wire.hide_logins(raw.key(lock))), level + 1)
      end
      places[lock], seen[name] = place, true
    end
  end
  return next(places) and places
end

-- The locks in the order in which every program takes them.
local function in_order(self, what, level)
  if not self.tied then return self.locks end
  local sorted = copy(self.locks)
  local places = places_of(sorted, true, what, level + 1)
  table.sort(sorted, function(a, b)
    if raw.key(a) ~= raw.key(b) then return is_before(a, b) end
    return locale.is_before(places[a], places[b])
  end)
  return sorted
end

-- Where a key lives: the keys of one step live at one place.
local function home(lock)
  return core.client.group(raw.data(lock).client, raw.key(lock))
end

-- One client and one place, one kind of lock, one class and listener, no owner that other processes
-- may share: a single step serves all.
local function are_alike(locks)
  local first, first_home = raw.data(locks[1]), home(locks[1])
  if first.owner or first.quorum then return false end
  for _, lock in ipairs(locks) do
    local data = raw.data(lock)
    local same = data.client == first.client and not data.owner and data.lease == first.lease
      and data.max_hold == first.max_hold and data.renewed == first.renewed
      and data.token_ttl == first.token_ttl
      and data.class == first.class and data.observer == first.observer
    if not same or home(lock) ~= first_home then return false end
    if core.kinds[data.kind].stepwise then return false end
  end
  return true
end

-- `locks` are checked; `wait` is the total, nil: 1.5 s for each.
function multi_lock.new(locks, wait, what, level)
  local sorted = copy(locks)
  table.sort(sorted, is_before)
  return setmetatable({
    locks = sorted,
    tied = places_of(sorted, false, what, level + 1) ~= nil,
    together = are_alike(sorted),
    wait = wait or WAIT_EACH * #sorted,
  }, MultiLock)
end

-- Empties the list: calls act(lock) for each of its locks once, the last one first, also where one
-- raises an error. → whether none did, the first error
local function drain(taken, act)
  local fine, failure = true, nil
  for i = #taken, 1, -1 do
    local lock = taken[i]
    taken[i] = nil
    local done, err = pcall(act, lock)
    if fine and not done then fine, failure = false, err end
  end
  return fine, failure
end

-- A lease that was given for a fixed time counts from when all are held. One that was entered
-- before for longer stays.
local function start_lease(lock)
  local data = raw.data(lock)
  if not data.renewed and raw.remaining(lock) < data.lease then
    return raw.extend(lock, data.lease)
  end
  if raw.is_held(lock) then return true end
  return raw.check(lock)
end

-- Not all can be had. → nil, message, code; an error of a release when all are released
local function roll_back(taken, message, code)
  local fine, failure = drain(taken, raw.release)
  if not fine then error(failure, 0) end
  return nil, message, code
end

-- `taken`: gets those that it has. Until all are there each is renewed, whatever its lease is.
local function take_in_order(locks, by, taken)
  for i, lock in ipairs(locks) do
    local acquired, message, code = raw.acquire(lock, math.max(0, by - driver.now(lock)))
    if not acquired then return roll_back(taken, message, code) end
    taken[i] = lock
    raw.collect(lock)
  end
  for i = 1, #locks > 1 and #locks or 0 do
    local held, message, code = start_lease(locks[i])
    if not held then return roll_back(taken, message, code) end
  end
  for _, lock in ipairs(locks) do raw.settle(lock) end
  return true
end

-- In the background if the caller cannot wait.
local function close_each(taken)
  drain(taken, driver.leave)
end

local function settled(taken, ran, ...)
  if ran then return ... end
  close_each(taken)
  error((...), 0)
end

local function acquire_in_order(locks, by)
  local taken = {}
  return settled(taken, compat.closing(close_each, taken, pcall, take_in_order, locks, by, taken))
end

-- What the client has learnt of its server.
local function learnt(self)
  return core.client.data(client_of(self.locks[1]))
end

-- Whether one step serves all. A server behind a plain URL may be a node of a cluster, which
-- refuses steps with keys of several slots.
local function is_one_step(self)
  return self.together and not learnt(self).checks_slots
end

-- Whether the locks may be had one by one that could not be had in one step.
local function may_go_on(self, by, message, code)
  if code == "server" and message:find("CROSSSLOT", 1, true) then
    learnt(self).checks_slots = true
    return true
  end
  -- a lock that is asked for alone may wait until a refusal has passed
  return code ~= "lost" and core.may_pass(code, true) and driver.now(self.locks[1]) < by
end

local function acquire(self, wait, what, level)
  local by = driver.now(self.locks[1]) + wait
  local locks = in_order(self, what, level + 1)
  if is_one_step(self) then
    local acquired, message, code = raw.acquire_all(locks)
    if acquired then return self end
    if not may_go_on(self, by, message, code) then return nil, message, code end
  end
  local acquired, message, code = acquire_in_order(locks, by)
  if acquired then return self end
  return nil, message, code
end

-- Takes all the locks, or enters them again. `wait`: seconds in total, 0 tries once, math.huge
-- waits for ever.
---@param wait? number
---@return holdfast.multi_lock? lock
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:acquire(wait)
  check_self(self, MultiLock, "multi_lock:acquire", 2)
  if wait ~= nil then argument(wait, options.wait, "multi_lock:acquire", "wait", 2) end
  notify()
  local all, message, code = acquire(self, wait or self.wait, "multi_lock:acquire", 2)
  if all then return all end
  return nil, message, code
end

-- acquire(0).
---@return holdfast.multi_lock? lock
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:try_acquire()
  check_self(self, MultiLock, "multi_lock:try_acquire", 2)
  notify()
  local all, message, code = acquire(self, 0, "multi_lock:try_acquire", 2)
  if all then return all end
  return nil, message, code
end

-- Empties the list: calls act(lock, with) for each, also where one raises an error, which comes
-- behind that; fails with the first failure.
local function each(locks, act, with)
  local first_message, first_code
  local fine, failure = drain(locks, function(lock)
    local done, message, code = act(lock, with)
    if not done and not first_code then first_message, first_code = message, code end
  end)
  if not fine then error(failure, 0) end
  if first_code then return nil, first_message, first_code end
  return true
end

-- The rest is released also where the coroutine is closed meanwhile.
local function release(self)
  if is_one_step(self) then return raw.release_all(self.locks) end
  local held = copy(self.locks)
  return compat.closing(close_each, held, each, held, raw.release)
end

-- Releases one hold of each.
---@return true? released
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:release()
  check_self(self, MultiLock, "multi_lock:release", 2)
  return notify_after(release(self))
end

-- A new lease of `seconds` from now for each.
---@param seconds number
---@return true? extended
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:extend(seconds)
  check_self(self, MultiLock, "multi_lock:extend", 2)
  argument(seconds, options.lease, "multi_lock:extend", "seconds", 2)
  notify()
  return each(copy(self.locks), raw.extend, seconds)
end

-- Asks the servers whether all are still held.
---@return true? held
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:check()
  check_self(self, MultiLock, "multi_lock:check", 2)
  notify()
  return each(copy(self.locks), raw.check)
end

-- All held by this owner and locally still valid; no I/O.
---@return boolean held
function MultiLock:is_held()
  check_self(self, MultiLock, "multi_lock:is_held", 2)
  notify()
  for _, lock in ipairs(self.locks) do
    if not raw.is_held(lock) then return false end
  end
  return true
end

-- Seconds for which this owner may believe in all of them; no I/O.
---@return number seconds
function MultiLock:remaining()
  check_self(self, MultiLock, "multi_lock:remaining", 2)
  notify()
  local least = math.huge
  for _, lock in ipairs(self.locks) do
    least = math.min(least, raw.remaining(lock))
  end
  return least
end

-- The first reason for which one of them was lost; no I/O.
---@return holdfast.lost_reason? reason
---@return string? key
function MultiLock:lost()
  check_self(self, MultiLock, "multi_lock:lost", 2)
  notify()
  for _, lock in ipairs(self.locks) do
    local reason = raw.lost(lock)
    if reason then return reason, raw.key(lock) end
  end
  return nil
end

-- The fencing tokens of the current hold, key -> token; locks of different servers with one key
-- have one entry.
---@return table<string, integer> tokens
function MultiLock:tokens()
  check_self(self, MultiLock, "multi_lock:tokens", 2)
  notify()
  local tokens = {}
  for _, lock in ipairs(self.locks) do
    tokens[raw.key(lock)] = raw.token(lock)
  end
  return tokens
end

-- The keys in the order in which they are taken.
---@return string[] keys
function MultiLock:keys()
  check_self(self, MultiLock, "multi_lock:keys", 2)
  local keys = {}
  for i, lock in ipairs(self.locks) do
    keys[i] = raw.key(lock)
  end
  return keys
end

function MultiLock:__tostring()
  local state = self:is_held() and "held" or "not held"
  return ("holdfast.multi_lock: %s (%s)"):format(table.concat(self:keys(), ", "), state)
end

function MultiLock:__close()
  if driver.can_wait(self.locks[1]) then return release(self) end
  close_each { compat.unpack(self.locks) }
end

return multi_lock
