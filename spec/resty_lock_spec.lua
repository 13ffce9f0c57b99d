-- holdfast.resty_lock does what lua-resty-lock documents, in one request, in several workers of
-- nginx, and in plain Lua.

local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resty_lock = require "holdfast.resty_lock"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new()

before_each(function()
  world.open()
  resty_lock.client = world.client()
end)

after_each(function()
  resty_lock.client = nil
  world.close()
end)

local function pack(...) return { n = select("#", ...), ... } end

local function new(options) return assert(resty_lock:new("my_locks", options)) end

describe("a lock object of the lua-resty-lock module", function()
  it("locks and unlocks a key repeatedly", function()
    for _ = 1, 2 do
      local lock = new()
      assert.same(pack(0), pack(lock:lock("my_key")))
      assert.equal(1, world.cli("EXISTS", "my_locks:my_key"))
      assert.same({ 1, n = 2 }, pack(lock:unlock()))
      assert.equal(0, world.cli("EXISTS", "my_locks:my_key"))
    end
  end)

  it("returns timeout while another object of the same caller holds the key", function()
    for _, timeout in ipairs { 0, 0.01 } do
      local first, second = new { timeout = timeout }, new { timeout = timeout }
      assert.equal(0, first:lock("foo"))
      assert.same(pack(nil, "timeout"), pack(second:lock("foo")))
      assert.equal(1, (first:unlock()))
      assert.same(pack(nil, "unlocked"), pack(second:unlock()))
    end
  end)

  it("can hold at most one key at a time", function()
    local lock = new()
    assert.equal(0, lock:lock("a"))
    assert.same(pack(nil, "locked"), pack(lock:lock("b")))
    assert.equal(1, (lock:unlock()))
    assert.equal(0, lock:lock("b"))
    assert.equal(1, (lock:unlock()))
  end)

  for _, loop in ipairs { loops[1] } do
    it("can hold at most one key even if two coroutines lock it at the same time", function()
      loop.run(function()
        resty_lock.client = holdfast.new { url = world.server:url(), driver = loop.driver }
        local lock, results = new(), {}
        for _, key in ipairs { "a", "b" } do
          loop.spawn(function()
            local elapsed, message = lock:lock(key)
            results[#results + 1] = elapsed and "held" or message
          end)
        end
        assert.is_true(loop.wait_until(function() return #results == 2 end))
        assert.same({ "held", "locked" }, results)
        assert.equal(1, (lock:unlock()))
        assert.equal(0, world.cli("EXISTS", "my_locks:a", "my_locks:b"))
        resty_lock.client:close()
      end)
    end)
  end

  it("with a different name uses separate keys", function()
    local one, other = resty_lock:new("one"), resty_lock:new("other", { timeout = 0 })
    assert.equal(0, one:lock("k"))
    assert.equal(0, other:lock("k"))
    assert.equal(1, (one:unlock()))
    assert.equal(1, (other:unlock()))
  end)

  it("refuses a nil key, and converts a number to a string", function()
    assert.same(pack(nil, "nil key"), pack(new():lock(nil)))
    local lock = new()
    assert.equal(0, lock:lock(42))
    assert.equal(1, world.cli("EXISTS", "my_locks:42"))
    assert.equal(1, (lock:unlock()))
  end)

  it("releases its key when it is collected", function()
    assert.equal(0, new():lock("foo"))
    assert(process.wait_until(function()
      collectgarbage()
      return world.cli("EXISTS", "my_locks:foo") == 0
    end, 20))
  end)

  it("holds its key for exptime, which expire() restarts or replaces", function()
    local lock = new { exptime = 20 }
    assert.same(pack(nil, "unlocked"), pack(lock:expire()))
    assert.equal(0, lock:lock("foo"))
    local function left() return world.cli("PTTL", "my_locks:foo") end
    assert.is_true(left() > 10000 and left() <= 20000)
    world.cli("PEXPIRE", "my_locks:foo", 5000)
    assert.is_true(lock:expire())
    assert.is_true(left() > 10000 and left() <= 20000)
    assert.is_true(lock:expire(100))
    assert.is_true(left() > 90000)
    assert.equal(1, (lock:unlock()))
    assert.same(pack(nil, "unlocked"), pack(lock:expire(1)))
  end)

  it("is not renewed: its key is free after exptime, even for its own caller", function()
    local first, second = new { exptime = 0.1, timeout = 0 }, new { exptime = 5 }
    assert.equal(0, first:lock("foo"))
    assert.is_true(second:lock("foo") > 0)
    local ok, message = first:unlock()
    assert.is_nil(ok)
    assert.matches("my_locks:foo", message)
    assert.equal(1, (second:unlock())) -- the late unlock has not freed it
  end)

  it("waits no longer than exptime", function()
    local holder = new()
    assert.equal(0, holder:lock("foo"))
    local from = sys.now()
    assert.same(pack(nil, "timeout"), pack(new({ exptime = 0.2, timeout = 50 }):lock("foo")))
    assert.is_true(sys.now() - from < 20)
    assert.equal(1, (holder:unlock()))
  end)

  it("returns the reason of an outage as its message", function()
    resty_lock.client = holdfast.new { url = "unix:///nowhere.sock", connect_timeout = 0.2 }
    local ok, message = new():lock("foo")
    assert.is_nil(ok)
    assert.matches("my_locks:foo.*nowhere.sock", message)
    resty_lock.client:close()
  end)

  it("accepts lua-resty-lock's options, and no others", function()
    assert.is_table(new { exptime = 1, timeout = 1, step = 0.01, ratio = 3, max_step = 0.05 })
    local function refuses(pattern, ...)
      local ok, message = pcall(resty_lock.new, resty_lock, ...)
      assert.is_false(ok)
      assert.matches(pattern, message)
    end
    refuses("dict_name must be", nil)
    refuses("exptime must be", "my_locks", { exptime = 0 })
    refuses("timeout must be", "my_locks", { timeout = -1 })
    refuses('unknown option "expires"', "my_locks", { expires = 1 })
    local _, message = pcall(function() new():lock({}) end)
    assert.matches("resty_lock_spec.lua:%d+: lock:lock: key must be", message)
  end)
end)

if nginx.is_there() then
  describe("the lua-resty-lock module under ngx_lua", function()
    local front, server

    -- The synopsis and the cache lock of lua-resty-lock's manual, with another module name.
    local HTTP = [[
      lua_shared_dict my_cache 1m;
      lua_shared_dict calls 1m;
      init_by_lua_block {
        require("holdfast.resty_lock").client = require("holdfast").new("%s")
      }
    ]]
    local SERVER = [[
      location /twice { content_by_lua_block {
        local resty_lock = require "holdfast.resty_lock"
        for i = 1, 2 do
          local lock, err = resty_lock:new("my_locks")
          if not lock then ngx.say("failed to create lock: ", err) end
          local elapsed, err = lock:lock("my_key")
          ngx.say("lock: ", elapsed, ", ", err)
          local ok, err = lock:unlock()
          if not ok then ngx.say("failed to unlock: ", err) end
          ngx.say("unlock: ", ok)
        end
      } }
      location /threads { content_by_lua_block {
        local resty_lock = require "holdfast.resty_lock"
        local thread = ngx.thread.spawn(function()
          local lock = resty_lock:new("cache_locks")
          ngx.say("sub thread: lock: ", lock:lock("blah"))
          ngx.sleep(0.1)
          ngx.say("sub thread: unlock: ", (lock:unlock()))
        end)
        local lock = resty_lock:new("cache_locks")
        local elapsed, err = lock:lock("blah")
        ngx.say("main thread: lock: ", elapsed > 0.05, " ", err)
        ngx.say("main thread: unlock: ", (lock:unlock()))
        ngx.thread.wait(thread)
      } }
      location /other_thread { content_by_lua_block {
        local lock = require("holdfast.resty_lock"):new("cache_locks")
        ngx.say(lock:lock("k"))
        local thread = ngx.thread.spawn(function() return lock:unlock() end)
        ngx.say((select(2, ngx.thread.wait(thread))))
      } }
      location /cached { content_by_lua_block {
        local cache, key = ngx.shared.my_cache, "price"
        local value = cache:get(key)
        if value then return ngx.say(value) end
        local lock = require("holdfast.resty_lock"):new("my_locks")
        local elapsed, err = lock:lock(key)
        if not elapsed then return ngx.say("failed to acquire the lock: ", err) end
        value = cache:get(key)
        if not value then
          ngx.shared.calls:incr("backend", 1, 0)
          ngx.sleep(0.3)
          value = "42"
          cache:set(key, value, 60)
        end
        local ok, err = lock:unlock()
        if not ok then return ngx.say("failed to unlock: ", err) end
        ngx.say(value)
      } }
      location /calls { content_by_lua_block { ngx.say(ngx.shared.calls:get("backend")) } }
    ]]

    local function get(path) return front:get(path).body end

    before_each(function()
      server = redis.start()
      front = nginx.start { workers = 2, http = HTTP:format(server:url()), server = SERVER }
    end)

    after_each(function()
      front:stop("TERM")
      server:stop()
    end)

    it("runs the examples of lua-resty-lock's manual unchanged except for the name", function()
      assert.equal("lock: 0, nil\nunlock: 1\nlock: 0, nil\nunlock: 1\n", get "/twice")
      assert.equal("sub thread: lock: 0\nsub thread: unlock: 1\nmain thread: lock: true nil\n"
        .. "main thread: unlock: 1\n", get "/threads")
    end)

    it("lets any thread unlock a lock that another thread has locked", function()
      assert.equal("0\n1\n", get "/other_thread")
    end)

    it("lets one request of all workers fill a cache that all of them miss", function()
      local requests = {}
      for i = 1, 12 do requests[i] = front:begin("/cached") end
      for _, request in ipairs(requests) do assert.equal("42\n", request:finish().body) end
      assert.equal("1\n", get "/calls")
    end)
  end)
end
