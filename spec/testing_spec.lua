-- holdfast.testing. Most tests run with and without a server, with the same results.

local holdfast = require "holdfast"
local lfs = require "lfs"
local locale = require "spec.support.locale"
local pages = require "spec.support.pages"
local places = require "spec.support.places"
local process = require "spec.support.process"
local testing = require "holdfast.testing"

local function pack(...) return { n = select("#", ...), ... } end

-- Returns the code of a failed call.
local function code_of(...)
  local result, message, code = ...
  assert.is_nil(result)
  assert.is_string(message)
  return code
end

local function in_coroutine(fn)
  local ran, message = coroutine.resume(coroutine.create(fn))
  if not ran then error(message, 0) end
end

local function locks_of(place)
  describe("a lock " .. place.name, function()
    before_each(place.open)
    after_each(place.close)

    it("excludes other clients until it is released", function()
      local lock = assert(place.client():lock("k"):acquire())
      local other = place.client():lock("k")
      assert.equal("busy", code_of(other:try_acquire()))
      assert.is_true(other:is_locked() and lock:release())
      assert.equal(other, other:try_acquire())
      assert.is_true(other:release())
      assert.equal("not_held", code_of(other:release()))
    end)

    it("counts how often its owner acquired it", function()
      local lock = assert(place.client():lock("k"):acquire())
      assert(lock:acquire())
      assert.equal(2, lock:holds())
      assert(lock:release())
      assert.is_true(lock:is_held())
      assert(lock:release())
      assert.is_false(lock:is_held())
    end)

    it("gives each holder a higher token", function()
      local client, tokens = place.client(), {}
      for i = 1, 3 do
        local lock = assert(client:lock("k"):acquire())
        tokens[i] = lock:token()
        lock:release()
      end
      assert.is_true(tokens[1] < tokens[2] and tokens[2] < tokens[3])
    end)

    it("is waited for as long as `wait` says, and the busy message names the holder", function()
      local holder, waiter = place.client { name = "holder" }, place.client()
      local lock = assert(holder:lock("k"):acquire())
      place.pass(0.5) -- by then a holder has published its name
      local result = pack(waiter:lock("k"):acquire(0.3))
      assert.equal("busy", result[3])
      assert.matches("held by [^ ]+ %(pid %d+, holder%) for [%d.]+ m?s, up to %d+ s more .*; waited 300 ms$", result[2])
      assert.is_true(lock:is_held())
      assert.same({ 1, 1 }, { waiter:stats().waits, waiter:stats().failures.busy })
      lock:release()
    end)

    it("is granted to a waiter when its holder's lease ends", function()
      local gone = assert(place.client():lock("k", { lease = 0.5 }):acquire())
      local waiter = place.client { lease = 30 }:lock("k")
      assert.equal(waiter, waiter:acquire(10))
      assert.is_true(waiter:waited() > 0.3)
      assert.is_true(waiter:remaining() > 20)
      assert.is_false(gone:is_held())
      waiter:release()
    end)

    it("is renewed while its client is alive", function()
      local client = place.client { lease = 0.6 }
      local lock = assert(client:lock("k"):acquire())
      place.pass(1.5)
      assert.is_true(lock:is_held() and lock:check())
      assert.is_true(client:stats().renewals >= 3)
      assert.equal("busy", code_of(place.client():lock("k"):try_acquire()))
      lock:release()
    end)

    it("is not renewed if it has an explicit lease", function()
      local lost
      local lock = assert(place.client():lock("k", {
        lease = 0.3, on_lost = function(_, reason) lost = reason end,
      }):acquire())
      place.pass(0.4)
      assert.is_false(lock:is_held())
      assert.same({ "expired", "expired" }, { lock:lost(), lost })
      assert.equal("lost", code_of(lock:release()))
      assert(place.client():lock("k"):try_acquire()):release()
    end)

    it("can be extended", function()
      local lock = assert(place.client():lock("k", { lease = 0.4 }):acquire())
      assert.is_true(lock:extend(20))
      place.pass(0.5)
      assert.is_true(lock:is_held())
      assert.is_true(lock:ttl() > 15)
      lock:release()
    end)

    it("returns its state from info", function()
      local lock = assert(place.client { name = "me" }:lock("k", { lease = 20 }):acquire())
      local info = place.client():lock("k"):info()
      assert.same({ 1, 0, lock:token(), lock:owner() },
        { info.holds, info.waiters, info.token, info.owner })
      assert.is_true(info.ttl > 15 and info.ttl <= 20)
      lock:release()
      assert.same({ holds = 0, waiters = 0 }, place.client():lock("free"):info())
    end)

    it("fails as deadlock if another coroutine of the client holds it", function()
      local client = place.client()
      local lock = assert(client:lock("k"):acquire())
      in_coroutine(function() assert.equal("deadlock", code_of(client:lock("k"):acquire(1))) end)
      lock:release()
    end)

    it("is released when its client is closed", function()
      local client = place.client()
      local lock = assert(client:lock("k"):acquire())
      client:close()
      assert.is_false(lock:is_held())
      assert.equal("closed", code_of(client:lock("k"):acquire()))
      assert(place.client():lock("k"):try_acquire()):release()
    end)

    it("can be freed by any client with force_release", function()
      local lock = assert(place.client():lock("k"):acquire())
      assert.is_true(place.client():lock("k"):force_release())
      assert.equal("lost", code_of(lock:check()))
      assert.equal("deleted", lock:lost())
    end)

    it("reports its events", function()
      local seen = {}
      local client = place.client { on_event = function(event)
        if event.key then seen[#seen + 1] = event.event end
      end }
      local lock = assert(client:lock("k"):acquire())
      in_coroutine(function() client:lock("k"):try_acquire() end)
      place.lose(lock, "deleted")
      assert.equal("lost", code_of(lock:release()))
      assert.same({ "acquired", "busy", "lost" }, seen)
    end)
  end)
end

local function losses_of(place)
  describe("a lost lock " .. place.name, function()
    before_each(place.open)
    after_each(place.close)

    for _, reason in ipairs { "expired", "unreachable", "deleted", "taken", "max_hold" } do
      it("is reported as " .. reason, function()
        local reasons = {}
        local client = place.client { lease = 0.6, command_timeout = 0.3, connect_timeout = 0.3 }
        local lock = client:lock("k", {
          on_lost = function(_, why) reasons[#reasons + 1] = why end,
          max_hold = reason == "max_hold" and 0.8 or nil,
        })
        assert(lock:acquire())
        place.lose(lock, reason)
        assert.same({ reason }, reasons)
        assert.same({ false, reason, 1 }, { lock:is_held(), lock:lost(), client:stats().losses })
        assert.equal("lost", code_of(lock:release()))
        if reason == "taken" then
          assert.equal("busy", code_of(client:lock("k"):try_acquire()))
        else
          assert(lock:acquire(5))
          assert.is_nil(lock:lost())
          lock:release()
        end
      end)
    end

    it("makes with_lock return lost and the function's results", function()
      local result = pack(place.client():with_lock("k", function(lock)
        place.lose(lock, "deleted")
        return "done"
      end))
      assert.same({ "lost", { n = 1, "done" } }, { result[3], result[4] })
    end)

    it("aborts a function run with abort_on_loss", function()
      local went_on = false
      local result = pack(place.client():with_lock("k", { abort_on_loss = true }, function(lock)
        place.lose(lock, "deleted")
        for _ = 1, 100000 do math.floor(1.5) end
        went_on = true
      end))
      assert.same({ "lost", false }, { result[3], went_on })
    end)

    it("ends a leader's term", function()
      local lost
      local result = pack(place.client():lead("k", { once = true }, function(term)
        assert.is_true(term:is_leader())
        place.lose(term, "deleted")
        lost = term:lost()
        return term:is_leader()
      end))
      assert.same({ "deleted", "lost", { n = 1, false } }, { lost, result[3], result[4] })
    end)
  end)
end

local function servers_of(place)
  describe("a server that is down " .. place.name, function()
    before_each(place.open)
    after_each(function()
      place.recover()
      place.close()
    end)

    local SHORT = { command_timeout = 0.3, connect_timeout = 0.3 }

    it("makes calls fail, which succeed again once it is back", function()
      local client, ran = place.client(SHORT), false
      assert(client:lock("before"):acquire()):release()
      place.fail()
      assert.equal("unreachable", code_of(client:lock("k"):try_acquire()))
      assert.equal("unreachable", code_of(client:with_lock("k", { wait = 0 }, function() ran = true end)))
      assert.equal("unreachable", code_of(client:ping()))
      place.recover()
      assert.is_false(ran)
      assert(client:lock("k"):acquire(5)):release()
      assert.is_number(client:ping())
    end)

    it("does not end a hold whose lease outlasts the outage", function()
      local client = place.client { lease = 3, command_timeout = 0.3, connect_timeout = 0.3 }
      local lock = assert(client:lock("k"):acquire())
      place.fail()
      place.pass(1.5)
      assert.is_true(lock:is_held())
      place.recover()
      place.pass(2)
      assert.is_true(lock:check())
      lock:release()
    end)
  end)
end

local function others_of(place)
  describe("a client " .. place.name, function()
    before_each(place.open)
    after_each(place.close)

    it("runs an idempotent function once, and again after an error", function()
      local client, runs = place.client(), 0
      local function charge() runs = runs + 1 return "charged" end
      assert.equal("charged", client:idempotent("order:1", charge))
      assert.equal("duplicate", select(3, client:idempotent("order:1", charge)))
      assert.equal("charged", client:idempotent("order:2", { replay = true }, charge))
      assert.equal("charged", client:idempotent("order:2", { replay = true }, charge))
      assert.equal(2, runs)
      assert.has_error(function() client:idempotent("order:3", function() error("no", 0) end) end, "no")
      assert.equal("charged", client:idempotent("order:3", charge))
      for i = 1, 3 do client:mutex("order:" .. i):force_release() end
    end)

    it("runs a schedule's job once per fire", function()
      local client, other, runs = place.client(), place.client(), 0
      local function job() runs = runs + 1 end
      assert.is_true(client:once("nightly", 2, job))
      local result = pack(other:once("nightly", 2, job))
      assert.same({ "duplicate", "done" }, { result[3], result[4].state })
      place.pass(1.5)
      assert.is_true(other:once("nightly", 2, job))
      assert.equal(2, runs)
    end)

    it("refuses a fenced write of an older holder", function()
      local client, other = place.client(), place.client()
      local fence = client:fence("report", { ttl = 1 })
      local old = assert(client:lock("k"):acquire())
      assert(fence:call(old, "set", "report", "old"))
      assert.is_true(other:lock("k"):force_release())
      local new = assert(other:lock("k"):acquire())
      assert(other:fence("report", { ttl = 1 }):call(new, "set", "report", "new"))
      assert.equal("stale", code_of(fence:call(old, "set", "report", "late")))
      assert.equal("lost", code_of(old:check()))
      assert.equal("lost", code_of(fence:call(old, "set", "report", "later")))
      assert(other:fence("report", { ttl = 1 }):call(new, "del", "report"))
      new:release()
    end)

    it("shares a read lock between readers, and excludes writers", function()
      local client, other = place.client(), place.client()
      local reading = assert(client:read_write_lock("k"):read():acquire())
      local also = assert(other:read_write_lock("k"):read():try_acquire())
      assert.equal("busy", code_of(place.client():read_write_lock("k"):write():try_acquire()))
      reading:release()
      also:release()
      assert(other:read_write_lock("k"):write():try_acquire()):release()
    end)

    it("limits the permits of a semaphore", function()
      local pool = place.client():semaphore("pool", { permits = 2 })
      local one, two = assert(pool:acquire()), assert(pool:acquire())
      assert.equal("busy", code_of(pool:acquire(1, 0.1)))
      assert.equal(0, pool:available())
      one:release()
      assert.equal(1, pool:available())
      two:release()
      place.delete("pool")
    end)

    it("acquires several locks, or none", function()
      local client, other = place.client(), place.client()
      local all = assert(client:multi_lock { "a", "b" }:acquire())
      assert.equal("busy", code_of(other:multi_lock { "b", "c" }:acquire(0.3)))
      assert(other:lock("c"):try_acquire()):release()
      all:release()
    end)

    it("waits until a latch opens", function()
      local latch = place.client():latch("gate")
      assert.is_true(latch:set(1))
      assert.equal("timeout", code_of(place.client():latch("gate"):wait(0.2)))
      assert.equal(0, latch:count_down())
      assert.is_true(place.client():latch("gate"):wait(1))
    end)

    it("supports mutexes, fair locks and plain semaphores", function()
      local client, other = place.client(), place.client()
      for _, kind in ipairs { "mutex", "fair_lock" } do
        local lock = assert(client[kind](client, kind):acquire())
        assert.equal("busy", code_of(other[kind](other, kind):acquire(0.1)))
        lock:release()
      end
      local plain = client:plain_semaphore("plain")
      assert.is_true(plain:set(1) and plain:acquire())
      assert.equal("busy", code_of(other:plain_semaphore("plain"):acquire(1, 0.1)))
      plain:release()
      plain:delete()
    end)

    it("lists deadlocks and waits", function()
      local client = place.client()
      local lock = assert(client:lock("k"):acquire())
      assert.same({ cycles = {}, waits = {} }, client:deadlocks())
      lock:release()
    end)
  end)
end

for _, place in ipairs(places) do
  locks_of(place)
  losses_of(place)
  servers_of(place)
  others_of(place)
end

describe("holdfast.testing", function()
  before_each(testing.reset)
  after_each(testing.reset)

  local function refuses(text, fn, ...)
    local ran, message = pcall(function(...) fn(...) return true end, ...)
    assert.is_false(ran)
    assert.matches("testing_spec%.lua:%d+: ", message)
    assert.is_true(message:find(text, 1, true) ~= nil, message)
  end

  it("raises errors for invalid input at the caller's line", function()
    local lock = testing.client():lock("k")
    local held = assert(testing.client():lock("held"):acquire())
    for _, case in ipairs {
      { "lease must be a number of seconds", testing.client, { lease = "long" } },
      { "opts must be a table", testing.client, "redis://127.0.0.1" },
      { "leave out driver", testing.client, { driver = "posix" } },
      { "Sentinels and clusters need real servers", testing.client, { url = "redis+sentinel://a/m" } },
      { "seconds must be a non-negative number", testing.advance, -1 },
      { "seconds must be a non-negative number", testing.advance, math.huge },
      { "seconds must be a non-negative number", testing.after, "1", print },
      { "fn must be a function", testing.after, 1 },
      { "lock must be one that this coroutine holds", testing.lose, lock, "expired" },
      { "lock must be a lock, permit or term of a client of testing.client", testing.lose, {}, "expired" },
      { 'reason must be one of "expired", "taken"', testing.lose, held, "stolen" },
      { "cannot be lost in this way (max_hold); it is still held", testing.lose, held, "max_hold" },
      { 'how must be one of "unreachable", "silent", "denied"', testing.fail, "down" },
    } do
      refuses(case[1], case[2], case[3], case[4])
    end
    local real = holdfast.new("redis://127.0.0.1:1")
    refuses("of a client of testing.client", testing.lose, real:lock("k"), "expired")
    real:close()
  end)

  it("can advance the clock by a day at once, while a held lock is renewed", function()
    local lock = assert(testing.client():lock("k"):acquire())
    testing.advance(86400)
    assert.is_true(lock:is_held() and lock:check())
  end)

  it("starts no thread and opens no descriptor", function()
    local function count(path)
      local entries = 0
      for _ in lfs.dir(path) do entries = entries + 1 end
      return entries
    end
    collectgarbage()
    local threads, descriptors = count("/proc/self/task"), count("/proc/self/fd")
    local lock = assert(testing.client():lock("k"):acquire())
    testing.client():lock("k"):acquire(5)
    assert.same({ threads, descriptors }, { count("/proc/self/task"), count("/proc/self/fd") })
    assert.is_true(lock:is_held())
  end)

  it("hands a waiter a lock that is released during its wait", function()
    local holder, waiter = testing.client(), testing.client():lock("k")
    local seen
    in_coroutine(function()
      local lock = assert(holder:lock("k"):acquire())
      testing.after(2, function()
        seen = waiter:info().waiters
        lock:force_release()
      end)
    end)
    assert.equal(waiter, waiter:acquire(5))
    assert.equal(1, seen)
    assert.is_true(waiter:waited() >= 2 and waiter:waited() < 2.1)
  end)

  it("reports leaders to a candidate while it waits", function()
    local leader, seen = testing.client { name = "first" }, {}
    in_coroutine(function()
      local lock = assert(leader:lock("job", { owner = "a" }):acquire())
      testing.after(20, function() lock:release() end)
    end)
    testing.client { name = "second" }:lead("job", {
      once = true, on_change = function(new) seen[#seen + 1] = new.name or "unknown" end,
    }, function() seen[#seen + 1] = "leads" end)
    assert.same({ "unknown", "second", "leads" }, seen)
  end)

  it("calls functions scheduled with `after` in order, each in its own coroutine", function()
    local seen = {}
    for _, at in ipairs { 3, 1, 2, 1 } do
      testing.after(at, function() seen[#seen + 1] = { at, coroutine.running() } end)
    end
    testing.advance(2)
    assert.same({ 1, 1, 2 }, { seen[1][1], seen[2][1], seen[3][1] })
    assert.are_not.equal(seen[1][2], seen[2][2])
    assert.is_nil(seen[4])
  end)

  it("raises an error of a scheduled function in the wait that it interrupts", function()
    local holder, waiter = testing.client(), testing.client()
    local lock = assert(holder:lock("k"):acquire())
    testing.after(1, function() error("no", 0) end)
    assert.has_error(function() waiter:lock("k"):acquire(5) end, "no")
    assert.equal(0, lock:info().waiters)
  end)

  it("raises an error instead of waiting forever", function()
    local lock = assert(testing.client():lock("k"):acquire())
    local waiter = testing.client()
    refuses("would wait forever", function() waiter:lock("k"):acquire(math.huge) end)
    assert.equal(0, lock:info().waiters)
  end)

  it("can make the server silent or deny access", function()
    local client = testing.client()
    local held = assert(client:lock("k"):acquire()) -- luacheck: ignore 211 (lasts)
    testing.fail("silent")
    assert.equal("unreachable", code_of(client:lock("other"):try_acquire()))
    testing.fail("denied")
    assert.equal("denied", code_of(client:lock("other"):try_acquire()))
    testing.recover()
    assert(client:lock("other"):try_acquire())
  end)

  it("simulates a separate server for each address in a list", function()
    local client = testing.client { servers = { "redis://a", "redis://b", "redis://c" }, mode = "quorum" }
    local lock = assert(client:lock("k"):acquire())
    testing.advance(31)
    assert.is_true(lock:is_held())
    assert.equal(3, client:stats().connections)
    assert.equal("busy", code_of(testing.client {
      servers = { "redis://a", "redis://b", "redis://c" }, mode = "quorum",
    }:lock("k"):acquire(0)))
    assert(testing.client():lock("k"):try_acquire())
  end)

  it("accepts the options of a real client, including its URL", function()
    local client = testing.client { url = "rediss://user:secret@db.example:6390/3", prefix = "app:" }
    local lock = assert(client:lock("k"):acquire())
    assert.equal("app:k", lock:key())
    assert(testing.client():lock("app:k"):try_acquire()) -- in another database
  end)

  it("raises an error if a fence needs a command that the simulated server lacks", function()
    local client = testing.client()
    local lock, fence = assert(client:lock("k"):acquire()), client:fence("scores")
    assert.has_error(function() fence:call(lock, "zadd", "scores", "GT", 1, "a") end,
      "holdfast.testing: ZADD GT is not in the small Redis")
    assert.equal("server", code_of(fence:call(lock, "smove", "tags", "old", "a")))
    assert(fence:call(lock, "zadd", "scores", 1, "a"))
  end)

  it("confirms writes for a client with the option sync", function()
    local client = testing.client { sync = { replicas = 2 }, tenant = "shop:" }
    assert(client:lock("k"):acquire()):release()
  end)

  it("refuses calls of a client whose process it has stopped", function()
    local client = testing.client()
    local lock = assert(client:lock("k"):acquire())
    testing.after(1, function() client:ping() end)
    refuses("has stopped the process", testing.lose, lock, "expired")
  end)

  it("lets other clients continue while one client's process is stopped", function()
    local other = testing.client { lease = 3 }
    local held = assert(other:lock("other"):acquire())
    testing.lose(assert(testing.client():lock("k"):acquire()), "expired")
    assert.is_true(held:check())
    assert.is_true(other:stats().renewals > 10)
  end)

  it("carries out background work before the next call", function()
    local client, other = testing.client { async_release = true }, testing.client()
    local lock = assert(client:lock("k"):acquire())
    assert(lock:release())
    assert(other:lock("k"):try_acquire()):release()
    assert(client:lock("collected"):acquire()) collectgarbage() collectgarbage()
    assert(other:lock("collected"):try_acquire())
  end)

  it("calls the client's credentials function", function()
    local asked = 0
    local client = testing.client { credentials = function()
      asked = asked + 1
      return "user", "secret"
    end }
    assert(client:lock("k"):acquire())
    assert.is_true(asked > 0)
  end)

  it("can simulate the loss of a permit", function()
    local pool = testing.client():semaphore("pool", { permits = 2, max_hold = 60 })
    for _, reason in ipairs { "expired", "unreachable", "deleted", "max_hold" } do
      local permit = assert(pool:acquire())
      testing.lose(permit, reason)
      assert.equal(reason, permit:lost())
    end
    refuses("permit cannot be taken", testing.lose, assert(pool:acquire()), "taken")
  end)

  it("forgets all state on reset", function()
    local client = testing.client()
    local lock = assert(client:lock("k"):acquire())
    testing.after(1, function() error("not forgotten") end)
    testing.fail("unreachable")
    testing.reset()
    assert.is_false(lock:is_held())
    assert.equal("closed", code_of(client:lock("k"):acquire()))
    assert(testing.client():lock("k"):try_acquire())
    testing.advance(2)
  end)

  it("shares its state when loaded twice, as busted does for each file", function()
    local call, before = require("holdfast.loop.pump").call, {}
    for _, name in ipairs { "holdfast.testing", "holdfast.testing.world" } do
      before[name], package.loaded[name] = package.loaded[name], nil
    end
    local again = require "holdfast.testing"
    for name, module in pairs(before) do package.loaded[name] = module end
    assert.equal(call, require("holdfast.loop.pump").call)
    local lock = assert(testing.client():lock("k"):acquire())
    assert(again.client():lock("k"):try_acquire())
    again.advance(86400)
    assert.equal("busy", code_of(testing.client():lock("k"):try_acquire()))
    assert.is_true(lock:release())
  end)

  it("is independent of the program's locale", function()
    local directory = process.directory()
    locale.make(directory)
    local program = process.lua { args = { locale.name }, env = { LOCPATH = directory }, code = [[
      local testing = require "holdfast.testing"
      assert(os.setlocale(arg[1]))
      local before, client = os.setlocale(), testing.client()
      local lock = assert(client:lock("k", { lease = 1.5 }):acquire())
      assert(testing.client():lock("k"):acquire(2.5)):release()
      local held = assert(client:lock("k"):acquire())
      assert(client:fence("f"):call(held, "hincrby", "hits", "i", 1) == 1)
      assert(client:fence("f"):call(held, "zincrby", "scores", 1.5, "i") == "1.5")
      assert(os.setlocale() == before)
    ]] }
    local how, code = program:wait(20)
    process.remove(directory)
    assert.same({ "exit", 0 }, { how, code }, program:output())
  end)

  it("does not affect real clients", function()
    local client = holdfast.new("redis://127.0.0.1:1")
    assert.equal("unreachable", code_of(client:lock("k"):acquire(0)))
    assert.equal("unreachable", code_of(client:ping()))
    client:close()
  end)
end)

describe("docs/how-to/testing.md", function()
  before_each(testing.reset)
  after_each(function()
    testing.recover()
    testing.reset()
  end)

  it("lists each function of holdfast.testing", function()
    local page = pages.read("docs/how-to/testing.md")
    for name in pairs(testing) do
      assert.is_true(page:find("\n| `testing." .. name .. "(", 1, true) ~= nil, name)
    end
  end)

  for i, block in ipairs(pages.blocks_in("docs/how-to/testing.md", "lua")) do
    it("contains an example that works: " .. i, function()
      assert((loadstring or load)(block.text, ("@docs/how-to/testing.md %d"):format(i)))()
    end)
  end
end)
