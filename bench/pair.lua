-- Compares two builds of holdfast in one run: how many turns the second one has for each turn of
-- the first one, and how much of the server's processor a turn takes.
--
--   lua5.4 bench/pair.lua OLD NEW     trees of the sources in which `make CHECKED=` has run
--
-- Everything shares one processor. The builds take rounds in turn, on one server; each row shows
-- the median of the rounds' ratios and, after it, the quartiles. $HOLDFAST_BENCH_ROUNDS rounds,
-- $HOLDFAST_BENCH_SECONDS each, of the parts that are named in $HOLDFAST_BENCH_PARTS.

local cost = require "bench.cost"
local counted = require "bench.counted"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local ROUNDS = tonumber(os.getenv("HOLDFAST_BENCH_ROUNDS") or 41)
local SECONDS = tonumber(os.getenv("HOLDFAST_BENCH_SECONDS") or 0.5)
local unpack = table.unpack or unpack
local START, START_EACH = 0.3, 0.02 -- seconds until all workers are connected, and per worker
local INTERPRETER = sys.interpreter()
local LUA = INTERPRETER:match("[^/]+$")

-- Name, kind of bench/kind_worker.lua, workers, whether each has its own lock. tcp: over TCP
-- instead of a unix socket. nginx: the light threads of one request to one nginx, each with its own
-- lock, instead of the workers.
local PARTS = {
  { "free", "lock", 1 },
  { "tcp", "lock", 1, tcp = true },
  { "server", "lock", 32, true },
  { "refused", "refused", 1 },
  { "two", "lock", 2 },
  { "handoff", "lock", 8 },
  { "crowd", "lock", 32 },
  { "many", "lock", 128 },
  { "readers", "read", 4 },
  { "permits", "permit", 12 },
  { "nginx", nginx = 1 },
  { "threads", nginx = 64 },
}

local trees = { arg[1], arg[2] }
if #trees ~= 2 then
  io.stderr:write("usage: lua5.4 bench/pair.lua OLD NEW\n")
  os.exit(2)
end

-- → the turns of all workers of one build, and the server's processor time for each turn
local function round(server, tree, part)
  local _, kind, workers, apart = unpack(part)
  local start, started, turns = process.now() + START + START_EACH * workers, {}, 0
  for i = 1, workers do
    started[i] = process.start {
      INTERPRETER, "bench/kind_worker.lua", part.tcp and server:tcp_url() or server:url(),
      ("%.6f"):format(start), ("%.6f"):format(start + SECONDS),
      kind, "bench:" .. kind .. (apart and i or ""),
      env = {
        LUA_PATH = ("%s/lua/?.lua;%s/lua/?/init.lua;./?.lua;;"):format(tree, tree),
        LUA_CPATH = ("%s/build/%s/?.so;%s;;"):format(tree, LUA, process.lua_cpath),
      },
    }
  end
  process.sleep(start - process.now())
  local before = cost.processor(server)
  process.sleep(start + SECONDS - process.now())
  local used = cost.processor(server) - before
  for _, worker in ipairs(started) do
    assert(worker:wait(60))
    turns = turns + assert(tonumber(worker:output():match("%d+")), worker:output())
  end
  return { turns = turns, cost = used / turns }
end

-- Measures the same for one nginx, whose request takes free locks.
local function nginx_round(server, tree, part)
  local front = nginx.start {
    package_path = ("%s/lua/?.lua;%s/lua/?/init.lua;/usr/share/lua/5.1/?.lua;;"):format(tree, tree),
    package_cpath = tree .. "/build/luajit/?.so;;",
    http = ("init_by_lua_block { CLIENT = require('holdfast').new('%s') }"):format(server:url()),
    server = ([[location /turns { content_by_lua_block {
      local turns, ends, threads = 0, math.huge, {}
      local function cycle(lock)
        assert(lock:acquire(60)) assert(lock:release()) ngx.update_time() turns = turns + 1
      end
      local function work(i)
        local lock = CLIENT:lock("bench:nginx" .. i)
        while ngx.now() < ends do cycle(lock) end
      end
      cycle(CLIENT:lock("bench:nginx"))
      turns, ends = 0, ngx.now() + %g
      for i = 1, %d do threads[i] = ngx.thread.spawn(work, i) end
      for i = 1, %d do assert(ngx.thread.wait(threads[i])) end
      ngx.print(turns)
    } }]]):format(SECONDS, part.nginx, part.nginx),
  }
  local before = cost.processor(server)
  local turns = assert(tonumber((front:get("/turns").body:match("%d+"))))
  local used = cost.processor(server) - before
  front:stop()
  return { turns = turns, cost = used / turns }
end

local function at(sorted, share) return sorted[math.max(1, math.ceil(#sorted * share))] end

-- → the ratios of a figure in the new rounds to the old ones, in ascending order
local function ratios(old, new, figure)
  local list = {}
  for i = 1, ROUNDS do list[i] = new[i][figure] / old[i][figure] end
  table.sort(list)
  return list
end

local function compare(server, part)
  local old, new, run = {}, {}, part.nginx and nginx_round or round
  for i = 1, ROUNDS do
    if i % 2 == 1 then old[i] = run(server, trees[1], part) end
    new[i] = run(server, trees[2], part)
    if i % 2 == 0 then old[i] = run(server, trees[1], part) end
  end
  for _, figure in ipairs { "turns", "cost" } do
    local list = ratios(old, new, figure)
    print(("%-8s %-5s ratio %.3f (%.3f to %.3f)"):format(part[1], figure, at(list, 0.5), at(list, 0.25), at(list, 0.75)))
  end
end

assert(sys.pin(0, 0))
local server = redis.start { tcp = true }
local wanted = os.getenv("HOLDFAST_BENCH_PARTS")
for _, part in ipairs(PARTS) do
  if not wanted or wanted:find(part[1], 1, true) then compare(server, part) end
end
for _, name in ipairs(counted.names) do
  if (not wanted or wanted:find(name, 1, true)) and counted.may_measure(name) then
    local old = counted.measure(name, server, trees[1])
    local new = counted.measure(name, server, trees[2])
    print(("%-9s count ratio %.3f (%.0f to %.0f)"):format(name, new / old, old, new))
  end
end
server:stop()
