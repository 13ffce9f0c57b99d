-- A master with replicas under Sentinels, all real and on loopback. All are up and know each other
-- when start() returns. As with single servers, nothing is left at the end of the program.

local process = require "spec.support.process"
local redis = require "spec.support.redis"

local NAME = "holdfast"
local ASK_AGAIN = 5 -- seconds
local PATIENCE = 60 -- seconds: a bound for a machine that does much else, not what it takes

local Set = {}
Set.__index = Set

local sentinel = {}

local function config(self, options)
  local lines = {
    ("sentinel monitor %s 127.0.0.1 %d %d"):format(NAME, self.nodes[1].port, options.quorum or 2),
    ("sentinel down-after-milliseconds %s %d"):format(NAME, options.down_after or 1000),
    ("sentinel failover-timeout %s %d"):format(NAME, options.failover_timeout or 2000),
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

-- They look for each other more often than by default, and a machine that is busy is no reason to
-- rest for long. A new server is pinged for the first time after a ping-period, which must leave it
-- time to answer before it counts as down; and a replica can be promoted only if its INFO, sent
-- each second then, is not older than five ping-periods.
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

-- All but the master have its data and follow.
function Set:_replicas_follow()
  local master = self:master()
  return master and all(running(self.nodes), function(node)
    local role = node:try_cli("ROLE") or {}
    return node == master or (role[1] == "slave" and role[3] == master.port
      and role[4] == "connected")
  end)
end

-- The master sends its writes to so many replicas.
local function online(master)
  local text = master:try_cli("INFO", "replication") or ""
  return select(2, text:gsub("state=online", ""))
end

-- Waits until every replica has the key of its master. A WAIT is no proof: over a connection that
-- has not written, it has had nothing to wait for since 7.2.
function Set:wait_key(key)
  return assert(process.wait_until(function()
    local replicas = running(self:replicas())
    return online(self:master()) >= #replicas and all(replicas, function(node)
      return node:try_cli("EXISTS", key) == 1
    end)
  end, PATIENCE), "the replicas do not get the key")
end

-- Every Sentinel that runs sees the whole set in good order, and so it is: a failover can begin.
function Set:is_ready()
  return all(running(self.sentinels), function(server)
    return self:_knows_all(server)
  end) and self:_replicas_follow()
end

function Set:wait_ready()
  return assert(process.wait_until(function() return self:is_ready() end, PATIENCE),
    "the Sentinels do not find each other and the replicas")
end

-- The same, and no server is gone.
function Set:is_settled()
  return #running(self.nodes) == #self.nodes and self:is_ready()
end

function Set:wait_settled()
  return assert(process.wait_until(function() return self:is_settled() end, PATIENCE),
    "the set does not come to rest")
end

-- start{ replicas = 1, sentinels = 3, quorum = 2, down_after = 1000, failover_timeout = 2000 (ms),
--   password, users, conf (of the data servers), sentinel_password, sentinel_users,
--   tls (as redis.start's, with alone = true) }
function sentinel.start(options)
  options = options or {}
  local self = setmetatable({ options = options, nodes = {}, sentinels = {}, name = NAME }, Set)
  add_nodes(self, options)
  for i = 1, options.sentinels or 3 do
    self.sentinels[i] = redis.start {
      sentinel = true, password = options.sentinel_password, users = options.sentinel_users,
      conf = config(self, options), tls = options.tls,
    }
    hurry(self.sentinels[i])
  end
  self:wait_ready()
  return self
end

-- The Sentinels' addresses, the data servers' login.
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

-- The master that all Sentinels name which run; nil while they differ.
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

-- hang and resume: as kill("STOP") and kill("CONT"); the set asks nothing of a server that hangs.
function Set:hang(server)
  server.hung = true
  server:kill("STOP")
end

function Set:resume(server)
  server:kill("CONT")
  server.hung = nil
end

-- Another master than `old` that all Sentinels name and that takes writes; nil: not yet.
local function taken_over(self, old)
  local master = self:master()
  if not master or master == old or not master:is_running() then return nil end
  local role = master:try_cli("ROLE")
  return role and role[1] == "master" and master
end

-- Waits until all Sentinels name another master than `old`, and it takes writes. → the new one
function Set:wait_failover(old)
  return assert(process.wait_until(function()
    return taken_over(self, old)
  end, PATIENCE), "no failover")
end

local function follows(node)
  local role = node:try_cli("ROLE")
  return role and role[1] == "slave"
end

-- Asks for another master now, whatever the Sentinels think of this one. → "OK", or a refusal
function Set:ask_failover()
  return self.sentinels[1]:cli("SENTINEL", "FAILOVER", NAME)
end

-- Makes another server the master by the Sentinels' own hand, with the old one alive; asks again
-- when they give up, as they do on a busy machine. Until the old one is a replica, it takes writes
-- that the failover forgets, so this waits for that.
-- old: the master until now, where a failover has been asked for already. → the new one
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
