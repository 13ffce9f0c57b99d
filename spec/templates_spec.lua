-- The templates on a real server: mutex, one_by_one, multi_lock, idempotent.

local fails = require "spec.support.fails"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local record = require "holdfast.record"
local redis = require "spec.support.redis"

describe("templates", function()
  local server, client, other

  setup(function() server = redis.start {} end)
  teardown(function() server:stop() end)

  before_each(function()
    server:cli("FLUSHALL")
    client, other = holdfast.new(server:url()), holdfast.new(server:url())
  end)

  after_each(function()
    client:close()
    other:close()
    process.wait_until(function() return #server:cli("PUBSUB", "CHANNELS") == 0 end, 20)
    assert.same({}, server:cli("PUBSUB", "CHANNELS"))
    assert.same({}, server:cli("KEYS", "holdfast_queue:*"))
  end)

  -- Starts a program with the server's URL and its number.
  local function program(code, number)
    return process.lua { code = code, args = { server:url(), tostring(number) } }
  end

  local function comes_to_wait(key, count)
    assert.truthy(process.wait_until(function()
      return server:cli("ZCOUNT", ("holdfast_queue:{%s}"):format(key), "(0", "+inf") == count
    end, 20))
  end

  -- Starts `count` processes that each run `code`, and waits for all of them.
  local function run_processes(count, code, seconds)
    local all, outputs = {}, {}
    for i = 1, count do all[i] = program(code, i) end
    for i, each in ipairs(all) do
      local how, status = each:wait(seconds)
      assert.equal("exit 0", tostring(how) .. " " .. tostring(status), each:output())
      outputs[i] = each:output()
    end
    return outputs
  end

  describe("mutex", function()
    it("is stored as SET NX PX would store it, as a string with the owner and a TTL", function()
      local mutex = assert(client:mutex("m", { lease = 5 }):acquire())
      assert.equal(mutex:owner(), server:cli("GET", "m"))
      local ttl = server:cli("PTTL", "m")
      assert.is_true(ttl > 0 and ttl <= 5000)
      assert.is_true(mutex:release())
      assert.equal(0, server:cli("EXISTS", "m"))
    end)

    it("polls while a client of another library holds it, and acquires soon after the release", function()
      server:cli("SET", "m", "somebody", "NX", "PX", "60000")
      fails("busy", client:mutex("m"):try_acquire())
      local waiter = program [[
        local client = require("holdfast").new(arg[1])
        print(client:mutex("m"):acquire(20) and "in")
        client:close()
      ]]
      comes_to_wait("m", 1)
      local before = server:cli("INFO", "commandstats"):match("cmdstat_evalsha:calls=(%d+)")
      server:cli("DEL", "m")
      assert.truthy(waiter:wait_output("in", 20))
      assert.equal("exit", (waiter:wait(20)))
      assert.is_true(tonumber(before) < 200)
    end)
  end)

  describe("one_by_one", function()
    it("runs under the key prefix .. type .. \"_\" .. id, and returns all results", function()
      local template = client:one_by_one { prefix = "p:" }
      local key, a, b, c = template:execute("order", 42, function(lock, x)
        return lock:key(), x, nil, 3
      end, "arg")
      assert.same({ "p:order_42", "arg", nil, 3 }, { key, a, b, c })
      assert.equal(0, server:cli("EXISTS", "p:order_42"))
    end)

    it("converts a numeric id to the same key in every Lua version", function()
      local template = client:one_by_one()
      for _, case in ipairs {
        { "order", 123456789012345, "order_123456789012345" },
        { "order", 123456789012346, "order_123456789012346" },
        { "order", 2 ^ 53, "order_9007199254740992" }, { "order", -7, "order_-7" },
        { "order", 1.5, "order_1.5" }, { 7.0, 84 / 2, "7_42" }, { 7.0, "42", "7_42" }, { 7.0, 42, "7_42" },
        { "t", -0.0, "t_0" },
      } do
        local function key(lock) return lock:key() end
        assert.equal(case[3], template:execute(case[1], case[2], key))
      end
    end)

    it("shows only the beginning of a long id in messages, and escapes control characters", function()
      for _, case in ipairs {
        { "t", ("x"):rep(1000), "type=t id=" .. ("x"):rep(60) .. "..." },
        { "t", ("x"):rep(60), "type=t id=" .. ("x"):rep(60) },
        { "t\27[2J", "i\r\255", "type=t\\x1b[2J id=i\\x0d\\xff" },
      } do
        client:one_by_one():execute(case[1], case[2], function()
          assert.equal(("one_by_one: %s: already running"):format(case[3]),
            fails("busy", other:one_by_one({ queue = false }):execute(case[1], case[2], error)))
        end)
      end
    end)

    it("replaces a lease or wait of 0 or less by its default of 30 s or 10 s", function()
      local ttl
      client:one_by_one({ lease = 0, wait = -1 }):execute("t", "1", { lease = -5 }, function()
        ttl = server:cli("PTTL", "t_1")
      end)
      assert.is_true(ttl > 29000 and ttl <= 30000)
    end)

    it("prefers a call's options to those of the object", function()
      local function ttl_in(template, opts)
        return template:execute("t", 1, opts, function() return server:cli("PTTL", "t_1") end)
      end
      local template = client:one_by_one { lease = 90, queue = false }
      for lease, most in pairs { [5] = 5000, [0] = 90000, [-1] = 90000, [200] = 200000 } do
        local ttl = ttl_in(template, { lease = lease })
        assert.is_true(ttl > most - 4000 and ttl <= most, ttl)
      end
      local held = assert(other:mutex("t_1", { lease = 0.3 }):acquire())
      fails("busy", template:execute("t", 1, { wait = 20 }, error))
      fails("busy", client:one_by_one():execute("t", 1, { queue = false }, error))
      assert.is_true(template:execute("t", 1, { queue = true, wait = 20 }, function() end))
      held:release()
    end)

    it("does not renew a run whose lease was given in the call", function()
      fails("lost", client:one_by_one():execute("t", 1, { lease = 0.3 }, function()
        process.wait_until(function() return server:cli("EXISTS", "t_1") == 0 end, 20)
      end))
    end)

    it("fails as busy with type and id if a run is in progress, without running the function", function()
      local ran = false
      local function run() ran = true end
      client:one_by_one():execute("order", 42, function()
        assert.equal("one_by_one: type=order id=42: already running",
          fails("busy", other:one_by_one():execute("order", 42, { wait = 0.1 }, run)))
        fails("busy", other:one_by_one { queue = false }:execute("order", 42, run))
      end)
      assert.is_false(ran)
    end)
  end)

  describe("multi_lock", function()
    it("accepts 1,000 keys", function()
      local keys = {}
      for i = 1, 1000 do keys[i] = "k" .. i end
      local all = assert(client:multi_lock(keys):acquire())
      assert.is_true(all:is_held())
      assert.equal("busy", select(3, other:lock("k777"):try_acquire()))
      assert.is_true(all:release())
      assert.equal(0, server:cli("EXISTS", "k1", "k777", "k1000"))
    end)

    it("reports the loss of one of its locks", function()
      local all = assert(client:multi_lock({ "a", "b" }):acquire())
      server:cli("DEL", "b")
      fails("lost", all:check())
      assert.same({ "deleted", "b" }, { all:lost() })
      assert.same({ "nil", false }, { tostring(client:multi_lock({ "c" }):lost()), all:is_held() })
      all:release()
      assert.equal(0, server:cli("EXISTS", "a"))
    end)
  end)

  describe("idempotent", function()
    local function twice() error "twice" end

    it("returns its owner in info, however long the fingerprint is", function()
      for i = 1, 40 do -- a long value makes the server order the fields at random
        local key = "long" .. i
        local opts = { fingerprint = ("9"):rep(65), expire = 0.01 }
        assert.equal(1, client:idempotent(key, opts, function()
          local info = other:lock(key):info()
          return info.owner and info.owner:find("^%x+%-") and info.holds
        end))
      end
    end)

    it("runs once; a duplicate gets the message given in info", function()
      local runs = 0
      local function run(x) runs = runs + 1 return x, nil, 7 end
      assert.same({ "a", nil, 7 }, { client:idempotent("k", run, "a") })
      assert.same({ nil, "again?", "duplicate" },
        { other:idempotent("k", { info = "again?" }, run, "a") })
      fails("duplicate", client:idempotent("k", run, "a"))
      assert.equal(1, runs)
      local ttl = server:cli("PTTL", "k")
      assert.is_true(ttl > 0 and ttl <= 1000)
      assert.truthy(process.wait_until(function() return server:cli("EXISTS", "k") == 0 end, 20))
      assert.equal("b", (client:idempotent("k", run, "b")))
    end)

    it("replays the first run's results", function()
      local first = { client:idempotent("k", { replay = true, expire = 60 }, function()
        return 1, nil, "two\0", { 3, x = { true, false } }, 2.5, nil
      end) }
      local again = { other:idempotent("k", { replay = true }, twice) }
      assert.same(first, again)
      assert.equal(6, select("#", other:idempotent("k", { replay = true }, function() end)))
    end)

    it("leaks no memory when it replays", function()
      if process.build ~= "./build" then return end -- a sanitizer keeps what is freed
      local function memory() return tonumber(io.open("/proc/self/statm"):read("*a"):match("^%d+ (%d+)")) / 256 end
      local opts, text = { replay = true, expire = 60 }, ("x"):rep(50000)
      local function again() return client:idempotent("k", opts, function() return text end) end
      for _ = 1, 100 do again() end
      collectgarbage()
      local before = memory()
      for _ = 1, 1000 do again() end
      collectgarbage()
      assert.is_true(memory() - before < 20)
    end)

    it("replays true for a function without results, and nil for an explicit nil", function()
      local opts = { replay = true, expire = 60 }
      assert.is_true(assert(client:idempotent("nothing", opts, function() end)))
      assert.is_true(assert(other:idempotent("nothing", opts, twice)))
      for _, each in ipairs { client, other } do
        assert.equal(1, select("#", each:idempotent("nil", opts, function() return nil end)))
      end
    end)

    it("runs once even if its results cannot be encoded, and replays nothing", function()
      assert.equal(print, (client:idempotent("k", { replay = true }, function() return print end)))
      fails("duplicate", other:idempotent("k", { replay = true }, twice))
      local endless, deep = {}, {}
      endless[1] = endless
      for _ = 1, 32 do deep = { deep } end
      for name, result in pairs {
        long = ("x"):rep(70000), endless = endless, deep = deep, object = setmetatable({}, {}),
        inside = { { print } }, infinite = math.huge, least = -math.huge, nan = 0 / 0,
      } do
        client:idempotent(name, { replay = true }, function() return result end)
        fails("duplicate", other:idempotent(name, { replay = true }, twice))
      end
    end)

    it("replays fractions, -0 and tiny numbers exactly, and whole numbers with their subtype", function()
      for i, number in ipairs {
        0.1, 1 / 3, 123456789.12345678, 2 ^ 53 - 1, -2.0, 2.0, 2, 5e-324, 1e308, -0.0,
      } do
        client:idempotent("k" .. i, { replay = true }, function() return number end)
        local again = other:idempotent("k" .. i, { replay = true }, error)
        assert.equal(number, again)
        assert.equal(("%.17g"):format(number), ("%.17g"):format(again))
        if math.type then assert.equal(math.type(number), math.type(again)) end
      end
    end)

    it("replays nothing from a damaged record", function()
      for _, text in ipairs { "S9:short", "S:x", "Sx", "D1", "Dx;", "{", "{T", "{NT}", "X", "TT}" } do
        client:idempotent("k", { replay = true, expire = 60 }, function() return 1 end)
        server:cli("HSET", "k", "done", "R" .. text)
        local none, _, code = client:idempotent("k", { replay = true }, error)
        assert.message(text).same({ nil, "duplicate" }, { none, code })
      end
    end)

    it("encodes tables nested up to 32 levels deep", function()
      local function nested(depth)
        local all = {}
        for _ = 2, depth do all = { all } end
        return all
      end
      assert.same({ nested(32), n = 1 }, record.decode(record.encode(1000, nested(32))))
      assert.is_nil(record.encode(1000, nested(33)))
    end)

    it("stops encoding results as soon as they are too long", function()
      local opts, line = { replay = true, expire = 60 }, ("x"):rep(10000)
      local wide, nested = {}, {}
      for i = 1, 4000 do wide[i] = line end
      for _ = 1, 16 do nested = { nested, nested } end
      for i, results in ipairs { wide, nested } do
        collectgarbage()
        collectgarbage("stop")
        local before = collectgarbage("count")
        local result = client:idempotent("wide" .. i, opts, function() return results end)
        local kilobytes = collectgarbage("count") - before
        collectgarbage("restart")
        assert.equal(results, result)
        assert.is_true(kilobytes < 4000, kilobytes .. " KB")
        fails("duplicate", other:idempotent("wide" .. i, opts, error))
      end
    end)

    it("replays results of up to 64 KiB", function()
      for i, size in ipairs { 65536 - 7, 65536 - 6 } do -- "S65529:" precedes the bytes
        local text = ("x"):rep(size)
        client:idempotent("full" .. i, { replay = true, expire = 60 }, function() return text end)
        local again, _, code = other:idempotent("full" .. i, { replay = true }, error)
        assert.same(i == 1 and { text } or { nil, "duplicate" }, { again, code })
      end
    end)

    it("runs once for 20 processes, which all get the same results", function()
      local outputs = run_processes(20, [[
        local client = require("holdfast").new { url = arg[1], command_timeout = 30 }
        local store = require("spec.support.resp").connect { path = arg[1]:match("unix://(.+)") }
        print(client:idempotent("k", { replay = true, wait = 30, expire = 300 }, function()
          require("spec.support.sys").sleep(0.05)
          return "answer", store:call("INCR", "runs")
        end))
        client:close()
      ]], 60)
      assert.equal("1", server:cli("GET", "runs"))
      for _, output in ipairs(outputs) do assert.equal("answer\t1\n", output) end
    end)
  end)
end)
