-- A copas server that handles each order for one connection at a time.
--
--   luajit examples/loops/copas.lua [PORT]
--
-- It handles the line "order 7" under the lock "order:7", and echoes any other line.

local copas = require "copas"
local holdfast = require "holdfast"
local socket = require "socket"

local locks = holdfast.new { driver = "copas" } -- connects to $HOLDFAST_URL

local count = 0

local function handle(order)
  count = count + 1
  return ("order %s is number %d"):format(order, count)
end

local function answer(line)
  local order = line:match("^order (%w+)$")
  if not order then return line end
  local done, message = locks:with_lock("order:" .. order, { wait = 5 }, function()
    return handle(order)
  end)
  return done or message
end

local listener = assert(socket.bind("127.0.0.1", tonumber(arg[1] or 8081)))

copas.addserver(listener, function(connection)
  local line = copas.receive(connection)
  while line do
    copas.send(connection, answer(line) .. "\n")
    line = copas.receive(connection)
  end
end)

print("listening on " .. select(2, listener:getsockname()))
io.stdout:flush()
copas.loop()
