-- Finds the owners that wait for each other. Reads the queues, the holders, and what waiting owners
-- publish about themselves; changes nothing.
--
-- holdfast_wait:<owner>, with the client's tenant before the owner, names the lock that this
-- owner's caller is waiting for (docs/reference/protocol.md). A caller is stuck if it waits for a
-- stuck owner: the lock's owner; for a writer, any of the readers; for permits, so many owners that
-- too few permits remain. From each stuck caller the waits lead into a cycle. Each key, queue and
-- client is read once, even if it has many waiters.

local cycles = require "holdfast.cycles"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local locale = require "holdfast.locale"
local names = require "holdfast.names"
local pages = require "holdfast.pages"
local replies = require "holdfast.replies"

local deadlocks = {}

local PAGE_SIZE = 200 -- items
local MAX_WAITERS = 100 -- the number of waiters listed for one queue
local kinds, wire = core.kinds, core.wire
local prefixes = wire.prefixes

local command = replies.command

local function scan_node(client, node, pattern, visit)
  local cursor, count = "0", PAGE_SIZE
  repeat
    local reply, message, code
    reply, message, code, count = pages.scan(client, node, cursor, pattern, nil, count)
    if not reply then return nil, message, code end
    cursor, count = reply[1], math.min(PAGE_SIZE, count * 2)
    for _, key in ipairs(reply[2]) do visit(key, node) end
  until cursor == "0"
  return true
end

