-- The records of `run --idempotent` and `run --once-per`: holdfast_once:KEY. With --idempotent, the
-- record's key is a lock while the job is running; after a success the key contains "done" until
-- the job may run again. With --once-per, it is a string that identifies the run that counts: see
-- holdfast.once.

local core = require "holdfast.core"
local locale = require "holdfast.locale"
local once = require "holdfast.once"
local replies = require "holdfast.replies"

local records = {}

local PREFIX = once.name ""

-- Deletes the record that ARGV[1] identifies: a run that has begun or ended in the meantime keeps
-- its lock or its record.
local FORGET = [[
local id = redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1])
  or redis.call('HGET', KEYS[1], 'done') and redis.call('HGET', KEYS[1], 'by')
return id == ARGV[1] and redis.call('DEL', KEYS[1]) or 0]]

local function command(client, node, ...)
  return replies.command(client, { ... }, node)
end

records.name = once.name

-- → the KEY of the run whose record has this name | nil
function records.key_of(name)
  return name:sub(1, #PREFIX) == PREFIX and name:sub(#PREFIX + 1) or nil
end

local function ttl_at(client, key, node)
  local name = records.name(key)
  if type(command(client, node, "HGET", name, "done")) ~= "string" then return nil end
  local ms = command(client, node, "PTTL", name)
  return type(ms) == "number" and ms >= 0 and ms / 1000 or nil
end

-- Returns the nodes that store a record: a quorum's servers, otherwise 0 for the key's node.
local function nodes_of_record(client)
  return core.client.is_quorum(client) and core.client.nodes(client) or { 0 }
end

-- → the seconds for which the job counts as done on a majority of the nodes | nil
function records.ttl(client, key)
  local ttls, nodes = {}, nodes_of_record(client)
  for _, node in ipairs(nodes) do ttls[#ttls + 1] = ttl_at(client, key, node) end
  table.sort(ttls, function(a, b) return a > b end) -- any locale: compares numbers
  return ttls[math.floor(#nodes / 2) + 1]
end

-- Returns the server's time in ms, or nil if it does not reply.
local function now_ms(client)
  local time = command(client, 0, "TIME")
  return time and locale.number(time[1]) * 1000 + math.floor(locale.number(time[2]) / 1000)
end

-- → the run that counts for the last scheduled time, a holdfast.scheduled_run | nil
function records.last_run(client, key)
  if core.client.is_quorum(client) then return nil end
  local record = command(client, 0, "GET", records.name(key))
  local now = type(record) == "string" and now_ms(client)
  return now and once.parse(record, now) or nil
end

local function id_at(client, key, node)
  local name = records.name(key)
  for _, read in ipairs { { "GET", name }, { "HGET", name, "by" } } do
    local id = replies.command(client, read, node)
    if type(id) == "string" then return id end
  end
  return ""
end

-- → what identifies the record on each node, for forget: node → its text, or the owner of its run
function records.ids(client, key)
  local ids = {}
  for _, node in ipairs(nodes_of_record(client)) do ids[node] = id_at(client, key, node) end
  return ids
end

-- Deletes the record with these ids, so that the job can run again.
-- → whether there was such a record | nil, message, code if too few nodes reply
function records.forget(client, key, ids)
  local nodes = nodes_of_record(client)
  local replied, forgotten, first_message, first_code = 0, false, nil, nil
  for _, node in ipairs(nodes) do
    local count, message, code = command(client, node, "EVAL", FORGET, 1, records.name(key), ids[node])
    if count then replied, forgotten = replied + 1, forgotten or count == 1 end
    if not count and not first_code then first_message, first_code = message, code end
  end
  if replied > #nodes / 2 then return forgotten end
  return nil, first_message, first_code
end

return records
