-- An uncontended acquire and release against two bare hiredis loops, in alternating rounds: one
-- sends the two commands that holdfast itself was seen to send, the other Redisson's two scripts of
-- a lock. All share one processor: what an idle processor takes to wake up is more than what is
-- measured, and changes with every placement. The same on two is shown beside it.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local redisson = require "bench.redisson"
local report = require "bench.report"
local sys = require "spec.support.sys"

local CYCLES, ASYNC_BAR, REDISSON_BAR = 1000, 1.6, 1.15
local OWN_BAR = rawget(_G, "jit") and 1.12 or 1.08
local ROUNDS = tonumber(os.getenv("HOLDFAST_BENCH_ROUNDS") or 75)
local JAVA = "bench:java"

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

-- Redisson's cycle, without the DEL of the latch, for which Redisson does not wait. Ten # stand for
-- the cycle's number.
local function commands_of_redisson(server)
  local function load(text) return server:cli("SCRIPT", "LOAD", text) end
  local latch = redisson.latch(JAVA, "0123456789abcdef012345##########")
  return { redisson.lock_words(load(redisson.LOCK), JAVA),
    redisson.unlock_words(load(redisson.UNLOCK), JAVA, latch, 20000) }
end

local function write_commands(path, commands)
  local file = assert(io.open(path, "wb"))
  for _, args in ipairs(commands) do
    file:write(#args, "\n")
    for _, arg in ipairs(args) do file:write(#tostring(arg), "\n", arg, "\n") end
  end
  file:close()
  return path
end

local function baseline(target, path, mode)
  local run = process.start { "build/bench/baseline", target, tostring(CYCLES), path, mode }
  local how, code = run:wait(120)
  assert(how == "exit" and code == 0, run:output())
  return tonumber(run:output())
end

local DELETE_LATCHES = [[
return redis.call('del', unpack(redis.call('keys', 'redisson_unlock_latch:*')))]]

-- Every unlock has really unlocked, and leaves no latch behind for the next round.
local function redisson_baseline(server, target, path)
  local seconds = baseline(target, path)
  assert(server:cli("EXISTS", JAVA) == 0, "an unlock returned early")
  assert(server:cli("EVAL", DELETE_LATCHES, 0) > CYCLES, "a latch was used twice")
  return seconds
end

local function measure(lock)
  cycles(lock, 200)
  local start = process.now()
  cycles(lock, CYCLES)
  return (process.now() - start) / CYCLES
end

-- has_bars: on one processor
local function compare(server, name, url, target, has_bars)
  local client = holdfast.new(url)
  local lock = client:lock("bench:uncontended")
  local own = write_commands(server.directory .. "/own", commands_of_a_cycle(server, lock))
  local java = write_commands(server.directory .. "/java", commands_of_redisson(server))
  local ours, bare, theirs, to_bare, to_theirs = {}, {}, {}, {}, {}
  for i = 1, ROUNDS do
    ours[i], bare[i] = measure(lock), baseline(target, own)
    theirs[i] = redisson_baseline(server, target, java)
    to_bare[i], to_theirs[i] = ours[i] / bare[i], ours[i] / theirs[i]
  end
  client:close()
  local relation = has_bars and "<=" or nil
  report.row(("acquire + release, %s, µs"):format(name), report.median(ours) * 1e6, "%.1f")
  report.row(("the same commands bare, %s, µs"):format(name), report.median(bare) * 1e6, "%.1f")
  report.row(("Redisson's scripts bare, %s, µs"):format(name), report.median(theirs) * 1e6, "%.1f")
  report.row(("ratio to the same commands bare, %s"):format(name), report.median(to_bare), "%.3f",
    relation, OWN_BAR)
  report.row(("ratio to Redisson's scripts bare, %s"):format(name), report.median(to_theirs),
    "%.3f", relation, REDISSON_BAR)
end

-- The same with releases that are not waited for, and beside it what the bare loop wins by sending
-- both commands in one write: on one processor the server's time is all that is left then.
local function compare_async(server, name, url, target, has_bars)
  local client = holdfast.new(url)
  local plain, async = client:lock("bench:uncontended"),
    client:lock("bench:async", { async_release = true })
  local path = write_commands(server.directory .. "/own", commands_of_a_cycle(server, plain))
  local ratios, bare = {}, {}
  for i = 1, ROUNDS do
    ratios[i] = measure(plain) / measure(async)
    bare[i] = baseline(target, path) / baseline(target, path, "pipelined")
  end
  client:close()
  report.row(("bare hiredis, pipelined to not, %s"):format(name), report.median(bare), "%.3f")
  report.row(("rate with async_release to rate without, %s"):format(name), report.median(ratios),
    "%.3f", has_bars and ">=" or nil, ASYNC_BAR)
end

assert(sys.pin(0, 0))
local server = redis.start { tcp = true }
local unix, tcp = "unix:" .. server.path, "tcp:" .. server.port
compare(server, "unix socket", server:url(), unix, true)
compare(server, "TCP", server:tcp_url(), tcp, true)
compare_async(server, "unix socket", server:url(), unix, true)
compare_async(server, "TCP", server:tcp_url(), tcp, true)
assert(sys.pin(0, 0, 1))
assert(sys.pin(server.pid, 0, 1))
compare(server, "unix socket, two cores", server:url(), unix)
compare(server, "TCP, two cores", server:tcp_url(), tcp)
compare_async(server, "unix socket, two cores", server:url(), unix)
compare_async(server, "TCP, two cores", server:tcp_url(), tcp)
server:stop()
