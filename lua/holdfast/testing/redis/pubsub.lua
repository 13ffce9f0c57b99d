-- Publish and subscribe. A client's subscriptions and the server's lists of subscribers always
-- agree. Messages wait in the server's outbox until the command, which may be a whole script, has
-- ended.

local fail = require "holdfast.testing.redis.fail"
local glob = require "holdfast.testing.redis.glob"
local resp = require "holdfast.testing.redis.resp"

local commands = {}

local function index_of(list, item)
  for i, other in ipairs(list) do
    if other == item then return i end
  end
end

-- kind: "channels", "patterns" or "shards" (the sharded channels)
local function add(client, kind, name)
  if index_of(client[kind], name) then return end
  table.insert(client[kind], name)
  local subscribers = client.server[kind]
  subscribers[name] = subscribers[name] or {}
  table.insert(subscribers[name], client)
end

local function remove(client, kind, name)
  local index = index_of(client[kind], name)
  if not index then return end
  table.remove(client[kind], index)
  local list = client.server[kind][name]
  table.remove(list, index_of(list, client))
  if #list == 0 then client.server[kind][name] = nil end
end

local function count(client, kind)
  return kind == "shards" and #client.shards or #client.channels + #client.patterns
end

local function subscribe(client, args, kind)
  local replies = {}
  for i = 2, #args do
    add(client, kind, args[i])
    replies[i - 1] = { args[1]:lower(), args[i], count(client, kind) }
  end
  return { replies = replies }
end

local function unsubscribe(client, args, kind)
  local names = {}
  for i, name in ipairs(args[2] and args or client[kind]) do names[i] = name end
  if args[2] then table.remove(names, 1) end
  local replies = {}
  for i, name in ipairs(names) do
    remove(client, kind, name)
    replies[i] = { args[1]:lower(), name, count(client, kind) }
  end
  if #replies == 0 then replies[1] = { args[1]:lower(), false, count(client, kind) } end
  return { replies = replies }
end

-- Called when the connection ends.
function commands.forget(client)
  for _, kind in ipairs { "channels", "patterns", "shards" } do
    while client[kind][1] do remove(client, kind, client[kind][1]) end
  end
end

local function sorted_keys(map)
  local list = {}
  for key in pairs(map) do list[#list + 1] = key end
  table.sort(list)
  return list
end

-- → the number of receivers
local function send(server, clients, reply)
  local bytes = resp.encode(reply)
  for _, client in ipairs(clients or {}) do
    table.insert(server.outbox, { client = client, bytes = bytes })
  end
  return #(clients or {})
end

local function publish(server, channel, message)
  local receivers = send(server, server.channels[channel], { "message", channel, message })
  for _, pattern in ipairs(sorted_keys(server.patterns)) do
    if glob(pattern, channel) then
      receivers = receivers + send(server, server.patterns[pattern],
        { "pmessage", pattern, channel, message })
    end
  end
  return receivers
end

for prefix, kind in pairs { [""] = "channels", P = "patterns", S = "shards" } do
  commands[prefix .. "SUBSCRIBE"] = { -2, "slpc", function(client, args)
    return subscribe(client, args, kind)
  end }
  commands[prefix .. "UNSUBSCRIBE"] = { -1, "slp", function(client, args)
    return unsubscribe(client, args, kind)
  end }
end

commands.PUBLISH = { 3, "lc", function(client, args)
  return publish(client.server, args[2], args[3])
end }
commands.SPUBLISH = { 3, "lc", function(client, args)
  return send(client.server, client.server.shards[args[2]], { "smessage", args[2], args[3] })
end }

local subcommands = {}

subcommands.CHANNELS = { -2, "l", function(client, args)
  if #args > 3 then
    fail(("ERR unknown subcommand or wrong number of arguments for '%s'. Try PUBSUB HELP."):format(args[2]))
  end
  local list = {}
  for _, channel in ipairs(sorted_keys(client.server.channels)) do
    if not args[3] or glob(args[3], channel) then list[#list + 1] = channel end
  end
  return list
end }

local function subscribers(args, channels)
  local list = {}
  for i = 3, #args do
    list[#list + 1] = args[i]
    list[#list + 1] = #(channels[args[i]] or {})
  end
  return list
end

subcommands.NUMSUB = { -2, "l", function(client, args)
  return subscribers(args, client.server.channels)
end }
subcommands.SHARDNUMSUB = { -2, "l", function(client, args)
  return subscribers(args, client.server.shards)
end }

subcommands.NUMPAT = { 2, "l", function(client)
  return #sorted_keys(client.server.patterns)
end }

commands.PUBSUB = { subcommands = subcommands }

return commands
