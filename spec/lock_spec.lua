local assert_fails = require "spec.support.fails"
local features = require "spec.support.features"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new()

local JAVA = "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33"
local UUID = "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:1$"

before_each(world.open)
after_each(world.close)

local function pttl(key) return world.cli("PTTL", key) end

local function counter(key) return "redisson_lock_token:{" .. key .. "}" end

local function in_coroutine(fn, ...)
  local thread = coroutine.create(fn)
  local function check(ok, ...)
    if not ok then error((...), 0) end
    return ...
  end
  return check(coroutine.resume(thread, ...))
end

describe("a client", function()
  it("gives each lock its own options, however many different ones there are", function()
    local client = world.client()
    local function made(lease, on_lost)
      return client:lock("k" .. lease, { lease = lease, on_lost = on_lost, token_ttl = 2 * lease })
    end
    for round = 1, 2 do
      for lease = 100, 200 do
        local lock = made(lease, lease % 10 == 0 and print or nil)
        assert(lock:acquire(0))
        assert.is_true(lock:remaining() <= lease and lock:remaining() > lease - 30, "round " .. round)
        assert(lock:release())
      end
    end
    local plain = assert(client:lock("plain"):acquire(0))
    assert.is_true(plain:remaining() <= 30)
    assert(plain:release())
    local mutex = assert(client:mutex("m", { lease = 150, token_ttl = 300 }):acquire(0))
    assert.equal("string", world.cli("TYPE", "m"))
    assert(mutex:release())
  end)

  it("releases even the first lock created with given options when it is collected", function()
    local client = world.client()
    local function acquire_and_drop(opts) assert(client:lock("dropped", opts):acquire(0)) end
    for _, opts in ipairs { false, { lease = 20 }, { class = "reports" } } do
      acquire_and_drop(opts or nil)
      assert(process.wait_until(function()
        collectgarbage()
        return world.cli("EXISTS", "dropped") == 0
      end, 20))
    end
  end)

  it("does no I/O before its first call that needs the server", function()
    local client = world.client { url = "unix:///nowhere/redis.sock" }
    assert.same({ "k", 0 }, { client:lock("k"):key(), client:stats().connections })
  end)

  it("has its type in its metatable, and its server in its tostring", function()
    local client = world.client()
    assert.equal("holdfast.client", getmetatable(client))
    assert.equal("holdfast.client: unix:" .. world.server.path, tostring(client))
    assert.equal("holdfast.client", debug.getmetatable(client).__name)
    client:close()
    assert.matches("%(closed%)$", tostring(client))
  end)

  it("measures a ping as the time until its reply arrives", function()
    local client = world.client()
    assert(client:ping())
    world.server:kill("STOP")
    local later = world.program { code = [[
      require("spec.support.sys").sleep(0.2)
      require("spec.support.process").signal(tonumber(arg[1]), "CONT")
    ]], args = { world.server.pid } }
    local from = process.now()
    local took = client:ping()
    local passed = process.now() - from
    assert.is_true(took > passed / 4 and took <= passed, ("%.3f s of %.3f s"):format(took, passed))
    assert.same({ "exit", 0 }, { later:wait(20) })
  end)

  it("prefixes every key with its prefix", function()
    local client = world.client { prefix = "shop:" }
    local lock, latch, plain = client:lock "order", client:latch "ready", client:plain_semaphore "desks"
    local permit = assert(client:semaphore("pool", { permits = 1 }):acquire())
    assert(lock:acquire() and latch:set(1) and plain:set(1))
    assert.same({ "shop:order", "shop:ready", "shop:desks", "shop:pool" },
      { lock:key(), latch:key(), plain:key(), permit:key() })
    assert.equal(5, world.cli("EXISTS", "shop:order", "shop:ready", "shop:desks", "shop:pool",
      "{shop:pool}:timeout"))
    assert(lock:release() and permit:release())
    world.cli("DEL", "shop:ready", "shop:desks", "shop:pool")
  end)

  it("releases everything it holds when it is collected", function()
    do
      local client = holdfast.new(world.server:url())
      assert(client:lock("k"):acquire())
    end
    collectgarbage() collectgarbage()
    assert.is_truthy(world.is_free("k"))
  end)
end)

