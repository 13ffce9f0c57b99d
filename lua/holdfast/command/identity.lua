-- Who a client is, for people: "host pid name" in holdfast_client:<uuid>, kept beside the uuid that owners begin with.
--
-- The key outlives a client that is killed by TTL, and a waiter by its wait: nothing refreshes it while acquire waits.

local core = require "holdfast.core"

local identity = {}

local TTL, DAY = 3600, 86400

local Identity = {}
Identity.__index = Identity

local function key_of(uuid)
  return "holdfast_client:" .. uuid
end

local function command(client, ...)
  return core.client.command(client, { ... })
end

function identity.new(client, host, pid, name)
  return setmetatable({
    client = client,
    key = key_of(core.client.uuid(client)),
    text = ("%s %d %s"):format(host, pid, name or ""):gsub(" $", ""),
    refresh_at = 0,
  }, Identity)
end

-- Tells who this is. It is no error of the job's if that cannot be told.
function Identity:tell(seconds)
  return command(self.client, "SET", self.key, self.text, "PX", math.ceil(seconds * 1000))
end

-- Before a wait of so many seconds.
function Identity:tell_for_wait(wait)
  self:tell(TTL + math.min(wait, DAY))
end

-- While the lock is held, whenever there is time.
function Identity:keep(now)
  if now < self.refresh_at then return end
  self.refresh_at = now + TTL / 3
  self:tell(TTL)
end

function Identity:forget()
  command(self.client, "DEL", self.key)
end

-- → { host, pid, name } of an owner or a waiter, nil when it has not told
function identity.of(client, owner)
  local uuid = owner:match("^%x+%-%x+%-%x+%-%x+%-%x+")
  local text = uuid and command(client, "GET", key_of(uuid))
  if type(text) ~= "string" then return nil end
  local host, pid, name = text:match("^(%S+) (%d+) ?(.*)$")
  if host then return { host = host, pid = tonumber(pid), name = name ~= "" and name or nil } end
end

function identity.text(who)
  if not who then return nil end
  return ("%s pid %d%s"):format(who.host, who.pid, who.name and " " .. who.name or "")
end

return identity
