-- A multi lock that acquires its locks one after another: the order, the time that this may take,
-- and what happens to the acquired locks when it cannot get all.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local fails = require "spec.support.fails"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

describe("a multi-lock", function()
  local one, two, clients, occupied

  setup(function()
    local servers = { redis.start { tcp = true }, redis.start { tcp = true } }
    table.sort(servers, function(a, b)
      return a:cli("INFO", "server"):match "run_id:(%x+)" < b:cli("INFO", "server"):match "run_id:(%x+)"
    end)
    one, two = servers[1], servers[2] -- ordered by their keys
  end)
  teardown(function()
    one:stop()
    two:stop()
  end)

  before_each(function()
    clients, occupied = {}, {}
    one:cli("FLUSHALL")
    two:cli("FLUSHALL")
  end)
  after_each(function() for _, client in ipairs(clients) do client:close() end end)

  local function connect(options)
    clients[#clients + 1] = holdfast.new(options)
    return clients[#clients]
  end

  -- Takes the lock with another client, until its lease ends.
  local function occupy(server, key, lease)
    occupied[#occupied + 1] = assert(connect(server:url()):lock(key, { lease = lease }):acquire(0))
    return occupied[#occupied]
  end

  describe("while it waits", function()
    it("with a single lock sends no more commands than that lock", function()
      local function commands(make)
        local client = connect(one:url())
        assert(client:ping())
        local before = client:stats().round_trips
        assert(make(client):acquire(0)):release()
        return client:stats().round_trips - before
      end
      local options = { owner = "me", lease = 60 }
      local function lock(client) return client:lock("x", options) end
      commands(lock) -- now the server knows the program
      local of_lock = commands(lock)
      local of_all = commands(function(client) return client:multi_lock({ "y" }, options) end)
      assert.equal(of_lock, of_all)
    end)

    it("sends one command for each free lock on a separate server", function()
      local first, second = connect(one:url()), connect(two:url())
      local all = holdfast.multi_lock { first:lock("a"), second:lock("b") }
      assert(all:acquire(0)) assert(all:release())
      for _ = 1, 2 do
        local before = { first:stats().round_trips, second:stats().round_trips }
        assert(all:acquire())
        assert.same({ before[1] + 1, before[2] + 1 },
          { first:stats().round_trips, second:stats().round_trips })
        assert(all:release())
      end
    end)

    it("raises an error that one of its locks raises", function()
      local function fail() error "this loop does not run" end
      local loop = { check = function() return nil, "outside the loop" end,
        spawn = fail, watch = fail, signal = fail }
      if not compat.yields_in_pcall then return end -- this Lua has no event loops, either
      local far = connect { url = one:url(), driver = loop }
      local both = holdfast.multi_lock { connect(one:url()):lock "a", far:lock "b" }
      local fine, message = pcall(both.acquire, both, 0)
      assert.is_false(fine)
      assert.matches("cannot acquire here: .* outside the loop", message)
      assert.equal(0, one:cli("EXISTS", "a"))
    end)

    it("waits longer by default the more locks it has", function()
      occupy(one, "a", 0.9)
      assert(connect(one:url()):multi_lock({ "a", "b", "c" }):acquire()):release()
    end)

    it("renews a short lease until it holds all locks", function()
      local losses = {}
      local all = connect(one:url()):multi_lock({ "a", "b", "c" }, {
        lease = 0.6, on_lost = function(lock) losses[#losses + 1] = lock:key() end,
      })
      occupy(one, "c", 1.3)
      assert(all:acquire(20))
      assert.same({}, losses)
      for _, key in ipairs(all:keys()) do assert.is_true(one:cli("PTTL", key) <= 600) end
      process.eventually(function() return all:lost() == "expired" and #losses == 3 end, 20)
      all:release()
    end)

    it("does not change the lease of a re-entered lock if it cannot acquire the others", function()
      local client = connect(one:url())
      occupy(one, "b", 60)
      local outer, another = client:lock("a", { lease = 0.4 }), client:lock("a", { lease = 0.4 })
      for _, inner in ipairs { outer, another } do
        assert(outer:acquire(0))
        local locks = holdfast.multi_lock { inner, client:lock("b", { lease = 0.4 }) }
        assert.equal("busy", select(3, locks:acquire(0.05)))
        assert.equal(1, outer:holds())
        process.wait_until(function() return not outer:is_held() end, 20)
        assert.equal("expired", outer:lost())
      end
    end)

    -- Deletes "a" as soon as `all` holds it `times` times.
    local function acquire_meanwhile_deleted(all, times)
      local deleter = process.lua {
        code = [[
          local store = require("spec.support.resp").connect { path = arg[1] }
          local function is_deleted()
            return store:call("HVALS", "a")[1] == arg[2] and store:call("DEL", "a") == 1
          end
          assert(require("spec.support.process").wait_until(is_deleted, 20))
        ]],
        args = { one.path, tostring(times or 1) },
      }
      local results = { all:acquire(20) }
      assert.equal("exit", (deleter:wait(20)), deleter:output())
      return (table.unpack or unpack)(results, 1, 3)
    end

    it("holds nothing if a renewed lock is lost before it holds them all", function()
      local client = connect { url = one:url(), lease = 0.6 }
      local a = client:lock "a"
      occupy(one, "b", 1.2)
      local none, _, code = acquire_meanwhile_deleted(client:multi_lock { "a", "b" })
      assert.same({ nil, "lost" }, { none, code })
      assert.same({ 0, 0 }, { a:holds(), one:cli("EXISTS", "a", "b") })
    end)

    it("calls on_lost for a lost lock that was held before", function()
      local losses = 0
      local client = connect(one:url())
      local a = client:lock("a", { lease = 5, on_lost = function() losses = losses + 1 end })
      assert(a:acquire(0))
      occupy(one, "b", 0.6)
      local all = holdfast.multi_lock { a, client:lock("b", { lease = 5 }) }
      assert.equal("lost", select(3, acquire_meanwhile_deleted(all, 2)))
      assert.is_truthy(process.wait_until(function() return a:lost() and losses == 1 end, 10))
    end)
  end)

  describe("of locks with different options", function()
    -- A multi lock over "a", with no options, and "b" with these. → both locks, held
    local function take(options, lease)
      local client = connect { url = one:url(), lease = lease }
      local a, b = client:lock("a"), client:lock("b", options)
      assert(holdfast.multi_lock({ a, b }):acquire(0))
      return a, b
    end

    it("ends each lock at its own max_hold", function()
      local a, b = take { max_hold = 0.3 }
      assert.equal("max_hold", process.wait_until(function() return b:lost() end, 10))
      assert.is_true(a:check())
    end)

    it("renews only the locks whose options enable renewal", function()
      local a, b = take({ watchdog = false }, 0.3)
      assert.equal("expired", process.wait_until(function() return b:lost() end, 10))
      assert.is_true(a:check())
    end)

    it("lets a later handle that wants renewal renew the lock", function()
      local client, other = connect(one:url()), connect(two:url())
      local all = holdfast.multi_lock {
        client:lock("a", { lease = 3 }), other:lock("b", { lease = 3 }),
      }
      assert(all:acquire(0))
      local later = assert(client:lock("a", { lease = 3, watchdog = true }):acquire(0))
      assert(all:release())
      local before = client:stats().renewals
      process.eventually(function() return client:stats().renewals > before or later:lost() end, 20)
      assert.is_true(later:check() and later:release())
    end)

    it("remains held until the first of its leases ends", function()
      local client = connect(one:url())
      for _, names in ipairs { { "a", "b" }, { "b", "a" } } do
        local short = client:lock(names[1], { lease = 5 })
        local all = holdfast.multi_lock { short, client:lock(names[2], { lease = 50 }) }
        assert(all:acquire(0))
        local left = all:remaining()
        assert.is_true(left > 0 and left <= 5, left)
        assert.equal("holdfast.multi_lock: a, b (held)", tostring(all))
        assert(short:release())
        assert.equal("holdfast.multi_lock: a, b (not held)", tostring(all))
        assert.is_false(all:is_held())
        assert.equal(0, all:remaining())
        all:release()
      end
    end)

    it("returns the first failure, but carries out the call on the other locks", function()
      for method, rest in pairs { check = "is_held", extend = "is_held", release = "is_free" } do
        local client = connect(one:url())
        local all = holdfast.multi_lock {
          client:lock("a"), client:lock("b", { owner = "us" }), client:lock("c", { owner = "us" }),
        }
        assert(all:acquire(0))
        one:cli("DEL", "b", "c")
        one:cli("SET", "b", "of another kind")
        assert.matches('"c"', fails("lost", all[method](all, 20)), 1, true)
        local is_there = one:cli("EXISTS", "a") == 1
        assert.equal(rest == "is_held", is_there)
        one:cli("DEL", "b")
        client:close()
      end
    end)
  end)

  describe("over several servers", function()
    -- → how many locks it acquires on each server before one is busy
    local function tried(first_url, second_url, turned)
      local first, second = connect(first_url), connect(second_url)
      local locks = { first:lock("stock"), second:lock("stock") }
      if turned then locks[1], locks[2] = locks[2], locks[1] end
      fails("busy", holdfast.multi_lock(locks):acquire(0))
      return { first:stats().acquires, second:stats().acquires }
    end

    it("acquires its locks in one fixed order, whatever names the servers have", function()
      for _, turned in ipairs { false, true } do
        for _, urls in ipairs {
          { one:url(), two:url() }, { one:tcp_url(), two:url() }, { one:url(), two:tcp_url() },
        } do
          local held = occupy(two, "stock", 60)
          assert.same({ 1, 0 }, tried(urls[1], urls[2], turned))
          held:release()
          held = occupy(one, "stock", 60)
          assert.same({ 0, 0 }, tried(urls[1], urls[2], turned))
          held:release()
        end
      end
    end)

    it("places a quorum's key in the fixed order only once all of its servers are known", function()
      local nowhere = "unix:///nowhere/redis.sock"
      for _, urls in ipairs {
        { nowhere, one:url(), two:url() }, { one:url(), nowhere, two:url() },
        { one:url(), two:url(), nowhere },
      } do
        local client = holdfast.new { servers = urls, mode = "quorum" }
        clients[#clients + 1] = client
        assert(client:with_lock("stock", { wait = 5 }, function() return true end))
        local names, known = core.client.database_names(client, "stock")
        assert.is_false(known)
        assert.equal(3, #names)
      end
    end)

    it("acquires different keys in byte order, whichever server they are on", function()
      for _, servers in ipairs { { one, two }, { two, one } } do
        local small, capital = connect(servers[1]:url()), connect(servers[2]:url())
        local both = holdfast.multi_lock { small:lock("stock:a"), capital:lock("stock:B") }
        assert.same({ "stock:B", "stock:a" }, both:keys())
      end
    end)

    it("raises an error at the caller's line if two of its members are the same lock", function()
      local both = holdfast.multi_lock {
        connect(one:url()):lock("stock"), connect(one:tcp_url()):lock("stock"),
      }
      for _, name in ipairs { "acquire", "try_acquire" } do
        local fine, message = pcall(function() local _ = both[name](both) end)
        assert.is_false(fine)
        assert.matches('^[^:]*multi_lock_spec.lua:%d+: multi_lock:' .. name
          .. ': the key "stock" is given twice', message)
      end
    end)

    it("raises an error if two of its quorums are the same, in whatever order their servers are", function()
      local function quorum(...) return connect { servers = { ... }, mode = "quorum" } end
      local a, b, c = one:url(), two:url(), "unix:///nowhere/redis.sock"
      local first, second = quorum(a, b, c):lock "stock", quorum(c, b, a):lock "stock"
      local fine, message = pcall(holdfast.multi_lock, { first, second })
      assert.is_false(fine)
      assert.matches('the key "stock" is given twice', message, 1, true)
    end)

    it("accepts one key in two databases of a server", function()
      local both = holdfast.multi_lock {
        connect(one:tcp_url()):lock("stock"), connect(one:tcp_url() .. "/1"):lock("stock"),
      }
      assert(both:acquire(0))
      assert.equal(1, one:cli("EXISTS", "stock"))
      assert.is_true(both:release())
    end)

    it("accepts one key on two masters of the same name, or on two quorums", function()
      local function sentinel(port) return { url = ("redis+sentinel://127.0.0.1:%d/m"):format(port) } end
      local function quorum(...) return { servers = { ... }, mode = "quorum" } end
      for _, pair in ipairs {
        { sentinel(1), sentinel(2) },
        { quorum("redis://a", "redis://b", "redis://c"), quorum("redis://a", "redis://d", "redis://e") },
      } do
        assert(holdfast.multi_lock {
          connect(pair[1]):lock("stock"), connect(pair[2]):lock("stock"),
        })
      end
    end)
  end)
end)
