-- The environment of a test's clients: a clock, small servers, and connections without delay.
--
-- The clock moves only while a call is waiting, and when the test moves it. It jumps from one due
-- event to the next. Nothing sleeps or blocks, and events happen one after the other.

local core = require "holdfast.core"
local credentials = require "holdfast.credentials"
local Redis = require "holdfast.testing.redis"

local engine = core.engine

local EPOCH = 1700000000 -- seconds on the servers' clocks when world.now is 0
local AGE = 86400 -- uptime in seconds that a server reports to its first client
local STEP = 1e-6 -- seconds that a call takes, and by which the clock passes a due event
local MAX_ROUNDS = 100000
local REFUSED, RESET = "connection refused", "connection reset by peer"

local world = { now = 1000 }

local servers -- "host:port", or "" for the server that all single-server clients share -> a small Redis
-- the clients: { client, links, has_servers, cut, frozen }. links: number -> connection;
-- has_servers: whether the client has the option `servers`
local clients
local timers -- a list of { at, fn }, earliest first
local failure -- the argument of testing.fail, or nil

-- ---- servers ----

local FAULTS = { denied = { deny = { eval = true, evalsha = true } } }

local function set_faults()
  for _, server in pairs(servers) do server.faults = FAULTS[failure] or { deny = {} } end
end

local replaced = {}

-- Accepts any login, because the one in the URL is for the real server.
function replaced.auth() return { ok = "OK" } end

-- Replies as if each replica had received all writes.
function replaced.wait(_, _, args) return tonumber(args[2]) end -- any locale: a whole number

local function server_of(entry, link)
  local name = entry.has_servers and ("%s:%d"):format(engine.server(entry.client, link)) or ""
  if not servers[name] then
    local server = Redis.new { now = function() return (EPOCH + world.now) * 1e6 end }
    server.started_us = server.now_us - AGE * 1e6
    server.replaced = replaced
    servers[name] = server
    set_faults()
  end
  return servers[name]
end

-- Deletes a key on all servers.
function world.delete(key)
  for _, server in pairs(servers) do
    for _, database in pairs(server.databases) do database:remove(key) end
  end
end

-- ---- connections ----

local function open(entry, link)
  local client = entry.client
  engine.opening(client, link)
  if entry.cut or failure == "unreachable" then return engine.closed(client, link, REFUSED) end
  local connection = { inbox = {} }
  entry.links[link] = connection
  if failure == "silent" then return end
  connection.peer = server_of(entry, link):connect(function(bytes)
    table.insert(connection.inbox, bytes)
  end, function() connection.ended = true end)
  engine.opened(client, link)
end

local function close(entry, link, reason)
  local peer = entry.links[link].peer
  entry.links[link] = nil
  if peer then peer:close() end
  engine.closed(entry.client, link, reason)
end

local function close_all(entry)
  for link = 1, engine.links(entry.client) do
    if entry.links[link] then close(entry, link, RESET) end
  end
end

-- Runs the server in the locale "C", since a real server does not use the program's locale.
local function feed(peer, bytes)
  local before = os.setlocale() -- any locale: only reads it
  os.setlocale("C") -- any locale: sets "C"
  local fed, reply = pcall(peer.feed, peer, bytes)
  os.setlocale(before) -- any locale: restores it
  return fed, reply
end

-- An option that the small Redis does not support raises an error. The command is not resent.
local function send(entry, link, connection, bytes)
  local fed, reply = feed(connection.peer, bytes)
  if fed then return table.insert(connection.inbox, reply) end
  close(entry, link, RESET)
  error("holdfast.testing: " .. tostring(reply), 0) -- any locale: an error's message
end

-- → whether anything was sent or received
local function exchange(entry, link, connection)
  local pieces = engine.output(entry.client, link)
  if failure == "silent" then return pieces ~= nil end
  if pieces then send(entry, link, connection, table.concat(pieces)) end
  local bytes = table.concat(connection.inbox)
  connection.inbox = {}
  if bytes ~= "" then engine.feed(entry.client, link, bytes) end
  return pieces ~= nil or bytes ~= ""
end

