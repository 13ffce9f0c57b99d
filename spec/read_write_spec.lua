-- The read/write lock.

local assert_fails = require "spec.support.fails"
local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"
local world = require("spec.support.world").new()

local CHANNEL = "redisson_rwlock:{k}"
local GRANT = 10 -- seconds, the cost of a missed message

local function fields(key) return world.hash(key or "k") end

local function hold_key(lock, number, key)
  return ("%s:%s:rwlock_timeout:%d"):format(key or "{k}", lock:owner(), number)
end

local function pttl(key) return world.cli("PTTL", key) end

-- Returns what is published on the channel during fn().
local function announced(fn)
  local listener = assert(resp.connect { path = world.server.path })
  listener:call("PSUBSCRIBE", (CHANNEL:gsub("[{}]", "?")))
  fn()
  world.cli("PUBLISH", CHANNEL, "end")
  local texts = {}
  repeat
    texts[#texts + 1] = listener:receive()[4]
  until texts[#texts] == "end"
  listener:close()
  texts[#texts] = nil
  return texts
end

describe("a read/write lock", function()
  local a, b

  before_each(function()
    world.open()
    a, b = world.client():read_write_lock("k"), world.client():read_write_lock("k")
  end)

  after_each(world.close)

  it("is stored in Redisson's format", function()
    local read, other, write = a:read(), b:read(), a:write()
    assert(read:acquire(0)) assert(read:acquire(0)) assert(other:acquire(0))
    assert.same({ mode = "read", [read:owner()] = "2", [other:owner()] = "1" }, fields())
    for _, key in ipairs { "k", hold_key(read, 1), hold_key(read, 2), hold_key(other, 1) } do
      assert.is_true(pttl(key) > 29000 and pttl(key) <= 30000, key)
    end
    assert(read:release())
    assert.equal(-2, pttl(hold_key(read, 2)))
    assert(read:release()) assert(other:release())
    assert(write:acquire(0)) assert(write:acquire(0))
    assert.matches("^%x+%-%x+%-8%x+%-%x+%-%x+:%d+:write$", write:owner())
    assert.same({ mode = "write", [write:owner()] = "2" }, fields())
    assert.is_true(pttl "k" > 29000)
    assert(write:release()) assert(write:release())
    assert.equal(0, world.cli("EXISTS", "k"))
  end)

  it("lets a writer also read, and release either lock first", function()
    assert(a:write():acquire(0)) assert(a:read():acquire(0))
    assert_fails("busy", b:read():acquire(0))
    assert.equal(a:write():token(), a:read():token())
    assert.same({ "1", "0" }, announced(function() assert(a:write():release()) end))
    assert.same({ "read", true, false }, { fields().mode, a:read():is_held(), a:write():is_held() })
    assert(b:read():acquire(0))
    assert(a:read():release()) assert(b:read():release())
    assert(a:write():acquire(0)) assert(a:read():acquire(0))
    assert(a:read():release())
    assert.same({ mode = "write", [a:write():owner()] = "1" }, fields())
    assert(a:write():release())
  end)

  it("fails with deadlock at once if a reader acquires the write lock", function()
    assert(a:read():acquire(0))
    local start = process.now()
    local message = assert_fails("deadlock", a:write():acquire(20))
    assert.is_true(process.now() - start < 10)
    assert.matches("acquire the write lock instead", message)
    assert_fails("deadlock", a:write():try_acquire())
    assert.is_true(a:read():is_held())
    assert(a:read():release())
    assert(a:write():acquire(0)):release()
  end)

  it("gives each writer a higher token, and readers the last writer's token", function()
    assert(a:write():acquire(0))
    local first = a:write():token()
    assert(a:write():release())
    assert(b:read():acquire(0)) assert(a:read():acquire(0))
    assert.same({ first, first }, { b:read():token(), a:read():token() })
    assert(b:read():release()) assert(a:read():release())
    assert(b:write():acquire(0))
    assert.is_true(b:write():token() > first)
    assert(b:write():release())
    local unfenced = world.client():read_write_lock("k", { fencing = false })
    assert(unfenced:read():acquire(0))
    assert.is_nil(unfenced:read():token())
    assert(unfenced:read():release())
  end)

  it("has a read and a write lock that return their key, tostring and info", function()
    assert.same({ "k", "holdfast.read_write_lock: k" }, { a:key(), tostring(a) })
    assert(a:read():acquire(0)) assert(b:read():acquire(0))
    local info = assert(a:write():info())
    assert.same({ 2, 1 }, { info.readers, info.holds })
    assert.is_true(info.ttl > 29)
    assert.is_true(assert(a:write():is_locked()))
    assert(a:read():release()) assert(b:read():release())
    assert.is_nil(assert(a:read():info()).owner)
    assert(a:write():acquire(0))
    info = assert(b:read():info())
    assert.same({ a:write():owner(), 0 }, { info.owner, info.readers })
    assert.is_nil(assert(world.client():lock("other"):info()).readers)
    assert(a:write():release())
  end)

  describe("lost by several coroutines through one handle", function()
    local ALL = { "deleted", "deleted", "deleted", "deleted", "deleted" }
    local losses, holders, read

    -- Each coroutine holds the lock, and calls this method when it is resumed.
    local function hold(client, method)
      losses, holders = {}, {}
      read = client:read_write_lock("k", {
        on_lost = function(_, reason) losses[#losses + 1] = reason end,
      }):read()
      for i = 1, #ALL do
        holders[i] = coroutine.wrap(function()
          assert(read:acquire(0))
          coroutine.yield()
          return select(3, read[method](read))
        end)
        holders[i]()
      end
    end

    it("is reported once for each hold", function()
      local client = world.client { lease = 1.5 }
      hold(client, "check")
      world.cli("FLUSHALL")
      assert.is_true(process.wait_until(function()
        client:stats()
        return #losses >= #ALL
      end, 20))
      assert.same(ALL, losses)
    end)

    for _, method in ipairs { "check", "release" } do
      it("is reported once for each hold by " .. method .. " during a callback", function()
        local client = world.client()
        hold(client, method)
        local other = client:lock("other", { on_lost = function()
          for i = 1, #ALL do assert.equal("lost", holders[i]()) end
          assert.same({}, losses)
        end })
        assert(other:acquire())
        world.cli("FLUSHALL")
        assert_fails("lost", other:release())
        assert.same(ALL, losses)
      end)
    end
  end)

  it("has with_read_lock and with_write_lock, which return what their functions return", function()
    local client = world.client()
    assert.same({ 1, 2, 3 }, { client:with_write_lock("k", { lease = 5 }, function(lock, ...)
      assert.equal("write", fields().mode)
      assert.equal(true, lock:is_held())
      assert.is_true(lock:remaining() < 5)
      return ...
    end, 1, 2, 3) })
    assert.is_true(client:with_read_lock("k", function(lock)
      assert.equal("read", fields().mode)
      assert.is_true(lock:remaining() > 20)
      assert_fails("deadlock", client:with_write_lock("k", { wait = 5 }, error))
    end))
    assert(a:read():acquire(0))
    assert_fails("busy", client:with_write_lock("k", { wait = 0 }, error))
    assert(client:with_read_lock("k", { wait = 0 }, function() end))
    assert(a:read():release())
    assert.has_error(function() client:with_read_lock("k", function() error "it" end) end)
    assert.equal(0, world.cli("EXISTS", "k"))
  end)
end)

-- ---- many ----

local server, others, lock, client

local function add(name, options)
  local args = process.args({ server:url(), others.store.path, others.key, name }, options)
  return others:join(name, process.lua { file = "spec/support/read_write_worker.lua", args = args })
end

-- Puts the processes into the queue in this order: names that begin with w write, the others read.
local function line_up(names, options)
  for _, name in ipairs(names) do
    local before = others:queued()
    local own = { role = name:sub(1, 1) == "w" and "write" or "read", grant_lease = GRANT }
    for option, value in pairs(options or {}) do own[option] = value end
    add(name, own)
    assert(others:wait_queued(before + 1), name .. " does not come into the queue")
  end
end

-- → the names in the order of their acquires, the most readers at once
local function history()
  local order, readers, writer, most, last = {}, 0, nil, 0, 0
  for i, line in ipairs(others.store:cli("LRANGE", "crowd:history", 0, -1)) do
    local what, name, token = line:match("^(%S+) (%S+) ?(%S*)$")
    if what == "r+" then
      assert.is_nil(writer, ("%d: %s reads while %s writes"):format(i, name, tostring(writer)))
      readers = readers + 1
      most = math.max(most, readers)
    elseif what == "r-" then
      readers = readers - 1
    elseif what == "w+" then
      assert.is_nil(writer, ("%d: %s and %s write"):format(i, name, tostring(writer)))
      assert.equal(0, readers, ("%d: %s writes while others read"):format(i, name))
      assert.is_true(tonumber(token) > last)
      writer, last = name, tonumber(token)
    else
      assert.equal(name, writer)
      writer = nil
    end
    if what:sub(2) == "+" then order[#order + 1] = name end
  end
  assert.is_nil(others.store:cli("GET", "pair:torn") or nil)
  return order, most
end

local function sorted(list, from, to)
  local part = {}
  for i = from, to do part[#part + 1] = list[i] end
  table.sort(part)
  return part
end

describe("the queue of a read/write lock", function()
  before_each(function()
    server = redis.start()
    others = crowd.new(server, "k")
    client = holdfast.new { url = server:url(), grant_lease = GRANT }
    lock = client:read_write_lock("k")
  end)

  after_each(function()
    client:close()
    others:clear()
  end)

  it("is served in order of arrival, with consecutive readers together", function()
    assert(lock:write():acquire(0))
    line_up({ "r1", "r2", "r3", "w1", "r4", "r5", "w2" }, { inside = 0.5 })
    assert(lock:write():release())
    assert.is_nil(others:finish(30))
    local order, most = history()
    assert.same({ "r1", "r2", "r3" }, sorted(order, 1, 3))
    assert.same({ "r4", "r5" }, sorted(order, 5, 6))
    assert.same({ "w1", "w2", 3 }, { order[4], order[7], most })
  end)

  it("starves neither readers nor writers", function()
    for i = 1, 6 do add("r" .. i, { seconds = 3, inside = 0.003, together = 1 }) end
    for i = 1, 2 do add("w" .. i, { role = "write", seconds = 3, inside = 0.003, together = 1 }) end
    add("b1", { role = "both", seconds = 3, inside = 0.003, together = 1 })
    for _, worker in ipairs(others.workers) do assert(worker:wait_output("ready", 20)) end
    others.store:cli("SET", "crowd:start", 1)
    assert.is_nil(others:finish(30))
    local least, most = math.huge, 0
    local order, together = history()
    local turns = crowd.turns_together(order)
    turns.b1 = turns.b1 / 2
    for _, count in pairs(turns) do least, most = math.min(least, count), math.max(most, count) end
    assert.is_true(together > 2)
    assert.is_true(least > 0.5 * most, ("%d of %d"):format(least, most))
    for _, worker in ipairs(others.workers) do assert.not_matches("failed", worker:output()) end
  end)
end)
