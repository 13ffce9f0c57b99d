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

local events = {}

-- The state outlives a cleared package.loaded, so that the library loaded last also reports events
-- of clients created before.
local shared = core.shared.events or {
  clients = setmetatable({}, { __mode = "k" }),
  numbers = setmetatable({}, { __mode = "k" }),
  listeners = setmetatable({}, { __mode = "v" }),
  last_number = 0,
}
core.shared.events = shared
local clients = shared.clients -- client -> its listener, or true if only its locks have listeners
local numbers, listeners = shared.numbers, shared.listeners -- a lock's listener <-> its number
local failed = setmetatable({}, { __mode = "k" }) -- listeners whose error was reported
local installed = false

events.heeded = false -- whether there has been an on_event or an on_lost

local function warn(message)
  local ngx = rawget(_G, "ngx")
  if ngx and ngx.log then return ngx.log(ngx.ERR, message) end
  io.stderr:write(message, "\n")
end

local function call(item)
  local listener, event, option = item[1], item[2], item[3] or "on_event"
  local ok, err = pcall(listener, event)
  if ok or failed[listener] then return true end
  failed[listener] = true
  warn(("holdfast: error in %s (reported only once): %s"):format(option, compat.text(err)))
  return true
end

-- The listener of the lock and that of the client each get a table of their own.
local function copy(event)
  local own = {}
  for name, value in pairs(event) do own[name] = value end
  return own
end

-- Names the holder in the last event that reports the lock as taken.
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
      if lock_listener then add { lock_listener, copy(event) } end
      if listener ~= true then add { listener, event } end
    end
  end
  leaving.sweep()
end

local notices = notifier.new(gather, call)

-- Adds the holder to the event of a wait for the lock that has just failed, unless the event has
-- been delivered. `who`: { host, pid, name }
function events.name_holder(lock, who)
  if not installed or not who then return end
  local client, key = core.lock.data(lock).client, core.lock.key(lock)
  gather(notices.add, { client = client, key = key, owner = driver.lock.owner(lock), who = who })
end

-- Calls the listeners for what has happened.
function events.notify()
  if installed then notices:notify() end
end

-- Calls listener(what) after the earlier events are reported. `option`: the listener's name in
-- messages.
function events.report(listener, what, option)
  notices.add { listener, what, option }
end

local function notify_after(...)
  events.notify()
  return ...
end

-- Calls that give the caller something, and the functions that undo them in the background if the
-- caller's coroutine is closed while a listener waits.
local TAKING = { acquire = driver.leave, acquire_all = driver.leave_all, take = driver.give_later }
-- Other calls that report what has happened, although they are not about a hold of the caller. The
-- call that reads the holder must not: it runs before the event that it completes is delivered.
local OTHER_CALLS = { "force_release", "take", "await" }

local function notify_taken(undo, what, taken, ...)
  if not taken then return notify_after(taken, ...) end
  compat.closing(undo, what, events.notify)
  return taken, ...
end

local function report_after(name)
  local plain, undo = driver.lock[name], TAKING[name]
  driver.lock[name] = undo and function(what, ...)
    return notify_taken(undo, what, plain(what, ...))
  end or function(...) return notify_after(plain(...)) end
end

-- From the first listener on, each call reports what it did when it returns.
local function install()
  if installed then return end
  installed, events.heeded = true, true
  leaving.install()
  for name in pairs(core.hold_operations) do report_after(name) end
  for _, name in ipairs(OTHER_CALLS) do report_after(name) end
  driver.add_notifier(notices)
end

-- From now on each call reports what it did, and what was passed to events.report.
events.install = install

-- Calls the listener for the events of all the client's locks and connections.
function events.watch(client, listener)
  install()
  clients[client] = listener
  core.client.watch(client)
end

-- Adds a listener to the client, called before the one that the client already has.
function events.listen_too(client, listener)
  local known = clients[client]
  if type(known) ~= "function" then return events.watch(client, listener) end
  events.watch(client, function(event)
    listener(event)
    return known(event)
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
