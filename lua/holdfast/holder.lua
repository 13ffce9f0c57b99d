-- Names the holder where a wait for a lock has failed: two short reads of the server, which has
-- just answered, for as long as the acquire may still take. Only of one server: in a cluster the
-- second read goes to another node, which may be silent.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local names = require "holdfast.names"
local texts = require "holdfast.text"
local locale = require "holdfast.locale"

local holder = {}

local TAKEN = '^(cannot acquire "[^"]*" on .-: held by )another owner(.*)$'
local REST = "^, for up to (%d+)%p(%d+) s more unless renewed(.*)$"
local ADVICE = "; wait longer or try again later"
local BEHIND = 0.9 -- seconds behind the end of its wait for which an acquire may still read

-- Seconds left for that; nil: none.
local function time_left(by)
  local left = by - core.now()
  return left > 0 and left or nil
end

-- → { host, pid, name } | nil: it has published nothing, the lock is free by now, or there was no
-- reply in time
local function who_holds(lock, by)
  local data, left = core.lock.data(lock), time_left(by)
  local info = left and driver.lock.info(driver.reader(data.client, data.key, data.kind, left))
  left = info and info.owner and time_left(by)
  return left and names.of(data.client, info.owner, left) or nil
end

-- `who`: { host, pid, name }
function holder.text(who)
  local name = who.name and ", " .. texts.shown(who.name) or ""
  return ("%s (pid %d%s)"):format(texts.shown(who.host), who.pid, name)
end

-- Whole numbers are written in the same way in every locale.
local function duration(seconds)
  local ms = math.floor(seconds * 1000 + 0.5)
  if ms < 1000 then return ("%d ms"):format(ms) end
  return ("%d s"):format(math.floor(ms / 1000))
end

local found = setmetatable({}, { __mode = "k" }) -- lock -> the holder named in its last failure

function holder.found(lock)
  return found[lock]
end

-- The message of an acquire that found the lock taken, with its holder and the seconds that it has
-- waited. `by`: until when the server may be read; nil: for command_timeout. → the message, the
-- holder | the message as it was
function holder.describe(lock, message, waited, by)
  local head, rest = message:match(TAKEN)
  local who = head and who_holds(lock, by or math.huge)
  if not who then return message end
  found[lock] = who
  rest = rest:gsub("^ or reserved for other waiters", "")
  local seconds, fraction, more = rest:match(REST)
  if seconds then
    local left = locale.number(seconds) + (locale.number(fraction) > 0 and 1 or 0)
    rest = (" for up to %d s more unless renewed%s"):format(left, more)
  end
  if rest:sub(-#ADVICE) == ADVICE then rest = rest:sub(1, -#ADVICE - 1) end
  local behind = waited > 0 and "; waited " .. duration(waited) or ADVICE
  return head .. holder.text(who) .. rest .. behind, who
end

-- What a message of holder.describe has of the holder, or of the line, for messages in other
-- words; nil: nothing.
function holder.part(message)
  return message:match("(held by [^;]*%(pid %d+.*)$") or message:match("%d+ already waiting in line.*$")
end

local acquire = driver.lock.acquire

-- From now on a wait that fails names the holder. try_acquire and a wait of 0 do not: they cost one
-- round trip.
function driver.lock.acquire(lock, wait)
  local acquired, message, code, record = acquire(lock, wait)
  if acquired then return acquired end
  if record then return nil, message, code, record end
  if code ~= "busy" then return nil, message, code end
  local data = core.lock.data(lock)
  wait = wait or data.wait
  local waits = wait > 0 and data.max_waiters ~= 0
  local is_asked = waits and not core.kinds[data.kind].fingerprinted
    and #core.client.nodes(data.client) == 1
  if not is_asked or not driver.can_wait(lock) then return nil, message, code end
  local who
  local by = core.now() + BEHIND - core.lock.overdue(lock)
  message, who = holder.describe(lock, message, wait, by)
  events.name_holder(lock, who)
  return nil, message, code
end

return holder
