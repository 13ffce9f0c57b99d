-- A small Redis in memory: one process, no sockets, no clock of its own. It runs the programs of
-- csrc/programs unchanged, using the clock that the caller provides, and replies like redis-server
-- 7.0; spec/redis_diff_spec.lua verifies that.
--
-- One command runs at a time, and no time passes during it. No reader sees expired keys. Messages
-- are sent after the command that published them has run, before its reply. An unknown command gets
-- the real server's error reply. An unsupported option raises an error, because any reply would be
-- invented.
--
--   local server = Redis.new { now = function() return microseconds end, password = string | nil }
--   local client = server:connect(on_message, on_close)
--   client:feed(bytes) → reply bytes        client:call { "GET", key } → reply as in
--                                           holdfast.testing.redis.resp
--   client:close()                          server:restart { keep_data = boolean }
--
-- A server has these fields:
--   faults            states in which it refuses commands: oom, readonly, misconf,
--                     noreplicas, loading, busy, noauth, deny_channels (booleans),
--                     deny = { get = true, ["client|list"] = true }
--   password, old_password  two valid passwords
--   replaced[name]    function(run, client, args) that replaces a command, to test the clients
--   extra_commands[NAME]  function(client, args) → reply, as on a replica, a Sentinel or a node
--                     of a cluster; if it returns Redis.BLOCKED, the client waits until
--                     client:unblock(reply)
--   redirect          function(client, command, args) → a cluster node's MOVED or ASK error | nil
--   is_replica        whether writes are refused
--   on_write          function(client), called when a command has changed something

local Keyspace = require "holdfast.testing.redis.keyspace"
local admin = require "holdfast.testing.redis.admin"
local fail = require "holdfast.testing.redis.fail"
local pubsub = require "holdfast.testing.redis.pubsub"
local resp = require "holdfast.testing.redis.resp"

local DATABASES = 16
local VERSION = "7.0.15"

local REFUSED = {
  auth = "NOAUTH Authentication required.",
  oom = "OOM command not allowed when used memory > 'maxmemory'.",
  readonly = "READONLY You can't write against a read only replica.",
  misconf = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands "
    .. "that may modify the data set are disabled, because this instance is configured to report errors during writes if "
    .. "RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the "
    .. "RDB error.",
  noreplicas = "NOREPLICAS Not enough good replicas to write.",
  loading = "LOADING Redis is loading the dataset in memory",
  busy = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
  channel = "NOPERM this user has no permissions to access one of the channels used as arguments",
}

-- { run, arity, name, subcommands, and flags }. The flags are r: reads; w: writes; m: needs memory;
-- s: not in scripts; a: allowed before AUTH; l: allowed while loading; p: allowed while subscribed;
-- b: allowed while a script hangs; c: names channels.
local commands = {}

local function new_command(name, entry)
  local command = { name = name:lower(), arity = entry[1], run = entry[3] }
  for flag in (entry[2] or ""):gmatch(".") do command[flag] = true end
  if entry.subcommands then
    command.subcommands = {}
    for sub, sub_entry in pairs(entry.subcommands) do
      command.subcommands[sub] = new_command(name .. "|" .. sub, sub_entry)
    end
  end
  return command
end

local function add_all(list)
  for name, entry in pairs(list) do
    if type(entry) == "table" then commands[name] = new_command(name, entry) end
  end
end

add_all(admin)
add_all(pubsub)
add_all(require "holdfast.testing.redis.hashes")
add_all(require "holdfast.testing.redis.lists")
add_all(require "holdfast.testing.redis.scripting")
add_all(require "holdfast.testing.redis.sets")
add_all(require "holdfast.testing.redis.strings")
add_all(require "holdfast.testing.redis.zsets")

local Client = {}
Client.__index = Client

local Server = {}
Server.__index = Server

local Redis = { BLOCKED = {} }

function Redis.new(options)
  local self = setmetatable({
    clock = options.now, password = options.password, faults = { deny = {} }, replaced = {},
    databases = {}, channels = {}, patterns = {}, shards = {}, scripts = {}, outbox = {},
    connected = {}, last_id = 0, runs = 1,
  }, Server)
  self:read_clock()
  self.started_us = self.now_us
  return self
end

function Server:read_clock()
  self.now_us = math.floor(self.clock())
end

-- Returns the time at which the running command began, in ms.
function Server:now_ms()
  return math.floor(self.now_us / 1000)
end

-- → keyspace | nil
function Server:database(index)
  if index < 0 or index >= DATABASES then return nil end
  if not self.databases[index] then
    self.databases[index] = Keyspace.new(function() return self:now_ms() end)
  end
  return self.databases[index]
