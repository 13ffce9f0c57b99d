-- One process of a soak: uses locks of every kind until it is told to end, and writes a line for
-- each interval:
--
--   at=<s> rss=<KB> fds=<n> done=<n> failed=<n> p50=<ms> p90=<ms> p99=<ms>
--
-- Arguments are NAME=VALUE: url, file, seed, stop (a monotonic time), every (seconds of an
-- interval)

local lfs = require "lfs"
local sys = require "spec.support.sys"
local Prng = require "spec.sim.prng"

local options = {}
for i = 1, #arg do
  local name, value = arg[i]:match("^(%a+)=(.*)$")
  options[name] = tonumber(value) or value
end

local MOST_WAIT = 2
local prng = Prng.new(options.seed)
local client = require("holdfast").new {
  url = options.url, lease = 2, grant_lease = 0.5, connect_timeout = 0.5, command_timeout = 0.5,
}
local file = assert(io.open(options.file, "a"))
file:setvbuf("line")

local function rss()
  local status = assert(io.open("/proc/self/status"))
  local text = status:read("*a")
  status:close()
  return tonumber(text:match("VmRSS:%s+(%d+)"))
end

local function descriptors()
  local count = 0
  for _ in lfs.dir("/proc/self/fd") do count = count + 1 end
  return count
end

-- ---- what it does ----

local function work() sys.sleep(prng:range(0, 3) / 1000) end

local shared = client:lock("shared", { owner = "soak" })
local use = {}

local function timed(lock)
  local begun = sys.now()
  local ok, _, code = lock:acquire(MOST_WAIT)
  local waited = sys.now() - begun
  if not ok then return code, waited end
  work()
  local released, _, why = lock:release()
  return not released and why or nil, waited
end

function use.lock() return timed(client:lock("lock")) end
function use.mutex() return timed(client:mutex("mutex")) end
function use.several() return timed(client:multi_lock { "a", "b", "c" }) end
function use.shared() return timed(shared) end

function use.entered()
  local lock = client:lock("lock")
  local code, waited = timed(lock)
  if code then return code, waited end
  if lock:acquire(0) then
    lock:acquire(0)
    lock:check()
    lock:release()
    lock:release()
  end
  return nil, waited
end

function use.dropped()
  local begun = sys.now()
  local ok, _, code = client:lock("dropped"):acquire(MOST_WAIT)
  local waited = sys.now() - begun
  collectgarbage()
  return not ok and code or nil, waited
end

function use.once()
  local begun = sys.now()
  local _, _, code = client:idempotent("once:" .. prng:range(1, 50), { expire = 0.05 }, work)
  return code ~= "duplicate" and code or nil, sys.now() - begun
end

local KINDS = { "lock", "lock", "mutex", "several", "shared", "entered", "dropped", "once" }

-- ---- intervals ----

local function percentile(list, share)
  return list[math.max(1, math.ceil(#list * share))] or 0
end

local function report(waits, failed, begun)
  table.sort(waits)
  file:write(("at=%.1f rss=%d fds=%d done=%d failed=%d p50=%.2f p90=%.2f p99=%.2f\n"):format(begun,
    rss(),
    descriptors(), #waits, failed, percentile(waits, 0.5) * 1e3, percentile(waits, 0.9) * 1e3,
    percentile(waits, 0.99) * 1e3))
end

while sys.now() < options.stop do
  local begun, waits, failed = sys.now(), {}, 0
  repeat
    local code, waited = use[prng:pick(KINDS)]()
    if code then failed = failed + 1 end
    waits[#waits + 1] = waited
  until sys.now() - begun >= options.every
  collectgarbage()
  report(waits, failed, begun)
end
client:close()
