-- A multi-lock combines several locks: after an acquire, either all of them are held or none.
--
-- All processes acquire the locks in the same order, by key and then by server, so that they never
-- deadlock. If one server-side program can handle all the locks, an acquire first tries to get them
-- atomically. Otherwise, or if one of them is taken, it gets them in order, each through its queue,
-- and releases those that it has acquired if one fails.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local locale = require "holdfast.locale"
local loss = require "holdfast.loss"
local options = require "holdfast.options"

local raw = driver.lock
local check_argument, check_self = options.check_argument, options.check_self
local notify, notify_after = loss.notify, loss.notify_after

local DEFAULT_WAIT = 1.5 -- seconds for each lock
local MAX_LOCKS = 1024
local MAX_LOOKAHEAD = 64 -- locks after the awaited one that are also checked for a crashed owner

---@class holdfast.multi_lock
local MultiLock = {}
MultiLock.__index = MultiLock
MultiLock.__name = "holdfast.multi_lock"

local multi_lock = {}

function multi_lock.check_keys(value)
  return options.list(value, MAX_LOCKS, "a list of 1 to 1024 keys", options.key)
end

local function check_lock(value)
  return options.userdata(value, core.lock_type.__metatable)
end

function multi_lock.check_locks(value)
  return options.list(value, MAX_LOCKS, "a list of 1 to 1024 locks", check_lock)
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

-- Returns whether a neighbour of sorted[i] has the same key. Only locks of different clients can
-- have the same key.
local function shares_key(sorted, i)
  local key, before, after = raw.key(sorted[i]), sorted[i - 1], sorted[i + 1]
  return before and raw.key(before) == key or after and raw.key(after) == key or false
end

-- Returns a string that identifies the databases that store the lock. Once the client has
-- connected, it is the same in all processes if the servers report their run ids. `may_connect`:
-- whether to send a command first if the client has not connected yet.
local function databases_of(lock, may_connect)
  local client, key = client_of(lock), raw.key(lock)
  local names, known = core.client.database_names(client, key)
  if may_connect and not known then
    raw.ttl(lock)
    names = core.client.database_names(client, key)
  end
  table.sort(names, locale.is_before)
  return table.concat(names, " ")
end

-- Returns the databases of the locks that share a key, lock → string, or nil if none do. Raises if
-- two such locks are in the same databases.
local function find_databases(sorted, may_connect, func_name, level)
  local databases, seen = {}, {}
  for i, lock in ipairs(sorted) do
    if shares_key(sorted, i) then
      local id = databases_of(lock, may_connect)
      local name = raw.key(lock) .. "\0" .. id
      if seen[name] then
        error(("%s: the key %q is given twice"):format(func_name, core.wire.mask_credentials(raw.key(lock))), level + 1)
      end
      databases[lock], seen[name] = id, true
    end
  end
  return next(databases) and databases
end

-- Returns the locks in the order in which every process acquires them.
local function sort_locks(self, func_name, level)
  if not self.has_shared_keys then return self.locks end
  local sorted = copy(self.locks)
  local databases = find_databases(sorted, true, func_name, level + 1)
  table.sort(sorted, function(a, b)
    if raw.key(a) ~= raw.key(b) then return is_before(a, b) end
    return locale.is_before(databases[a], databases[b])
  end)
  return sorted
end

-- Returns the group of the lock's key. A program can only use keys of the same group.
local function group_of(lock)
  return core.client.group(raw.data(lock).client, raw.key(lock))
end

-- Returns whether one program can handle all the locks: they have the same client, group and
-- settings, do not belong to a quorum, and have no owner that other processes may share. Kinds that
-- are acquired in several steps never qualify.
local function fit_one_program(locks)
  local first, first_group = raw.data(locks[1]), group_of(locks[1])
  if first.owner or first.quorum then return false end
  for _, lock in ipairs(locks) do
    local data = raw.data(lock)
    local is_same = data.client == first.client and not data.owner and data.lease == first.lease
      and data.max_hold == first.max_hold and data.renewed == first.renewed
      and data.token_ttl == first.token_ttl
      and data.class == first.class and data.observer == first.observer
    if not is_same or group_of(lock) ~= first_group then return false end
    if core.kinds[data.kind].stepwise then return false end
  end
  return true
end

-- `locks` must already have been checked. `wait`: seconds in total; nil means 1.5 s per lock.
function multi_lock.new(locks, wait, func_name, level)
  local sorted = copy(locks)
  table.sort(sorted, is_before)
  return setmetatable({
    locks = sorted,
    has_shared_keys = find_databases(sorted, false, func_name, level + 1) ~= nil,
    fits_one_program = fit_one_program(sorted),
    wait = wait or DEFAULT_WAIT * #sorted,
  }, MultiLock)
end

-- Empties the list: calls act(lock) once for each lock, from the last to the first, even if a call
-- raises. → whether none raised, the first error
local function drain(taken, act)
  local ok, failure = true, nil
  for i = #taken, 1, -1 do
    local lock = taken[i]
    taken[i] = nil
    local done, err = pcall(act, lock)
    if ok and not done then ok, failure = false, err end
  end
  return ok, failure
end

-- A fixed lease begins when all locks are held. A re-entered lock that has more time left keeps
-- that time.
local function start_lease(lock)
  local data = raw.data(lock)
  if not data.renewed and raw.remaining(lock) < data.lease then
    return raw.extend(lock, data.lease)
  end
  if raw.is_held(lock) then return true end
  return raw.check(lock)
end

-- Releases the acquired locks, because another could not be acquired. Then raises the first error
-- of a release. → nil, message, code
local function roll_back(taken, message, code)
  local ok, failure = drain(taken, raw.release)
  if not ok then error(failure, 0) end
  return nil, message, code