-- Calls visit(key, node) for each matching key, page by page, one node after the other. In a
-- quorum, a minority of the nodes may fail, because a majority has everything that counts.
-- → true | nil, message, code
function deadlocks.scan(client, pattern, visit)
  local nodes, message, code = replies.nodes(client)
  if not nodes then return nil, message, code end
  local failures_left = core.client.is_quorum(client) and math.floor((#nodes - 1) / 2) or 0
  for _, node in ipairs(nodes) do
    local scanned
    scanned, message, code = scan_node(client, node, pattern, visit)
    if not scanned and failures_left == 0 then return nil, message, code end
    failures_left = scanned and failures_left or failures_left - 1
  end
  return true
end

-- Codes that mean that a key belongs to another application. Such keys are skipped, and so is
-- anything too large to be holdfast's. Any other failure makes the whole search fail.
local FOREIGN = { conflict = true, denied = true }

-- Stores the first failure that makes the search fail. → value
local function record_failure(graph, value, message, code)
  local is_foreign = FOREIGN[code] or pages.is_too_large(message, code)
  if value == nil and code and not is_foreign and not graph.failure then
    graph.failure = { message, code }
  end
  return value
end

local function query(graph, args, node)
  return record_failure(graph, command(graph.client, args, node))
end

local function read_info(graph, key, kind)
  return record_failure(graph, driver.lock.info(driver.reader(graph.client, key, kind)))
end

-- Reads at most `count` items on the key's node. Skips an item that is too large to be holdfast's.
-- → the items, the number of items requested, whether there may be more
local function read_page(graph, key, make_command, from, count)
  local node = driver.node_of_lock(graph.client, key)
  local reply, message, code, requested = pages.retry_smaller(count, function(limit)
    return command(graph.client, make_command(from, limit), node)
  end)
  local page = record_failure(graph, reply, message, code) or {}
  return page, requested, #page == requested or pages.is_too_large(message, code)
end

-- Iterates over the first `limit` items of a list or a sorted set on the key's node, page by page.
-- May skip items if others are removed from the front in the meantime. make_command(from, count)
-- returns the command that reads a page.
local function each_item(graph, key, make_command, limit)
  local from, page, index, count, has_more = 0, {}, 0, PAGE_SIZE, true
  return function()
    index = index + 1
    while index > #page and has_more and from < limit do
      local wanted = math.min(count, limit - from)
      page, count, has_more = read_page(graph, key, make_command, from, wanted)
      from, index, count = from + count, 1, math.min(PAGE_SIZE, count * 2)
    end
    return page[index]
  end
end

-- Iterates over the first `limit` (nil: all) items of the list or the sorted set with this name, on
-- the key's node.
local function each_member(graph, key, command_name, name, limit)
  return each_item(graph, key, function(from, count)
    return { command_name, name, from, from + count - 1 }
  end, limit or math.huge)
end

-- ---- the graph ----

-- → the servers of a quorum | nil for any other client. Each server of a quorum must be read,
-- because clients publish their names and waits on all of them.
local function nodes_of_quorum(client)
  return core.client.is_quorum(client) and core.client.nodes(client) or nil
end

-- Returns the number of permits that this owner wants, which is at the end of the owner string.
local function count_of(owner)
  return locale.number(owner:match("%*(%d+)$") or "1")
end

-- Returns the common prefix of the owner's permit ids: all but their last two bytes, which number
-- the permits.
local function id_prefix_of(owner)
  local number = locale.number(owner:match("^:(%d+)", 37) or "0")
  local hex = owner:sub(1, 8) .. owner:sub(29, 36) .. ("%08x"):format(number % 4294967296)
  return "hf" .. hex:gsub("%x%x", function(byte)
    return string.char(tonumber(byte, 16)) -- any locale: a whole number
  end)
end

-- Returns the owners of the permits in use. Only owners that are waiting for something are known,
-- by the prefixes of their permit ids; the others are `false`.
local function permit_holders(graph, key, kind)
  local info = read_info(graph, key, kind)
  local list = { free = info and info.free or 0 }
  for id in each_member(graph, key, "ZRANGE", wire.names(kind, key).leases) do
    list[#list + 1] = graph.by_id_prefix[id:sub(1, 14)] or false
  end
  return list
end

-- Returns all readers of the lock, because info names only one.
local function read_readers(graph, key)
  local list, cursor, count = {}, "0", PAGE_SIZE
  repeat
    local reply, message, code
    reply, message, code, count = pages.retry_smaller(count, function(limit)
      return command(graph.client, { "HSCAN", key, cursor, "COUNT", limit })
    end)
    if not record_failure(graph, reply, message, code) then break end
    cursor = reply[1]
    for i = 1, #reply[2], 2 do
      local field = reply[2][i]
      if field ~= "mode" then list[#list + 1] = field end
    end
  until cursor == "0"
  return list
end

-- Returns the list of owners that hold what this wait waits for. For a semaphore, the list's field
-- `free` is the number of free permits.
local function holders_of(graph, wait)
  local key, kind = wait.key, wait.kind
  local id = kind .. ":" .. key
  if graph.holders[id] then return graph.holders[id] end
  local list
  if kinds[kind].has_permits then
    list = permit_holders(graph, key, kind)
  else
    local info = read_info(graph, key, kind)
    list = { info and info.owner }
    if info and (info.readers or 0) > 1 then list = read_readers(graph, key) end
  end
  graph.holders[id] = list
  return list
end

-- Returns the set of waiters in the queue of this wait's key. The items of Redisson's list are the
-- waiters' owners.
local function waiters_of(graph, wait)
  local key, is_list, set = wait.key, kinds[wait.kind].uses_list, {}
  local name = wire.names(wait.kind, key).queue
  if graph.queued[name] then return graph.queued[name] end
  for item in each_member(graph, key, is_list and "LRANGE" or "ZRANGE", name) do
    local queued = is_list and { waiter = item } or wire.read_waiter(item)
    if queued then set[queued.waiter] = true end
  end
  graph.queued[name] = set
  return set
end

-- Returns whether the waiter's client is subscribed to its grants on a node, or true if a node
-- refuses the query.
local function query_subscribed(graph, uuid)
  for _, node in ipairs(core.client.nodes(graph.client)) do
    local reply = query(graph, { "PUBSUB", "NUMSUB", prefixes.grant .. uuid }, node)
    if not reply or (locale.number(reply[2]) or 0) > 0 then return true end
  end
  return false
end

local function is_subscribed(graph, wait)
  local uuid = wait.waiter:sub(1, 36)
  if graph.subscribed[uuid] == nil then graph.subscribed[uuid] = query_subscribed(graph, uuid) end
  return graph.subscribed[uuid]
end

-- Returns whether the wait still continues. In a quorum, which has no queue, that is assumed.
local function is_waiting(graph, wait)
  return graph.nodes or waiters_of(graph, wait)[wait.waiter] and is_subscribed(graph, wait)
end

local function read_identity(graph, owner)
  local uuid = owner:sub(1, 36)
  if graph.names[uuid] == nil then graph.names[uuid] = names.read(graph.client, owner) or false end
  return graph.names[uuid] or {}
end

local function add_wait(graph, name, node)
  local value = query(graph, { "GET", name }, graph.nodes and node or nil)
  local wait = type(value) == "string" and wire.read_wait(value)
  if not wait or wait.key == "" then return end
  local known = graph.by_waiter[wait.waiter]
  if known then wait = known else graph.by_waiter[wait.waiter], wait.holds = wait, {} end
  local owner = name:sub(#graph.wait_prefix + 1)
  wait.holds[#wait.holds + 1] = owner
  graph.waits[owner] = wait
  if names.is_owner(owner) then graph.by_id_prefix[id_prefix_of(owner)] = owner end
end

-- Adds a waiter found in the key's queue, unless it is already known from the wait that it
-- published.
local function add_waiter(graph, key, waiter, kind)
  local wait = graph.by_waiter[waiter]
    or { waiter = waiter, kind = kind, key = key, holds = {} }
  graph.by_waiter[waiter] = wait
  return wait
end

local function add_list(graph, name)
  local key = wire.key_of_queue(name)
  if not key then return end
  for owner in each_member(graph, key, "LRANGE", name, MAX_WAITERS) do
    add_waiter(graph, key, owner, "fair")
  end
end

local function add_queue(graph, name)
  local key = wire.key_of_queue(name)
  if not key then return end
  local function make_command(from, count)
    return { "ZRANGEBYSCORE", name, "(0", "+inf", "LIMIT", from, count }
  end
  for item in each_item(graph, key, make_command, MAX_WAITERS) do
    local queued = wire.read_waiter(item)
    if queued then
      add_waiter(graph, key, queued.waiter, queued.kind).count = count_of(queued.owner)
    end
  end
end

local function make_row(graph, wait)
  local holder = wait.holder or holders_of(graph, wait)[1] or nil
  local who = read_identity(graph, wait.waiter)
  local held_by = holder and read_identity(graph, holder) or {}
  return {
    key = wait.key, kind = wait.kind, owner = wait.waiter, host = who.host, pid = who.pid,
    name = who.name, since = wait.since,
    holds = wait.holds, holder = holder, holder_host = held_by.host, holder_pid = held_by.pid,
    holder_name = held_by.name,
  }
end

local function make_rows(graph, waits)
  local list = {}
  for i, wait in ipairs(waits) do list[i] = make_row(graph, wait) end
  return list
end

-- Rotates the cycle so that it begins with the oldest wait.
local function start_with_oldest(cycle)
  local oldest, list = 1, {}
  for i, wait in ipairs(cycle) do
    if wait.since < cycle[oldest].since then oldest = i end
  end
  for i = 0, #cycle - 1 do list[#list + 1] = cycle[(oldest - 1 + i) % #cycle + 1] end
  return list
end

-- → { cycles = { { wait, … }, … }, waits = { wait, … } } | nil, message, code
function deadlocks.find(client)
  local graph = {
    client = client, nodes = nodes_of_quorum(client),
    wait_prefix = prefixes.wait .. core.client.tenant(client),
    holders = {}, names = {}, queued = {}, subscribed = {}, waits = {}, by_waiter = {},
    by_id_prefix = {},
  }
  local queues = {}
  local ok, message, code = deadlocks.scan(client, "[hr]*_[wq]*", function(name, node)
    local is_wait = name:sub(1, #graph.wait_prefix) == graph.wait_prefix
    if is_wait then add_wait(graph, name, node) else queues[#queues + 1] = name end
  end)
  if not ok then return nil, message, code end
  for _, name in ipairs(queues) do
    local is_list = name:sub(1, #prefixes.list) == prefixes.list
    if is_list then add_list(graph, name) else add_queue(graph, name) end
  end
  local found = cycles.find(graph.waits, function(wait) return holders_of(graph, wait) end,
    function(wait) return is_waiting(graph, wait) end)
  if graph.failure then return nil, graph.failure[1], graph.failure[2] end
  local result = { cycles = {}, waits = {} }
  for i, cycle in ipairs(found) do
    result.cycles[i] = make_rows(graph, start_with_oldest(cycle))
  end
  for _, wait in pairs(graph.by_waiter) do
    result.waits[#result.waits + 1] = make_row(graph, wait)
  end
  table.sort(result.waits, function(a, b)
    if a.key ~= b.key then return locale.is_before(a.key, b.key) end
    return locale.is_before(a.owner, b.owner)
  end)
  table.sort(result.cycles, function(a, b)
    return locale.is_before(a[1].key, b[1].key)
  end)
  return result
end

return deadlocks
