-- A flash sale: eight processes sell 100 items, each by reading the stock, thinking, and writing it
-- back. Without a lock they sell the same item more than once. With a lock they sell exactly 100.
-- When the process that holds the lock is killed, the next one gets it once the lease has ended.
--
-- make demo starts a separate redis-server for it on a private unix socket.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"
local stage = require "spec.support.stage"
local sys = require "spec.support.sys"

local ITEMS, SELLERS, THINK, LEASE = 100, 8, 0.01, 2

local say, verdict = stage.say, stage.verdict

local function in_child(work)
  local pid = assert(sys.fork())
  if pid ~= 0 then return pid end
  local ok, err = pcall(work)
  if not ok then io.stderr:write(tostring(err), "\n") end
  sys.exit(ok and 0 or 1)
end

-- Waits until the process ends, and calls look() now and then. → whether it succeeded
local function wait_for(pid, look)
  local how, code
  assert(process.wait_until(function()
    how, code = sys.wait(pid)
    if look then look() end
    return how
  end, 60), "a seller did not end")
  return how == "exit" and code == 0
end

-- The code that needs a lock: between its read and its write, others read the same stock.
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
  local function draw(is_last) stage.bar(tonumber(server:cli("GET", "sold")), ITEMS, is_last) end
  for _, pid in ipairs(pids) do good = wait_for(pid, stage.is_live and draw) and good end
  local seconds = process.now() - started
  assert(good, "a seller failed")
  draw(true)
  return tonumber(server:cli("GET", "sold")), seconds
end

local function without_lock(server)
  say("1. %d processes sell %d items without a lock", SELLERS, ITEMS)
  local sold, seconds = sale(server, sell_unlocked)
  verdict(sold > ITEMS, ("%d sold in %.2f s, %d more than there were"):format(sold, seconds, sold
    - ITEMS), true)
end

local function with_lock(server)
  say("2. the same, with each sale inside client:with_lock")
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
  say("3. the holder is killed with -9; its lease is %d s", LEASE)
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
  verdict(lock:is_locked(), ("after %.1f s it still holds the lock: the lease is renewed"):format(LEASE * 1.5))
  local killed = process.now()
  sys.kill(pid, 9)
  wait_for(pid)
  assert(lock:acquire())
  local waited = process.now() - killed
  verdict(waited <= LEASE + 0.5, ("%.2f s after the kill the next process has the lock"):format(waited))
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
