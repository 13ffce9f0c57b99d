-- A client of the core whose sockets and clock belong to the test: the server is real, and the test
-- sets the client's time. The client does something only in a call of this module.
--
--   local one = driven.client(server [, fields of core.client.new])
--   one:lock(key, { fields of core.lock.new })   by default no wait, a lease of 30 s and no tokens
--   one:call(lock, kind, number, record)         returns the results of the operation
--   one.now = one.now + 5                        sets the time of the next call
--   one:close()                                  ends the connections; locks remain held
--
-- For a file of specs, setup(driven.begin) teardown(driven.finish) start one server, and
-- before_each(driven.open) after_each(driven.close) end the clients that driven.new has made.

local core = require "holdfast.core"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local stand_in = require "spec.support.stand_in"
local sys = require "spec.support.sys"

local engine = core.engine

local Driven = {}
Driven.__index = Driven

local driven = {}

function driven.client(server, fields)
  local given = {
    url = server and server:url(), connect_timeout = 1, command_timeout = 3, grant_lease = 2,
    external = true,
  }
  for name, value in pairs(fields or {}) do given[name] = value end
  local self = setmetatable({ server = server, now = 1000, fds = {}, done = {}, sent = {} }, Driven)
  self.client = assert(core.client.new(given))
  engine.set_now(self.client, self.now)
  return self
end

function Driven:lock(key, fields)
  local given = {
    client = self.client, key = key, lease = 30, wait = 0, token_ttl = 0, renewed = true,
  }
  for name, value in pairs(fields or {}) do given[name] = value end
  return core.lock.new(self.client, given)
end

local function connect(self, link)
  local host, port = engine.server(self.client, link)
  engine.opening(self.client, link)
  local fd, message
  if port > 0 then fd, message = sys.connect_tcp(port) else fd, message = sys.connect_unix(host) end
  if not fd then return engine.closed(self.client, link, message) end
  self.fds[link] = fd
  engine.opened(self.client, link)
end

function Driven:disconnect(link, reason)
  sys.close(self.fds[link])
  self.fds[link] = nil
  engine.closed(self.client, link, reason)
end

local function write(self, link)
  local bytes = table.concat(engine.output(self.client, link))
  self.sent[#self.sent + 1] = bytes
  sys.write(self.fds[link], bytes, 5)
end

local ACT = { open = connect, close = Driven.disconnect, write = write }

-- Does what is due until there is nothing left to open, close or write.
function Driven:act()
  local actions, again = {}, true
  engine.set_now(self.client, self.now)
  while again do
    again = false
    local links = engine.advance(self.client, self.done, actions)
    for link = 1, links do
      if actions[link] then
        ACT[actions[link]](self, link)
        again = true
      end
    end
  end
end

-- Reads what arrives within `patience` seconds. → whether anything has arrived
function Driven:read(patience)
  local some = false
  for link, fd in pairs(self.fds) do
    local bytes = sys.read(fd, patience)
    if bytes == "" then
      self:disconnect(link)
    elseif bytes then
      engine.feed(self.client, link, bytes)
    end
    some = some or bytes ~= nil
  end
  return some
end

-- Serves the client until the condition is met.
function Driven:wait_until(cond)
  assert(process.wait_until(function()
    self:act()
    if cond() then return true end
    self:read(0.0005)
    return false
  end, 5), "it did not come about")
end

-- Lets time pass: does what is due, and everything that follows from it. Three commands of the test
-- make sure that the server has accepted, read and answered what the client sent before.
function Driven:pass(seconds)
  self.now = self.now + seconds
  repeat
    self:act()
    for _ = 1, 3 do self.server:cli("PING") end
  until not self:read(0)
end

-- Lets time pass without serving the client, and ends what is overdue then.
function Driven:jump(seconds)
  self.now = self.now + seconds
  engine.set_now(self.client, self.now)
  engine.tick(self.client)
end

-- Ends all connections.
function Driven:cut(reason)
  for link in pairs(self.fds) do self:disconnect(link, reason or "cut") end
end

-- Serves the client until no operation is in progress and nothing is left to undo. `pace`: seconds
-- that pass in each round; default 0.
function Driven:settle(pace)
  self:wait_until(function()
    self.now = self.now + (pace or 0)
    local operations, _, to_do = engine.load(self.client)
    return operations + to_do == 0 and engine.is_quiet(self.client)
  end)
end

-- Begins an operation, which the test finishes. `record`: the operation's argument.
function Driven:begin(lock, kind, number, record, again)
  engine.set_now(self.client, self.now)
  return core.lock.begin(lock, kind, number or 0, record, again)
end

function Driven:finish(op)
  self:wait_until(function() return core.operation.is_done(op) end)
  return core.operation.finish(op)
end

function Driven:call(lock, kind, number, record)
  return self:finish((self:begin(lock, kind, number, record)))
end

function Driven:call_all(locks, kind)
  engine.set_now(self.client, self.now)
  return self:finish((core.lock.begin_all(locks, kind)))
end

-- Returns the words of all commands sent since the last call of this function.
function Driven:commands()
  local list = {}
  for _, bytes in ipairs(self.sent) do
    local at = 1
    while at <= #bytes do
      local count, after = bytes:match("^%*(%d+)\r\n()", at)
      local words = {}
      for i = 1, tonumber(count) do
        local size, from = bytes:match("^%$(%d+)\r\n()", after)
        words[i] = bytes:sub(from, from + size - 1)
        after = from + size + 2
      end
      list[#list + 1] = words
      at = after
    end
  end
  self.sent = {}
  return list
end

function Driven:close() for link in pairs(self.fds) do self:disconnect(link) end end

-- ---- for files of specs ----

driven.MARGIN = 0.302 -- of a lease of 30 s: a hundredth and 2 ms

local server, ones, handles

-- Stands for the server, which does not exist before setup.
driven.server = stand_in(function() return server end)

function driven.begin() server = redis.start() end
function driven.finish() server:stop() end
function driven.open() ones, handles = {}, {} end

function driven.close()
  for _, one in ipairs(ones) do one:close() end
  server:cli("FLUSHALL")
end

function driven.new(fields)
  local one = driven.client(server, fields)
  ones[#ones + 1] = one
  return one
end

-- Acquires the lock. Keeps the handle until the test ends, as a handle that is collected sends a
-- release.
function driven.hold(one, lock)
  handles[#handles + 1] = lock
  return one:call(lock, "acquire")
end

function driven.near(expected, number)
  assert(math.abs(expected - number) < 1e-6, ("%s is not %s"):format(tostring(number), expected))
end

function driven.collect() collectgarbage() collectgarbage() end

-- Waits until so many callers of other clients are in the key's queue.
function driven.comes_to_wait(one, count, key)
  one:wait_until(function()
    return server:cli("ZCOUNT", "holdfast_queue:{" .. key .. "}", "(0", "+inf") == count
  end)
end

return driven
