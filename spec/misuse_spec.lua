-- What callers get wrong: keys, options, URLs and lists of unusual form. misuse_arguments_spec goes
-- through every argument and option of every call.

local holdfast = require "holdfast"
local misuse = require "spec.support.misuse"
local nearest = require("holdfast.hints").nearest
local world = require("spec.support.world").new()

local refuses = misuse.refuses
local unpack = table.unpack or unpack
local huge = math.huge

local client, lock

before_each(function()
  world.open()
  client = world.client()
  lock = client:lock("k")
end)
after_each(world.close)

describe("a key", function()
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
end)

describe("an option", function()
  it("that is unknown is refused, and the nearest known one suggested", function()
    for name, patterns in pairs {
      leese = { "client:lock", '"leese"', '"lease"' }, time_out = { '"time_out"', "did you mean" },
      Wait = { '"Wait"', '"wait"' }, onlost = { '"onlost"', '"on_lost"' },
      laese = { '"laese"', '"lease"' }, interuptable = { '"interruptible"' }, [1] = { "unknown option 1" },
    } do refuses(patterns, client.lock, client, "k", { [name] = 1 }) end
    for name, patterns in pairs {
      abort = { '"abort"', "did you mean" }, abort_on_los = { '"abort_on_loss"' },
    } do refuses(patterns, client.with_lock, client, "k", { [name] = true }, print) end
    refuses({ "holdfast%.new", '"uri"', '"url"' }, holdfast.new, { uri = "redis://h" })
    refuses({ '"connect_timeout"' }, holdfast.new, { conect_timeout = 1 })
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
    for theirs, ours in pairs {
      timeout = "wait", exptime = "lease", ttl = "lease", expire = "lease", retry = "wait",
      retry_delay = "wait", lease_time = "lease", leaseTime = "lease", auto_renew = "watchdog",
      token = "owner", ["auto-renew"] = "watchdog", ["Lease-Time"] = "lease", EX = "lease",
    } do
      refuses({ '"' .. theirs:gsub("-", "%%-") .. '"', 'did you mean "' .. ours .. '"%?' },
        client.lock, client, "k", { [theirs] = 1 })
    end
    refuses({ 'did you mean "url"%?' }, holdfast.new, { host = "h" })
    refuses({ 'did you mean "wait" or "command_timeout"%?' }, holdfast.new, { timeout = 1 })
    refuses({ 'did you mean "expire" or "lease"%?' }, client.idempotent, client, "k", { ttl = 1 }, print)
  end)

  it("that belongs to other functions is refused, and the message names those functions", function()
    local abort = { abort_on_loss = true }
    refuses({ '"abort_on_loss" is an option of client:with_lock, with_read_lock, with_write_lock, '
      .. 'with_fair_lock, lead, semaphore:with_permit and one_by_one:execute' }, client.lock, client, "k", abort)
    for name, run in pairs {
      with_lock = function() return client:with_lock("k", abort, 1) end,
      with_read_lock = function() return client:with_read_lock("k", abort, 1) end,
      with_write_lock = function() return client:with_write_lock("k", abort, 1) end,
      with_fair_lock = function() return client:with_fair_lock("k", abort, 1) end,
      lead = function() return client:lead("k", abort, 1) end,
      with_permit = function() return client:semaphore("k"):with_permit(abort, 1) end,
      execute = function() return client:one_by_one():execute("a", 1, abort, 1) end,
    } do assert.matches("fn must be a function", select(2, pcall(run)), name) end
    for _, call in ipairs { "fair_lock", "read_write_lock" } do
      refuses({ '"owner" is an option of client:lock' }, client[call], client, "k", { owner = "me" })
      refuses({ '"keep" is an option of client:lock' }, client[call], client, "k", { keep = 1 })
    end
    refuses({ '"max_hold" is an option of client:lock' }, holdfast.new, { max_hold = 60 })
    refuses({ '"prefix" is an option of holdfast.new' }, client.lock, client, "k", { prefix = "a" })
    refuses({ "an option of client:idempotent" }, client.with_lock, client, "k", { replay = true }, print)
    refuses({ "an option of client:lock" }, holdfast.new, { on_lost = print })
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
        refuses({ "client:" .. what, said }, client[what], client, name, print)
      end
      refuses({ "keys must be one" }, client.multi_lock, client, { "a", name })
      local biz_type, biz_id = name:match("^(%l+)_(.*)$")
      refuses({ "one_by_one:execute", said }, stock.execute, stock, biz_type, biz_id, print)
    end
    refuses({ 'not "redisson_lock_token:{v}"' }, short.lock, short, "token:{v}")
    assert.equal("my:redisson_lock_token:{v}",
      world.client({ prefix = "my:" }):lock("redisson_lock_token:{v}"):key())
    assert.equal("holdfast_once:job", client:lock("holdfast_once:job"):key())
  end)
end)

