-- For tests without a server: creates clients whose servers and clock are in this process. See
-- docs/how-to/testing.md.
--
-- The core and the programs are the same as for all other clients. Calls block, as with the driver
-- "posix". While a call is waiting, the clock jumps from one due event to the next.

require "holdfast"

local clients = require "holdfast.client"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local lead = require "holdfast.lead"
local locks = require "holdfast.lock"
local loops = require "holdfast.loop"
local loss = require "holdfast.loss"
local options = require "holdfast.options"
local pump = require "holdfast.loop.pump"
local world = require "holdfast.testing.world"

local engine, raw, data = core.engine, core.lock, core.lock.data

local HOUR = 3600
local URL = "redis://testing"

---@class holdfast.testing
local testing = {}

-- ---- the driver ----

local loop = {
  name = "holdfast.testing", owner = loops.none.owner, report = loops.none.report,
  settings = { external = true, blocks = true },
}

function loop.check() return true end

function loop.now() return world.now end

local WAITS = { acquire = true, await = true, take = true }
local FOREVER = "holdfast.testing: this call would wait forever: nothing has ended the wait in an hour of the test's clock"

local function is_endless(kind, seconds, lock)
  return WAITS[kind] and (seconds or data(lock).wait) == math.huge
end

-- → a function that returns whether the operation has ended, and also runs the operations that
-- driver.run_alongside requests
local function new_end_check(op, lock)
  local next_companion = lock and data(lock).next_companion
  if not next_companion then return function() return op:is_done() end end
  local companion
  local function begin(...)
    local kind, seconds, record = next_companion(...)
    companion = kind and raw.begin(lock, kind, seconds, record)
    events.notify()
  end
  begin()
  return function()
    if op:is_done() and companion then companion:abandon() end
    if op:is_done() or not companion then return true end
    if companion:is_done() then begin(companion:finish()) end
    return false
  end
end

-- Lets time pass until the operation has ended; raises at `deadline`. `lock`: only for an acquire
local function finish(op, deadline, lock)
  local succeeded, result = pcall(world.run_until, new_end_check(op, lock), deadline)
  if succeeded and result then return op:finish() end
  op:abandon()
  world.advance(0) -- lets it leave the queue
  if not succeeded then error(result, 0) end
  pump.raise(FOREVER)
end

local STOPPED = "holdfast.testing: testing.lose has stopped the process of this client for the moment"

-- Prepares a call. Finishes work that earlier calls have left in the background.
local function prepare_call(lock)
  if world.is_frozen(data(lock).client) then pump.raise(STOPPED) end
  world.advance(0)
end

local function call(lock, kind, seconds, record)
  prepare_call(lock)
  local op = raw.begin(lock, kind, seconds, record)
  if kind == "release" and data(lock).async_release then
    local sent, message, code = op:detach()
    if sent ~= false then return sent, message, code end
  end
  local deadline = is_endless(kind, seconds, lock) and world.now + HOUR or math.huge
  return finish(op, deadline, kind == "acquire" and lock)
end

-- These functions replace the pump's functions with the same names.
local replacements = {}
loop.replacements = replacements

function replacements.call(_, lock, kind, seconds, record)
  return call(lock, kind, seconds, record)
end

function replacements.call_all(list, kind)
  prepare_call(list[1])
  return finish(raw.begin_all(list, kind .. "_all"), math.huge)
end

function replacements.detach(lock, kind, seconds, record)
  loop.report(call(lock, kind, seconds, record))
end

-- Does pending background work immediately, as far as possible.
function replacements.start_detached()
  world.advance(0)
  return true
end

function replacements.close(client, _, patience)
  engine.close(client)
  world.run_until(function() return engine.is_quiet(client) end, world.now + patience)
  world.remove(client)
  core.client.close(client, 0)
end

-- Functions that return the loop from the arguments of the pump's functions.
local GET_LOOP = {
  call = function(lock_data) return lock_data.loop end,
  call_all = function(list) return data(list[1]).loop end,
  detach = function(lock) return data(lock).loop end,
  start_detached = function(self) return self.loop end,
  close = function(_, its_loop) return its_loop end,
}

local function replace(name, get_loop)
  local original = pump[name]
  pump[name] = function(...)
    local replacement = get_loop(...).replacements
    if replacement then return replacement[name](...) end
    return original(...)
  end
end

-- Replaces the functions only once, although busted loads this module for each file.
if not pump.has_replaced then
  pump.has_replaced = true
  for name, get_loop in pairs(GET_LOOP) do replace(name, get_loop) end
end

-- ---- clients ----

local function check_options(opts, level)
  if opts ~= nil then
    options.check_argument(opts, options.any_table, "testing.client", "opts", level + 1)
  end
  local given = options.copy(opts or {})
  if given.driver ~= nil then
    error("testing.client: leave out driver; calls block and the test moves the clock", level + 1)
  end
  local url = given.url
  if type(url) == "string" and url:find("^%s*[\"']?%w+%+") then
    error("testing.client: url must be that of a single server; Sentinels and clusters need real servers", level + 1)
  end
  if url == nil and given.servers == nil and given.mode == nil then given.url = URL end
  return given
