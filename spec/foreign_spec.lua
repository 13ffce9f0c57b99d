-- The lock, together with clients that lock as Redisson does.

local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local redisson = require "spec.support.redisson"

local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local KEY = "shared"
local QUEUE = crowd.queue_of(KEY)
local CHANNEL = ("redisson_lock__channel:{%s}"):format(KEY)

-- Seconds. A waiter that misses a message rechecks after about GRANT; one that receives it has the
-- lock within SOON.
local GRANT, SOON = 20, 5

local server, others, client, lock, foreign

local function listeners() return server:cli("PUBSUB", "NUMSUB", CHANNEL)[2] end

local function add_foreign(name, options)
  options = options or {}
  options.kind = "redisson"
  return others:add(name, options)
end

describe("a lock shared with Redisson", function()
  before_each(function()
    server = redis.start()
    others = crowd.new(server, KEY)
    client = holdfast.new { url = server:url(), grant_lease = GRANT }
    lock = client:lock(KEY)
    foreign = redisson.new(server.path):lock(KEY)
  end)

  after_each(function()
    client:close()
    foreign:close()
    others:clear()
  end)

  local function assert_listens()
    assert.truthy(process.wait_until(function() return server:cli("PUBSUB", "NUMPAT") == 1 end))
  end

  for _, signal in ipairs { "KILL", "STOP" } do
    it("wakes holdfast's second waiter on a Redisson release after the first one got SIG" .. signal, function()
      assert(foreign:acquire(0))
      others:line_up({ "first", "second" }, { grant_lease = 0.5 })
      local first = table.remove(others.workers, 1)
      first:kill(signal)
      assert.truthy(process.wait_until(function() return others:queued() == 1 end, SOON))
      assert_listens()
      assert(foreign:release())
      assert.truthy(others:came_in("second", SOON))
      assert.is_nil(others:finish())
      first:stop()
    end)
  end

  it("wakes a Redisson waiter first, then holdfast's, even if holdfast's has waited longer", function()
    local function is_woken_first(ours, theirs)
      assert(lock:acquire(0))
      others:line_up({ ours }, { grant_lease = GRANT })
      add_foreign(theirs, { inside = 0.05 })
      assert.truthy(process.wait_until(function() return listeners() == 1 end))
      assert(lock:release())
      assert.truthy(others:came_in(theirs, SOON))
      assert.truthy(others:came_in(ours, SOON))
      local names = others:assert_turns().names
      return names[#names] == ours
    end
    -- a foreign waiter that needs longer than its 50 ms comes after ours
    for i = 1, 5 do
      if is_woken_first("ours" .. i, "foreign" .. i) then return end
    end
    error("ours was always first")
  end)

  it("wakes holdfast's waiter when Redisson deletes a holdfast lock by force", function()
    assert(lock:acquire(0))
    others:line_up({ "ours" }, { grant_lease = GRANT })
    assert_listens()
    process.sleep(0.05) -- for its recheck after that
    server:cli("DEL", KEY)
    server:cli("PUBLISH", CHANNEL, "0")
    assert.truthy(others:came_in("ours", SOON))
    assert.equal("lost", (select(3, lock:release())))
    assert.is_nil(others:finish())
  end)

  it("is handed to holdfast's waiter even if that waiter is subscribed to Redisson's channel", function()
    assert(lock:acquire(0))
    others:line_up({ "ours" }, { inside = 2 })
    assert_listens()
    assert(lock:release())
    assert.equal(1, server:cli("EXISTS", KEY))
    assert.is_nil(others:finish())
  end)

  it("goes to holdfast's waiters even if a Redisson subscriber never acquires it", function()
    foreign:listen()
    assert(lock:acquire(0))
    others:line_up({ "a", "b", "c" }, { turns = 5, grant_lease = GRANT })
    local before = process.now()
    assert(lock:release())
    local history = others:assert_turns()
    local took = process.now() - before
    assert.equal(15, history.turns)
    assert.is_true(took < GRANT * 0.8, ("%.3f s"):format(took)) -- each release leaves it 50 ms
  end)

  it("starves neither Redisson's waiters nor holdfast's", function()
    for i = 1, 3 do
      others:add("ours" .. i, { seconds = 2, inside = 0.002, outside = 0.001 })
      add_foreign("foreign" .. i, { seconds = 2, inside = 0.002, outside = 0.001 })
    end
    local history = others:assert_turns()
    local turns = { ours = 0, foreign = 0 }
    for _, name in ipairs(history.names) do
      local side = name:match("%a+")
      turns[side] = turns[side] + 1
    end
    local least = 0.15 * #history.names -- bench/shares.lua measures the shares
    assert.is_true(turns.ours >= least and turns.foreign >= least,
      ("%d : %d"):format(turns.ours, turns.foreign))
    assert.is_true(#history.names > 20, #history.names .. " turns in all")
    for i = 1, 3 do assert.is_true(others:turns_of("ours" .. i) > 0) end
  end)

  it("lets a polling client acquire again and again once the queue has existed for seconds", function()
    assert(lock:acquire(0))
    local seconds, us = unpack(server:cli("TIME"))
    local old = ("%d%06d"):format(seconds - 10, us)
    server:cli("ZADD", QUEUE, old, crowd.member("00000000-0000-8000-8000-000000000000", 1))
    for i = 1, 3 do others:add("ours" .. i, { seconds = 5, inside = 0.003 }) end
    assert.truthy(others:wait_queued(4))
    -- the first release has recorded since when the queue lasts; this moves that back by 8 seconds
    local noted = tonumber(server:cli("ZSCORE", QUEUE, "1f 0 4 0 0"))
    server:cli("ZADD", QUEUE, ("%.0f"):format(noted + 8000), "1f 0 4 0 0")
    assert(lock:release())
    local theirs = 0
    local function polled()
      if foreign:acquire(0) then
        theirs = theirs + 1
        process.sleep(0.003)
        server:cli("DEL", KEY) -- nobody is notified
      end
      process.sleep(0.05)
      return theirs >= 5
    end
    assert.truthy(process.wait_until(polled, 60), theirs .. " turns")
    others:assert_turns()
    for i = 1, 3 do assert.is_true(others:turns_of("ours" .. i) >= 5) end
  end)

  it("draws tokens that rise across both sides while both wait", function()
    for i = 1, 2 do
      others:add("ours" .. i, { turns = 20 })
      add_foreign("foreign" .. i, { turns = 20, fenced = 1 })
    end
    local tokens = others:assert_turns().tokens
    assert.equal(80, #tokens)
    for i = 2, 80 do assert.is_true(tokens[i] > tokens[i - 1]) end
  end)

  local COUNTER = ("redisson_lock_token:{%s}"):format(KEY)

  it("has a token counter without a TTL once a release has found a Redisson client subscribed", function()
    assert(lock:acquire(0))
    foreign:listen()
    assert(lock:release())
    assert.equal(-1, server:cli("PTTL", COUNTER))
    foreign:stop_listening()
  end)

  it("has a token counter with a TTL even if a stopped holdfast waiter is subscribed", function()
    assert(lock:acquire(0))
    local wait = process.lua { args = { server:url(), KEY }, code = [[
      require("holdfast").new { url = arg[1] }:lock(arg[2]):acquire(60)]] }
    -- after a while it listens for a forced release
    assert(process.wait_until(function() return server:cli("PUBSUB", "NUMPAT") > 0 end, SOON))
    wait:kill "STOP"
    server:cli("DEL", QUEUE) -- as if its grant had ended
    assert(lock:release())
    assert.is_true(server:cli("PTTL", COUNTER) > 0)
    assert.equal(0, server:cli("EXISTS", QUEUE))
    wait:stop()
  end)

  it("has a token counter with a TTL even if a shared holdfast owner holds it", function()
    local shared = client:lock(KEY, { owner = "host-1" })
    assert(lock:acquire(0)) assert(lock:release()) assert(shared:acquire(0))
    assert.is_nil((lock:acquire(0)))
    assert.is_true(server:cli("PTTL", COUNTER) > 0)
    assert(shared:release())
  end)

  it("makes holdfast's waiters send few commands while a Redisson client holds it", function()
    assert(foreign:acquire(0))
    others:line_up({ "a", "b", "c" })
    process.sleep(0.1)
    local commands, seconds = crowd.commands_in(server, 1)
    assert.is_true(commands <= 3 * (seconds + 1), commands)
    assert(foreign:release())
    others:assert_turns()
    assert.equal(0, server:cli("EXISTS", QUEUE))
  end)
end)
