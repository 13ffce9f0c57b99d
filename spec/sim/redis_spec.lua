-- What the small Redis promises its callers in addition to equal replies: time, faults, restarts,
-- cuts, and where errors are reported.

local Prng = require "spec.sim.prng"
local Redis = require "holdfast.testing.redis"
local glob = require "holdfast.testing.redis.glob"
local resp = require "holdfast.testing.redis.resp"
local sha1 = require("holdfast.core").sha1

describe("the small Redis", function()
  local now, server, client

  before_each(function()
    now = 1700000000000000
    server = Redis.new { now = function() return now end }
    client = server:connect(function() end)
  end)

  local function call(...) return client:call { ... } end

  it("expires keys after their last millisecond", function()
    call("SET", "k", "v", "PX", "10")
    now = now + 10999
    assert.equal("v", call("GET", "k"))
    assert.equal(0, call("PTTL", "k"))
    now = now + 1
    assert.is_false(call("GET", "k"))
    assert.equal(-2, call("PTTL", "k"))
    assert.equal(0, call("DBSIZE"))
  end)

  it("does not let time pass while a script runs", function()
    server.clock = function() now = now + 7 return now end
    assert.equal(1, call("EVAL", [[
      local a, b = redis.call('TIME'), redis.call('TIME')
      return a[1] == b[1] and a[2] == b[2]
    ]], "0"))
  end)

  it("returns the same replies however a request is split", function()
    local bytes = resp.command { "SET", "k", "a\r\nb" } .. resp.command { "GET", "k" }
      .. resp.command { "NOPE" }
    local whole = client:feed(bytes)
    assert.matches("^%+OK\r\n%$4\r\na\r\nb\r\n%-ERR unknown", whole)
    local parts = {}
    for i = 1, #bytes do parts[i] = client:feed(bytes:sub(i, i)) end
    assert.equal(whole, table.concat(parts))
  end)

  it("closes a connection that breaks the protocol", function()
    assert.equal("-ERR Protocol error: expected '$', got ':'\r\n", client:feed("*1\r\n:1\r\n"))
    assert.is_true(client.closed)
    assert.equal("", client:feed("*1\r\n"))
  end)

  it("delivers messages only after the script that published them", function()
    local got = {}
    local listener = server:connect(function(bytes) got[#got + 1] = bytes end)
    listener:call { "SUBSCRIBE", "c" }
    assert.equal(1, call("EVAL", "return redis.call('PUBLISH', 'c', 'x')", "0"))
    assert.same({ resp.encode { "message", "c", "x" } }, got)
    listener:close()
    assert.equal(0, call("PUBLISH", "c", "x"))
  end)

  it("tells clients that it disconnects", function()
    local closed = 0
    local other = server:connect(function() end, function() closed = closed + 1 end)
    other:call { "SUBSCRIBE", "c" }
    assert.equal(1, call("CLIENT", "KILL", "TYPE", "pubsub"))
    assert.equal(1, closed)
    assert.same({}, call("PUBSUB", "CHANNELS"))
    assert.is_nil(other:call { "PING" })
  end)

  it("restarts with or without its data, and always without its scripts", function()
    call("SET", "k", "v")
    local sha = call("SCRIPT", "LOAD", "return 1")
    server:restart { keep_data = true }
    assert.is_true(client.closed)
    client = server:connect(function() end)
    assert.equal("v", call("GET", "k"))
    assert.matches("^NOSCRIPT", call("EVALSHA", sha, "0").err)
    server:restart()
    client = server:connect(function() end)
    assert.is_false(call("GET", "k"))
  end)

  it("refuses commands before its password was given", function()
    server = Redis.new { now = function() return now end, password = "secret" }
    client = server:connect(function() end)
    assert.matches("^NOAUTH", call("GET", "k").err)
    assert.matches("^WRONGPASS", call("AUTH", "wrong").err)
    assert.same({ ok = "OK" }, call("AUTH", "default", "secret"))
    assert.is_false(call("GET", "k"))
  end)

  it("fails commands as its configured faults say", function()
    local function fault(name, command, code)
      server.faults = { deny = {}, [name] = true }
      assert.matches("^" .. code, client:call(command).err)
    end
    fault("oom", { "SET", "k", "v" }, "OOM ")
    fault("readonly", { "DEL", "k" }, "READONLY ")
    fault("noreplicas", { "DEL", "k" }, "NOREPLICAS ")
    fault("loading", { "PING" }, "LOADING ")
    fault("noauth", { "GET", "k" }, "NOAUTH ")
    fault("busy", { "GET", "k" }, "BUSY ")
    fault("deny_channels", { "PUBLISH", "c", "x" }, "NOPERM ")
    server.faults = { deny = { hset = true } }
    assert.matches("^NOPERM .*'hset'", call("HSET", "h", "f", "1").err)
    assert.matches("^ERR The user executing the script can't run",
      call("EVAL", "return redis.call('HSET', 'h', 'f', 1)", "0").err)
  end)

  it("refuses a script for lack of memory only before its first write", function()
    server.faults = { deny = {}, oom = true }
    assert.matches("^OOM ", call("EVAL", "redis.pcall('SET', 'k', 1) return redis.call('SET', 'k', 1)", "0").err)
    assert.same({ ok = "OK" }, call("EVAL",
      "redis.call('DEL', 'k') return redis.call('SET', 'k', 1)", "0"))
  end)

  it("refuses a script for missing replicas or snapshots only before its first write", function()
    for _, name in ipairs { "noreplicas", "misconf" } do
      server.faults = { deny = {}, [name] = true }
      assert.matches("^" .. name:upper(), call("EVAL", "return redis.call('DEL', 'k')", "0").err)
      assert.equal(1, call("EVAL", "redis.call('GET', 'k') return 1", "0"))
    end
  end)

  it("raises an error for what it does not support, even through a script that catches errors", function()
    assert.error_matches(function()
      call("ZRANGE", "z", "0", "-1", "BYSCORE")
    end, "not in the small Redis")
    assert.error_matches(function()
      call("EVAL", "pcall(redis.call, 'ZRANGE', 'z', 0, -1, 'BYSCORE') return 1", "0")
    end, "not in the small Redis")
  end)

  it("makes no distinction between integers and floats in scripts", function()
    assert.same({ "1e+15", "9.007199254741e+15", "(5", "3x", "5", "7", "0.1", "1 2.5",
      "1700000000000000" },
      call("EVAL", [[
        redis.call('SET', 'n', redis.call('TIME')[1] * 1000000)
        return { 1e15 .. '', 2^53 .. '', '(' .. 5, #'abc' .. 'x', 10 / 2 .. '', tostring(math.floor(7.5)),
          .1 .. '', table.concat({ 1, 2.5 }, ' '), redis.call('GET', 'n') }
      ]], "0"))
  end)

  it("refuses scripts with syntax that Lua 5.1 lacks", function()
    for _, text in ipairs { "return 1 & 2", "return 7 // 2", "return ~1", "return 1 << 2" } do
      assert.matches("^ERR Error compiling script", call("EVAL", text, "0").err)
    end
  end)

  it("treats the text of a string in a script as data and not as code", function()
    assert.same({ "a..b", "#c -- 1", "1 .. 2]]", "'\\" }, call("EVAL",
      "return { 'a..b', \"#c -- 1\", [==[1 .. 2]]]==], '\\'\\\\' } -- #x .. 1", "0"))
  end)
end)

describe("globs", function()
  local function check(pattern, text, expected)
    it(pattern .. (expected and " matches " or " does not match ") .. text, function()
      assert.equal(expected, glob(pattern, text))
    end)
  end
  check("h?llo*", "hello world", true)
  check("h[ae]llo", "hillo", false)
  check("h[^e]llo", "hallo", true)
  check("h[z-a]llo", "hello", true)
  check("a\\*b", "a*b", true)
  check("a\\*b", "axb", false)
  check("[a", "a", true)
  check("a**", "a", true)
  check("", "a", false)
end)

describe("sha1", function()
  it("computes the digests that the standard lists", function()
    assert.equal("da39a3ee5e6b4b0d3255bfef95601890afd80709", sha1(""))
    assert.equal("a9993e364706816aba3e25717850c26c9cd0d89d", sha1("abc"))
    assert.equal("84983e441c3bd26ebaae4aa1f95129e5e54670f1",
      sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))
  end)
end)

describe("the random numbers", function()
  it("are the same in every Lua version", function()
    local prng, list = Prng.new(1), {}
    for i = 1, 1000 do list[i] = ("%.0f"):format(prng:next()) end
    assert.equal("913763278", list[1])
    assert.equal("a2dea3572076b705ccb91fce521c1a292adca070", sha1(table.concat(list, " ")))
  end)
end)
