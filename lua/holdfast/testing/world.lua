-- The environment of a test's clients: a clock, small servers, and connections without delay.
--
-- The clock moves only while a call waits, and when the test moves it: from one due event to the
-- next. Nothing sleeps or blocks, and no two things happen at once.

local core = require "holdfast.core"
local credentials = require "holdfast.credentials"
local Redis = require "holdfast.testing.redis"

local engine = core.engine

local EPOCH = 1700000000 -- seconds on the servers' clocks when world.now is 0
local AGE = 86400 -- seconds that a server has been up when a client first uses it
local STEP = 1e-6 -- seconds that a call takes, and by which the clock moves past a due event
local MAX_ROUNDS = 100000
local REFUSED, RESET = "connection refused", "connection reset by peer"

local world = { now = 1000 }

local servers -- "host:port", or "" for the one that single-server clients share -> a small Redis
-- the clients: { client, links, several, cut, frozen }. links: number -> connection; several:
-- whether the client has the option `servers`
local members
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

-- Acts as if each replica had all writes.
function replaced.wait(_, _, args) return tonumber(args[2]) end -- any locale: a whole number

local function server_of(member, link)
  local name = member.several and ("%s:%d"):format(engine.server(member.client, link)) or ""
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

local function open(member, link)
  local client = member.client
  engine.opening(client, link)
  if member.cut or failure == "unreachable" then return engine.closed(client, link, REFUSED) end
  local connection = { inbox = {} }
  member.links[link] = connection
  if failure == "silent" then return end
  connection.peer = server_of(member, link):connect(function(bytes)
    table.insert(connection.inbox, bytes)
  end, function() connection.ended = true end)
  engine.opened(client, link)
end

local function close(member, link, reason)
  local peer = member.links[link].peer
  member.links[link] = nil
  if peer then peer:close() end
  engine.closed(member.client, link, reason)
end

local function close_all(member)
  for link = 1, engine.links(member.client) do
    if member.links[link] then close(member, link, RESET) end
  end
end

-- Runs the server in the locale "C", since a real one does not use the program's locale.
local function feed(peer, bytes)
  local before = os.setlocale() -- any locale: it is asked for
  os.setlocale("C") -- any locale: it is this one
  local fed, reply = pcall(peer.feed, peer, bytes)
  os.setlocale(before) -- any locale: it is what it was
  return fed, reply
end

-- A command that the small Redis does not know raises an error, and is not resent.
local function send(member, link, connection, bytes)
  local fed, reply = feed(connection.peer, bytes)
  if fed then return table.insert(connection.inbox, reply) end
  close(member, link, RESET)
  error("holdfast.testing: " .. tostring(reply), 0) -- any locale: a text
end

-- → whether anything was sent or received
local function exchange(member, link, connection)
  local pieces = engine.output(member.client, link)
  if failure == "silent" then return pieces ~= nil end
  if pieces then send(member, link, connection, table.concat(pieces)) end
  local bytes = table.concat(connection.inbox)
  connection.inbox = {}
  if bytes ~= "" then engine.feed(member.client, link, bytes) end
  return pieces ~= nil or bytes ~= ""
end

local function always() return true end

-- → whether there was something to do
local function serve_link(member, link)
  local client, connection = member.client, member.links[link]
  local want = engine.wants(client, link)
  if want == "login" then
    credentials.log_in(client, link, always, engine.ask_login(client, link))
  elseif want == "open" then
    open(member, link)
  elseif connection and (want == "close" or connection.ended) then
    close(member, link, want == "close" and "closed" or nil)
  else
    return connection ~= nil and exchange(member, link, connection)
  end
  return true
end

local function serve(member)
  local client, busy = member.client, false
  if member.frozen then return false end
  if engine.deadline(client) < world.now then
    engine.tick(client)
    busy = true
  end
  for link = 1, engine.links(client) do busy = serve_link(member, link) or busy end
  return busy
end

-- Does everything that is due now.
local function settle()
  for _ = 1, MAX_ROUNDS do
    local busy = false
    for _, member in ipairs(members) do busy = serve(member) or busy end
    if not busy then return end
  end
  error("holdfast.testing: the clients do not come to rest", 0)
end

-- ---- time ----

local function run_timers()
  while timers[1] and timers[1].at <= world.now do
    local ran, message = coroutine.resume(coroutine.create(table.remove(timers, 1).fn))
    if not ran then error(message, 0) end
  end
end

local function move(now)
  world.now = now
  for _, member in ipairs(members) do engine.set_now(member.client, now) end
  run_timers()
  settle()
end

-- → when the next event is due, or math.huge
local function next_due()
  local at = timers[1] and timers[1].at or math.huge
  for _, member in ipairs(members) do
    if not member.frozen then at = math.min(at, engine.deadline(member.client)) end
  end
  return math.max(at, world.now)
end

-- Lets time pass until is_over() returns true, or `by`. → whether it is over
function world.run_until(is_over, by)
  move(world.now + STEP)
  while not is_over() do
    local at = next_due()
    if at == math.huge and by == at then return false end
    if at + STEP >= by then
      move(math.max(by, world.now))
      return is_over()
    end
    move(at + STEP)
  end
  return true
end

local function never() return false end

function world.advance(seconds)
  world.run_until(never, world.now + seconds)
end

-- Calls fn() in a new coroutine after this time.
function world.after(seconds, fn)
  local at, place = world.now + seconds, #timers + 1
  while timers[place - 1] and timers[place - 1].at > at do place = place - 1 end
  table.insert(timers, place, { at = at, fn = fn })
end

-- ---- what happens to clients and servers ----

function world.add(client, several)
  engine.set_now(client, world.now)
  table.insert(members, { client = client, links = {}, several = several })
end

local function place_of(client)
  for i, member in ipairs(members) do
    if member.client == client then return i end
  end
end

function world.remove(client)
  local place = place_of(client)
  if not place then return end
  close_all(members[place])
  table.remove(members, place)
end

-- Returns whether the process of this client is stopped.
function world.is_frozen(client)
  local place = place_of(client)
  return place ~= nil and members[place].frozen
end

-- Stops the process of this client for this time.
function world.freeze(client, seconds)
  local member = members[place_of(client)]
  member.frozen = true
  world.advance(seconds)
  member.frozen = false
end

-- Cuts the client off from its servers for this time.
function world.cut(client, seconds)
  local member = members[place_of(client)]
  member.cut = true
  close_all(member)
  world.advance(seconds)
  member.cut = false
end

-- `how`: "unreachable", "silent" or "denied"; nil ends the failure.
function world.fail(how)
  local breaks = how == "unreachable" or failure == "silent"
  failure = how
  set_faults()
  if not breaks then return end
  for _, member in ipairs(members) do close_all(member) end
end

-- Closes the clients and forgets the servers' data.
function world.reset()
  for _, member in ipairs(members or {}) do
    close_all(member)
    core.client.close(member.client, 0)
  end
  servers, members, timers, failure = {}, {}, {}, nil
end

world.reset()

return world
