-- What a cycle costs the server: commands including those inside scripts, and microseconds of its
-- one thread, from INFO commandstats. In alternating rounds on one processor: Redisson's scripts of
-- a lock and of a fenced lock, written from its wire contract, and SET NX PX with a
-- compare-and-delete; these have no queue, and only the fenced lock draws a token.

local cost = require "bench.cost"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local redisson = require "bench.redisson"
local report = require "bench.report"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"

local CYCLES, ROUNDS = 1000, 15
local WAITERS, SECONDS = 32, 3

local COMPARE_AND_DELETE = [[
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0]]

local function new(server) return holdfast.new { url = server:url(), wait = 0 } end

local function cycles_of(lock)
  return function()
    for _ = 1, CYCLES do
      assert(lock:acquire())
      assert(lock:release())
    end
  end
end

local function ours(server, options)
  return cycles_of(new(server):lock("bench:server", options))
end

local function permits(server)
  local pool = new(server):semaphore("bench:permits", { permits = 8 })
  return function()
    for _ = 1, CYCLES do assert(assert(pool:acquire(1, 0)):release()) end
  end
end

local function plain_permits(server)
  local pool = new(server):plain_semaphore("bench:plain_permits")
  assert(pool:set(8))
  return cycles_of(pool)
end

local function latch_rounds(server)
  local gate = new(server):latch("bench:latch")
  return function()
    for _ = 1, CYCLES do
      assert(gate:set(1))
      assert(gate:count_down() == 0)
    end
  end
end

-- One half of a read/write lock, which `others` read during the measurement.
local function half(server, name, others)
  local key = "bench:pages" .. others
  local client, readers = new(server), new(server)
  local lock, theirs = client:read_write_lock(key), readers:read_write_lock(key)
  for _ = 1, others do
    assert(coroutine.wrap(function() return theirs:read():acquire(0) end)())
  end
  return cycles_of(lock[name](lock))
end

local function sha(connection, text) return connection:call("SCRIPT", "LOAD", text) end

-- Redisson's cycle, which deletes the latch that its unlock has left.
local function java(server, text, counter)
  local connection = assert(resp.connect { path = server.path })
  local key = "bench:java"
  local take = redisson.lock_words(sha(connection, text), key, counter)
  local unlock = sha(connection, redisson.UNLOCK)
  local count = 0
  return function()
    for _ = 1, CYCLES do
      count = count + 1
      local latch = redisson.latch(key, ("0123456789abcdef%016x"):format(count))
      connection:call(take)
      assert(connection:call(redisson.unlock_words(unlock, key, latch, 20000)) == 1)
      connection:call("DEL", latch)
    end
  end
end

local function plain(server)
  local connection = assert(resp.connect { path = server.path })
  local unlock = sha(connection, COMPARE_AND_DELETE)
  return function()
    for _ = 1, CYCLES do
      assert(connection:call("SET", "bench:plain", "0123456789abcdef", "NX", "PX", 30000))
      assert(connection:call("EVALSHA", unlock, 1, "bench:plain", "0123456789abcdef") == 1)
    end
  end
end

-- A hand-off in a crowd: everything that the server does between two releases.
local function hand_off(server)
  local start = process.now() + 1.5
  local workers = {}
  for i = 1, WAITERS + 1 do
    workers[i] = process.lua {
      file = "bench/contended_worker.lua",
      args = { server:url(), ("%.6f"):format(start), ("%.6f"):format(start + SECONDS + 1), 0 },
    }
  end
  process.sleep(start + 0.5 - process.now())
  local before = cost.stats(server)
  local all = cost.of(server, 1, function() process.sleep(SECONDS) end)
  local releases = cost.stats(server).hdel - before.hdel
  for _, worker in ipairs(workers) do worker:wait(60) end
  return { time = all.time / releases, inside = all.inside / releases }
end

assert(sys.pin(0, 0))
local server = redis.start()
local SUBJECTS = {
  { "holdfast, with a token", ours(server) },
  { "holdfast, without", ours(server, { fencing = false }) },
  { "Redisson's fenced lock", java(server, redisson.FENCED_LOCK, "redisson_lock_token:{bench:java}"),
    { del = 1 } },
  { "Redisson's lock", java(server, redisson.LOCK), { del = 1 } },
  { "a permit", permits(server) },
  { "SET NX PX, compare-and-delete", plain(server), { set = 1 } },
  { "a read lock, nobody else there", half(server, "read", 0) },
  { "a read lock among 31 others", half(server, "read", 31) },
  { "a write lock", half(server, "write", 0) },
  { "a fair lock", cycles_of(new(server):fair_lock("bench:fair")) },
  { "a mutex", cycles_of(new(server):mutex("bench:mutex")) },
  { "a permit of a plain semaphore", plain_permits(server), { del = 2 } },
  { "a latch, set and opened", latch_rounds(server) },
}
local times, inside = {}, {}
for round = 1, ROUNDS do
  for i, subject in ipairs(SUBJECTS) do
    times[i] = times[i] or {}
    local seen = cost.of(server, CYCLES, subject[2], subject[3])
    times[i][round], inside[i] = seen.time, seen.inside
  end
end
for i, subject in ipairs(SUBJECTS) do
  report.row(subject[1] .. ", what clients send, µs", report.median(times[i]), "%.2f")
  report.row(subject[1] .. ", commands inside", inside[i], "%.1f")
end
local ratios = {}
for round = 1, ROUNDS do ratios[round] = times[1][round] / times[3][round] end
local cycle = report.median(times[1])
report.row("a cycle to Redisson's, server time", report.median(ratios), "%.2f", "<=", 1.3)
report.row("commands inside a cycle", inside[1], "%.1f", "<=", 11)
ratios = {}
for round = 1, ROUNDS do ratios[round] = times[8][round] / times[7][round] end
report.row("a read among others to one alone, server time", report.median(ratios), "%.2f", "<=",
  1.25)
local handed = hand_off(server)
report.row("a hand-off among 32, scripts, µs", handed.time, "%.2f")
report.row("a hand-off to a cycle, server time", handed.time / cycle, "%.2f", "<=", 1.6)
report.row("commands inside a hand-off", handed.inside, "%.1f", "<=", 18)
server:stop()
