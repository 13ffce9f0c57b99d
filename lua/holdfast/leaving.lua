-- Anchors released handles that have an on_lost or on_event until the events of the release are
-- reported. Nothing else may refer to such a handle, and a collected handle is not notified.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local MAX_CHECKS = 4 -- handles that one sweep checks

local leaving = {}

local queue, first, last = {}, 1, 0
local queued = {} -- handle -> true

local function has_news(lock)
  local hold_news, loss_news = core.lock.has_news(lock)
  return hold_news or loss_news and core.lock.data(lock).on_lost ~= nil
end

local function add(lock)
  last = last + 1
  queue[last] = lock
end

local function take()
  local lock = queue[first]
  queue[first] = nil
  first = first + 1
  return lock
end

-- Drops handles that have nothing left to report.
function leaving.sweep()
  for _ = first, math.min(last, first + MAX_CHECKS - 1) do
    local lock = take()
    if has_news(lock) then add(lock) else queued[lock] = nil end
  end
end

local function anchor(lock, ...)
  local data = core.lock.data(lock)
  if (data.on_lost or data.on_event) and not queued[lock] and has_news(lock) then
    queued[lock] = true
    add(lock)
  end
  return ...
end

local function anchor_all(locks, ...)
  for _, lock in ipairs(locks) do anchor(lock) end
  return ...
end

local installed = false

-- Called for each lock with a callback. From the first one on, released handles are anchored.
function leaving.install()
  if installed then return end
  installed = true
  for name, after in pairs { release = anchor, complete = anchor, release_all = anchor_all } do
    local original = driver.lock[name]
    driver.lock[name] = function(handle, ...) return after(handle, original(handle, ...)) end
  end
end

return leaving
