-- Tells owners that a lock is lost: on_lost callbacks, called in the owner's Lua state at the next
-- call of holdfast.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local leaving = require "holdfast.leaving"
local teller = require "holdfast.teller"

local loss = {}

-- What was made before package.loaded was cleared is told of by the library that is loaded now.
local shared = core.shared
shared.watched = shared.watched or setmetatable({}, { __mode = "k" })
shared.clients = shared.clients or setmetatable({}, { __mode = "k" })
local watched = shared.watched -- locks with on_lost that were acquired
local clients = shared.clients
if next(clients) then events.heeded = true end

-- The lock's on_lost is called when a hold that was acquired through it is lost.
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

local told = teller.new(gather, call)

driver.tell_apart(told)

-- Calls all callbacks. → whether none raised an error, the first error
function loss.try_tell()
  if not events.heeded then return true end
  events.tell()
  return told:tell()
end

-- Called by every method of the API: first, but by those that let go last. An error of a callback
-- comes out of it after all callbacks were called.
function loss.tell()
  if not events.heeded then return end
  local fine, failure = loss.try_tell()
  if not fine then error(failure, 0) end
end

-- Tells losses, and returns what it was given: what a call returns.
function loss.tell_after(...)
  loss.tell()
  return ...
end

return loss
