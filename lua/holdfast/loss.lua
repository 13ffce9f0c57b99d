-- Notifies owners of lost locks: calls on_lost in the owner's Lua state, during the next call of
-- holdfast or, in an event loop, in a coroutine of its own.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local leaving = require "holdfast.leaving"
local notifier = require "holdfast.notifier"

local loss = {}

-- This state survives when package.loaded is cleared, so that the library, when loaded
-- again, also reports losses of locks created earlier.
local shared = core.shared
shared.watched = shared.watched or setmetatable({}, { __mode = "k" })
shared.clients = shared.clients or setmetatable({}, { __mode = "k" })
local watched = shared.watched -- locks with an on_lost
local clients = shared.clients
if next(clients) then events.heeded = true end

-- Makes the loss of a hold acquired through this handle call the lock's on_lost.
function loss.watch(lock, client)
  leaving.install()
  watched[lock] = true
  clients[client], events.heeded = true, true
end

local function gather_losses(add)
  local news = false
  for client in pairs(clients) do
    news = core.client.has_losses(client) or news
  end
  if not news then return end
  for lock in pairs(watched) do
    for reason in core.lock.pending_loss, lock do add { lock, reason } end
  end
end

local function gather(add)
  gather_losses(add)
  leaving.sweep()
end

local function call(item)
  return pcall(core.lock.data(item[1]).on_lost, item[1], item[2])
end

local losses = notifier.new(gather, call)

driver.add_notifier(losses)

-- Calls all callbacks that are due. → true | false, the first error that one of them raised
function loss.try_notify()
  if not events.heeded then return true end
  events.notify()
  return losses:notify()
end

-- Methods that do I/O or read a hold call this first; those that release call it last. Raises the
-- first error of a callback, after all callbacks have run.
function loss.notify()
  if not events.heeded then return end
  local fine, failure = loss.try_notify()
  if not fine then error(failure, 0) end
end

-- Notifies of losses, then returns its arguments, the results of a call.
function loss.notify_after(...)
  loss.notify()
  return ...
end

return loss
