-- A blocking Redis connection for the specs, which shares no code with what it tests. Replies are
-- strings, numbers, lists, or false for nil; an error reply is { err = text }. A broken or silent
-- connection raises an error.

local sys = require "spec.support.sys"

local Connection = {}
Connection.__index = Connection

local TIMEOUT = 30
local ETIMEDOUT = 110

local function encode(arguments)
  local parts = { ("*%d\r\n"):format(#arguments) }
  for i, argument in ipairs(arguments) do
    local text = tostring(argument)
    parts[i + 1] = ("$%d\r\n"):format(#text) .. text .. "\r\n"
  end
  return table.concat(parts)
end

function Connection:_fill(timeout)
  local bytes, message = sys.read(self.fd, timeout)
  if not bytes then return nil, message end
  if bytes == "" then return nil, "connection closed" end
  self.buffer = self.buffer .. bytes
  return true
end

function Connection:_need(timeout)
  local ok, message = self:_fill(timeout or TIMEOUT)
  if not ok then error("redis connection: " .. message, 0) end
end

function Connection:_line(timeout)
  local stop = self.buffer:find("\r\n", 1, true)
  while not stop do
    self:_need(timeout)
    stop = self.buffer:find("\r\n", 1, true)
  end
  local line = self.buffer:sub(1, stop - 1)
  self.buffer = self.buffer:sub(stop + 2)
  return line
end

function Connection:_bytes(count)
  while #self.buffer < count + 2 do self:_need() end
  local bytes = self.buffer:sub(1, count)
  self.buffer = self.buffer:sub(count + 3)
  return bytes
end

-- Returns the next reply or message; raises if none arrives in time.
function Connection:receive(timeout)
  local line = self:_line(timeout)
  local kind, rest = line:sub(1, 1), line:sub(2)
  if kind == "+" then return rest end
  if kind == "-" then return { err = rest } end
  if kind == ":" then return math.tointeger and math.tointeger(tonumber(rest)) or tonumber(rest) end
  local count = assert(tonumber(rest), "redis connection: not RESP: " .. line)
  if count < 0 then return false end
  if kind == "$" then return self:_bytes(count) end
  local list = {}
  for i = 1, count do list[i] = self:receive() end
  return list
end

-- Returns the next message, or nil if none arrives within `timeout`.
function Connection:poll(timeout)
  if self.buffer == "" and not self:_fill(timeout) then return nil end
  return self:receive()
end

function Connection:send(...)
  local arguments = type((...)) == "table" and (...) or { ... }
  local ok, message = sys.write(self.fd, encode(arguments), TIMEOUT)
  if not ok then error("redis connection: " .. message, 0) end
end

-- call("GET", key) or call{ "GET", key }
function Connection:call(...)
  self:send(...)
  return self:receive()
end

-- Returns whether the server is known to have closed the connection.
function Connection:is_closed()
  local bytes, _, code = sys.read(self.fd, 0)
  self.buffer = self.buffer .. (bytes or "")
  return bytes == "" or (not bytes and code ~= ETIMEDOUT)
end

function Connection:close()
  if self.fd then sys.close(self.fd) end
  self.fd = nil
end

local resp = {}

-- `target`: { path = } or { port = }, with user and password if the server requires them.
-- → connection | nil, message
function resp.connect(target)
  local fd, message
  if target.path then
    fd, message = sys.connect_unix(target.path)
  else
    fd, message = sys.connect_tcp(target.port)
  end
  if not fd then return nil, message end
  local connection = setmetatable({ fd = fd, buffer = "" }, Connection)
  if target.password then
    local reply = connection:call("AUTH", target.user or "default", target.password)
    if type(reply) == "table" then
      connection:close()
      return nil, reply.err
    end
  end
  return connection
end

return resp
