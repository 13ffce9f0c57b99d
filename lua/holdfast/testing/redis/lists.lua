-- Commands on lists. strings.lua describes the format of the entries in `commands`.

local arguments = require "holdfast.testing.redis.arguments"
local fail = require "holdfast.testing.redis.fail"

local commands = {}

local EMPTY_LIST = { count = 0, items = {} }

local function read(client, key)
  return client.db:get(key, "list") or EMPTY_LIST
end

local function remove_item(client, key, index)
  local list = client.db:get(key, "list")
  list.count = list.count - 1
  return table.remove(list.items, index)
end

commands.RPUSH = { -3, "wm", function(client, args)
  local list = client.db:open(args[2], "list")
  for i = 3, #args do list.items[#list.items + 1] = args[i] end
  list.count = #list.items
  return list.count
end }

commands.LPUSH = { -3, "wm", function(client, args)
  local list = client.db:open(args[2], "list")
  for i = 3, #args do table.insert(list.items, 1, args[i]) end
  list.count = #list.items
  return list.count
end }

-- Removes and returns the first item, or the last one if `from_end`; a list if there is a count.
local function pop(client, args, from_end)
  if #args > 3 then
    fail(("ERR wrong number of arguments for '%s' command"):format(args[1]:lower()))
  end
  local count = args[3] and arguments.count(args[3])
  local list, items = read(client, args[2]), {}
  if list.count == 0 then return false end
  for i = 1, math.min(count or 1, list.count) do
    items[i] = remove_item(client, args[2], from_end and list.count or 1)
  end
  client.db:remove_if_empty(args[2])
  return count and items or items[1]
end

commands.LPOP = { -2, "w", function(client, args) return pop(client, args, false) end }
commands.RPOP = { -2, "w", function(client, args) return pop(client, args, true) end }

commands.LLEN = { 2, "r", function(client, args) return read(client, args[2]).count end }

commands.LINDEX = { 3, "r", function(client, args)
  local list = client.db:get(args[2], "list")
  if not list then return false end
  local index = arguments.integer(args[3])
  return list.items[index < 0 and list.count + index + 1 or index + 1] or false
end }

commands.LRANGE = { 4, "r", function(client, args)
  local start, stop = arguments.integer(args[3]), arguments.integer(args[4])
  local list, part = read(client, args[2]), {}
  local first, last = arguments.index_range(start, stop, list.count)
  for i = first, last do part[#part + 1] = list.items[i] end
  return part
end }

-- Removes matching items from the front, or from the end if the count is negative; 0 removes all.
commands.LREM = { 4, "w", function(client, args)
  local count = arguments.integer(args[3])
  local list = client.db:get(args[2], "list")
  if not list then return 0 end
  local limit = count == 0 and list.count or math.abs(count)
  local first, last, step = 1, list.count, 1
  if count < 0 then first, last, step = last, first, -1 end
  local removed, i = 0, first
  while removed < limit and (step > 0 and i <= last or step < 0 and i >= last) do
    if list.items[i] == args[4] then
      remove_item(client, args[2], i)
      removed = removed + 1
      if step > 0 then last = last - 1 else i = i - 1 end
    else
      i = i + step
    end
  end
  if removed > 0 then client.db:remove_if_empty(args[2]) end
  return removed
end }

return commands
