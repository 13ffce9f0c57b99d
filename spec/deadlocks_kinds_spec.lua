-- Deadlocks through fair locks, read/write locks and permits.

local driver = require "holdfast.driver"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local PATIENCE = 20
local unpack = table.unpack or unpack

-- Acquires what its first words name, and the last one as soon as the file `go` exists.
local PARTY = [[
  local url, go, name = arg[1], arg[2], arg[3]
  local client = require("holdfast").new { url = url, name = name }
  local function acquire(what, wait)
    local kind, key, count = what:match("^(%a+):(%a+):?(%d*)$")
    if kind == "permit" then
      return client:semaphore(key, { permits = 2 }):acquire(tonumber(count) or 1, wait)
    elseif kind == "read" or kind == "write" then
      local both = client:read_write_lock(key)
      return both[kind](both):acquire(wait)
    end
    return client[kind == "fair" and "fair_lock" or kind](client, key):acquire(wait)
  end
  local held = {}
  for i = 4, #arg - 1 do held[i] = assert(acquire(arg[i], 0)) end
  print "holds"
  io.stdout:flush()
  repeat local file = io.open(go) until file
  if arg[#arg] == "nothing" then require("spec.support.process").sleep(60) end
  acquire(arg[#arg], 60)
]]

describe("client:deadlocks()", function()
  local client, go, count

  before_each(function()
    world.open()
    client, go, count = world.client(), process.directory() .. "/go", 0
    os.remove(go)
  end)
  after_each(function()
    for _, child in ipairs(world.children) do child:stop() end
    world.cli("FLUSHALL")
    world.close()
  end)

  -- Starts a process: the words are what it holds, and last what it waits for.
  local function party(name, ...)
    local child = world.program { code = PARTY, args = { world.server:url(), go, name, ... } }
    assert(child:wait_output("holds", PATIENCE), child:output())
    count = count + (select(select("#", ...), ...) == "nothing" and 0 or 1)
  end

  local function all_wait() assert(io.open(go, "w")):close() end

  -- → the waits of the cycle, sorted, each as "NAME waits for KIND KEY, held by NAME"
  local function found_cycle()
    all_wait()
    local cycles
    assert(process.wait_until(function()
      cycles = assert(client:deadlocks()).cycles
      for _, wait in ipairs(cycles[1] or {}) do
        if not wait.name or not wait.holder_name then return false end
      end
      return #cycles > 0
    end, PATIENCE), "no deadlock found")
    assert.equal(1, #cycles)
    local list = {}
    for i, wait in ipairs(cycles[1]) do
      list[i] = ("%s waits for %s %s, held by %s"):format(wait.name, wait.kind, wait.key,
        wait.holder_name)
    end
    table.sort(list)
    return list
  end

  -- Adds unknown owners with this line of a script: too many for one reply.
  local function crowd(key, line)
    world.cli("EVAL", ([[
      for i = 1, 5000 do
        local other = ('%%08d-0000-0000-0000-000000000000:1'):format(i)
        redis.call(%s)
      end]]):format(line), 1, key)
  end

  local BESIDE_OTHERS = {
    queue = { "lock:a", "holdfast_queue:{a}", "'ZADD', KEYS[1], i / 1e6, '1l' .. other .. ':1'" },
    list = { "fair:a", "redisson_lock_queue:{a}", "'LPUSH', KEYS[1], other" },
    ["readers' hash"] = { "read:a", "a", "'HSET', KEYS[1], other, 1" },
  }
  for what, each in pairs(BESIDE_OTHERS) do
    it("finds a deadlock among 5,000 others in a " .. what, function()
      party("ann", each[1], "mutex:b")
      party("bob", "mutex:b", (each[1]:gsub("read", "write")))
      found_cycle()
      crowd(each[2], each[3])
      assert.equal(1, #assert(client:deadlocks()).cycles)
    end)
  end

  it("fails instead of finding no deadlock if the server goes silent during the search", function()
    party("ann", "lock:a", "lock:b")
    party("bob", "lock:b", "lock:a")
    found_cycle()
    local short, command_of = world.client { command_timeout = 0.2 }, driver.command
    finally(function() driver.command = command_of end)
    function driver.command(of, words, node)
      if words[1] == "GET" then world.cli("CLIENT", "PAUSE", 400, "ALL") end
      driver.command = words[1] == "GET" and command_of or driver.command
      return command_of(of, words, node)
    end
    local found, message, code = short:deadlocks()
    assert.same({ nil, "unreachable" }, { found, code })
    assert.matches("^cannot ", message)
  end)

  it("finds a deadlock for a user who may not query channels or read other locks", function()
    party("ann", "lock:a", "lock:b")
    party("bob", "lock:b", "lock:a")
    found_cycle()
    local waiter = ("0"):rep(8) .. "-0000-0000-0000-" .. ("0"):rep(12) .. ":1"
    world.cli("ZADD", "holdfast_queue:{secret}", 1, "1l" .. waiter .. ":1")
    world.cli("ACL", "SETUSER", "ops", "on", ">pw", "~holdfast_*", "~redisson_*", "~a",
      "~b", "&*", "+@all", "-pubsub")
    local url = world.server:url():gsub("^unix://", "unix://ops:pw@")
    local found, message = world.client({ url = url }):deadlocks()
    assert(found, message)
    assert.same({ 1, 3 }, { #found.cycles, #found.waits })
    world.cli("DEL", "holdfast_queue:{secret}")
    world.cli("ACL", "DELUSER", "ops")
  end)

  it("finds a deadlock even if keys of other types occupy the names of waits and queues", function()
    party("ann", "lock:a", "lock:b")
    party("bob", "lock:b", "lock:a")
    world.cli("HSET", "holdfast_wait:other", "field", 1)
    world.cli("SET", "holdfast_queue:{other}", "text")
    world.cli("SET", "redisson_lock_queue:{other}", "text")
    assert.same({ "ann waits for lock b, held by bob", "bob waits for lock a, held by ann" },
      found_cycle())
  end)

  -- Each row: what the deadlock goes through, the parties in the order of their starts, the waits.
  for _, row in ipairs {
    {
      "the first of several readers",
      {
        { "ann", "read:a", "mutex:b" }, { "eve", "read:a", "nothing" },
        { "bob", "mutex:b", "write:a" },
      },
      { "ann waits for mutex b, held by bob", "bob waits for write a, held by ann" },
    },
    {
      "the last of several readers",
      {
        { "eve", "read:a", "nothing" }, { "ann", "read:a", "mutex:b" },
        { "bob", "mutex:b", "write:a" },
      },
      { "ann waits for mutex b, held by bob", "bob waits for write a, held by ann" },
    },
    {
      "the writer of a read/write lock",
      { { "ann", "write:a", "lock:b" }, { "bob", "lock:b", "read:a" } },
      { "ann waits for lock b, held by bob", "bob waits for read a, held by ann" },
    },
    {
      "fair locks",
      {
        { "ann", "fair:a", "fair:b" }, { "bob", "fair:b", "lock:c" }, { "cid", "lock:c", "fair:a" },
      },
      {
        "ann waits for fair b, held by bob", "bob waits for lock c, held by cid",
        "cid waits for fair a, held by ann",
      },
    },
    {
      "permits of a semaphore",
      { { "ann", "permit:pool:2", "lock:a" }, { "bob", "lock:a", "permit:pool" } },
      { "ann waits for lock a, held by bob", "bob waits for permit pool, held by ann" },
    },
    {
      "callers that hold all permits and want more",
      { { "ann", "permit:pool", "permit:pool" }, { "bob", "permit:pool", "permit:pool" } },
      { "ann waits for permit pool, held by bob", "bob waits for permit pool, held by ann" },
    },
  } do
    local what, parties, waits = row[1], row[2], row[3]
    it("finds a deadlock through " .. what, function()
      for _, words in ipairs(parties) do party(unpack(words)) end
      assert.same(waits, found_cycle())
    end)
  end

  it("lists a caller that holds several locks once, with everything it holds", function()
    party("ann", "permit:pool", "read:r", "lock:a", "lock:b")
    party("bob", "lock:b", "lock:a")
    found_cycle()
    local waits = assert(client:deadlocks()).waits
    assert.same({ 2, "a", "b" }, { #waits, waits[1].key, waits[2].key })
    assert.same({ 1, 3 }, { #waits[1].holds, #waits[2].holds })
    assert.same({ "bob", "ann" }, { waits[1].name, waits[2].name })
  end)

  it("sorts deadlocks by their keys", function()
    for _, pair in ipairs { { "c", "d" }, { "a", "b" }, { "e", "f" } } do
      party("of-" .. pair[1], "lock:" .. pair[1], "lock:" .. pair[2])
      party("of-" .. pair[2], "lock:" .. pair[2], "lock:" .. pair[1])
    end
    all_wait()
    local cycles
    assert(process.wait_until(function()
      cycles = assert(client:deadlocks()).cycles
      return #cycles == 3
    end, PATIENCE))
    for i, pair in ipairs { "ab", "cd", "ef" } do
      assert.equal(2, #cycles[i])
      assert.truthy(pair:find(cycles[i][1].key, 1, true), cycles[i][1].key)
      assert.truthy(pair:find(cycles[i][2].key, 1, true), cycles[i][2].key)
    end
  end)

  it("lists only the first hundred waiters of each queue, sorted by key and owner",
    function()
    world.cli("EVAL", [[
      for i = 1, 150 do
        local other = '%08d-0000-0000-0000-000000000000:1'
        redis.call('RPUSH', 'redisson_lock_queue:{a}', other:format(1000 - i))
        redis.call('ZADD', 'holdfast_queue:{b}', i, '1l' .. other:format(2000 - i) .. ':1')
      end]], 0)
    local waits = assert(client:deadlocks()).waits
    assert.equal(200, #waits)
    for i, wait in ipairs(waits) do
      local key, number = i <= 100 and "a" or "b", i <= 100 and 899 + i or 1799 + i
      assert.same({ key, ("%08d"):format(number) }, { wait.key, wait.owner:sub(1, 8) })
    end
  end)

  it("finds a deadlock even while more permits are taken than the semaphore has", function()
    party("ann", "permit:pool", "lock:a")
    party("eve", "permit:pool", "nothing")
    party("bob", "lock:a", "permit:pool")
    assert(client:semaphore("pool"):set_permits(1))
    found_cycle()
  end)

  local QUEUES = {
    lock = { "lock:a", "holdfast_queue:{a}" },
    ["fair lock"] = { "fair:a", "redisson_lock_queue:{a}" },
  }
  for what, each in pairs(QUEUES) do
    it("finds no deadlock once a caller has left the queue of a " .. what, function()
      party("ann", each[1], "mutex:b")
      party("bob", "mutex:b", each[1])
      found_cycle()
      for _, child in ipairs(world.children) do child:kill("STOP") end
      world.cli("DEL", each[2])
      assert.same({}, assert(client:deadlocks()).cycles)
    end)
  end
end)
