-- Free cycles (acquire and release) in one coroutine of each event loop, against that loop's own
-- bare client, which sends the same two EVALSHA over its own socket; in alternating rounds on one
-- processor. Runs under LuaJIT, which has all loops.

local cycle = require "bench.cycle"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local CYCLES, ROUNDS, BAR = 1000, tonumber(os.getenv("HOLDFAST_ROUNDS") or 25), 0.6

if arg[1] == nil then
  assert(sys.pin(0, 0))
  for _, name in ipairs { "cqueues", "copas", "luv" } do
    local worker = process.start {
      "luajit", "bench/loops.lua", name,
      env = { LUA_PATH = process.lua_path, LUA_CPATH = process.build .. "/luajit/?.so;;",
        LUA_INIT = false },
    }
    assert(worker:wait(300) == "exit" and worker.code == 0, worker:output())
    io.write(worker:output())
  end
  return
end

-- ---- each loop: run(fn) in a coroutine; dial(path) → send(text), line() ----

local kinds = {}

function kinds.cqueues()
  local cqueues, socket = require "cqueues", require "cqueues.socket"
  local function run(fn)
    local loop = cqueues.new()
    loop:wrap(fn)
    assert(loop:loop())
  end
  local function dial(server)
    local connection = assert(socket.connect { path = server.path })
    connection:setmode("bn", "bn")
    return function(text) assert(connection:write(text)) end,
      function() return (assert(connection:read("*L")):gsub("\r\n$", "")) end
  end
  return run, dial
end

function kinds.copas()
  local copas = require "copas"
  local unix = require "socket.unix"
  local function run(fn)
    local over
    copas.addthread(function()
      fn()
      over = true
    end)
    while not over do copas.step(1) end
  end
  local function dial(server)
    local connection = assert(unix())
    assert(connection:connect(server.path))
    connection:settimeout(0)
    return function(text) assert(copas.send(connection, text)) end,
      function() return assert(copas.receive(connection)) end
  end
  return run, dial
end

function kinds.luv()
  local uv = require "luv"
  local function run(fn)
    coroutine.wrap(fn)()
    uv.run()
  end
  local function dial(server)
    local pipe, buffer, waiting = uv.new_pipe(false), "", nil
    local thread = coroutine.running()
    pipe:connect(server.path, function(wrong) assert(coroutine.resume(thread, wrong)) end)
    assert(not coroutine.yield())
    pipe:read_start(function(_, bytes)
      buffer = buffer .. (bytes or "")
      local waiter = waiting
      waiting = nil
      if waiter then assert(coroutine.resume(waiter)) end
    end)
    local function line()
      local text, rest = buffer:match("^(.-)\r\n(.*)$")
      if text then
        buffer = rest
        return text
      end
      waiting = coroutine.running()
      coroutine.yield()
      return line()
    end
    return function(text) pipe:write(text) end, line, function() pipe:close() end
  end
  return run, dial
end

local name = arg[1]
local run, dial = kinds[name]()
local server = redis.start()

local function encoded(args)
  local parts = { ("*%d\r\n"):format(#args) }
  for _, each in ipairs(args) do parts[#parts + 1] = ("$%d\r\n%s\r\n"):format(#each, each) end
  return table.concat(parts)
end

local function commands_of_a_cycle(lock)
  cycle.run(lock, 10)
  local sent = cycle.commands(server, function() cycle.run(lock, 1) end)
  return { encoded(sent[1]), encoded(sent[2]) }
end

local function bare_cycles(send, line, commands, count)
  for _ = 1, count do
    for i = 1, 2 do
      send(commands[i])
      local head = line()
      assert(head:byte() ~= 45, head)
      for _ = 1, head:byte() == 42 and tonumber(head:sub(2)) or 0 do
        if line():byte() == 36 then line() end
      end
    end
  end
end

local function time(fn, ...)
  local from = process.now()
  fn(...)
  return (process.now() - from) / CYCLES
end

local ours, bare, ratios = {}, {}, {}
run(function()
  local client = holdfast.new { url = server:url(), driver = name }
  local lock = client:lock("bench:loops")
  local commands = commands_of_a_cycle(lock)
  local send, line, close = dial(server)
  for i = 1, ROUNDS do
    ours[i] = time(cycle.run, lock, CYCLES)
    bare[i] = time(bare_cycles, send, line, commands, CYCLES)
    ratios[i] = bare[i] / ours[i]
  end
  if close then close() end
  client:close()
end)
report.row(name .. ", acquire + release, µs", report.median(ours) * 1e6, "%.1f")
report.row(name .. ", the same EVALSHA by its own socket, µs", report.median(bare) * 1e6, "%.1f")
report.row(name .. ", rate to that", report.median(ratios), "%.2f", ">=", BAR)
server:stop()
