-- The binding, with a client whose clock and sockets belong to the test: operations.

local core = require "holdfast.core"
local driven = require "spec.support.driven"
local sys = require "spec.support.sys"

local raw, engine, operation = core.lock, core.engine, core.operation
local collect, new = driven.collect, driven.new
local server = driven.server

setup(driven.begin)
teardown(driven.finish)
before_each(driven.open)
after_each(driven.close)

describe("an operation", function()
  local one, lock

  before_each(function()
    one = new { renewer_link = true }
    lock = one:lock("k")
  end)

  it("returns its result once, and raises an error the second time", function()
    local op = one:begin(lock, "acquire")
    assert.is_false(operation.is_done(op))
    assert.equal(lock, one:finish(op))
    assert.is_true(operation.is_done(op))
    assert.has_error(function() operation.finish(op) end, "the operation has already finished")
    operation.abandon(op)
    assert.equal(1, raw.holds(lock))
    assert.equal(1, raw.balance(lock))
  end)

  it("that is finished before its reply arrives returns interrupted, and what it acquires is released", function()
    local op = one:begin(lock, "acquire")
    one:act()
    assert.equal("interrupted", select(3, operation.finish(op)))
    assert.equal(0, raw.balance(lock))
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("keeps the locks of a batch alive until it has finished", function()
    local kept = setmetatable({}, { __mode = "k" })
    local function begin()
      local locks = { one:lock("a"), one:lock("b") }
      kept[locks[1]], kept[locks[2]] = true, true
      engine.set_now(one.client, one.now)
      return (raw.begin_all(locks, "acquire_all"))
    end
    local op = begin()
    collect()
    assert.is_truthy(next(kept, (next(kept))))
    assert.is_true(one:finish(op))
    collect()
    assert.is_nil(next(kept))
    one:settle()
    assert.equal(0, server:cli("EXISTS", "a", "b"))
  end)

  it("that is a release still reduces the handle's balance if it is abandoned", function()
    local second = one:lock("k")
    one:call(second, "acquire")
    one:call(lock, "acquire")
    operation.abandon((one:begin(lock, "release")))
    core.lock_type.__gc(lock)
    one:settle()
    assert.equal(1, raw.holds(second))
    one:call(second, "release")
    lock = one:lock("k")
    for _ = 1, 3 do one:call(lock, "acquire") end
    local op = one:begin(lock, "release")
    one:act()
    operation.abandon(op)
    one:settle()
    assert.equal(2, raw.holds(lock))
    core.lock_type.__gc(lock)
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("can be reused only after it has finished, and only for one lock", function()
    local op = one:begin(lock, "acquire")
    assert.has_error(function() one:begin(lock, "check", 0, nil, op) end)
    one:finish(op)
    local again = one:begin(lock, "release", 0, nil, op)
    assert.equal(op, again)
    assert.is_true(one:finish(again))
    one:wait_until(function() return server:cli("EXISTS", "k") == 0 end)
    local several = raw.begin_all({ lock }, "acquire_all")
    assert.is_true(one:finish(several))
    assert.has_error(function() one:begin(lock, "release", 0, nil, several) end)
    one:call(lock, "release")
  end)

  it("keeps its lock and arguments alive until it has finished, and no longer", function()
    local kept = setmetatable({}, { __mode = "k" })
    local function complete()
      local guard = one:lock("guard", { kind = "guard" })
      one:call(guard, "acquire")
      kept[guard] = true
      -- after another call of its owner, so that its command is not written yet
      return (one:begin(guard, "extend", 20)), (one:begin(guard, "complete", 9,
        ("r"):rep(300) .. tostring(one.now)))
    end
    local function set()
      local words = { "SET", "word", ("w"):rep(300) .. tostring(one.now) }
      local op = one:begin(lock, "command", 0, words)
      words[1], words[2], words[3] = "DEL", "other", "x"
      return op
    end
    local extend, op = complete()
    collect()
    for _ = 1, 200 do local _ = ("x"):rep(300) .. tostring({}) end
    assert.is_truthy(next(kept))
    one:finish(extend)
    assert.is_true(one:finish(op))
    collect()
    assert.is_nil(next(kept))
    local duplicate = one:lock("guard", { kind = "guard" })
    local _, _, code, text = one:call(duplicate, "acquire")
    assert.equal("duplicate", code)
    assert.equal(("r"):rep(300) .. "1000", text)
    local command = set()
    collect()
    local others = {} -- would overwrite it if it were freed
    for i = 1, 20000 do others[i] = ("x"):rep(i % 400) .. i end
    assert.equal(20000, #others)
    assert.equal("OK", one:finish(command))
    assert.equal(("w"):rep(300) .. "1000", server:cli("GET", "word"))
  end)

  it("that is a release can continue without its caller, but an acquire cannot", function()
    local acquire = one:begin(lock, "acquire")
    assert.is_false(operation.detach(acquire))
    assert.is_false(operation.is_done(acquire))
    one:finish(acquire)
    local op = one:begin(lock, "release")
    assert.is_true(operation.detach(op))
    assert.equal(0, raw.balance(lock))
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
    local free = one:begin(one:lock("free"), "release")
    assert.equal("not_held", select(3, operation.detach(free)))
  end)

  it("is listed once, by its number, after it has ended", function()
    local _, first = one:begin(lock, "acquire")
    local second_op, second = one:begin(one:lock("b"), "acquire")
    assert.is_true(second > first)
    one.done = { 1, 2, 3, 4, 5 }
    one:wait_until(function() return operation.is_done(second_op) end)
    for _ = 1, 2 do one:act() end
    assert.is_nil(one.done[1])
    assert.equal(0, (engine.load(one.client)))
  end)

  it("no longer keeps its lock object alive once it has ended in any way", function()
    if not sys.allocated() then return pending "this libc does not say what is allocated" end
    local ends = {
      finish = operation.finish, abandon = operation.abandon, detach = operation.detach,
      collect = function() end, twice = function(op)
        operation.abandon(op)
        operation.abandon(op)
      end,
    }
    local key = ("k"):rep(20000)
    local function release()
      local of = one:lock(key, { owner = ("o"):rep(200) })
      one:call(of, "acquire")
      return (one:begin(of, "release"))
    end
    local function round(fn)
      fn(release())
      collect()
      one:settle()
      one.sent = {}
    end
    for name, fn in pairs(ends) do
      for _ = 1, 2 do round(fn) end
      local before = sys.allocated()
      for _ = 1, 5 do round(fn) end
      collect()
      assert(sys.allocated() - before < 3 * 20000, name)
    end
  end)

  it("on several locks is refused for mixed clients, other kinds and too many locks", function()
    local many = {}
    for i = 1, 1025 do many[i] = lock end
    assert.error_matches(function() raw.begin_all(many, "acquire_all") end, "too many locks")
    assert.error_matches(function()
      raw.begin_all({ lock, new():lock("of another client") }, "acquire_all")
    end, "locks of different clients")
    for _, kind in ipairs { "mutex", "fair" } do
      assert.error_matches(function()
        raw.begin_all({ lock, one:lock("of another kind", { kind = kind }) }, "acquire_all")
      end, "locks of other kinds")
    end
  end)
end)
