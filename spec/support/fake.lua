-- Servers that misbehave, each a process of its own.
--
-- fake.server{ reply = bytes [, close = true] [, login = true] [, info = text] }
--   replies to every command with these bytes, where <n> is how many commands the connection has
--   sent. With `close`, then closes the connection. With `login`, replies OK to the commands of a
--   log-in. With `info`, replies to INFO with that text, where <fd> is a number unique to each open
--   connection.
-- fake.proxy{ path = socket of a real server }
--   passes everything on. A key tells what goes wrong when it passes for the <m>th time:
--   cut<n>:<m>:...    the reply to the command ends after n bytes, and the connection with it
--   drop0:<m>:...     the command never arrives, and the connection ends
--   mute0:<m>:...     the command arrives, but its reply and all later ones on the connection are
--                     dropped
--   With `closes`, a connection that sends this word is closed.
--
-- Both have `url`, `port` and stop().

local process = require "spec.support.process"

local fake = {}

local PROGRAM = [[
local sys = require "spec.support.sys"
local mode, text, close, login = arg[1], arg[2], arg[3] == "true", arg[4] == "true"
local info, closes = arg[5], arg[6]
local listener, port = assert(sys.listen_tcp())
print("port " .. port .. " ") io.stdout:flush()

local LOGIN = { AUTH = true, SELECT = true, CLIENT = true, HELLO = true }
local connections, seen = {}, {}

local function shut(connection)
  sys.close(connection.fd)
  if connection.server then sys.close(connection.server) end
  connections[connection] = nil
end

local function answer(connection, bytes)
  for name in bytes:gmatch("%*%d+\r\n%$%d+\r\n(%a+)\r\n") do
    local good = login and LOGIN[name:upper()]
    local own = info and info:gsub("<fd>", tostring(connection.fd))
    local info_reply = own and name:upper() == "INFO" and ("$%d\r\n%s\r\n"):format(#own, own)
    connection.count = (connection.count or 0) + 1
    local reply = text:gsub("<n>", tostring(connection.count))
    sys.write(connection.fd, good and "+OK\r\n" or info_reply or reply, 1)
    if close and not (good or info_reply) then return shut(connection) end
  end
end

local FAULTS = { cut = true, drop = true, mute = true }

local function pass_on(connection, bytes)
  if closes and bytes:find(closes, 1, true) then return shut(connection) end
  local key, fault, count, time = bytes:match("((%a+)(%d+):(%d+):%a+)")
  if FAULTS[fault] then
    seen[key] = (seen[key] or 0) + 1
    if seen[key] == tonumber(time) then
      if fault == "drop" then return shut(connection) end
      connection.fault, connection.left = fault, tonumber(count)
    end
  end
  sys.write(connection.server, bytes, 1)
end

local function pass_back(connection, bytes)
  if connection.fault == "mute" then return end
  if connection.fault == "cut" then
    sys.write(connection.fd, bytes:sub(1, connection.left), 1)
    connection.left = connection.left - #bytes
    if connection.left <= 0 then shut(connection) end
    return
  end
  sys.write(connection.fd, bytes, 1)
end

while true do
  local fd = sys.accept(listener, next(connections) and 0 or 0.02)
  if fd then
    connections[{ fd = fd, server = mode == "proxy" and assert(sys.connect_unix(text)) or nil }] = true
  end
  local all = {}
  for connection in pairs(connections) do all[#all + 1] = connection end
  for _, connection in ipairs(all) do
    local bytes = sys.read(connection.fd, 0.001)
    if bytes == "" then
      shut(connection)
    elseif bytes then
      (mode == "proxy" and pass_on or answer)(connection, bytes)
    end
    if connection.server and connections[connection] then
      bytes = sys.read(connection.server, 0.001)
      if bytes == "" then shut(connection) elseif bytes then pass_back(connection, bytes) end
    end
  end
end
]]

local function start(...)
  local child = process.lua { code = PROGRAM, args = { ... } }
  local port = assert(child:wait_output("port (%d+) ", 20), child:output())
  return {
    port = tonumber(port),
    url = "redis://127.0.0.1:" .. port,
    stop = function() child:stop() end,
  }
end

function fake.server(options)
  return start("fake", options.reply, options.close and "true" or "false", options.login and "true"
    or "false",
    options.info)
end

function fake.proxy(options) return start("proxy", options.path, "", "", "", options.closes) end

return fake
