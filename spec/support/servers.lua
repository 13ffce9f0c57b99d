-- The server programs that tools/servers finds on this machine, and which can follow which in an
-- upgrade.

local servers = {}

local LAST_OPEN = 7.2 -- Valkey began as this Redis, and cannot read what later ones write

-- → list of { family = "redis" | "valkey", version = "7.0.15", number = 7.0, path }, oldest first
function servers.list()
  local list, output = {}, assert(io.popen("tools/servers list"))
  for line in output:lines() do
    local family, version, path = line:match("^(%S+) (%S+) (.*)$")
    list[#list + 1] = { family = family, version = version, path = path,
      number = tonumber(version:match("^%d+%.%d+")) }
  end
  output:close()
  table.sort(list, function(a, b) return a.number < b.number end)
  return list
end

-- Returns the old versions of Redis, then those of the family; each reads what the one before
-- wrote.
-- → a list like that of servers.list
function servers.chain(family)
  local list = {}
  for _, each in ipairs(servers.list()) do
    local is_old = each.family == "redis" and each.number <= LAST_OPEN
    if is_old or each.family == family then list[#list + 1] = each end
  end
  return list
end

return servers
