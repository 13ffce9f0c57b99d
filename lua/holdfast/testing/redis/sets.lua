-- Commands on sets. strings.lua describes the format of the entries.

local commands = {}

commands.SADD = { -3, "wm", function(client, args)
  local set, added = client.db:open(args[2], "set"), 0
  for i = 3, #args do
    if set:set(args[i], true) then added = added + 1 end
  end
  return added
end }

commands.SREM = { -3, "w", function(client, args)
  return client.db:remove_members(args, "set")
end }

commands.SISMEMBER = { 3, "r", function(client, args)
  local set = client.db:get(args[2], "set")
  return set and set.values[args[3]] and 1 or 0
end }

commands.SCARD = { 2, "r", function(client, args)
  local set = client.db:get(args[2], "set")
  return set and set.count or 0
end }

commands.SMEMBERS = { 2, "r", function(client, args)
  local set, list = client.db:get(args[2], "set"), {}
  for i, member in ipairs(set and set.fields or {}) do list[i] = member end
  return list
end }

return commands
