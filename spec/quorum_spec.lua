-- A lock held by a majority of independent servers.

local holdfast = require "holdfast"
local crowd = require "spec.support.crowd"
local fails = require "spec.support.fails"
local leftovers = require "spec.support.leftovers"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new(false)

local unpack = table.unpack or unpack
local LEASE = 2 -- seconds

local servers

local function urls(list)
  local all = {}
  for i, server in ipairs(list or servers) do all[i] = server:url() end
  return all
end

local function quorum(opts)
  opts = opts or {}
  opts.servers = opts.servers or urls()
  opts.mode = "quorum"
  local client = holdfast.new(opts)
  world.clients[#world.clients + 1] = client
  return client
end

-- → how many servers have the key
local function standing(key)
  local count = 0
  for _, server in ipairs(servers) do
    if server:is_running() and server:cli("EXISTS", key) == 1 then count = count + 1 end
  end
  return count
end

local function wait_standing(key, count)
  return process.wait_until(function() return standing(key) == count end, 20)
end

-- Sends the command to the first `count` servers.
local function tell(count, ...)
  for i = 1, count do servers[i]:cli(...) end
end

-- Sends the signal to these servers, KILL by default.
local function signal(list, name)
  for _, i in ipairs(list) do servers[i]:kill(name) end
end

-- Closes the clients first, and asserts that nothing is left on the servers.
local function leaves_nothing()
  for _, client in ipairs(world.clients) do client:close() end
  for i, server in ipairs(servers) do
    if server:is_running() then
      assert(process.wait_until(function()
        local found = server:leaks()
        for _, key in ipairs(found.keys) do
          if not leftovers.may_stay(server, key) then return false end
        end
        return found.clients == 0
      end, 20), ("server %d: left %s"):format(i, table.concat(server:leaks().keys, " ")))
    end
    server:stop()
  end
end

describe("a quorum", function()
  before_each(function()
    world.open()
    servers = redis.several(5)
  end)

  after_each(function()
    for _, server in ipairs(servers) do
      if server:is_running() then server:kill("CONT") end
    end
    leaves_nothing()
    world.close()
  end)

  it("acquires, re-enters, extends, checks and releases a lock on all servers", function()
    local lock, began = quorum():lock("k"), process.now()
    assert.equal(lock, assert(lock:acquire(1)))
    assert.truthy(wait_standing("k", 5))
    local token = lock:token()
    assert.is_true(token > 0)
    assert(lock:acquire())
    assert.same({ 2, token }, { lock:holds(), lock:token() })
    assert.is_true(lock:extend(20))
    assert.is_true(lock:remaining() > 15 and lock:remaining() <= 20)
    assert.is_true(lock:check())
    local info = assert(lock:info())
    assert.same({ lock:owner(), 2 }, { info.owner, info.holds })
    assert.is_true(info.held_for >= 0 and info.held_for < process.now() - began)
    assert.is_true(lock:ttl() > 15)
    assert.is_true(lock:release())
    assert.same({ true, 5 }, { lock:is_held(), standing("k") })
    assert.is_true(lock:release())
    assert.is_false(lock:is_held())
    assert.truthy(wait_standing("k", 0))
    assert.is_nil(lock:ttl())
    fails("not_held", lock:release())
    assert.match("^holdfast.client: a quorum of 5 servers", tostring(world.clients[1]))
  end)

  it("excludes other quorum clients, and shows the votes in the busy message", function()
    local mine, other = quorum():lock("k"), quorum():lock("k")
    assert(mine:acquire())
    assert.truthy(wait_standing("k", 5))
    local message = fails("busy", other:try_acquire())
    assert.match("0 of 5 granted", message, 1, true)
    assert.match("busy", message)
    assert.equal(5, standing("k"))
    assert(mine:release()) assert(other:acquire(5)) assert(other:release())
  end)

  it("of an even number of servers needs more than half of them", function()
    local half = quorum { servers = urls { servers[3], servers[4] } }:lock("k")
    local four = quorum { servers = urls { unpack(servers, 1, 4) } }:lock("k")
    assert(half:acquire())
    fails("busy", four:acquire(0))
    assert.truthy(wait_standing("k", 2))
    assert(half:release()) assert(four:acquire(5)) assert(four:release())
  end)

  it("makes a waiter wait until the holder releases", function()
    local holder = world.program { args = { table.concat(urls(), ",") }, code = [[
      local servers = {}
      for url in arg[1]:gmatch("[^,]+") do servers[#servers + 1] = url end
      local lock = require("holdfast").new { servers = servers, mode = "quorum" }:lock("k")
      assert(lock:acquire())
      print("in")
      require("spec.support.process").sleep(0.5)
      assert(lock:release())
      print("out")
    ]] }
    assert.truthy(holder:wait_output("in", 20))
    local lock = quorum():lock("k")
    assert.truthy(lock:acquire(10))
    assert.truthy(holder:wait_output("out", 20))
    assert(lock:release())
  end)

  it("works with two of five servers down, and fails as no_quorum with three down", function()
    local client = quorum { command_timeout = 1 }
    local lock = client:lock("k")
    signal { 1, 2 }
    assert(lock:acquire(5)) assert(lock:release())
    signal { 3 }
    local message = fails("no_quorum", lock:acquire(0))
    assert.match("[012] of 5 granted", message)
    assert.match(servers[3].path, message, 1, true)
    assert.truthy(wait_standing("k", 0))
    assert.match("[012] of 5 answered", fails("no_quorum", lock:info()))
  end)

  it("returns busy, not no_quorum, if one of three servers is down and the lock is held", function()
    local three = { urls()[1], urls()[2], urls()[3] }
    local lock = quorum { servers = three }:lock("k")
    assert(lock:acquire())
    servers[1]:kill("KILL")
    local other = quorum { servers = three }:lock("k")
    for _ = 1, 50 do assert.equal("busy", select(3, other:try_acquire())) end
    fails("busy", other:acquire(1))
    assert(lock:release()) assert(other:acquire(5)) assert(other:release())
  end)

  it("is not slowed by a minority of hung servers", function()
    local client = quorum { command_timeout = 20, connect_timeout = 20 }
    local lock = client:lock("k")
    assert(lock:acquire()) assert(lock:release())
    signal({ 1, 4 }, "STOP")
    local from = process.now()
    for _ = 1, 10 do assert(lock:acquire()) assert(lock:release()) end
    assert.is_true(process.now() - from < 10)
    signal({ 1, 4 }, "CONT")
  end)

  it("ends a wait at its deadline if a majority hangs", function()
    local lock = quorum { command_timeout = 20, connect_timeout = 20 }:lock("k")
    assert(lock:acquire()) assert(lock:release())
    signal({ 1, 2, 3 }, "STOP")
    for _ = 1, 3 do
      local from = process.now()
      fails("no_quorum", lock:acquire(0.3))
      assert.is_true(process.now() - from < 10)
    end
    signal({ 1, 2, 3 }, "CONT")
  end)

  it("waits only briefly for a hung server whose vote would be decisive", function()
    local mine = quorum { command_timeout = 20 }:lock("k")
    tell(2, "SET", "k", "x", "PX", 60000)
    assert(mine:acquire(0)) -- three are a majority
    assert(mine:release())
    servers[3]:kill("STOP")
    local from = process.now()
    local got, _, code = mine:acquire(0)
    assert.is_nil(got)
    assert.is_true(code == "no_quorum" or code == "conflict", code)
    assert.is_true(process.now() - from < 10)
    servers[3]:kill("CONT")
    assert.truthy(process.wait_until(function() return standing("k") == 2 end, 20))
    tell(2, "DEL", "k")
  end)

  it("releases what it acquired on a minority", function()
    for i = 1, 3 do
      servers[i]:cli("HSET", "k", "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:1", 1)
      servers[i]:cli("PEXPIRE", "k", 60000)
    end
    assert.match("[012] of 5 granted", fails("busy", quorum():lock("k"):try_acquire()))
    assert.truthy(wait_standing("k", 3))
    tell(3, "DEL", "k")
  end)

  it("renews a held lock even if only a majority is up", function()
    local lock = quorum { lease = LEASE }:lock("k")
    assert(lock:acquire())
    signal { 5, 2 }
    process.sleep(1.5 * LEASE)
    assert.is_true(lock:is_held() and lock:check())
    assert(lock:release())
    assert.truthy(wait_standing("k", 0))
  end)

  it("reports a loss when a majority cannot renew the lock", function()
    local lost
    local client = quorum { lease = LEASE, command_timeout = 1 }
    local lock = client:lock("k", { on_lost = function(_, reason) lost = reason end })
    assert(lock:acquire())
    signal { 1, 2, 3 }
    assert.truthy(process.wait_until(function() return not lock:is_held() end, 20))
    assert.same({ "unreachable", "unreachable" }, { lock:lost(), lost })
    fails("lost", lock:release())
    assert.truthy(wait_standing("k", 0))
  end)

  it("reports a loss at the next renewal when a majority no longer has the lock", function()
    local lock = quorum { lease = 6 }:lock("k")
    assert(lock:acquire())
    assert.truthy(wait_standing("k", 5))
    for i = 1, 2 do servers[i]:restart(false) end
    assert.truthy(wait_standing("k", 5)) -- renewals write the key again
    assert.is_true(lock:is_held())
    -- a foreign key, so that renewals cannot write the lock again
    tell(3, "EVAL", "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'rival', 1) "
      .. "return redis.call('PEXPIRE', KEYS[1], 30000)", 1, "k")
    local from = process.now()
    assert.truthy(process.wait_until(function() return not lock:is_held() end, 20))
    assert.is_true(process.now() - from < 3.5, "lost only at the end of its lease")
    assert.equal("taken", lock:lost())
    fails("lost", lock:release())
    tell(3, "DEL", "k")
  end)

  it("does not query the uptime of its servers without restart_guard", function()
    local function gets()
      return tonumber(servers[1]:cli("INFO", "commandstats"):match("cmdstat_get:calls=(%d+)") or 0)
    end
    for guard, asks in pairs { [0] = false, [60] = true } do
      local before = gets()
      local client = quorum { fencing = false, restart_guard = guard > 0 and guard or nil }
      client:lock("k"):try_acquire()
      local function has_asked() return gets() > before end -- perhaps the last of the three
      assert.equal(asks, asks and process.wait_until(has_asked, 10) or has_asked())
      client:close()
    end
  end)

  it("lets no second owner in through servers that lost the lock, with restart_guard", function()
    local lock = quorum { lease = 2, restart_guard = 3 }:lock("k")
    local other = quorum { lease = 2, restart_guard = 3 }:lock("k")
    assert(process.wait_until(function() -- the servers have just started
      return lock:try_acquire()
    end, 20))
    assert.truthy(wait_standing("k", 5))
    for i = 1, 3 do servers[i]:restart(false) end
    local first = process.wait_until(function()
      if other:try_acquire() then return lock:is_held() and "two" or "one" end
    end, 15)
    assert.equal("one", first)
    fails("lost", lock:release())
    assert(other:release())
  end)

  it("measures restart_guard by its own clock, not by the clock of a restarted server", function()
    for _, server in ipairs(servers) do server:stop() end
    servers = redis.several(3, { clock = true })
    local lock = quorum { lease = 6, restart_guard = 6 }:lock("k")
    local other = quorum { lease = 6, restart_guard = 6 }:lock("k")
    assert(process.wait_until(function() return lock:try_acquire() end, 30))
    assert.truthy(wait_standing("k", 3))
    for i = 2, 3 do
      servers[i]:restart(false)
      servers[i]:set_clock(3600)
      assert(process.wait_until(function()
        return tonumber(servers[i]:cli("INFO", "server"):match("uptime_in_seconds:(%d+)")) > 3000
      end))
    end
    assert.match("restarted recently", (select(2, other:acquire(0))))
    assert(other:acquire(60)) -- waits for the guard
    assert.is_false(lock:is_held())
    assert(other:release())
  end)

  it("trusts a record by another client that a server has been up long enough", function()
    local first = quorum { restart_guard = 2 }:lock("k")
    local function is_marked(server)
      return server:cli("GET", "holdfast_known") == server:cli("INFO", "server"):match("run_id:(%w+)")
    end
    assert.truthy(process.wait_until(function() -- each server is marked over its own connection
      assert(first:acquire(10)) assert(first:release())
      for _, server in ipairs(servers) do
        if not is_marked(server) then return false end
      end
      return true
    end, 20))
    local later = quorum { restart_guard = 60 }:lock("k")
    assert(later:acquire(0)) assert(later:release())
    assert.truthy(wait_standing("k", 0))
    for i = 1, 3 do servers[i]:restart(true) end -- with the mark of the earlier run
    assert.equal("no_quorum", (select(3, quorum { restart_guard = 60 }:lock("k"):acquire(0))))
  end)

  it("draws tokens that rise from hold to hold, even across different majorities", function()
    local a, b = quorum():lock("k"), quorum():lock("k")
    local last = 0
    for i = 1, 20 do
      local lock = i % 2 == 0 and a or b
      local down = { servers[i % 5 + 1], servers[(i + 2) % 5 + 1] }
      for _, server in ipairs(down) do server:kill("STOP") end
      assert(lock:acquire(10))
      assert.is_true(lock:token() > last)
      last = lock:token()
      assert(lock:release())
      for _, server in ipairs(down) do server:kill("CONT") end
    end
  end)

  it("stores the highest token on a majority", function()
    servers[2]:cli("SET", "redisson_lock_token:{k}", "7000000000000000")
    signal({ 4, 5 }, "STOP")
    local lock = assert(quorum():lock("k"):acquire(5))
    assert.equal(7000000000000001, lock:token())
    for i = 1, 3 do
      assert.equal("7000000000000001", servers[i]:cli("GET", "redisson_lock_token:{k}"))
    end
    assert(lock:release())
    signal({ 4, 5 }, "CONT")
  end)

  it("never has two owners while servers hang and die", function()
    local group = crowd.new({ url = function() return table.concat(urls(), ",") end }, "k")
    for i = 1, 4 do group:add("p" .. i, { turns = 10, inside = 0.001 }) end
    process.sleep(0.2)
    servers[3]:kill("STOP")
    process.sleep(0.2)
    servers[3]:kill("CONT")
    servers[1]:kill()
    crowd.assert_rising(group:assert_turns(40, 60).tokens)
    group:stop()
  end)

  it("releases the lock of a collected handle and of a closed client", function()
    local client = quorum()
    do
      local lock = client:lock("k")
      assert(lock:acquire())
      assert.truthy(wait_standing("k", 5))
    end
    collectgarbage() collectgarbage()
    assert.truthy(wait_standing("k", 0))
    local held = assert(client:lock("k"):acquire()) -- luacheck: ignore 211 (lasts)
    client:close()
    assert.truthy(wait_standing("k", 0))
  end)

  it("force-releases a lock on all servers", function()
    local lock, other = quorum():lock("k"), quorum():lock("k")
    assert.is_false(other:force_release())
    assert(lock:acquire())
    assert.truthy(wait_standing("k", 5))
    assert.is_true(other:force_release())
    assert.truthy(wait_standing("k", 0))
    fails("lost", lock:check())
    fails("lost", lock:release())
  end)

  it("retries writing the record of an idempotent run until a majority accepts it", function()
    local client, runs = quorum { command_timeout = 0.3 }, 0
    local function run()
      runs = runs + 1
      tell(3, "REPLICAOF", "127.0.0.1", "1")
    end
    fails("no_quorum", client:idempotent("job", { expire = 20 }, run))
    tell(3, "REPLICAOF", "NO", "ONE")
    assert.truthy(process.wait_until(function()
      local recorded = 0
      for _, server in ipairs(servers) do recorded = recorded + server:cli("HEXISTS", "job", "done") end
      return recorded >= 3
    end))
    fails("duplicate", client:idempotent("job", { expire = 20 }, run))
    assert.equal(1, runs)
    tell(5, "DEL", "job")
  end)

  it("supports with_lock, one_by_one and idempotent", function()
    local client = quorum()
    assert.equal("done", client:with_lock("k", function(lock)
      assert.is_true(lock:is_held())
      return "done"
    end))
    assert.equal(7, client:one_by_one():execute("order", 7, function() return 7 end))
    local runs = 0
    local function run()
      runs = runs + 1
      return "paid", runs
    end
    for _ = 1, 2 do
      assert.same({ "paid", 1 }, { client:idempotent("job", { expire = 20, replay = true }, run) })
    end
    fails("duplicate", client:idempotent("job", { expire = 20 }, run))
    assert.equal(1, runs)
    tell(5, "DEL", "job")
    local both = assert(client:multi_lock({ "a", "b" }):acquire(5))
    assert.truthy(wait_standing("a", 5))
    assert(both:release())
    local mutex = assert(client:mutex("m"):acquire())
    fails("busy", mutex:try_acquire())
    assert(mutex:release())
    assert.is_true(client:ping() > 0)
  end)

  it("lets a second process join a shared owner", function()
    local a, b = quorum():lock("k", { owner = "job-7" }), quorum():lock("k", { owner = "job-7" })
    assert(a:acquire())
    assert.truthy(wait_standing("k", 5))
    assert(b:acquire(5)) assert(a:release())
    assert.is_true(b:check())
    assert.truthy(wait_standing("k", 5))
    assert(b:release())
    assert.truthy(wait_standing("k", 0))
  end)

  it("ends a wait for a held lock at its deadline", function()
    local holder = assert(quorum():lock("k"):acquire())
    local from = process.now()
    assert.match("granted", fails("busy", quorum():lock("k"):acquire(1)))
    assert.is_true(process.now() - from >= 0.99)
    assert(holder:release())
  end)

  it("names the servers that deny access, and fails with denied if they prevent a majority", function()
    tell(2, "CONFIG", "SET", "requirepass", "secret")
    local lock = quorum():lock("k")
    assert(lock:acquire(5)) assert(lock:release())
    servers[3]:cli("CONFIG", "SET", "requirepass", "secret")
    local refused, result = quorum():lock("k"), nil
    -- one server may answer late, another may not have got the release yet
    process.wait_until(function()
      result = { refused:acquire(0) }
      return result[3] ~= "no_quorum" and result[3] ~= "busy"
    end, 20)
    local message = fails("denied", unpack(result, 1, 3))
    assert.match(servers[1].path, message, 1, true)
    assert.match("NOAUTH", message)
    tell(3, "CONFIG", "SET", "requirepass", "")
  end)

  it("names unreachable servers in its message", function()
    local list = urls()
    list[1], list[2], list[3] = "redis://127.0.0.1:1", "redis://no-such-host.invalid", "unix:///nowhere/redis.sock"
    local message = fails("no_quorum", quorum({ servers = list, connect_timeout = 2 }):lock("k"):acquire(0))
    assert.match("127.0.0.1:1 ", message, 1, true)
    assert.match("unix:/nowhere/redis.sock ", message, 1, true)
  end)

  it("aborts the function on a loss, with abort_on_loss", function()
    local client, reported = quorum { lease = LEASE }, nil
    local opts = { abort_on_loss = true, on_lost = function(_, reason) reported = reason end }
    local _, _, code = client:with_lock("k", opts, function()
      assert.truthy(wait_standing("k", 5))
      local stop, sum = process.now() + 20, 0
      while process.now() < stop do
        tell(3, "DEL", "k") -- a renewal in between would write the key again
        for i = 1, 20000 do sum = sum + i % 7 end
      end
      error("ran to its end")
    end)
    assert.same({ "lost", "deleted" }, { code, reported })
    assert.truthy(wait_standing("k", 0))
  end)

  it("gives a forked child a separate identity, which does not hold its parent's locks", function()
    local client = quorum()
    local lock = assert(client:lock("k"):acquire())
    assert.truthy(wait_standing("k", 5))
    local pid = assert(sys.fork())
    if pid == 0 then
      local ok, good = pcall(function()
        local other = client:lock("k")
        local busy = select(3, other:try_acquire()) == "busy"
        local own = client:lock("child")
        return busy and not lock:is_held() and own:acquire(5) and own:release()
          and wait_standing("child", 0) -- a minority may get the release later
      end)
      sys.exit(ok and good and 0 or 1)
    end
    local how, code
    assert(process.wait_until(function()
      how, code = sys.wait(pid)
      return how
    end, 20))
    assert.same({ "exit", 0 }, { how, code })
    assert.is_true(lock:check())
    assert(lock:release())
  end)

  it("treats coroutines as separate owners", function()
    local client = quorum()
    local lock = assert(client:lock("k"):acquire())
    local code = coroutine.wrap(function() return select(3, client:lock("k"):try_acquire()) end)()
    assert.equal("busy", code)
    assert(lock:release())
    assert.is_true(coroutine.wrap(function()
      local own = client:lock("k")
      return own:acquire(5) and own:release()
    end)())
  end)

  for what, case in pairs {
    ["a minority hangs"] = { { 2, 5 }, 20 }, ["a majority hangs"] = { { 1, 2, 3 }, 2 },
  } do
    it("closes soon while " .. what, function()
      local hung, client = case[1], quorum { command_timeout = case[2] }
      local lock = client:lock("k")
      assert(lock:acquire() and lock:release() and lock:acquire())
      signal(hung, "STOP")
      local from = process.now()
      client:close()
      assert.is_true(process.now() - from < 10)
      fails("closed", lock:acquire())
      if #hung == 2 then
        for _, i in ipairs { 1, 3, 4 } do assert.equal(0, servers[i]:cli("EXISTS", "k")) end
      end
      signal(hung, "CONT")
      tell(5, "DEL", "k")
    end)
  end

  it("ends an interruptible wait on a signal", function()
    local holder = assert(quorum():lock("k"):acquire())
    local child = world.program { args = { table.concat(urls(), ",") }, code = [[
      local sys = require "spec.support.sys"
      assert(sys.catch(10))
      local servers = {}
      for url in arg[1]:gmatch("[^,]+") do servers[#servers + 1] = url end
      local client = require("holdfast").new { servers = servers, mode = "quorum" }
      print("waits")
      io.stdout:flush()
      local got, _, code = client:lock("k", { interruptible = true }):acquire(math.huge)
      print("result", got or code, client:stats().waits)
      client:close()
    ]] }
    assert.truthy(child:wait_output("waits", 20))
    process.sleep(0.3)
    child:kill("USR1")
    assert.same({ "exit", 0 }, { child:wait(20) })
    assert.matches("result\tinterrupted\t1", child:output())
    assert(holder:release())
  end)

  it("uses a restarted server again at once, even if a release there is pending", function()
    local client = quorum { lease = LEASE, command_timeout = 5 }
    local lock = assert(client:lock("k"):acquire())
    signal { 1, 2, 3 }
    assert.truthy(process.wait_until(function() return not lock:is_held() end, 20))
    lock:release()
    fails("no_quorum", lock:acquire(0))
    servers[3]:restart(false)
    assert(lock:acquire(0)) assert(lock:release())
  end)

  it("counts each call once in its statistics, not once per server", function()
    local client = quorum()
    local lock = client:lock("k")
    assert(lock:acquire() and lock:acquire() and lock:release() and lock:release())
    local stats = client:stats()
    assert.same({ 1, 1, 2, 0, 0 },
      { stats.acquires, stats.reentries, stats.releases, stats.losses, stats.holds })
    assert.is_true(stats.connections >= 5)
  end)

  it("does not mistake locks and idempotent runs on one key for each other", function()
    local first, second = quorum(), quorum()
    local function run_twice() error "it ran" end
    assert(first:with_lock("k", function()
      fails("conflict", second:idempotent("k", run_twice))
      fails("conflict", first:idempotent("k", { wait = 20 }, run_twice))
      return true
    end))
    assert.truthy(wait_standing("k", 0))
    assert(first:idempotent("k", { delete_key = true }, function()
      fails("duplicate", second:idempotent("k", run_twice))
      fails("conflict", second:lock("k"):acquire(0))
      fails("conflict", first:lock("k"):acquire(20))
      return true
    end))
  end)

  it("fails with conflict on a key of another type", function()
    tell(5, "SET", "k", "x", "PX", 60000)
    local lock = quorum():lock("k")
    fails("conflict", lock:acquire(0))
    fails("conflict", lock:info())
    tell(5, "DEL", "k")
  end)
end)