end

-- Returns the keys of the next locks of the same client and kind, which can be checked for crashed
-- owners while locks[i] is awaited, or nil.
local function keys_to_check(locks, i)
  local first, keys = raw.data(locks[i]), nil
  for j = i + 1, math.min(i + MAX_LOOKAHEAD, #locks) do
    local data = raw.data(locks[j])
    if data.client == first.client and data.kind == first.kind then
      keys = keys or {}
      keys[#keys + 1] = raw.key(locks[j])
    end
  end
  return keys
end

-- Acquires the locks in order, and adds them to `taken`. Until all are held, each acquired lock is
-- renewed, even with a fixed lease.
local function acquire_each(locks, deadline, taken)
  for i, lock in ipairs(locks) do
    local acquired, message, code = raw.acquire(lock, math.max(0, deadline - driver.now(lock)),
      keys_to_check(locks, i))
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

-- Releases the locks, in the background if the caller cannot wait.
local function release_on_exit(taken)
  drain(taken, driver.release_on_exit)
end

local function return_or_release(taken, succeeded, ...)
  if succeeded then return ... end
  release_on_exit(taken)
  error((...), 0)
end

local function acquire_in_order(locks, deadline)
  local taken = {}
  return return_or_release(taken,
    compat.closing(release_on_exit, taken, pcall, acquire_each, locks, deadline, taken))
end

-- Returns the table of what the client knows about its server.
local function server_facts(self)
  return core.client.data(client_of(self.locks[1]))
end

-- Returns whether one program handles all the locks. A server with a plain URL may turn out to be a
-- node of a cluster, which refuses a program with keys of several slots.
local function is_atomic(self)
  return self.fits_one_program and not server_facts(self).checks_slots
end

-- Returns whether to acquire the locks one by one, after the attempt to acquire all of them failed.
local function may_acquire_in_order(self, deadline, message, code)
  if code == "server" and message:find("CROSSSLOT", 1, true) then
    server_facts(self).checks_slots = true
    return true
  end
  -- unlike this attempt, an acquire of a single lock waits until a temporary refusal is over
  return code ~= "lost" and core.is_transient(code, true) and driver.now(self.locks[1]) < deadline
end

local function acquire(self, wait, func_name, level)
  local deadline = driver.now(self.locks[1]) + wait
  local locks = sort_locks(self, func_name, level + 1)
  if is_atomic(self) then
    local acquired, message, code = raw.acquire_all(locks)
    if acquired then return self end
    if not may_acquire_in_order(self, deadline, message, code) then return nil, message, code end
  end
  local acquired, message, code = acquire_in_order(locks, deadline)
  if acquired then return self end
  return nil, message, code
end

-- Acquires or re-enters all the locks. `wait`: seconds in total; 0 tries once, math.huge waits
-- forever.
---@param wait? number
---@return holdfast.multi_lock? lock
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:acquire(wait)
  check_self(self, MultiLock, "multi_lock:acquire", 2)
  if wait ~= nil then check_argument(wait, options.wait, "multi_lock:acquire", "wait", 2) end
  notify()
  local all, message, code = acquire(self, wait or self.wait, "multi_lock:acquire", 2)
  if all then return all end
  return nil, message, code
end

-- The same as acquire(0).
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

-- Empties the list: calls act(lock, value) for each lock, even if a call raises. Then raises the
-- first error, or returns the first failure.
local function apply_to_each(locks, act, value)
  local first_message, first_code
  local ok, failure = drain(locks, function(lock)
    local done, message, code = act(lock, value)
    if not done and not first_code then first_message, first_code = message, code end
  end)
  if not ok then error(failure, 0) end
  if first_code then return nil, first_message, first_code end
  return true
end

-- If the coroutine is closed before this returns, the remaining locks are still released.
local function release(self)
  if is_atomic(self) then return raw.release_all(self.locks) end
  local held = copy(self.locks)
  return compat.closing(release_on_exit, held, apply_to_each, held, raw.release)
end

-- Releases each lock once.
---@return true? released
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:release()
  check_self(self, MultiLock, "multi_lock:release", 2)
  return notify_after(release(self))
end

-- Sets a new lease of `seconds` from now for each lock.
---@param seconds number
---@return true? extended
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:extend(seconds)
  check_self(self, MultiLock, "multi_lock:extend", 2)
  check_argument(seconds, options.duration, "multi_lock:extend", "seconds", 2)
  notify()
  return apply_to_each(copy(self.locks), raw.extend, seconds)
end

-- Asks the servers whether all locks are still held.
---@return true? held
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function MultiLock:check()
  check_self(self, MultiLock, "multi_lock:check", 2)
  notify()
  return apply_to_each(copy(self.locks), raw.check)
end

-- Returns whether this owner holds all locks and no lease has ended by the clients' clock; no I/O.
---@return boolean held
function MultiLock:is_held()
  check_self(self, MultiLock, "multi_lock:is_held", 2)
  notify()
  for _, lock in ipairs(self.locks) do
    if not raw.is_held(lock) then return false end
  end
  return true
end

-- Returns the seconds for which this owner can rely on all locks; no I/O.
---@return number seconds
function MultiLock:remaining()
  check_self(self, MultiLock, "multi_lock:remaining", 2)
  notify()
  local minimum = math.huge
  for _, lock in ipairs(self.locks) do
    minimum = math.min(minimum, raw.remaining(lock))
  end
  return minimum
end

-- Returns why a lock was lost, and its key: the first lost lock in key order. No I/O.
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

-- Returns the fencing tokens of the current hold, key -> token. Locks with the same key on
-- different servers have a single entry.
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

-- Returns the keys in the order in which they are acquired.
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
  release_on_exit { compat.unpack(self.locks) }
end

return multi_lock
