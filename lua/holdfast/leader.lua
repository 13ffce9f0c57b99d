-- Finds out who leads, for the on_change of client:lead.
--
-- A new leader announces itself on a channel of its lock. The message is only a hint: each process
-- that is waiting to acquire the lock reads it after every message, and periodically. The lock's
-- token shows which leader is newer, so an older one is never reported after a newer one.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local names = require "holdfast.names"
local observed = require "holdfast.observed"

local raw = driver.lock

local leader = {}

local RETRY_PAUSE = 1 -- seconds after a failure
-- A client publishes its name after a delay, so the name is read up to NAME_TRIES times, with
-- pauses of NAME_PAUSE seconds.
local NAME_TRIES, NAME_PAUSE = 4, 0.25
local ANNOUNCE_TIMEOUT = 1 -- seconds

-- Returns the state of a client:lead with this on_change. `election`: see new_term in lead.lua
function leader.new_watch(on_change, election)
  events.install()
  return { on_change = on_change, election = election, owner = "", token = nil, last_read = "" }
end

-- ---- reporting ----

local function term_start(token)
  return token and token >= observed.FIRST_US and token / 1e6 or os.time()
end

-- Returns whether to report this holder: it is not the one reported last, or it has a newer token;
-- and its token is not older than the last one.
local function is_new(self, owner, token)
  if self.token and token and token < self.token then return false end
  return owner ~= self.owner or self.token ~= nil and token ~= nil and token > self.token
end

-- A holder may have no token of its own. Then the token that was read is the last one issued for
-- the key, to an earlier holder.
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

local function watch_lock(self)
  self.step = on_read
  return "watch", math.huge, self.last_read
end

function on_read(self, info)
  if not info then
    self.step = watch_lock
    return "pause", RETRY_PAUSE
  end
  self.last_read = ("%.0f %s"):format(info.token or 0, info.owner)
  if not is_new(self, info.owner, info.token) then return watch_lock(self) end
  self.info, self.tries = info, 0
  return ask_name(self)
end

function ask_name(self)
  local key = names.key(self.client, self.info.owner)
  if not key then return on_name(self) end
  self.step, self.tries = on_name, self.tries + 1
  return "command", 0, { "GET", key }
end

function on_name(self, published)
  local who = names.parse(published)
  if not who and self.tries > 0 and self.tries < NAME_TRIES then
    self.step = ask_name
    return "pause", NAME_PAUSE
  end
  report(self, self.info.owner, self.info.token, who)
  if not self.loop then events.notify() end -- in an event loop the pump does
  return watch_lock(self)
end

-- Watches who holds this lock while its acquires wait.
function leader.watch(self, lock)
  local data = raw.data(lock)
  self.client, self.loop, self.step = data.client, data.loop, watch_lock
  driver.run_alongside(lock, function(...)
    local kind, number, argument = self.step(self, ...)
    if not self.election.resigned then return kind, number, argument end
  end)
end

-- ---- this process leads ----

local function channel_of(key)
  local name = key:find("{", 1, true) and key or ("{%s}"):format(key)
  return core.wire.prefixes.releases .. name .. ":leader"
end

-- Announces that the caller leads now. If that fails, the others find out when they next read the
-- lock.
function leader.announce(lock)
  local client, key = raw.data(lock).client, raw.key(lock)
  local node = driver.node_of_lock(client, key)
  driver.command(client, { "PUBLISH", channel_of(key), "1" }, node, ANNOUNCE_TIMEOUT)
end

-- Announces that the caller leads, and calls its own on_change.
function leader.announce_and_report(self, lock)
  local who = names.parse(core.client.who(raw.data(lock).client))
  report(self, raw.owner(lock), raw.token(lock), who)
  leader.announce(lock)
  events.notify()
end

return leader
