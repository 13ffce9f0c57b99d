-- No call of holdfast.core and holdfast.process may crash, whatever its arguments. It may raise any
-- error.

local core = require "holdfast.core"
local process = require "spec.support.process"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new { tcp = true }

-- HOLDFAST_CALLS sets the number of runs, by default two.
local SEEDS, CALLS = tonumber(os.getenv "HOLDFAST_CALLS") or 2, 800

before_each(world.open)
after_each(function()
  world.cli("FLUSHALL")
  world.close()
end)

local function run(seed, env)
  local child = process.lua {
    file = "spec/support/any_call.lua", env = env,
    args = { seed, CALLS, "unix://" .. world.server.path, "redis://127.0.0.1:" .. world.server.port },
  }
  child:wait(120)
  return child:output()
end

local WRONG_CALLS = [[
  local core, process = require "holdfast.core", require "holdfast.process"
  local url = arg[1]
  local function try(fn, ...) return pcall(fn, ...) end
  for _, servers in ipairs { 1, "two", true, {}, { 1, {} } } do
    try(core.client.new, { mode = "quorum", servers = servers })
    try(core.client.new, { mode = "shards", servers = { url }, names = servers, weights = servers })
  end
  local client = core.client.new { url = url, external = true }
  local plain = core.client.new { url = url }
  try(core.lock.new, plain, { key = "k", owner = ("o"):rep(5000) })
  try(core.lock.new, plain, { key = "" })
  local lock = core.lock.new(client, { key = "k", permits = 3, class = 1e9, observer = 0 / 0 })
  try(core.lock.begin, lock, "command", 0, "abc")
  try(core.lock.begin, lock, "command", 0 / 0, { {} })
  for _, kind in ipairs { "lock", "mutex", "guard", "permit", "read", "write", "fair", "latch", "plain_semaphore" } do
    local one = core.lock.new(client, { key = kind, kind = kind, permits = 1 })
    for _, name in ipairs { "acquire", "release", "complete", "extend", "check", "force_release", "info", "ttl", "ping",
      "pause", "set", "set_count", "count_down", "count", "await", "delete", "take", "give", "drain" } do
      local _, operation = try(core.lock.begin, one, name, 0)
      try(core.operation.detach, operation)
    end
    try(core.lock.begin_all, { one, lock }, "acquire_all")
  end
  for _, name in ipairs { "opened", "handshaking", "closed", "opening", "opening", "closed" } do
    try(core.engine[name], client, 1)
  end
  try(core.engine.output, client, 1, -1)
  try(core.lock.renumber, 0 / 0)
  try(process.kill, 2 ^ 32, "TERM")
  assert(not try(process.captured_reap, 0x7fffffff, true), "it ends what it has not begun")
  assert(process.captured_read(0, 0) == nil, "it reads a descriptor that it has not opened")
  try(process.captured_close, 1) -- otherwise the last output would be lost
  try(process.wait, -1 / 0)
  local closed = core.client.new { url = url }
  core.watchdog.start(core.watchdog.new(closed))
  core.engine.close(closed)
  core.client_type.__gc(closed)
  local ended = core.client.new { url = url }
  try(core.lock.new, ended, setmetatable({}, { __index = function() core.client_type.__gc(ended) end }))
  local given = { key = "k", kind = "guard", fingerprint = ("f"):rep(40) .. url }
  local guard = core.lock.new(plain, given)
  given.fingerprint = nil
  collectgarbage()
  guard = core.lock.acquire(guard, 0)
  io.stdout:write "all calls returned\n"
]]

it("a call with arguments of the wrong type or range does not crash", function()
  local child = process.lua { code = WRONG_CALLS, args = { "unix://" .. world.server.path } }
  child:wait(60)
  assert.matches("all calls returned\n$", child:output())
end)

it("no call with random arguments crashes", function()
  for seed = 1, SEEDS do
    if not run(seed):find "all calls returned\n$" then
      local calls = run(seed, { TRACE = "1" })
      error(("with seed %d:\n%s"):format(seed, calls:sub(-2000)), 0)
    end
  end
end)

