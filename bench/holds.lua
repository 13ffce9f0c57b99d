-- Many held locks with a short lease, which are renewed in the background for longer than the lease
-- while the program sleeps. HOLDFAST_BENCH_SECONDS=30: for how long.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local HOLDS, LEASE, SECONDS = 10000, 3, tonumber(os.getenv "HOLDFAST_BENCH_SECONDS") or 30
local CPU_BAR, BYTES_BAR, ALL_BYTES_BAR, OPTIONS_BYTES_BAR = 0.25, 512, 1300, 1700

-- → the memory of C, and of C and Lua, in bytes
local function memory_now()
  collectgarbage()
  collectgarbage()
  local lua_heap, allocated = collectgarbage("count") * 1024, sys.allocated() or 0
  if rawget(_G, "jit") then return allocated, allocated + lua_heap end -- its own allocator
  return allocated - lua_heap, allocated
end

local function cpu()
  local user, system = sys.cpu()
  return user + system
end

local function held_of(locks)
  local held = 0
  for _, lock in ipairs(locks) do
    if lock:is_held() and not lock:lost() then held = held + 1 end
  end
  return held
end

local server = redis.start()
local client = holdfast.new { url = server:url(), lease = LEASE }
local locks = {}
for i = 1, HOLDS do locks[i] = false end

local _, before = memory_now()
for i = 1, HOLDS do locks[i] = client:lock("bench:hold:" .. i) end
local handles = memory_now()
for _, lock in ipairs(locks) do assert(lock:acquire(0)) end
local c_memory, all_memory = memory_now()

local used, start = cpu(), process.now()
process.sleep(SECONDS)
used = (cpu() - used) / (process.now() - start)

report.row(("%d locks, lease %d s, lost in %d s"):format(HOLDS, LEASE, SECONDS), HOLDS
  - held_of(locks), "%d", "<=", 0)
report.row("their keys gone from the server", HOLDS - #server:cli("KEYS", "bench:hold:*"), "%d",
  "<=", 0)
report.row("share of one core used by renewal", used, "%.3f", "<=", CPU_BAR)
report.row("bytes of C memory for a hold", (c_memory - handles) / HOLDS, "%.0f", "<=", BYTES_BAR)
report.row("bytes for a handle and its hold", (all_memory - before) / HOLDS, "%.0f", "<=", ALL_BYTES_BAR)

local with_options = {}
for i = 1, HOLDS do with_options[i] = false end
_, before = memory_now()
for i = 1, HOLDS do
  with_options[i] = client:lock("bench:options:" .. i, { lease = LEASE, watchdog = true })
  assert(with_options[i]:acquire(0))
end
_, all_memory = memory_now()
report.row("bytes for a handle with options and its hold", (all_memory - before) / HOLDS, "%.0f", "<=",
  OPTIONS_BYTES_BAR)

client:close()
server:stop()
