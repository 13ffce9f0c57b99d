-- Names the holder where a wait for a lock has failed: two short reads of the server, which has
-- just answered. Only of one server: in a cluster the second read goes to another node, which may
-- be silent.

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

-- → { host, pid, name } | nil: it has published nothing, or the lock is free meanwhile
local function who_holds(lock)
  local info = driver.lock.info(lock)
  return info and info.owner and names.of(core.lock.data(lock).client, info.owner)
end

-- `who`: { host, pid, name }
function holder.text(who)
  local name = who.name and ", " .. texts.printable(who.name) or ""
  return ("%s (pid %d%s)"):format(texts.printable(who.host), who.pid, name)
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
-- waited. → the message, the holder | the message as it was
function holder.describe(lock, message, waited)
  local head, rest = message:match(TAKEN)
  local who = head and who_holds(lock)
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
  message, who = holder.describe(lock, message, wait)
  events.name_holder(lock, who)
  return nil, message, code
end

return holder
