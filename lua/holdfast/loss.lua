-- Notifies owners of lost locks: calls on_lost in the owner's Lua state, during the next call
-- into holdfast or, in an event loop, in a coroutine of its own.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local leaving = require "holdfast.leaving"
local notifier = require "holdfast.notifier"

local loss = {}

-- The state survives when package.loaded is cleared: see holdfast.events.
local shared = core.shared
shared.watched = shared.watched or setmetatable({}, { __mode = "k" })
shared.clients = shared.clients or setmetatable({}, { __mode = "k" })
local watched = shared.watched -- locks with an on_lost
local clients = shared.clients
if next(clients) then events.has_callbacks = true end

-- From now on, calls the lock's on_lost when a hold acquired through this handle is lost.
function loss.watch(lock, client)
  leaving.install()
  watched[lock] = true
  clients[client], events.has_callbacks = true, true
end

local function gather_losses(add)
  local has_any = false
  for client in pairs(clients) do
    has_any = core.client.has_losses(client) or has_any
  end
  if not has_any then return end
  for lock in pairs(watched) do
    for reason in core.lock.pending_loss, lock do add { lock, reason } end
  end
end

local function gather(add)
  gather_losses(add)
  leaving.sweep()
end

local function call_on_lost(item)
  return pcall(core.lock.data(item[1]).on_lost, item[1], item[2])
end

local losses = notifier.new(gather, call_on_lost)

driver.add_notifier(losses)

-- Calls all callbacks that are due. → true | false, the first error that one of them raised
function loss.try_notify()
  if not events.has_callbacks then return true end
  events.notify()
  return losses:notify()
end

-- Methods that do I/O or read a hold call this first; those that release call it last. After all
-- callbacks have run, raises the first error that one of them raised.
function loss.notify()
  if not events.has_callbacks then return end
  local ok, failure = loss.try_notify()
  if not ok then error(failure, 0) end
end

-- Calls notify, then returns its arguments, which are a call's results.
function loss.notify_after(...)
  loss.notify()
  return ...
end

return loss
