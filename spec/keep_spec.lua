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
  end)
end
