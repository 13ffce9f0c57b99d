-- The checks of `holdfast doctor`: what will hurt locks on a server.
--
-- A check is { name, function(facts, add) }. For each fault, the function calls add(text, advice),
-- where `text` describes the problem and the harm. The function returns true if it could check the
-- server, false and the reason if it could not, or nil if the check does not apply. `facts` is from
-- facts.read.

local locale = require "holdfast.locale"
local rights = require "holdfast.command.rights"

local checks = {}

local DAY = 86400
local NO_INFO = "the server does not answer INFO"

local function percent(part, whole)
  return ("%.0f %%"):format(part / whole * 100)
end

local function seconds_text(seconds)
  return seconds < 1 and ("%.0f ms"):format(seconds * 1e3) or locale.decimal("%.1f", seconds) .. " s"
end

local function eviction(facts, add)
  local policy, limit = facts.info.maxmemory_policy, facts:info_number "maxmemory"
  if not policy or not limit then return false, NO_INFO end
  if policy ~= "noeviction" and limit > 0 then
    add(("maxmemory-policy is %s: a full server removes locks that are held"):format(policy),
      "CONFIG SET maxmemory-policy noeviction, or another server for locks")
  end
  return true
end

local MAX_USED = 0.9 -- fraction of the memory

local function memory(facts, add)
  local limit, used = facts:info_number "maxmemory", facts:info_number "used_memory"
  local resident, total = facts:info_number "used_memory_rss", facts:info_number "total_system_memory"
  if not limit or not used then return false, NO_INFO end
  if limit > 0 and used > MAX_USED * limit then
    add(("%s of maxmemory is used: a full server refuses new locks (OOM)"):format(percent(used, limit)),
      "raise maxmemory, or move the locks to another server")
  end
  if resident and total and total > 0 and resident > MAX_USED * total then
    add(("it uses %s of the host's memory: the system may kill it"):format(percent(resident, total)),
      "give the host more memory, or set maxmemory")
  end
  return true
end

local MAX_CONNECTED = 0.8 -- fraction of maxclients
local SHORT_TIMEOUT, LONG_KEEPALIVE = 30, 300 -- seconds

local function connections(facts, add)
  local count, limit = facts:info_number "connected_clients", facts:config_number "maxclients"
  local idle, keepalive = facts:config_number "timeout", facts:config_number "tcp-keepalive"
  if not count then return false, NO_INFO end
  if limit and count > MAX_CONNECTED * limit then
    add(("%d of maxclients %d are connected: clients that reconnect may be refused, and lose their locks")
      :format(count, limit), "raise maxclients, and with it the server's limit of open files")
  end
  if idle and idle > 0 and idle < SHORT_TIMEOUT then
    add(("timeout is %d s: idle clients are closed, and reconnect for each call and renewal"):format(idle),
      "CONFIG SET timeout 0")
  end
  if keepalive and (keepalive == 0 or keepalive > LONG_KEEPALIVE) then
    add(("tcp-keepalive is %d: connections of unreachable hosts stay open, and use up maxclients")
      :format(keepalive), "CONFIG SET tcp-keepalive 60")
  end
  return true
end

-- Returns whether a quorum's server forgets votes when it restarts, because its append-only file is
-- off or not always up to date.
local function forgets_votes(facts)
  if facts.info.aof_enabled == "0" then return true end
  local sync = facts:config_string "appendfsync"
  return sync and sync ~= "always"
end

local function persistence(facts, add)
  local info, set = facts.info, facts.set
  if not info.aof_enabled then return false, NO_INFO end
  if set.servers and not set.restart_guard and forgets_votes(facts) then
    add("a restart makes it forget votes, so a second owner can get a majority",
      "set restart_guard to the longest lease in use, or appendonly yes and appendfsync always")
  end
  if not set.servers and info.aof_enabled == "0" and facts:config_string "save" == "" then
    add("nothing is written to disk: a restart forgets every lock while its holder still works",
      "CONFIG SET appendonly yes")
  end
  if info.rdb_last_bgsave_status == "err" and facts:config_string "stop-writes-on-bgsave-error" ~= "no" then
    add("the last snapshot failed, and the server may refuse all writes until one succeeds (MISCONF)",
      "see its log, and the space on its disk")
  end
  if info.aof_last_write_status == "err" then
    add("the last write to its append-only file failed: it refuses writes (MISCONF)",
      "see its log, and the space on its disk")
  end
  return true
end

local MAX_LAG = 10 -- seconds since a replica's last reply

