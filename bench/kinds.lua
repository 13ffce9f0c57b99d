-- The kinds of lock under load, with everything on one processor.
--
-- Readers in a closed loop on one key, compared to as many processes with a lock of their own; a
-- writer among readers that always hold; a crowd on a semaphore, by the server's microseconds for
-- each turn, compared to one process alone; and the same scripts compared to minimal ones.

local cost = require "bench.cost"
local holdfast = require "holdfast"
local permit_turns = require "bench.permit_turns"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local READERS, READ_BAR, ROUNDS = 32, 0.8, 3
local SECTION, WRITES, WRITE_BAR = 0.1, 20, 2
local PERMITS, CROWD, CYCLES, PERMIT_BAR, SHARE_BAR = 8, 64, 1000, 0.7, 0.9
local BARE_BAR = 1.4
local SECONDS = tonumber(os.getenv("HOLDFAST_BENCH_SECONDS") or 3)

-- Starts processes that begin together. key: the number of a process → its key. → the workers, when
-- they begin
local function start_crowd(server, count, seconds, kind, key, section)
  local start = process.now() + 1 + count / 32
  local workers = {}
  for i = 1, count do
    workers[i] = process.lua {
      file = "bench/kind_worker.lua",
      args = {
        server:url(), ("%.6f"):format(start), ("%.6f"):format(start + seconds), kind, key(i),
        section or 0,
      },
    }
  end
  return workers, start
end

-- → all turns, the ratio of the fewest to the mean
local function turns_of(workers)
  local all, least = 0, math.huge
  for _, worker in ipairs(workers) do
    worker:wait(60)
    local own = tonumber(worker:output()) or error(worker:output())
    all, least = all + own, math.min(least, own)
  end
  return all, least / (all / #workers)
end

local function rate(server, kind, key)
  return turns_of(start_crowd(server, READERS, SECONDS, kind, key)) / SECONDS
end

local function readers(server)
  local reads, locks, ratios = {}, {}, {}
  for round = 1, ROUNDS do
    reads[round] = rate(server, "read", function() return "bench:pages" end)
    locks[round] = rate(server, "lock", function(i) return "bench:lock" .. i end)
    ratios[round] = reads[round] / locks[round]
  end
  report.row(READERS .. " readers of one key, cycles/s", report.median(reads), "%.0f")
  report.row(READERS .. " locks on as many keys, cycles/s", report.median(locks), "%.0f")
  report.row("readers to locks", report.median(ratios), "%.2f", ">=", READ_BAR)
end

-- Each reader holds the lock for SECTION, and asks again immediately.
local function writer(server)
  local seconds = WRITES * 3 * SECTION
  local workers, start = start_crowd(server, READERS, seconds, "read",
    function() return "bench:book" end, SECTION)
  local client = holdfast.new(server:url())
  local lock = client:read_write_lock("bench:book"):write()
  process.sleep(start + SECTION - process.now())
  local waits = {}
  for i = 1, WRITES do
    local began = process.now()
    assert(lock:acquire(10))
    waits[i] = (process.now() - began) / SECTION
    assert(lock:release())
    process.sleep(SECTION * (0.3 + i / WRITES))
  end
  client:close()
  turns_of(workers)
  local title = "a writer among " .. READERS .. " readers waits, in their sections"
  report.row(title .. ", median", report.median(waits), "%.2f")
  report.row(title .. ", most", waits[#waits], "%.2f", "<=", WRITE_BAR)
end

local function free_permit(server)
  local pool = holdfast.new(server:url()):semaphore("bench:permits", { permits = PERMITS })
  return cost.of(server, CYCLES, function()
    for _ = 1, CYCLES do assert(assert(pool:acquire(1, 0)):release()) end
  end)
end

local function permit_hand_off(server)
  local workers, start = start_crowd(server, CROWD, SECONDS + 1, "permit",
    function() return "bench:crowd" end)
  process.sleep(start + 0.5 - process.now())
  local before = server:cli("GET", "bench:turns")
  local all = cost.of(server, 1, function() process.sleep(SECONDS) end, { incr = 0 })
  local turns = server:cli("GET", "bench:turns") - before
  local _, share = turns_of(workers)
  return { time = all.time / turns, inside = (all.inside - turns) / turns, share = share }
end

local function permits(server)
  local free, handed, ratios, shares = {}, {}, {}, {}
  local alone, crowd
  for round = 1, ROUNDS do
    alone, crowd = free_permit(server), permit_hand_off(server)
    free[round], handed[round] = alone.time, crowd.time
    ratios[round], shares[round] = alone.time / crowd.time, crowd.share
  end
  report.row("a free permit, scripts, µs", report.median(free), "%.2f")
  report.row("a free permit, commands inside", alone.inside, "%.1f")
  report.row(("a permit handed over among %d, scripts, µs"):format(CROWD), report.median(handed),
    "%.2f")
  report.row(("a permit handed over among %d, commands inside"):format(CROWD), crowd.inside, "%.1f")
  report.row("a free permit to that, server time", report.median(ratios), "%.2f", ">=", PERMIT_BAR)
  report.row(("least to fair share of permits among %d"):format(CROWD), report.median(shares),
    "%.2f", ">=", SHARE_BAR)
end

local function bare_permits(server)
  local least = permit_turns.measure(server, ROUNDS * 3, CYCLES / 2)
  for name, title in pairs { bare = "bare scripts", ours = "our scripts" } do
    local free, turn = least[name][1], least[name][2]
    report.row(title .. ": a free permit, µs", free.time, "%.2f")
    report.row(title .. ": a permit handed over, µs", turn.time, "%.2f")
    report.row(title .. ": commands inside", turn.inside, "%.1f")
    report.row(title .. ": a free permit to a hand-over", free.time / turn.time, "%.2f")
  end
  local ratio = least.ours[2].time / least.bare[2].time
  report.row("a hand-over to that of bare scripts", ratio, "%.2f", "<=", BARE_BAR)
end

assert(sys.pin(0, 0))
local server = redis.start()
readers(server)
writer(server)
permits(server)
bare_permits(server)
server:stop()
