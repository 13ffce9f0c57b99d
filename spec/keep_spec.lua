-- Locks that a client keeps for its callers after a release: keep = seconds.

local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local KEEP = { keep = 30 }

before_each(world.open)
after_each(world.close)

local function trips(client) return client:stats().round_trips end

local function is_held(key) return world.cli("EXISTS", key) == 1 end

describe("a kept lock", function()
  it("is acquired again without a command to the server, with a new token each time", function()
    local client = world.client()
    for _, make in ipairs { client.lock, client.mutex } do
      local lock = make(client, "k", KEEP)
      assert(lock:acquire())
      local last, before = lock:token(), trips(client)
      assert.is_true(lock:release())
      for _ = 1, 300 do
        assert(lock:acquire())
        assert.is_true(lock:is_held())
        assert.is_true(lock:token() > last)
        last = lock:token()
        assert.is_true(lock:release())
        assert.is_false(lock:is_held())
      end
      assert.is_true(trips(client) - before <= 3, "confirmations and renewals alone")
      assert.is_true(is_held("k"))
      assert.is_true(lock:force_release() ~= nil)
    end
  end)

  -- A watchdog that slept through the messages would only see them at its next renewal.
  it("is returned to the server at once when others wait, even if its client makes no call", function()
    local took = math.huge
    for i = 1, 5 do
      local lock, other = world.client():lock("k" .. i, KEEP), world.client():lock("k" .. i)
      assert(lock:acquire())
      assert.is_true(other:ttl() ~= nil)
      assert(lock:release())
      local from = process.now()
      assert(other:acquire(20))
      took = math.min(took, process.now() - from)
      assert.is_true(other:release())
      if took < 0.1 then break end
    end
    assert.is_true(took < 0.1, took .. " s")
  end)

  it("expires soon after its process is killed", function()
    local child = world.program { args = { world.server:url() }, code = [[
      local client = require("holdfast").new { url = arg[1], keep = 30, grant_lease = 0.5 }
      local lock = assert(client:lock("k"):acquire())
      lock:release()
      require("spec.support.sys").sleep(60)
    ]] }
    assert.is_true(process.wait_until(function()
      local left = world.cli("PTTL", "k")
      return left > 0 and left <= 500
    end, 10))
    child:kill("KILL")
    local from = process.now()
    assert(world.client():lock("k"):acquire(20)):release()
    assert.is_true(process.now() - from < 10)
  end)

  it("is returned to the server when its client is closed or collected, or the process ends", function()
    local client = world.client()
    local lock = assert(client:lock("k", KEEP):acquire())
    lock:release()
    client:close()
    assert.is_false(is_held("k"))
    do
      local short = holdfast.new { url = world.server:url() }
      assert(short:lock("k", KEEP):acquire()):release()
    end
    collectgarbage() collectgarbage()
    assert.is_true(world.is_free("k"))
    local child = world.program { args = { world.server:url() }, code = [[
      local client = require("holdfast").new { url = arg[1], keep = 30 }
      assert(client:lock("k"):acquire()):release()
    ]] }
    assert.equal("exit", (child:wait(10)))
    assert.is_false(is_held("k"))
  end)

  it("is returned when its holder's handle is collected", function()
    local client = world.client()
    do
      local lock = assert(client:lock("k", KEEP):acquire())
      lock:release()
      assert(lock:acquire())
    end
    collectgarbage() collectgarbage()
    assert(world.client():lock("k"):acquire(10)):release()
  end)

  it("is passed on and returned over new connections after the old ones were killed", function()
    local client, other = world.client(), world.client()
    local lock = assert(client:lock("k", KEEP):acquire())
    lock:release()
    world.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    world.cli("CLIENT", "KILL", "TYPE", "pubsub")
    assert(lock:acquire())
    assert.is_true(lock:release())
    assert(other:lock("k"):acquire(20)):release() -- the keeper learns of this wait in the end
  end)

  describe("is returned before other calls of its own client for the key", function()
    local NOW = { wait = 0 }
    local others = {
      ["a shared owner's lock"] = function(client)
        return assert(client:lock("k", { owner = "svc" }):try_acquire()):release()
      end,
      lock = function(client) return client:with_lock("k", NOW, type, 1) end,
      mutex = function(client) return assert(client:mutex("k"):acquire(0)):release() end,
      ["fair lock"] = function(client) return client:with_fair_lock("k", NOW, type, 1) end,
      ["read lock"] = function(client) return client:with_read_lock("k", NOW, type, 1) end,
      ["write lock"] = function(client) return client:with_write_lock("k", NOW, type, 1) end,
      guard = function(client) return client:idempotent("k", { expire = 0.01 }, type, 1) end,
      multi_lock = function(client)
        return assert(client:multi_lock { "l", "k" }:acquire(0)):release()
      end,
      semaphore = function(client)
        return assert(client:semaphore("k", { permits = 1 }):try_acquire()):release()
          and world.cli("DEL", "k")
      end,
    }
    for name, take in pairs(others) do
      for _, kept in ipairs { "lock", "mutex" } do
        it(name .. " after it was kept as a " .. kept, function()
          local client = world.client()
          assert(client[kept](client, "k", KEEP):acquire()):release()
          assert.truthy(take(client))
        end)
      end
    end
  end)

  it("is not held by a forked child", function()
    local child = world.program { args = { world.server:url() }, code = [[
      local sys = require "spec.support.sys"
      local client = require("holdfast").new { url = arg[1], keep = 30 }
      local lock = assert(client:lock("k"):acquire())
      lock:release()
      local pid = sys.fork()
      if pid == 0 then
        local got, _, code = client:lock("k"):acquire(0)
        os.exit(not got and code == "busy" and 0 or 1)
      end
      local how, status
      repeat how, status = sys.wait(pid) until how
      print(how, status)
      assert(lock:acquire()):release()
    ]] }
    assert.equal("exit", (child:wait(10)))
    assert.matches("exit\t0", child:output())
  end)

  it("goes to the next one_by_one and with_lock call of its client", function()
    local client = world.client { keep = 30 }
    local template, before = client:one_by_one()
    for i = 1, 20 do
      assert.equal(i, template:execute("t", 1, function() return i end))
      assert.equal(i, client:with_lock("w", function() return i end))
      before = before or trips(client)
    end
    assert.is_true(trips(client) - before <= 4)
    assert.is_true(is_held("t_1"))
    assert.is_true(is_held("w"))
  end)
end)