local function late_replicas(facts)
  local late = {}
  for i = 0, (facts:info_number "connected_slaves" or 0) - 1 do
    local replica = facts.info["slave" .. i] or ""
    local lag = locale.number(replica:match("lag=([0-9]+)")) or 0
    local host, port = replica:match("ip=([^,]*)"), replica:match("port=([^,]*)")
    if not replica:find("state=online", 1, true) or lag >= MAX_LAG then
      late[#late + 1] = ("%s:%s"):format(host or "?", port or "?")
    end
  end
  return late
end

local function replicas(facts, add)
  if not facts.info.role then return false, NO_INFO end
  local late = late_replicas(facts)
  if #late > 0 then
    add(("replica %s lags behind: a failover to it forgets locks that were granted since")
      :format(table.concat(late, ", ")), "check its log, and the network between the two")
  end
  local count = facts:info_number "min_slaves_good_slaves"
  local minimum = count and facts:config_number "min-replicas-to-write"
  if minimum and count < minimum then
    add(("%d of min-replicas-to-write %d connected: writes are refused (NOREPLICAS)")
      :format(count, minimum), "bring the replicas back")
  elseif minimum and count == minimum then
    add(("only min-replicas-to-write %d connected: if one fails, all locks are refused")
      :format(minimum), "add a replica")
  end
  return true
end

local function has_cluster_failed(facts)
  local state = facts:ask("CLUSTER", "INFO")
  return type(state) == "string" and state:find("cluster_state:fail", 1, true)
end

local function topology(facts, add)
  local info, set = facts.info, facts.set
  if not info.role then return false, NO_INFO end
  if info.role == "slave" then
    add("this is a replica: it refuses all locks (READONLY)",
      "use the primary's address, or redis+sentinel:// to follow it")
  end
  if info.loading == "1" then add("it is still loading its data", "wait until it has started") end
  if info.cluster_enabled == "1" and not set.is_cluster then
    add("this is a node of a cluster behind a URL of one server: most keys are refused (MOVED)",
      "use redis+cluster://")
  end
  if info.cluster_enabled == "1" and has_cluster_failed(facts) then
    add("cluster_state is fail: some or all locks are refused (CLUSTERDOWN)", "bring the missing nodes back")
  end
  if set.server_count then
    add(("the address leads to %d different servers: a lock that is held on one is free on the others"):format(set.server_count),
      "give the address of one server, or redis+sentinel://")
  end
  for _, message in ipairs(set.unreachable) do
    add("a node of the cluster cannot be reached: " .. message, "check cluster-announce-ip and the network")
  end
  return true
end

local MAX_OFFSET, MAX_JUMP = 5, 0.2 -- seconds between two clocks; seconds that a clock may jump

local function clock(facts, add)
  local ahead = facts.clock_ahead
  if not ahead then return false, "the server does not answer TIME" end
  if math.abs(ahead) > MAX_OFFSET then
    add(("its clock is %s %s this host's: one of them is wrong"):format(seconds_text(math.abs(ahead)),
      ahead > 0 and "ahead of" or "behind"), "run a time service on both hosts")
  end
  local moved = facts:clock_moved()
  if moved and math.abs(moved) > MAX_JUMP then
    add(("its clock moved by %s while it was checked: leases end early or late"):format(seconds_text(math.abs(moved))),
      "slew the clock instead of stepping it")
  end
  return true
end

local MIN_VALIDITY = 14 * DAY -- seconds for which each certificate must remain valid

local function certificates(facts, add)
  local seconds_left = facts.seconds_to_certificate_expiry
  if not seconds_left then return nil end
  if seconds_left < MIN_VALIDITY then
    add(("a certificate expires in %s days: then no client can connect"):format(locale.decimal("%.1f", seconds_left / DAY)),
      "renew it; clients read files that have changed")
  end
  return true
end

local MIN_TRIPS_PER_LEASE = 30 -- a lease must be at least this many times as long as a round trip

local function speed(facts, add)
  local trips, lease = facts.round_trips, facts.set.lease
  local slow = facts:slowest()
  if trips[#trips] * MIN_TRIPS_PER_LEASE > lease then
    add(("the slowest of %d round trips took %s: renewals of a lease of %s may come late"):format(#trips,
      seconds_text(trips[#trips]), seconds_text(lease)), "use a nearer server, or longer leases")
  end
  if slow and slow.seconds * MIN_TRIPS_PER_LEASE > lease then
    add(("%s took %s within the last hour, and renewals had to wait"):format(slow.name, seconds_text(slow.seconds)),
      "look at SLOWLOG GET, and use another server for locks")
  end
  return true
end

local function tenants(facts, add)
  if not facts.set.tenant then return nil end
  if facts.set.exposed then
    add("scripts of one user can run commands with the rights of others (CVE-2025-46818)",
      "upgrade the server; docs/how-to/redis.md lists the versions")
  end
  return true
end

checks.all = {
  { "eviction", eviction },
  { "memory", memory },
  { "connections", connections },
  { "persistence", persistence },
  { "replicas", replicas },
  { "topology", topology },
  { "clock", clock },
  { "certificates", certificates },
  { "speed", speed },
  { "tenants", tenants },
  { "rights", rights.check },
}

return checks
