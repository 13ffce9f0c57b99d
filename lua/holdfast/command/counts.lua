-- Reads latches and plain semaphores. On the server, both are numbers without a TTL, and other
-- programs store such numbers as well. Only the waiters' channel tells a latch from a semaphore.

local kinds = require "holdfast.command.kinds"
local core = require "holdfast.core"
local locale = require "holdfast.locale"
local pages = require "holdfast.pages"
local replies = require "holdfast.replies"
local texts = require "holdfast.text"

local counts = {}

-- Returns the possible names of the channel for a key, or for a pattern of keys.
local function names_of(prefix, key)
  return { ("%s{%s}"):format(prefix, key), prefix .. key }
end

-- Sends this PUBSUB subcommand to each node (in a cluster, also its variant for sharded channels),
-- and calls visit(reply, node). → whether a reply was too large
local function ask(client, subcommand, names, visit)
  local nodes, too_large = core.client.nodes(client), false
  for _, node in ipairs(nodes) do
    for _, prefix in ipairs(#nodes > 1 and { "", "SHARD" } or { "" }) do
      local args = { "PUBSUB", prefix .. subcommand, names[1], names[2] }
      local reply, message, code = replies.command(client, args, node)
      if type(reply) == "table" then visit(reply, node) end
      too_large = too_large or pages.is_too_large(message, code)
    end
  end
  return too_large
end

-- Returns about how many clients are subscribed to these channels. For each node, adds only the
-- larger of the two counts, for plain and sharded channels, because a client may subscribe to both.
local function subscriber_count(client, names)
  local by_node, sum = {}, 0
  ask(client, "NUMSUB", names, function(reply, node)
    local count = 0
    for i = 2, #reply, 2 do count = count + reply[i] end
    by_node[node] = math.max(by_node[node] or 0, count)
  end)
  for _, count in pairs(by_node) do sum = sum + count end
  return sum
end

-- → { key, kind, count, waiters = subscribers, held } | nil if the key cannot be a latch or a plain
-- semaphore: it is not a number, or it has a TTL
function counts.read(client, key)
  local value = replies.command(client, { "GET", key })
  if type(value) ~= "string" or not value:find("^%-?%d+$") then return nil end
  if replies.command(client, { "PTTL", key }) ~= -1 then return nil end
  local entry = { key = key, kind = "number", count = locale.number(value), waiters = 0, mutex = false }
  for kind, channel in pairs(kinds.channels) do
    local waiters = subscriber_count(client, names_of(channel, key))
    if waiters > 0 then entry.kind, entry.waiters = kind, waiters end
  end
  entry.held = kinds[entry.kind].is_held(entry.count)
  return entry
end

-- Adds to the set `keys` every key that a matching channel may belong to. channel: the prefix of
-- those channels.
-- → whether a reply was too large
local function add_subscribed(client, channel, pattern, keys)
  local function add(reply)
    for _, name in ipairs(reply) do
      local key = name:sub(#channel + 1)
      keys[key] = true
      keys[key:match("^{(.*)}$") or key] = true
    end
  end
  local too_large = false
  for _, name in ipairs(names_of(channel, pattern)) do
    too_large = ask(client, "CHANNELS", { name }, add) or too_large
  end
  return too_large
end

-- → the list of entries (see counts.read) that match, are held and have waiters; whether some may
-- be missing because a reply was too large
function counts.with_waiters(client, pattern)
  local keys, entries, is_incomplete = {}, {}, false
  for _, channel in pairs(kinds.channels) do
    is_incomplete = add_subscribed(client, channel, pattern, keys) or is_incomplete
  end
  keys[""] = nil -- no lock has an empty key
  for key in pairs(keys) do
    local entry = counts.read(client, key)
    if entry and entry.held and entry.waiters > 0 then entries[#entries + 1] = entry end
  end
  return entries, is_incomplete
end

-- Describes the current count of a latch or a plain semaphore.
function counts.describe(entry)
  local row = kinds[entry.kind]
  return row.left:format(row.unit and texts.plural(entry.count, row.unit) or entry.count)
end

return counts
