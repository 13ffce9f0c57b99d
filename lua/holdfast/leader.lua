-- Finds out who leads, for the on_change of client:lead.
--
-- A new leader announces itself on a channel of its lock. The message is only a hint: the waiting
-- processes then read the lock, and also from time to time, while their acquire waits. Readings
-- carry a token, so an old leader is never reported after a newer one.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local names = require "holdfast.names"
local observed = require "holdfast.observed"

local raw = driver.lock

local leader = {}

local RETRY_PAUSE = 1 -- seconds from a failure to the next try
local NAME_TRIES, NAME_PAUSE = 4, 0.25 -- a client publishes its name a quarter of a second late
local ANNOUNCE_TIMEOUT = 1 -- seconds for the announcement

-- Returns the state of a client:lead with this on_change. `leading`: see new_term in lead.lua
function leader.new_watch(on_change, leading)
  events.install()
  return { on_change = on_change, leading = leading, owner = "", token = nil, known = "" }
end

-- ---- reporting ----

local function term_start(token)
  return token and token >= observed.FIRST_US and token / 1e6 or os.time()
end

-- Returns whether to report this holder: it is not the one reported last or has a newer token, and
-- its token is not older.
local function is_news(self, owner, token)
  if self.token and token and token < self.token then return false end
  return owner ~= self.owner or self.token ~= nil and token ~= nil and token > self.token
end

-- A holder may have no token of its own. The reading then has the token drawn last for the key,
-- which was an earlier holder's.
local function report(self, owner, token, who)
  local new_token = token ~= self.token and token or nil
  self.owner, self.token = owner, token or self.token
  events.report(self.on_change, {
    host = who and who.host, pid = who and who.pid, name = who and who.name, token = new_token,
    since = term_start(new_token),
  }, "on_change")
end

-- ---- during a wait: see driver.run_alongside ----

local on_read, on_name, ask_name

local function read(self)
  self.step = on_read
  return "watch", math.huge, self.known
end

function on_read(self, info)
  if not info then
    self.step = read
    return "pause", RETRY_PAUSE
  end
  self.known = ("%.0f %s"):format(info.token or 0, info.owner)
  if not is_news(self, info.owner, info.token) then return read(self) end
  self.read, self.tries = info, 0
  return ask_name(self)
end

function ask_name(self)
  local key = names.key(self.client, self.read.owner)
  if not key then return on_name(self) end
  self.step, self.tries = on_name, self.tries + 1
  return "command", 0, { "GET", key }
end

function on_name(self, text)
  local who = names.parse(text)
  if not who and self.tries > 0 and self.tries < NAME_TRIES then
    self.step = ask_name
    return "pause", NAME_PAUSE
  end
  report(self, self.read.owner, self.read.token, who)
  if not self.loop then events.notify() end -- in an event loop the pump does
  return read(self)
end

-- Watches who holds this lock while its acquires wait.
function leader.watch(self, lock)
  local data = raw.data(lock)
  self.client, self.loop, self.step = data.client, data.loop, read
  driver.run_alongside(lock, function(...)
    local kind, seconds, text = self.step(self, ...)
    if not self.leading.resigned then return kind, seconds, text end
  end)
end

-- ---- this process leads ----

local function channel(key)
  local name = key:find("{", 1, true) and key or ("{%s}"):format(key)
  return core.wire.prefixes.releases .. name .. ":leader"
end

-- Announces that the caller leads now. After a failure the watchers learn it later, by reading.
function leader.announce(lock)
  local client, key = raw.data(lock).client, raw.key(lock)
  local node = driver.node_of_lock(client, key)
  driver.command(client, { "PUBLISH", channel(key), "1" }, node, ANNOUNCE_TIMEOUT)
end

-- Announces that the caller leads, and reports it to its own on_change.
function leader.begin(self, lock)
  local who = names.parse(core.client.who(raw.data(lock).client))
  report(self, raw.owner(lock), raw.token(lock), who)
  leader.announce(lock)
  events.notify()
end

return leader
