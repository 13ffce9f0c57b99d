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
    local is_free, tick = world.is_free, world.tick
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

    -- Calls fn in the loop with a client of three servers, and the other two of these, closes the
    -- client, and calls after(servers) outside the loop.
    local function with_quorum(options, fn, after)
      local others, urls = redis.several(2, { tcp = true }), { server:tcp_url() }
      for i, each in ipairs(others) do urls[i + 1] = each:tcp_url() end
      options.servers, options.mode = urls, "quorum"
      local quorum = new(options)
      run(function()
        fn(quorum, others)
        quorum:close()
      end)
      if after then after { server, others[1], others[2] } end
      for _, each in ipairs(others) do each:stop() end
    end

    it("keeps a quorum lock while one of three servers is down", function()
      with_quorum({ lease = 2, command_timeout = 2 }, function(quorum, others)
        assert(quorum:with_lock("a", { wait = 20 }, function(lock)
          others[1]:kill()
          loop.sleep(2.5)
          assert.is_true(lock:is_held())
        end))
      end)
    end)

    it("releases a quorum lock on close even on servers that lack the program", function()
      with_quorum({}, function(quorum) assert(quorum:lock("a"):acquire(5)) end, function(servers)
        for _, each in ipairs(servers) do
          process.eventually(function() return each:cli("EXISTS", "a") == 0 end, 5)
        end
      end)
    end)

    it("undoes a late grant of a slow quorum server while idle", function()
      with_quorum({}, function(quorum, others)
        assert(quorum:with_lock("a", { wait = 5 }, function() return true end))
        for _, each in ipairs(others) do
          each:cli("HSET", "a", "somebody", 1)
          each:cli("PEXPIRE", "a", 60000)
        end
        server:kill("STOP")
        assert.equal("busy", (select(3, quorum:lock("a"):acquire(0))))
        loop.sleep(0.2)
        server:kill("CONT")
        eventually(function() return is_free("a") end, 5)
      end)
    end)
  end)
end
