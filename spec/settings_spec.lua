-- Each option reaches the handle that an API function makes, and a client's settings are the
-- defaults of all its handles.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local function nothing() end

-- A function of the API → function(client, options), which returns the handle that is made.
local makers = {
  lock = function(client, opts) return client:lock("k", opts) end,
  mutex = function(client, opts) return client:mutex("m", opts) end,
  fair_lock = function(client, opts) return client:fair_lock("f", opts) end,
  read = function(client, opts) return client:read_write_lock("rw", opts):read() end,
  write = function(client, opts) return client:read_write_lock("rw", opts):write() end,
  multi_lock = function(client, opts) return client:multi_lock({ "a", "b" }, opts).locks[2] end,
  permit = function(client, opts)
    opts.permits = 1000
    return assert(client:semaphore("s", opts):acquire(1, 0))
  end,
  plain_semaphore = function(client, opts) return client:plain_semaphore("p", opts).single end,
  latch = function(client, opts) return client:latch("l", opts).handle end,
}

for _, name in ipairs { "with_lock", "with_read_lock", "with_write_lock", "with_fair_lock" } do
  makers[name] = function(client, opts)
    return assert(client[name](client, name, opts, function(lock) return lock end))
  end
end

function makers.one_by_one(client, opts)
  return assert(client:one_by_one(opts):execute("type", "id", function(lock) return lock end))
end

function makers.lead(client, opts)
  opts.once = true
  return assert(client:lead("lead", opts, function(term) return term.lock end))
end

-- Only the acquire shows the guard.
function makers.idempotent(client, opts)
  local acquire, guard = driver.lock.acquire, nil
  function driver.lock.acquire(lock, wait)
    guard = lock
    return acquire(lock, wait)
  end
  opts.delete_key = true
  local ran, message = client:idempotent("i", opts, nothing)
  driver.lock.acquire = acquire
  assert(ran, message)
  return guard
end

local COMMON = { class = true, on_event = true, interruptible = true }
local LEASED = { lease = true, max_hold = true, on_lost = true, fencing = true, token_ttl = true }
local QUEUED = { wait = true, max_waiters = true, watchdog = true }
local LOCKS = { async_release = true, deadlock_check = true }
local OWN = { owner = true, keep = true }

local function union(...)
  local all = {}
  for _, each in ipairs { ... } do
    for name in pairs(each) do all[name] = true end
  end
  return all
end

local ALL = union(COMMON, LEASED, QUEUED, LOCKS, OWN)
local TURNS = union(COMMON, LEASED, QUEUED, LOCKS)

-- A function of the API → its options.
local taken = {
  lock = ALL, mutex = ALL, with_lock = ALL, multi_lock = union(TURNS, { owner = true }),
  fair_lock = TURNS, read = TURNS, write = TURNS, with_read_lock = TURNS, with_write_lock = TURNS,
  with_fair_lock = TURNS,
  permit = union(COMMON, LEASED, QUEUED),
  lead = union(COMMON, { lease = true, max_hold = true, fencing = true, token_ttl = true }),
  one_by_one = union(COMMON, {
    lease = true, max_hold = true, wait = true, max_waiters = true, async_release = true,
    keep = true,
  }),
  idempotent = { class = true, on_event = true, lease = true, wait = true },
  plain_semaphore = union(COMMON, { wait = true }), latch = union(COMMON, { wait = true }),
}

local given = {
  lease = 7, max_hold = 9, wait = 3, max_waiters = 2, watchdog = false, owner = "me",
  interruptible = true, async_release = true, keep = 2, deadlock_check = 5, class = "orders",
  on_event = nothing, on_lost = nothing, fencing = false, token_ttl = 50,
}

-- → option → its value in the handle
local function found(client, handle)
  local data, classes = core.lock.data(handle), {}
  for _, name in ipairs { "", "orders", "others" } do
    classes[core.client.class(client, name)] = name
  end
  return {
    lease = data.lease, max_hold = data.max_hold, wait = data.wait,
    max_waiters = data.max_waiters, watchdog = data.renewed, owner = data.owner,
    interruptible = data.interruptible, async_release = data.async_release, keep = data.keep,
    deadlock_check = data.deadlock_check, class = classes[data.class],
    on_event = data.observer ~= 0 and data.on_event, on_lost = data.on_lost,
    fencing = data.token_ttl ~= 0, token_ttl = data.token_ttl,
  }
