-- The binding, through a client whose clock and sockets are the test's.

local core = require "holdfast.core"
local driven = require "spec.support.driven"
local redis = require "spec.support.redis"

local raw, engine, operation = core.lock, core.engine, core.operation

local ENTROPY = ("e"):rep(24)
local MARGIN = 0.302 -- of a lease of 30 s: a hundredth and 2 ms

local server, ones

local function new(fields)
  local one = driven.client(server, fields)
  ones[#ones + 1] = one
  return one
end

setup(function() server = redis.start() end)
teardown(function() server:stop() end)
before_each(function() ones = {} end)
after_each(function()
  for _, one in ipairs(ones) do one:close() end
  server:cli("FLUSHALL")
end)

local function near(expected, number)
  assert(math.abs(expected - number) < 1e-6, ("%s is not %s"):format(tostring(number), expected))
end

-- The words behind the keys of the last command that runs a program.
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

local function collect()
  collectgarbage()
  collectgarbage()
end

describe("the settings of a lock", function()
  -- All of them, none of which is like another.
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

  -- What a lock does: it waits with its own wait, is renewed, ends with its max_hold, is acquired
  -- again, released and kept.
  local function history(copied, kind)
    server:cli("FLUSHALL")
    server:cli("SCRIPT", "FLUSH")
    local one = new { entropy = ENTROPY, renewer_link = true }
    core.client.watch(one.client)
    local first = one:lock("other", settings(one, { kind = kind }))
    local lock = copied and raw.copy(first, "k") or one:lock("k", settings(one, { kind = kind }))
    local seen = {}
    local function note(...) seen[#seen + 1] = { ... } end
    local function step(seconds)
      one:pass(seconds)
      note(one:commands(), engine.load(one.client))
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

  -- An acquire that waits behind another holder until its own wait is over.
  local function wait_of(copied)
    server:cli("SCRIPT", "FLUSH")
    local holder = new()
    holder:call(holder:lock("k"), "acquire")
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
    holder:close()
    server:cli("FLUSHALL")
    return seen
  end

  for _, kind in ipairs { "lock", "mutex", "fair", "read", "write", "permit" } do
    it("are those of its copy, of kind " .. kind, function()
      local own, copied = history(false, kind), history(true, kind)
      assert.same(own, copied)
    end)
  end

  it("are those of its copy where it waits", function()
    assert.same(wait_of(false), wait_of(true))
  end)

  it("each have their place in what is sent", function()
    local one = new { entropy = ENTROPY, grant_lease = 3 }
    local waits = one:lock("k", settings(one, { max_hold = 0 }))
    one:call(waits, "acquire")
    local first = last_arguments(one)
    assert.equal("3000", first[2])
    assert.equal("17000", first[5])
    assert.equal("90000", first[6])
    one:call(one:lock("s", settings(one, { kind = "permit", max_hold = 0 })), "acquire")
    local permits = last_arguments(one)
    assert.matches("%*2$", permits[1])
    assert.equal("17000", permits[5])
    assert.equal("5", permits[#permits])
    one:call(waits, "extend", 7.25)
    assert.equal("7250", last_arguments(one)[2])
  end)

  it("bound what they are about", function()
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

  it("are taken as whole numbers and seconds that the core has", function()
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
      one:call(one:lock("t" .. given, { token_ttl = given }), "acquire")
      assert.equal(sent, last_arguments(one)[3])
    end
    for _, given in ipairs { 0.0015, 0.3, 1.1, -1, 0 / 0 } do
      local other = new { connect_timeout = given, command_timeout = 2 }
      local connect, command = engine.timeouts(other.client)
      assert.equal(given > 0 and given or 0, connect)
      assert.equal(2, command)
    end
    local _, longest = engine.timeouts(new({ command_timeout = 1 / 0 }).client)
    assert.is_true(longest > 9e9)
  end)

  it("are read from the table itself, whatever its metatable says", function()
    local one = new()
    local behind = { lease = 5, owner = "somebody", kind = "mutex", token_ttl = 5 }
    local given = setmetatable({ client = one.client, key = "k", lease = 12 }, { __index = behind })
    local lock = raw.new(one.client, given)
    one:call(lock, "acquire", 0)
    near(12 - 0.122, raw.remaining(lock))
    assert.matches(":1$", raw.owner(lock))
    assert.equal(given, raw.data(lock))
  end)

  it("owner and key keep to their bounds", function()
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

  it("abandons as many entries as it is told, of that caller", function()
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

  it("is balanced when it is abandoned as a whole", function()
    for _ = 1, 3 do one:call(lock, "acquire") end
    raw.abandon(lock)
    assert.equal(0, raw.balance(lock))
    one:call(lock, "release")
    assert.equal(0, raw.balance(lock))
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("abandons nothing whose release is under way", function()
    local second = one:lock("k")
    one:call(second, "acquire")
    one:call(lock, "acquire")
    one:call(lock, "acquire")
    local op = one:begin(lock, "release")
    raw.abandon(lock)
    assert.is_true(one:finish(op))
    one:settle()
    assert.equal(1, raw.holds(second))
    assert.is_true(one:call(second, "release"))
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("counts the acquires less the releases", function()
    one:call(lock, "acquire")
    one:call(lock, "acquire")
    assert.equal(2, raw.balance(lock))
    one:call(lock, "release")
    assert.equal(1, raw.balance(lock))
    server:cli("DEL", "k")
    assert.equal("lost", select(3, one:call(lock, "release")))
    assert.equal(1, raw.balance(lock))
    assert.equal("not_held", select(3, one:call(one:lock("free"), "release")))
  end)

  it("counts a release that fails to reach the server", function()
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

  it("says how long the last acquire took that got the lock", function()
    assert.is_nil(raw.waited(lock))
    local holder = new()
    holder:call(holder:lock("k"), "acquire")
    one:call(lock, "acquire")
    assert.is_nil(raw.waited(lock))
    local op = one:begin(lock, "acquire", 10)
    one:wait_until(function() return server:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    one:pass(2)
    holder:call(holder:lock("k"), "release")
    assert.equal(lock, one:finish(op))
    assert.equal(2, raw.waited(lock))
    one:call(lock, "acquire")
    assert.equal(0, raw.waited(lock))
    one:call(lock, "release")
    one:call(lock, "release")
    assert.equal(0, raw.waited(lock))
  end)

  it("shows a loss until it acquires again, and the first one for good", function()
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
    one:call(lock, "acquire")
    assert.is_nil(raw.lost(lock))
    near(30 - MARGIN, raw.standing(lock))
    assert.equal("deleted", raw.first_loss(lock))
    one.now = one.now + 60
    engine.set_now(one.client, one.now)
    assert.equal("expired", raw.lost(lock))
    assert.same({ nil, "expired" }, { raw.standing(lock) })
    assert.equal("deleted", raw.first_loss(lock))
  end)

  it("has news while a release is under way that nobody waits for, and of a loss", function()
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

  it("shows the loss that a release found for which nobody waited", function()
    one:call(lock, "acquire")
    server:cli("DEL", "k")
    local op = one:begin(lock, "release")
    assert.is_true(operation.detach(op))
    one:settle()
    assert.equal("deleted", raw.lost(lock))
    assert.matches("lost: deleted", tostring(lock))
    raw.abandon(lock)
    assert.equal("deleted", raw.lost(lock))
    one:call(lock, "acquire")
    assert.is_nil(raw.lost(lock))
  end)

  it("leaves a loss that is collected for others unmuted once all are held", function()
    one:call(lock, "acquire")
    raw.collect(lock)
    raw.settle(lock)
    server:cli("DEL", "k")
    one:pass(11)
    assert.equal("deleted", raw.pending_loss(lock))
  end)

  it("mutes a loss while others are acquired, unless it was held before", function()
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

  it("is renewed while others are acquired, and only until all are held, or its release", function()
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

  it("collects and settles its caller's own hold only", function()
    local fixed = one:lock("k", { renewed = false })
    one:call(fixed, "acquire")
    coroutine.wrap(function()
      raw.collect(fixed)
      raw.settle(fixed)
    end)()
    one:pass(12)
    near(18 - MARGIN, raw.remaining(fixed))
  end)

  it("needs approval only where the client needs it, of the caller that has the hold", function()
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
  end)

  it("tells its callers apart, and has one if it has an owner or permits", function()
    local function other(fn)
      return coroutine.wrap(fn)()
    end
    local function number(of) return function() return (raw.number(of)) end end
    local first, second = other(number(lock)), other(number(lock))
    assert.equal(1, raw.number(lock))
    assert.is_true(first > 1 and second == first + 1)
    assert.equal(77, raw.number(lock, 77))
    local owned, permits = one:lock("o", { owner = "me" }), one:lock("p", { kind = "permit", permits = 1 })
    assert.equal(0, raw.number(owned))
    assert.equal(0, other(number(owned)))
    assert.equal(0, raw.number(permits))
    one:call(lock, "acquire")
    assert.equal(1, raw.holds(lock))
    assert.equal(0, other(function() return (raw.holds(lock)) end))
    assert.equal(1, other(function() return (raw.holds(lock, 1)) end))
    assert.is_true(other(function() return (raw.is_held(lock, 1)) end))
  end)

  it("of permits is an owner of its own", function()
    local first = one:lock("p", { kind = "permit", permits = 1, permits_at_first = 2 })
    local copy = raw.copy(first, "p")
    assert.equal(first, one:call(first, "acquire"))
    assert.equal(copy, one:call(copy, "acquire"))
    assert.equal("busy", select(3, one:call(one:lock("p", { kind = "permit", permits = 1 }), "acquire")))
    assert.is_true(one:call(first, "release"))
    assert.is_true(raw.is_held(copy))
  end)

  it("may be renumbered, for good or for a while", function()
    local was = raw.number(lock)
    local new_one = raw.renumber()
    assert.is_true(new_one > was)
    assert.equal(new_one, raw.number(lock))
    assert.equal(was, raw.renumber(was))
    assert.equal(was, raw.number(lock))
    assert.is_true(raw.renumber() > new_one)
    raw.renumber(was)
  end)

  it("is not abandoned by its collection before its operations have ended", function()
    local op = one:begin(lock, "acquire")
    local weak = setmetatable({ lock }, { __mode = "k" })
    weak[lock], weak[1], lock = true, nil, nil
    collect()
    assert.is_truthy(next(weak)) -- the operation keeps it
    one:wait_until(function() return operation.is_done(op) end)
    assert.is_true(raw.is_held((operation.finish(op))))
    collect()
    assert.is_nil(next(weak)) -- although the finished operation is there
    one:settle()
    assert.equal(0, server:cli("EXISTS", "k"))
    assert.is_userdata(op)
  end)

  it("does not keep room for one operation only", function()
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

  it("of no use any more after its collection answers as one that has nothing", function()
    one:call(lock, "acquire")
    core.lock_type.__gc(lock)
    for _, name in ipairs { "is_held", "holds", "remaining", "token", "lost" } do
      assert.is_true(({ [false] = true, [0] = true, ["nil"] = true })[raw[name](lock) or false]
        or raw[name](lock) == 0, name)
    end
    for _, name in ipairs { "first_loss", "pending_loss", "has_news", "standing", "owner", "collect",
      "settle", "abandon" } do
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
