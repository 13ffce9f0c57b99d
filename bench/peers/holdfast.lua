-- holdfast as one of bench/peers: one owner a process, because a wait blocks it.

local holdfast = require "holdfast"
local process = require "holdfast.process"
local sys = require "spec.support.sys"
local waits = require "bench.peers.waits"

local mode, port, key = arg[1], arg[2], arg[3]
local url = "redis://127.0.0.1:" .. port

local function sleep_until(time)
  local left = time - process.time()
  if left > 0 then sys.sleep(left) end
end

local function crowd(start, stop, section)
  local client = holdfast.new(url)
  local lock = client:lock(key)
  local counts, cycles = waits.new(), 0
  assert(client:ping())
  sleep_until(start)
  while process.time() < stop do
    local from = process.time()
    assert(lock:acquire(60))
    counts:add(process.time() - from)
    if section > 0 then sys.sleep(section) end
    if process.time() < stop then cycles = cycles + 1 end
    assert(lock:release())
  end
  client:close()
  print("owner " .. cycles)
  print("waits " .. counts:text())
end

local function held(count, seconds, lease)
  local client = holdfast.new { url = url, lease = lease }
  local locks = {}
  local from = process.time()
  for i = 1, count do
    locks[i] = client:lock(key .. i)
    assert(locks[i]:acquire(0))
  end
  print(("taken %.6f renewed"):format(process.time() - from))
  io.stdout:flush()
  sys.sleep(seconds)
  local lost = 0
  for _, lock in ipairs(locks) do
    if not lock:is_held() then lost = lost + 1 end
  end
  print("lost " .. lost)
  io.stdout:flush()
  client:close()
end

if mode == "crowd" then crowd(tonumber(arg[5]), tonumber(arg[6]), tonumber(arg[7]))
else held(tonumber(arg[4]), tonumber(arg[5]), tonumber(arg[6])) end
