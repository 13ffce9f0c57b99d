-- An uncontended acquire and release against the same two EVALSHA sent by a bare hiredis loop, in
-- alternating rounds. The two commands are those that holdfast itself was seen to send. All share
-- one processor: what an idle processor takes to wake up is more than what is measured, and changes
-- with every placement. The same on two is shown beside it.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local CYCLES, BAR, ASYNC_BAR = 1000, 1.15, 1.6
local ROUNDS = tonumber(os.getenv("HOLDFAST_BENCH_ROUNDS") or 75)

local function cycles(lock, count)
  for _ = 1, count do
    assert(lock:acquire(0))
    assert(lock:release())
  end
end

local function commands_of_a_cycle(server, lock)
  cycles(lock, 10)
  local monitor = server:monitor()
  cycles(lock, 1)
  local sent = {}
  for _, entry in ipairs(monitor:commands()) do
    if not entry.script then sent[#sent + 1] = entry.args end
  end
  monitor:close()
  assert(#sent == 2, "a cycle is not two commands but " .. #sent)
  return sent
end

local function write_commands(path, commands)
  local file = assert(io.open(path, "wb"))
  for _, args in ipairs(commands) do
    file:write(#args, "\n")
    for _, arg in ipairs(args) do file:write(#arg, "\n", arg, "\n") end
  end
  file:close()
end

local function baseline(target, path, mode)
  local run = process.start { "build/bench/baseline", target, tostring(CYCLES), path, mode }
  local how, code = run:wait(120)
  assert(how == "exit" and code == 0, run:output())
  return tonumber(run:output())
end

local function measure(lock)
  cycles(lock, 200)
  local start = process.now()
  cycles(lock, CYCLES)
  return (process.now() - start) / CYCLES
end

-- relation, bar: as report.row's
local function compare(server, name, url, target, relation, bar)
  local client = holdfast.new(url)
  local lock = client:lock("bench:uncontended")
  local path = server.directory .. "/commands"
  write_commands(path, commands_of_a_cycle(server, lock))
  local ours, theirs, ratios = {}, {}, {}
  for i = 1, ROUNDS do
    ours[i], theirs[i] = measure(lock), baseline(target, path)
    ratios[i] = ours[i] / theirs[i]
  end
  client:close()
  report.row(("acquire + release, %s, µs"):format(name), report.median(ours) * 1e6, "%.1f")
  report.row(("bare hiredis, %s, µs"):format(name), report.median(theirs) * 1e6, "%.1f")
  report.row(("ratio, %s"):format(name), report.median(ratios), "%.3f", relation, bar)
end

-- The same with releases that are not waited for, and beside it what the bare loop wins by sending
-- both commands in one write: on one processor the server's time is all that is left then.
local function compare_async(server, name, url, target, relation, bar)
  local client = holdfast.new(url)
  local plain, async = client:lock("bench:uncontended"),
    client:lock("bench:async", { async_release = true })
  local path = server.directory .. "/commands"
  local ratios, bare = {}, {}
  for i = 1, ROUNDS do
    ratios[i] = measure(plain) / measure(async)
    bare[i] = baseline(target, path) / baseline(target, path, "pipelined")
  end
  client:close()
  report.row(("bare hiredis, pipelined to not, %s"):format(name), report.median(bare), "%.3f")
  report.row(("rate with async_release to rate without, %s"):format(name), report.median(ratios),
    "%.3f", relation, bar)
end

assert(sys.pin(0, 0))
local server = redis.start { tcp = true }
local unix, tcp = "unix:" .. server.path, "tcp:" .. server.port
compare(server, "unix socket", server:url(), unix, "<=", BAR)
compare(server, "TCP", server:tcp_url(), tcp, "<=", BAR)
compare_async(server, "unix socket", server:url(), unix, ">=", ASYNC_BAR)
compare_async(server, "TCP", server:tcp_url(), tcp, ">=", ASYNC_BAR)
assert(sys.pin(0, 0, 1))
assert(sys.pin(server.pid, 0, 1))
compare(server, "unix socket, two cores", server:url(), unix)
compare(server, "TCP, two cores", server:tcp_url(), tcp)
compare_async(server, "unix socket, two cores", server:url(), unix)
compare_async(server, "TCP, two cores", server:tcp_url(), tcp)
server:stop()
