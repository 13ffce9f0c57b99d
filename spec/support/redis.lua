-- Real redis-servers for specs, demo and benches, each in a private directory on a private unix
-- socket, and optionally on a free loopback port. A server replies when start() returns. By default
-- it stores nothing on disk. All servers are stopped when the program ends, whatever happens in it.
-- HOLDFAST_REDIS_SERVER names the program, by default redis-server; Redis 6.2 and newer, and
-- Valkey, work.

local files = require "spec.support.files"
local process = require "spec.support.process"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"

local PROGRAM = os.getenv("HOLDFAST_REDIS_SERVER") or "redis-server"
local BUS_OFFSET = 10000 -- from a node's port to its bus, which is fixed before 7.0
local START_TIMEOUT = 10
local START_TRIES = 5

local Server = {}
Server.__index = Server

local redis = {
  running = {}, -- the set of servers that were started and not stopped
  program = PROGRAM,
  on_stop = nil, -- called with a server before it is stopped
}

local majors = {}

-- Returns the program's major version; default: the program that start uses. Valkey began as Redis
-- 7.2.
function redis.major(program)
  program = program or PROGRAM
  if not majors[program] then
    local child = process.start { program, "--version", env = { LD_PRELOAD = false } }
    child:wait(START_TIMEOUT)
    majors[program] = tonumber((assert(child:output():match("v=(%d+)"), child:output())))
  end
  return majors[program]
end

-- Returns whether the program at this path is the one that start uses by default.
function redis.is_default(path)
  return process.succeeds(('test "$(command -v %s)" -ef "%s"'):format(PROGRAM, path))
end

-- Returns a port for a cluster's node, and one for its bus.
local function free_ports(program)
  if redis.major(program) >= 7 then return process.free_port(), process.free_port() end
  for _ = 1, 100 do
    local port = process.free_port()
    local bus = port + BUS_OFFSET <= 65535 and sys.listen_tcp(port + BUS_OFFSET)
    if bus then
      sys.close(bus)
      return port, port + BUS_OFFSET
    end
  end
  error("no two free ports for a node of a cluster")
end

local function store_lines(self, options, add)
  add('save ""')
  add("appendonly %s", options.persist and "yes" or "no")
  add("appendfsync always")
  add("repl-diskless-sync-delay 0")
  if options.password then add("masterauth %s", options.password) end
  local master = options.replica_of
  if master then add("replicaof 127.0.0.1 %d", assert(master.port, "a master needs tcp = true")) end
  if options.cluster then
    add("cluster-enabled yes")
    if redis.major(self.program) >= 7 then add("cluster-port %d", self.bus_port) end
  end
end

local function tls_lines(self, tls, add)
  add("tls-port %d", self.tls_port)
  add("tls-cert-file %s", tls.cert)
  add("tls-key-file %s", tls.key)
  add("tls-ca-cert-file %s", tls.ca)
  add("tls-auth-clients %s", tls.clients or "no")
  if tls.alone then
    add("tls-replication yes")
    if self.options.cluster then add("tls-cluster yes") end
  end
end