local function always() return true end

-- → whether it did anything
local function serve_link(entry, link)
  local client, connection = entry.client, entry.links[link]
  local action = engine.wants(client, link)
  if action == "login" then
    credentials.log_in(client, link, always, engine.ask_login(client, link))
  elseif action == "open" then
    open(entry, link)
  elseif connection and (action == "close" or connection.ended) then
    close(entry, link, action == "close" and "closed" or nil)
  else
    return connection ~= nil and exchange(entry, link, connection)
  end
  return true
end

local function serve(entry)
  local client, busy = entry.client, false
  if entry.frozen then return false end
  if engine.deadline(client) < world.now then
    engine.tick(client)
    busy = true
  end
  for link = 1, engine.links(client) do busy = serve_link(entry, link) or busy end
  return busy
end

-- Does everything that is due now.
local function settle()
  for _ = 1, MAX_ROUNDS do
    local busy = false
    for _, entry in ipairs(clients) do busy = serve(entry) or busy end
    if not busy then return end
  end
  error("holdfast.testing: the clients do not come to rest", 0)
end

-- ---- time ----

local function run_timers()
  while timers[1] and timers[1].at <= world.now do
    local succeeded, message = coroutine.resume(coroutine.create(table.remove(timers, 1).fn))
    if not succeeded then error(message, 0) end
  end
end

local function set_time(now)
  world.now = now
  for _, entry in ipairs(clients) do engine.set_now(entry.client, now) end
  run_timers()
  settle()
end

-- → when the next event is due, or math.huge
local function next_due()
  local due = timers[1] and timers[1].at or math.huge
  for _, entry in ipairs(clients) do
    if not entry.frozen then due = math.min(due, engine.deadline(entry.client)) end
  end
  return math.max(due, world.now)
end

-- Lets time pass until is_over() returns true, or `deadline`. → whether it is over
function world.run_until(is_over, deadline)
  set_time(world.now + STEP)
  while not is_over() do
    local due = next_due()
    if due == math.huge and deadline == due then return false end
    if due + STEP >= deadline then
      set_time(math.max(deadline, world.now))
      return is_over()
    end
    set_time(due + STEP)
  end
  return true
end

local function never() return false end

function world.advance(seconds)
  world.run_until(never, world.now + seconds)
end

-- Calls fn() in a new coroutine after this time.
function world.after(seconds, fn)
  local at, index = world.now + seconds, #timers + 1
  while timers[index - 1] and timers[index - 1].at > at do index = index - 1 end
  table.insert(timers, index, { at = at, fn = fn })
end

-- ---- clients and faults ----

function world.add(client, has_servers)
  engine.set_now(client, world.now)
  table.insert(clients, { client = client, links = {}, has_servers = has_servers })
end

local function index_of(client)
  for i, entry in ipairs(clients) do
    if entry.client == client then return i end
  end
end

function world.remove(client)
  local index = index_of(client)
  if not index then return end
  close_all(clients[index])
  table.remove(clients, index)
end

-- Returns whether the client's process is stopped.
function world.is_frozen(client)
  local index = index_of(client)
  return index ~= nil and clients[index].frozen
end

-- Stops the client's process for this time.
function world.freeze(client, seconds)
  local entry = clients[index_of(client)]
  entry.frozen = true
  world.advance(seconds)
  entry.frozen = false
end

-- Cuts the client off from its servers for this time.
function world.cut(client, seconds)
  local entry = clients[index_of(client)]
  entry.cut = true
  close_all(entry)
  world.advance(seconds)
  entry.cut = false
end

-- `how`: "unreachable", "silent" or "denied"; nil ends the failure.
function world.fail(how)
  local must_close = how == "unreachable" or failure == "silent"
  failure = how
  set_faults()
  if not must_close then return end
  for _, entry in ipairs(clients) do close_all(entry) end
end

-- Closes the clients and forgets the servers' data.
function world.reset()
  for _, entry in ipairs(clients or {}) do
    close_all(entry)
    core.client.close(entry.client, 0)
  end
  servers, clients, timers, failure = {}, {}, {}, nil
end

world.reset()

return world
