-- The binding, with a client whose clock and sockets belong to the test.

local core = require "holdfast.core"
local driven = require "spec.support.driven"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local raw, engine, operation = core.lock, core.engine, core.operation

local ENTROPY = ("e"):rep(24)
local MARGIN = 0.302 -- of a lease of 30 s: a hundredth and 2 ms

local server, ones, handles

local function new(fields)
  local one = driven.client(server, fields)
  ones[#ones + 1] = one
  return one
end

setup(function() server = redis.start() end)
teardown(function() server:stop() end)
before_each(function() ones, handles = {}, {} end)
after_each(function()
  for _, one in ipairs(ones) do one:close() end
  server:cli("FLUSHALL")
end)

-- Acquires the lock. Keeps the handle until the test ends, as a handle that is collected sends a
-- release.
local function hold(one, lock)
  handles[#handles + 1] = lock
  return one:call(lock, "acquire")
end

local function near(expected, number)
  assert(math.abs(expected - number) < 1e-6, ("%s is not %s"):format(tostring(number), expected))
end

-- Returns the words after the keys of the last command that runs a program.
local function last_arguments(one)
  local found = {}
  for _, words in ipairs(one:commands()) do
    if words[1]:find("^EVAL") then
      found = {}
      for i = 4 + tonumber(words[3]), #words do found[#found + 1] = words[i] end
    end
  end
  return found
end

-- Returns the commands that were sent, sorted: over several connections, their order is not
-- defined.
local function sorted_commands(one)
  local list = one:commands()
  table.sort(list, function(a, b) return table.concat(a, " ") < table.concat(b, " ") end)
  return list
end

local function collect()
  collectgarbage()
  collectgarbage()
end

describe("the settings of a lock", function()
  -- Returns all settings, each with a different value.
  local function settings(one, more)
    local given = {
      lease = 17, max_hold = 9, wait = 4.5, max_waiters = 3, keep = 0.25, deadlock_check = 0.5,
      observer = 7, class = core.client.class(one.client, "jobs"), token_ttl = 90, renewed = true,
      permits = 2, permits_at_first = 5,
    }
    for name, value in pairs(more or {}) do given[name] = value end
    return given
  end

  local function plain_events(one)
    local list = {}
    for i, event in ipairs(core.client.events(one.client) or {}) do
      event.token = event.token and true
      list[i] = event
    end
    return list
  end

  -- → what a lock does: it waits for its own `wait`, is renewed, ends with its max_hold, is
  -- acquired again, released and kept
  local function history(copied, kind)
    server:cli("FLUSHALL")
    server:cli("SCRIPT", "FLUSH")
    local one = new { entropy = ENTROPY, renewer_link = true }
    core.client.class(one.client, "first")
    core.client.watch(one.client)
    local first = one:lock("other", settings(one, { kind = kind }))
    local lock = copied and raw.copy(first, "k") or one:lock("k", settings(one, { kind = kind }))
    local seen = {}
    local function note(...) seen[#seen + 1] = { ... } end
    local function step(seconds)
      one:pass(seconds)
      note(sorted_commands(one), engine.load(one.client))
      note(raw.remaining(lock), raw.lost(lock), raw.waited(lock), raw.balance(lock))
    end
    note(one:call(lock, "acquire") == lock)
    step(6)
    step(4)
    note(one:call(lock, "acquire") == lock, raw.owner(lock))
    note(one:call(lock, "release"))
    step(0.2)
    step(0.3)
    server:cli("SET", "k", "another type")
    note(one:call(lock, "acquire"))
    note(plain_events(one))
    one:close()
    return seen
  end

  -- Waits behind another holder until the lock's own `wait` is over.
  local function wait_of(copied)
    server:cli("SCRIPT", "FLUSH")
    local holder = new()
    local kept = holder:lock("k")
    holder:call(kept, "acquire")
    local one = new { entropy = ENTROPY }
    local first = one:lock("other", settings(one))
    local lock = copied and raw.copy(first, "k") or one:lock("k", settings(one))
    engine.set_now(one.client, one.now)
    local op = raw.begin(lock, "acquire")
    one:wait_until(function() return server:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    one:pass(0)
    local seen = { last_arguments(one) }
    for _, seconds in ipairs { 0.4, 0.2, 3.8, 0.2 } do
      one:pass(seconds)
      seen[#seen + 1] = { operation.is_done(op), #one:commands() }
    end
    op:finish()
    one:settle()
    one:close()
    holder:call(kept, "release")
    return seen
  end

  for _, kind in ipairs { "lock", "mutex", "fair", "read", "write", "permit" } do
    it("have the same effect on a copied lock of kind " .. kind, function()
      local own, copied = history(false, kind), history(true, kind)
      assert.same(own, copied)
    end)
  end

  it("have the same effect on the waits of a copied lock", function()
    assert.same(wait_of(false), wait_of(true))
  end)

  it("for lease, renewal and max_waiters apply to a copied lock with a different key", function()
    local one, holder = new { renewer_link = true }, new()
    local renewed = raw.copy(one:lock("a", { lease = 9 }), "b")
    local fixed = raw.copy(one:lock("a", { lease = 9, renewed = false }), "c")
    for lock, left in pairs { [renewed] = 9 - 0.092, [fixed] = 5 - 0.092 } do
      assert.is_nil(raw.waited(lock))
      one:call(lock, "acquire")
      one:pass(4)
      near(left, raw.remaining(lock))
    end
    local kept = holder:lock("k")
    holder:call(kept, "acquire")
    for most, code in pairs { [0] = "busy", [1] = "interrupted", [2 ^ 40] = "interrupted" } do
      local copy = raw.copy(one:lock("a", { max_waiters = most }), "k")
      local op = one:begin(copy, "acquire", 5)
      one:pass(0)
      assert.equal(most == 0, operation.is_done(op))
      assert.equal(code, select(3, operation.finish(op)))
      one:settle()
    end
    local waiters, waits = { new(), new() }, {}
    for i, waiter in ipairs(waiters) do
      waits[i] = waiter:begin(waiter:lock("k"), "acquire", 5)
      waiter:wait_until(function() return server:cli("ZCOUNT", "holdfast_queue:{k}", "(0", "+inf") == i end)
    end
    local second = one:begin(raw.copy(one:lock("a", { max_waiters = 1 }), "k"), "acquire", 5)
    assert.equal("busy", select(3, one:finish(second)))
    one:settle(0.1)
    for i, waiter in ipairs(waiters) do
      operation.finish(waits[i])
      waiter:settle(0.1)
    end
    holder:call(kept, "release")
  end)

  it("are sent to the server as the arguments that its programs expect", function()
    local one = new { entropy = ENTROPY, grant_lease = 3 }
    local waits = one:lock("k", settings(one, { max_hold = 0 }))
    one:call(waits, "acquire")
    local first = last_arguments(one)
    assert.equal("3000", first[2])
    assert.equal("17000", first[5])
    assert.equal("90000", first[6])
    hold(one, one:lock("s", settings(one, { kind = "permit", max_hold = 0 })))
    local permits = last_arguments(one)
    assert.matches("%*2$", permits[1])
    assert.equal("17000", permits[5])
    assert.equal("5", permits[#permits])
    one:call(waits, "extend", 7.25)
    assert.equal("7250", last_arguments(one)[2])
  end)

  it("limit lease, hold and renewal of that lock only", function()
    local one = new { renewer_link = true }
    local short = one:lock("short", { lease = 3, max_hold = 9 })
    local fixed = one:lock("fixed", { renewed = false })
    one:call(short, "acquire")
    one:call(fixed, "acquire")
    one:pass(2)
    one:pass(2)
    near(3 - 0.032, raw.remaining(short)) -- renewed at this moment
    near(26 - MARGIN, raw.remaining(fixed))
    for _ = 1, 5 do one:pass(1) end
    assert.equal("max_hold", raw.lost(short))
    assert.is_nil(raw.lost(fixed))
  end)

  it("are converted to whole numbers and milliseconds, or refused", function()
    local one = new()
    local function permits_sent(permits)
      local lock = one:lock("n" .. tostring(permits), { kind = "permit", permits = permits })
      one:call(lock, "acquire")
      return last_arguments(one)[1]:match("%*(%d+)$")
    end
    assert.equal("2", permits_sent(2.9))
    assert.has_error(function() permits_sent(0) end)
    assert.has_error(function() permits_sent(0 / 0) end)
    for given, sent in pairs { [0.0015] = "2", [0.3] = "300", [1.0001] = "1001", [2] = "2000" } do
      hold(one, one:lock("t" .. given, { token_ttl = given }))
      assert.equal(sent, last_arguments(one)[3])
    end
    for _, given in ipairs { 0.0015, 0.3, 1.1, 1.001, -1, 0 / 0 } do
      local other = new { connect_timeout = given, command_timeout = 2 }
      local connect, command = engine.timeouts(other.client)
      assert.equal(given > 0 and given or 0, connect)
      assert.equal(2, command)
    end
    local _, longest = engine.timeouts(new({ command_timeout = 1 / 0 }).client)
    assert.is_true(longest > 9e9)
  end)

  it("are read from the table itself, not through its metatable", function()
    local one = new()
    local behind = { lease = 5, owner = "somebody", kind = "mutex", token_ttl = 5 }
    local given = setmetatable({ client = one.client, key = "k", lease = 12 }, { __index = behind })
    local lock = raw.new(one.client, given)
    one:call(lock, "acquire", 0)
    near(12 - 0.122, raw.remaining(lock))
    assert.matches(":1$", raw.owner(lock))
    assert.equal(given, raw.data(lock))
  end)

  it("limit the length of owner and key", function()
    local one = new()
    for size, fits in pairs { [0] = false, [1] = true, [255] = true, [256] = false } do
      local owner = ("o"):rep(size)
      local made, lock = pcall(one.lock, one, "k" .. size, { owner = owner, fingerprint = "print" })
      assert.equal(fits, made)
      if fits then
        one:call(lock, "acquire")
        assert.equal(owner, raw.owner(lock))
        assert.equal(1, server:cli("HEXISTS", "k" .. size, owner))
        one:call(lock, "release")
      end
    end
    local lock = one:lock("k")
    assert.has_error(function() raw.copy(lock, "") end)
    assert.has_error(function() one:lock("") end)
  end)
end)

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

  it("does not give up in abandon() an acquire whose release is in flight", function()
    local second = one:lock("k")
    one:call(second, "acquire")
    one:call(lock, "acquire")
    one:call(lock, "acquire")
    local op = one:begin(lock, "release")
    raw.abandon(lock)
    assert.is_true(one:finish(op))
    one:settle()
    assert.equal(1, raw.holds(second))
    one:call(lock, "acquire")
    op = one:begin(lock, "release")
    raw.abandon(lock)
    raw.abandon(lock, raw.number(lock), 1)
    assert.is_true(one:finish(op))
    assert.equal(1, raw.holds(second))
    assert.is_true(one:call(second, "release"))
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("gives up no more acquires in abandon() than it has, even while several releases are in flight", function()
    local second = one:lock("k")
    one:call(lock, "acquire")
    for _ = 1, 3 do one:call(second, "acquire") end
    local first, later = one:begin(lock, "release"), one:begin(lock, "release")
    raw.abandon(lock)
    assert.is_true(one:finish(first))
    raw.abandon(lock)
    assert.is_true(one:finish(later))
    raw.abandon(lock)
    one:settle()
    assert.equal(2, raw.holds(second))
    for _ = 1, 2 do one:call(second, "release") end
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("gives up no acquire of a newer hold in abandon() while releases of a lost hold are in flight", function()
    local second = one:lock("k")
    for _ = 1, 2 do one:call(lock, "acquire") end
    local ops = { one:begin(lock, "release"), nil }
    ops[2] = one:begin(lock, "release")
    ops[3] = one:begin(second, "acquire")
    server:cli("DEL", "k")
    for _, op in ipairs(ops) do one:wait_until(function() return operation.is_done(op) end) end
    assert.equal("lost", select(3, operation.finish(ops[1])))
    operation.finish(ops[3])
    raw.abandon(lock)
    operation.finish(ops[2])
    raw.abandon(lock)
    one:settle()
    assert.is_true(raw.is_held(second))
    assert.is_true(one:call(second, "release"))
  end)

  it("keeps a balance of its acquires minus its releases", function()
    one:call(lock, "acquire")
    one:call(lock, "acquire")
    assert.equal(2, raw.balance(lock))
    one:call(lock, "release")
    assert.equal(1, raw.balance(lock))
    server:cli("DEL", "k")
    assert.equal("lost", select(3, one:call(lock, "release")))
    assert.equal(1, raw.balance(lock))
    assert.equal("not_held", select(3, one:call(one:lock("free"), "release")))
    for kind, key in pairs { lock = "c", permit = "p" } do
      local of = one:lock(key, { kind = kind, permits = 1, permits_at_first = 2 })
      one:call(of, "acquire")
      local before = raw.balance(of)
      server:cli("DEL", key)
      server:cli("SET", key, "another type")
      assert.equal("conflict", select(3, one:call(of, "release")))
      assert.equal(before, raw.balance(of))
    end
  end)

  it("subtracts a release from its balance even if the release does not reach the server", function()
    one:call(lock, "acquire")
    local op = one:begin(lock, "release")
    one:act()
    for link in pairs(one.fds) do one:disconnect(link, "cut") end
    one.now = one.now + 4
    engine.set_now(one.client, one.now)
    engine.tick(one.client)
    assert.is_true(operation.is_done(op))
    assert.equal("unreachable", select(3, operation.finish(op)))
    assert.equal(0, raw.balance(lock))
    one:settle(1)
  end)

  it("returns how long its last successful acquire took", function()
    assert.is_nil(raw.waited(lock))
    local holder = new()
    local kept = holder:lock("k")
    holder:call(kept, "acquire")
    one:call(lock, "acquire")
    assert.is_nil(raw.waited(lock))
    local op = one:begin(lock, "acquire", 10)
    one:wait_until(function() return server:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    one:pass(2)
    holder:call(kept, "release")
    assert.equal(lock, one:finish(op))
    assert.equal(2, raw.waited(lock))
    one:call(lock, "acquire")
    assert.equal(0, raw.waited(lock))
    one:call(lock, "release")
    one:call(lock, "release")
    assert.equal(0, raw.waited(lock))
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

  it("returns no loss of an earlier hold after a later one was released", function()
    one:call(lock, "acquire")
    server:cli("DEL", "k")
    assert.equal("lost", select(3, one:call(lock, "release")))
    assert.equal("deleted", raw.lost(lock))
    one:call(lock, "acquire")
    one:call(lock, "release")
    assert.is_nil(raw.lost(lock))
  end)

  it("counts acquires of a lost hold and of the next one together in abandon(n)", function()
    one:call(lock, "acquire")
    one:call(lock, "acquire")
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

  it("returns true from has_news while an async release is in flight, and after a loss", function()
    one:call(lock, "acquire")
    assert.same({ false, false }, { raw.has_news(lock) })
    local op = one:begin(lock, "release")
    assert.is_true(operation.detach(op))
    assert.same({ true, false }, { raw.has_news(lock) })
    one:settle()
    assert.same({ false, false }, { raw.has_news(lock) })
    one:call(lock, "acquire")
    server:cli("DEL", "k")
    one:pass(11)
    assert.same({ false, true }, { raw.has_news(lock) })
    raw.pending_loss(lock)
    assert.same({ false, false }, { raw.has_news(lock) })
    core.client.watch(one.client)
    one:call(lock, "acquire")
    assert.same({ true, false }, { raw.has_news(lock) })
    core.client.events(one.client)
    assert.same({ false, false }, { raw.has_news(lock) })
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

  it("reports a loss that happens after all locks of its multi-lock were acquired", function()
    one:call(lock, "acquire")
    raw.collect(lock)
    raw.settle(lock)
    server:cli("DEL", "k")
    one:pass(11)
    assert.equal("deleted", raw.pending_loss(lock))
  end)

  it("reports no loss while its multi-lock is being acquired, unless it was held before", function()
    local held = one:lock("before")
    one:call(held, "acquire")
    one:call(held, "acquire")
    one:call(lock, "acquire")
    raw.collect(held)
    raw.collect(lock)
    server:cli("DEL", "k", "before")
    one:pass(11)
    assert.is_nil(raw.pending_loss(lock))
    assert.equal("deleted", raw.pending_loss(held))
  end)

  it("without renewal is renewed only while the rest of its multi-lock is being acquired", function()
    local function remaining_later(lock_of)
      one:pass(12)
      return raw.remaining(lock_of)
    end
    for _, ending in ipairs { "settle", "release", "abandon" } do
      local fixed = one:lock("of " .. ending, { renewed = false })
      one:call(fixed, "acquire")
      one:call(fixed, "acquire")
      raw.collect(fixed)
      near(30 - MARGIN, remaining_later(fixed))
      if ending == "settle" then raw.settle(fixed)
      elseif ending == "release" then one:call(fixed, "release")
      else raw.abandon(fixed, raw.number(fixed), 1) end
      one:pass(0)
      local left = raw.remaining(fixed)
      near(left - 12, remaining_later(fixed))
    end
    local renewed = one:lock("renewed")
    one:call(renewed, "acquire")
    raw.collect(renewed)
    raw.settle(renewed)
    near(30 - MARGIN, remaining_later(renewed))
  end)

  it("without renewal is renewed after its multi-lock was acquired only if another handle wants renewal", function()
    local fixed, renewed = one:lock("f", { renewed = false }), one:lock("f")
    one:call(fixed, "acquire")
    one:call(fixed, "acquire")
    raw.collect(fixed)
    raw.settle(fixed)
    one:call(renewed, "acquire")
    one:call(fixed, "release")
    raw.abandon(fixed, raw.number(fixed), 1)
    one:pass(12)
    near(30 - MARGIN, raw.remaining(renewed))
    raw.abandon(renewed)
    one:settle()
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

  it("of a client that needs approval is renewed only after approval for the caller that holds the lock", function()
    local careful = new { renewer_link = true, needs_approval = true }
    local of = careful:lock("of", { lease = 12 })
    careful:call(of, "acquire")
    local function asked()
      engine.set_now(careful.client, careful.now)
      return select(3, engine.advance(careful.client, {}, {}))
    end
    local before = asked()
    careful:pass(4.5)
    assert.is_true(asked() > before)
    raw.approve(of, raw.number(of) + 1)
    careful:pass(0)
    near(12 - 0.122 - 4.5, raw.remaining(of))
    raw.approve(of, raw.number(of))
    careful:pass(0)
    near(12 - 0.122, raw.remaining(of))
    assert.has_error(function() raw.approve(of, -1) end)
    careful:pass(4.5)
    careful:call(of, "acquire") -- this shows that its caller exists
    careful:pass(4.5)
    near(12 - 0.122, raw.remaining(of))
  end)

  it("gives each caller a separate owner number, or 0 to all if it has a named owner or permits", function()
    local function other(fn)
      return coroutine.wrap(fn)()
    end
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

  it("of a semaphore acquires permits for an owner of its own", function()
    local first = one:lock("p", { kind = "permit", permits = 1, permits_at_first = 2 })
    local copy = raw.copy(first, "p")
    assert.equal(first, one:call(first, "acquire"))
    assert.equal(copy, one:call(copy, "acquire"))
    local third = one:lock("p", { kind = "permit", permits = 1 })
    assert.equal("busy", select(3, one:call(third, "acquire")))
    assert.is_true(one:call(first, "release"))
    assert.is_true(raw.is_held(copy))
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

  it("lets its caller change its owner number permanently or for a while", function()
    local was = raw.number(lock)
    local new_one = raw.renumber()
    assert.is_true(new_one > was)
    assert.equal(new_one, raw.number(lock))
    assert.equal(was, raw.renumber(was))
    assert.equal(was, raw.number(lock))
    assert.is_true(raw.renumber() > new_one)
    raw.renumber(was)
  end)

  it("is not collected before its operations have ended", function()
    local op = one:begin(lock, "acquire")
    local weak = setmetatable({ lock }, { __mode = "k" })
    weak[lock], weak[1], lock = true, nil, nil
    collect()
    assert.is_truthy(next(weak)) -- the operation keeps it
    one:wait_until(function() return operation.is_done(op) end)
    assert.is_true(raw.is_held((operation.finish(op))))
    collect()
    assert.is_nil(next(weak)) -- the finished operation does not
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
    assert.is_userdata(op)
  end)

  it("accepts many operations at once", function()
    local read = one:lock("k", { kind = "read" })
    local ops = {}
    for i = 1, 9 do
      coroutine.wrap(function() ops[i] = one:begin(read, "acquire") end)()
    end
    for i = 1, 9 do assert.equal(read, one:finish(ops[i])) end
    assert.equal(9, raw.balance(read))
    for number = 2, 1000 do
      if raw.balance(read) == 0 then break end
      raw.abandon(read, number, 1)
    end
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
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
    } do
      assert.equal(0, select("#", raw[name](lock)), name)
    end
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

  it("that is abandoned releases what it has acquired, even if that is several locks", function()
    for _, ending in ipairs { "abandon", "collect" } do
      local locks = { one:lock("a"), one:lock("b"), one:lock("c") }
      engine.set_now(one.client, one.now)
      local op = raw.begin_all(locks, "acquire_all")
      local single = one:begin(lock, "acquire")
      one:wait_until(function() return operation.is_done(op) and operation.is_done(single) end)
      if ending == "abandon" then
        operation.abandon(op)
        operation.abandon(single)
      end
      op, single = nil, nil
      collect()
      one:settle()
      assert.equal(0, server:cli("EXISTS", "a", "b", "c", "k"))
      for _, each in ipairs(locks) do assert.equal(0, raw.balance(each)) end
    end
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

  it("that needs no lock does not name one in its error message", function()
    for kind, words in pairs { ping = false, command = { "GET", "x" } } do
      local op = one:begin(lock, kind, 0, words or nil)
      one.now = one.now + 4
      engine.set_now(one.client, one.now)
      engine.tick(one.client)
      local _, message, code = operation.finish(op)
      assert.equal("unreachable", code)
      assert.is_nil(message:find('"k"', 1, true), message)
    end
  end)

  it("of a fence is refused if it has more keys than arguments", function()
    local _, message = one:call(lock, "fenced", 99, { "7", "GET", "x" })
    assert.is_string(message or "")
    assert.is_true(one:call(lock, "ping"))
  end)

  it("returns the results that its kind defines", function()
    server:cli("SET", "plain", 1)
    local latch = one:lock("l", { kind = "latch" })
    assert.is_true(one:call(latch, "set_count", 3))
    assert.is_false(one:call(latch, "set_count", 4))
    assert.equal(3, one:call(latch, "count"))
    assert.equal(1, one:call(latch, "count_down", 2))
    assert.equal(0, one:call(latch, "count_down", 2))
    assert.is_false(one:call(latch, "count_down", 1))
    assert.is_true(one:call(latch, "await", 1))
    assert.is_false(one:call(latch, "delete"))
    local permits = one:lock("p", { kind = "plain_semaphore", permits = 2 })
    assert.equal(5, one:call(permits, "give", 5))
    assert.equal(4, one:call(permits, "give", -1))
    assert.is_true(one:call(permits, "take", 0))
    assert.equal(2, one:call(permits, "drain"))
    assert.equal(0, one:call(permits, "drain"))
    assert.is_nil((one:call(lock, "ttl")))
    assert.equal(math.huge, one:call(one:lock("plain"), "ttl"))
    assert.is_false(one:call(lock, "force_release"))
    one:call(lock, "acquire")
    assert.is_true(one:call(lock, "force_release"))
    assert.is_true(one:call(lock, "ping"))
    assert.same({ "1" }, one:call(lock, "command", 0, { "MGET", "plain" }))
    assert.is_nil((one:call(lock, "command", 0, { "GET", "none" })))
    assert.equal("WRONGTYPE", (select(2, one:call(lock, "command", 0, { "HGET", "plain", "x" })))
      :match("WRONGTYPE"))
  end)

  it("of an idempotent run uses the fingerprint of its own handle", function()
    local guard = one:lock("g", { kind = "guard", fingerprint = "first" })
    one:call(guard, "acquire")
    local seen = {}
    for _ = 1, 2 do
      for _, print in ipairs { "first", "second" } do
        local of = one:lock("g", { kind = "guard", fingerprint = print, owner = "another" })
        seen[#seen + 1] = select(3, one:call(of, "acquire"))
      end
      one:call(guard, "complete", 9, "record")
    end
    assert.same({ "busy", "mismatch", "duplicate", "mismatch" }, seen)
  end)

  it("is refused if the lock's kind does not have it", function()
    for kind, refused in pairs { lock = "take", latch = "acquire", plain_semaphore = "release",
      guard = "give", permit = "complete" } do
      local of = one:lock("k", { kind = kind, permits = 1 })
      assert(not pcall(one.begin, one, of, refused), kind .. " " .. refused)
    end
    for _, name in ipairs { "raise", "acquire_all", "release_all", "nothing" } do
      assert.has_error(function() one:begin(lock, name) end,
        "there is no operation called " .. name)
    end
    assert.has_error(function() raw.acquire(lock, 0) end,
      "this client does not block; use begin and finish")
    assert.has_error(function() core.client.ping(one.client) end,
      "this client does not block; use begin and finish")
    local blocking = core.client.new { url = server:url() }
    assert.has_error(function() engine.tick(blocking) end, "not an external client")
    assert.has_error(function() engine.serve(blocking) end, "not a client of an event loop")
    assert.has_error(function() engine.serve(one.client) end, "not a client of an event loop")
    local of_it = raw.new(blocking, { client = blocking, key = "k", lease = 1 })
    assert.has_error(function() raw.begin_all({ of_it }, "acquire_all") end,
      "this client drives itself")
    assert.has_error(function() raw.begin_all({ lock, of_it }, "acquire_all") end)
    local read = one:lock("r", { kind = "read" })
    assert.has_error(function() raw.begin_all({ lock, read }, "acquire_all") end)
    assert.has_error(function() raw.begin_all({}, "acquire_all") end)
    core.client.close(blocking, 0)
  end)

  it("returns a lock's state as stored on the server", function()
    server:cli("SET", "redisson_lock_token:{k}", 41)
    local info = one:call(lock, "info")
    assert.same({ holds = 0, waiters = 0 }, { holds = info.holds, waiters = info.waiters })
    assert.is_nil(info.owner)
    assert.is_nil(info.ttl)
    assert.is_nil(info.free)
    assert.is_nil(info.position)
    assert.is_nil(info.readers)
    one:call(lock, "acquire")
    one:call(lock, "acquire")
    local waiter, second = new(), new()
    local op = waiter:begin(waiter:lock("k"), "acquire", 5)
    waiter:wait_until(function() return server:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    local later = second:begin(second:lock("k"), "acquire", 5)
    second:wait_until(function() return server:cli("ZCOUNT", "holdfast_queue:{k}", "(0", "+inf") == 2 end)
    info = one:call(lock, "info")
    assert.equal(raw.owner(lock), info.owner)
    assert.equal(2, info.holds)
    assert.equal(2, info.waiters)
    assert.is_true(info.ttl > 29 and info.ttl <= 30)
    assert.is_nil(info.position)
    assert.equal(2, (second:call(second:lock("k"), "info")).position)
    assert.equal(1, (waiter:call(waiter:lock("k"), "info")).position)
    waiter.now, second.now = waiter.now + 6, second.now + 6
    assert.equal("busy", select(3, waiter:finish(op)))
    assert.equal("busy", select(3, second:finish(later)))
    waiter:settle(0.1)
    second:settle(0.1)
    server:cli("PERSIST", "k")
    assert.equal(math.huge, one:call(lock, "info").ttl)
    local read = one:lock("rw", { kind = "read" })
    assert.equal(0, one:call(read, "info").readers)
    one:call(read, "acquire")
    assert.equal(1, one:call(read, "info").readers)
    local permits = one:lock("s", { kind = "permit", permits = 2, permits_at_first = 5 })
    one:call(permits, "acquire")
    assert.equal(3, one:call(permits, "info").free)
  end)

  it("on several locks does not release a hold that another handle acquired after a loss", function()
    local locks = { one:lock("a"), one:lock("b"), one:lock("c") }
    local other = one:lock("b")
    assert.is_true(one:call_all(locks, "acquire_all"))
    server:cli("DEL", "b")
    one:pass(11)
    one:call(other, "acquire")
    local _, message, code = one:call_all(locks, "release_all")
    assert.equal("lost", code)
    assert.matches('"a".*1 of the 3 locks had already been lost', message)
    assert.equal(1, server:cli("EXISTS", "a", "b", "c"))
    assert.is_true(raw.is_held(other))
    assert.equal("deleted", raw.lost(locks[2]))
    assert.is_true(one:call(other, "release"))
    assert.equal("deleted", raw.lost(locks[2]))
    one:call(other, "acquire")
    server:cli("DEL", "b")
    one:pass(11)
    one:call(other, "acquire")
    assert.equal("not_held", select(3, one:call_all({ locks[1], locks[3] }, "release_all")))
    assert.equal("not_held", select(3, one:call(locks[2], "release")))
    assert.is_true(one:call(other, "release"))
  end)

  it("on several locks says in its error message how many of them had already been lost", function()
    local locks, others = { one:lock("a"), one:lock("b"), one:lock("c"), one:lock("d") }, {}
    assert.is_true(one:call_all(locks, "acquire_all"))
    server:cli("DEL", "a", "b", "c")
    one:pass(11)
    for i = 1, 3 do
      others[i] = one:lock(raw.key(locks[i]))
      one:call(others[i], "acquire")
    end
    local _, message, code = one:call_all(locks, "release_all")
    assert.equal("lost", code)
    assert.matches("3 of the 4 locks had already been lost", message)
    for i = 1, 3 do assert.is_true(one:call(others[i], "release")) end
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

  it("on several locks is unreachable rather than lost if the server cannot be reached", function()
    local locks, other = { one:lock("a"), one:lock("b") }, one:lock("b")
    one:call_all(locks, "acquire_all")
    server:cli("DEL", "b")
    one:pass(11)
    one:call(other, "acquire")
    engine.set_now(one.client, one.now)
    local op = raw.begin_all(locks, "release_all")
    one:act()
    for link in pairs(one.fds) do one:disconnect(link, "the cable was cut") end
    one.now = one.now + 4
    engine.set_now(one.client, one.now)
    engine.tick(one.client)
    local _, message, code = operation.finish(op)
    assert.equal("unreachable", code)
    assert.matches("the cable was cut", message)
    one:settle(1)
  end)

  it("on several locks that ends while a renewal is in flight gives up each acquire once", function()
    local own = new { renewer_link = true }
    local other, locks = own:lock("a"), { own:lock("a"), own:lock("b") }
    own:call(other, "acquire")
    assert.is_true(own:call_all(locks, "acquire_all"))
    own.now = own.now + 11
    own:act() -- sends the renewals, whose replies nobody reads
    local op = raw.begin_all(locks, "release_all")
    own.now = own.now + 4
    engine.set_now(own.client, own.now)
    engine.tick(own.client)
    assert.equal("unreachable", select(3, operation.finish(op)))
    for _, each in ipairs(locks) do
      assert.equal(0, raw.balance(each))
      raw.abandon(each) -- as when it is collected
    end
    own:pass(0)
    own:settle(0.001)
    assert.equal(1, raw.holds(other))
    assert.is_true(own:call(other, "release"))
    assert.equal(0, server:cli("EXISTS", "a", "b"))
  end)

  it("on several locks releases the others if some were lost, and says so in its error message", function()
    local locks = { one:lock("a"), one:lock("b"), one:lock("c") }
    assert.is_true(one:call_all(locks, "acquire_all"))
    server:cli("DEL", "b")
    one:pass(11)
    local _, message, code = one:call_all(locks, "release_all")
    assert.equal("lost", code)
    assert.matches('"a".*1 of the 3 locks had already been lost', message)
    assert.equal(0, server:cli("EXISTS", "a", "b", "c"))
    assert.equal("deleted", raw.lost(locks[2]))
    assert.is_nil(raw.lost(locks[1]))
    for i, balance in ipairs { 0, 1, 0 } do assert.equal(balance, raw.balance(locks[i])) end
    assert.is_true(one:call_all(locks, "acquire_all"))
    server:cli("DEL", "a", "b", "c")
    one:pass(11)
    _, message, code = one:call_all(locks, "release_all")
    assert.equal("lost", code)
    assert.matches("3 of the 3 locks", message)
    assert.equal(0, (engine.load(one.client)))
  end)
end)

describe("the engine", function()
  it("returns the events and deadlines that it needs, and reads from a socket only what it needs next", function()
    local one = new()
    local client = one.client
    local function state() return engine.wants(client, 1) end
    assert.is_nil(state())
    assert.equal(math.huge, engine.deadline(client))
    assert.is_true(engine.is_quiet(client))
    assert.equal(3, engine.links(client))
    local op = one:begin(one:lock("k"), "acquire")
    assert.equal("open", state())
    assert.equal(one.now, engine.deadline(client))
    for _, name in ipairs { "opened", "handshaking" } do
      assert.has_error(function() engine[name](client, 1) end)
    end
    engine.closed(client, 1, "nothing was open")
    assert.equal("open", state())
    engine.opening(client, 1)
    assert.is_nil(state())
    assert.has_error(function() engine.opening(client, 1) end)
    engine.handshaking(client, 1)
    engine.opened(client, 1)
    assert.has_error(function() engine.opened(client, 1) end)
    for _, link in ipairs { 0, 4, -1 } do
      assert.has_error(function() engine.wants(client, link) end)
    end
    assert.is_nil(engine.output(client, 2))
    local pieces = engine.output(client, 1, 0.25)
    assert.equal(4, #pieces)
    assert.equal("*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n", table.concat(pieces))
    assert.is_nil(engine.output(client, 1))
    assert.is_false(engine.feed(client, 1, "$3\r\nab"))
    assert.is_true(engine.feed(client, 1, "c\r\n"))
    assert.equal(1, #engine.output(client, 1))
    engine.closed(client, 1, "the cable was cut")
    one.now = one.now + 3
    engine.set_now(client, one.now)
    engine.tick(client)
    assert.is_true(operation.is_done(op))
    local _, message, code = operation.finish(op)
    assert.equal("unreachable", code)
    assert.matches("the cable was cut", message)
  end)

  it("writes whole commands although a finalizer adds to the output while Lua copies it", function()
    local child = process.lua {
      code = [[
        local core, driven = require "holdfast.core", require "spec.support.driven"
        local one, begun = driven.client { url = function() return arg[1] end }, {}
        local short, long = one:lock("short"), one:lock(("long"):rep(2000))
        local function output() return table.concat(core.engine.output(one.client, 1, 0.1)) end
        one:call(short, "info")
        begun[1] = one:begin(short, "info")
        local expected = output()
        begun[2] = one:begin(short, "info")
        local function litter()
          local function add() begun[3] = one:begin(long, "info") end
          local rubbish = newproxy and newproxy(true) or setmetatable({}, { __gc = add })
          if newproxy then getmetatable(rubbish).__gc = add end
        end
        collectgarbage()
        collectgarbage("stop")
        litter()
        -- a whole cycle with the next allocation: in Lua 5.4, 5.5, and the others
        if _VERSION == "Lua 5.4" then collectgarbage("incremental", 100, 1000, 40)
        elseif not pcall(collectgarbage, "param", "stepsize", 2 ^ 30) then
          collectgarbage("setstepmul", 1e8)
        end
        collectgarbage("restart")
        local written = output()
        assert(begun[3], "no finalizer has run")
        assert(written == expected, written)
        one:close()
      ]],
      args = { server:url() },
    }
    local how, code = child:wait(20)
    assert.same({ "exit", 0 }, { how, code }, child:output())
  end)

  it("says in its error message that the server closed the connection or sent malformed bytes", function()
    local one = new()
    local op = one:begin(one:lock("k"), "check")
    op:finish()
    op = one:begin(one:lock("k"), "ttl")
    engine.opening(one.client, 1)
    engine.opened(one.client, 1)
    assert.is_true(engine.feed(one.client, 1, "what is this\r\n"))
    local actions = {}
    engine.advance(one.client, {}, actions)
    assert.equal("close", actions[1])
    assert.equal("close", engine.wants(one.client, 1))
    engine.closed(one.client, 1)
    op:finish()
  end)

  it("knows how many operations and holds it has, and is done once nothing is left to clean up", function()
    local one = new { renewer_link = true }
    local renewed, fixed = one:lock("a"), one:lock("b", { renewed = false })
    local op = one:begin(renewed, "acquire")
    assert.equal(1, (engine.load(one.client)))
    one:finish(op)
    one:call(fixed, "acquire")
    assert.same({ 0, 2, 0 }, { engine.load(one.client) })
    assert.equal(1, core.watchdog.holds(core.watchdog.new(one.client)))
    raw.abandon(fixed)
    assert.is_false(engine.is_quiet(one.client))
    local _, held, to_do = engine.load(one.client)
    assert.equal(1, held)
    assert.is_true(to_do > 0)
    one:settle()
    assert.same({ 0, 1, 0 }, { engine.load(one.client) })
    engine.close(one.client)
    one:settle()
    assert.equal(0, server:cli("EXISTS", "a", "b"))
    assert.is_true(raw.is_closed(renewed))
    assert.equal("closed", select(3, one:call(renewed, "acquire")))
  end)

  it("renews over a separate connection only if it is configured to", function()
    for _, own in ipairs { true, false } do
      local one = new { renewer_link = own }
      local lock = one:lock("k" .. tostring(own))
      one:call(lock, "acquire")
      one.now = one.now + 11
      engine.set_now(one.client, one.now)
      local _, deadline = engine.advance(one.client, {}, {})
      assert.equal(own, deadline <= one.now) -- the one renewal is written, the other link is opened
      one:pass(0)
      near(30 - MARGIN, raw.remaining(lock))
      assert.equal(own, one.fds[3] ~= nil)
    end
  end)
end)

describe("a sleeping client of an event loop", function()
  local TIMED_OUT = 110

  it("is woken when a hold has to be cleaned up", function()
    local client = core.client.new {
      url = server:url(), looped = true, connect_timeout = 1, command_timeout = 3, grant_lease = 2,
    }
    local lock = raw.new(client, { client = client, key = "k", lease = 30, renewed = true })
    local function serve(cond)
      assert(process.wait_until(function()
        engine.serve(client, {})
        return cond()
      end, 5))
    end
    local function acquire()
      local op = raw.begin(lock, "acquire", 0)
      serve(function() return operation.is_done(op) end)
      return op
    end
    local function wakes(act)
      serve(function() return engine.is_quiet(client) end)
      local fd = assert(engine.rest(client, 5))
      assert.equal(TIMED_OUT, (select(3, sys.read(fd, 0))))
      act()
      assert.are_not.equal(TIMED_OUT, (select(3, sys.read(fd, 0))))
      serve(function() return server:cli("EXISTS", "k") == 0 end)
    end
    local acquired = acquire()
    wakes(function() operation.abandon(acquired) end)
    operation.finish(acquire())
    wakes(function() raw.abandon(lock) end)
    operation.finish(acquire())
    wakes(function() raw.abandon(lock, raw.number(lock), 1) end)
    wakes(function() engine.wake(client) end)
    operation.finish(acquire())
    wakes(function() core.lock_type.__gc(lock) end)
    core.client.close(client, 1)
    core.client_type.__gc(client) -- the collector may find it late
  end)

  it("is not woken early, and stays awake until all received bytes were read", function()
    local client = core.client.new {
      url = server:url(), looped = true, connect_timeout = 5, command_timeout = 5, grant_lease = 2,
    }
    local function is_woken(fd) return (select(3, sys.read(fd, 0))) ~= TIMED_OUT end
    local done = { 1, 2, 3 }
    engine.serve(client, done)
    assert.is_nil(done[1])
    done = { 1, 2, 3 }
    engine.ended(client, done)
    assert.is_nil(done[1])
    for _, span in ipairs { 20, 1e9, math.huge } do
      assert.is_false(is_woken(assert(engine.rest(client, span))))
    end
    local fd = engine.rest(client, math.huge)
    engine.wake(client)
    assert.is_true(is_woken(fd))
    engine.serve(client)
    assert.is_true(is_woken(fd))
    engine.serve(client, done)
    assert.is_false(is_woken(assert(engine.rest(client, math.huge))))
    assert.is_true(process.wait_until(function() return is_woken(engine.rest(client, 0)) end, 5))
    core.client.close(client, 1)
  end)

  it("renews over the same connection as its calls", function()
    local client = core.client.new {
      url = server:url(), looped = true, connect_timeout = 5, command_timeout = 5, grant_lease = 2,
    }
    local lock = raw.new(client, { client = client, key = "k", lease = 0.3, renewed = true })
    local op = raw.begin(lock, "acquire", 0)
    assert(process.wait_until(function()
      engine.serve(client, {})
      return core.client.stats(client).renewals > 0
    end, 5))
    assert.equal(lock, operation.finish(op))
    assert.equal(1, core.client.stats(client).connections)
    core.client.close(client, 1)
  end)
end)

describe("the settings of a client", function()
  it("each reach the part of the client to which they apply", function()
    local one = new {
      tenant = "tenant.", name = "own name", known_as = "published", sync_replicas = 2,
      sync_timeout = 0.25, connect_timeout = 0.5, command_timeout = 2.5, grant_lease = 3,
      entropy = ENTROPY,
    }
    local lock = one:lock("k")
    assert.same({ 0.5, 2.5 }, { engine.timeouts(one.client) })
    assert.equal("tenant.", core.client.tenant(one.client))
    local longest = ("t"):rep(126) .. "."
    assert.equal(longest, core.client.tenant(new({ tenant = longest }).client))
    assert.equal("65656565-6565-8565-a565-656565656565", core.client.uuid(one.client))
    assert.equal("no_quorum", select(3, one:call(lock, "acquire")))
    local seen = {}
    for _, words in ipairs(one:commands()) do
      seen[table.concat(words, " ", 1, math.min(#words, 3))] = true
    end
    assert.is_true(seen["CLIENT SETNAME own name"])
    assert.is_true(seen["WAIT 2 250"])
    one:settle(0.1)
    local introduced = new { tenant = "tenant.", known_as = "published", renewer_link = true }
    hold(introduced, introduced:lock("i"))
    introduced:pass(11)
    local name = server:cli("KEYS", "holdfast_client:tenant.*")[1]
    assert.matches(core.client.uuid(introduced.client), name, 1, true)
    assert.matches(" %d+ published$", server:cli("GET", name))
    for given, text in pairs { later = " %d+ later$", [""] = " %d+$" } do
      local late = new { renewer_link = true }
      core.client.introduce(late.client, given)
      hold(late, late:lock("l" .. given))
      late:pass(11)
      local key = server:cli("KEYS", "holdfast_client:*" .. core.client.uuid(late.client) .. "*")[1]
      assert.matches(text, server:cli("GET", key))
    end
    assert.has_error(function() new { entropy = "short" } end, "entropy: 24 bytes")
    assert.has_error(function() new { external = false } end, "not an external client")
  end)

  it("give each Sentinel its own login, and each cluster node the login of the URL", function()
    local sentinel = core.client.new {
      url = "redis+sentinel://u:data@10.0.0.1:1,10.0.0.2:2,10.0.0.3:3/main/2", external = true,
      sentinel_user = "watch", sentinel_password = "man", connect_timeout = 1, command_timeout = 1,
    }
    assert.matches('master "main"', core.client.server(sentinel))
    local cluster = core.client.new {
      url = "redis+cluster://10.0.0.1:1,10.0.0.2:2,10.0.0.3:3", external = true,
      connect_timeout = 1, command_timeout = 1,
    }
    for _, of in ipairs { { sentinel, "AUTH\r\n$5\r\nwatch\r\n$3\r\nman\r\n" }, { cluster, "" } } do
      local client, login = of[1], of[2]
      engine.set_now(client, 1000)
      local lock = raw.new(client, { client = client, key = "k", lease = 5 })
      local op = raw.begin(lock, "acquire", 0)
      local asked, ended = {}, 1000
      while not operation.is_done(op) and ended < 1100 do
        ended = ended + 0.5
        engine.set_now(client, ended)
        engine.tick(client)
        for link = 1, engine.links(client) do
          if engine.wants(client, link) == "open" then
            local host, port = engine.server(client, link)
            asked[host .. ":" .. port] = true
            engine.opening(client, link)
            engine.opened(client, link)
            local bytes = table.concat(engine.output(client, link) or {})
            assert.is_truthy(bytes:find(login, 1, true))
            engine.closed(client, link, "refused")
          end
        end
      end
      assert.same({ ["10.0.0.1:1"] = true, ["10.0.0.2:2"] = true, ["10.0.0.3:3"] = true }, asked)
      operation.finish(op)
    end
  end)

  it("refuse a server that is listed twice, ignoring case in hosts but not in paths", function()
    local function wrong(...)
      return (select(2, core.client.new { mode = "quorum", servers = { ... } }))
    end
    assert.equal("this server is given twice (server 2)", wrong("redis://Host:1", "redis://hOST:1"))
    assert.equal("this server is given twice (server 3)",
      wrong("unix:///a/s", "unix:///a/S", "unix:///a/s"))
    assert.is_nil(wrong("redis://h:1", "redis://h:2", "redis://g:1"))
    assert.matches("%(server 2%)$", wrong("redis://h:1", "nothing"))
  end)

  it("apply TLS options to each server with rediss://, wherever it is in the list", function()
    local client = core.client.new {
      mode = "quorum", servers = { "redis://a:1", "rediss://b:2", "redis://c:3" }, external = true,
      tls = { cert = "c.pem", key = "k.pem", server_name = "name", verify = false },
    }
    local seen = {}
    for link = 1, engine.links(client) do
      local host = engine.server(client, link)
      seen[host] = engine.tls(client, link) or false
    end
    assert.same({
      a = false, c = false,
      b = { cert = "c.pem", key = "k.pem", server_name = "name", verify = false },
    }, seen)
    for _, url in ipairs { "rediss://b:2", "rediss+sentinel://b:2/main" } do
      for _, tls in ipairs { false, {}, { verify = true }, { ca_path = "/" } } do
        client = core.client.new { url = url, external = true, tls = tls or nil }
        for link = 1, engine.links(client) do
          assert.same({ verify = true }, engine.tls(client, link))
        end
      end
    end
    for _, url in ipairs { "redis://a:1", "redis+cluster://a:1,b:2" } do
      assert.equal("the tls option requires rediss://",
        select(2, core.client.new { url = url, tls = {} }))
    end
  end)

  it("give shard names and weights that place keys as Jedis does", function()
    local urls = { "redis://a:1", "redis://b:2", "redis://c:3" }
    local function groups(names, weights)
      local client = core.client.new {
        mode = "shards", servers = urls, names = names, weights = weights,
      }
      local counts = { [0] = 0, 0, 0 }
      for i = 1, 600 do
        local group = core.client.group(client, "key" .. i)
        counts[group] = counts[group] + 1
      end
      return counts
    end
    local even = groups({ false, false, false }, { 1, 1, 1 })
    local named = groups({ "x", "y", "z" }, { 1, 1, 1 })
    local heavy = groups({ false, false, false }, { 1, 1, 20 })
    assert.is_true(heavy[2] > 450 and heavy[2] > even[2])
    assert.are_not.same(even, named)
    for _, weight in ipairs { 0, 101 } do
      assert.has_error(function() groups({ false, false, false }, { 1, weight, 1 }) end)
    end
  end)
end)

describe("counters and events", function()
  it("count each hold in the bucket of its duration, and very long holds in the last bucket", function()
    local one = new { renewer_link = true }
    local class = core.client.class(one.client, "jobs")
    assert.equal(class, core.client.class(one.client, "jobs"))
    local lock = one:lock("k", { class = class, lease = 3600, renewed = false })
    local ends = core.client.buckets(one.client)
    local longest = ends[#ends]
    for _, seconds in ipairs { 0, ends[1], longest, longest + 1, 2 * longest } do
      one:call(lock, "acquire")
      one:pass(seconds)
      one:call(lock, "release")
    end
    local seen
    for _, of in ipairs(core.client.classes(one.client)) do
      if of.class == "jobs" then seen = of end
    end
    assert.equal(5, seen.outcomes.acquired)
    assert.equal(#ends, #seen.held)
    assert.equal(5, seen.held.count)
    assert.equal(2, seen.held[1])
    assert.equal(3, seen.held[#ends])
    near(ends[1] + 4 * longest + 1, seen.held.sum)
    assert.equal(5, seen.waited.count)
    assert.equal(5, seen.waited[1])
    assert.equal(0, seen.waited.sum)
  end)

  it("contain each outcome and each loss under its documented name", function()
    local one, holder = new { renewer_link = true }, new()
    local kept = holder:lock("k")
    holder:call(kept, "acquire")
    core.client.watch(one.client)
    local class = core.client.class(one.client, "c")
    local lock = one:lock("k", { class = class, observer = 9, token_ttl = 60 })
    one:call(lock, "acquire")
    holder:call(kept, "release")
    one:call(lock, "acquire")
    local token, owner = raw.token(lock), raw.owner(lock)
    server:cli("DEL", "k")
    assert.is_false(core.client.has_losses(one.client))
    one:pass(11)
    assert.is_true(core.client.has_losses(one.client))
    assert.is_false(core.client.has_losses(one.client))
    local of = {}
    for _, each in ipairs(core.client.classes(one.client)) do of[each.class] = each end
    assert.equal(1, of.c.outcomes.acquired)
    assert.equal(1, of.c.outcomes.busy)
    assert.equal(1, of.c.lost.deleted)
    assert.equal(0, of.c.lost.expired)
    local events = {}
    for _, event in ipairs(core.client.events(one.client)) do events[event.event] = event end
    assert.equal(server.path, events.opened.server:match("^unix:(.*)$"))
    assert.is_nil(events.opened.key)
    assert.same({ event = "busy", key = "k", class = "c", observer = 9, code = "busy" }, {
      event = events.busy.event, key = events.busy.key, class = events.busy.class,
      observer = events.busy.observer, code = "busy",
    })
    assert.same({ "k", owner, token, "c", 9 }, {
      events.acquired.key, events.acquired.owner, events.acquired.token, events.acquired.class,
      events.acquired.observer,
    })
    assert.equal("deleted", events.lost.code)
    near(30 - MARGIN, events.lost.seconds) -- from the acquire to the end of the lease
    assert.is_nil(core.client.events(one.client))
    for link in pairs(one.fds) do one:disconnect(link, "cut") end
    local closed = core.client.events(one.client)[1]
    assert.same({ "closed", events.opened.server }, { closed.event, closed.server })
    assert.is_nil(closed.key)
    local stats = core.client.stats(one.client)
    assert.equal(1, stats.failures.busy)
    assert.equal(1, stats.holds) -- the lost hold, which no release has reported yet
    assert.is_true(stats.connections >= 2)
    assert.equal(0, stats.reconnects)
  end)

  it("count every error code and every reason of a loss", function()
    local one = new()
    local function names(of)
      local list = {}
      for name, count in pairs(of) do
        assert.equal(0, count)
        list[#list + 1] = name
      end
      table.sort(list)
      return table.concat(list, " ")
    end
    core.client.class(one.client, "c")
    core.client.class(one.client, "d")
    local classes, codes = core.client.classes(one.client), "busy closed conflict deadlock denied "
      .. "duplicate interrupted lost mismatch no_memory no_quorum not_held server stale timeout "
      .. "unreachable"
    assert.equal(codes, names(core.client.stats(one.client).failures))
    assert.same({ "c", "d" }, { classes[1].class, classes[2].class })
    for _, class in ipairs(classes) do
      assert.equal("acquired " .. codes, names(class.outcomes))
      assert.equal("deleted expired max_hold taken unreachable", names(class.lost))
    end
  end)

  it("count connections, reconnects and replies", function()
    local one = new { renewer_link = true }
    local lock = one:lock("k")
    local function traffic()
      local stats = core.client.stats(one.client)
      return { stats.connections, stats.reconnects, stats.round_trips, stats.holds }
    end
    assert.same({ 0, 0, 0, 0 }, traffic())
    one:call(lock, "acquire")
    one:commands()
    local replies = traffic()[3]
    for _, seconds in ipairs { 20, 30 } do
      one:call(lock, "extend", seconds)
      replies = replies + #one:commands()
      assert.same({ 1, 0, replies, 1 }, traffic())
    end
    for link in pairs(one.fds) do one:disconnect(link, "cut") end
    one:call(lock, "release")
    local after = traffic()
    assert.same({ 2, 1, 0 }, { after[1], after[2], after[4] })
    assert.is_true(after[3] > replies)
  end)

  it("report an expired lease without any call to the server", function()
    local one = new()
    core.client.watch(one.client)
    local lock = one:lock("k", { renewed = false, lease = 5 })
    one:call(lock, "acquire")
    core.client.events(one.client)
    one.now = one.now + 6
    engine.set_now(one.client, one.now)
    assert.is_true(core.client.has_losses(one.client))
    assert.equal("lost", core.client.events(one.client)[1].event)
    one:call(lock, "release")
    one:call(lock, "acquire")
    core.client.events(one.client)
    one.now = one.now + 6
    engine.set_now(one.client, one.now)
    assert.equal("lost", core.client.events(one.client)[1].event)
  end)
end)

describe("holdfast.core", function()
  local TRAITS = {
    lock = "kept", mutex = "kept stepwise", fair = "listed stepwise", read = "joint stepwise",
    write = "stepwise", guard = "fingerprinted stepwise", latch = "stepwise",
    permit = "counted stepwise", plain_semaphore = "stepwise",
  }

  it("compares strings by their bytes, a prefix first", function()
    for _, pair in ipairs {
      { "a", "b" }, { "a", "a\0" }, { "", "a" }, { "account:1", "account:10" }, { "B", "a" },
      { "z", "\255" },
    } do
      assert.is_true(core.is_before(pair[1], pair[2]))
      assert.is_false(core.is_before(pair[2], pair[1]))
      assert.is_false(core.is_before(pair[1], pair[1]))
    end
  end)

  it("loaded twice in one Lua state, shares its state", function()
    local code = [[
      local first = require "holdfast.core"
      local states = first.states()
      package.loaded["holdfast.core"] = nil
      local second = require "holdfast.core"
      local client = first.client.new { url = "redis://127.0.0.1:1", external = true }
      local lock = second.lock.new(client, { client = client, key = "k", lease = 1 })
      local names = { first.lock.key(lock), second.client.server(client), tostring(lock) }
      return table.concat(names, " ") .. (" %s %s %d"):format(tostring(first ~= second),
        tostring(first.shared == second.shared), second.states() - states)
    ]]
    assert.same({ "k 127.0.0.1:1 holdfast.lock: k (not held) true true 0" },
      sys.run_threads { code })
  end)

  it("lists the traits of each kind", function()
    local traits = {}
    for name, kind in pairs(core.kinds) do
      assert.equal(name, kind.name)
      local has = {}
      for _, trait in ipairs { "counted", "fingerprinted", "joint", "kept", "listed", "stepwise" } do
        assert.is_boolean(kind[trait])
        if kind[trait] then has[#has + 1] = trait end
      end
      traits[name] = table.concat(has, " ")
    end
    assert.same(TRAITS, traits)
    assert.equal(core.kinds.lock.channel, core.kinds.fair.channel)
    assert.are_not.equal(core.kinds.lock.channel, core.kinds.permit.channel)
  end)

  it("parses the queue entries and messages that it writes", function()
    local names = core.wire.names("lock", "a{b}c")
    assert.equal("holdfast_queue::a{b}c", names.queue)
    assert.equal("a{b}c:timeout", names.leases)
    assert.equal("a{b}c", core.wire.key_of_queue(names.queue))
    assert.is_nil(core.wire.key_of_queue("nothing"))
    assert.is_nil(core.wire.read_waiter("nothing"))
    assert.is_nil(core.wire.read_wait("nothing"))
    assert.has_error(function() core.wire.names("nothing", "k") end)
  end)
end)
