-- Who leads, for the on_change of client:lead.
--
-- A new leader publishes on a channel of its lock that it leads. That is a hint only: those that
-- wait read the lock then, and again from time to time, while their acquire waits for it. What is
-- read has a token, so a leader that was read late is never reported after a newer one.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local events = require "holdfast.events"
local names = require "holdfast.names"
local observed = require "holdfast.observed"

local raw = driver.lock

local leader = {}

local AGAIN = 1 -- seconds after a failure
local NAME_TRIES, NAME_PAUSE = 4, 0.25 -- a client publishes who it is a quarter of a second late
local WITHIN = 1 -- seconds for the announcement

-- What a client:lead with this on_change knows. `leading`: see lead.run
function leader.watch(on_change, leading)
  events.install()
  return { on_change = on_change, leading = leading, owner = "", token = nil, known = "" }
end

-- ---- reporting ----

local function since(token)
  return token and token >= observed.FIRST_US and token / 1e6 or os.time()
end

-- Whether this holder, as it was read, was not reported and may be. A lower token is an old one.
local function is_news(self, owner, token)
  if self.token and token and token < self.token then return false end
  return owner ~= self.owner or self.token ~= nil and token ~= nil and token > self.token
end

-- A holder without a token of its own is read with the last one that was drawn.
local function report(self, owner, token, who)
  local own = token ~= self.token and token or nil
  self.owner, self.token = owner, token or self.token
  events.report(self.on_change, {
    host = who and who.host, pid = who and who.pid, name = who and who.name, token = own,
    since = since(own),
  }, "on_change")
end

-- ---- beside a wait: see driver.run_beside ----

local on_read, on_name, ask_name

local function read(self)
  self.step = on_read
  return "watch", math.huge, self.known
end

function on_read(self, info)
  if not info then
    self.step = read
    return "pause", AGAIN
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
  if not self.loop then events.notify() end -- the pump does it
  return read(self)
end

-- Watches who has this lock while its acquires wait.
function leader.attend(self, lock)
  local data = raw.data(lock)
  self.client, self.loop, self.step = data.client, data.loop, read
  driver.run_beside(lock, function(...)
    local kind, seconds, text = self.step(self, ...)
    if not self.leading.resigned then return kind, seconds, text end
  end)
end

-- ---- a term of one's own ----

local function channel(key)
  local name = key:find("{", 1, true) and key or ("{%s}"):format(key)
  return core.wire.prefixes.releases .. name .. ":leader"
end

-- The caller leads now: tells the others that watch. A failure costs them a while.
function leader.announce(lock)
  local client, key = raw.data(lock).client, raw.key(lock)
  local node = driver.node_beside(client, key)
  driver.command(client, { "PUBLISH", channel(key), "1" }, node, WITHIN)
end

-- The same, and reports it here.
function leader.begin(self, lock)
  local who = names.parse(core.client.who(raw.data(lock).client))
  report(self, raw.owner(lock), raw.token(lock), who)
  leader.announce(lock)
  events.notify()
end

return leader
