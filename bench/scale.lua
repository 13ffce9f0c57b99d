-- What grows with the number of waiters, holds and keys, and what does not; all on one core.
--
-- - 10,000 waiters on one key, each another client that listens, beside 32: the server's time for
--   an acquire and for a hand-off (the release, and the question of one that queues again). Also
--   for a fair lock, a semaphore and writers; and a reader that comes or goes, with 10,000 others
--   in and a writer that waits.
-- - A client with 10,000 places before all others that is gone, or stopped: the longest script with
--   which the server removes it.
-- - A client that holds 100,000 locks, and renews them: the rate of its free cycles to that of the
--   same client before. Both are taken for as long as all holds are renewed once.
-- - A server with 1,000,000 other keys: the rate of free cycles to that of an empty server.
--
-- HOLDFAST_SCALE_ROUNDS=5: rounds of the last three
-- HOLDFAST_SCALE_SECONDS=10: with and without holds; HOLDFAST_SCALE_HOLDS=100000

local cost = require "bench.cost"
local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local queue = require "bench.queue"
local redis = require "spec.support.redis"
local report = require "bench.report"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"

local ROUNDS = tonumber(os.getenv("HOLDFAST_SCALE_ROUNDS") or 5)
local SECONDS = tonumber(os.getenv("HOLDFAST_SCALE_SECONDS") or 10)
local HOLDS = tonumber(os.getenv("HOLDFAST_SCALE_HOLDS") or 100000)
local MANY, FEW, TURNS, TURN_ROUNDS = 10000, 32, 250, 15
local PLACES, GRANT = 10000, 0.2
local KEYS, CYCLES, KEY_ROUNDS = 1000000, 1000, 25
local SCRIPT_BAR, LINE_BAR = 100, 1.25 -- the first one for a lock
local LONGEST_BAR, HOLDS_BAR, KEYS_BAR = 5, 0.9, 0.95

local function rate(lock, count)
  local start = process.now()
  for _ = 1, count do
    assert(lock:acquire(0))
    assert(lock:release())
  end
  return count / (process.now() - start)
end

-- ---- waiters ----

-- → microseconds of an acquire that queues behind all others
local function queueing(server, line)
  local gone = {}
  for i = 1, TURNS do gone[i] = line:pass_on() end
  return cost.of(server, TURNS, function()
    for i = 1, TURNS do line:wait(gone[i]) end
  end).time
end

local function hand_off(server, line)
  return cost.of(server, TURNS, function() line:hand_offs(TURNS) end).time
end

-- of: what the queue is for, in the title; new: a server, a key and a number of owners → a queue
local function measure_line(of, new)
  local relation = of == "" and "<=" or nil
  local server = redis.start()
  local function line_of(waiters)
    local line = new(server, "bench:" .. waiters, waiters + 1)
    line:line_up()
    return line
  end
  local many, few = line_of(MANY), line_of(FEW)
  local acquires, handed, ratios = {}, {}, {}
  for i = 1, TURN_ROUNDS do
    acquires[i], handed[i] = queueing(server, many), hand_off(server, many)
    ratios[i] = handed[i] / hand_off(server, few)
  end
  report.row(("%d waiters%s, an acquire, µs"):format(MANY, of), report.median(acquires), "%.1f",
    relation, SCRIPT_BAR)
  report.row(("%d waiters%s, a hand-off, µs"):format(MANY, of), report.median(handed), "%.1f",
    relation, SCRIPT_BAR)
  report.row(("a hand-off among %d%s to one among %d"):format(MANY, of, FEW), report.median(ratios),
    "%.2f", "<=", LINE_BAR)
  many:close()
  few:close()
  server:stop()
end

local function measure_waiters()
  local programs = { crowd.program "acquire", crowd.program "release" }
  measure_line("", function(server, key, owners)
    return queue.new(server, key, owners, "l", programs[1], programs[2])
  end)
  for kind, of in pairs { fair = " for a fair lock", permit = " for a permit", write = " to write" } do
    measure_line(of, function(...) return queue.of_kind(kind, ...) end)
  end
end

-- Measures with readers that hold the lock, and a writer that waits. → microseconds of a reader
-- that acquires, of one that releases
local function readers_of(server, count)
  local key = "bench:readers" .. count
  local readers = queue.of_kind("read", server, key, count + TURNS)
  local writer = queue.of_kind("write", server, key, 1)
  for i = 1, count do assert(readers:acquire(i) == 1) end
  writer:wait(1)
  local comes = cost.of(server, TURNS, function()
    for i = count + 1, count + TURNS do readers:wait(i) end
  end)
  local goes = cost.of(server, FEW, function()
    for i = 1, FEW do readers:release(i) end
  end)
  readers:close()
  writer:close()
  return comes.time, goes.time
end