describe("acquire", function()
  it("stores the lock as a hash with its owner <uuid>:<n> and count, and a TTL", function()
    local lock = world.client():lock("order:42")
    assert.equal(lock, lock:acquire())
    assert.matches(UUID, lock:owner())
    assert.equal("hash", world.cli("TYPE", "order:42"))
    assert.same({ [lock:owner()] = "1" }, world.hash("order:42"))
    assert.is_true(pttl("order:42") > 20000 and pttl("order:42") <= 30000)
    assert.same({ true, 1 }, { lock:is_held(), lock:holds() })
    assert.is_true(lock:remaining() > 20 and lock:remaining() < 30)
    assert.is_nil(lock:lost())
    assert.is_true(lock:release())
    assert.same({}, world.hash("order:42"))
  end)
end)

describe("release", function()
  it("fails with not_held in a coroutine other than the owner's", function()
    local lock = assert(world.client():lock("k"):acquire())
    assert_fails("not_held", in_coroutine(function() return lock:release() end))
    assert.is_true(lock:check())
    assert(lock:release())
  end)
end)

describe("extend", function()
  it("fails with not_held for everyone except the owner", function()
    local holder, other = world.client():lock("k", { lease = 5 }), world.client():lock("k")
    assert(holder:acquire())
    assert_fails("not_held", other:extend(60))
    assert_fails("not_held", in_coroutine(function() return holder:extend(60) end))
    assert.is_true(pttl("k") <= 5000)
    assert(holder:release())
  end)
end)

describe("reading from the server,", function()
  it("is_locked and ttl report locks of any owner", function()
    local lock = world.client():lock("k")
    assert.same({ false, 0, nil }, { lock:is_locked(), select("#", lock:ttl()) - 1, (lock:ttl()) })
    world.hold_as(JAVA, "k", 9000)
    assert.is_true(lock:is_locked())
    assert.is_true(lock:ttl() > 8 and lock:ttl() <= 9)
    assert.is_false(lock:is_held())
    world.cli("DEL", "k")
    assert(lock:acquire())
    assert.is_true(world.client():lock("k"):is_locked())
    assert(lock:release())
    assert.is_false(lock:is_locked())
  end)
end)

describe("fencing tokens", function()
  local function token_of(client, key, opts)
    local lock = assert(client:lock(key, opts):acquire())
    local token = lock:token()
    assert(lock:release())
    return token
  end

  it("increase with each acquire, and stay the same in a re-entry", function()
    local client, last = world.client(), 0
    local lock = client:lock("k")
    assert.is_nil(lock:token())
    for _ = 1, 5 do
      assert(lock:acquire())
      local token = lock:token()
      assert.is_true(token > last and token < 2 ^ 53 and token % 1 == 0)
      assert.equal(lock:token_text(), world.cli("GET", counter "k"))
      assert(lock:acquire())
      assert.equal(token, lock:token())
      assert(lock:release()) assert(lock:release())
      assert.same({ nil, nil }, { lock:token(), (lock:token_text()) })
      last = token
    end
    assert.is_true(token_of(world.client(), "k") > last)
  end)

  it("increase even after FLUSHALL or eviction of the counter", function()
    local client = world.client()
    local first = token_of(client, "k")
    world.cli("FLUSHALL")
    local second = token_of(client, "k")
    assert.is_true(second > first)
    world.cli("DEL", counter "k")
    assert.is_true(token_of(client, "k") > second)
  end)

  it("increase even if the counter is ahead of the clock", function()
    world.cli("SET", counter "k", "4503599627370496")
    assert.equal(4503599627370504, token_of(world.client(), "k"))
    assert.equal(4503599627370512, token_of(world.client(), "k"))
  end)

  it("leave a counter with a TTL of a day, or of token_ttl, or none if that is math.huge", function()
    local client = world.client()
    token_of(client, "k")
    assert.is_true(pttl(counter "k") > 86390000 and pttl(counter "k") <= 86400000 * 33 / 32)
    token_of(client, "short", { token_ttl = 60 })
    assert.is_true(pttl(counter "short") > 60000 and pttl(counter "short") <= 61875)
    for _ = 1, 2 do
      token_of(world.client { token_ttl = math.huge }, "endless")
      assert.equal(-1, pttl(counter "endless"))
    end
  end)

  it("are multiples of 8, and their counter loses its TTL once Redisson has used it", function()
    local client = world.client()
    for _ = 1, 3 do assert.equal(0, token_of(client, "k") % 8) end
    assert.is_true(pttl(counter "k") > 0)
    world.cli("INCR", counter "k")
    world.cli("SET", counter "new", "17")
    for _, key in ipairs { "k", "k", "new" } do
      local last = tonumber(world.cli("GET", counter(key)))
      local token = token_of(client, key)
      assert.is_true(token > last and token % 8 == 0)
      assert.equal(-1, pttl(counter(key)))
      assert.equal(("%.0f"):format(token), world.cli("GET", counter(key)))
    end
  end)
end)

