-- Event loops: servers that are silent, down, restarted or slow to join a quorum, and TLS.

local certificates = require "spec.support.certificates"
local looped = require "spec.support.looped"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

for _, loop in ipairs(loops) do
  describe("the event loop " .. loop.name, function()
    local world, server = looped.new(loop), nil
    local new, assert_on_time, eventually = world.client, world.assert_on_time, world.eventually
    local tick = world.tick
    local run = loop.run

    before_each(function() server = world.open() end)
    after_each(world.close)

    it("is not blocked while a server is silent", function()
      local slow = new { command_timeout = 2 }
      assert_on_time(function()
        local over, late, got, message, code = false, nil, nil, nil, nil
        run(function()
          assert(slow:ping())
          server:kill("STOP")
          loop.spawn(function() late = tick(function() return over end) end)
          local from = process.now()
          got, message, code = slow:lock("a"):acquire(5)
          over = true
          assert.is_true(process.now() - from >= 1.9, process.now() - from)
          server:kill("CONT")
          assert(slow:with_lock("a", function() return true end))
        end)
        assert.is_nil(got)
        assert.equal("unreachable", code)
        assert.matches('^cannot acquire "a" on unix:', message)
        return late
      end)
    end)

    it("works over TLS, and verifies the certificate", function()
      local made = certificates.make()
      local guarded = redis.start { tls = { cert = made.server.cert, key = made.server.key,
        ca = made.ca.cert } }
      run(function()
        local trusting = new { url = guarded:tls_url(), tls = { ca_file = made.ca.cert } }
        assert(trusting:with_lock("a", function(lock) assert.is_true(lock:check()) end))
        local entered
        loop.spawn(function()
          loop.sleep(0.01)
          entered = trusting:with_lock("a", { wait = 20 }, function() return true end)
        end)
        assert(trusting:with_lock("a", function() loop.sleep(0.1) end))
        eventually(function() return entered end)
        local strict = new { url = guarded:tls_url(), connect_timeout = 5, command_timeout = 5 }
        local _, message, code = strict:lock("a"):acquire(5)
        assert.equal("unreachable", code)
        assert.matches("certificate verify failed", message)
        trusting:close()
        strict:close()
      end)
      guarded:stop()
    end)

    it("keeps a quorum lock while one of three servers is down", function()
      local others, urls = redis.several(2, { tcp = true }), { server:tcp_url() }
      for i, each in ipairs(others) do urls[i + 1] = each:tcp_url() end
      local quorum = new { servers = urls, mode = "quorum", lease = 2, command_timeout = 2 }
      run(function()
        assert(quorum:with_lock("a", { wait = 20 }, function(lock)
          others[1]:kill()
          loop.sleep(2.5)
          assert.is_true(lock:is_held())
        end))
        quorum:close()
      end)
      for _, each in ipairs(others) do each:stop() end
    end)
  end)
end
