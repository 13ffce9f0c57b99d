-- One process of a soak: uses locks of every kind until its end, and writes a line for
-- each interval:
--
--   at=<s> rss=<KB> fds=<n> done=<n> failed=<n> p50=<ms> p90=<ms> p99=<ms>
--
-- Arguments are NAME=VALUE: url, file, seed, permits (of both semaphores), stop (a monotonic time),
-- every (seconds of an interval)

local process = require "spec.support.process"
local sys = require "spec.support.sys"
local Prng = require "spec.sim.prng"

local options = require "spec.support.arguments"(arg, 1)

local MAX_WAIT = 2
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

-- ---- what it does ----

local function work() sys.sleep(prng:range(0, 3) / 1000) end

local shared = client:lock("shared", { owner = "soak" })
local use = {}

local function timed(lock)
  local begun = sys.now()
  local ok, _, code = lock:acquire(MAX_WAIT)
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
  local ok, _, code = client:lock("dropped"):acquire(MAX_WAIT)
  local waited = sys.now() - begun
  collectgarbage()
  return not ok and code or nil, waited
end

function use.once()
  local begun = sys.now()
  local _, _, code = client:idempotent("once:" .. prng:range(1, 50), { expire = 0.05 }, work)
  return code ~= "duplicate" and code or nil, sys.now() - begun
end

local both = client:read_write_lock("rw")
function use.read() return timed(both:read()) end
function use.write() return timed(both:write()) end
function use.fair() return timed(client:fair_lock("fair")) end
function use.kept() return timed(client:lock("kept", { keep = 0.5 })) end

function use.permits()
  local begun = sys.now()
  local permit, _, code = client:semaphore("pool", { permits = options.permits })
    :acquire(prng:range(1, options.permits), MAX_WAIT)
  local waited = sys.now() - begun
  if not permit then return code, waited end
  work()
  local released, _, why = permit:release()
  return not released and why or nil, waited
end

function use.plain()
  local begun, places = sys.now(), client:plain_semaphore("places")
  local count = prng:range(1, options.permits)
  local ok, _, code = places:acquire(count, MAX_WAIT)
  local waited = sys.now() - begun
  if not ok then return code, waited end
  work()
  local released, _, why = places:release(count)
  return not released and why or nil, waited
end

-- Sets a latch if there is none; each call opens it.
function use.latch()
  local begun, gate = sys.now(), client:latch("gate")
  gate:set(1)
  local _, _, code = gate:count_down()
  local ok, _, why = gate:wait(MAX_WAIT)
  return code or not ok and why or nil, sys.now() - begun
end

function use.lead()
  local begun, waited = sys.now(), nil
  local _, _, code = client:lead("boss", { once = true }, function()
    waited = sys.now() - begun
    work()
    return true
  end)
  return code, waited or sys.now() - begun
end

local KINDS = {
  "lock", "lock", "mutex", "several", "shared", "entered", "dropped", "once", "read", "read",
  "write", "fair", "kept", "permits", "plain", "latch", "lead",
}

-- ---- intervals ----

local function percentile(list, share) return list[math.max(1, math.ceil(#list * share))] or 0 end

local function report(waits, failed, begun)
  table.sort(waits)
  file:write(("at=%.1f rss=%d fds=%d done=%d failed=%d p50=%.2f p90=%.2f p99=%.2f\n"):format(begun,
    rss(),
    process.descriptors(), #waits, failed, percentile(waits, 0.5) * 1e3,
    percentile(waits, 0.9) * 1e3,
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