for _, loop in ipairs(loops) do
  describe("a kept lock under " .. loop.name, function()
    it("goes from coroutine to coroutine in order, without a command to the server", function()
      local client = world.client { driver = loop.driver, keep = 30 }
      local asked, order, inside, last = {}, {}, 0, 0
      loop.run(function()
        local first = assert(client:lock("k"):acquire())
        for i = 1, 50 do
          loop.spawn(function()
            asked[#asked + 1] = i
            local lock = assert(client:lock("k"):acquire(30))
            inside = inside + 1
            assert(inside == 1)
            assert(lock:token() > last)
            last = lock:token()
            order[#order + 1] = i
            loop.sleep(0)
            inside = inside - 1
            assert(lock:release())
          end)
        end
        loop.sleep(0.05)
        local before = trips(client)
        assert(first:release())
        assert(loop.wait_until(function() return #order == 50 end, 20))
        assert(trips(client) - before <= 4)
        local other = world.client { driver = loop.driver }
        assert(other:lock("k"):acquire(20)):release()
        other:close()
        client:close()
      end)
      assert.same(asked, order)
    end)

    it("lets the loop's other tasks run while it is acquired and released again and again", function()
      local client = world.client { driver = loop.driver, keep = 30 }
      local till, ticks, ended = process.now() + 20, 0, 0
      loop.run(function()
        for _ = 1, 4 do
          loop.spawn(function()
            local lock = client:lock("k")
            while ticks < 10 and process.now() < till do
              assert(lock:acquire(30)) assert(lock:release())
            end
            ended = ended + 1
          end)
        end
        while ticks < 10 and process.now() < till do
          loop.sleep(0.001)
          ticks = ticks + 1
        end
        assert(loop.wait_until(function() return ended == 4 end, 20))
        client:close()
      end)
      assert.equal(10, ticks)
    end)

    it("lets clients that poll only occasionally acquire a kept mutex", function()
      local client = world.client { driver = loop.driver, keep = 0.1 }
      local running, got = true, false
      loop.run(function()
        for _ = 1, 4 do
          loop.spawn(function()
            local lock = client:mutex("m")
            while running do
              if lock:acquire(30) then
                loop.sleep(0)
                lock:release()
              end
            end
          end)
        end
        loop.wait_until(function()
          got = got or world.cli("SET", "m", "someone", "NX", "PX", "50") == "OK"
          return got
        end, 20)
        running = false
      end)
      client:close()
      assert.is_true(got)
    end)
  end)
end
