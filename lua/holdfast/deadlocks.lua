-- Finds out which owner waits for which: reads the queues, the holders and what waiting owners
-- publish about themselves. Changes nothing.
--
-- holdfast_wait:<owner>, with the client's tenant before the owner, names the lock for which the
-- caller of this owner waits (docs/reference/protocol.md). A caller is stuck if the owner that it
-- waits for is stuck, too: the lock's owner; for a writer, one of the readers; for permits, enough
-- owners to leave too few permits. From each stuck caller the waits lead into a cycle. Each
-- key, queue and client is read once, however many waiters it has.

local cycles = require "holdfast.cycles"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local locale = require "holdfast.locale"
local names = require "holdfast.names"
local pages = require "holdfast.pages"
local replies = require "holdfast.replies"

local deadlocks = {}

local PAGE = 200
local MAX_WAITERS = 100 -- waiters listed for one queue
local kinds, wire = core.kinds, core.wire
local prefixes = wire.prefixes

local command = replies.command

-- Returns the nodes to ask. A client of a cluster knows them only after the first reply.
-- → list | nil, message, code
function deadlocks.nodes(client)
  local nodes = core.client.nodes(client)
  if #nodes > 0 then return nodes end
  local answered, message, code = client:ping()
  if not answered then return nil, message, code end
  return core.client.nodes(client)
end

local function scan_node(client, node, pattern, visit)
  local cursor, count = "0", PAGE
  repeat
    local reply, message, code
    reply, message, code, count = pages.scan(client, node, cursor, pattern, nil, count)
    if not reply then return nil, message, code end
    cursor, count = reply[1], math.min(PAGE, count * 2)
    for _, key in ipairs(reply[2]) do visit(key, node) end
  until cursor == "0"
  return true
end

