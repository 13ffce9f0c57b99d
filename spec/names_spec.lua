-- A client publishes its name on the servers while it holds or waits, and lock:info shows it.

local holder = require "holdfast.holder"
local holdfast = require "holdfast"
local names_of_clients = require "holdfast.names"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"
local texts = require "holdfast.text"

local PATIENCE = 20
local WAIT = 0.25 -- time to look up the name before the wait ends, on a busy machine too
local HOST = require("holdfast.process").host()

local function published(lock)
  return assert(process.wait_until(function()
    local info = assert(lock:info())
    return info.host and info
  end, PATIENCE), "the holder is not published")
end

describe("a holder's published name", function()
  local server, client, reader

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)
  before_each(function()
    server:cli("FLUSHALL")
    client, reader = holdfast.new { url = server:url(), name = "billing" },
      holdfast.new(server:url())
  end)
  after_each(function()
    client:close()
    reader:close()
  end)

  local function names() return #server:cli("KEYS", "holdfast_client:*") end

  local kept -- handles, because a collected one lets go of its lock

  -- Acquires, and waits until the name is published. → how a message names the holder
  local function hold(lock)
    kept[#kept + 1] = assert(lock:acquire())
    published(lock)
    return ("held by %s (pid %d, billing) for "):format(HOST, sys.getpid())
  end

  it("is in the message and event of a failed wait", function()
    local events = {}
    kept = {}
    local waiter = holdfast.new { url = server:url(), on_event = function(event)
      if event.event == "busy" then events[#events + 1] = event end
    end }
    local part = hold(client:lock("k"))
    local _, message, code = waiter:lock("k"):acquire(WAIT)
    assert.equal("busy", code)
    assert.matches(": " .. part, message, 1, true)
    assert.matches(" for %d+ m?s, up to %d+ s more unless renewed; waited %d+ ms$", message)
    assert.same({ HOST, sys.getpid(), "billing" }, { events[1].host, events[1].pid, events[1].name })
    local said = 1000 * tonumber(message:match(", up to (%d+) s more"))
    assert.is_true(said >= server:cli("PTTL", "k"), message)
    message = select(2, waiter:with_lock("k", { wait = WAIT }, error))
    assert.matches(part, message, 1, true)
    message = select(2, waiter:multi_lock({ "k", "free" }, { wait = WAIT }):acquire())
    assert.matches(part, message, 1, true)
    part = hold(client:fair_lock("f"))
    message = select(2, waiter:fair_lock("f"):acquire(WAIT))
    assert.matches(": " .. part, message, 1, true)
    assert.matches(" for %d+ m?s, up to %d+ s more unless renewed; waited %d+ ms$", message)
    part = hold(client:mutex("a_1"))
    message = select(2, waiter:one_by_one({ wait = WAIT }):execute("a", 1, error))
    assert.matches("one_by_one: type=a id=1: already running, " .. part, message, 1, true)
    waiter:close()
  end)

  it("is in the message for the awaited key even if another key had the same options first", function()
    kept = {}
    local part = hold(client:lock("k"))
    for _, opts in ipairs { {}, { lease = 20, class = "reports" } } do
      local first = reader:lock("another key", opts)
      assert(first:acquire(0))
      assert(first:release())
      assert.matches(part, select(2, reader:lock("k", opts):acquire(WAIT)), 1, true)
    end
  end)

  it("is followed in the message by the time waited, in whole ms or seconds", function()
    kept = {}
    local waiter = holdfast.new(server:url())
    local part, lock = hold(client:lock("k")), waiter:lock("k")
    local message = select(2, lock:acquire(0))
    for seconds, shown in pairs { [0.0004] = "0 ms", [0.9994] = "999 ms", [1] = "1 s", [59.9] = "59 s" } do
      local described = holder.describe(lock, message, seconds)
      assert.matches(part, described, 1, true)
      assert.matches("; waited " .. shown .. "$", described)
    end
    waiter:close()
  end)

  it("is followed in the message by the time held, and by whether the holder has renewed since", function()
    kept = {}
    local waiter = holdfast.new(server:url())
    hold(client:lock("k", { lease = 20 }))
    local lock = waiter:lock("k")
    local message = select(2, lock:acquire(0))
    assert.matches("billing%) for %d+ m?s, up to %d+ s more unless renewed; ", (holder.describe(lock, message, 0)))
    server:cli("PEXPIRE", "k", 60000)
    assert.matches("billing%) for %d+ m?s, renewed; waited 1 ms$", (holder.describe(lock, message, 0.001)))
    -- this holder has come during the wait, so the known lease is an earlier holder's
    assert.matches("billing%) for %d+ m?s, up to %d+ s more", (holder.describe(lock, message, 3600)))
    server:cli("DEL", "redisson_lock_token:{k}")
    assert.matches("billing%) for up to %d+ s more unless renewed; ", (holder.describe(lock, message, 0)))
    server:cli("DEL", "k")
    waiter:close()
  end)

  it("is followed by times in at most two units, the largest ones", function()
    for seconds, shown in pairs {
      [0] = "0 ms", [0.9994] = "999 ms", [0.9996] = "1 s", [59.9] = "59 s", [60] = "1 min",
      [290.5] = "4 min 50 s", [3599] = "59 min 59 s", [3600] = "1 h", [7861] = "2 h 11 min",
      [86400] = "1 d", [273600] = "3 d 4 h",
    } do
      assert.equal(shown, texts.duration(seconds))
    end
  end)

  it("is in the event of the wait that looked it up, and in no later event", function()
    local events, waiter = {}, holdfast.new(server:url())
    local heeded = waiter:lock("k", { on_event = function(event) events[#events + 1] = event end })
    kept = {}
    hold(client:lock("k"))
    assert.is_nil(waiter:lock("k"):acquire(0.01)) -- too short to start a listener
    assert.is_nil(heeded:try_acquire())
    assert.is_nil(heeded:acquire(0.01))
    assert.is_nil(heeded:try_acquire())
    local named = {}
    for i, event in ipairs(events) do named[i] = event.event .. " " .. (event.name or "nobody") end
    assert.same({ "busy nobody", "busy billing", "busy nobody" }, named)

    local of, left = names_of_clients.read, setmetatable({}, { __mode = "k" })
    finally(function() names_of_clients.read = of end)
    function names_of_clients.read(...)
      local who = of(...)
      left[assert(who)] = true
      return who
    end
    for i = 1, 20 do
      kept[#kept + 1] = assert(client:lock("k" .. i):acquire())
      assert.is_nil(waiter:lock("k" .. i):acquire(0.001))
    end
    for _ = 1, 3 do collectgarbage() end
    local count = 0
    for _ in pairs(left) do count = count + 1 end
    assert.is_true(count < 5, count)
    waiter:close()
  end)

  it("is in the event of a wait that a listener makes, but not of its try_acquire", function()
    local events, lock = {}, nil
    local waiter = holdfast.new { url = server:url(), on_event = function(event)
      if event.event ~= "busy" then return end
      events[#events + 1] = event.name or "nobody"
      if #events > 1 then return end
      assert.is_nil(lock:try_acquire())
      assert.is_nil(lock:acquire(0.01))
    end }
    lock, kept = waiter:lock "k", {}
    hold(client:lock("k"))
    assert.is_nil(lock:try_acquire())
    assert.same({ "nobody", "nobody", "billing" }, events)
    waiter:close()
  end)

  it("is not looked up for try_acquire or a wait of 0, nor shown if it was not published", function()
    local lock, monitor = reader:lock("k"), server:monitor()
    kept = { assert(client:lock("k"):acquire()) }
    local before = monitor:count("GET")
    for wait = 0, 1 do
      local _, message = (wait == 0 and lock.try_acquire or lock.acquire)(lock, 0)
      assert.matches("held by another owner, for up to ", message, 1, true)
    end
    assert.equal("busy", select(3, reader:lock("k", { max_waiters = 0 }):acquire(10)))
    assert.is_true(client:idempotent("job", { delete_key = true }, function()
      assert.equal("duplicate", select(3, reader:idempotent("job", { wait = 0.02 }, error)))
    end))
    assert.equal(before, monitor:count("GET"))
    monitor:close()
    server:cli("FLUSHALL")
    server:cli("HSET", "foreign", "another:1", 1)
    server:cli("PEXPIRE", "foreign", 60000)
    assert.matches("held by another owner, for up to ", select(2, reader:lock("foreign"):acquire(WAIT)), 1, true)
  end)

  it("is shown for a holder without fencing tokens", function()
    kept = {}
    hold(client:lock("k", { fencing = false }))
    assert.equal("billing", reader:lock("k"):info().name)
  end)

  it("is published with host and pid while the client holds a lock", function()
    local lock = assert(client:lock("k"):acquire())
    local info = published(reader:lock("k"))
    assert.same({ HOST, sys.getpid(), "billing" }, { info.host, info.pid, info.name })
    local ttl = server:cli("TTL", server:cli("KEYS", "holdfast_client:*")[1])
    assert.is_true(ttl > 200 and ttl <= 300)
    lock:release()
    client:close()
    assert.equal(0, names())
  end)

  it("is omitted for a client without a name, but host and pid are published", function()
    local lock = assert(reader:lock("k"):acquire())
    local info = published(client:lock("k"))
    assert.same({ HOST, sys.getpid() }, { info.host, info.pid })
    assert.is_nil(info.name)
    lock:release()
  end)
end)