local function config_lines(self, options)
  local lines = {}
  local function add(...) lines[#lines + 1] = (...):format(select(2, ...)) end
  add("port %d", options.tls and options.tls.alone and 0 or self.port or 0)
  add("bind %s", self.host)
  add("unixsocket %s", self.path)
  add("dir %s", self.directory)
  add("daemonize no")
  if options.password then add("requirepass %s", options.password) end
  for _, user in ipairs(options.users or {}) do add("user %s", user) end
  if options.tls then tls_lines(self, options.tls, add) end
  if not options.sentinel then store_lines(self, options, add) end
  for _, line in ipairs(options.conf or {}) do lines[#lines + 1] = line end
  return lines
end

local function write_config(self)
  files.write(self.directory .. "/redis.conf", table.concat(config_lines(self, self.options), "\n"), "\n")
end

function Server:_connect()
  return resp.connect { path = self.path, password = self.options.password }
end

function Server:_ready()
  if self.process:status() then return "dead" end
  local connection = self:_connect()
  if not connection then return nil end
  local ok, reply = pcall(connection.call, connection, "PING")
  connection:close()
  return ok and reply == "PONG" and "ready"
end

function Server:_clock_path() return self.directory .. "/clock" end

-- From now on the server's wall clock is `seconds` ahead. It must have been started with clock =
-- true.
function Server:set_clock(seconds)
  assert(self.options.clock, "start it with clock = true")
  local path = self:_clock_path()
  files.write(path .. ".new", ("%d"):format(seconds))
  assert(os.rename(path .. ".new", path)) -- the server never reads an empty file
end

function Server:_launch()
  os.remove(self.path)
  local command = { self.program, self.directory .. "/redis.conf",
    self.options.sentinel and "--sentinel" }
  for i, word in ipairs(self.options.under or {}) do table.insert(command, i, word) end
  command.output = self.directory .. "/redis.log"
  command.env = { LD_PRELOAD = self.options.clock and process.build .. "/support/clock.so" or false,
    HOLDFAST_CLOCK = self:_clock_path() }
  self.process = process.start(command)
  self.pid = self.process.pid
  return process.wait_until(function() return self:_ready() end, START_TIMEOUT) == "ready"
end

-- start{ tcp, port = with tcp or cluster; default: any free one, password,
--   users = { "name on >pass ~* +@all" }, replica_of = server, persist,
--   cluster = true (a cluster's node), sentinel = true (a Sentinel), conf = { lines },
--   host = its address; default 127.0.0.1, under = { words of a command that runs it },
--   program = path, clock = true (for server:set_clock),
--   tls = { cert = path, key = path, ca = path, clients = "no" (the default) | "optional" | "yes",
--     alone = true: with tcp, sentinel or cluster, its port is for TLS, and it uses TLS to other
--       servers } }
function redis.start(options)
  options = options or {}
  local self = setmetatable({ options = options, program = options.program or PROGRAM,
    host = options.host or "127.0.0.1", directory = process.directory() }, Server)
  self.path = self.directory .. "/redis.sock"
  for _ = 1, START_TRIES do
    if options.tcp or options.sentinel then self.port = process.free_port() end
    if options.cluster then self.port, self.bus_port = free_ports(self.program) end
    self.port = options.port or self.port
    if options.tls then self.tls_port = options.tls.alone and self.port or process.free_port() end
    write_config(self)
    if self:_launch() then
      redis.running[self] = true
      return self
    end
    self.process:stop()
  end
  error("redis-server does not start: " .. self.process:output(), 2)
end

-- Returns how many of the servers run and have the key.
function redis.holding(servers, key)
  local count = 0
  for _, server in ipairs(servers) do
    if server:is_running() and server:cli("EXISTS", key) == 1 then count = count + 1 end
  end
  return count
end

-- Starts `n` independent servers with these options.
-- → servers, their URLs
function redis.several(n, options)
  local list, urls = {}, {}
  for i = 1, n do
    list[i] = redis.start(options)
    urls[i] = list[i]:url()
  end
  return list, urls
end

-- Returns the server's URL, to which suffixes such as ?db=0 can be added.
function Server:url()
  local credentials = self.options.password and (":%s@"):format(self.options.password) or ""
  return "unix://" .. credentials .. self.path
end

function Server:tcp_url()
  local credentials = self.options.password and (":%s@"):format(self.options.password) or ""
  return ("redis://%s127.0.0.1:%d"):format(credentials,
    assert(self.port, "start it with tcp = true"))
end

function Server:tls_url(host)
  local credentials = self.options.password and (":%s@"):format(self.options.password) or ""
  return ("rediss://%s%s:%d"):format(credentials, host or "127.0.0.1",
    assert(self.tls_port, "start it with tls"))
end

-- cli("GET", key) or cli{ "GET", key } → the reply, as from spec.support.resp
function Server:cli(...)
  if self.control and self.control:is_closed() then self:_disconnect() end
  if not self.control then self.control = assert(self:_connect()) end
  local ok, reply = pcall(self.control.call, self.control, ...)
  if ok then return reply end
  self:_disconnect()
  error(reply, 2)
end

-- Like cli, but returns nil if the server does not reply.
function Server:try_cli(...)
  local ok, reply = pcall(self.cli, self, ...)
  return ok and reply or nil
end

function Server:_disconnect()
  if self.control then self.control:close() end
  self.control = nil
end

-- KILL and TERM wait for the end; STOP and CONT hang and resume it.
function Server:kill(signal)
  signal = signal or "KILL"
  self.process:kill(signal)
  if signal ~= "KILL" and signal ~= "TERM" then return end
  self:_disconnect()
  assert(self.process:wait(10))
end

local function forget(self)
  for _, name in ipairs { "dump.rdb", "appendonlydir", "nodes.conf" } do
    sys.remove(self.directory .. "/" .. name)
  end
end

-- Restarts at the same address, with its data or empty, with `server.program`, which may have been
-- changed. A server that was killed before has only what it had saved itself.
function Server:restart(keep_data)
  local alive = not self.process:status()
  if alive and keep_data then self:cli("SAVE") end
  if alive then self:kill("KILL") end
  if not keep_data then forget(self) end
  assert(self:_launch(), "redis-server does not start again")
end

function Server:is_running() return not self.process:status() end

function Server:stop()
  if redis.on_stop and redis.running[self] then redis.on_stop(self) end
  redis.running[self] = nil
  self:_disconnect()
  self.process:stop()
  process.remove(self.directory)
end

-- Returns whether this is a connection of another server, or the spec's own.
local function is_own(line)
  line = line .. " " -- before Redis 6 the command's name comes last
  return line:find(" cmd=monitor ", 1, true) or line:find(" cmd=client|?%l* ")
    or line:find(" flags=[SM] ")
    or line:find(" name=sentinel-", 1, true)
end

-- Returns the keys as a sorted list, the channels with subscribers, and the number of connections,
-- not counting those of Sentinels, replicas, masters and monitors.
function Server:leaks(pattern)
  local keys = self:cli("KEYS", pattern or "*")
  table.sort(keys)
  local channels, clients = {}, 0
  for _, channel in ipairs(self:cli("PUBSUB", "CHANNELS", "*")) do
    if channel ~= "__sentinel__:hello" then channels[#channels + 1] = channel end
  end
  for line in self:cli("CLIENT", "LIST"):gmatch("[^\n]+") do
    if not is_own(line) then clients = clients + 1 end
  end
  return { keys = keys, channels = channels, clients = clients }
end

local Monitor = {}
Monitor.__index = Monitor

local ESCAPES = { n = "\n", r = "\r", t = "\t", a = "\a", b = "\b" }

local function unquote(text)
  return (text:gsub("\\(x?)(.)(%x?)", function(hex, char, digit)
    if hex == "x" then return string.char(tonumber(char .. digit, 16)) end
    return (ESCAPES[char] or char) .. digit
  end))
end

local function arguments_of(text)
  local list, at = {}, 1
  while true do
    local start = text:find('"', at, true)
    if not start then return list end
    local stop = start + 1
    while text:sub(stop, stop) ~= '"' do stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1) end
    list[#list + 1] = unquote(text:sub(start + 1, stop - 1))
    at = stop + 1
  end
end

local function parse_monitor(line)
  local time, source, rest = line:match("^(%d+%.%d+) %[%d+ (.-)%] (.*)$")
  return { time = tonumber(time), source = source, script = source == "lua",
    args = arguments_of(rest), line = line }
end

-- Watches all commands from now on. They are buffered until Monitor:commands reads them.
function Server:monitor()
  local connection = assert(self:_connect())
  assert(connection:call("MONITOR") == "OK")
  return setmetatable({ server = self, connection = connection, seen = {}, marks = 0 }, Monitor)
end

-- Returns everything that the server has executed so far: a list of { time, source, script, args,
-- line }, where `script` marks a call inside a script.
function Monitor:commands()
  self.marks = self.marks + 1
  local mark = ("monitor mark %s %d"):format(tostring(self), self.marks)
  self.server:cli("ECHO", mark)
  while true do
    local entry = parse_monitor(self.connection:receive())
    if entry.args[2] == mark then return self.seen end
    self.seen[#self.seen + 1] = entry
  end
end

-- Returns how many commands with this name clients have sent, without calls inside scripts.
function Monitor:count(name)
  local count = 0
  for _, entry in ipairs(self:commands()) do
    if not entry.script and entry.args[1]:upper() == name:upper() then count = count + 1 end
  end
  return count
end

function Monitor:close() self.connection:close() end

return redis
