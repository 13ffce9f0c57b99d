-- Names the holder after a wait for a lock has failed. This reads twice from the server, which has
-- just replied, and gives up READ_LIMIT after the end of the wait. It is done only for a single
-- server: in a cluster the second read goes to a different node, which may not reply.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local names = require "holdfast.names"
local observed = require "holdfast.observed"
local texts = require "holdfast.text"
local locale = require "holdfast.locale"

local holder = {}

local TAKEN = '^(cannot acquire "[^"]*" on .-: held by )another owner(.*)$'
local TIME_LEFT = "^, for up to (%d+)%p(%d+) s more unless renewed(.*)$"
local ADVICE = "; wait longer or try again later"
-- Seconds by which the end of a lease must have moved for the lease to count as renewed.
local MIN_RENEWAL = 0.1
local READ_LIMIT = 0.9 -- how long after its wait has ended an acquire may still read, in seconds

-- Returns the seconds left for reading, or nil if there are none.
local function time_left(deadline)
  local left = deadline - core.now()
  return left > 0 and left or nil
end

-- → { host, pid, name }, the lock's state on the server | nil if no identity is published, the lock
-- is free by now, or no reply came in time
local function read_holder(lock, deadline)
  local data, left = core.lock.data(lock), time_left(deadline)
  local key = core.lock.key(lock)
  local info = left and driver.lock.info(driver.reader(data.client, key, data.kind, left))
  left = info and info.owner and time_left(deadline)
  local who = left and names.read(data.client, info.owner, left)
  return who, who and info
end

-- `who`: { host, pid, name }
function holder.format(who)
  local name = who.name and ", " .. texts.shown(who.name) or ""
  return ("%s (pid %d%s)"):format(texts.shown(who.host), who.pid, name)
end

-- Returns the times of a hold for a message that names the holder. `held_for`: seconds so far, or
-- nil; `left`: seconds to the end of its lease, or nil; `renewed`: whether that end has moved.
function holder.format_times(held_for, left, renewed)
  local so_far = held_for and " for " .. texts.duration(held_for) or ""
  if renewed then return so_far .. ", renewed" end
  if not left or left == math.huge then return so_far end
  local remaining = ("up to %d s more unless renewed"):format(math.ceil(left))
  return held_for and so_far .. ", " .. remaining or " for " .. remaining
end

local last_holders = setmetatable({}, { __mode = "k" }) -- lock -> the last one found

function holder.last_found(lock)
  return last_holders[lock]
end

-- What follows the owner in a message includes the lease's time left at the acquire's last try.
-- If more is left now, and the same holder has held the lock since then, the lease was renewed.
-- → the holder's times, the part of the message that follows them
local function format_rest(rest, info, held_for, waited)
  local seconds, fraction, remainder = rest:match(TIME_LEFT)
  local left = seconds and locale.number(seconds .. "." .. fraction)
  local is_same_holder = left and held_for and held_for > waited -- any locale: compares numbers
  local min_ttl = is_same_holder and left + MIN_RENEWAL
  local renewed = is_same_holder and info.ttl and info.ttl > min_ttl -- any locale: compares numbers
  return holder.format_times(held_for, left, renewed), remainder or rest
end

-- Adds the holder, and the seconds waited, to the message of an acquire that found the lock taken.
-- `deadline`: when the reads must end; nil: command_timeout applies.
-- → the message, the holder, with held_for if known | the unchanged message
function holder.describe(lock, message, waited, deadline)
  local head, rest = message:match(TAKEN)
  if not head then return message end
  local who, info = read_holder(lock, deadline or math.huge)
  if not who then return message end
  who.held_for, last_holders[lock] = observed.held_for(info), who
  rest = rest:gsub("^ or reserved for other waiters", "")
  local times
  times, rest = format_rest(rest, info, who.held_for, waited)
  if rest:sub(-#ADVICE) == ADVICE then rest = rest:sub(1, -#ADVICE - 1) end
  local tail = waited > 0 and "; waited " .. texts.duration(waited) or ADVICE
  return head .. holder.format(who) .. times .. rest .. tail, who
end

-- Returns the part of a message from holder.describe that is about the holder or the queue, for use
-- in another message; nil if there is none.
function holder.extract(message)
  return message:match("(held by [^;]*%(pid %d+.*)$") or message:match("%d+ already waiting in line.*$")
end

-- Adds the holder to the message and the event of a wait that has just failed, after `waited`
-- seconds. → the message
function holder.add_to_failure(lock, message, waited)
  local deadline = core.now() + READ_LIMIT - core.lock.overdue(lock)
  local message_with_holder, who = holder.describe(lock, message, waited, deadline)
  events.name_holder(lock, who)
  return message_with_holder
end

return holder