end

local options_of = setmetatable({}, { __mode = "k" }) -- client -> its options

local function new(given, level)
  local client = clients.new(given, level + 1, nil, loop)
  world.add(client, given.servers ~= nil)
  options_of[client] = given
  return client
end

-- Creates a client whose server is in this process. All clients with a single server share it,
-- whatever their URLs are; with `servers`, each entry is a separate server.
---@param opts? holdfast.client_options without driver
---@return holdfast.client client
function testing.client(opts)
  return (new(check_options(opts, 2), 2)) -- no tail call: the level counts this function
end

-- Closes all clients of testing.client, and empties and repairs the servers. Does not reset the
-- clock.
function testing.reset()
  world.reset()
end

-- ---- the clock ----

local function check_seconds(value)
  if options.wait(value) or value == math.huge then
    return "a non-negative number of seconds"
  end
end

-- Lets time pass: locks are renewed, leases end, functions passed to testing.after are called.
---@param seconds number
function testing.advance(seconds)
  options.check_argument(seconds, check_seconds, "testing.advance", "seconds", 2)
  world.advance(seconds)
  loss.notify()
end

-- Calls fn() in a new coroutine after this time, even while another call is waiting.
---@param seconds number
---@param fn fun()
function testing.after(seconds, fn)
  options.check_argument(seconds, check_seconds, "testing.after", "seconds", 2)
  options.check_argument(fn, options.callable, "testing.after", "fn", 2)
  world.after(seconds, function() fn() end)
end

-- ---- faults ----

local LEASE_MARGIN = 0.02 -- fraction of a lease by which the server may end it after the holder

-- Returns the seconds until the hold's lease has certainly ended, on the holder and the server.
local function lease_of(lock)
  return raw.remaining(lock) * (1 + LEASE_MARGIN) + LEASE_MARGIN
end

-- client -> the handle with which it has taken a lock, so that neither is garbage-collected
local other_owners = setmetatable({}, { __mode = "k" })

local function delete(lock)
  local key = raw.key(lock)
  world.delete(key)
  world.delete(core.wire.names(data(lock).kind, key).leases)
end

local LOSE = {}

function LOSE.expired(lock) world.freeze(data(lock).client, lease_of(lock)) end

function LOSE.unreachable(lock) world.cut(data(lock).client, lease_of(lock)) end

function LOSE.max_hold(lock)
  world.advance((data(lock).max_hold or 0) + data(lock).lease * LEASE_MARGIN + LEASE_MARGIN)
end

function LOSE.deleted(lock)
  delete(lock)
  call(lock, "check")
end

function LOSE.taken(lock)
  local client = data(lock).client
  local given = options.copy(options_of[client])
  given.prefix, given.name, given.on_event = nil, "somebody-else", nil
  local other = new(given, 1)
  delete(lock)
  other_owners[other] = locks.new(other, raw.key(lock), { wait = 0 }, clients.defaults(other),
    data(lock).kind)
  call(other_owners[other], "acquire")
  call(lock, "check")
end

local check_reason = options.one_of("expired", "taken", "deleted", "unreachable", "max_hold")

local function check_lock(value)
  local is_one = not options.userdata(value, "holdfast.lock") or not options.userdata(value, "holdfast.permit")
  if not is_one or data(value).loop ~= loop then
    return "a lock, permit or term of a client of testing.client"
  end
  if not driver.lock.is_held(value) then return "one that this coroutine holds", "", "one that it does not" end
end

-- Loses the lock for this reason. "expired" and "unreachable" let time pass until the lease has
-- ended, "max_hold" until the limit is reached.
---@param lock holdfast.lock | holdfast.permit | holdfast.term held by the calling coroutine
---@param reason holdfast.lost_reason
function testing.lose(lock, reason)
  if lead.is_term(lock) then lock = lock.lock end
  options.check_argument(lock, check_lock, "testing.lose", "lock", 2)
  options.check_argument(reason, check_reason, "testing.lose", "reason", 2)
  if reason == "taken" and core.kinds[data(lock).kind].has_permits then
    error("testing.lose: a permit cannot be taken; nobody else gets the same one", 2)
  end
  LOSE[reason](lock)
  local lost = driver.lock.lost(lock)
  if lost ~= reason then
    error(("testing.lose: this lock cannot be lost in this way (%s); it %s"):format(reason, lost
      and "was lost: " .. lost or "is still held"), 2)
  end
  loss.notify()
end

local check_failure = options.one_of("unreachable", "silent", "denied")

-- Makes the servers fail from now on. "unreachable": they refuse connections; "silent": they do not
-- reply; "denied": they refuse every program because of a missing right.
---@param how "unreachable" | "silent" | "denied"
function testing.fail(how)
  options.check_argument(how, check_failure, "testing.fail", "how", 2)
  world.fail(how)
end

-- Ends the failure that testing.fail began.
function testing.recover()
  world.fail(nil)
end

return testing
