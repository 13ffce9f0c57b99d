-- A lock that nobody else wants: acquire and release, in rounds that alternate with bare hiredis
-- loops.
--   same commands    the commands that holdfast itself was seen to send
--   lite             Redisson's two scripts without its latch
--   Redisson         the same with the latch, for whose DEL it does not wait
--   SET NX           SET NX PX, and a script that compares and deletes
-- One caller alone, over a unix socket and TCP; the server's processor time for a cycle among 32
-- connections with a lock each, and how many cycles one processor of a server can run; and in
-- nginx, compared to SET NX over a pooled cosocket. All share one processor, because an idle one
-- takes longer to wake up than what is measured, and this time changes with every placement.

local bare = require "bench.bare"
local cost = require "bench.cost"
local cycle = require "bench.cycle"
local holdfast = require "holdfast"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local redisson = require "bench.redisson"
local report = require "bench.report"
local sys = require "spec.support.sys"

local CYCLES, ASYNC_BAR, REDISSON_BAR, SET_NX_BAR = 1000, 1.4, 1.15, 1.3
local OWN_BAR = rawget(_G, "jit") and 1.12 or 1.08
local ROUNDS = tonumber(os.getenv("HOLDFAST_BENCH_ROUNDS") or 75)
local CONNECTIONS, SERVER_ROUNDS = 32, math.ceil(ROUNDS / 5)
local SECONDS, IN_A_REQUEST = 2, 10 -- seconds of wrk; cycles in one request

-- ---- what the bare loops send ----

local function seen_commands(server, key)
  local client = holdfast.new(server:url())
  local lock = client:lock(key)
  cycle.run(lock, 10)
  local sent = cycle.commands(server, function() cycle.run(lock, 1) end)
  client:close()
  return sent
end

local function load(server, text) return server:cli("SCRIPT", "LOAD", text) end

-- By name: function(server, key) → the two commands of a cycle. Ten # stand for its number.
local LOOPS = {
  ["the same commands"] = seen_commands,
  lite = function(server, key)
    return { redisson.lock_words(load(server, redisson.LOCK), key),
      redisson.unlock_words(load(server, redisson.UNLOCK_LITE), key) }
  end,
  Redisson = function(server, key)
    local latch = redisson.latch(key, "0123456789abcdef012345##########")
    return { redisson.lock_words(load(server, redisson.LOCK), key),
      redisson.unlock_words(load(server, redisson.UNLOCK), key, latch, 20000) }
  end,
  ["SET NX"] = bare.set_nx,
}

-- → the file with the commands of a loop for the n-th connection
local function commands_of(server, name, n)
  local key = ("bench:%s:%d"):format(name:gsub(" ", "_"), n)
  local path = ("%s/%s"):format(server.directory, key:gsub(":", "-"))
  return bare.write(path, LOOPS[name](server, key))
end

local function start_loop(target, path, mode)
  return process.start { "build/bench/baseline", target, tostring(CYCLES), path, mode }
end

-- → seconds that one cycle took
local function finish_loop(run)
  local how, code = run:wait(120)
  assert(how == "exit" and code == 0, run:output())
  return tonumber(run:output())
end

