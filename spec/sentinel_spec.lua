local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local leaks = require "spec.support.leaks"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"

local PATIENCE = 30 -- seconds, enough for a busy machine

local set, clients

local function client(options)
  options.url = options.url or set:url()
  local one = holdfast.new(options)
  clients[#clients + 1] = one
  return one
end

local function start(options)
  set = sentinel.start(options)
  return set
end

local eventually = process.eventually

local function fails(code, text, got, message, kind)
  assert.is_nil(got)
  assert.are.equal(code, kind)
  assert.is_truthy(message:find(text, 1, true), message)
end

-- Makes the replica receive nothing from its master from now on.
local function cut_off(replica, master)
  replica:cli("CONFIG", "SET", "masterauth", "wrong")
  master:cli("CLIENT", "KILL", "TYPE", "replica")
end

-- Undoes this also in the replica's file, to which a failover has written it.
local function mend(replica)
  replica:cli("CONFIG", "SET", "masterauth", "data")
  assert.are.equal("OK", replica:cli("CONFIG", "REWRITE"))
end

before_each(function() clients = {} end)

after_each(function()
  for _, one in ipairs(clients) do one:close() end
  if set then set:stop() end
  set = nil
end)

describe("a client of Sentinels", function()
  it("finds the master, and uses the master's login and database for it", function()
    start { password = "data", sentinel_password = "watch" }
    local lock = client({ url = set:url(3), sentinel_password = "watch" }):lock("k")
    assert(lock:acquire(0))
    local master = set:master()
    assert.are.equal(1, master:cli("EVAL", "redis.call('SELECT', 3) return redis.call('EXISTS', 'k')", 0))
    assert(lock:release())
    for _, server in ipairs(set:replicas()) do
      assert.is_nil(server:cli("CLIENT", "LIST"):find("name=holdfast ", 1, true))
    end
  end)
end)

describe("after a failover", function()
  local function acquire(lock) return assert(lock:acquire(0)) end
  local function is_busy(lock) return select(3, lock:acquire(0)) == "busy" end

  -- kind → hold(client) → what it holds; try(client) → whether others are kept out
  local KINDS = {
    lock = {
      hold = function(one) return acquire(one:lock "k") end,
      try = function(one) return is_busy(one:lock "k") end,
    },
    semaphore = {
      hold = function(one) return assert(one:semaphore("k", { permits = 2 }):acquire(2, 0)) end,
      try = function(one) return select(3, one:semaphore("k"):acquire(1, 0)) == "busy" end,
    },
  }

  for kind, of in pairs(KINDS) do
    it("a client continues at the new master, and still holds its " .. kind, function()
      start {}
      local old = set:master()
      local one, other = client({ command_timeout = 20 }), client({ command_timeout = 20 })
      local held = of.hold(one)
      set:wait_key("k")
      old:kill("KILL")
      assert(other:lock("other"):acquire(20))
      local new = set:wait_failover(old)
      assert.is_true(of.try(other))
      assert.are.equal(1, new:cli("EXISTS", "k"))
      assert.is_true(held:release() and of.hold(other):release())
    end)
  end

  it("a lock that the new master does not have is reported lost, and with sync was never acquired", function()
    start { password = "data" }
    local old, replica = set:master(), set:replicas()[1]
    cut_off(replica, old)
    local lost = assert(client({}):lock("k", { lease = 300, watchdog = true }):acquire(0))
    fails("no_quorum", "0 of 1 replicas confirmed the write within 0.2 s",
      client({ sync = { timeout = 0.2 } }):lock("careful"):acquire(0))
    eventually(function() return old:cli("EXISTS", "careful") == 0 end)
    old:kill("KILL")
    set:wait_failover(old)
    eventually(function() return lost:lost() end)
    assert.are.equal("deleted", lost:lost())
    assert(client({ command_timeout = 20 }):lock("k"):acquire(20))
  end)

  it("a waiter continues to wait at the new master", function()
    start {}
    local old = set:master()
    local holder = client { command_timeout = 20 }
    local lock = assert(holder:lock("k", { lease = 60 }):acquire(0))
    local waiter = process.lua {
      code = [[
        local lock = require("holdfast").new(arg[1]):lock("k", { wait = 60 })
        print(lock:acquire())
      ]],
      args = { set:url() },
    }
    eventually(function() return old:cli("ZCARD", crowd.queue_of("k")) == 1 end)
    set:wait_key(crowd.queue_of("k"))
    old:kill("KILL")
    local new = set:wait_failover(old)
    eventually(function() return new:cli("PUBSUB", "CHANNELS", "holdfast_grant:*")[1] end)
    assert(lock:release())
    assert.is_truthy(waiter:wait_output("held", PATIENCE), waiter:output())
    assert.are.equal("exit", (waiter:wait(PATIENCE)))
  end)

  it("a client learns of a manual failover without Sentinels, and its tostring names the new master", function()
    start {}
    local one = client({ command_timeout = 20 })
    local lock = assert(one:lock("k", { lease = 60, watchdog = true }):acquire(0))
    set:wait_key("k")
    local old, name = set:master(), tostring(one)
    set:ask_failover()
    -- The watchdog's thread renames `one`; the thread sanitizer sees no order between that and
    -- this.
    process.wait_until(function() return tostring(one) ~= name end, 10)
    local new = set:fail_over(old)
    eventually(function() return tostring(one):find("at 127.0.0.1:" .. new.port, 1, true) end)
    assert(lock:extend(90))
    assert.is_true(new:cli("PTTL", "k") > 60000)
    assert(lock:release())
  end)
end)

-- ---- under load ----

describe("eight processes under load", function()
  local one_lock

  before_each(function()
    leaks.excuse("the processes are killed in the middle of it")
    start { password = "data" }
    one_lock = crowd.new(set, "k")
    local options = { sync = 1, stubborn = 1, inside = 0.002, seconds = 600 }
    for i = 1, 8 do one_lock:add("w" .. i, options) end
  end)

  after_each(function() one_lock:stop() end)

  local function more_turns(count)
    local function turns() return one_lock.store:cli("LLEN", "crowd:history") end
    local before = turns()
    eventually(function() return turns() > before + count end, PATIENCE)
  end

  it("never hold one lock at the same time with sync #check", function()
    more_turns(50)
    for i = 1, 2 do
      local old = set:master()
      cut_off(set:replicas()[1], old)
      local slow = one_lock:add("slow" .. i, { sync = 1, stubborn = 1, inside = 5 })
      assert.are.equal("failed", slow:wait_output("ready\n(%l+)", PATIENCE))
      old:kill("KILL")
      mend(set:wait_failover(old))
      old:restart()
      set:wait_ready()
      more_turns(50)
    end
    local history = one_lock:history()
    assert.is_nil(history.overlap)
    for i = 2, #history.tokens do
      assert.is_true(history.tokens[i] > history.tokens[i - 1], "a token that does not grow")
    end
  end)
end)

-- ---- sync ----

describe("with the option sync", function()
  local master, replica

  before_each(function()
    master = redis.start { tcp = true }
    replica = redis.start { replica_of = master }
    -- writes before the copy count as confirmed; later ones may take a second
    local function is_confirmed()
      return master:cli("SET", "seen", 1) == "OK" and master:cli("WAIT", 1, 100) == 1
    end
    eventually(function() return is_confirmed() and is_confirmed() end)
    master:cli("DEL", "seen")
  end)

  after_each(function()
    replica:stop()
    master:stop()
  end)

  local function synced(options)
    options.url, options.sync = master:url(), options.sync or { replicas = 1, timeout = 1 }
    return client(options)
  end

  it("a lock is on the replica when acquire returns", function()
    for i = 1, 50 do
      local lock = assert(synced({}):lock("k" .. i):acquire(0))
      assert.are.equal(1, replica:cli("EXISTS", "k" .. i))
      assert(lock:release())
    end
  end)

  it("a user who may not run WAIT is denied", function()
    master:cli("ACL", "SETUSER", "limited", "on", ">pass", "~*", "&*", "+@all", "-wait")
    local one = client { url = ("redis://limited:pass@127.0.0.1:%d"):format(master.port),
      sync = {} }
    fails("denied", "WAIT for replicas failed: NOPERM", one:lock("k"):acquire(0))
    eventually(function() return master:cli("EXISTS", "k") == 0 end)
  end)
end)
