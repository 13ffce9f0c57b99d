-- A flash sale: eight processes sell 100 items, each by reading the stock, thinking, and writing it
-- back. Without a lock they sell the same item more than once. With a lock they sell exactly 100.
-- And when the process that holds the lock is killed, the next one gets in within the lease.
--
-- Runs on a redis-server of its own on a private unix socket: make demo

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"
local stage = require "spec.support.stage"
local sys = require "spec.support.sys"

local ITEMS, SELLERS, THINK, LEASE = 100, 8, 0.001, 2

local say, verdict = stage.say, stage.verdict

local function in_child(work)
  local pid = assert(sys.fork())
  if pid ~= 0 then return pid end
  local ok, err = pcall(work)
  if not ok then io.stderr:write(tostring(err), "\n") end
  sys.exit(ok and 0 or 1)
end

local function wait_for(pid)
  local how, code
  assert(process.wait_until(function()
    how, code = sys.wait(pid)
    return how
  end, 60), "a seller does not come to an end")
  return how == "exit" and code == 0
end

-- The code that needs a lock: between the read and the write, others read too.
local function sell_one(store)
  local stock = tonumber(store:call("GET", "stock"))
  if stock <= 0 then return false end
  sys.sleep(THINK)
  store:call("SET", "stock", stock - 1)
  store:call("INCR", "sold")
  return true
end

local function sell_unlocked(store)
  while sell_one(store) do end
end

local function sell_locked(store, url)
  local client = holdfast.new(url)
  repeat
    local more = assert(client:with_lock("sale", function() return { sell_one(store) } end))
  until not more[1]
  client:close()
end

local function sale(server, sell)
  server:cli("SET", "stock", ITEMS)
  server:cli("SET", "sold", 0)
  local started, pids = process.now(), {}
  for i = 1, SELLERS do
    pids[i] = in_child(function()
      sell(assert(resp.connect { path = server.path }), server:url())
    end)
  end
  local good = true
  for _, pid in ipairs(pids) do good = wait_for(pid) and good end
  assert(good, "a seller failed")
  return tonumber(server:cli("GET", "sold")), process.now() - started
end

local function without_lock(server)
  say("1. %d processes, %d items, no lock", SELLERS, ITEMS)
  local sold, seconds = sale(server, sell_unlocked)
  verdict(sold > ITEMS, ("%d sold in %.2f s: %d that nobody has"):format(sold, seconds, sold
    - ITEMS))
end

local function with_lock(server)
  say("2. the same, each sale inside client:with_lock")
  local sold, seconds = sale(server, sell_locked)
  verdict(sold == ITEMS, ("%d sold in %.2f s"):format(sold, seconds))
end

local function hold_for_ever(server)
  local client = holdfast.new { url = server:url(), lease = LEASE }
  assert(client:lock("sale"):acquire())
  server:cli("SET", "holding", 1)
  process.sleep(600)
end

local function kill_the_holder(server)
  say("3. a holder is killed with -9; the lease is %d s", LEASE)
  local pid = in_child(function()
    server.control = nil
    hold_for_ever(server)
  end)
  assert(process.wait_until(function()
    return server:cli("GET", "holding")
  end, 10), "the holder never got its lock")
  local client = holdfast.new(server:url())
  local lock = client:lock("sale")
  process.sleep(LEASE * 1.5)
  verdict(lock:is_locked(), ("after %.1f s it holds: its lease is renewed"):format(LEASE * 1.5))
  local killed = process.now()
  sys.kill(pid, 9)
  wait_for(pid)
  assert(lock:acquire())
  local waited = process.now() - killed
  verdict(waited <= LEASE + 0.5, ("%.2f s after the kill the next one is in"):format(waited))
  lock:release()
  client:close()
end

local server = redis.start()
local ok, err = xpcall(function()
  without_lock(server)
  with_lock(server)
  kill_the_holder(server)
end, debug.traceback)
server:stop()
if not ok then io.stderr:write(err, "\n") end
os.exit(ok and stage.failures == 0 and 0 or 1, true)
