-- Runs plain commands and checks the types of their replies.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local replies = {}

local function is_string(value) return type(value) == "string" end
local function is_number(value) return type(value) == "number" end
local function is_string_or_nil(value) return value == nil or is_string(value) end

local function is_string_list(value)
  if type(value) ~= "table" then return false end
  for i = 1, #value do
    if not is_string(value[i]) then return false end
  end
  return true
end

local function is_scan_page(value)
  return type(value) == "table" and is_string(value[1]) and is_string_list(value[2])
end

-- Expects channels, each followed by its number of subscribers.
local function is_numsub_reply(value)
  if type(value) ~= "table" or #value == 0 or #value % 2 == 1 then return false end
  for i = 2, #value, 2 do
    if not is_number(value[i]) then return false end
  end
  return true
end

local IS_VALID = {
  GET = is_string_or_nil, HGET = is_string_or_nil, TYPE = is_string,
  DBSIZE = is_number, EVAL = is_number, EXISTS = is_number, HEXISTS = is_number, HLEN = is_number,
  PTTL = is_number, STRLEN = is_number,
  LRANGE = is_string_list, TIME = is_string_list, ZRANGE = is_string_list,
  ZRANGEBYSCORE = is_string_list,
  CHANNELS = is_string_list, SHARDCHANNELS = is_string_list,
  NUMSUB = is_numsub_reply, SHARDNUMSUB = is_numsub_reply,
  SCAN = is_scan_page, HSCAN = is_scan_page,
}

local UNEXPECTED_TYPE = "cannot read the reply to %s from %s: it has an unexpected type; " ..
  "check that this is the address of a Redis or Valkey server"

-- → the reply, if its type is valid for the command `name` | nil, message, code
function replies.check(name, reply, client, shown)
  if IS_VALID[name](reply) then return reply end
  return nil, UNEXPECTED_TYPE:format(shown or name, core.client.server(client)), "server"
end

-- Like driver.command, for the commands above. Fails with "server" if the reply has a wrong type.
function replies.command(client, args, node, timeout)
  local reply, message, code = driver.command(client, args, node, timeout)
  if code then return reply, message, code end
  local name = args[1] == "PUBSUB" and args[2] or args[1]
  return replies.check(name, reply, client, args[1])
end

-- Runs a command on the node that stores what belongs to a lock's key, such as its queue.
function replies.command_for_lock(client, key, ...)
  return replies.command(client, { ... }, driver.node_of_lock(client, key))
end

-- Returns the nodes to read from. A client of a cluster knows them only after the first reply.
-- → list | nil, message, code
function replies.nodes(client)
  local nodes = core.client.nodes(client)
  if #nodes > 0 then return nodes end
  local latency, message, code = client:ping()
  if not latency then return nil, message, code end
  return core.client.nodes(client)
end

return replies
