-- A lua-http server that handles each order for one request at a time.
--
--   luajit examples/loops/lua_http.lua [PORT]
--
-- GET /order/7 takes 0.2 s under the lock "order:7"; every other path answers at once.

local cqueues = require "cqueues"
local headers = require "http.headers"
local holdfast = require "holdfast"
local server = require "http.server"

local locks = holdfast.new { driver = "cqueues" } -- connects to $HOLDFAST_URL

local function ship(order)
  cqueues.sleep(0.2)
  return "shipped " .. order .. "\n"
end

local function answer(path)
  local order = path:match("^/order/(%w+)$")
  if not order then return "200", "hello\n" end
  local done, message, code = locks:with_lock("order:" .. order, { wait = 5 }, function()
    return ship(order)
  end)
  if done then return "200", done end
  return code == "busy" and "409" or "503", message .. "\n"
end

local http = assert(server.listen {
  host = "127.0.0.1",
  port = tonumber(arg[1] or 8080),
  onstream = function(_, stream)
    local status, body = answer(stream:get_headers():get(":path"))
    local response = headers.new()
    response:append(":status", status)
    stream:write_headers(response, false)
    stream:write_chunk(body, true)
  end,
  onerror = function(_, _, what, message) io.stderr:write(what, ": ", tostring(message), "\n") end,
})

assert(http:listen())
print("listening on " .. select(3, http:localname()))
io.stdout:flush()
assert(http:loop())
