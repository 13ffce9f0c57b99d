-- No call of holdfast.core and holdfast.process may crash, whoever makes it with whatever. It may
-- raise anything.

local core = require "holdfast.core"
local process = require "spec.support.process"
local world = require("spec.support.world").new { tcp = true }

-- HOLDFAST_CALLS=SEEDS: so many runs in place of two.
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

it("a number out of range is refused, or changes nothing", function()
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

it("a call that fits neither its client nor its lock is refused", function()
  local url = world.server:url()
  local client = assert(core.client.new { url = url })
  local function new(of, given)
    given.key = "k"
    return core.lock.new(of, given)
  end
  local lock = new(client, {})
  local looped = new(assert(core.client.new { url = url, looped = true }), {})
  local external = core.client.new { url = url, external = true }
  for message, call in pairs {
    ["#1.*does not support the operation"] = function() core.lock.give(lock, 1) end,
    ["#2.*no permits"] = function() new(client, { kind = "permit" }) end,
    ["#2.*table expected"] = function() core.lock.new(client, 1) end,
    ["there is no kind of lock called x"] = function() new(client, { kind = "x" }) end,
    ["there is no operation called x"] = function() core.lock.begin(lock, "x") end,
    ["this client does not block"] = function() core.lock.acquire(looped) end,
    ["#2.*table expected, got no value"] = function() core.engine.advance(external) end,
    ["#3.*table expected"] = function() core.engine.advance(external, {}) end,
    ["#2.*key must not be empty"] = function() core.lock.copy(lock, "") end,
    ["#2.*owner must be 1 to 255 bytes"] = function() new(client, { owner = "" }) end,
    ["this client drives itself"] = function() core.lock.begin_all({ lock }, "acquire_all") end,
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
  assert.same({ "client.buckets" }, taken) -- which has no argument
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
  call(core.client, { "processes", "group", "node_beside" }, client, "k")
  io.stdout:write "all calls returned\n"
]]

it("no call waits for itself where the collector runs finalizers in it", function()
  local child = process.lua { code = COLLECTING_CALLS, args = { world.server:url() } }
  child:wait(30)
  assert.matches("all calls returned\n$", child:output())
end)

it("an external client knows its timeouts", function()
  local client = core.client.new {
    url = "redis://127.0.0.1", external = true, connect_timeout = 2, command_timeout = 3,
  }
  assert.same({ 2, 3 }, { core.engine.timeouts(client) })
end)
