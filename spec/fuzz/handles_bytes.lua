-- The connections of one run of handles.lua, and the bytes on them, which faults cut, delay and
-- lose.
--
-- A connection: { peer = the server's side, sent = bytes for the server, inbox = a list of bytes
-- for the client, wire = the check of what the client sends, ended = whether the server has closed
-- it }

local core = require "holdfast.core"
local Wire = require "spec.fuzz.handles_wire"

local engine = core.engine

local LINKS = 3 -- of a client to each server
local MAX_ROUNDS = 200

local bytes = {}

local function server_of(link) return math.ceil(link / LINKS) end

local function open(world, member, link, faulty)
  engine.opening(member.client, link)
  if world.refusing[server_of(link)] or faulty and world.prng:chance(10) then
    return engine.closed(member.client, link, "connection refused")
  end
  local connection = { sent = "", inbox = {}, wire = Wire.new() }
  connection.peer = world.servers[server_of(link)]:connect(function(message)
    table.insert(connection.inbox, message)
  end, function() connection.ended = true end)
  member.connections[link] = connection
  world:call(engine.opened, member.client, link)
end

-- Ends the connection, and loses the bytes that are on their way.
function bytes.drop(self, member, link)
  local connection = member.connections[link]
  if not connection then return end
  connection.peer:close()
  member.connections[link] = nil
  self:call(engine.closed, member.client, link)
end

-- → the bytes that arrive now, those that arrive later
local function cut(world, text, faulty)
  if text == "" or not faulty or world.prng:chance(50) then return text, "" end
  local at = world.prng:range(0, #text)
  return text:sub(1, at), text:sub(at + 1)
end

-- Takes what the client sends, into the connection.
local function take_output(world, member, link, connection)
  local pieces = world:call(engine.output, member.client, link)
  if not pieces then return false end
  local text = table.concat(pieces)
  local wrong = connection.wire:feed(text)
  if wrong then world:note("bytes", "client %d, link %d: %s", member.n, link, wrong) end
  connection.sent = connection.sent .. text
  return true
end

local function deliver_to_server(world, connection, faulty)
  local text
  text, connection.sent = cut(world, connection.sent, faulty)
  if text == "" then return false end
  table.insert(connection.inbox, (connection.peer:feed(text)))
  return true
end

local function deliver_to_client(world, member, link, connection, faulty)
  local text, later = cut(world, table.concat(connection.inbox), faulty)
  connection.inbox = { later }
  if text == "" then return false end
  world:call(engine.feed, member.client, link, text)
  return true
end

local function exchange(world, member, link, connection, faulty)
  local busy = take_output(world, member, link, connection)
  if member.frozen[link] or world.slow[server_of(link)] then return busy end
  busy = deliver_to_server(world, connection, faulty) or busy
  if faulty and world.prng:chance(30) then return busy end
  return deliver_to_client(world, member, link, connection, faulty) or busy
end

local function serve_link(world, member, link, faulty)
  local want, connection = engine.wants(member.client, link), member.connections[link]
  if want == "open" then
    open(world, member, link, faulty)
  elseif connection and (want == "close" or connection.ended) then
    bytes.drop(world, member, link)
  else
    return connection ~= nil and exchange(world, member, link, connection, faulty)
  end
  return true
end

local function serve_once(world, member, faulty)
  local busy = false
  if engine.deadline(member.client) <= world.now then world:call(engine.tick, member.client) end
  for link = 1, engine.links(member.client) do
    busy = serve_link(world, member, link, faulty) or busy
  end
  return busy
end

-- Does what is due for a client: one round in which anything may go wrong, or all of it.
function bytes.serve(self, member, faulty)
  for _ = 1, faulty and 1 or MAX_ROUNDS do
    if not serve_once(self, member, faulty) then return end
  end
  if not faulty then self:note("end", "client %d does not come to rest", member.n) end
end

return bytes
