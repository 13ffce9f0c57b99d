-- Redis's own protocol (RESP 2) over LuaSocket, only the part that client.lua needs. Failures raise
-- an error.

local socket = require "socket"

local resp = {}

function resp.connect(url, timeout)
  local path = url:match("^unix://(/.*)$")
  local host, port = url:match("^redis://([^/:@]+):?(%d*)$")
  assert(path or host, "a URL is redis://host[:port] or unix:///path")
  local connection = path and require("socket.unix").stream() or socket.tcp()
  connection:settimeout(timeout)
  local done, problem = connection:connect(path or host, host and (tonumber(port) or 6379))
  if not done then
    connection:close()
    error(problem, 0)
  end
  if host then connection:setoption("tcp-nodelay", true) end
  return connection
end

function resp.send(connection, ...)
  local words = { ... }
  for i, word in ipairs(words) do words[i] = ("$%d\r\n%s\r\n"):format(#tostring(word), word) end
  assert(connection:send(("*%d\r\n%s"):format(#words, table.concat(words))))
end

-- → the reply, or nil and the server's error
function resp.receive(connection)
  local kind, rest = assert(connection:receive("*l")):match("^(.)(.*)$")
  if kind == "-" then return nil, rest end
  if kind == ":" then return tonumber(rest) end
  if kind == "+" then return rest end
  if rest == "-1" then return false end
  if kind == "$" then return assert(connection:receive(rest + 2)):sub(1, -3) end
  local list = {}
  for i = 1, tonumber(rest) do list[i] = resp.receive(connection) end
  return list
end

function resp.call(connection, ...)
  resp.send(connection, ...)
  return resp.receive(connection)
end

return resp