it("a number that is out of range is refused or has no effect", function()
  local url = world.server:url()
  local client = assert(core.client.new { url = url, command_timeout = 20, connect_timeout = 20 })
  for _, weight in ipairs { 0, -1, 101, 2 ^ 31 } do
    local given = { mode = "shards", servers = { url }, names = { "a" }, weights = { weight } }
    assert.error_matches(function() core.client.new(given) end, "out of range")
  end
  for _, node in ipairs { -1, 2 ^ 31 } do
    local function ping() core.client.command(client, { "PING" }, node) end
    assert.error_matches(ping, "out of range")
  end
  local pool = core.lock.new(client, { key = "pool", kind = "plain_semaphore", permits = 1 })
  local latch = core.lock.new(client, { key = "latch", kind = "latch" })
  assert.same({ true, true }, { core.lock.set_count(pool, 3), core.lock.set_count(latch, 3) })
  for _, number in ipairs { 2e15, -2e15, 0 / 0, 1 / 0 } do
    assert.equal(3, core.lock.give(pool, number))
    assert.equal(3, core.lock.count_down(latch, number))
  end
  core.client.close(client, 20)
end)

it("a call that its client or lock does not support is refused", function()
  local url = world.server:url()
  local client = assert(core.client.new { url = url })
  local function new(of, given)
    given.key = "k"
    return core.lock.new(of, given)
  end
  local lock = new(client, {})
  local uses_event_loop = new(assert(core.client.new { url = url, uses_event_loop = true }), {})
  local external = core.client.new { url = url, external = true }
  for message, call in pairs {
    ["#1.*does not support the operation"] = function() core.lock.give(lock, 1) end,
    ["#2.*no permits"] = function() new(client, { kind = "permit" }) end,
    ["#2.*table expected"] = function() core.lock.new(client, 1) end,
    ["there is no kind of lock called x"] = function() new(client, { kind = "x" }) end,
    ["there is no operation called x"] = function() core.lock.begin(lock, "x") end,
    ["this client does not block"] = function() core.lock.acquire(uses_event_loop) end,
    ["this client does not block; use begin"] = function() core.lock.acquire_all { uses_event_loop } end,
    ["#2.*table expected, got no value"] = function() core.engine.advance(external) end,
    ["#3.*table expected"] = function() core.engine.advance(external, {}) end,
    ["#2.*key must not be empty"] = function() core.lock.copy(lock, "") end,
    ["#2.*owner must be 1 to 255 bytes"] = function() new(client, { owner = "" }) end,
    ["this client drives itself"] = function() core.lock.begin_all({ lock }, "acquire_all") end,
    ["there is no operation called acquire_all"] = function() core.lock.begin(lock, "acquire_all") end,
    ["not an external client"] = function() core.engine.tick(client) end,
    ["not a client of an event loop"] = function() core.engine.serve(client) end,
  } do
    assert.error_matches(call, message)
  end
  for _, missing in ipairs { "names", "weights" } do
    local given = { mode = "shards", servers = { url }, names = { "a" }, weights = { 1 } }
    given[missing] = nil
    assert.error_matches(function() core.client.new(given) end, "missing shard names or weights")
  end
  assert.same({ nil, "the tls option requires rediss://" },
    { core.client.new { url = url, tls = {} } })
  assert.matches("redis://", select(2, core.parse_url "http://127.0.0.1"))
  assert.matches("127%.0%.0%.1", core.parse_url "redis://127.0.0.1")
end)

