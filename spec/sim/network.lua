-- Connections between processes and servers.
--
-- Bytes of one connection arrive in order, each way, after random times; those of different
-- connections may overtake each other. A link's next connection is made only after the end of its
-- last one was sent. A blocked direction holds bytes back until it heals; those of a connection
-- that its process has given up by then are gone, and the server learns of that late.
--
-- A connection may be forgotten (Connection:forget): what goes that way is lost, and neither side
-- is notified.
--
-- A proxy (process.late, fault stall_up) delivers what it has accepted: bytes of a connection that
-- was given up arrive after or between those of its successors.

local max = math.max

local Network = {}
Network.__index = Network

local Connection = {}
Connection.__index = Connection

-- servers: a list, see server.lua. network.leads: number of an address → the server there
function Network.new(world, servers)
  return setmetatable({ world = world, servers = servers, leads = servers }, Network)
end

function Network:server_count()
  return #self.servers
end

-- → until when nothing gets from the process to the connection's server
local function blocked_up(connection)
  return connection.process.up_blocked[connection.server.index] or 0
end

local function blocked_down(connection)
  return connection.process.down_blocked[connection.server.index] or 0
end

-- Queues what goes one way over a connection: bytes arrive in the order in which they were sent,
-- however they are delayed.
local function send_behind(way, run, argument)
  way.last = way.last + 1
  way[way.last] = { run = run, argument = argument }
end

local function is_empty(way)
  return way.first > way.last
end

local function take_first(way)
  local item = way[way.first]
  way[way.first] = nil
  way.first = way.first + 1
  return item
end

local function latency_of(connection)
  return connection.process:latency() + connection.server.distance
end

-- ---- client to server ----

local up_arrives

local function hold_back(connection, until_time)
  connection.up_at = max(connection.up_at, until_time + 1)
  connection.world:at(until_time + 1, up_arrives, connection)
end

local function finish(connection)
  if connection.peer then connection.peer:close() end
end

-- Returns until when a server may believe that a process that is gone is still subscribed.
local function received_until(process, at)
  process.received_until = max(process.received_until or 0, at)
end

function up_arrives(connection)
  local blocked, now = blocked_up(connection), connection.world.now
  if connection.up_lost or is_empty(connection.up_way) then return end
  if connection.up_stalled_until > now then
    return hold_back(connection, connection.up_stalled_until)
  end
  if connection.up_forgotten and not connection.given_up then
    return take_first(connection.up_way)
  end
  if connection.given_up
      and (blocked > now or connection.up_was_blocked or connection.up_forgotten) then
    if take_first(connection.up_way).run == finish then
      local at = max(blocked, now) + connection.process.half_open
      received_until(connection.process, at)
      connection.world:at(at, finish, connection)
    end
    return
  end
  connection.up_was_blocked = blocked > now
  if blocked > now then return hold_back(connection, blocked) end
  local server = connection.server
  if server.paused_until > now then return hold_back(connection, server.paused_until) end
  local item = take_first(connection.up_way)
  if server.gather > 0 then return server:gather_in(connection, item) end
  item.run(connection, item.argument)
end

function Connection:up(run, argument)
  local at = max(self.up_at, self.world.now + latency_of(self))
  self.up_at = at
  send_behind(self.up_way, run, argument)
  self.world:at(at, up_arrives, self)
end

-- ---- server to client ----

local function down_arrives(connection)
  local process, now = connection.process, connection.world.now
  if process.dead or connection.given_up or connection.down_lost or connection.down_forgotten
      or is_empty(connection.down_way) then
    return
  end
  local free = max(blocked_down(connection), process.paused_until, connection.stalled_until)
  if free > now then
    connection.down_at = max(connection.down_at, free + 1)
    connection.world:at(free + 1, down_arrives, connection)
    return
  end
  local item = take_first(connection.down_way)
  item.run(connection, item.argument)
end

function Connection:down(run, argument)
  local at = max(self.down_at, self.world.now + latency_of(self))
  self.down_at = at
  send_behind(self.down_way, run, argument)
  self.world:at(at, down_arrives, self)
end

local function feed(connection, bytes)
  connection.process:fed(connection, bytes)
end

