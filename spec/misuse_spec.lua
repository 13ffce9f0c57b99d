local core = require "holdfast.core"
local features = require "spec.support.features"
local holdfast = require "holdfast"
local nearest = require("holdfast.hints").nearest
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local client, lock

before_each(function()
  world.open()
  client = world.client()
  lock = client:lock("k")
end)
after_each(world.close)

-- Asserts that `fn` raises an error at one of its lines, and that all patterns match the message.
local function raises(fn, ...)
  local ok, message = pcall(fn)
  assert.is_false(ok, "nothing was raised")
  assert.is_string(message)
  local info = debug.getinfo(fn, "S")
  local file, line, text = message:match("^(.-):(%d+): (.*)$")
  assert.equal(info.short_src, file, message)
  line = tonumber(line)
  assert.is_true(line >= info.linedefined and line <= info.lastlinedefined, message)
  for _, pattern in ipairs { ... } do assert.matches(pattern, text) end
end

local unpack = table.unpack or unpack
local nan, huge = 0 / 0, math.huge

describe("a key", function()
  it("must be a non-empty string of at most 1 MiB", function()
    for _, key in ipairs { "", 42, true, {}, print, ("x"):rep(1048577) } do
      raises(function() local _ = client:lock(key) end, "client:lock", "key", "string")
    end
    raises(function() local _ = client:lock() end, "client:lock", "key", "not nil")
    raises(function() local _ = client:with_lock("", print) end, "client:with_lock", "key")
    raises(function() local _ = client:with_lock(nil, print) end, "client:with_lock", "key")
  end)

  it("may contain any bytes", function()
    local keys = {
      "a\0b", "\0", " ", "with space", "{", "}", "a{b", "a{b}c", "{}", "Schlüssel-鍵", "\255\254",
      "\r\n", '"', "%s%d",
      "mode", ("x"):rep(65536), ("\0"):rep(65536),
    }
    local other = world.client()
    for _, key in ipairs(keys) do
      local one = client:lock(key)
      assert.equal(key, one:key())
      assert(one:acquire(1))
      assert.equal("1", world.cli("HGET", key, one:owner()))
      assert.equal("busy", select(3, other:lock(key):try_acquire()))
      assert(one:extend(20))
      assert.is_true(one:check())
      assert.equal(one:owner(), other:lock(key):info().owner)
      assert.is_string(tostring(one))
      assert(one:release())
      assert.equal(0, world.cli("EXISTS", key))
    end
  end)

  it("with binary bytes is escaped in messages", function()
    local key = 'a\0b"\n' .. ("y"):rep(65536)
    world.hold_as("somebody:1", key)
    local _, message, code = client:lock(key):try_acquire()
    assert.equal("busy", code)
    assert.matches("a\\x00b", message)
    assert.is_nil(message:find("[%z\n]"))
    assert.is_true(#message < 600)
    world.cli("DEL", key)
  end)

  it("with binary bytes can be waited for and acquired", function()
    local key = "a\0 {\r\n"
    world.hold_as("somebody:1", key, 100)
    local waiting = client:lock(key)
    assert(waiting:acquire(5))
    assert(waiting:release())
  end)
end)

describe("a lease", function()
  local bad = { nan, -1, 0, huge, -huge, 0.0009, 1e10, "1", {}, true }

  it("must be a number of seconds of at least one millisecond", function()
    for _, lease in ipairs(bad) do
      raises(function()
        local _ = client:lock("k", { lease = lease })
      end, "client:lock", "lease", "0%.001")
      raises(function()
        local _ = client:with_lock("k", { lease = lease }, print)
      end, "client:with_lock", "lease")
      raises(function() local _ = holdfast.new { lease = lease } end, "holdfast%.new", "lease")
      if lease ~= huge then
        raises(function()
          local _ = client:lock("k", { token_ttl = lease })
        end, "client:lock", "token_ttl")
      end
      raises(function() local _ = lock:extend(lease) end, "lock:extend", "seconds")
    end
    raises(function() local _ = lock:extend() end, "lock:extend", "seconds", "not nil")
  end)

  it("of one millisecond is accepted", function()
    assert.is_truthy(client:lock("k", { lease = 0.001 }))
  end)
end)

describe("a wait", function()
  it("must be a non-negative number of seconds", function()
    for _, wait in ipairs { nan, -1, -huge, "1", {}, true } do
      raises(function() local _ = lock:acquire(wait) end, "lock:acquire", "wait")
      raises(function() local _ = client:lock("k", { wait = wait }) end, "client:lock", "wait")
      raises(function() local _ = holdfast.new { wait = wait } end, "holdfast%.new", "wait")
    end
    assert.is_truthy(client:lock("k", { wait = huge }))
  end)
end)

describe("an option", function()
  it("that is unknown is refused, and the nearest known one suggested", function()
    raises(function()
      local _ = client:lock("k", { leese = 1 })
    end, "client:lock", '"leese"', '"lease"')
    raises(function()
      local _ = client:lock("k", { time_out = 0 })
    end, '"time_out"', "did you mean")
    raises(function() local _ = client:lock("k", { Wait = 0 }) end, '"Wait"', '"wait"')
    raises(function() local _ = client:lock("k", { onlost = print }) end, '"onlost"', '"on_lost"')
    raises(function()
      local _ = client:with_lock("k", { abort = true }, print)
    end, '"abort"', "did you mean")
    raises(function()
      local _ = client:with_lock("k", { abort_on_los = true }, print)
    end, '"abort_on_loss"')
    raises(function()
      local _ = holdfast.new { uri = "redis://h" }
    end, "holdfast%.new", '"uri"', '"url"')
    raises(function() local _ = holdfast.new { conect_timeout = 1 } end, '"connect_timeout"')
    raises(function() local _ = client:lock("k", { laese = 1 }) end, '"laese"', '"lease"')
    raises(function() local _ = client:lock("k", { interuptable = 1 }) end, '"interruptible"')
    raises(function() local _ = client:lock("k", { [1] = "lease" }) end, "unknown option 1")
  end)

  it("that resembles no known one is refused without a suggestion", function()
    for _, name in ipairs { "host_of_all", "x", "colour", "tt", "what" } do
      local _, message = pcall(client.lock, client, "k", { [name] = 1 })
      assert.matches("unknown option", message)
      assert.is_nil(message:find("did you mean", 1, true), message)
    end
  end)

  it("that resembles several known ones is taken for the nearest or first of them", function()
    local known = { dart = 1, cart = 1, tart = 1, part = 1, mart = 1, wart = 1, smart = 1 }
    assert.equal("cart", nearest("xart", known))
    assert.equal("smart", nearest("smrt", { smart = 1, smelt = 1, start = 1 }))
    assert.is_nil(nearest("ab", { ac = 1 }))
    assert.equal("abcd", nearest("abce", { abcd = 1 }))
    assert.is_nil(nearest("abef", { abcd = 1 }))
    assert.equal("abcde", nearest("abcfg", { abcde = 1 }))
  end)

  it("with the name that another library uses is refused, and holdfast's name suggested", function()
    local names = {
      timeout = "wait", exptime = "lease", ttl = "lease", expire = "lease", retry = "wait",
      retry_delay = "wait",
      lease_time = "lease", leaseTime = "lease", auto_renew = "watchdog", token = "owner",
      ["auto-renew"] = "watchdog", ["Lease-Time"] = "lease", EX = "lease",
    }
    for theirs, ours in pairs(names) do
      raises(function() local _ = client:lock("k", { [theirs] = 1 }) end,
        '"' .. theirs:gsub("-", "%%-") .. '"',
        'did you mean "' .. ours .. '"%?')
    end
    raises(function() local _ = holdfast.new { host = "h" } end, 'did you mean "url"%?')
    raises(function()
      local _ = holdfast.new { timeout = 1 }
    end, 'did you mean "wait" or "command_timeout"%?')
    raises(function()
      local _ = client:idempotent("k", { ttl = 1 }, print)
    end, 'did you mean "expire" or "lease"%?')
  end)

  it("that belongs to other functions is refused, and the message names those functions", function()
    raises(function() local _ = client:lock("k", { abort_on_loss = true }) end,
      '"abort_on_loss" is an option of client:with_lock, with_read_lock, with_write_lock, '
        .. 'with_fair_lock, lead, semaphore:with_permit and one_by_one:execute')
    local abort = { abort_on_loss = true }
    for name, run in pairs {
      with_lock = function() return client:with_lock("k", abort, 1) end,
      with_read_lock = function() return client:with_read_lock("k", abort, 1) end,
      with_write_lock = function() return client:with_write_lock("k", abort, 1) end,
      with_fair_lock = function() return client:with_fair_lock("k", abort, 1) end,
      lead = function() return client:lead("k", abort, 1) end,
      with_permit = function() return client:semaphore("k"):with_permit(abort, 1) end,
      execute = function() return client:one_by_one():execute("a", 1, abort, 1) end,
    } do
      assert.matches("fn must be a function", select(2, pcall(run)), name)
    end
    raises(function()
      local _ = client:lock("k", { prefix = "a" })
    end, '"prefix" is an option of holdfast.new')
    raises(function()
      local _ = client:with_lock("k", { replay = true }, print)
    end, "an option of client:idempotent")
    raises(function() local _ = holdfast.new { on_lost = print } end, "an option of client:lock")
  end)

  it("prefix and key together may not form the name of an internal key", function()
    local short = world.client { prefix = "redisson_lock_" }
    local stock = client:one_by_one()
    for _, name in ipairs { "redisson_lock_token:{v}", "redisson_lock_queue:{v}", "redisson_lock_timeout:{v}",
      "holdfast_queue:{v}", "holdfast_call:{v}:x", "holdfast_fence:{v}", "holdfast_client:x",
      "holdfast_wait:x:1", "holdfast_known" } do
      local said = 'key must be one that does not begin with ".*, not "' .. name:gsub("%p", "%%%0") .. '"$'
      for _, what in ipairs { "lock", "mutex", "read_write_lock", "fair_lock", "semaphore",
        "plain_semaphore", "latch", "with_lock", "idempotent", "lead" } do
        raises(function() local _ = client[what](client, name, print) end, "client:" .. what, said)
      end
      raises(function() local _ = client:multi_lock { "a", name } end, "keys must be one")
      local biz_type, biz_id = name:match("^(%l+)_(.*)$")
      raises(function() stock:execute(biz_type, biz_id, print) end, "one_by_one:execute", said)
    end
    raises(function() local _ = short:lock "token:{v}" end, 'not "redisson_lock_token:{v}"')
    assert.equal("my:redisson_lock_token:{v}",
      world.client({ prefix = "my:" }):lock("redisson_lock_token:{v}"):key())
    assert.equal("holdfast_once:job", client:lock("holdfast_once:job"):key())
  end)

  it("fingerprint must not be empty", function()
    raises(function()
      local _ = client:idempotent("k", { fingerprint = "" }, print)
    end, "client:idempotent", 'fingerprint must be a non%-empty string, not ""')
  end)

  it("must have the right type", function()
    raises(function() local _ = client:lock("k", { watchdog = 1 }) end, "watchdog", "boolean")
    raises(function()
      local _ = client:lock("k", { interruptible = "yes" })
    end, "interruptible", "boolean")
    raises(function() local _ = client:lock("k", { fencing = 0 }) end, "fencing", "boolean")
    raises(function() local _ = client:lock("k", { on_lost = "print" }) end, "on_lost", "function")
    raises(function()
      local _ = client:with_lock("k", { abort_on_loss = 1 }, print)
    end, "abort_on_loss", "boolean")
    raises(function() local _ = holdfast.new { prefix = 1 } end, "prefix", "string")
    raises(function() local _ = holdfast.new { name = "two words" } end, "name", "spaces")
    raises(function()
      local _ = holdfast.new { connect_timeout = 0 }
    end, "connect_timeout", "seconds")
    raises(function()
      local _ = holdfast.new { command_timeout = huge }
    end, "command_timeout", "seconds")
    raises(function() local _ = holdfast.new { driver = "carrier pigeon" } end, "driver", "posix")
    if _VERSION == "Lua 5.1" and not rawget(_G, "jit") then
      raises(function()
        local _ = holdfast.new { driver = "cqueues" }
      end, "driver", "cannot yield inside pcall")
    end
  end)

  it("owner must be a short string other than the reserved word `mode`", function()
    for _, owner in ipairs { "", 7, "mode", ("x"):rep(256) } do
      raises(function() local _ = client:lock("k", { owner = owner }) end, "client:lock", "owner")
    end
    local named = client:lock("k", { owner = "a\0 {:" .. ("x"):rep(250) })
    assert(named:acquire())
    assert.equal("1", world.cli("HGET", "k", named:owner()))
    assert(named:release())
  end)

  it("must be passed in a table", function()
    raises(function() local _ = client:lock("k", 5) end, "client:lock", "options", "table")
    raises(function() local _ = client:lock("k", "5") end, "client:lock", "options", "table")
    raises(function()
      local _ = client:with_lock("k", 5, print)
    end, "client:with_lock", "options", "table")
    raises(function() local _ = holdfast.new(6379) end, "holdfast%.new", "options", "table")
  end)

  it("that is wrong leaves nothing on the server", function()
    pcall(client.lock, client, "k", { leese = 1 })
    pcall(client.with_lock, client, "k", { lease = -1 }, print)
    assert.same({}, world.cli("KEYS", "*"))
    assert.equal(0, client:stats().connections)
  end)
end)

describe("a function for with_lock", function()
  it("must be callable", function()
    raises(function() local _ = client:with_lock("k") end, "client:with_lock", "fn", "function")
    raises(function() local _ = client:with_lock("k", {}) end, "client:with_lock", "fn", "not nil")
    raises(function()
      local _ = client:with_lock("k", {}, "print")
    end, "client:with_lock", "fn", "function")
    raises(function() local _ = holdfast.with_lock("k", {}, 5) end, "with_lock", "fn")
    assert.equal(0, world.cli("EXISTS", "k"))
  end)
end)

describe("a holdfast object", function()
  it("is named in the message if it is passed as a key", function()
    raises(function() client:lock(client:lock("k")) end, "key must be a string.*, not a holdfast%.lock$")
    raises(function() client:lock(client:semaphore("s")) end, ", not a holdfast%.semaphore$")
  end)
end)

describe("a Lua function in a traceback", function()
  it("is named as usual, not by a field of a holdfast module", function()
    local theirs = {}
    for _, library in ipairs { "_G", "string", "table", "coroutine", "debug", "os", "io" } do
      for name, value in pairs(_G[library]) do
        if type(value) == "function" then theirs[value] = name end
      end
    end
    for module, fields in pairs(package.loaded) do
      for name, value in pairs(module:find("^holdfast") and type(fields) == "table" and fields or {}) do
        assert.is_nil(theirs[value], module .. "." .. name)
      end
    end
  end)
end)

describe("options after the function", function()
  local function never() error("the function ran") end

  it("raise an error that shows the correct call", function()
    local queue, permits = client:one_by_one(), client:semaphore("s")
    local plain = client:plain_semaphore("p")
    for call, fn in pairs {
      ["client:with_lock(key, { lease"] = function()
        local _ = client:with_lock("k", never, { lease = 5 })
      end,
      ["client:with_read_lock(key, { wait"] = function()
        local _ = client:with_read_lock("k", never, { wait = 5 })
      end,
      ["client:with_fair_lock(key, { wait"] = function()
        local _ = client:with_fair_lock("k", never, { wait = 5 })
      end,
      ["client:idempotent(key, { expire"] = function()
        local _ = client:idempotent("k", never, { expire = 60 })
      end,
      ["client:lead(key, { once"] = function()
        local _ = client:lead("k", never, { once = true })
      end,
      ["one_by_one:execute(type, id, { queue"] = function()
        local _ = queue:execute("a", 1, never, { queue = false })
      end,
      ["semaphore:with_permit({ count"] = function()
        local _ = permits:with_permit(never, { count = 2 })
      end,
      ["plain_semaphore:with_permit({ count"] = function()
        local _ = plain:with_permit(never, { count = 2 })
      end,
    } do
      raises(fn, "options come before the function, as in " .. call:gsub("%p", "%%%0"))
    end
  end)

  it("are passed as arguments if they may be meant as such", function()
    local function pass(_, ...) return select("#", ...), ... end
    local order = { lease = 5, id = 7 }
    assert.same({ 1, order }, { client:with_lock("k", pass, order) })
    assert.same({ 1, {} }, { client:with_lock("k", pass, {}) })
    assert.same({ 2, { lease = 5 }, 1 }, { client:with_lock("k", pass, { lease = 5 }, 1) })
    assert.same({ 1, { lease = 5 } }, { client:with_lock("k", {}, pass, { lease = 5 }) })
    local object = setmetatable({ lease = 5 }, {})
    assert.equal(object, select(2, client:with_lock("k", pass, object)))
  end)
end)

describe("the module holdfast", function()
  it("accepts options after a URL in holdfast.new", function()
    local one = holdfast.new(world.server:url(), { lease = 7, prefix = "p:" })
    local held = assert(one:lock("k"):acquire())
    assert.equal("p:k", held:key())
    assert.is_true(held:remaining() <= 7)
    one:close()
    assert.is_truthy(holdfast.new(nil, { lease = 7 }))
    raises(function()
      local _ = holdfast.new("redis://h", { leese = 1 })
    end, "holdfast%.new", '"lease"')
    raises(function()
      local _ = holdfast.new("redis://h", "tcp")
    end, "holdfast%.new", "options", "table")
    assert.is_truthy(holdfast.new(("redis://g"):gsub("g", "h"))) -- gsub also returns a count
    raises(function()
      local _ = holdfast.new("redis://h", 6379)
    end, "holdfast%.new", "put the port in the URL")
    raises(function()
      local _ = holdfast.new("redis://h", { url = "redis://i" })
    end, "the first argument is already a URL; leave out url and servers")
    raises(function()
      local _ = holdfast.new({ lease = 1 }, { lease = 2 })
    end, "holdfast%.new", "one table")
  end)

  it("has functions that raise an error if they are called with a colon", function()
    raises(function() local _ = holdfast:new() end, "holdfast%.new: .*a dot")
    raises(function() local _ = holdfast:new("redis://h") end, "holdfast%.new: .*a dot")
    raises(function() local _ = holdfast:with_lock("k", print) end, "holdfast%.with_lock: .*a dot")
    raises(function() local _ = holdfast:multi_lock { lock } end, "holdfast%.multi_lock: .*a dot")
    raises(function()
      local _ = holdfast:idempotent_request {}
    end, "holdfast%.idempotent_request: .*a dot")
    raises(function() local _ = holdfast:fence {} end, "holdfast%.fence: .*a dot")
    raises(function() local _ = holdfast.fence {} end, "holdfast%.fence: works only under ngx_lua")
    raises(function() local _ = holdfast.fence { resource = "" } end, "resource must be a non%-empty string or a function")
  end)

  it("refuses a replayed response with a custom key unless `principal` is given", function()
    raises(function()
      local _ = holdfast.idempotent_request { key = "k", replay = true }
    end, "holdfast%.idempotent_request: replay with key needs principal")
    raises(function()
      local _ = holdfast.idempotent_request { principal = true }
    end, "principal must be a function or false, not true")
    raises(function()
      local _ = holdfast.idempotent_request { vary = { "Accept", "" } }
    end, "vary%[2%] must be a string")
  end)

  local function output_with(env)
    local child = world.program {
      code = [[
        local made, client = pcall(require("holdfast").new)
        print(made and tostring(client) or client)
      ]],
      env = env,
    }
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    return child:output()
  end

  it("takes servers from the environment, and ignores empty variables", function()
    assert.matches("127.0.0.1:6379", output_with { HOLDFAST_URL = "", HOLDFAST_SERVERS = "" })
    assert.matches("h:1", output_with { HOLDFAST_URL = "redis://h:1", HOLDFAST_SERVERS = "" })
    assert.matches("a quorum of 3 servers",
      output_with { HOLDFAST_URL = "", HOLDFAST_SERVERS = "redis://a,redis://b redis://c" })
    assert.matches("$HOLDFAST_URL: unknown scheme", output_with { HOLDFAST_URL = "http://h" }, 1, true)
    assert.matches("$HOLDFAST_SERVERS: .*given twice",
      output_with { HOLDFAST_SERVERS = "redis://a,redis://a" })
  end)

  it("ignores white space and quotes around a URL", function()
    for _, around in ipairs { "%s\n", "%s\r\n", " %s\t", '"%s"', "'%s'\n", '" %s" ' } do
      assert.matches("h:1", output_with { HOLDFAST_URL = around:format "redis://h:1/0" })
      assert.matches("a quorum of 2 servers",
        output_with { HOLDFAST_SERVERS = around:format "redis://a/1,'redis://b'" })
      assert.matches("h:1", tostring(holdfast.new(around:format "redis://h:1/0")))
      assert.matches("a quorum of 1 servers",
        tostring(holdfast.new { servers = { around:format "redis://h:1/0" }, mode = "quorum" }))
    end
    assert.matches("$HOLDFAST_URL: a URL must begin with a scheme", output_with { HOLDFAST_URL = " \n" }, 1, true)
  end)

  it("shows only the invalid byte of a URL in its message", function()
    for url, said in pairs {
      ["redis://:s3cret@h:1\n/0"] = "byte 20 of the URL is \\x0a",
      ["redis://:s3cret@h\r"  .. ":1"] = "byte 18 of the URL is \\x0d",
      ['"redis://:s3cret@h:1'] = 'the URL begins with "',
      ["\239\187\191redis://:s3cret@h:1"] = "the URL begins with \\xef",
    } do
      local output = output_with { HOLDFAST_URL = url }
      assert.is_truthy(output:find("url in $HOLDFAST_URL: " .. said:gsub("\\\\", "\\"), 1, true), output)
      assert.is_nil(output:find("s3cret", 1, true), output)
    end
  end)

  it("refuses an empty entry in the list of servers in the environment", function()
    for list, number in pairs {
      [" "] = 1, [","] = 1, [",redis://a"] = 1, ["redis://a,"] = 2, ["redis://a, ,redis://b"] = 2,
      ["redis://a redis://b,,redis://c"] = 3,
    } do
      assert.matches("in $HOLDFAST_SERVERS must be URLs separated by commas (number " .. number
        .. " is empty)", output_with { HOLDFAST_SERVERS = list }, 1, true)
    end
  end)

  it("does not modify the options it is given, and refuses a mode without servers", function()
    for name, value in pairs { HOLDFAST_URL = "redis://h:1", HOLDFAST_SERVERS = "redis://a,redis://b" } do
      local child = world.program {
        code = [[
          local holdfast, opts = require "holdfast", { prefix = "x" }
          print(holdfast.new(opts), opts.url, opts.servers, opts.mode, (pcall(holdfast.new, { mode = "shards" })))
        ]],
        env = { [name] = value },
      }
      assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
      assert.matches("nil\tnil\tnil\tfalse\n$", child:output())
    end
  end)

  it("prefers its arguments to the environment", function()
    local child = world.program {
      code = [[print(require("holdfast").new("redis://h:1"), require("holdfast").new { url = "redis://i:2" })]],
      env = { HOLDFAST_SERVERS = "redis://a,redis://b" },
    }
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    assert.matches("h:1.*i:2", child:output())
  end)
end)

describe("a URL", function()
  it("must have a form that holdfast knows", function()
    local urls = {
      "", "localhost", "http://localhost", "redis://", "redis://:6379", "redis://h:0",
      "redis://h:65536", "redis://h:x",
      "redis://h/x", "redis://h/99999", "redis://[::1", "redis://::1:6379", "unix://relative",
      "unix:///p?db=x",
      "unix:///p?dd=1", "unix://", "redis://us%zz@h", "unix:///" .. ("p"):rep(200), "redis://"
        .. ("h"):rep(2000),
      "redis://h%00x", "redis://h?timeout=1", "redis://a b",
    }
    for _, url in ipairs(urls) do
      raises(function() local _ = holdfast.new(url) end, "holdfast%.new", "url")
      raises(function() local _ = holdfast.new { url = url } end, "holdfast%.new", "url")
    end
  end)

  it("never shows its password in a message", function()
    local ok, message = pcall(holdfast.new, "redis://user:s3cret@h:x")
    assert.is_false(ok)
    assert.is_nil(message:find("s3cret", 1, true))
    local away = world.client { url = "redis://user:s3cret@127.0.0.1:1", connect_timeout = 0.2 }
    assert.is_nil(tostring(away):find("s3cret", 1, true))
    assert.is_nil(select(2, away:ping()):find("s3cret", 1, true))
  end)
end)

describe("a method", function()
  it("must be called with a colon", function()
    local methods = {
      "acquire", "try_acquire", "release", "force_release", "extend", "check", "is_held",
      "is_locked", "holds",
      "remaining",
      "ttl", "token", "lost", "info", "key", "owner",
    }
    for _, name in ipairs(methods) do
      raises(function() local _ = lock[name]() end, "lock:" .. name, "colon", "on nil")
      raises(function() local _ = lock[name]("k") end, "lock:" .. name, "colon", '"k"')
      raises(function() local _ = lock[name]({}) end, "lock:" .. name, "colon")
      raises(function()
        local _ = lock[name](client)
      end, "lock:" .. name, "colon", "holdfast%.lock")
      raises(function() local _ = lock[name](io.stdout) end, "lock:" .. name, "colon")
    end
    for _, name in ipairs { "lock", "with_lock", "watchdog", "stats", "ping", "close" } do
      raises(function() local _ = client[name]() end, "client:" .. name, "colon", "on nil")
      raises(function() local _ = client[name]("k") end, "client:" .. name, "colon")
      raises(function()
        local _ = client[name](lock)
      end, "client:" .. name, "colon", "holdfast%.client")
    end
    local watchdog = client:watchdog()
    for _, name in ipairs { "holds", "is_running", "stop", "start", "stats" } do
      raises(function() local _ = watchdog[name]() end, "watchdog:" .. name, "colon")
      raises(function() local _ = watchdog[name](client) end, "watchdog:" .. name, "colon")
    end
  end)

  it("cannot be replaced, nor can the metatable", function()
    assert.has_error(function() lock.acquire = nil end)
    assert.has_error(function() setmetatable(lock, {}) end)
    assert.is_string(getmetatable(lock))
  end)
end)

describe("metamethods called directly", function()
  local function metatable(value) return debug.getmetatable(value) end

  it("do not crash if called on a different object", function()
    for _, value in ipairs { lock, client, client:watchdog() } do
      local gc, text = metatable(value).__gc, metatable(value).__tostring
      for _, other in ipairs { false, 1, "x", {}, io.stdout } do
        assert.is_false((pcall(gc, other)))
        assert.is_false((pcall(text, other)))
      end
      assert.is_false((pcall(gc)))
    end
  end)

  it("do not crash if called after __gc", function()
    local dead = holdfast.new(world.server:url())
    local dead_lock = assert(dead:lock("k"):acquire())
    local dead_watchdog = dead:watchdog()
    for _, value in ipairs { dead_lock, dead_watchdog, dead } do
      metatable(value).__gc(value)
      metatable(value).__gc(value)
      assert.is_string(tostring(value))
      for name in pairs(metatable(value).__index) do pcall(value[name], value, "k", print) end
      for name in pairs(metatable(value).__index) do pcall(value[name], value, 1) end
    end
    assert.is_truthy(world.is_free("k"))
  end)
end)

describe("a collected object", function()
  it("can still be used from a finalizer without a crash", function()
    local child = world.program {
      code = [[
        local holdfast = require "holdfast"
        local client = holdfast.new(arg[1])
        local lock = assert(client:lock("k"):acquire())
        local calls = {
          function() lock:release() end, function() lock:acquire(0) end, function() lock:is_held() end,
          function() lock:owner() end, function() lock:key() end, function() tostring(lock) end,
          function() client:lock("other"):acquire(0) end, function() client:close() end,
          function() tostring(client) end,
        }
        local function last() for _, call in ipairs(calls) do pcall(call) end print "last" end
        -- the object that gets its finalizer first is finalized last
        if newproxy then
          keep = newproxy(true)
          getmetatable(keep).__gc = last
        else
          keep = setmetatable({}, { __gc = last })
        end
        local early = setmetatable({}, { __index = holdfast })
        lock, client = assert(client:lock("k"):acquire()), early.new(arg[1])
        assert(client:lock("other"):acquire())
      ]],
      args = { world.server:url() },
    }
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    assert.matches("last", child:output())
    assert.is_truthy(world.is_free("k"))
    assert.is_truthy(world.is_free("other"))
  end)

  it("is not asked for losses by later calls on other locks", function()
    for _ = 1, 20 do
      do
        local short = holdfast.new(world.server:url()):lock("k",
          { lease = 0.001, on_lost = function() end })
        short:acquire()
      end
      collectgarbage()
      assert.is_false(lock:is_held())
      collectgarbage("step")
      assert.is_false(lock:is_held())
    end
    assert.is_truthy(world.is_free("k"))
  end)
end)

describe("after client:close()", function()
  local function closed(...)
    assert.is_nil((...))
    assert.is_string((select(2, ...)))
    assert.equal("closed", (select(3, ...)))
  end

  it("calls on a lock fail with closed, and its lock is free", function()
    assert(lock:acquire())
    client:close()
    assert.equal(0, world.cli("EXISTS", "k"))
    closed(lock:acquire())
    closed(lock:acquire(0.05))
    closed(lock:try_acquire())
    closed(lock:release())
    closed(lock:force_release())
    closed(lock:extend(5))
    closed(lock:check())
    closed(lock:is_locked())
    closed(lock:ttl())
    closed(lock:info())
    closed(client:ping())
    closed(client:lock("other"):acquire())
    local ran = false
    closed(client:with_lock("k", function() ran = true end))
    assert.is_false(ran)
  end)

  it("calls on every other object fail with closed", function()
    local all, pool = client:multi_lock { "a", "b" }, client:semaphore("s", { permits = 2 })
    local plain, latch, fence = client:plain_semaphore "p", client:latch "l", client:fence "f"
    local rw, runs, near = client:read_write_lock "rw", client:one_by_one(), world.client()
    local permit, elsewhere = assert(pool:acquire()), assert(near:lock("e"):acquire())
    client:close()
    local function error_if_run() error "it runs" end
    closed(all:acquire())
    closed(all:try_acquire())
    closed(all:extend(5))
    closed(all:check())
    closed(all:release())
    closed(holdfast.multi_lock({ near:lock "n", lock }):acquire())
    assert.equal(0, world.cli("EXISTS", "n"))
    closed(permit:release())
    closed(permit:extend(5))
    closed(pool:acquire())
    closed(pool:try_acquire())
    closed(pool:with_permit(error_if_run))
    for _, name in ipairs { "info", "available", "permits" } do closed(pool[name](pool)) end
    closed(pool:set_permits(3))
    for _, name in ipairs { "acquire", "try_acquire", "release", "drain", "available", "delete" } do
      closed(plain[name](plain))
    end
    closed(plain:add(1))
    closed(plain:set(1))
    closed(plain:with_permit(error_if_run))
    closed(latch:set(1))
    for _, name in ipairs { "count_down", "count", "wait", "delete" } do closed(latch[name](latch)) end
    closed(fence:claim(elsewhere))
    closed(fence:call(elsewhere, "SET", "f", "1"))
    closed(fence:run(elsewhere, { { "SET", "f", "1" } }))
    closed(rw:read():acquire())
    closed(rw:write():acquire())
    closed(runs:execute("t", 1, error_if_run))
    closed(client:idempotent("i", error_if_run))
    closed(client:lead("leader", error_if_run))
    closed(client:deadlocks())
    for _, name in ipairs { "with_read_lock", "with_write_lock", "with_fair_lock" } do
      closed(client[name](client, "k", error_if_run))
    end
    world.cli("DEL", "s")
  end)

  it("getters report that nothing is held", function()
    assert(lock:acquire())
    client:close()
    assert.is_false(lock:is_held())
    assert.equal(0, lock:holds())
    assert.equal(0, lock:remaining())
    assert.is_nil(lock:token())
    assert.equal("k", lock:key())
    assert.is_string(lock:owner())
    assert.matches("not held", tostring(lock))
    assert.is_false(client:watchdog():is_running())
    assert.is_false(client:watchdog():start())
    assert.equal(0, client:watchdog():holds())
    client:watchdog():stop()
    assert.is_table(client:stats())
  end)

  it("closing again is a no-op", function()
    client:close()
    client:close()
    holdfast.new(world.server:url()):close()
  end)

  it("losses that were found before it are still reported", function()
    local lost = {}
    local function note(_, reason) lost[#lost + 1] = reason end
    local held = client:lock("k", { watchdog = true, lease = 0.3, on_lost = note })
    assert(held:acquire())
    world.cli("DEL", "k")
    assert(process.wait_until(function() return core.client.stats(client).losses == 1 end, 20))
    client:close()
    assert.same({ "deleted" }, lost)
    assert.equal("deleted", held:lost())
  end)

  it("with_lock returns closed if its function closed the client", function()
    closed(client:with_lock("k", function(held)
      client:close()
      assert.is_false(held:is_held())
      return 1
    end))
    assert.equal(0, world.cli("EXISTS", "k"))
  end)
end)

describe("a program that exits without cleaning up", function()
  local function run(code, expected)
    local child = world.program { code = code, args = { world.server:url() } }
    assert.same({ "exit", expected }, { child:wait(20) }, child:output())
    assert.is_truthy(world.is_free("k"))
    return child:output()
  end

  it("leaves no lock when it ends", function()
    run([[assert(require("holdfast").new(arg[1]):lock("k"):acquire())]], 0)
  end)

  it("leaves no lock when it fails", function()
    local output = run([[
      held = assert(require("holdfast").new(arg[1]):lock("k"):acquire())
      error "fails"
    ]], 1)
    assert.matches("fails", output)
  end)

  if features.exit_closes then
    it("leaves no lock when it closes its Lua state with os.exit", function()
      run([[
        held = assert(require("holdfast").new(arg[1]):lock("k"):acquire())
        os.exit(3, true)
      ]], 3)
    end)
  end

  it("exits within seconds although the server hangs", function()
    local child = world.program {
      code = [[
        held = assert(require("holdfast").new(arg[1]):lock("k", { lease = 2 }):acquire())
        print("held") io.stdout:flush()
        require("spec.support.sys").sleep(0.2)
      ]],
      args = { world.server:url() },
    }
    assert.is_truthy(child:wait_output("held", 20))
    world.server:kill("STOP")
    local started = process.now()
    assert.same({ "exit", 0 }, { child:wait(30) })
    assert.is_true(process.now() - started < 15)
    world.server:kill("CONT")
    assert.is_truthy(world.is_free("k"))
  end)
end)

describe("a list of keys or locks", function()
  it("must have no holes and no other fields", function()
    local empty = setmetatable({}, { __len = function() return 3 end })
    for _, keys in ipairs { { "a", nil, "c" }, { nil, "b" }, { "a", more = "b" }, empty } do
      raises(function()
        local _ = client:multi_lock(keys)
      end, "client:multi_lock", "keys must be a list")
    end
    raises(function()
      local _ = holdfast.multi_lock { lock, nil, lock }
    end, "holdfast.multi_lock", "locks must be a list")
    raises(function()
      local _ = holdfast.new { mode = "quorum", servers = { nil, "redis://h" } }
    end, "servers must be a list")
  end)

  it("is refused with the number of the element that is wrong", function()
    local function keys(list, ...)
      raises(function() local _ = client:multi_lock(list) end, "client:multi_lock", ...)
    end
    keys({ "a", 1 }, "keys%[2%] must be a string of 1 to 1048576 bytes, not 1$")
    keys({ "a", "" }, 'keys%[2%] must be a string of 1 to 1048576 bytes, not ""$')
    keys({}, "keys must be a list of 1 to 1024 keys, not an empty table$")
    keys({ "a", nil, "c" }, "not a table with a hole at 2$")
    keys({ "a", more = "b" }, 'not a table with the field "more"$')
    keys("a", 'must be a list of 1 to 1024 keys, not "a"$')
    raises(function()
      local _ = holdfast.multi_lock { lock, "k" }
    end, 'locks%[2%] must be a holdfast.lock, not "k"$')
    local function servers(list, ...)
      raises(function()
        local _ = holdfast.new { mode = "shards", servers = list }
      end, "holdfast.new", ...)
    end
    servers({ "redis://a", 7 }, "servers%[2%] must be a URL or { url = …, weight = …, name = … }, not 7$")
    servers({ "redis://a", { url = "redis://b", weight = 0 } },
      "servers%[2%]%.weight must be .*1 to 100, not 0$")
    servers({ { url = "redis://b", name = "" } }, 'servers%[1%]%.name must be .*, not ""$')
    servers({ { weight = 1 } }, "servers%[1%]%.url must be a URL, not nil$")
    servers({ { url = "redis://b", wieght = 1 } },
      'servers%[1%] must be a URL or .*, not a table with the field "wieght"$')
  end)

  it("must not contain a key twice", function()
    raises(function()
      local _ = client:multi_lock { "a", "b", "a" }
    end, "client:multi_lock", '"a" is given twice')
    raises(function()
      local _ = holdfast.multi_lock { lock, lock }
    end, "holdfast.multi_lock", '"k" is given twice')
  end)
end)

describe("a message about an argument", function()
  it("names it as the manual does", function()
    raises(function()
      local _ = client:one_by_one():execute("a", {}, print)
    end, "one_by_one:execute: id must be a string")
    raises(function()
      local _ = client:one_by_one():execute("", 1, print)
    end, "one_by_one:execute: type must be a string")
    raises(function()
      local _ = holdfast.new { url = "rediss://h", tls = { server_name = "" } }
    end, 'server_name must be a host name or an IP address, not ""')
  end)

  it("shows its value, up to 40 bytes of a string, and never a password", function()
    for _, case in ipairs {
      { ("x"):rep(40), '"' .. ("x"):rep(40) .. '"' }, { ("x"):rep(41), "a string of 41 bytes" },
      { true, "true" }, { {}, "a table" }, { print, "a function" }, { client, "a holdfast.client" },
      { client:latch "l", "a holdfast.latch" },
      { setmetatable({}, { __name = "other" }), "a table" },
    } do
      raises(function() local _ = client:lock("k", { lease = case[1] }) end,
        "lease must be .*, not " .. case[2] .. "$")
    end
    for _, secret in ipairs { "geheim\0", ("geheim"):rep(100) } do
      for _, name in ipairs { "sentinel_user", "sentinel_password" } do
        local _, message = pcall(holdfast.new, { url = "redis+sentinel://h/m", [name] = secret })
        assert.matches(name .. " must be ", message, 1, true)
        assert.is_nil(message:find("geheim", 1, true))
      end
    end
  end)
end)

describe("a table with a metatable", function()
  it("is accepted as options, which are checked as usual", function()
    local function with(given) return setmetatable({}, { __index = given }) end
    assert.equal("me", client:lock("k", with { owner = "me" }):owner())
    raises(function()
      local _ = client:lock("k", with { owner = ("x"):rep(256) })
    end, "client:lock", "owner")
    raises(function()
      local _ = client:with_lock("k", with { lease = -1 }, print)
    end, "client:with_lock", "lease")
    raises(function()
      local _ = client:idempotent("k", with { expire = 0 }, print)
    end, "client:idempotent", "expire")
    raises(function()
      local _ = client:one_by_one():execute("a", 1, with { wait = "1" }, print)
    end, "execute", "wait")
    for _, lease in ipairs { 1e10, math.huge, 0.0001 } do
      raises(function()
        local _ = client:one_by_one():execute("a", 1, with { lease = lease }, print)
      end, "execute", "lease")
    end
  end)
end)

describe("an options table modified by its caller later", function()
  it("does not change objects created with it", function()
    local semaphore, plain, template = { permits = 3 }, { class = "mine" }, { prefix = "x:" }
    local pool = client:semaphore("pool", semaphore)
    local places = client:plain_semaphore("places", plain)
    local runs = client:one_by_one(template)
    semaphore.permits, semaphore.lease, semaphore.class = 7, -5, {}
    plain.class, plain.on_event = {}, 1
    template.prefix, template.lease = {}, "long"
    local permit = assert(pool:acquire())
    assert.equal(3, pool:permits())
    assert.is_true(permit:release())
    assert.is_true(places:set(2))
    assert.is_true(places:acquire(2, 0))
    assert.equal(1, client:stats().classes.mine.outcomes.acquired)
    assert.equal("x:a_1", runs:execute("a", 1, function(each) return each:key() end))
    world.cli("DEL", "pool", "places")
  end)

  it("does not change later terms of a leader", function()
    local opts, terms = { lease = 30 }, 0
    client:lead("chief", opts, function(term)
      terms = terms + 1
      if terms == 2 then return term:resign() end
      opts.once, opts.lease = true, -1
    end)
    assert.equal(2, terms)
  end)
end)

-- ---- every call with everything that it must not get ----

local WRONG = io.stdout -- never valid as an argument or an option of holdfast

local KEY = { "key", "k", "a string of 1 to 1048576 bytes" }
local RESOURCE = { "resource", "k", KEY[3] }
local WAIT = { "wait", 0, "a non-negative number of seconds or math.huge" }
local SECONDS = { "seconds", 1, "a number of seconds from 0.001 to 1e9" }
local COUNT = { "count", 1, "a whole number from 1 to 1000" }
local MANY = { "count", 1, "a whole number from 1 to 1e9" }
local PERMITS = { "permits", 1, "a whole number from 0 to 1e9" }
local OPTIONS = { "options", {}, "a table" }
local function call_back(given) -- a leader resigns
  if type(given) == "table" then given:resign() end
end
local FN = { "fn", call_back, "a function" }
local HELD = { "lock", nil, "a lock or a term" } -- each case has its own valid one
local PART = "a string of 1 to 500000 bytes, or a number (at most 2^53 if whole)"

local PERIOD = { "period", 1, "a number of seconds from 0.1 to 1e9" }

local MADE, RUN = { KEY, OPTIONS }, { KEY, OPTIONS, FN }

-- kind of handle → method → its arguments: the name in messages, a valid one, what it must be
local ARGUMENTS = {
  client = {
    lock = MADE, mutex = MADE, fair_lock = MADE, read_write_lock = MADE, semaphore = MADE,
    plain_semaphore = MADE, latch = MADE, fence = { RESOURCE, OPTIONS },
    multi_lock = { { "keys", { "k" }, "a list of 1 to 1024 keys" }, OPTIONS },
    one_by_one = { OPTIONS },
    with_lock = RUN, with_read_lock = RUN, with_write_lock = RUN, with_fair_lock = RUN,
    idempotent = RUN, lead = RUN, once = { KEY, PERIOD, OPTIONS, FN },
  },
  lock = { acquire = { WAIT }, extend = { SECONDS }, fence_headers = { RESOURCE } },
  multi_lock = { acquire = { WAIT }, extend = { SECONDS } },
  semaphore = {
    acquire = { COUNT, WAIT }, try_acquire = { COUNT }, with_permit = { OPTIONS, FN },
    set_permits = { PERMITS },
  },
  permit = { extend = { SECONDS } },
  plain_semaphore = {
    acquire = { MANY, WAIT }, try_acquire = { MANY }, release = { MANY }, set = { PERMITS },
    add = { { "change", 1, "a whole number from -1e9 to 1e9" } }, with_permit = { OPTIONS, FN },
  },
  latch = { set = { MANY }, count_down = { { "amount", 1, MANY[3] } }, wait = { WAIT } },
  fence = {
    call = { HELD, { "command[1]", "SET", "a string or a number" } },
    run = { HELD, { "commands", { { "SET", "k", 1 } }, "a list of 1 to 1000 commands" } },
    claim = { HELD },
  },
  one_by_one = { execute = { { "type", "a", PART }, { "id", 1, PART }, OPTIONS, FN } },
  read_write_lock = {}, term = {}, watchdog = {},
}

local function options_of(module, field) return require("holdfast." .. module)[field or "options"] end

local function named(names)
  local all = {}
  for name in names:gmatch("[%w_]+") do all[name] = true end
  return all
end

-- call → option, for each call with options
local KNOWN = {
  ["client:lock"] = options_of "lock",
  ["client:mutex"] = options_of "lock",
  ["client:fair_lock"] = options_of "read_write_lock",
  ["client:read_write_lock"] = options_of "read_write_lock",
  ["client:multi_lock"] = options_of "read_write_lock", -- these include `owner`
  ["client:semaphore"] = options_of "semaphore",
  ["client:plain_semaphore"] = options_of "plain_semaphore",
  ["client:latch"] = options_of "latch",
  ["client:fence"] = options_of "fence",
  ["client:one_by_one"] = options_of "one_by_one",
  ["client:with_lock"] = options_of "with_lock",
  ["client:with_read_lock"] = options_of("read_write_lock", "with_options"),
  ["client:with_write_lock"] = options_of("read_write_lock", "with_options"),
  ["client:with_fair_lock"] = options_of("read_write_lock", "with_options"),
  ["client:idempotent"] = options_of "idempotent",
  ["client:lead"] = options_of "lead",
  ["client:once"] = options_of "once",
  ["semaphore:with_permit"] = named "count wait abort_on_loss",
  ["plain_semaphore:with_permit"] = named "count wait",
  ["one_by_one:execute"] = named "wait lease queue abort_on_loss",
  ["holdfast.new"] = named [[url servers mode restart_guard tls sentinel_user sentinel_password sync name
    lease wait prefix tenant fencing token_ttl connect_timeout command_timeout grant_lease async_release
    keep crash_release class on_event driver]],
  ["holdfast.new: tls"] = named "ca_file ca_path cert key server_name verify",
  ["holdfast.new: sync"] = named "replicas timeout",
  ["holdfast.multi_lock"] = named "wait",
  ["holdfast.idempotent_request"] = options_of "idempotent_request",
  ["holdfast.fence"] = options_of "admission",
  ["holdfast.status"] = named "client host pattern",
}

local function plain(text) return (text:gsub("%p", "%%%0")) end

-- Asserts that the call raises an error at its caller's line, and that the message begins with
-- `text`.
local function says(text, call, ...)
  local arguments, count = { ... }, select("#", ...)
  raises(function() local _ = call(unpack(arguments, 1, count)) end, "^" .. plain(text))
end

local function not_wrong(what, name, must)
  return ("%s: %s must be %s, not a userdata"):format(what, name, must)
end

-- `make(options)` returns the call and its arguments with these options.
local function rejects_options(what, make)
  says(what .. ': unknown option "leese"', make { leese = 1 })
  for name, check in pairs(KNOWN[what]) do
    local must = type(check) == "function" and check(WRONG)
    says(must and not_wrong(what, name, must) or ("%s: %s must be "):format(what, name),
      make { [name] = WRONG })
  end
end

local handles, losses

local function make_handles()
  local semaphore = client:semaphore("pool", { permits = 1 })
  handles = {
    client = client, watchdog = client:watchdog(), lock = lock, semaphore = semaphore,
    permit = assert(semaphore:acquire()), multi_lock = client:multi_lock { "a", "b" },
    read_write_lock = client:read_write_lock "rw", fence = client:fence "resource",
    plain_semaphore = client:plain_semaphore "plain", latch = client:latch "latch",
    one_by_one = client:one_by_one(),
  }
  assert(client:lead("leader", { once = true }, function(term) handles.term = term end))
  HELD[2] = lock
end

-- Calls f(kind, handle, name, method) for each method.
local function each_method(f)
  for kind in pairs(ARGUMENTS) do
    local handle = handles[kind]
    for name, method in pairs(debug.getmetatable(handle).__index) do
      if not name:find "^__" then f(kind, handle, name, method) end
    end
  end
end

-- Causes a loss that the next call reports, unless this raises an error for its caller.
local function lose()
  losses = 0
  local lost = client:lock("lost", { on_lost = function() losses = losses + 1 end })
  assert(lost:acquire())
  world.cli("DEL", "lost")
  assert.equal("lost", select(3, lost:check()))
  handles.lost = lost
end

describe("an error at the caller's line", function()

  local function not_reported()
    assert.equal(0, losses)
    assert.is_false(handles.lost:is_held())
    assert.equal(1, losses)
    handles.lost = nil
  end

  before_each(make_handles)
  after_each(function()
    assert(handles.permit:release())
    world.cli("DEL", "pool")
  end)

  it("is raised by each method called without a colon, before it does anything", function()
    lose()
    each_method(function(kind, handle, name, method)
      local ours = "holdfast." .. kind
      local text = ("%s:%s: call it with a colon on a %s, not on "):format(kind, name, ours)
      says(text .. "nil", method)
      says(text .. '"k"', method, "k")
      says(text .. "a table", method, {})
      says(text .. "a userdata", method, WRONG)
      says(text .. "a holdfast.", method, handle == client and lock or client)
      says(text .. "a " .. ours, method, setmetatable({}, { __metatable = ours }))
    end)
    not_reported()
  end)

  it("names the wrong argument of each method, before that does anything", function()
    lose()
    each_method(function(kind, handle, name, method)
      local what, arguments = kind .. ":" .. name, ARGUMENTS[kind][name] or {}
      local count = debug.getinfo(method, "u").nparams -- counts self; nil in Lua 5.1
      assert.equal(count or #arguments + 1, #arguments + 1, what)
      local before = { handle }
      for _, argument in ipairs(arguments) do
        local called, good, must = unpack(argument, 1, 3)
        local given = { unpack(before) }
        given[#given + 1] = WRONG
        says(not_wrong(what, called, must), method, unpack(given))
        before[#before + 1] = good
      end
    end)
    not_reported()
  end)

  it("names the wrong or unknown option of each method", function()
    each_method(function(kind, handle, name, method)
      local before = { handle }
      for _, argument in ipairs(ARGUMENTS[kind][name] or {}) do
        if argument == OPTIONS then
          rejects_options(kind .. ":" .. name, function(options)
            local given = { unpack(before) }
            given[#given + 1], given[#given + 2] = options, print
            return method, unpack(given)
          end)
        end
        before[#before + 1] = argument[2]
      end
    end)
    says(not_wrong("client:multi_lock", "owner", 'a string of 1 to 255 bytes other than "mode"'),
      client.multi_lock, client, { "k" }, { owner = WRONG })
    says('client:multi_lock: "keep" is an option of client:lock', client.multi_lock, client, { "k" },
      { keep = 1 })
  end)

  it("never shows the password of a URL, whatever argument or option it is", function()
    local URL, seen = "redis://u:s3cretpw@h:1", 0
    local function hides(call, ...)
      local message = tostring((select(2, pcall(call, ...))))
      assert.is_nil(message:find("s3cretpw", 1, true), message)
      seen = seen + (message:find("redis://***@h:1", 1, true) and 1 or 0)
    end
    local function each_option(what, make)
      hides(make { [URL] = 1 })
      for name, check in pairs(KNOWN[what]) do
        if type(check) == "function" and check(URL) then hides(make { [name] = URL }) end
      end
    end
    each_method(function(kind, handle, name, method)
      hides(method, URL)
      local before = { handle }
      for _, argument in ipairs(ARGUMENTS[kind][name] or {}) do
        local given = { unpack(before) }
        given[#given + 1] = URL
        local takes_it = tostring(argument[3]):find("^a string")
        if not takes_it then hides(method, unpack(given)) end
        if argument == OPTIONS then
          each_option(kind .. ":" .. name, function(options)
            given[#given], given[#given + 1] = options, print
            return method, unpack(given)
          end)
        end
        before[#before + 1] = argument[2]
      end
    end)
    for _, name in ipairs {
      "url", "servers", "mode", "restart_guard", "driver", "tenant", "lease", "name", "tls", "sync",
    } do
      local value = name == "tenant" and URL .. " " or name == "url" and { URL } or URL
      hides(holdfast.new, { [name] = value })
      hides(holdfast.new, "redis://h", { [name] = value })
    end
    for _, options in ipairs {
      { servers = { URL, 5 } }, { servers = { [URL] = 1 } },
      { servers = { { url = "redis://h", [URL] = 1 } } },
      { servers = { { url = "redis://h", weight = URL } } },
      { servers = { URL, URL }, mode = "quorum" },
      {
        servers = { { url = "redis://a", name = URL }, { url = "redis://b", name = URL } },
        mode = "shards",
      },
    } do
      hides(holdfast.new, options)
    end
    hides(holdfast.new, URL, URL)
    hides(holdfast.new, URL, { url = URL })
    hides(holdfast.multi_lock, URL)
    hides(holdfast.multi_lock, { client:lock(URL), client:lock(URL) })
    hides(holdfast.with_lock, "k", URL)
    assert.is_true(seen > 100, seen)
  end)

  it("never shows the password of a URL used as a key", function()
    local key = "redis://u:s3cretpw@h:1"
    local away = world.client { url = "redis://127.0.0.1:1", connect_timeout = 0.2 }
    for _, message in ipairs {
      select(2, away:lock(key):acquire(0)), select(2, away:mutex(key):acquire(0)),
      select(2, away:one_by_one():execute(key, 1, { wait = 0 }, print)),
      (select(2, away:fence(key):call(away:lock(key), "SET", "k", 1))),
    } do
      assert.matches("redis://***@h:1", message, 1, true)
    end
  end)

  it("names the calls that accept the option if this one does not", function()
    local bounded = "client:semaphore and client:one_by_one"
    for calls, names in pairs {
      ["holdfast.new"] = [[url servers mode restart_guard tls sync prefix tenant driver grant_lease
        connect_timeout command_timeout sentinel_user sentinel_password crash_release]],
      ["client:lock"] = "owner watchdog on_lost interruptible deadlock_check",
      ["client:lock, client:mutex, client:with_lock and client:one_by_one"] = "keep",
      ["client:lock, client:with_lock, client:lead, " .. bounded] = "max_hold",
      ["client:lock, client:with_lock, " .. bounded] = "max_waiters",
      ["client:one_by_one"] = "queue",
      ["client:idempotent"] = "info delete_key replay fingerprint keep_on_error",
    } do
      for name in pairs(named(names)) do
        says(('client:fence: "%s" is an option of %s'):format(name, calls), client.fence, client, "k",
          { [name] = 1 })
      end
    end
  end)

  it("names a key that is reserved for internal use", function()
    local name = "holdfast_fence:x"
    local text = 'must be one that does not begin with "holdfast_fence:", which holdfast uses for its own '
      .. 'keys, not "holdfast_fence:x"'
    for method, arguments in pairs(ARGUMENTS.client) do
      local called = arguments[1][1]
      if arguments[1][3] == KEY[3] then
        says(("client:%s: %s %s"):format(method, called, text), client[method], client, name, nil, print)
      end
    end
    says("client:multi_lock: keys " .. text, client.multi_lock, client, { name })
    says("one_by_one:execute: key " .. text, handles.one_by_one.execute, handles.one_by_one,
      "holdfast", "fence:x", print)
  end)

  it("names what is wrong with each argument of a module function", function()
    for _, name in ipairs { "new", "with_lock", "multi_lock", "idempotent_request", "fence",
      "status" } do
      says(("holdfast.%s: call it with a dot"):format(name), holdfast[name], holdfast)
    end
    says(not_wrong("holdfast.new", "options", "a table"), holdfast.new, WRONG)
    says(not_wrong("holdfast.new", "options", "a table"), holdfast.new, "redis://h", WRONG)
    says(not_wrong("client:with_lock", "key", KEY[3]), holdfast.with_lock, WRONG)
    says(not_wrong("client:with_lock", "fn", "a function"), holdfast.with_lock, "k", {}, WRONG)
    says(not_wrong("holdfast.multi_lock", "locks", "a list of 1 to 1024 locks"),
      holdfast.multi_lock, WRONG)
    says(not_wrong("holdfast.multi_lock", "options", "a table"), holdfast.multi_lock, { lock }, WRONG)
    rejects_options("holdfast.multi_lock", function(options)
      return holdfast.multi_lock, { lock }, options
    end)
    rejects_options("holdfast.new", function(options) return holdfast.new, options end)
    rejects_options("holdfast.new", function(options) return holdfast.new, "redis://h", options end)
    for _, part in ipairs { "tls", "sync" } do
      rejects_options("holdfast.new: " .. part, function(options)
        return holdfast.new, { url = "rediss://h", [part] = options }
      end)
    end
  end)

  it("is raised by functions for nginx elsewhere, after their options were checked", function()
    for _, name in ipairs { "idempotent_request", "fence", "status" } do
      local what, call = "holdfast." .. name, holdfast[name]
      says(not_wrong(what, "options", "a table"), call, WRONG)
      rejects_options(what, function(options) return call, options end)
      says(what .. ": works only under ngx_lua", call, {})
    end
    says("holdfast.metrics: works only under ngx_lua", holdfast.metrics)
    says("holdfast.idempotent_request: replay with key needs principal", holdfast.idempotent_request,
      { key = "k", replay = true })
  end)

  it("is not raised by finish and capture outside nginx, which do nothing", function()
    assert.equal(0, select("#", holdfast.finish()))
    assert.equal(0, select("#", holdfast.capture()))
  end)

  -- Makes each call of a client that has the option `option`, with `options`.
  local function each_with(option, one, options, text, ...)
    for method, arguments in pairs(ARGUMENTS.client) do
      local what = "client:" .. method
      if KNOWN[what] and KNOWN[what][option] ~= nil then
        local given, is_wanted = { one }, true
        for _, argument in ipairs(arguments) do
          given[#given + 1] = argument == OPTIONS and options or argument[2]
        end
        for _, left_out in ipairs { ... } do is_wanted = is_wanted and method ~= left_out end
        if is_wanted then says(("%s: %s"):format(what, text), one[method], unpack(given)) end
      end
    end
  end

  it("names options of a method that exclude each other", function()
    local bounds = "max_hold limits how long the watchdog renews the lock"
    each_with("max_hold", client, { lease = 0.5, max_hold = 9 }, bounds, "lead", "once")
    each_with("owner", client, { owner = "me", keep = 1 }, "keep and owner cannot be combined")
    local bounded = client:one_by_one { max_hold = 9 }
    says("one_by_one:execute: " .. bounds, bounded.execute, bounded, "a", 1, { lease = 0.5 }, print)
    local crashing = world.client { crash_release = true }
    local owner = ("0"):rep(36) .. ":1"
    each_with("owner", crashing, { owner = owner }, "owner must not have the form <client uuid>:<n>")
    says("client:multi_lock: owner must not have the form", crashing.multi_lock, crashing, { "k" },
      { owner = owner })
  end)

  it("names what a quorum does not support", function()
    local quorum = holdfast.new { mode = "quorum", servers = { "redis://127.0.0.1:1" } }
    local without = {
      read_write_lock = "read/write locks", fair_lock = "fair locks", semaphore = "semaphores",
      plain_semaphore = "plain semaphores", latch = "latches", fence = "fences",
      with_read_lock = "read/write locks", with_write_lock = "read/write locks",
      with_fair_lock = "fair locks", once = "schedules",
    }
    local left_out = {}
    for method, what in pairs(without) do
      left_out[#left_out + 1] = method
      says(("client:%s: %s need a single server, not a quorum"):format(method, what), quorum[method],
        quorum, "k", nil, print)
    end
    each_with("max_waiters", quorum, { max_waiters = 1 }, "max_waiters does not work in a quorum",
      unpack(left_out))
    each_with("keep", quorum, { keep = 1 }, "the option keep needs a single server, not a quorum")
    quorum:close()
  end)

  it("names options of holdfast.new that exclude each other", function()
    local url, two = "redis://h", { "redis://h", "redis://i" }
    local many = {}
    for i = 1, 33 do many[i] = "redis://h:" .. i end
    for text, options in pairs {
      ["url and servers cannot be combined"] = { url = url, servers = two },
      ["servers need a mode"] = { servers = two },
      ["mode needs servers"] = { mode = "quorum" },
      ["restart_guard works only with"] = { url = url, restart_guard = 1 },
      ["restart_guard works only with mode"] = { mode = "shards", servers = two, restart_guard = 1 },
      ["sync does not work with"] = { mode = "quorum", servers = two, sync = {} },
      ["at most 32 servers"] = { mode = "quorum", servers = many },
      ["weight and name work only with"] = { mode = "quorum", servers = { { url = url } } },
      ['two servers are named "a"'] = {
        mode = "shards", servers = { { url = url, name = "a" }, { url = "redis://i", name = "a" } },
      },
      ["servers: "] = { mode = "shards", servers = { url, "http://h" } },
      ["url: "] = { url = "http://h" },
      ["sync: timeout must be less than command_timeout"] = {
        url = url, command_timeout = 0.1, sync = { timeout = 0.1 },
      },
      ["tls: cert and key must be set together"] = { url = "rediss://h", tls = { cert = "c" } },
      ["tls: cert and key must be set"] = { url = "rediss://h", tls = { key = "k" } },
      ["sentinel_user and sentinel_password"] = { url = url, sentinel_user = "u" },
      ["sentinel_user and sentinel_password need"] = { url = url, sentinel_password = "p" },
      ["sentinel_user needs sentinel_password"] = { url = "redis+sentinel://h/m", sentinel_user = "u" },
      ["the option keep needs a single server"] = { mode = "quorum", servers = two, keep = 1 },
      ["crash_release does not work in a quorum"] = {
        mode = "quorum", servers = two, crash_release = true,
      },
    } do
      says("holdfast.new: " .. text, holdfast.new, options)
    end
    says("holdfast.new: sync: timeout must be less than command_timeout", holdfast.new,
      { url = url, sync = { timeout = 3 } })
    says("holdfast.new: put the port in the URL", holdfast.new, url, 6379)
    says("holdfast.new: pass one table of options", holdfast.new, {}, {})
    says("holdfast.new: the first argument is already a URL", holdfast.new, url, { url = url })
  end)

  it("names the environment variable that is wrong", function()
    for wrong, env in pairs {
      ["url in $HOLDFAST_URL: "] = { HOLDFAST_URL = "http://h" },
      ["servers in $HOLDFAST_SERVERS must be URLs"] = { HOLDFAST_SERVERS = "redis://h,,redis://i" },
      ["servers in $HOLDFAST_SERVERS must be a list"] = { HOLDFAST_SERVERS = (",redis://h"):rep(65):sub(2) },
    } do
      local child = world.program {
        code = [[
          local holdfast = require "holdfast"
          local place = debug.getinfo(1, "S").short_src .. ":%d: holdfast.new: " .. arg[1]
          for _, call in ipairs {
            function() local _ = holdfast.new() end,
            function() local _ = holdfast.with_lock("k", print) end,
          } do
            local _, message = pcall(call)
            local begin = place:format(debug.getinfo(call, "S").linedefined)
            assert(message:sub(1, #begin) == begin, message)
          end
        ]],
        args = { wrong }, env = env,
      }
      assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    end
  end)

  it("says why an event loop cannot be used", function()
    local child = world.program { code = [[
      package.preload.cqueues = function() error "no such library" end
      local function call() local _ = require("holdfast").new { driver = "cqueues" } end
      local _, message = pcall(call)
      local info = debug.getinfo(call, "S")
      local begin = ("%s:%d: holdfast.new: driver: "):format(info.short_src, info.linedefined)
      assert(message:sub(1, #begin) == begin, message)
    ]] }
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
  end)

  it("names a fence's wrong key, and a lock without tokens", function()
    local near, far = handles.fence, world.client({ url = "redis+cluster://127.0.0.1:1" }):fence "r"
    local held = assert(lock:acquire())
    local bare = assert(client:lock("bare", { fencing = false }):acquire())
    for name, wrong in pairs {
      call = function(fence, key, by) return fence.call, fence, by, "SET", key, 1 end,
      run = function(fence, key, by) return fence.run, fence, by, { { "SET", key, 1 } } end,
    } do
      local what = "fence:" .. name
      says(what .. ": a command's key must be " .. KEY[3], wrong(near, "", held))
      says(what .. ": a command's key must be one that does not begin with", wrong(near, "holdfast_known", held))
      says(what .. ': the key "b" must be in the same slot or shard as', wrong(far, "b", held))
      says(what .. ": lock must have fencing tokens", wrong(near, "b", bare))
    end
    says("fence:claim: lock must have fencing tokens", near.claim, near, bare)
    says("lock:fence_headers: the lock has no fencing tokens", bare.fence_headers, bare, "r")
    assert(held:release())
    assert(bare:release())
  end)
end)

-- ---- bounds ----

local function text(size) return ("x"):rep(size) end

local function list(size, item)
  local all = {}
  for i = 1, size do all[i] = type(item) == "function" and item(i) or item end
  return all
end

local function server(i) return "redis://127.0.0.1:" .. i end

local TIMEOUT = { { 0.001, 3600 }, { 0.0009, 3600.5 } }
local LEASE = { { 0.001, 1e9 }, { 0.0009, 1e9 + 1 } }
local TOKEN_TTL = { { 0.001, 1e9, huge }, { 0.0009, 1e9 + 1, -huge } }
local WAITS = { { 0, 0.0001, huge }, { -0.0001 } }
local CLASS = { { "", text(63), " ~" }, { text(64), "\31", "\127" } }
local ANY = { { -huge, 0, huge }, { nan } }

-- call → option → values at the bounds, values just outside
local OPTION_BOUNDS = {
  ["holdfast.new"] = {
    lease = LEASE, wait = WAITS, token_ttl = TOKEN_TTL, class = CLASS,
    keep = { { 0, 60 }, { -0.5, 60.5, nan } },
    connect_timeout = TIMEOUT, command_timeout = TIMEOUT, grant_lease = TIMEOUT,
    name = { { "", text(127), "!~" }, { text(128), " ", "\127" } },
    tenant = { { "x", text(127), "!~\128\255" }, { "", text(128), " ", "\127" } },
  },
  quorum = { restart_guard = { { 0, 1e9 }, { -0.5, 1e9 + 1, nan } } },
  sentinel = { sentinel_password = { { "", text(511), 5 }, { text(512), "a\0b" } } },
  servers = { quorum = { { 1, 32 }, { 0, 33 } }, shards = { { 1, 64 }, { 0, 65 } } },
  shard = {
    weight = { { 1, 100 }, { 0, 101, 1.5 } }, name = { { "x", text(255) }, { "", text(256), "a\0b" } },
  },
  ["holdfast.new: sync"] = {
    replicas = { { 1, 1000 }, { 0, 1001, 1.5, nan } }, timeout = { { 0.001 }, { 0.0009, 3600.5 } },
  },
  ["client:lock"] = {
    lease = LEASE, wait = WAITS, token_ttl = TOKEN_TTL, class = CLASS, max_waiters = {
      { 0, 1e9 }, { -1, 1e9 + 1, 0.5 },
    },
    max_hold = LEASE, deadlock_check = { { 0.5, 1e9 }, { 0.4999, 1e9 + 1, nan } },
    owner = { { "x", text(255) }, { "", text(256) } },
  },
  ["client:semaphore"] = { permits = { { 1, 1e9 }, { 0, 1e9 + 1, 1.5 } } },
  ["client:idempotent"] = { fingerprint = { { "x" }, { "" } }, expire = LEASE },
  ["client:one_by_one"] = {
    wait = ANY, lease = { { -huge, 0, 0.001, 1e9 }, { 0.0009, 1e9 + 1, nan } },
  },
  ["client:fence"] = { ttl = TOKEN_TTL },
  ["holdfast.idempotent_request"] = {
    status = { { 200, 599 }, { 199, 600, 200.5 } }, expire = LEASE,
  },
}

describe("numeric limits", function()
  -- `try(value)` returns whether the value is accepted.
  local function check(what, bounds, try)
    for i, values in ipairs(bounds) do
      for _, value in ipairs(values) do
        local shown = type(value) == "string" and "a text of " .. #value or tostring(value)
        assert.equal(i == 1, (pcall(try, value)), ("%s: %s"):format(what, shown))
      end
    end
  end

  it("are enforced for options: the bounds are accepted, anything beyond is refused", function()
    local url = world.server:url()
    local calls = {
      ["holdfast.new"] = function(options)
        options.url = url
        holdfast.new(options):close()
      end,
      quorum = function(options)
        options.mode, options.servers = "quorum", { url }
        holdfast.new(options):close()
      end,
      sentinel = function(options)
        options.url = "redis+sentinel://127.0.0.1:1/m"
        holdfast.new(options):close()
      end,
      servers = function(options)
        local mode, count = next(options)
        holdfast.new { mode = mode, servers = list(count, server) }:close()
      end,
      shard = function(options)
        options.url = url
        holdfast.new { mode = "shards", servers = { options } }:close()
      end,
      ["holdfast.new: sync"] = function(options)
        holdfast.new { url = url, command_timeout = 3600, sync = options }:close()
      end,
      ["client:lock"] = function(options) client:lock("k", options) end,
      ["client:semaphore"] = function(options) client:semaphore("s", options) end,
      ["client:idempotent"] = function(options) assert(client:idempotent("i", options, call_back)) end,
      ["client:one_by_one"] = function(options) client:one_by_one(options) end,
      ["client:fence"] = function(options) client:fence("f", options) end,
      ["holdfast.idempotent_request"] = function(options) -- its options are checked first
        local _, message = pcall(holdfast.idempotent_request, options)
        assert.matches("works only under ngx_lua", message)
      end,
    }
    for what, options in pairs(OPTION_BOUNDS) do
      for name, bounds in pairs(options) do
        check(what .. " " .. name, bounds, function(value)
          calls[what] { [name] = value }
          world.cli("DEL", "i")
        end)
      end
    end
  end)

  it("are enforced for arguments: the bounds are accepted, anything beyond is refused", function()
    local pool, plain_pool = client:semaphore "pool", client:plain_semaphore "plain"
    local latch, resource = client:latch "latch", client:fence "resource"
    local held = assert(lock:acquire())
    local runs = client:one_by_one()
    local count, many = { { 1, 1000 }, { 0, 1001, 1.5 } }, { { 1, 1e9 }, { 0, 1e9 + 1, 1.5 } }
    local all = { { 0, 1e9 }, { -1, 1e9 + 1, 0.5 } }
    local change = { { -1e9, 1e9 }, { -1e9 - 1, 1e9 + 1 } }
    local key = { { "x", text(1048576) }, { "", text(1048577) } }
    local part = {
      { "x", text(500000), 0, -1.5, 2 ^ 53, -2 ^ 53 },
      { "", text(500001), 2 ^ 53 + 2, -2 ^ 53 - 2, huge, -huge, nan },
    }
    local function key_of(i) return "k" .. i end
    local function lock_of(i) return client:lock(key_of(i)) end
    local function command_of() return { "DEL", "x" } end
    local keys, commands, words = { { 1, 1024 }, { 0, 1025 } }, { { 1, 1000 }, { 0, 1001 } },
      { { 1, 3999 }, { 0, 4000 } }
    for what, case in pairs {
      ["a key"] = { key, function(value) client:lock(value) end },
      ["a resource"] = { key, function(value) held:fence_headers(value) end },
      ["a type"] = { part, function(value) runs:execute(value, 1, call_back) end },
      ["an id"] = { part, function(value) runs:execute("a", value, call_back) end },
      ["keys"] = { keys, function(size) client:multi_lock(list(size, key_of)) end },
      ["locks"] = { keys, function(size) holdfast.multi_lock(list(size, lock_of)) end },
      ["commands"] = { commands, function(size) resource:run(held, list(size, command_of)) end },
      ["words"] = { words, function(size) resource:call(held, "DEL", unpack(list(size, "x"))) end },
      ["count"] = { count, function(value) pool:try_acquire(value) end },
      ["a new total"] = { all, function(value) pool:set_permits(value) end },
      ["permits"] = { many, function(value) plain_pool:try_acquire(value) end },
      ["those given back"] = { many, function(value) plain_pool:release(value) end },
      ["a first total"] = { all, function(value) plain_pool:set(value) end },
      ["a change"] = { change, function(value) plain_pool:add(value) end },
      ["what is to come"] = { many, function(value) latch:set(value) end },
      ["what has come"] = { many, function(value) latch:count_down(value) end },
      ["a wait"] = { { { 0, 0.0001 }, { -0.0001, nan } }, function(value) latch:wait(value) end },
      ["a new lease"] = { LEASE, function(value) held:extend(value) end },
    } do
      check(what, case[1], case[2])
      world.cli("DEL", "pool", "plain", "latch")
    end
    held:release() -- its last lease may have ended
  end)
end)

-- These methods need only the handle, neither the server nor the holds.
local SILENT = {
  client = named [[lock mutex fair_lock read_write_lock multi_lock semaphore plain_semaphore latch
    fence one_by_one watchdog]],
  lock = named "waited key owner", permit = named "count waited key", multi_lock = named "keys",
  semaphore = named "key", plain_semaphore = named "key", latch = named "key", fence = named "key",
  term = named "token token_text key resign", -- a term that is over
  read_write_lock = named "read write key", one_by_one = {},
  watchdog = named "holds is_running stop start stats",
}

describe("every method", function()
  it("reports a loss that another call has found", function()
    client = world.client { wait = 0 }
    lock = client:lock "k"
    make_handles()
    each_method(function(kind, handle, name, method)
      world.cli("FLUSHALL")
      lose()
      local given = { handle ~= client and handle or name == "close" and world.client() or client }
      for _, argument in ipairs(ARGUMENTS[kind][name] or {}) do given[#given + 1] = argument[2] end
      if kind == "fence" and name == "call" then given[#given + 1] = "k" given[#given + 1] = 1 end
      method(unpack(given))
      assert.equal(SILENT[kind][name] and 0 or 1, losses, kind .. ":" .. name)
      handles.lost:is_held()
    end)
    client:close()
    world.cli("FLUSHALL")
  end)
end)

describe("in nginx's stream {}", function()
  it("loading the module fails and says that it needs http {}", function()
    local child = world.program { code = [[
      ngx = { config = { subsystem = "stream" }, socket = { tcp = print }, timer = {} } -- as ngx_stream_lua has it
      print(pcall(require, "holdfast"))
    ]] }
    assert.same({ "exit", 0 }, { child:wait(20) })
    assert.matches("^false\tholdfast works only in nginx's http {}, not in stream {}", child:output())
  end)
end)
