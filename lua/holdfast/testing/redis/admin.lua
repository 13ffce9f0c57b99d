-- Commands for the connection and the server. strings.lua describes the format of the entries.

local arguments = require "holdfast.testing.redis.arguments"
local fail = require "holdfast.testing.redis.fail"

local OK = { ok = "OK" }
local NO_PASSWORD = "ERR AUTH <password> called without any password configured for the default user. "
  .. "Are you sure your configuration is correct?"
local WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."

local commands = {}

commands.PING = { -1, "p", function(client, args)
  if #args > 2 then fail("ERR wrong number of arguments for 'ping' command") end
  if client:subscribed() then return { "pong", args[2] or "" } end
  return args[2] or { ok = "PONG" }
end }

commands.ECHO = { 2, "l", function(_, args) return args[2] end }

commands.QUIT = { -1, "aslpb", function(client)
  client.ending, client.server.has_ending_clients = true, true
  return OK
end }

commands.AUTH = { -2, "aslb", function(client, args)
  if #args > 3 then fail("ERR syntax error") end
  local password = client.server.password
  if #args == 2 and not password then fail(NO_PASSWORD) end
  local user = args[3] and args[2] or "default"
  local is_correct = args[#args] == password or args[#args] == client.server.old_password
  if user ~= "default" or password and not is_correct then fail(WRONG_PASSWORD) end
  client.authenticated = true
  return OK
end }

commands.SELECT = { 2, "l", function(client, args)
  local index = arguments.integer(args[2])
  client.db = client.server:database(index) or fail("ERR DB index is out of range")
  client.db_index = index
  return OK
end }

commands.TIME = { 1, "l", function(client)
  local us = client.server.now_us
  return { arguments.integer_text(math.floor(us / 1000000)), arguments.integer_text(us % 1000000) }
end }

local FLUSH_MODES = { SYNC = true, ASYNC = true }

commands.FLUSHALL = { -1, "w", function(client, args)
  if #args > 2 or args[2] and not FLUSH_MODES[args[2]:upper()] then fail("ERR syntax error") end
  client.server:flush()
  return OK
end }

-- There are no replicas that could acknowledge writes.
commands.WAIT = { 3, "s", function(_, args)
  arguments.integer(args[2])
  if arguments.integer(args[3], "ERR timeout is not an integer or out of range") < 0 then
    fail("ERR timeout is negative")
  end
  return 0
end }

commands.INFO = { -1, "l", function(client) return client.server:info() end }

local subcommands = {}

subcommands.SETNAME = { 3, "sl", function(client, args)
  if args[3]:find("[^!-~]") then
    fail("ERR Client names cannot contain spaces, newlines or special characters.")
  end
  client.name = args[3]
  return OK
end }

subcommands.GETNAME = { 2, "sl", function(client)
  return client.name ~= "" and client.name or false
end }

subcommands.ID = { 2, "sl", function(client) return client.id end }

subcommands.LIST = { -2, "sl", function(client, args)
  if args[3] then arguments.unsupported("CLIENT LIST", args[3]) end
  local lines = {}
  for _, other in ipairs(client.server:clients()) do
    lines[#lines + 1] = ("id=%d name=%s db=%d sub=%d psub=%d\n"):format(other.id, other.name,
      other.db_index,
      #other.channels, #other.patterns)
  end
  return table.concat(lines)
end }

local KINDS = { NORMAL = "normal", PUBSUB = "pubsub", MASTER = "master", REPLICA = "replica",
  SLAVE = "replica" }

local filters = {}

function filters.ID(text)
  local id = arguments.integer(text, "ERR client-id should be greater than 0")
  if id < 1 then fail("ERR client-id should be greater than 0") end
  return function(other) return other.id == id end
end

function filters.TYPE(text)
  local kind = KINDS[text:upper()] or fail(("ERR Unknown client type '%s'"):format(text))
  return function(other) return (other:subscribed() and "pubsub" or "normal") == kind end
end

function filters.SKIPME(text, client)
  local skip = text:lower()
  if skip ~= "yes" and skip ~= "no" then fail("ERR syntax error") end
  return function(other) return skip == "no" or other ~= client end
end

local function kill_filters(client, args)
  local filters_given = {}
  for i = 3, #args, 2 do
    local name = args[i]:upper()
    if name == "ADDR" or name == "LADDR" or name == "USER" then
      arguments.unsupported("CLIENT KILL", name)
    end
    if not filters[name] or not args[i + 1] then fail("ERR syntax error") end
    filters_given[name] = filters[name](args[i + 1], client)
  end
  filters_given.SKIPME = filters_given.SKIPME or filters.SKIPME("yes", client)
  return filters_given
end

local function passes(filters_given, other)
  for _, filter in pairs(filters_given) do
    if not filter(other) then return false end
  end
  return true
end

subcommands.KILL = { -3, "sl", function(client, args)
  if #args == 3 then fail("ERR No such client") end
  local filters_given, killed = kill_filters(client, args), 0
  for _, other in ipairs(client.server:clients()) do
    if passes(filters_given, other) then
      killed = killed + 1
      other.ending, client.server.has_ending_clients = true, true
    end
  end
  return killed
end }

commands.CLIENT = { subcommands = subcommands }

return commands
