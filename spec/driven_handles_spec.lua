-- The binding, with a client whose clock and sockets belong to the test: the handles of locks.

local core = require "holdfast.core"
local driven = require "spec.support.driven"
local sys = require "spec.support.sys"

local raw, engine, operation = core.lock, core.engine, core.operation
local MARGIN, collect, near, new = driven.MARGIN, driven.collect, driven.near, driven.new
local server = driven.server

setup(driven.begin)
teardown(driven.finish)
before_each(driven.open)
after_each(driven.close)

describe("a handle", function()
  local one, lock

  before_each(function()
    one = new { renewer_link = true }
    lock = one:lock("k")
  end)

  it("gives up n of its caller's re-entrant acquires in abandon(n)", function()
    for _ = 1, 4 do one:call(lock, "acquire") end
    local number = raw.number(lock)
    raw.abandon(lock, number + 1, 2)
    assert.equal(4, raw.holds(lock))
    assert.equal(4, raw.balance(lock))
    raw.abandon(lock, number, 2)
    assert.equal(2, raw.holds(lock))
    assert.equal(2, raw.balance(lock))
    one:call(lock, "release")
    assert.equal("1", server:cli("HVALS", "k")[1])
    raw.abandon(lock, number, 9)
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
    assert.equal(0, raw.balance(lock))
    assert.equal(0, raw.holds(lock))
    assert.equal("not_held", select(3, one:call(lock, "release")))
  end)

  it("gives up everything that it has acquired in abandon() without a number", function()
    for _ = 1, 3 do one:call(lock, "acquire") end
    raw.abandon(lock)
    assert.equal(0, raw.balance(lock))
    one:call(lock, "release")
    assert.equal(0, raw.balance(lock))
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("keeps a balance of its acquires minus its releases", function()
    for _ = 1, 2 do one:call(lock, "acquire") end
    assert.equal(2, raw.balance(lock))
    one:call(lock, "release")
    assert.equal(1, raw.balance(lock))
    server:cli("DEL", "k")
    assert.equal("lost", select(3, one:call(lock, "release")))
    assert.equal(1, raw.balance(lock))
    assert.equal("not_held", select(3, one:call(one:lock("free"), "release")))
    for kind, key in pairs { lock = "c", permit = "p" } do
      local of = one:lock(key, { kind = kind, permits = 1, initial_permits = 2 })
      one:call(of, "acquire")
      local before = raw.balance(of)
      server:cli("DEL", key)
      server:cli("SET", key, "another type")
      assert.equal("conflict", select(3, one:call(of, "release")))
      assert.equal(before, raw.balance(of))
    end
  end)

  it("returns its last loss until its next acquire, and its first loss permanently", function()
    one:call(lock, "acquire")
    server:cli("DEL", "k")
    one:pass(11)
    assert.equal("deleted", raw.lost(lock))
    assert.equal("deleted", raw.first_loss(lock))
    assert.equal("deleted", raw.pending_loss(lock))
    assert.is_nil(raw.pending_loss(lock))
    assert.same({ nil, "deleted" }, { raw.standing(lock) })
    assert.is_false(raw.is_held(lock))
    assert.equal(0, raw.holds(lock))
    assert.is_nil(raw.token(lock))
    assert.equal(core.client.uuid(one.client) .. "/1", raw.owner(lock)) -- its caller
    one:call(lock, "acquire")
    assert.matches(":%d+$", raw.owner(lock))
    assert.is_nil(raw.lost(lock))
    near(30 - MARGIN, raw.standing(lock))
    assert.is_nil((select(2, raw.standing(lock))))
    assert.equal("deleted", raw.first_loss(lock))
    one.now = one.now + 60
    engine.set_now(one.client, one.now)
    assert.same({ nil, "expired" }, { raw.standing(lock) })
    assert.equal("expired", raw.lost(lock))
    assert.same({ nil, "expired" }, { raw.standing(lock) })
    assert.equal("deleted", raw.first_loss(lock))
  end)

  it("counts acquires of a lost hold and of the next one together in abandon(n)", function()
    for _ = 1, 2 do one:call(lock, "acquire") end
    server:cli("DEL", "k")
    one:pass(11)
    one:call(lock, "acquire")
    raw.abandon(lock, raw.number(lock), 2)
    assert.equal(1, raw.balance(lock))
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("keeps a loss that an async release finds for its caller while another caller uses the handle", function()
    one:call(lock, "acquire")
    server:cli("DEL", "k")
    assert.is_true(operation.detach((one:begin(lock, "release"))))
    one:act()
    local others
    coroutine.wrap(function() others = one:begin(lock, "acquire") end)()
    assert.equal(lock, one:finish(others))
    one:settle()
    assert.is_string(raw.pending_loss(lock))
    raw.abandon(lock)
    one:settle()
  end)

  it("does not hold what another handle of its owner acquired if its own acquire failed", function()
    local mine, second = one:lock("k", { owner = "me" }), one:lock("k", { owner = "me" })
    one:call(mine, "acquire")
    server:cli("DEL", "k")
    one:pass(11)
    one:call(second, "acquire")
    for _, call in ipairs { "check", "extend", "release" } do
      assert.equal("lost", select(3, one:call(mine, call, 9)), call)
    end
    near(30 - MARGIN, raw.remaining(second))
    one:call(second, "release")
    assert.equal("not_held", select(3, one:call(mine, "release")))
    server:cli("HSET", "k", "somebody", 1)
    server:cli("PEXPIRE", "k", 30000)
    assert.equal("busy", select(3, one:call(mine, "acquire")))
    server:cli("DEL", "k")
    one:call(second, "acquire")
    assert.equal("not_held", select(3, one:call(mine, "release")))
    assert.is_true(raw.is_held(second))
    assert.is_true(one:call(second, "release"))
  end)

  it("does not use more memory with each loss", function()
    if not sys.allocated() then return pending "this libc does not say what is allocated" end
    local function lose(times)
      for _ = 1, times do
        one:call(lock, "acquire")
        one.now = one.now + 31
        one:pass(0)
        server:cli("FLUSHALL")
        one.sent = {}
      end
      collect()
      return sys.allocated()
    end
    -- The C library's caches count as allocated, and grow until they are full.
    local before, grown = lose(20), nil
    for _ = 1, 15 do
      local now = lose(60)
      before, grown = now, now - before
      if grown < 10000 then break end
    end
    assert(grown < 10000, ("%d bytes for 60 losses"):format(grown))
    assert.equal("expired", raw.lost(lock))
  end)

  it("returns the loss that an async release found", function()
    one:call(lock, "acquire")
    server:cli("DEL", "k")
    local op = one:begin(lock, "release")
    assert.is_true(operation.detach(op))
    one:settle()
    assert.equal("deleted", raw.lost(lock))
    assert.matches("lost: deleted", tostring(lock))
    assert.is_nil(coroutine.wrap(function() return raw.lost(lock) end)()) -- it was another caller's
    raw.abandon(lock)
    assert.equal("deleted", raw.lost(lock))
    one:call(lock, "acquire")
    assert.is_nil(raw.lost(lock))
  end)

  it("starts and stops the renewals for a multi-lock only for its caller's own hold", function()
    local fixed = one:lock("k", { renewed = false })
    one:call(fixed, "acquire")
    coroutine.wrap(function() raw.collect(fixed) end)()
    one:pass(12)
    near(18 - MARGIN, raw.remaining(fixed))
    raw.collect(fixed)
    coroutine.wrap(function() raw.settle(fixed) end)()
    for _ = 1, 2 do one:pass(12) end
    near(30 - MARGIN, raw.remaining(fixed))
  end)

  it("gives each caller a separate owner number, or 0 to all if it has a named owner or permits", function()
    local function other(fn) return coroutine.wrap(fn)() end
    local function number(of) return function() return (raw.number(of)) end end
    local first, second = other(number(lock)), other(number(lock))
    assert.equal(1, raw.number(lock))
    assert.is_true(first > 1 and second == first + 1)
    assert.equal(77, raw.number(lock, 77))
    local owned = one:lock("o", { owner = "me" })
    local permits = one:lock("p", { kind = "permit", permits = 1 })
    assert.equal(0, raw.number(owned))
    assert.equal(0, other(number(owned)))
    assert.equal(0, raw.number(permits))
    one:call(lock, "acquire")
    assert.equal(1, raw.holds(lock))
    assert.equal(0, other(function() return (raw.holds(lock)) end))
    assert.equal(1, other(function() return (raw.holds(lock, 1)) end))
    assert.is_true(other(function() return (raw.is_held(lock, 1)) end))
  end)

  -- No coroutine of this state has made a call yet.
  it("gives the main coroutine and the first other coroutine different numbers", function()
    local code = [[
      local core = require "holdfast.core"
      local client = core.client.new { url = "redis://127.0.0.1:1", external = true }
      local lock = core.lock.new(client, { client = client, key = "k", lease = 1 })
      local function number() return core.lock.number(lock) end
      local first, second = coroutine.wrap(number)(), coroutine.wrap(number)()
      return ("%d %d %d"):format(first, second, number())
    ]]
    assert.same({ "2 3 1" }, sys.run_threads { code })
  end)

  it("releases its hold when it is collected, even while an operation is in flight", function()
    one:call(lock, "acquire")
    local op = one:begin(lock, "info")
    core.lock_type.__gc(lock)
    one:wait_until(function() return server:cli("EXISTS", "k") == 0 end)
    assert.is_table(one:finish(op))
  end)

  it("reports no hold after it was collected", function()
    one:call(lock, "acquire")
    core.lock_type.__gc(lock)
    assert.is_false(raw.is_held(lock))
    assert.equal(0, raw.holds(lock))
    assert.equal(0, raw.remaining(lock))
    assert.is_nil(raw.token(lock))
    assert.is_nil(raw.lost(lock))
    for _, name in ipairs {
      "first_loss", "pending_loss", "has_news", "standing", "owner", "collect", "settle", "abandon",
    } do assert.equal(0, select("#", raw[name](lock)), name) end
    assert.equal(0, select("#", raw.approve(lock, 1)))
    assert.equal("", raw.key(lock))
    assert.is_true(raw.is_closed(lock))
    assert.equal("holdfast.lock:  (not held)", tostring(lock))
    assert.has_error(function() raw.copy(lock, "k") end, "the lock was garbage-collected")
    assert.has_error(function() raw.begin(lock, "acquire", 0) end, "the lock was garbage-collected")
    assert.has_error(function() raw.begin_all({ lock }, "acquire_all") end)
    core.lock_type.__gc(lock)
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
  end)
end)
