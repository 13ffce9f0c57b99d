-- on_event and on_change report what happens to locks and connections, and who leads. They run in
-- the Lua state of the client, during the call that detects the event or, in an event loop, in a
-- separate coroutine.
--
-- The core collects events only if there is a listener; until then this file does nothing.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local leaving = require "holdfast.leaving"
local notifier = require "holdfast.notifier"
local options = require "holdfast.options"

local events = {}

-- The state survives when package.loaded is cleared, so that a reloaded library also reports the
-- events of clients created before.
local shared = core.shared.events or {
  clients = setmetatable({}, { __mode = "k" }),
  numbers = setmetatable({}, { __mode = "k" }),
  listeners = setmetatable({}, { __mode = "v" }),
  last_number = 0,
}
core.shared.events = shared
local clients = shared.clients -- client -> its listener, or true if only its locks have listeners
local numbers, listeners = shared.numbers, shared.listeners -- a lock's listener <-> its number
local failed = setmetatable({}, { __mode = "k" }) -- listeners whose error was logged
local installed = false

events.has_callbacks = false -- whether an on_event or an on_lost has been set

local function warn(message)
  local ngx = rawget(_G, "ngx")
  if ngx and ngx.log then return ngx.log(ngx.ERR, message) end
  io.stderr:write(message, "\n")
end

local function call_listener(item)
  local listener, event, option = item[1], item[2], item[3] or "on_event"
  local ok, err = pcall(listener, event)
  if ok or failed[listener] then return true end
  failed[listener] = true
  warn(("holdfast: error in %s (reported only once): %s"):format(option, compat.error_text(err)))
  return true
end

-- Adds the holder to the last event that reports the lock as taken.
local function add_holder(list, acquire)
  for i = #list, 1, -1 do
    local event, who = list[i], acquire.who
    if event.event == "busy" and event.key == acquire.key and event.owner == acquire.owner then
      event.host, event.pid, event.name = who.host, who.pid, who.name
      return
    end
  end
end

-- `acquire`: the acquire that has just failed, from events.name_holder, or nil
local function gather(add, acquire)
  for client, listener in pairs(clients) do
    local list = core.client.events(client) or {}
    if acquire and acquire.client == client then add_holder(list, acquire) end
    for _, event in ipairs(list) do
      local lock_listener = listeners[event.observer]
      event.observer = nil
      -- the lock's listener and the client's listener each get their own table
      if lock_listener then add { lock_listener, options.copy(event) } end
      if listener ~= true then add { listener, event } end
    end
  end
  leaving.sweep()
end

local notices = notifier.new(gather, call_listener)

-- When a wait for the lock has just failed, adds the holder to its event, unless the event has
-- already been delivered. `who`: { host, pid, name }
function events.name_holder(lock, who)
  if not installed or not who then return end
  local client, key = core.lock.data(lock).client, core.lock.key(lock)
  gather(notices.add, { client = client, key = key, owner = driver.lock.owner(lock), who = who })
end

-- Calls the listeners for what has happened.
function events.notify()
  if installed then notices:notify() end
end

-- Calls listener(event) after the earlier events. `option`: the listener's name in messages.
function events.report(listener, event, option)
  notices.add { listener, event, option }
end

local function notify_after(...)
  events.notify()
  return ...
end

-- Calls that acquire something for the caller, and the functions that undo them in the background
-- if the caller's coroutine is closed while a listener is waiting.
local ACQUIRING = {
  acquire = driver.release_on_exit,
  acquire_all = driver.release_all_on_exit,
  take = driver.give_later,
}
-- Other calls that deliver events when they return. The call that reads the holder must not do so:
-- its result is added to an event that must not have been delivered yet.
local OTHER_CALLS = { "force_release", "take", "await" }

local function notify_acquired(undo, handle, acquired, ...)
  if not acquired then return notify_after(acquired, ...) end
  compat.closing(undo, handle, events.notify)
  return acquired, ...
end

local function report_after(name)
  local original, undo = driver.lock[name], ACQUIRING[name]
  driver.lock[name] = undo and function(handle, ...)
    return notify_acquired(undo, handle, original(handle, ...))
  end or function(...) return notify_after(original(...)) end
end

-- From the first listener on, each call delivers its events when it returns.
local function install()
  if installed then return end
  installed, events.has_callbacks = true, true
  leaving.install()
  for name in pairs(core.hold_operations) do report_after(name) end
  for _, name in ipairs(OTHER_CALLS) do report_after(name) end
  driver.add_notifier(notices)
end

-- From now on each call also delivers what was passed to events.report.
events.install = install

-- Calls the listener with the events of all the client's locks and connections.
function events.watch(client, listener)
  install()
  clients[client] = listener
  core.client.watch(client)
end

-- Adds a listener to the client, called before the one that the client already has.
function events.add_listener(client, listener)
  local existing = clients[client]
  if type(existing) ~= "function" then return events.watch(client, listener) end
  events.watch(client, function(event)
    listener(event)
    return existing(event)
  end)
end

-- → a number for the lock's listener, or 0 if it has none
function events.observer(client, listener)
  if not listener then return 0 end
  install()
  clients[client] = clients[client] or true
  if not numbers[listener] then
    shared.last_number = shared.last_number + 1
    numbers[listener], listeners[shared.last_number] = shared.last_number, listener
  end
  return numbers[listener]
end

if next(clients) then install() end

return events
