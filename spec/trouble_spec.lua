local assert_fails = require "spec.support.fails"
local fake = require "spec.support.fake"
local process = require "spec.support.process"
local resp = require "spec.support.resp"
local world = require("spec.support.world").new { tcp = true }

local CONNECT, COMMAND = 1.5, 1.5
local QUICK = 0.08 -- seconds, where no answer is expected
local SLACK = 3 -- for a busy machine, beyond the guaranteed time

local faking

before_each(function()
  world.open()
  faking = {}
end)
after_each(function()
  world.close() -- the clients may need the proxies to undo calls
  for _, each in ipairs(faking) do each.stop() end
end)

local function client(opts)
  opts = opts or {}
  opts.connect_timeout, opts.command_timeout = CONNECT, COMMAND
  return world.client(opts)
end

-- Asserts that the method fails with this code within `most` seconds. → message
local function fails(code, most, object, method, ...)
  local started = process.now()
  local message = assert_fails(code, object[method](object, ...))
  local took = process.now() - started
  assert.is_true(took < most + SLACK, ("%s took %.2f s"):format(code, took))
  return message
end

local function client_of_fake(options, timeout)
  local server = fake.server(options)
  faking[#faking + 1] = server
  return world.client { url = server.url, connect_timeout = timeout or QUICK,
    command_timeout = timeout or QUICK }
end

describe("a server that is down", function()
  it("makes calls fail as unreachable at once", function()
    world.server:kill()
    local one = client()
    local lock = one:lock("k")
    for _, call in ipairs { { "acquire", 0 }, { "acquire", 0.2 }, { "info" }, { "is_locked" }, { "ttl" },
      { "force_release" } } do fails("unreachable", 0, lock, call[1], call[2]) end
    fails("unreachable", 0, one, "ping")
    fails("not_held", 0, lock, "release")
    fails("unreachable", 0, one, "with_lock", "k", error)
    assert.is_false(lock:is_held())
  end)

  it("makes calls fail as unreachable if the unix socket does not exist or the name does not resolve", function()
    local nowhere = client { url = "unix:///nowhere/redis.sock" }:lock("k")
    assert.matches("/nowhere/redis%.sock", fails("unreachable", 0, nowhere, "acquire", 5))
    fails("unreachable", 5, client { url = "redis://no-such-host.invalid" }:lock("k"), "acquire", 0)
  end)
end)

describe("a server that hangs", function()
  it("makes calls fail as unreachable within the command timeout", function()
    local one = client()
    assert(one:ping())
    local lock = one:lock("k")
    world.server:kill("STOP")
    fails("unreachable", COMMAND, lock, "acquire", 0)
    fails("unreachable", COMMAND, one, "ping")
    fails("unreachable", COMMAND, lock, "is_locked")
    world.server:kill("CONT")
    assert.is_truthy(world.is_free("k"))
  end)

  it("during a release and beyond the lease leaves the reason of the loss in the handle", function()
    local one, options = client { lease = 1 }, { watchdog = false }
    local first, second = one:lock("k", options), one:lock("k", options)
    assert(first:acquire(0)) assert(second:acquire(0))
    world.server:kill("STOP")
    fails("unreachable", COMMAND, first, "release")
    world.server:kill("CONT")
    fails("lost", COMMAND, second, "release")
    assert.is_true(process.wait_until(function() return one:stats().holds == 0 end))
    assert.same({ "expired", "expired" }, { first:lost(), second:lost() })
  end)
end)

describe("a server that refuses access", function()
  it("because it is out of memory still renews and extends locks", function()
    local one = client { lease = 3 }
    local locks = { one:lock("l"), one:mutex("m"), one:fair_lock("f"),
      one:read_write_lock("r"):read(), one:read_write_lock("w"):write(),
      one:semaphore("s", { permits = 2 }) }
    for i, lock in ipairs(locks) do
      locks[i] = assert(i == #locks and lock:acquire(1, 0) or lock:acquire(0))
    end
    world.cli("CONFIG", "SET", "maxmemory", "1kb")
    local renewals = one:stats().renewals
    process.eventually(function() return one:stats().renewals >= renewals + #locks end)
    for _, lock in ipairs(locks) do assert(lock:extend(2)) end
    for _, lock in ipairs(locks) do
      assert.is_true(lock:is_held())
      assert(lock:release())
    end
    assert.equal(0, one:stats().losses)
    world.cli("DEL", "s")
  end)

  it("because it has too many clients makes calls fail as unreachable", function()
    world.cli("CONFIG", "SET", "maxclients", 1)
    local message = fails("unreachable", 0, client():lock("k"), "acquire", 0)
    assert.matches("max number of clients", message)
  end)
end)

describe("a server that is busy with a script", function()
  local looper

  before_each(function()
    world.cli("CONFIG", "SET", "busy-reply-threshold", 20)
    looper = resp.connect { port = world.server.port }
    looper:send("EVAL", "while true do end", 0)
    assert.is_truthy(process.wait_until(function()
      local reply = world.cli("GET", "x")
      return type(reply) == "table" and reply.err:find("^BUSY")
    end))
  end)
  after_each(function()
    world.cli("SCRIPT", "KILL")
    looper:close()
  end)

  it("makes calls fail after a while, with the server's message", function()
    local lock = client():lock("k")
    local message = fails("unreachable", COMMAND, lock, "acquire", 0)
    assert.matches("BUSY", message)
    world.cli("SCRIPT", "KILL")
    assert(lock:acquire(20)) assert(lock:release())
  end)
end)

describe("a key with data of another type", function()
  it("makes an acquire fail with conflict, and is left unchanged", function()
    for kind, words in pairs {
      string = { "SET", "k", "v" }, list = { "RPUSH", "k", "v" }, set = { "SADD", "k", "v" },
      zset = { "ZADD", "k", 1, "v" }, hash = { "HSET", "k", "field", "v" },
    } do
      world.cli(words)
      local lock = client():lock("k")
      fails("conflict", 0, lock, "acquire", 0)
      fails("conflict", 0, lock, "acquire", 2)
      assert.same({ kind, -1, { "k" } },
        { world.cli("TYPE", "k"), world.cli("PTTL", "k"), world.cli("KEYS", "*") })
      if kind ~= "hash" then
        fails("conflict", 0, lock, "force_release")
        fails("conflict", 0, lock, "info")
        assert.equal(kind, world.cli("TYPE", "k"))
      end
      world.cli("DEL", "k")
    end
  end)
end)

describe("a malformed reply", function()
  -- valid in Redis's protocol, but not as a reply of these programs
  local NONSENSE = {
    ["OK"] = "+OK\r\n", ["nil"] = "$-1\r\n", ["a nil array"] = "*-1\r\n",
    ["an empty array"] = "*0\r\n",
    ["zero"] = ":0\r\n", ["one"] = ":1\r\n", ["a string"] = "$5\r\nhello\r\n",
    ["too many replies"] = "+OK\r\n+OK\r\n+OK\r\n",
    ["an array with an error in it"] = "*1\r\n-ERR x\r\n", ["another number"] = "*1\r\n:77\r\n",
  }

  for name, bytes in pairs(NONSENSE) do
    it(name .. " is not taken for an acquired lock", function()
      local lock = client_of_fake { reply = bytes, login = true }:lock("k")
      local started = process.now()
      local got, message, code = lock:acquire(0)
      assert_fails(code == "server" and code or "unreachable", got, message, code)
      assert.is_false(lock:is_held())
      assert.is_true(process.now() - started < QUICK + QUICK + SLACK)
    end)
  end
end)

describe("a lost reply", function()
  local proxied

  before_each(function()
    local proxy = fake.proxy { path = world.server.path }
    faking[#faking + 1] = proxy
    proxied = client { url = proxy.url }
    -- teaches the server the programs, so that each fault hits the intended reply
    local lock = assert(proxied:lock("first"):acquire())
    assert(lock:acquire()) assert(lock:release()) assert(lock:extend(20)) assert(lock:release())
  end)

  it("to an acquire, cut at every byte, leaves one hold and not two", function()
    for n = 0, 18 do -- a token of 16 digits, as an integer
      local key = ("cut%d:1:acquire"):format(n)
      local lock = assert(proxied:lock(key):acquire(20))
      assert.same({ [lock:owner()] = "1" }, world.hash(key))
      assert.equal(("%.0f"):format(lock:token()),
        world.cli("GET", "redisson_lock_token:{" .. key .. "}"))
      assert(lock:release())
      assert.equal(0, world.cli("EXISTS", key))
    end
    assert.equal(19, proxied:stats().reconnects)
  end)

  -- name → the last byte at which the reply is cut, the number of the command, the calls, the holds
  for name, case in pairs {
    ["a re-entry, cut at every byte, leaves one more hold"] = { 12, 2, { "acquire", "acquire" }, 2 },
    ["a partial release, cut at every byte, leaves one hold fewer"] = {
      4, 3, { "acquire", "acquire", "release" }, 1,
    },
    ["a release, cut at every byte, leaves the lock released"] = { 4, 2, { "acquire", "release" }, 0 },
  } do
    it("to " .. name, function()
      for n = 0, case[1] do
        local key = ("cut%d:%d:x"):format(n, case[2])
        local lock, holds = proxied:lock(key), case[4]
        for _, call in ipairs(case[3]) do assert(lock[call](lock, call == "acquire" and 20 or nil)) end
        assert.same(holds > 0 and { [lock:owner()] = tostring(holds) } or {}, world.hash(key))
        for _ = 1, holds do assert(lock:release()) end
        assert.same({ 0, nil }, { world.cli("EXISTS", key), (lock:lost()) })
      end
    end)
  end
end)
