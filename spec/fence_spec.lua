-- Writes behind a fence: client:fence, its program against a model, and what it promises.

local core = require "holdfast.core"
local crowd = require "spec.support.crowd"
local fails = require "spec.support.fails"
local fence = require "holdfast.fence"
local fence_headers = require "holdfast.fence_headers"
local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local record = require "holdfast.record"
local redis = require "spec.support.redis"
local rights = require "spec.support.rights"

local unpack = table.unpack or unpack
local world = require("spec.support.world").new()

local FENCE = "holdfast_fence:{price:7}"

local function raises(want, fn, ...)
  local fine, message = pcall(fn, ...)
  assert.is_false(fine)
  assert.matches(want, message, 1, true)
end

local function held(client, key, options)
  return assert(client:lock(key or "price", options):acquire(0))
end

-- → a fence and a lock of one client, the client
local function fenced()
  local client = world.client()
  return client:fence "price:7", held(client), client
end

-- Returns a client of several servers, which does not connect to them.
local function several(mode)
  return holdfast.new { servers = { "redis://127.0.0.1:1", "redis://127.0.0.1:2" }, mode = mode }
end

-- Another client acquires the lock, while its first holder still believes that it holds the lock.
-- → the other client's lock, its fence, its UUID
local function overtake()
  world.cli("DEL", "price")
  local client = world.client()
  local lock = held(client)
  return lock, client:fence "price:7", core.client.uuid(client)
end

before_each(world.open)
after_each(function()
  if world.server.process:status() == nil then world.cli("DEL", FENCE) end
  world.close()
end)

-- In 2255 the server's clock passes 2^53 us; libc ends in 2262.
describe("on a server whose clock is briefly centuries ahead, a lock", function()
  it("gets rising tokens below 2^53, and its fence refuses earlier holders from then on", function()
    local server = redis.start { clock = true }
    local a, b = holdfast.new { url = server:url() }, holdfast.new { url = server:url() }
    local function seconds() return tonumber(server:cli("TIME")[1]) end
    local first, second, writes, late = a:lock("k"), b:lock("k"), b:fence("r"), a:fence("r")
    assert(first:acquire(5))
    local tokens = { first:token() }
    assert(first:release())
    server:set_clock(os.time { year = 2262, month = 4, day = 11 } - os.time())
    assert(process.wait_until(function() return seconds() > 9e9 end))
    assert(first:acquire(5))
    tokens[2] = first:token()
    server:cli("DEL", "k") -- its owner does not notice
    assert(second:acquire(5))
    tokens[3] = second:token()
    assert.equal("OK", writes:call(second, "SET", "r", "of the second"))
    fails("stale", late:call(first, "SET", "r", "of the first"))
    assert(second:release())
    server:set_clock(0)
    assert(process.wait_until(function() return seconds() < 4e9 end))
    assert(second:acquire(5))
    tokens[4] = second:token()
    assert.equal("OK", writes:call(second, "SET", "r", "of the third"))
    for i = 2, 4 do assert.is_true(tokens[i - 1] < tokens[i], i) end
    assert.is_true(tokens[4] < 2 ^ 53)
    a:close()
    b:close()
    server:stop()
  end)
end)

