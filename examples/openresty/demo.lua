-- Runs this directory's nginx.conf with a separate redis-server, sends bursts of requests with wrk,
-- and prints the results. It stops both servers at the end.

local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local STOCK = 100

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function wrk(front, path, ...)
  local command = { "wrk", "-t1", "-c100", "-d2",
    ("http://127.0.0.1:%d%s"):format(front.port, path) }
  for _, header in ipairs { ... } do
    command[#command + 1] = "-H"
    command[#command + 1] = header
  end
  local run = process.start(command)
  assert(run:wait(60) == "exit", run:output())
  return tonumber(run:output():match("(%d+) requests in")),
    tonumber(run:output():match("Non%-2xx[^:]*: (%d+)")) or 0
end

local function state(front, more)
  local counts = {}
  local text = front:get("/stock" .. (more or "")).body
  for name, value in text:gmatch('"(%w+)": (%d+)') do counts[name] = tonumber(value) end
  return counts
end

local function show(what, requests, refused, result)
  print(("%-28s %6d requests, %5d of them refused: %s"):format(what, requests, refused, result))
end

local server = redis.start()
local front = nginx.example("examples/openresty", { HOLDFAST_URL = server:url() })

state(front, "?set=" .. STOCK)
local requests, refused = wrk(front, "/sale")
show("flash sale of " .. STOCK, requests, refused,
  ("%d sold, %d left"):format(state(front).sold, state(front).stock))
requests, refused = wrk(front, "/orders/42/ship")
show("ship order 42", requests, refused, state(front).shipments .. " shipment")
requests, refused = wrk(front, "/pay", "Idempotency-Key: 7f3a", "Authorization: Bearer demo")
show("pay with one key", requests, refused, state(front).payments .. " payment")
requests, refused = wrk(front, "/report")
show("a report that takes 200 ms", requests, refused, state(front).reports .. " made")
local connections = server:leaks().clients
print(("two workers, 100 clients, %d connections to Redis"):format(connections))

local seen = state(front)
local log = read(front.directory .. "/error.log")
front:stop()
server:stop()
local once = seen.shipments == 1 and seen.payments == 1 and seen.reports == 1
local right = seen.sold == STOCK and seen.stock == 0 and once
  and connections <= 4 and not log:find("[error]", 1, true)
if not right then io.stderr:write(log) end
os.exit(right and 0 or 1, true)
