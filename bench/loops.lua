-- Free cycles (acquire and release) in each event loop, in alternating rounds on one processor:
--
-- * in one coroutine, against that loop's own bare client, which sends the same two EVALSHA over
--   its own socket;
-- * in 64 coroutines, each with a key of its own, against a bare loop in C with 64 connections,
--   which uses SET NX and a script that compares and deletes.
--
-- Runs under LuaJIT, which has all loops, and for luv under Lua 5.4 as well.

local bare = require "bench.bare"
local cycle = require "bench.cycle"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local CYCLES, ROUNDS, BAR = 1000, tonumber(os.getenv("HOLDFAST_ROUNDS") or 25), 0.6
local TASKS, CYCLES_EACH, WARM_UP = 64, 100, 10

if arg[1] == nil then
  assert(sys.pin(0, 0))
  local function measure(lua, name)
    local worker = process.start {
      lua, "bench/loops.lua", name,
      env = { LUA_PATH = process.lua_path, LUA_CPATH = ("%s/%s/?.so;;"):format(process.build, lua),
        LUA_INIT = false },
    }
    assert(worker:wait(300) == "exit" and worker.code == 0, worker:output())
    io.write(worker:output())
  end
  for _, name in ipairs { "cqueues", "copas", "luv" } do measure("luajit", name) end
  measure("lua5.4", "luv")
  return
end

-- ---- each loop: run(fns) in coroutines; dial(path) → send(text), line() ----

local kinds = {}

function kinds.cqueues()
  local cqueues, socket = require "cqueues", require "cqueues.socket"
  local function run(fns)
    local loop = cqueues.new()
    for _, fn in ipairs(fns) do loop:wrap(fn) end
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
  local function run(fns)
    local left = #fns
    for _, fn in ipairs(fns) do
      copas.addthread(function()
        fn()
        left = left - 1
      end)
    end
    while left > 0 do copas.step(1) end
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
  local function run(fns)
    for _, fn in ipairs(fns) do coroutine.wrap(fn)() end
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

local ours, theirs, ratios = {}, {}, {}
run { function()
  local client = holdfast.new { url = server:url(), driver = name }
  local lock = client:lock("bench:loops")
  local commands = commands_of_a_cycle(lock)
  local send, line, close = dial(server)
  for i = 1, ROUNDS do
    ours[i] = time(cycle.run, lock, CYCLES)
    theirs[i] = time(bare_cycles, send, line, commands, CYCLES)
    ratios[i] = theirs[i] / ours[i]
  end
  if close then close() end
  client:close()
end }
local title = name .. (rawget(_G, "jit") and "" or ", Lua 5.4")
report.row(title .. ", acquire + release, µs", report.median(ours) * 1e6, "%.1f")
report.row(title .. ", the same EVALSHA by its own socket, µs", report.median(theirs) * 1e6, "%.1f")
report.row(title .. ", rate to that", report.median(ratios), "%.2f", ">=", BAR)

-- ---- many tasks ----

-- → seconds for each cycle
local function tasks_round()
  local client = holdfast.new { url = server:url(), driver = name }
  local fns, warm, left, from, till = {}, 0, TASKS, nil, nil
  for i = 1, TASKS do
    fns[i] = function()
      local lock = client:lock("bench:task:" .. i)
      cycle.run(lock, WARM_UP)
      warm = warm + 1
      if warm == TASKS then from = process.now() end
      cycle.run(lock, CYCLES_EACH)
      left = left - 1
      if left == 0 then till = process.now() end
    end
  end
  run(fns)
  client:close()
  return (till - from) / (TASKS * CYCLES_EACH)
end

local path = bare.write(server.directory .. "/commands", bare.set_nx(server, "bench:bare:##########"))

local function bare_round()
  local child = process.start { "build/bench/baseline", "unix:" .. server.path,
    tostring(TASKS * CYCLES_EACH), path, tostring(TASKS) }
  assert(child:wait(60) == "exit" and child.code == 0, child:output())
  return tonumber(child:output())
end

for i = 1, ROUNDS do
  ours[i], theirs[i] = tasks_round(), bare_round()
  ratios[i] = ours[i] / theirs[i]
end
title = ("%s, %d tasks"):format(title, TASKS)
report.row(title .. ", acquire + release, µs", report.median(ours) * 1e6, "%.1f")
report.row(title .. ", SET NX in C by as many connections, µs", report.median(theirs) * 1e6, "%.1f")
report.row(title .. ", time to that", report.median(ratios), "%.2f")
server:stop()