local DELETE_LATCHES = [[
local left = redis.call('keys', 'redisson_unlock_latch:*')
for i = 1, #left, 1000 do redis.call('del', unpack(left, i, math.min(i + 999, #left))) end
return #left]]

-- Checks that every unlock has released the lock, and deletes its latches before the next round.
local function check_unlocked(server, name, loops)
  local latches = server:cli("EVAL", DELETE_LATCHES, 0)
  assert(latches == 0 or latches > CYCLES * loops, "a latch was used twice")
  for n = 1, loops do
    assert(server:cli("EXISTS", ("bench:%s:%d"):format(name, n)) == 0, "an unlock returned early")
  end
end

-- ---- one caller alone ----

local function measure(lock)
  cycle.run(lock, 200)
  local start = process.now()
  cycle.run(lock, CYCLES)
  return (process.now() - start) / CYCLES
end

local ALONE = { "the same commands", "lite", "Redisson", "SET NX" }
local BARS = { ["the same commands"] = OWN_BAR, Redisson = REDISSON_BAR }

local function compare_alone(server, where, url, target)
  local client = holdfast.new(url)
  local lock, ours, paths, theirs, ratios = client:lock("bench:ours"), {}, {}, {}, {}
  for _, name in ipairs(ALONE) do
    paths[name], theirs[name], ratios[name] = commands_of(server, name, 1), {}, {}
  end
  for i = 1, ROUNDS do
    ours[i] = measure(lock)
    for _, name in ipairs(ALONE) do
      theirs[name][i] = finish_loop(start_loop(target, paths[name]))
      ratios[name][i] = ours[i] / theirs[name][i]
      check_unlocked(server, name, 1)
    end
  end
  client:close()
  report.row(("acquire + release, %s, µs"):format(where), report.median(ours) * 1e6, "%.1f")
  for _, name in ipairs(ALONE) do
    report.row(("%s bare, %s, µs"):format(name, where), report.median(theirs[name]) * 1e6, "%.1f")
    report.row(("ratio to %s bare, %s"):format(name, where), report.median(ratios[name]), "%.3f",
      BARS[name] and "<=", BARS[name])
  end
end

-- Measures releases that are not awaited, compared to what the bare loop gains by sending both
-- commands in one write: on one processor only the server's time is left then.
local function compare_async(server, where, url, target)
  local client = holdfast.new(url)
  local plain, async = client:lock("bench:ours"), client:lock("bench:async", { async_release = true })
  local path, ratios, gains = commands_of(server, "the same commands", 1), {}, {}
  for i = 1, ROUNDS do
    ratios[i] = measure(plain) / measure(async)
    gains[i] = finish_loop(start_loop(target, path)) / finish_loop(start_loop(target, path, "pipelined"))
  end
  client:close()
  report.row(("bare hiredis, pipelined to not, %s"):format(where), report.median(gains), "%.3f")
  report.row(("rate with async_release to rate without, %s"):format(where), report.median(ratios),
    "%.3f", ">=", ASYNC_BAR)
end

-- ---- among many connections ----

local OURS = [[
  local client = require "holdfast".new(arg[1])
  local lock = client:lock(arg[2])
  for _ = 1, tonumber(arg[3]) do assert(lock:acquire(0)) assert(lock:release()) end
  client:close()]]

local WARM_UP = 200 -- cycles of build/bench/baseline

-- → the server's processor time for each cycle, in seconds
local function used_in(server, start)
  local before, runs = cost.processor(server), {}
  for n = 1, CONNECTIONS do runs[n] = start(n) end
  for n = 1, CONNECTIONS do assert(runs[n]:wait(120) == "exit", runs[n]:output()) end
  return (cost.processor(server) - before) / CONNECTIONS / (CYCLES + WARM_UP)
end

local function compare_server(server, url, target)
  local starts, used = {}, { holdfast = {} }
  starts.holdfast = function(n)
    return process.lua { code = OURS, args = { url, "bench:ours:" .. n, CYCLES + WARM_UP } }
  end
  for i = 2, #ALONE do
    local name, paths = ALONE[i], {}
    for n = 1, CONNECTIONS do paths[n] = commands_of(server, name, n) end
    starts[name], used[name] = function(n) return start_loop(target, paths[n]) end, {}
  end
  for i = 1, SERVER_ROUNDS do
    for name, start in pairs(starts) do
      used[name][i] = used_in(server, start)
      if LOOPS[name] then check_unlocked(server, name, CONNECTIONS) end
    end
  end
  for _, name in ipairs { "holdfast", "lite", "Redisson", "SET NX" } do
    local seconds = report.median(used[name])
    report.row(name .. ", server's processor, 32 connections, µs", seconds * 1e6, "%.1f")
    report.row(name .. ", cycles/s for one processor of a server", 1 / seconds, "%.0f")
  end
end

-- ---- nginx ----

local HTTP = [[
  init_by_lua_block {
    CLIENT = require "holdfast".new("%s")
    REDIS = "unix:%s"
    COMPARE_AND_DELETE = "%s" -- the script's name
  }
]]

local SERVER = [[
  location /own { content_by_lua_block {
    for _ = 1, %d do
      local lock = CLIENT:lock(ngx.var.request_id)
      assert(lock:acquire())
      assert(lock:release())
    end
    ngx.say("ok")
  } }
  location /set-nx { content_by_lua_block {
    local id = ngx.var.request_id
    local set = { "*6\r\n$3\r\nSET\r\n$32\r\n", id, "\r\n$32\r\n", id,
      "\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n" }
    local delete = { "*5\r\n$7\r\nEVALSHA\r\n$40\r\n", COMPARE_AND_DELETE,
      "\r\n$1\r\n1\r\n$32\r\n", id, "\r\n$32\r\n", id, "\r\n" }
    local function call(socket, words, want)
      assert(socket:send(words))
      assert(assert(socket:receive()) == want)
    end
    for _ = 1, %d do
      local socket = ngx.socket.tcp()
      assert(socket:connect(REDIS))
      call(socket, set, "+OK")
      call(socket, delete, ":1")
      socket:setkeepalive(10000, 64)
    end
    ngx.say("ok")
  } }
]]

-- → cycles in a second
local function wrk(front, location, connections)
  local run = process.start {
    "wrk", "-t1", "-c" .. connections, "-d" .. SECONDS, "--timeout", "60",
    ("http://127.0.0.1:%d%s"):format(front.port, location),
  }
  assert(run:wait(120) == "exit", run:output())
  assert(not run:output():find("Non-2xx", 1, true), run:output())
  local rate = tonumber(run:output():match("Requests/sec:%s+([%d.]+)"))
  assert(rate > 0, run:output())
  return IN_A_REQUEST * rate
end

local function compare_nginx(server)
  local front = nginx.start {
    tcp = true,
    http = HTTP:format(server:url(), server.path, bare.set_nx(server, "bench:nginx")[2][2]),
    server = SERVER:format(IN_A_REQUEST, IN_A_REQUEST),
  }
  for _, connections in ipairs { 1, 64 } do
    local ours, theirs, ratios = {}, {}, {}
    for i = 1, math.ceil(ROUNDS / 10) do
      ours[i], theirs[i] = wrk(front, "/own", connections), wrk(front, "/set-nx", connections)
      ratios[i] = theirs[i] / ours[i]
    end
    local where = ("nginx, requests at a time: %d"):format(connections)
    report.row("acquire + release, cycles/s, " .. where, report.median(ours), "%.0f")
    report.row("SET NX by hand, cycles/s, " .. where, report.median(theirs), "%.0f")
    report.row("time of holdfast relative to bare SET NX, " .. where, report.median(ratios), "%.2f",
      connections > 1 and "<=" or nil, SET_NX_BAR)
  end
  front:stop()
end

assert(sys.pin(0, 0))
local server = redis.start { tcp = true }
local unix, tcp = "unix:" .. server.path, "tcp:" .. server.port
compare_alone(server, "unix socket", server:url(), unix)
compare_alone(server, "TCP", server:tcp_url(), tcp)
compare_async(server, "unix socket", server:url(), unix)
compare_async(server, "TCP", server:tcp_url(), tcp)
compare_server(server, server:tcp_url(), tcp)
if not rawget(_G, "jit") then compare_nginx(server) end
server:stop()