-- Calls visit(key, node) for each matching key, page by page, one node after the other. In a quorum
-- a minority may be down, because a majority has everything that counts.
-- → true | nil, message, code
function deadlocks.scan(client, pattern, visit)
  local nodes, message, code = deadlocks.nodes(client)
  if not nodes then return nil, message, code end
  local may_fail = core.client.is_quorum(client) and math.floor((#nodes - 1) / 2) or 0
  for _, node in ipairs(nodes) do
    local scanned
    scanned, message, code = scan_node(client, node, pattern, visit)
    if not scanned and may_fail == 0 then return nil, message, code end
    may_fail = scanned and may_fail or may_fail - 1
  end
  return true
end

-- Codes of keys that belong to other applications, which are skipped, as is anything too large to
-- be holdfast's. Any other failure makes the whole search fail.
local FOREIGN = { conflict = true, denied = true }

-- → what was read | nil
local function note_failure(graph, value, message, code)
  local is_foreign = FOREIGN[code] or pages.is_too_large(message, code)
  if value == nil and code and not is_foreign and not graph.failure then
    graph.failure = { message, code }
  end
  return value
end

local function ask(graph, words, node)
  return note_failure(graph, command(graph.client, words, node))
end

local function info_of(graph, key, kind)
  return note_failure(graph, driver.lock.info(driver.reader(graph.client, key, kind)))
end

-- Reads at most `count` items on the key's node. Skips an item that is too large to be holdfast's.
-- → the items, how many were asked for, whether there may be more
local function page_of(graph, key, words_of, from, count)
  local node = driver.node_of_lock(graph.client, key)
  local reply, message, code, asked = pages.shrink(count, function(most)
    return command(graph.client, words_of(from, most), node)
  end)
  local page = note_failure(graph, reply, message, code) or {}
  return page, asked, #page == asked or pages.is_too_large(message, code)
end

-- Iterates over the first `limit` items of a list or a sorted set on the key's node, page by page.
-- An item that leaves the front in the meantime may make this run skip others. `words_of(from,
-- count)` returns the words of the command that reads a page.
local function each_item(graph, key, words_of, limit)
  local from, page, at, count, more = 0, {}, 0, PAGE, true
  return function()
    at = at + 1
    while at > #page and more and from < limit do
      page, count, more = page_of(graph, key, words_of, from, math.min(count, limit - from))
      from, at, count = from + count, 1, math.min(PAGE, count * 2)
    end
    return page[at]
  end
end

-- Iterates over all items of the list or the sorted set with this name, on the key's node.
local function each_of_queue(graph, key, read, name)
  return each_item(graph, key, function(from, count)
    return { read, name, from, from + count - 1 }
  end, math.huge)
end

-- ---- the graph ----

-- → the servers of a quorum | nil for any other client. Each server of a quorum must be asked,
-- because clients publish names and waits on all of them.
local function nodes_of_quorum(client)
  return core.client.is_quorum(client) and core.client.nodes(client) or nil
end

-- Returns how many permits this owner wants, a number at the end of its string.
local function count_of(owner)
  return locale.number(owner:match("%*(%d+)$") or "1")
end

-- Returns the stem of the owner's permit ids: all but their last two bytes, which count the
-- permits.
local function stem_of(owner)
  local number = locale.number(owner:match("^:(%d+)", 37) or "0")
  local hex = owner:sub(1, 8) .. owner:sub(29, 36) .. ("%08x"):format(number % 4294967296)
  return "hf" .. hex:gsub("%x%x", function(byte)
    return string.char(tonumber(byte, 16)) -- any locale: hexadecimal
  end)
end

-- Returns the owners of the permits in use. Only owners that wait for something are known, by their
-- stems; the others are `false`.
local function permit_holders(graph, key, kind)
  local info = info_of(graph, key, kind)
  local list = { free = info and info.free or 0 }
  for id in each_of_queue(graph, key, "ZRANGE", wire.names(kind, key).leases) do
    list[#list + 1] = graph.by_stem[id:sub(1, 14)] or false
  end
  return list
end

-- Reads all readers of the lock, because info names only one.
local function readers(graph, key)
  local list, cursor, count = {}, "0", PAGE
  repeat
    local reply, message, code
    reply, message, code, count = pages.shrink(count, function(most)
      return command(graph.client, { "HSCAN", key, cursor, "COUNT", most })
    end)
    if not note_failure(graph, reply, message, code) then break end
    cursor = reply[1]
    for i = 1, #reply[2], 2 do
      local field = reply[2][i]
      if field ~= "mode" then list[#list + 1] = field end
    end
  until cursor == "0"
  return list
end

-- Returns the list of owners that hold what this wait waits for; for a semaphore with the field
-- `free`, the number of free permits.
local function holders_of(graph, wait)
  local key, kind = wait.key, wait.kind
  local id = kind .. ":" .. key
  if graph.holders[id] then return graph.holders[id] end
  local list
  if kinds[kind].counted then
    list = permit_holders(graph, key, kind)
  else
    local info = info_of(graph, key, kind)
    list = { info and info.owner }
    if info and (info.readers or 0) > 1 then list = readers(graph, key) end
  end
  graph.holders[id] = list
  return list
end

-- Returns the set of waiters in the queue of this wait's key. Redisson's list contains their
-- owners.
local function waiters_of(graph, wait)
  local key, is_list, set = wait.key, kinds[wait.kind].listed, {}
  local name = wire.names(wait.kind, key).queue
  if graph.queued[name] then return graph.queued[name] end
  for text in each_of_queue(graph, key, is_list and "LRANGE" or "ZRANGE", name) do
    local queued = is_list and { waiter = text } or wire.read_waiter(text)
    if queued then set[queued.waiter] = true end
  end
  graph.queued[name] = set
  return set
end

-- Returns whether the waiter's client is subscribed to its grants on a node, or true if the query
-- is refused.
local function ask_subscribed(graph, uuid)
  for _, node in ipairs(core.client.nodes(graph.client)) do
    local reply = ask(graph, { "PUBSUB", "NUMSUB", prefixes.grant .. uuid }, node)
    if not reply or (locale.number(reply[2]) or 0) > 0 then return true end
  end
  return false
end

local function is_subscribed(graph, wait)
  local uuid = wait.waiter:sub(1, 36)
  if graph.listening[uuid] == nil then graph.listening[uuid] = ask_subscribed(graph, uuid) end
  return graph.listening[uuid]
end

-- Returns whether the wait is still going on. In a quorum, which has no queue, that is assumed.
local function is_waiting(graph, wait)
  return graph.nodes or waiters_of(graph, wait)[wait.waiter] and is_subscribed(graph, wait)
end

local function identify(graph, owner)
  local uuid = owner:sub(1, 36)
  if graph.names[uuid] == nil then graph.names[uuid] = names.of(graph.client, owner) or false end
  return graph.names[uuid] or {}
end

local function add_wait(graph, name, node)
  local text = ask(graph, { "GET", name }, graph.nodes and node or nil)
  local wait = type(text) == "string" and wire.read_wait(text)
  if not wait or wait.key == "" then return end
  local before = graph.by_waiter[wait.waiter]
  if before then wait = before else graph.by_waiter[wait.waiter], wait.holds = wait, {} end
  local owner = name:sub(#graph.wait_prefix + 1)
  wait.holds[#wait.holds + 1] = owner
  graph.waits[owner] = wait
  if names.is_owner(owner) then graph.by_stem[stem_of(owner)] = owner end
end

-- Adds a waiter found in the key's queue, unless it is known because it has published its wait.
local function add_waiter(graph, key, waiter, kind)
  local wait = graph.by_waiter[waiter]
    or { waiter = waiter, kind = kind, key = key, holds = {} }
  graph.by_waiter[waiter] = wait
  return wait
end

local function add_list(graph, name)
  local key = wire.key_of_queue(name)
  if not key then return end
  local function words_of(from, count) return { "LRANGE", name, from, from + count - 1 } end
  for owner in each_item(graph, key, words_of, MAX_WAITERS) do
    add_waiter(graph, key, owner, "fair")
  end
end

local function add_queue(graph, name)
  local key = wire.key_of_queue(name)
  if not key then return end
  local function words_of(from, count)
    return { "ZRANGEBYSCORE", name, "(0", "+inf", "LIMIT", from, count }
  end
  for text in each_item(graph, key, words_of, MAX_WAITERS) do
    local queued = wire.read_waiter(text)
    if queued then
      add_waiter(graph, key, queued.waiter, queued.kind).count = count_of(queued.owner)
    end
  end
end

local function row(graph, wait)
  local holder = wait.holder or holders_of(graph, wait)[1] or nil
  local who, held_by = identify(graph, wait.waiter), holder and identify(graph, holder) or {}
  return {
    key = wait.key, kind = wait.kind, owner = wait.waiter, host = who.host, pid = who.pid,
    name = who.name, since = wait.since,
    holds = wait.holds, holder = holder, holder_host = held_by.host, holder_pid = held_by.pid,
    holder_name = held_by.name,
  }
end

local function find_cycles(graph)
  return cycles.find(graph.waits, function(wait)
    return holders_of(graph, wait)
  end, function(wait)
    return is_waiting(graph, wait)
  end)
end

local function rows(graph, waits)
  local list = {}
  for i, wait in ipairs(waits) do list[i] = row(graph, wait) end
  return list
end

-- Rotates the cycle so that it begins with the wait that has lasted longest.
local function from_oldest(cycle)
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
    holders = {}, names = {}, queued = {}, listening = {}, waits = {}, by_waiter = {}, by_stem = {},
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
  local found = find_cycles(graph)
  if graph.failure then return nil, graph.failure[1], graph.failure[2] end
  local result = { cycles = {}, waits = {} }
  for i, cycle in ipairs(found) do
    result.cycles[i] = rows(graph, from_oldest(cycle))
  end
  for _, wait in pairs(graph.by_waiter) do result.waits[#result.waits + 1] = row(graph, wait) end
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