describe("a fence", function()
  it("runs a command and returns its reply", function()
    local prices, lock = fenced()
    assert.equal("OK", prices:call(lock, "SET", "price:7", 5))
    assert.equal(6, prices:call(lock, "incr", "price:7"))
    assert.is_false((prices:call(lock, "SET", "price:7", 1, "NX")))
    assert.equal("7.5", prices:call(lock, "INCRBYFLOAT", "price:7", 1.5))
    assert.same({ "price:7", "holdfast.fence: price:7" }, { prices:key(), tostring(prices) })
    assert.equal(2, prices:call(lock, "RPUSH", "list", "a\0\r\n", 9007199254740991))
    assert.same({ "a\0\r\n", "9007199254740991" }, prices:call(lock, "LPOP", "list", 2))
    assert.equal("7.5", prices:call(lock, "GETDEL", "price:7"))
    local longest = { "RPUSH", "list" }
    for i = 3, 4000 do longest[i] = math.maxinteger or 2 ^ 53 end
    assert.equal(3998, prices:call(lock, unpack(longest)))
    assert.equal(("%d"):format(math.maxinteger or 2 ^ 53), prices:call(lock, "LPOP", "list"))
    assert.equal(1, prices:call(lock, "DEL", "list"))
    assert(lock:release())
  end)

  it("sends numbers with all their digits", function()
    local prices, lock = fenced()
    for number, text in pairs {
      [-0.5] = "-0.5", [0.1] = "0.10000000000000001", [2 ^ 53] = "9007199254740992",
      [-2 ^ 62] = "-4611686018427387904", [2 ^ 62] = "4611686018427387904",
      [1e17] = "100000000000000000", [2 ^ 63] = "9.2233720368547758e+18",
    } do
      assert(prices:call(lock, "SET", "price:7", number))
      assert.equal(text, prices:call(lock, "GETDEL", "price:7"))
    end
    assert(lock:release())
  end)

  it("says how many commands ran before the one that failed", function()
    local prices, lock = fenced()
    for count, said in ipairs { "", "; the first command has already run",
      "; the first 2 commands have already run", "; the first 3 commands have already run" } do
      local commands = { { "SET", "text", 1 } }
      for i = 2, count - 1 do commands[i] = { "SET", "text", i } end
      commands[count] = { "INCRBY", "text", "x" }
      local message = fails("server", prices:run(lock, commands))
      local found = message:match("command " .. count .. " %(incrby%) failed: [^;]*(.*)$")
      assert.equal(said, found, message)
    end
    world.cli("DEL", "text")
    assert(lock:release())
  end)

  it("rounds its ttl up to milliseconds, with a default of a week", function()
    local client = world.client()
    for ms, opts in pairs {
      ["604800000"] = {}, ["0"] = { ttl = math.huge }, ["1"] = { ttl = 0.001 },
      ["2"] = { ttl = 0.0011 }, ["60000"] = { ttl = 60 }, ["1000000000000"] = { ttl = 1e9 },
    } do
      assert.equal(ms, client:fence("f", opts).ttl_ms)
    end
  end)

  it("refuses a write of an earlier holder, and changes nothing", function()
    local prices, lock = fenced()
    assert(prices:call(lock, "SET", "price:7", "first"))
    local later, its_prices, uuid = overtake()
    assert(prices:call(lock, "APPEND", "price:7", "!")) -- nothing was written since
    assert.is_true(its_prices:claim(later))
    fails("stale", prices:call(lock, "APPEND", "price:7", "!"))
    assert(its_prices:call(later, "SET", "price:7", "second"))
    local before = world.hash(FENCE)
    assert.same({ token = later:token_text(), lock = "price", [uuid] = "2 S2:OK" }, before)
    assert.matches("a later holder of the lock has written", fails("stale", prices:call(lock, "DEL", "price:7")))
    fails("stale", prices:run(lock, { { "DEL", "price:7" }, { "SET", "other", 1 } }))
    fails("stale", prices:claim(lock))
    assert.same({ "second", 0, before }, { world.cli("GETDEL", "price:7"), world.cli("EXISTS", "other"), world.hash(FENCE) })
    assert(later:release())
  end)

  it("accepts writes of all clients that share one hold", function()
    local a, b = world.client(), world.client()
    local one, two = held(a, "price", { owner = "us" }), b:lock("price", { owner = "us" })
    assert(a:fence("price:7"):call(one, "INCR", "price:7")) assert(two:acquire(0))
    assert.equal(one:token(), two:token())
    assert.equal(2, b:fence("price:7"):call(two, "INCR", "price:7"))
    assert.equal(3, a:fence("price:7"):call(one, "INCR", "price:7"))
    world.cli("DEL", "price:7")
    assert(two:release()) assert(one:release())
  end)

  it("sends nothing to the server for a lock that is lost or not held", function()
    local client = world.client()
    local prices, lock = client:fence "price:7", client:lock("price", { lease = 0.05 })
    assert.matches('the lock "price" is not held by this owner; nothing was sent',
      fails("not_held", prices:call(lock, "SET", "price:7", 1)), 1, true)
    assert(lock:acquire(0))
    assert(process.wait_until(function() return not lock:is_held() end, 10))
    local round_trips = client:stats().round_trips
    assert.matches('was lost (expired); nothing was sent', fails("lost", prices:call(lock, "SET", "price:7", 1)), 1, true)
    assert.same({ round_trips, 0 }, { client:stats().round_trips, world.cli("EXISTS", "price:7", FENCE) })
    lock:release()
  end)

  it("accepts tokens of a mutex, a writer, a fair lock, a leader's term, and other clients' locks", function()
    local other = world.client()
    local client = world.client { prefix = "p:" }
    local locks = { mutex = other:mutex "m", writer = other:read_write_lock("w"):write(),
      fair = other:fair_lock "f" }
    for name, lock in pairs(locks) do
      assert(lock:acquire(0))
      assert.equal("OK", client:fence(name):call(lock, "SETEX", "v", 1, name))
      assert.equal(1, world.cli("DEL", "holdfast_fence:{p:" .. name .. "}"))
      assert(lock:release())
    end
    other:lead("t", { once = true }, function(term)
      world.cli("DEL", "t")
      assert.is_truthy(process.wait_until(function() return not other:lock("t"):check() end, 20))
      fails("lost", client:fence("led"):call(term, "SETEX", "v", 1, "y"))
      return true
    end)
    assert(other:lead("t", { once = true }, function(term)
      assert.equal("OK", client:fence("led"):call(term, "SETEX", "v", 1, "x"))
      assert(term:resign())
      fails("not_held", client:fence("led"):call(term, "SETEX", "v", 1, "y"))
      return true
    end))
    assert.equal(1, world.cli("DEL", "holdfast_fence:{p:led}"))
    world.cli("DEL", "v")
  end)

  it("changes nothing while the server is out of memory", function()
    local prices, lock = fenced()
    assert(prices:call(lock, "SET", "price:7", 1))
    local before = world.hash(FENCE)
    local later, its_prices = overtake()
    world.cli("CONFIG", "SET", "maxmemory", 1)
    local message = fails("unreachable", its_prices:call(later, "SET", "price:7", 2))
    assert.not_matches("may have taken effect", message)
    world.cli("CONFIG", "SET", "maxmemory", 0)
    assert.same({ "1", before }, { world.cli("GETDEL", "price:7"), world.hash(FENCE) })
    assert(later:release())
  end)

  it("provides headers for a service while the lock is held", function()
    local lock = world.client():lock("a lock")
    fails("not_held", lock:fence_headers "r")
    assert(lock:acquire(0))
    assert.same({ ["Fence-Token"] = lock:token_text(), ["Fence-Lock"] = "a%20lock",
      ["Fence-Resource"] = "price:7/%C3%A4%0D%0A%25" }, lock:fence_headers "price:7/\195\164\r\n%")
    world.cli("DEL", "a lock")
    assert.is_nil(lock:check())
    assert.equal('the lock "a lock" has no token: it was lost (deleted)', fails("lost", lock:fence_headers "r"))
    assert.equal('the lock "never" has no token: this owner does not hold it',
      fails("not_held", world.client():lock("never"):fence_headers "r"))
    local bare = held(world.client(), "bare", { fencing = false })
    raises("lock:fence_headers: the lock has no fencing tokens", function() bare:fence_headers "r" end)
    raises("lock:fence_headers: resource must be", function() bare:fence_headers "" end)
    assert(bare:release())
  end)

  local function read_headers(headers)
    return fence_headers.read(function(name) return headers[name] end)
  end

  it("accepts lower-case escapes in headers, and at most one resource", function()
    local function read(resource)
      return read_headers { ["Fence-Token"] = "8", ["Fence-Lock"] = "l%7b", ["Fence-Resource"] = resource }
    end
    assert.same({ 8, "l{", "a\255\255%zz" }, { read "a%ff%fF%25zz" })
    assert.same({ 8, "l{" }, { read() })
    assert.same({ nil, "Fence-Resource was sent more than once" }, { read { "a", "b" } })
  end)

  it("refuses headers that are not escaped as fence_headers does", function()
    for _, text in ipairs { "%zz", "a%", "a%2", "%%41", "a b", "{a}", "a\255", "a%20%g1" } do
      for _, wrong in ipairs { "Fence-Resource", "Fence-Lock" } do
        local headers = { ["Fence-Token"] = "8", ["Fence-Lock"] = "l", ["Fence-Resource"] = "a" }
        headers[wrong] = text
        assert.same({ nil, wrong .. " must be escaped as in a URL" }, { read_headers(headers) }, text)
      end
    end
  end)

  it("accepts only whole decimal tokens in headers, and the name of one lock", function()
    local function read(token, lock)
      return read_headers { ["Fence-Token"] = token, ["Fence-Lock"] = lock }
    end
    for _, token in ipairs { "1", "8", "9007199254740991" } do
      assert.same({ tonumber(token), "l" }, { read(token, "l") })
    end
    for _, token in ipairs {
      "0", "08", "-8", "+8", "8.5", "8e1", "0x8", " 8", "8 ", "", "9007199254740992",
      "10000000000000000", ("9"):rep(400), { "8", "9" },
    } do
      local read_as, wrong = read(token, "l")
      assert.same({ nil, "Fence-Token must be a fencing token, in decimal" }, { read_as, wrong })
    end
    for _, lock in ipairs { "", { "a", "b" }, false } do
      assert.same({ nil, "Fence-Lock must name the lock" }, { read("8", lock or nil) })
    end
    assert.equal(1, select("#", read(nil, "l")))
  end)

  it("encodes any bytes in headers, and decodes them unchanged", function()
    local bytes = {}
    for byte = 0, 255 do bytes[#bytes + 1] = string.char(byte) end
    local all = table.concat(bytes)
    local headers = fence_headers.make(all .. "r", all .. "l", 9007199254740991)
    for _, header in pairs(headers) do assert.is_nil(header:find("[^\33-\126]")) end
    assert.same({ 9007199254740991, all .. "l", all .. "r" }, { read_headers(headers) })
  end)

  it("raises an error for wrong arguments", function()
    local prices, lock, client = fenced()
    local function call(...) return function(...) prices:call(...) end, ... end
    raises("fence:call: lock must be an exclusive lock, not a read lock",
      call(client:read_write_lock("rw"):read(), "SET", "a", 1))
    for _, words in ipairs { { "GET", "a" }, { "EVAL", "return 1", 0 }, { "FLUSHALL", "x" }, { 5, "a" }, { "", "a" } } do
      raises("fence:call: command[1] must be the name of a command that writes to keys", call(lock, unpack(words)))
    end
    raises("fence:call: command must be a command name followed by a key", call(lock, "SET"))
    raises("fence:call: command[3] must be a string or a number, not true", call(lock, "SET", "a", true))
    raises("fence:call: command[3] must be a string or a number, not inf", call(lock, "SET", "a", math.huge))
    raises("fence:run: commands[2][1] must be the name of a command", prices.run, prices, lock,
      { { "SET", "a", 1 }, { "TTL", "a" } })
    assert.equal(0, world.cli("EXISTS", "a", FENCE))
    assert(lock:release())
  end)

  it("raises an error for keys outside its resource's slot or shard", function()
    local lock = held(world.client())
    local far = world.client { url = "redis+cluster://127.0.0.1:1" }
    for _, words in ipairs { { "SET", "other", 1 }, { "MSET", "price:7", 1, "x{price:8}", 2 }, { "COPY", "price:7", "b" },
      { "ZUNIONSTORE", "price:7", 1, "b" } } do
      raises("must be in the same slot or shard as the resource \"price:7\"", function()
        far:fence("price:7"):call(lock, unpack(words))
      end)
    end
    local shards = several "shards"
    raises("must be in the same slot or shard", function()
      local keys = { "SADD" }
      for i = 1, 50 do keys[#keys + 1] = "key:" .. i end
      keys[1] = "DEL"
      shards:fence("price:7"):call(lock, unpack(keys))
    end)
    shards:close()
    assert(lock:release())
  end)

  it("knows the key arguments of each command it accepts", function()
    for _, name in ipairs(fence.commands()) do
      local reply = world.cli("COMMAND", "INFO", name)[1]
      if reply then -- a later server has more flags
        local flags = {}
        for _, flag in ipairs(reply[3]) do flags[flag.ok or flag] = true end
        assert.is_true(flags.write, name)
        assert.is_nil(flags.blocking, name)
        local words = { name, "a", "1", "c", "d", "e" }
        local all = world.cli("COMMAND", "GETKEYS", unpack(words))
        if not all.err then assert.same(all, fence.keys(words), name) end
      end
    end
  end)

  it("needs only the ACL rights that `holdfast acl` prints", function()
    if world.cli("ACL", "WHOAMI").err then return pending "no users" end
    assert.equal("OK", world.cli("ACL", "SETUSER", unpack(rights.of { "lock", "fence" })))
    world.cli("ACL", "SETUSER", "locks", "+set", "+del")
    local url = world.server:url():gsub("//", "//locks:secret@", 1)
    local client = world.client { url = url, prefix = "lock:", tenant = "lock:" }
    local prices, lock = client:fence "price:7", held(client)
    assert.equal("OK", prices:call(lock, "SET", "lock:v", 1))
    assert.equal(1, prices:call(lock, "DEL", "lock:v"))
    fails("denied", prices:call(lock, "SADD", "lock:v", 1))
    fails("denied", prices:call(lock, "SET", "v", 1))
    assert(lock:release())
  end)

  for _, loop in ipairs(loops) do
    it("works in an event loop of " .. loop.name, function()
      loop.run(function()
        local client = world.client { driver = loop.driver }
        local prices, lock = client:fence "price:7", held(client)
        assert.same({ 1, 2 }, prices:run(lock, { { "INCR", "n" }, { "INCR", "n" } }))
        world.cli("HSET", FENCE, "token", ("%.0f"):format(lock:token() + 8))
        fails("stale", prices:call(lock, "DEL", "n"))
        assert(lock:release())
        client:close()
      end)
      assert.equal("2", world.cli("GETDEL", "n"))
    end)
  end
end)

-- ---- the program against a model ----

-- The network may bring the calls of a program's writers once or several times, late, or after
-- newer calls. The model does what docs/reference/protocol.md says.
local WRITERS, STEPS = 64, 2500

local function model_of()
  local state = { token = 0, last = {}, log = {} }
  return state, function(call)
    if call.token < state.token then return "stale" end
    if call.token > state.token then state.token, state.last = call.token, {} end
    local last = state.last[call.writer]
    if last and call.number == last.number then return last.answer end
    if last and call.number < last.number then return "overtaken" end
    state.log[#state.log + 1] = ("%d %d %d"):format(call.token, call.writer, call.number)
    state.last[call.writer] = { number = call.number, answer = ("D%d;"):format(#state.log) }
    return state.last[call.writer].answer
  end
end

local function outcome_of(reply)
  if reply[1] == 1 then return reply[2] end
  return reply[1] == 0 and "stale" or reply[1] == -2 and "overtaken" or "?"
end

it("the fence program agrees with a model on the writes of 64 writers, with resends and lost replies", function()
  local sha = world.cli("SCRIPT", "LOAD", crowd.program "fence")
  local _, expect = model_of()
  local under_way, numbers, runs = {}, {}, {}
  local seed = os.time()
  math.randomseed(seed)
  local random, newest = math.random, 1000
  for _ = 1, STEPS do
    local call = #under_way > 0 and random(3) == 1 and under_way[random(#under_way)]
    if not call then
      local writer = random(WRITERS)
      if random(40) == 1 then newest = newest + random(9) end
      numbers[writer] = (numbers[writer] or 0) + 1
      local behind = random(4) == 1 and random(9) or 0
      call = { writer = writer, number = numbers[writer], token = newest - behind }
      under_way[#under_way % 200 + 1] = call -- a call whose reply is lost comes again
    end
    local entry = ("%d %d %d"):format(call.token, call.writer, call.number)
    local reply = world.cli("EVALSHA", sha, 2, "f", "log", call.token, "k", "w" .. call.writer,
      call.number, 60000, 3, "RPUSH", "log", entry)
    assert.equal(expect(call), outcome_of(reply), "seed " .. seed)
  end
  local highest = 0
  for _, entry in ipairs(world.cli("LRANGE", "log", 0, -1)) do
    local token, call = entry:match "^(%d+) (.*)$"
    assert.is_true(tonumber(token) >= highest, "an older token was accepted")
    assert.is_nil(runs[call], "a call ran twice")
    highest, runs[call] = tonumber(token), true
  end
  assert.is_true(next(runs) ~= nil)
  world.cli("DEL", "f", "log")
end)

it("a reply that the fence program has stored is decoded as the server first sent it", function()
  local sha = world.cli("SCRIPT", "LOAD", crowd.program "fence")
  local function answers(...)
    world.cli("DEL", "f")
    local reply = world.cli("EVALSHA", sha, 1, "f", 8, "k", "w", 1, 0, ...)
    assert.equal(1, reply[1])
    return record.decode(reply[2])
  end
  assert.same({ n = 1, "OK" }, answers(3, "SET", "v", "9007199254740992"))
  assert.same({ n = 2, "9007199254740992", false }, answers(2, "GETDEL", "v", 2, "GETDEL", "v"))
  assert.same({ n = 2, 1, { false } }, answers(4, "HSET", "h", "a", "b", 3, "HMGET", "h", "c"))
  world.cli("DEL", "f", "h")
end)