describe("a holdfast object", function()
  it("is named in the message if it is passed as a key", function()
    refuses({ "key must be a string.*, not a holdfast%.lock$" }, client.lock, client, lock)
    refuses({ ", not a holdfast%.semaphore$" }, client.lock, client, client:semaphore "s")
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
    for call, case in pairs {
      ["client:with_lock(key, { lease"] = { client.with_lock, client, "k", never, { lease = 5 } },
      ["client:with_read_lock(key, { wait"] = { client.with_read_lock, client, "k", never, { wait = 5 } },
      ["client:with_fair_lock(key, { wait"] = { client.with_fair_lock, client, "k", never, { wait = 5 } },
      ["client:idempotent(key, { expire"] = { client.idempotent, client, "k", never, { expire = 60 } },
      ["client:lead(key, { once"] = { client.lead, client, "k", never, { once = true } },
      ["client:once(key, period, { retry"] = { client.once, client, "k", 1, never, { retry = true } },
      ["one_by_one:execute(type, id, { queue"] = { queue.execute, queue, "a", 1, never, { queue = false } },
      ["semaphore:with_permit({ count"] = { permits.with_permit, permits, never, { count = 2 } },
      ["plain_semaphore:with_permit({ count"] = { plain.with_permit, plain, never, { count = 2 } },
    } do
      refuses({ "options come before the function, as in " .. call:gsub("%p", "%%%0") }, unpack(case))
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
    refuses({ "holdfast%.new", '"lease"' }, holdfast.new, "redis://h", { leese = 1 })
    refuses({ "holdfast%.new", "options", "table" }, holdfast.new, "redis://h", "tcp")
    assert.is_truthy(holdfast.new(("redis://g"):gsub("g", "h"))) -- gsub also returns a count
  end)

  it("refuses an empty resource of a fence, and an empty header to vary by", function()
    refuses({ "resource must be a non%-empty string or a function" }, holdfast.fence, { resource = "" })
    refuses({ "vary%[2%] must be a string" }, holdfast.idempotent_request, { vary = { "Accept", "" } })
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

describe("a method", function()
  it("cannot be replaced, nor can the metatable", function()
    assert.has_error(function() lock.acquire = nil end)
    assert.has_error(function() setmetatable(lock, {}) end)
    assert.is_string(getmetatable(lock))
  end)
end)

describe("a list of keys or locks", function()
  it("must have no holes and no other fields", function()
    local empty = setmetatable({}, { __len = function() return 3 end })
    for _, keys in pairs { { "a", nil, "c" }, { nil, "b" }, { "a", more = "b" }, empty } do
      refuses({ "client:multi_lock", "keys must be a list" }, client.multi_lock, client, keys)
    end
    refuses({ "holdfast.multi_lock", "locks must be a list" }, holdfast.multi_lock, { lock, nil, lock })
    refuses({ "servers must be a list" }, holdfast.new, { mode = "quorum", servers = { nil, "redis://h" } })
  end)

  it("is refused with the number of the element that is wrong", function()
    for text, keys in pairs {
      ["keys%[2%] must be a string of 1 to 1048576 bytes, not 1$"] = { "a", 1 },
      ['keys%[2%] must be a string of 1 to 1048576 bytes, not ""$'] = { "a", "" },
      ["keys must be a list of 1 to 1024 keys, not an empty table$"] = {},
      ["not a table with a hole at 2$"] = { "a", nil, "c" },
      ['not a table with the field "more"$'] = { "a", more = "b" },
      ['must be a list of 1 to 1024 keys, not "a"$'] = "a",
    } do refuses({ "client:multi_lock", text }, client.multi_lock, client, keys) end
    refuses({ 'locks%[2%] must be a holdfast.lock, not "k"$' }, holdfast.multi_lock, { lock, "k" })
    for text, servers in pairs {
      ["servers%[2%] must be a URL or { url = …, weight = …, name = … }, not 7$"] = { "redis://a", 7 },
      ["servers%[2%]%.weight must be .*1 to 100, not 0$"] = { "redis://a", { url = "redis://b", weight = 0 } },
      ['servers%[1%]%.name must be .*, not ""$'] = { { url = "redis://b", name = "" } },
      ["servers%[1%]%.url must be a URL, not nil$"] = { { weight = 1 } },
      ['servers%[1%] must be a URL or .*, not a table with the field "wieght"$'] = {
        { url = "redis://b", wieght = 1 },
      },
    } do refuses({ "holdfast.new", text }, holdfast.new, { mode = "shards", servers = servers }) end
  end)

  it("must not contain a key twice", function()
    refuses({ "client:multi_lock", '"a" is given twice' }, client.multi_lock, client, { "a", "b", "a" })
    refuses({ "holdfast.multi_lock", '"k" is given twice' }, holdfast.multi_lock, { lock, lock })
  end)
end)

describe("a message about an argument", function()
  it("names it as the manual does", function()
    refuses({ 'server_name must be a host name or an IP address, not ""' }, holdfast.new,
      { url = "rediss://h", tls = { server_name = "" } })
  end)

  it("shows its value, up to 40 bytes of a string, and never a password", function()
    for _, case in ipairs {
      { ("x"):rep(40), '"' .. ("x"):rep(40) .. '"' }, { ("x"):rep(41), "a string of 41 bytes" },
      { true, "true" }, { {}, "a table" }, { print, "a function" }, { client, "a holdfast.client" },
      { client:latch "l", "a holdfast.latch" },
      { setmetatable({}, { __name = "other" }), "a table" },
    } do
      refuses({ "lease must be .*, not " .. case[2] .. "$" }, client.lock, client, "k", { lease = case[1] })
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
    local runs = client:one_by_one()
    assert.equal("me", client:lock("k", with { owner = "me" }):owner())
    refuses({ "client:lock", "owner" }, client.lock, client, "k", with { owner = ("x"):rep(256) })
    refuses({ "client:with_lock", "lease" }, client.with_lock, client, "k", with { lease = -1 }, print)
    refuses({ "client:idempotent", "expire" }, client.idempotent, client, "k", with { expire = 0 }, print)
    refuses({ "execute", "wait" }, runs.execute, runs, "a", 1, with { wait = "1" }, print)
    for _, lease in ipairs { 1e10, huge, 0.0001 } do
      refuses({ "execute", "lease" }, runs.execute, runs, "a", 1, with { lease = lease }, print)
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
