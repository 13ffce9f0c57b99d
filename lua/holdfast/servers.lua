-- The options `servers` and `mode` of a client: several servers, and what they are to each other.

local options = require "holdfast.options"

local MOST = { quorum = 32, shards = 64 }
local MOST_WEIGHT = 100

local servers = {}

servers.mode = options.one_of("quorum", "shards")

local function check_entry(value)
  if type(value) == "string" then return true end
  if type(value) ~= "table" or type(value.url) ~= "string" then return false end
  local weight, name = value.weight or 1, value.name or "name"
  if type(weight) ~= "number" or weight % 1 ~= 0 or weight < 1 or weight > MOST_WEIGHT then return false end
  if type(name) ~= "string" or #name == 0 or #name > 255 or name:find("\0", 1, true) then return false end
  for option in pairs(value) do
    if option ~= "url" and option ~= "weight" and option ~= "name" then return false end
  end
  return true
end

function servers.check(value)
  if options.is_list(value, MOST.shards, check_entry) then return end
  return "a list of 1 to 32 URLs; of shards 1 to 64, also as { url = , weight = 1 to 100, name = }"
end

-- What is wrong with these options together, nil: nothing.
function servers.check_together(given)
  local mode, list = given.mode, given.servers
  if list and given.url then return "give url or servers, not both" end
  if list and not mode then return 'servers need a mode, "quorum" or "shards"' end
  if mode and not list then return "mode is for servers, which are missing" end
  if given.restart_guard and mode ~= "quorum" then return 'restart_guard is for mode = "quorum"' end
  if given.sync and mode == "quorum" then return 'sync is not for mode = "quorum"' end
  if list and #list > MOST[mode] then return ("at most %d servers of a %s"):format(MOST[mode], mode) end
  local names = {}
  for _, each in ipairs(list or {}) do
    if type(each) == "table" and mode ~= "shards" then return 'weight and name are for mode = "shards"' end
    local name = type(each) == "table" and each.name
    if name and names[name] then return ("two servers are named %q"):format(name) end
    if name then names[name] = true end
  end
end

-- For core.client.new: the URLs, weights and names (false: none) in lists.
function servers.lists(given)
  local lists = { urls = {}, weights = {}, names = {} }
  for i, each in ipairs(given) do
    local entry = type(each) == "table" and each or { url = each }
    lists.urls[i], lists.weights[i], lists.names[i] = entry.url, entry.weight or 1, entry.name or false
  end
  return lists
end

return servers
