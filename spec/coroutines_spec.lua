-- The blocking driver in coroutines: a wait for another coroutine of the same client, which would
-- block it, fails.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

describe("the blocking driver", function()
  local server, client, holders

  before_each(function()
    server = redis.start()
    client, holders = holdfast.new(server:url()), {}
  end)

  after_each(function()
    client:close()
    server:stop()
  end)

  -- Acquires the lock in a coroutine, which then stays suspended until the test ends or resumes it.
  local function held_by_coroutine(lock)
    local thread = coroutine.wrap(function()
      assert(lock:acquire(0))
      coroutine.yield()
      assert(lock:release())
    end)
    thread()
    holders[#holders + 1] = thread
    return thread
  end

  -- → what a wait for the lock returns, and how long it took
  local function wait_for(lock, seconds)
    local from = process.now()
    local got, message, code = lock:acquire(seconds)
    return got and "got" or code, message, process.now() - from
  end

  it("fails as deadlock instead of waiting for another coroutine of the client", function()
    for _, kind in ipairs { "lock", "mutex" } do
      local release = held_by_coroutine(client[kind](client, "a"))
      local code, message, took = wait_for(client[kind](client, "a"), 20)
      assert.equal("deadlock", code)
      assert.matches('cannot acquire "a" on .*another owner in this client holds it', message)
      assert.is_true(took < 10, took)
      assert.equal("busy", (wait_for(client[kind](client, "a"), 0)))
      release()
      assert.equal("got", (wait_for(client[kind](client, "a"), 20)))
      server:cli("FLUSHALL")
    end
    assert.equal(0, server:cli("EXISTS", "holdfast_queue:{a}"))
    assert.equal(2, client:stats().failures.deadlock)
  end)

  it("fails as deadlock in a quorum if another coroutine of the client holds the lock", function()
    local servers, urls = redis.several(3)
    local quorum = holdfast.new { servers = urls, mode = "quorum", command_timeout = 10 }
    for key, kind in pairs { a = "lock", m = "mutex" } do
      local function handle() return quorum[kind](quorum, key) end
      local release = held_by_coroutine(handle())
      local code, message, took = wait_for(handle(), 20)
      assert.equal("deadlock", code)
      assert.matches('cannot acquire "' .. key .. '" on a quorum of 3 servers: another owner in this client holds it', message)
      assert.is_true(took < 10, took)
      assert.equal("busy", (wait_for(handle(), 0)))
      servers[1]:kill("STOP") -- a majority still reports that it is held
      assert.equal("deadlock", (wait_for(handle(), 20)))
      servers[1]:kill("CONT")
      release()
      assert.equal("got", (wait_for(handle(), 20)))
    end
    held_by_coroutine(quorum:lock("b", { lease = 1 })) -- its lease ends
    assert.equal("got", (wait_for(quorum:lock("b"), 20)))
    held_by_coroutine(quorum:lock("c", { owner = "shared" })) -- another process may release it
    assert.equal("busy", (wait_for(quorum:lock("c"), 1)))
    local other = holdfast.new { servers = urls, mode = "quorum" }
    held_by_coroutine(other:lock("d"))
    assert.equal("busy", (wait_for(quorum:lock("d"), 1)))
    other:close()
    quorum:close()
    for _, each in ipairs(servers) do each:stop() end
  end)

  it("waits if another coroutine's lock may still become free", function()
    held_by_coroutine(client:lock("a", { lease = 1 })) -- its lease ends
    assert.equal("got", (wait_for(client:lock("a"), 20)))
    held_by_coroutine(client:lock("b", { owner = "shared" })) -- another process may release it
    assert.equal("busy", (wait_for(client:lock("b"), 1)))
    local other = holdfast.new(server:url()) -- a different client
    held_by_coroutine(other:lock("c"))
    assert.equal("busy", (wait_for(client:lock("c"), 1)))
    other:close()
    held_by_coroutine(client:lock("d", { lease = 60, watchdog = false })) -- longer than the wait
    assert.equal("deadlock", (wait_for(client:lock("d"), 5)))
  end)
end)
