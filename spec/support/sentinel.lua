-- A master with replicas under Sentinels, all real and on loopback. When start() returns, all are
-- up and know each other. As with single servers, nothing remains when the program ends.

local process = require "spec.support.process"
local redis = require "spec.support.redis"

local NAME = "holdfast"
local ASK_AGAIN = 5 -- seconds
local PATIENCE = 60 -- seconds; a limit for a busy machine, not the usual time

local Set = {}
Set.__index = Set

local sentinel = {}

local function config(self, options)
  local lines = {
    ("sentinel monitor %s 127.0.0.1 %d %d"):format(NAME, self.nodes[1].port, options.quorum or 2),
    ("sentinel down-after-milliseconds %s %d"):format(NAME, options.down_after or 1000),
    ("sentinel failover-timeout %s 2000"):format(NAME),
  }
  if options.password then
    lines[#lines + 1] = ("sentinel auth-pass %s %s"):format(NAME, options.password)
  end
  if options.sentinel_password then
    lines[#lines + 1] = "sentinel sentinel-pass " .. options.sentinel_password
  end
  return lines
end

local function add_nodes(self, options)
  local function add(master)
    self.nodes[#self.nodes + 1] = redis.start {
      tcp = true, password = options.password, users = options.users, replica_of = master,
      conf = options.conf,
      tls = options.tls,
    }
  end
  add(nil)
  for _ = 1, options.replicas or 1 do add(self.nodes[1]) end
end

-- Makes Sentinels look for each other more often than by default, and keeps a busy machine from
-- pausing them for long. A new server is first pinged after a ping-period, which must leave it time
-- to reply before it counts as down. A replica can be promoted only if its INFO, then sent every
-- second, is not older than five ping-periods.
local function hurry(server)
  if redis.major() < 7 then return end -- it has no SENTINEL DEBUG, and takes its time
  local reply = server:cli("SENTINEL", "DEBUG", "publish-period", 100, "ping-period", 300,
    "info-period", 1000,
    "tilt-period", 1000)
  assert(reply == "OK", reply.err)
end

local function fields(list)
  local all = {}
  for i = 1, #list, 2 do all[list[i]] = list[i + 1] end
  return all
end

function Set:_knows_all(server)
  local master = fields(server:try_cli("SENTINEL", "MASTER", NAME) or {})
  if master.flags ~= "master" or tonumber(master["num-other-sentinels"]) ~= #self.sentinels - 1 then
    return false
  end
  local replicas = server:try_cli("SENTINEL", "REPLICAS", NAME) or {}
  for _, replica in ipairs(replicas) do
    replica = fields(replica)
    if replica.flags ~= "slave" or replica["master-link-status"] ~= "ok" then return false end
  end
  return #replicas == #self.nodes - 1 and server:cli("SENTINEL", "CKQUORUM", NAME).err == nil
end

local function all(list, holds)
  for _, each in ipairs(list) do
    if not holds(each) then return false end
  end
  return true
end

local function running(list)
  local up = {}
  for _, server in ipairs(list) do
    if server:is_running() and not server.hung then up[#up + 1] = server end
  end
  return up
end

-- Returns whether all nodes except the master follow it.
function Set:_replicas_follow()
  local master = self:master()
  return master and all(running(self.nodes), function(node)
    local role = node:try_cli("ROLE") or {}
    return node == master or (role[1] == "slave" and role[3] == master.port
      and role[4] == "connected")
  end)
end

-- Returns how many replicas receive the master's writes.
local function online(master)
  local text = master:try_cli("INFO", "replication") or ""
  return select(2, text:gsub("state=online", ""))
end

-- Waits until every replica has this key. WAIT does not prove that: since 7.2 it has nothing to
-- wait for on a connection that has not written.
function Set:wait_key(key)
  return assert(process.wait_until(function()
    local replicas = running(self:replicas())
    return online(self:master()) >= #replicas and all(replicas, function(node)
      return node:try_cli("EXISTS", key) == 1
    end)
  end, PATIENCE), "the replicas do not get the key")
end

-- Returns whether a failover can begin: every running Sentinel sees the whole set in good order,
-- and replicas follow.
function Set:is_ready()
  return all(running(self.sentinels), function(server)
    return self:_knows_all(server)
  end) and self:_replicas_follow()
end

function Set:wait_ready()
  return assert(process.wait_until(function() return self:is_ready() end, PATIENCE),
    "the Sentinels do not find each other and the replicas")
end

-- Returns whether a failover can begin, and all servers are running.
function Set:is_settled() return #running(self.nodes) == #self.nodes and self:is_ready() end

function Set:wait_settled()
  return assert(process.wait_until(function() return self:is_settled() end, PATIENCE),
    "the set does not come to rest")
end

-- start{ replicas = 1, sentinels = 3, quorum = 2, down_after = 1000 (ms),
--   password, users, conf (of the data servers), sentinel_password,
--   tls (as for redis.start, with alone = true) }
function sentinel.start(options)
  options = options or {}
  local self = setmetatable({ options = options, nodes = {}, sentinels = {}, name = NAME }, Set)
  add_nodes(self, options)
  for i = 1, options.sentinels or 3 do
    self.sentinels[i] = redis.start {
      sentinel = true, password = options.sentinel_password,
      conf = config(self, options), tls = options.tls,
    }
    hurry(self.sentinels[i])
  end
  self:wait_ready()
  return self
end

-- Returns a URL with the Sentinels' addresses and the data servers' login.
function Set:url(db)
  local hosts = {}
  for i, server in ipairs(self.sentinels) do hosts[i] = "127.0.0.1:" .. server.port end
  local login = self.options.password and (":%s@"):format(self.options.password) or ""
  local scheme = self.options.tls and "rediss" or "redis"
  return ("%s+sentinel://%s%s/%s%s"):format(scheme, login, table.concat(hosts, ","), NAME, db
    and "/" .. db or "")
end

function Set:_named_by(server)
  local address = server:try_cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME) or {}
  for _, node in ipairs(self.nodes) do
    if tostring(node.port) == address[2] then return node end
  end
end

-- Returns the master that all running Sentinels name, or nil while they differ.
function Set:master()
  local master
  for _, server in ipairs(running(self.sentinels)) do
    local named = self:_named_by(server)
    if not named or (master and named ~= master) then return nil end
    master = named
  end
  return master
end

function Set:replicas()
  local master, list = self:master(), {}
  for _, node in ipairs(self.nodes) do
    if node ~= master then list[#list + 1] = node end
  end
  return list
end

-- hang and resume are like kill("STOP") and kill("CONT"), but the set sends nothing to a hung
-- server.
function Set:hang(server)
  server.hung = true
  server:kill("STOP")
end

function Set:resume(server)
  server:kill("CONT")
  server.hung = nil
end

-- Returns the new master, once all Sentinels name one other than `old` and it accepts writes, or
-- nil.
local function taken_over(self, old)
  local master = self:master()
  if not master or master == old or not master:is_running() then return nil end
  local role = master:try_cli("ROLE")
  return role and role[1] == "master" and master
end

-- Waits until all Sentinels name a master other than `old`, and it accepts writes. → the new one
function Set:wait_failover(old)
  return assert(process.wait_until(function()
    return taken_over(self, old)
  end, PATIENCE), "no failover")
end

local function follows(node)
  local role = node:try_cli("ROLE")
  return role and role[1] == "slave"
end

-- Requests a failover now, even if the Sentinels consider the master healthy. → "OK", or a refusal
function Set:ask_failover() return self.sentinels[1]:cli("SENTINEL", "FAILOVER", NAME) end

-- Makes the Sentinels fail over while the old master is alive, and asks again if they give up, as
-- they do on a busy machine. Waits until the old master is a replica, because until then it accepts
-- writes that the failover loses. `old`: the old master, if a failover was requested before. → the
-- new one
function Set:fail_over(old)
  local asked_at = old and process.now() or -ASK_AGAIN
  old = old or self:master()
  return assert(process.wait_until(function()
    local master = taken_over(self, old)
    if master and follows(old) then return master end
    if process.now() < asked_at + ASK_AGAIN or self:master() ~= old then return nil end
    asked_at = process.now()
    self:ask_failover()
  end, PATIENCE), "no failover")
end

function Set:stop()
  for _, server in ipairs(self.sentinels) do server:stop() end
  for _, server in ipairs(self.nodes) do server:stop() end
end

return sentinel
