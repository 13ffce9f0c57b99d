-- Runs the API's calls: through the core, which blocks, or through the client's event loop.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local lazy = require "holdfast.lazy"
local loops = require "holdfast.loop"
local pump = lazy "holdfast.loop.pump"

local raw, data = core.lock, core.lock.data

local ngx = rawget(_G, "ngx")
local under_ngx = type(ngx) == "table" and ngx.socket ~= nil and ngx.socket.tcp ~= nil
  and ngx.timer ~= nil

if under_ngx and ngx.config.subsystem == "stream" then
  error("holdfast works only in nginx's http {}, not in stream {}; see docs/how-to/openresty.md", 0)
end

-- The host of this process: nginx, or none.
local host = under_ngx and require "holdfast.loop.ngx" or loops.none
local owner = host.owner

local driver = {
  default = host.driver or "posix",
  owner = owner, -- for every client, whichever loop drives it
  lock = setmetatable({}, { __index = raw }),
}

-- ---- choosing a driver ----

local names = { "posix", host.driver }
for _, name in ipairs(loops.names) do names[#names + 1] = name end

local known = {}
for _, name in ipairs(names) do known[name] = true end

-- Checks the option driver: see holdfast.options.
function driver.check(value)
  if type(value) == "table" then return loops.check(value) end
  if not known[value] then
    return 'one of "' .. table.concat(names, '", "') .. '", or your own loop'
  end
end

-- → the loop with this name | nil if calls block | nil, why the loop is not available
function driver.loop(value)
  value = value or driver.default
  if value == "posix" then return nil end
  if value == host.driver then return host end
  return loops.get(value)
end

-- Raises an error that blames the caller if abort_on_loss cannot work: if C has set a hook, which
-- Lua cannot restore, or if coroutines of an event loop would share LuaJIT's single hook.
function driver.check_hooks(lock)
  if type(debug.gethook()) == "string" then
    pump.raise "holdfast: abort_on_loss does not work alongside a debug hook set from C; check lock:lost(), or set on_lost"
  end
  local loop = data(lock).loop
  if compat.jit and loop and not loop.settings.blocks then
    pump.raise "holdfast: abort_on_loss does not work in an event loop under LuaJIT; check lock:lost(), or set on_lost"
  end
end

-- ---- calls ----

local blocking = {} -- the core's own calls
local has_loops = false -- whether an event loop serves any client

local function begin_companion(lock, ...)
  local kind, seconds, record = data(lock).next_companion(...)
  return kind and (raw.begin(lock, kind, seconds, record))
end

local function run_companions(lock, op)
  local other = begin_companion(lock)
  while other and not op:wait(other) do other = begin_companion(lock, other:finish()) end
  if other then other:abandon() end
end

local function acquire_with_companions(lock, seconds, keys)
  local op, _, done = raw.begin(lock, "acquire", seconds, keys)
  local succeeded, err = pcall(done and type or run_companions, lock, op)
  if succeeded then return op:finish() end
  op:abandon()
  error(err, 0)
end

local has_companions = false -- whether any lock has data.next_companion

-- Makes each acquire of this lock run other operations alongside, one after the other:
-- next_companion(...) receives an operation's results and returns the kind, seconds and record of
-- the next one, or nil to end the acquire.
function driver.run_alongside(lock, next_companion)
  has_companions = true
  data(lock).next_companion = next_companion
end

local function acquire(lock, seconds, keys)
  if has_companions and data(lock).next_companion then
    return acquire_with_companions(lock, seconds, keys)
  end
  return raw.acquire(lock, seconds, keys)
end

local function add_call(kind)
  blocking[kind] = owner.around_call(kind, kind == "acquire" and acquire or raw[kind])
  driver.lock[kind] = function(lock, seconds, record)
    local fields = has_loops and data(lock)
    if fields and fields.loop then return pump.call(fields, lock, kind, seconds, record) end
    return blocking[kind](lock, seconds, record)
  end
end

for kind in pairs(core.operations) do
  if raw[kind] then add_call(kind) end -- a plain command has no lock
end

for _, kind in ipairs { "acquire", "release" } do
  local all = kind .. "_all"
  blocking[all] = owner.around_call(kind, raw[all], true)
  driver.lock[all] = function(locks)
    if data(locks[1]).loop then return pump.call_all(locks, kind) end
    return blocking[all](locks)
  end
end

local function start_task(lock)
  local fields = data(lock)
  if fields.loop then pump.start_detached(pump.of(fields.client, fields.loop), fields.client) end
end

-- Releases, in the background, all holds that any caller acquired through this handle.
function driver.abandon(lock)
  raw.abandon(lock)
  owner.forget(lock)
  start_task(lock)
end

-- Makes the wait to become leader through this lock return "interrupted". If the client's calls
-- block, no other code runs during a wait, so there is none to end.
function driver.interrupt(lock)
  local fields = data(lock)
  if fields.loop then pump.interrupt(pump.of(fields.client, fields.loop), fields.leader_term) end
end

-- Starts the operation in the background. In an event loop the client's task runs it.
local function run_later(lock, kind, count)
  raw.begin(lock, kind, count):abandon()
  start_task(lock)
end

-- Gives back this handle's permits in the background.
function driver.give_later(lock)
  run_later(lock, "give", data(lock).permits)
end

-- Returns the time in seconds by the clock that this lock's calls use.
function driver.now(lock)
  local loop = data(lock).loop
  return loop and loop.now and loop.now() or core.now()
end

-- Returns whether the caller can wait. A coroutine that is being closed cannot.
function driver.can_wait(lock)
  local loop = data(lock).loop
  return not loop or loop.check()
end

-- Releases one hold, in the background if the caller cannot wait.
function driver.release_on_exit(lock)
  if driver.can_wait(lock) then return driver.lock.release(lock) end
  run_later(lock, "release")
end

function driver.release_all_on_exit(locks)
  for i = #locks, 1, -1 do driver.release_on_exit(locks[i]) end
end

function driver.ping(client, loop)
  if loop then return pump.ping(client, loop) end
  return core.client.ping(client)
end

local loops_of = setmetatable({}, { __mode = "k" }) -- client -> its loop, if it has one

local notifiers = {} -- objects of holdfast.notifier

-- Adds a notifier, which the tasks of event loops check for something to report.
function driver.add_notifier(notifier)
  notifiers[#notifiers + 1] = notifier
end

function driver.set_loop(client, loop)
  loops_of[client] = loop
  if not loop or has_loops then return end
  has_loops = true
  pump.set_notifiers(notifiers)
end

-- Like core.client.command, for any client.
function driver.command(client, args, node, timeout)
  local loop = loops_of[client]
  if loop then return pump.command(client, loop, args, node, timeout) end
  return core.client.command(client, args, node, timeout)
end

-- Returns the node that stores what belongs to a key, such as its queue, or nil if commands on such
-- names reach the right node anyway. With shards, it is the key's server.
driver.node_of_lock = core.client.node_of_lock

-- Returns a handle for reading a lock's state. `key`: the full key. `timeout`: seconds after which
-- a read fails; nil means command_timeout.
function driver.reader(client, key, kind, timeout)
  return raw.new(client, {
    client = client, key = key, kind = kind, loop = loops_of[client], lease = 1, wait = 0,
    token_ttl = 0, permits = 1, within = timeout,
  })
end

function driver.close(client, loop, timeout)
  if loop then return pump.close(client, loop, timeout) end
  return core.client.close(client, timeout)
end

for _, name in ipairs { "is_held", "holds", "remaining", "token", "lost", "owner", "collect", "settle" } do
  driver.lock[name] = owner.around_query(raw[name])
end

core.lock_type.__tostring = owner.around_query(core.lock_type.__tostring)

-- Runs a release or a complete. In an event loop, runs it in the background, because the caller may
-- be unable to wait. Logs a failure.
function driver.detach(lock, kind, seconds, record)
  if not data(lock).loop then return host.report(blocking[kind](lock, seconds, record)) end
  owner.forget(lock)
  pump.detach(lock, kind, seconds, record)
end

return driver