describe("owners", function()
  it("do not keep their coroutines from being collected", function()
    local lock = world.client():lock("k")
    local seen = setmetatable({}, { __mode = "k" })
    for _ = 1, 10 do
      local thread = coroutine.create(function() assert(lock:acquire()) assert(lock:release()) end)
      assert(coroutine.resume(thread))
      seen[thread] = true
    end
    collectgarbage() collectgarbage()
    assert.is_nil(next(seen))
  end)

  it("of different coroutines exclude each other within a client, even across a yield", function()
    local lock = world.client():lock("k")
    local thread = coroutine.create(function()
      local caller = lock:owner()
      assert(lock:acquire())
      local owner = lock:owner()
      coroutine.yield()
      assert.equal(owner, lock:owner())
      assert.is_true(lock:is_held())
      assert(lock:release())
      assert.equal(caller, lock:owner())
    end)
    assert(coroutine.resume(thread))
    assert_fails("busy", lock:try_acquire())
    assert.same({ false, 0, nil }, { lock:is_held(), lock:holds(), (lock:token()) })
    assert(coroutine.resume(thread)) assert(lock:acquire()) assert(lock:release())
  end)
end)

describe("a loss that a release finds", function()
  it("is reported once a running callback has ended, even if the handle was collected", function()
    local reasons, seen = {}, 0
    local client = world.client()
    local function lose()
      local lock = client:lock("k", { on_lost = function(_, reason)
        reasons[#reasons + 1] = reason
      end, on_event = function() seen = seen + 1 end })
      assert(lock:acquire(0))
      world.cli("DEL", "k")
      assert_fails("lost", lock:release())
    end
    local first = client:lock("first", { on_lost = function()
      lose()
      collectgarbage() collectgarbage()
      assert.same({}, reasons)
    end })
    assert(first:acquire(0))
    world.cli("DEL", "first")
    assert_fails("lost", first:release())
    assert.same({ { "deleted" }, 2 }, { reasons, seen })
  end)

  it("is reported to every on_lost, and the first of their errors is raised", function()
    local client, called, locks = world.client(), {}, {}
    for i = 1, 3 do
      locks[i] = client:lock("k" .. i, { on_lost = function(lock)
        called[#called + 1] = lock:key()
        error(lock:key(), 0)
      end })
      assert(locks[i]:acquire(0))
    end
    world.cli("DEL", "k1", "k2", "k3")
    local all = holdfast.multi_lock(locks)
    world.cli("DEL", "k1", "k2", "k3")
    local released, err = pcall(all.release, all)
    assert.same({ false, 3 }, { released, #called })
    assert.equal(called[1], err)
  end)

  it("makes the release raise on_lost's error, and leaves nothing held", function()
    local lock = world.client():lock("k", { on_lost = function() error("of on_lost", 0) end })
    assert(lock:acquire(0))
    world.cli("DEL", "k")
    assert.same({ false, "of on_lost" }, { pcall(lock.release, lock) })
    assert_fails("not_held", lock:release())
    assert.is_true(world.client():lock("k"):acquire(0):release())
  end)
end)

describe("two handles of one owner, one of which lost its hold,", function()
  local client, one, two

  local function lose_and_acquire()
    client = world.client()
    one, two = client:lock("k"), client:lock("k")
    assert(one:acquire())
    world.cli("DEL", "k")
    assert_fails("lost", one:check())
    assert(two:acquire(0))
  end

  it("count a third handle's release against the newer hold", function()
    lose_and_acquire()
    local third = client:lock("k")
    assert.is_true(third:is_held())
    assert(third:release())
    assert_fails("not_held", two:release())
  end)

  it("do not release the newer hold when the handle that lost its hold is collected", function()
    lose_and_acquire()
    one = nil
    collectgarbage() collectgarbage()
    assert.is_true(two:check())
    assert(two:release())
  end)
end)

describe("a handle", function()
  it("releases its lock when it is collected, even if its coroutine is dead", function()
    local client = world.client()
    local function acquire() assert(client:lock("k"):acquire()) end
    for _, run in ipairs { acquire, function() in_coroutine(acquire) end } do
      run()
      collectgarbage() collectgarbage()
      assert.is_truthy(world.is_free("k"))
      assert.is_truthy(process.wait_until(function() return client:stats().holds == 0 end))
    end
  end)

  for name, options in pairs { ["of a coroutine"] = {}, ["of a shared owner"] = { owner = "job" } } do
    it("does not, when collected, release again a lock " .. name, function()
      local client = world.client()
      local function handle() return client:lock("k", options) end
      local lock = handle()
      assert(lock:acquire())
      local second = { handle() }
      assert(second[1]:acquire())
      do assert(handle():release()) end
      second[1] = nil
      collectgarbage() collectgarbage()
      assert.same({ 1, 1 }, { lock:holds(), lock:info().holds })
      do assert(handle():acquire()) end
      collectgarbage() collectgarbage()
      assert.truthy(process.wait_until(function() return lock:holds() == 1 end))
      assert.is_true(lock:check())
      assert(lock:release())
      assert.truthy(world.is_free("k"))
    end)
  end

  it("leaks no memory, and neither do its client and watchdog", function()
    if process.build ~= "./build" or not sys.allocated() then return end -- a sanitizer keeps freed memory
    local function make(count)
      for i = 1, count do
        local client = holdfast.new(world.server:url())
        assert(client:watchdog() and client:lock("k" .. i))
      end
      collectgarbage() collectgarbage()
      return sys.allocated()
    end
    make(50)
    local before = make(50)
    assert.is_true(make(200) - before < 200 * 1000)
  end)

  if features.closes_variables then
    local with_close = assert(load([[
      local lock, body = ...
      local held <close> = assert(lock:acquire())
      return body(held)
    ]]))

    it("releases its lock at the end of a block with <close>, whether that fails or not", function()
      local lock, reason = world.client():lock("k"), {}
      assert.equal("done", with_close(lock, function(held)
        assert.is_true(held:is_held())
        return "done"
      end))
      assert.same({ 0, false }, { world.cli("EXISTS", "k"), lock:is_held() })
      local ok, err = pcall(with_close, lock, function() error(reason) end)
      assert.is_false(ok)
      assert.is_true(rawequal(reason, err))
      assert.equal(0, world.cli("EXISTS", "k"))
    end)

    it("causes no error at the end of a block with <close> that has already released it", function()
      local lock = world.client():lock("k")
      with_close(lock, function(held) assert(held:release()) end)
      assert.equal(0, world.cli("EXISTS", "k"))
    end)
  end
end)

describe("tostring(lock)", function()
  it("contains the key and whether the lock is held", function()
    local lock = world.client():lock("order:42")
    assert.equal("holdfast.lock", getmetatable(lock))
    assert.equal("holdfast.lock", debug.getmetatable(lock).__name)
    assert.equal("holdfast.lock: order:42 (not held)", tostring(lock))
    assert(lock:acquire())
    assert.matches("^holdfast%.lock: order:42 %(held, 29%.%d s left%)$", tostring(lock))
    world.cli("DEL", "order:42")
    lock:check()
    assert.equal("holdfast.lock: order:42 (lost: deleted)", tostring(lock))
    lock:release()
  end)
end)