it("a call refuses an object of another type in place of its own", function()
  local client = assert(core.client.new { url = world.server:url() })
  local lock = core.lock.new(client, { key = "k" })
  local taken = {}
  for part, other in pairs {
    client = lock, engine = lock, watchdog = lock, lock = client, operation = client,
  } do
    for name, call in pairs(core[part]) do
      local done, message = pcall(call, other, "acquire_all", 1)
      if done or not message:find "#%d.*expected" then taken[#taken + 1] = part .. "." .. name end
    end
  end
  assert.same({ "client.buckets" }, taken) -- it has no argument
end)

local COLLECTING_CALLS = [[
  local core = require "holdfast.core"
  local client = core.client.new { url = arg[1], command_timeout = 20, connect_timeout = 20 }
  local lock = core.lock.new(client, { key = "k", lease = 60 })
  assert(core.lock.acquire(lock))
  core.client.command(client, { "DEL", "k" })
  assert(not core.lock.check(lock) and core.lock.first_loss(lock) == "deleted")
  pcall(collectgarbage, "setstepmul", 10000) -- one step of the collector is a whole cycle
  local function call(functions, names, ...)
    for _, name in ipairs(names) do
      local one = functions[name]
      collectgarbage() collectgarbage()
      collectgarbage "stop"
      for _ = 1, 10 do core.lock.new(client, { key = "garbage" }) end
      collectgarbage "restart"
      one(...)
    end
  end
  call(core.lock, { "number", "is_held", "holds", "remaining", "token", "lost", "first_loss", "standing", "pending_loss",
    "has_news", "balance", "waited", "key", "owner", "info", "ttl", "check" }, lock)
  call(core.client, { "stats", "has_losses", "uuid", "server", "tenant", "nodes", "classes", "events", "ping" }, client)
  call(core.client, { "database_names", "group", "node_of_lock" }, client, "k")
  io.stdout:write "all calls returned\n"
]]

it("no call deadlocks when the garbage collector runs finalizers during it", function()
  local child = process.lua { code = COLLECTING_CALLS, args = { world.server:url() } }
  child:wait(30)
  assert.matches("all calls returned\n$", child:output())
end)

local function connected(given)
  given.command_timeout, given.connect_timeout = 20, 20
  local client = assert(core.client.new(given))
  assert(core.client.ping(client))
  return client
end

it("a command returns the server's reply unchanged", function()
  local client = connected { url = world.server:url() }
  local deep = "local all = 'end' for _ = 1, 7 do all = { all } end return all"
  for program, reply in pairs {
    ["return -7"] = -7,
    ["return 4503599627370497"] = 4503599627370497,
    ["return ''"] = "",
    ["return 'a\\0b'"] = "a\0b",
    ["return redis.status_reply('FINE')"] = "FINE",
    ["return {}"] = {},
    ["return { 1, false, { 2, {} }, '' }"] = { 1, nil, { 2, {} }, "" },
    ["return { redis.error_reply('ODD words') }"] = { "ODD words" },
    [deep] = { { { { { { { "end" } } } } } } },
  } do
    assert.same(reply, core.client.command(client, { "EVAL", program, 0 }), program)
  end
  assert.same({ "a\0b", "15", "", "-3" },
    core.client.command(client, { "EVAL", "return ARGV", 0, "a\0b", 15, "", -3 }))
  assert.equal(1, select("#", core.client.command(client, { "GET", "k" })))
  local reply, message, code = core.client.command(client,
    { "EVAL", "return redis.error_reply('ODD words')", 0 })
  assert.is_nil(reply)
  assert.matches("ODD words", message)
  assert.equal("server", code)
  assert.equal("PONG", core.client.command(client, { "PING" })) -- the client still works
  local many = { "EVAL", "return #ARGV", 0 }
  for i = 1, 3000 do many[i + 3] = i end
  assert.equal(3000, core.client.command(client, many))
  core.client.close(client, 20)
end)

it("a large command is sent as fast as the server reads it", function()
  local client = connected { url = world.server:url() }
  local lock = core.lock.new(client, { client = client, key = "k", lease = 30, renewed = true })
  assert(core.lock.acquire(lock, 0)) -- this starts the watchdog, which changes how calls sleep
  local bare = assert(resp.connect { path = world.server.path })
  local large, took, bound = ("x"):rep(16000000), nil, nil
  local function seconds(call)
    local since = sys.now()
    assert.equal("OK", call())
    return sys.now() - since
  end
  for _ = 1, 5 do -- on a busy machine a bare connection also takes seconds
    bound = 1 + 2 * seconds(function() return bare:call("SET", "large", large) end)
    took = seconds(function() return core.client.command(client, { "SET", "large", large }) end)
    if took < bound then break end
  end
  assert.is_true(took < bound, took .. " s")
  bare:close()
  core.client.close(client, 20)
end)

it("long replies, records and names cause no memory leak", function()
  if process.build ~= "./build" or not sys.allocated() then return end -- a sanitizer keeps freed memory
  local large = ("x"):rep(40000)
  local client = connected { url = world.server:url() }
  local guard = core.lock.new(client, { key = large, kind = "guard", fingerprint = "f", lease = 60 })
  assert(core.lock.acquire(guard, 0))
  assert(core.lock.complete(guard, 60, large))
  for name, call in pairs {
    names = function() return core.wire.names("lock", large) end,
    reply = function() return core.client.command(client, { "ECHO", large }) == large end,
    list = function()
      return core.client.command(client, { "EVAL", "return { ARGV[1], { ARGV[1] } }", 0, large })
    end,
    refusal = function() return select(2, core.client.command(client, { "XYZ", large })) end,
    record = function() return select(4, core.lock.acquire(guard, 0)) == large end,
  } do
    local function round(times)
      for _ = 1, times do assert(call(), name) end
      collectgarbage() collectgarbage()
      return sys.allocated()
    end
    round(2)
    local before = round(2)
    local grown = round(6) - before
    assert(grown < 3 * #large, ("%s: %d bytes"):format(name, grown))
  end
  core.client.close(client, 20)
end)

it("stopping the watchdog does not wait for the server, and close still releases all locks",
  function()
  local took, tries = math.huge, 0
  while took > 0.5 and tries < 3 do
    local client = connected { url = world.server:url() }
    local watchdog = core.watchdog.new(client)
    local lock = core.lock.new(client, { client = client, key = "k", lease = 30, wait = 0 })
    assert(core.lock.acquire(lock))
    world.server:kill("STOP")
    core.lock.abandon(lock)
    local since = sys.now()
    core.watchdog.stop(watchdog)
    took, tries = sys.now() - since, tries + 1
    assert.is_false(core.watchdog.is_running(watchdog))
    world.server:kill("CONT")
    core.client.close(client, 20)
    assert.is_true(world.is_free("k"))
  end
  assert.is_true(took <= 0.5, took .. " s")
end)

it("a call on a collected lock fails and says so", function()
  local client = connected { url = world.server:url() }
  local lock = core.lock.new(client, { client = client, key = "k", lease = 30, wait = 0 })
  assert(core.lock.acquire(lock))
  core.lock_type.__gc(lock)
  for _, name in ipairs { "acquire", "release", "check", "info", "ttl", "force_release" } do
    local got, message, code = core.lock[name](lock)
    assert.is_nil(got)
    assert.equal("the lock was garbage-collected, so it is no longer held", message)
    assert.equal("closed", code)
  end
  assert.is_true(world.is_free("k"))
  core.client.close(client, 20)
end)

describe("every operation of the core", function()
  -- Calls each operation with the kinds of lock that support it, as check(name, ok, message, code).
  local function each_call(client, check)
    for name in pairs(core.operations) do
      local call, called = core.lock[name], name == "command" -- which has no call of its own
      for kind in pairs(core.kinds) do
        local lock = core.lock.new(client, { key = "k", kind = kind, permits = 1 })
        local last = (name == "fenced" or name == "once") and { "GET", "k" } or nil
        local supported, ok, message, code = pcall(call or error, lock, 0, last)
        if supported then check(name, ok, message, code) end
        called = called or supported
      end
      assert.is_true(called, name .. " was not called")
    end
  end

  it("fails as unreachable without a server, or as not held if it needs a hold", function()
    local client = core.client.new { url = "redis://127.0.0.1:1", connect_timeout = 0.1 }
    each_call(client, function(name, ok, _, code)
      if name == "pause" then return assert.is_true(ok) end -- sends nothing
      local needs_hold = core.hold_operations[name] and name ~= "acquire"
      assert.same({ nil, needs_hold and "not_held" or "unreachable" }, { ok, code }, name)
    end)
    core.client.close(client, 0)
  end)
end)