local function measure_readers()
  local server = redis.start()
  local comes, goes = readers_of(server, MANY)
  report.row(("a writer behind %d readers, a reader comes, µs"):format(MANY), comes, "%.1f")
  report.row(("a writer behind %d readers, a reader goes, µs"):format(MANY), goes, "%.1f")
  server:stop()
end

-- ---- a dead client ----

local function add_places(server, key, uuid)
  local words
  for i = 1, PLACES do
    words = words or { "ZADD", crowd.queue_of(key) }
    words[#words + 1] = i
    words[#words + 1] = ("1l%s:%d:0"):format(uuid, i)
    if i % 1000 == 0 or i == PLACES then
      server:cli(words)
      words = nil
    end
  end
end

-- → milliseconds of the longest script since the log was cleared
local function longest_script(server)
  local longest = 0
  for _, entry in ipairs(server:cli("SLOWLOG", "GET", -1)) do
    if entry[4][1]:upper():find("^EVAL") then longest = math.max(longest, entry[3] / 1000) end
  end
  return longest
end

-- A holder releases the lock to a client that has all those places; then a waiter of another client
-- gets it.
local function remove_client(is_stopped)
  local server = redis.start {
    conf = { "slowlog-log-slower-than 0", "slowlog-max-len 100000" },
  }
  local key, uuid = "bench:dead", "00000000-0000-8000-8000-000000000001"
  local client = holdfast.new { url = server:url(), grant_lease = GRANT }
  local other = holdfast.new { url = server:url(), grant_lease = GRANT }
  local events = assert(resp.connect { path = server.path })
  if is_stopped then events:call("SUBSCRIBE", crowd.channel_of(uuid)) end
  local holder, waiter = client:lock(key), other:lock(key)
  assert(holder:acquire(0))
  add_places(server, key, uuid)
  server:cli("SLOWLOG", "RESET")
  assert(holder:release())
  assert(waiter:acquire(120))
  local longest = longest_script(server)
  assert(server:cli("ZCARD", crowd.queue_of(key)) <= 1, "the dead client still has places")
  client:close()
  other:close()
  events:close()
  server:stop()
  return longest
end

local function measure_removal()
  local gone, stopped = {}, {}
  for i = 1, ROUNDS do gone[i], stopped[i] = remove_client(false), remove_client(true) end
  report.row(("%d places of a dead client, longest script, ms"):format(PLACES),
    report.median(gone), "%.2f", "<=", LONGEST_BAR)
  report.row(("%d places of a stopped client, longest script, ms"):format(PLACES),
    report.median(stopped), "%.2f", "<=", LONGEST_BAR)
end

-- ---- holds ----

-- → cycles per second, measured for this many seconds
local function rate_for(lock, seconds)
  local start, count = process.now(), 0
  repeat
    rate(lock, 100)
    count = count + 100
  until process.now() - start >= seconds
  return count / (process.now() - start)
end

local function measure_holds()
  local alone, beside, ratios = {}, {}, {}
  for i = 1, ROUNDS do
    local server = redis.start()
    local client = holdfast.new(server:url())
    local lock, held = client:lock("bench:free"), {}
    rate(lock, CYCLES)
    alone[i] = rate_for(lock, SECONDS)
    for j = 1, HOLDS do
      held[j] = client:lock("bench:hold:" .. j)
      assert(held[j]:acquire(0))
    end
    beside[i] = rate_for(lock, SECONDS)
    for _, each in ipairs(held) do assert(not each:lost(), "a hold was lost") end
    ratios[i] = beside[i] / alone[i]
    client:close()
    server:stop()
  end
  report.row("free cycles/s", report.median(alone), "%.0f")
  report.row(("free cycles/s, %d holds"):format(HOLDS), report.median(beside), "%.0f")
  report.row(("rate with %d holds to without"):format(HOLDS), report.median(ratios), "%.3f", ">=",
    HOLDS_BAR)
end

-- ---- keys ----

local function measure_keys()
  local conf = redis.major() >= 7 and { "enable-debug-command yes" } or nil
  local servers = { redis.start { conf = conf }, redis.start { conf = conf } }
  assert(servers[2]:cli("DEBUG", "POPULATE", KEYS) == "OK")
  local clients, locks, ratios = {}, {}, {}
  for i, server in ipairs(servers) do
    clients[i] = holdfast.new(server:url())
    locks[i] = clients[i]:lock("bench:free")
    rate(locks[i], CYCLES)
  end
  for i = 1, KEY_ROUNDS do
    local empty = rate(locks[1], CYCLES)
    ratios[i] = rate(locks[2], CYCLES) / empty
  end
  report.row(("rate beside %d keys to an empty server's"):format(KEYS), report.median(ratios),
    "%.3f", ">=", KEYS_BAR)
  for i, server in ipairs(servers) do
    clients[i]:close()
    server:stop()
  end
end

assert(sys.pin(0, 0))
measure_waiters()
measure_readers()
measure_removal()
measure_holds()
measure_keys()