end

function Server:flush()
  for _, keyspace in pairs(self.databases) do keyspace.entries = {} end
end

-- Returns the connected clients, oldest first.
function Server:clients()
  local list = {}
  for _, client in pairs(self.connected) do list[#list + 1] = client end
  table.sort(list, function(a, b) return a.id < b.id end)
  return list
end

function Server:info()
  return table.concat({
    "# Server", "redis_version:" .. VERSION, "redis_mode:standalone",
    ("run_id:%040d"):format(self.runs),
    ("uptime_in_seconds:%d"):format(math.floor((self.now_us - self.started_us) / 1000000)),
    "# Clients", ("connected_clients:%d"):format(#self:clients()),
    "# Persistence", "loading:" .. (self.faults.loading and 1 or 0),
    "# Replication", "role:" .. (self.faults.readonly and "slave" or "master"),
    "connected_slaves:0", "",
  }, "\r\n")
end

-- on_message(bytes) receives what the server sends without a request. on_close() is called when the
-- server closes the connection.
function Server:connect(on_message, on_close)
  self.last_id = self.last_id + 1
  local client = setmetatable({
    server = self, id = self.last_id, name = "", db = self:database(0), db_index = 0,
    channels = {}, patterns = {}, shards = {}, requests = resp.request_parser(),
      authenticated = not self.password,
    on_message = on_message, on_close = on_close,
  }, Client)
  client.requests.is_unauthenticated = not client.authenticated
  self.connected[client.id] = client
  return client
end

-- Ends all connections and forgets all scripts and, without keep_data, all keys.
function Server:restart(options)
  for _, client in ipairs(self:clients()) do client:drop() end
  self.scripts, self.outbox = {}, {}
  self.runs = self.runs + 1
  self:read_clock()
  self.started_us = self.now_us
  if not (options and options.keep_data) then self:flush() end
end

local function quoted_arguments(args)
  local text = ""
  for i = 2, #args do
    if #text >= 128 then break end
    text = text .. "'" .. args[i]:sub(1, 128 - #text):match("^[^%z]*") .. "' "
  end
  return text
end

local function has_valid_arity(command, args)
  local arity = command.arity
  return arity and (#args == arity or arity < 0 and #args >= -arity)
end

local function subcommand(command, args)
  local found = command.subcommands[args[2]:upper()]
  if found then return found end
  return nil, "unknown", ("ERR unknown subcommand '%s'. Try %s HELP."):format(args[2]:sub(1, 128),
    args[1]:upper())
end

-- server.lacks: the set of commands and subcommands that the server's version does not know.
local function lacks_command(server, args)
  local lacks = server.lacks
  return lacks and (lacks[args[1]:upper()] or args[2] and lacks[args[2]:upper()])
end

-- → command | nil, "unknown" or "arity", error text
local function lookup(server, args)
  local command = not lacks_command(server, args)
    and (commands[args[1]] or commands[args[1]:upper()])
  if not command then
    return nil, "unknown", ("ERR unknown command '%s', with args beginning with: %s"):format(args[1]:sub(1, 128),
      quoted_arguments(args))
  end
  if command.subcommands and args[2] then
    local found, kind, message = subcommand(command, args)
    if not found then return nil, kind, message end
    command = found
  end
  if has_valid_arity(command, args) then return command end
  return nil, "arity", ("ERR wrong number of arguments for '%s' command"):format(command.name)
end

-- → error text | nil
local function refusal_message(client, command)
  local faults, name = client.server.faults, command.name
  if (faults.noauth or not client.authenticated) and not command.a then return REFUSED.auth end
  if faults.deny[name] then
    return ("NOPERM this user has no permissions to run the '%s' command"):format(name)
  end
  if faults.deny_channels and command.c then return REFUSED.channel end
  if faults.oom and command.m then return REFUSED.oom end
  if faults.misconf and (command.w or name == "ping") then return REFUSED.misconf end
  if faults.noreplicas and command.w then return REFUSED.noreplicas end
  if (faults.readonly or client.server.is_replica) and command.w then return REFUSED.readonly end
  if client:subscribed() and not command.p then
    return ("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in "
      .. "this context"):format(name)
  end
  if faults.loading and not command.l then return REFUSED.loading end
  if faults.busy and not command.b then return REFUSED.busy end
  return nil
end

local function refusal_in_script(state, command)
  local faults = state.server.faults
  if command.s then return "ERR This Redis command is not allowed from script" end
  if faults.deny[command.name] then
    return "ERR The user executing the script can't run this command or subcommand"
  end
  if faults.deny_channels and command.c then
    return "ERR The user executing the script can't publish to the channel mentioned in the command"
  end
  if (faults.readonly or state.server.is_replica) and command.w then return REFUSED.readonly end
  if state.wrote then return nil end
  if faults.misconf and command.w then return REFUSED.misconf end
  if faults.noreplicas and command.w then return REFUSED.noreplicas end
  if faults.oom and command.m then return REFUSED.oom end
  return nil
end

-- Returns whether a command changed nothing, so that replicas do not receive it. `noop`: the
-- command's second result, which says so, or nil if the reply alone decides.
local function is_noop(command, reply, noop)
  if noop ~= nil then return noop end
  if type(reply) == "table" then return reply.err ~= nil end
  local may_return_0 = command.name == "hset" or command.name == "hincrby" or command.name == "incrby"
  return not may_return_0 and (reply == 0 or reply == false)
end

-- → reply, which may be an error
local function run_command(command, client, args)
  local ok, reply, noop
  local replacement = client.server.replaced[command.name]
  if replacement then
    ok, reply, noop = pcall(replacement, command.run, client, args)
  else
    ok, reply, noop = pcall(command.run, client, args)
  end
  if ok then
    if command.w and client.server.on_write and not is_noop(command, reply, noop) then
      client.server.wrote = true
    end
    return reply
  end
  if fail.is(reply) then return { err = reply.err } end
  error(reply, 0)
end

-- Runs a command for a script. `state`: the script's client, with the field `wrote`. After a write,
-- the script's commands are refused only for a missing permission or on a replica.
function Server.execute_in_script(state, args)
  local command, kind = lookup(state.server, args)
  if not command then
    return { err = kind == "unknown" and "ERR Unknown Redis command called from script"
      or "ERR Wrong number of args calling Redis command from script" }
  end
  local refused = refusal_in_script(state, command)
  if refused then return { err = refused } end
  if command.w then state.wrote = true end
  return run_command(command, state, args)
end

local function execute(client, args)
  local server = client.server
  server:read_clock()
  local extra = server.extra_commands and server.extra_commands[args[1]:upper()]
  if extra then return extra(client, args) end
  local command, _, message = lookup(server, args)
  if not command then return { err = message } end
  local refused = refusal_message(client, command) or server.redirect
    and server.redirect(client, command, args)
  if refused then return { err = refused } end
  local reply = run_command(command, client, args)
  client.requests.is_unauthenticated = not client.authenticated
  if server.wrote then
    server.wrote = false
    server.on_write(client)
  end
  return reply
end

local function send_messages(server)
  local outbox = server.outbox
  if #outbox == 0 then return end
  server.outbox = {}
  for _, item in ipairs(outbox) do
    if not item.client.closed then item.client.on_message(item.bytes) end
  end
end

local function end_connections(server)
  if not server.has_ending_clients then return end
  server.has_ending_clients = false
  for _, client in ipairs(server:clients()) do
    if client.ending then client:drop() end
  end
end

function Client:subscribed()
  return #self.channels + #self.patterns + #self.shards > 0
end

-- Runs a command. → reply | nil on a closed connection
function Client:call(args)
  if self.closed then return nil end
  local reply = execute(self, args)
  send_messages(self.server)
  end_connections(self.server)
  return type(reply) == "table" and reply.replies or reply
end

-- Receives bytes from a client, in pieces of any size. → the bytes of all replies
function Client:feed(bytes)
  if self.closed then return "" end
  self.requests:feed(bytes)
  local out = {}
  while not self.closed and not self.blocked do
    local args, message = self.requests:next()
    if args then
      local reply = execute(self, args)
      self.blocked = reply == Redis.BLOCKED
      if not self.blocked then out[#out + 1] = resp.encode(reply) end
    elseif message then
      out[#out + 1] = resp.encode { err = "ERR " .. message }
      self.ending, self.server.has_ending_clients = true, true
    else
      break
    end
    send_messages(self.server)
    end_connections(self.server)
  end
  return table.concat(out)
end

-- Sends the reply that the client is waiting for, then the replies to what it has sent since.
function Client:unblock(reply)
  if self.closed or not self.blocked then return end
  self.blocked = false
  self.on_message(resp.encode(reply) .. self:feed(""))
end

-- The client closes the connection.
function Client:close()
  if self.closed then return end
  self.closed = true
  pubsub.forget(self)
  self.server.connected[self.id] = nil
end

-- The server closes the connection.
function Client:drop()
  if self.closed then return end
  self:close()
  if self.on_close then self.on_close() end
end

return Redis