end

describe("an option", function()
  local server, clients

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)
  before_each(function() clients = {} end)
  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    server:cli("FLUSHALL")
  end)

  local function connect(options)
    clients[#clients + 1] = holdfast.new(server:url(), options)
    return clients[#clients]
  end

  local function check(client, maker, option, wanted, opts)
    local handle = makers[maker](client, opts)
    local has = found(client, handle)[option]
    assert.message(maker .. ": " .. option).equal(wanted, has)
  end

  it("takes effect in each handle that accepts it", function()
    local client = connect()
    for maker, options in pairs(taken) do
      for option in pairs(options) do
        check(client, maker, option, given[option], { [option] = given[option] })
      end
    end
  end)

  -- What some functions set in spite of the client's settings.
  local fixed = {
    lead = { wait = math.huge, keep = 0 }, multi_lock = { keep = 0 },
    one_by_one = { lease = 30, wait = 10 },
    idempotent = { wait = 0, async_release = false, fencing = false, token_ttl = 0 },
  }

  local function check_defaults(client, defaults)
    for maker in pairs(taken) do
      local handle = makers[maker](client, {})
      local has, own = found(client, handle), fixed[maker] or {}
      for option in pairs(defaults) do
        local wanted = defaults[option]
        if own[option] ~= nil then wanted = own[option] end
        local kind = core.kinds[core.lock.data(handle).kind]
        if option == "keep" and not kind.may_be_kept then wanted = 0 end
        assert.message(maker .. ": " .. option).equal(wanted, has[option])
      end
      assert.is_nil(has.owner)
      assert.is_nil(has.max_hold)
      assert.is_nil(has.max_waiters)
      assert.is_nil(has.on_lost)
      assert.is_falsy(has.on_event)
    end
  end

  it("has its default in each handle that does not set it", function()
    check_defaults(connect(), {
      lease = 30, watchdog = true, wait = 10, keep = 0, deadlock_check = 0, class = "",
      fencing = true, token_ttl = 86400,
    })
  end)

  it("of the client applies to each handle that does not set it", function()
    local settings = {
      lease = 8, wait = 4, class = "others", async_release = true, keep = 3, token_ttl = 70,
    }
    check_defaults(connect(settings), settings)
  end)

  it("of a handle overrides the client's, even to turn it off", function()
    local client = connect { lease = 8, wait = 4, class = "others", async_release = true, keep = 3,
      token_ttl = 70 }
    local off = { lease = 7, wait = 3, class = "orders", async_release = false, keep = 0,
      token_ttl = 50, fencing = false }
    for maker, options in pairs(taken) do
      for option, value in pairs(off) do
        if options[option] then check(client, maker, option, value, { [option] = value }) end
      end
    end
    client = connect { fencing = false }
    for maker, options in pairs(taken) do
      if options.fencing then
        check(client, maker, "fencing", false, {})
        check(client, maker, "fencing", true, { fencing = true })
      end
    end
  end)

  -- Returns what holdfast.new passes to the core.
  local function passed_on(opts)
    local new, settings = core.client.new, nil
    function core.client.new(all)
      settings = all
      return new(all)
    end
    local made, client = pcall(holdfast.new, opts)
    core.client.new = new
    assert.is_true(made, client)
    client:close()
    return settings
  end

  it("of the client reaches the core, with its default if unset", function()
    local url = server:url()
    local defaults = {
      restart_guard = 0, sentinel_user = "", sentinel_password = "", sync_replicas = 0,
      sync_timeout = 0, name = "holdfast", published_name = "", connect_timeout = 1, command_timeout = 3,
      grant_lease = 2, crash_release = false, url = url,
    }
    local sentinel, list = "redis+sentinel://127.0.0.1:1/main", { url, "redis://127.0.0.1:1" }
    for _, case in ipairs {
      { {}, {} },
      { { name = "billing" }, { name = "billing", published_name = "billing" } },
      { { connect_timeout = 7 }, { connect_timeout = 7 } },
      { { command_timeout = 8 }, { command_timeout = 8 } },
      { { grant_lease = 9 }, { grant_lease = 9 } },
      { { crash_release = true }, { crash_release = true } },
      { { tenant = "a:" }, { tenant = "a:" } },
      { { sync = {} }, { sync_replicas = 1, sync_timeout = 0.1 } },
      { { sync = { replicas = 2, timeout = 0.4 } }, { sync_replicas = 2, sync_timeout = 0.4 } },
      { { url = sentinel, sentinel_user = "u", sentinel_password = "p" },
        { url = sentinel, sentinel_user = "u", sentinel_password = "p" } },
      { { url = sentinel, sentinel_password = 123 },
        { url = sentinel, sentinel_password = "123" } },
      { { servers = list, mode = "quorum", restart_guard = 30 },
        { restart_guard = 30, mode = "quorum", url = "redis://127.0.0.1:6379" } },
    } do
      local opts = case[1]
      if not opts.servers then opts.url = opts.url or url end
      local settings = passed_on(opts)
      for name, value in pairs(defaults) do
        assert.message(name).equal(case[2][name] or value, settings[name])
      end
      for name, value in pairs(case[2]) do assert.message(name).equal(value, settings[name]) end
      assert.same(opts.servers or {}, settings.servers)
    end
    local shards = passed_on { mode = "shards", servers = {
      { url = url, weight = 3, name = "one" }, "redis://127.0.0.1:1",
    } }
    assert.same({ { url, "redis://127.0.0.1:1" }, { 3, 1 }, { "one", false } },
      { shards.servers, shards.weights, shards.names })
  end)

  it("wait applies to a multi-lock, a latch and a plain semaphore as a whole", function()
    local client = connect { wait = 4 }
    local function locks() return { client:lock "a", client:lock "b" } end
    for opts, wait in pairs { [{}] = 3, [{ wait = 2 }] = 2, [{ wait = 0 }] = 0 } do
      assert.equal(wait, client:multi_lock({ "a", "b" }, opts).wait)
      assert.equal(wait, holdfast.multi_lock(locks(), opts).wait)
      local own = opts.wait or 4
      assert.equal(own, client:latch("l", opts).default_wait)
      assert.equal(own, client:plain_semaphore("p", opts).wait)
    end
  end)

  it("of the client named wait is overridden by wait = 0 or a call that does not wait", function()
    local client, holder = connect { wait = 8 }, connect()
    local rw, fair = client:read_write_lock "rw", client:fair_lock "fair"
    local pool, plain = client:semaphore("pool", { permits = 1 }), client:plain_semaphore "plain"
    local latch, all = client:latch "latch", client:multi_lock { "free", "k" }
    local two = holdfast.multi_lock { holder:lock "free", client:lock "k" }
    local held = {}
    for _, lock in ipairs {
      holder:lock "k", holder:mutex "m_1", holder:read_write_lock("rw"):write(),
      holder:fair_lock "fair", holder:semaphore("pool", { permits = 1 }),
    } do
      held[#held + 1] = assert(lock:acquire(nil, 0))
    end
    assert(latch:set(1)) assert(plain:set(0))
    local from, waits = process.now(), { wait = 0 }
    local function runs() error "it runs" end
    for what, result in pairs {
      lock = { client:lock("k"):try_acquire() }, lock_0 = { client:lock("k"):acquire(0) },
      read = { rw:read():try_acquire() }, read_0 = { rw:read():acquire(0) },
      write = { rw:write():try_acquire() }, fair = { fair:try_acquire() },
      fair_0 = { fair:acquire(0) }, several = { all:try_acquire() }, several_0 = { all:acquire(0) },
      servers = { two:try_acquire() }, servers_0 = { two:acquire(0) },
      permit = { pool:try_acquire() }, permit_0 = { pool:acquire(1, 0) },
      permits = { pool:with_permit(waits, runs) },
      plain = { plain:try_acquire() }, plain_0 = { plain:acquire(1, 0) },
      plain_with = { plain:with_permit(waits, runs) },
      latch = { latch:wait(0) },
      with_lock = { client:with_lock("k", waits, runs) },
      with_read_lock = { client:with_read_lock("rw", waits, runs) },
      with_write_lock = { client:with_write_lock("rw", waits, runs) },
      with_fair_lock = { client:with_fair_lock("fair", waits, runs) },
      one_by_one = { client:one_by_one({ queue = false }):execute("m", 1, runs) },
      one_by_one_call = { client:one_by_one():execute("m", 1, { queue = false }, runs) },
    } do
      local code = what == "latch" and "timeout" or "busy"
      assert.message(what).same({ nil, code }, { result[1], result[3] })
    end
    assert.is_true(process.now() - from < 7)
    for _, lock in ipairs(held) do assert(lock:release()) end
  end)
end)
