-- The binding, with a client whose clock and sockets belong to the test: the engine, counters and
-- events.

local core = require "holdfast.core"
local driven = require "spec.support.driven"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local raw, engine, operation = core.lock, core.engine, core.operation
local near, new, server = driven.near, driven.new, driven.server

setup(driven.begin)
teardown(driven.finish)
before_each(driven.open)
after_each(driven.close)

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

  it("writes whole commands even if a finalizer adds to the output while Lua copies it", function()
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
end)

describe("holdfast.core", function()
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
