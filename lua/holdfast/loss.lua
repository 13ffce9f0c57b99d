-- Tells owners that a lock is lost: on_lost callbacks, called in the owner's Lua state at the next
-- call of holdfast.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"

local loss = {}

local watched = setmetatable({}, { __mode = "k" }) -- locks with on_lost that were acquired
local clients = setmetatable({}, { __mode = "k" })

-- The lock's on_lost is called when a hold that was acquired through it is lost.
function loss.watch(lock, client)
  watched[lock] = true
  clients[client], events.heeded = true, true
end

local function tell_all()
  local told = {}
  for lock in pairs(watched) do
    local reason = core.lock.pending_loss(lock)
    if reason then told[#told + 1] = { lock, reason } end
  end
  local failed, failure
  for _, each in ipairs(told) do
    local ok, err = pcall(core.lock.data(each[1]).on_lost, each[1], each[2])
    if not ok and not failed then failed, failure = true, err end
  end
  if failed then error(failure, 0) end
end

-- Called by every method of the API: first, but by those that let go last. An error of a callback
-- comes out of it after all callbacks were called.
function loss.tell()
  if not events.heeded then return end
  events.tell()
  local news = false
  for client in pairs(clients) do
    news = core.client.has_losses(client) or news
  end
  if news then tell_all() end
end

-- Tells losses, and returns what it was given: what a call returns.
function loss.tell_after(...)
  loss.tell()
  return ...
end

if driver.listen then driver.listen(loss.tell) end

return loss