-- The server sends bytes, sometimes in pieces.
function Connection:reply(bytes)
  local prng = self.process.prng
  while #bytes > 1 and prng:chance(self.process.cuts) do
    local cut = prng:range(1, #bytes - 1)
    self:down(feed, bytes:sub(1, cut))
    bytes = bytes:sub(cut + 1)
  end
  self:down(feed, bytes)
end

local function closed(connection, reason)
  connection.process:lost(connection, reason)
end

-- Delivers the bytes that were held back.
function Connection:go_on()
  local now = self.world.now
  self.stalled_until, self.up_stalled_until, self.up_at, self.down_at = 0, 0, now, now
  for _ = self.up_way.first, self.up_way.last do self.world:at(now, up_arrives, self) end
  for _ = self.down_way.first, self.down_way.last do self.world:at(now, down_arrives, self) end
end

-- ---- the life of a connection ----

local function established(connection)
  connection.is_up = true
  connection.process:connected(connection)
end

local function accept(connection)
  local world, server = connection.world, connection.server
  if world.now < server.down_until then return connection:down(closed, "connection refused") end
  connection.peer = server.redis:connect(function(bytes) connection:reply(bytes) end,
    function() connection:down(closed, "the server closed the connection") end)
  connection.peer.process = connection.process
  connection:down(established)
end

local function data(connection, segment)
  local peer = connection.peer
  if not peer or peer.closed then return end
  peer.sent_at = segment.sent_at
  local bytes = peer:feed(segment.bytes)
  if bytes == "" then return end
  if connection.process.loses_reply == connection.link then
    connection.process.loses_reply = nil
    return connection:drop(0)
  end
  connection:reply(bytes)
end

-- host: "sim" with one server, else a letter and the number of its address
function Network:connect(process, link, host)
  local address = tonumber(host:match("^%a(%d+)$")) or 1
  local connection = setmetatable({
    world = self.world, server = self.leads[address], address = address,
    process = process, link = link,
    up_at = process.up_at[link] or 0, down_at = 0, stalled_until = 0,
    up_stalled_until = 0, up_way = { first = 1, last = 0 },
    down_way = { first = 1, last = 0 },
  }, Connection)
  connection:up(accept)
  return connection
end

function Connection:send(bytes)
  self:up(data, { bytes = bytes, sent_at = self.world.now })
end

-- The connection was given up: its successor's bytes come after its own, unless a proxy holds
-- these.
local function pass_turn(self)
  local process, now = self.process, self.world.now
  if process.late > 0 then
    self.up_stalled_until = max(self.up_stalled_until, now + process.prng:range(0, process.late))
  end
  process.up_at[self.link] = self.up_stalled_until > now and 0 or self.up_at
end

-- The process gives it up.
function Connection:reset()
  self.given_up = true
  pass_turn(self)
  self:up(finish)
end

-- The process is gone; the server notices after `delay`.
function Connection:orphan(delay)
  self.given_up = true
  received_until(self.process, self.world.now + delay)
  self.world:at(self.world.now + delay, finish, self)
end

-- way: "up", "down" or "both"
function Connection:forget(way)
  if not self.is_up then return end -- the network would send the first packets again
  self.up_forgotten = self.up_forgotten or way ~= "down"
  self.down_forgotten = self.down_forgotten or way ~= "up"
end

local function dropped(connection)
  if connection.given_up then return end
  connection.down_lost, connection.down_way = false, { first = 1, last = 0 }
  send_behind(connection.down_way, closed, "connection reset by peer")
  down_arrives(connection)
end

-- Something between the two sides ends the connection: bytes under way may be lost, and the server
-- may notice much later.
function Connection:drop(delay)
  local process = self.process
  self.down_lost, self.up_lost = true, process.prng:chance(50)
  pass_turn(self)
  self.world:at(self.world.now + process:latency(), dropped, self)
  local at = max(self.up_at, self.up_stalled_until + 2, self.world.now + delay)
  received_until(process, at)
  self.world:at(at, finish, self)
end

-- Events of a connection, exported to name them in an order of events (spec/explore/order.lua).
Network.up_arrives, Network.down_arrives = up_arrives, down_arrives
Network.finish, Network.dropped = finish, dropped

return Network
