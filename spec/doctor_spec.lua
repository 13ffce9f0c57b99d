-- `holdfast doctor`: planted faults are reported, and healthy servers are not blamed.

local acl = require "holdfast.command.acl"
local certificates = require "spec.support.certificates"
local command = require "spec.support.command"
local fake = require "spec.support.fake"
local files = require "spec.support.files"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local function healthy(more)
  local options = { persist = true, conf = { "tcp-keepalive 60" } }
  for name, value in pairs(more or {}) do options[name] = value end
  return redis.start(options)
end

-- → the checks of the last run by their state: found.hurts = { { check, text, advice }, … }
local function read(output)
  local found = { hurts = {}, fine = {}, unknown = {} }
  for line in output:gmatch("[^\n]+") do
    local check, state = line:match('"check":"(%a+)","state":"(%a+)"')
    assert(check, output)
    local list = found[state]
    list[#list + 1] = { check = check, text = line:match('"text":"(.-)"[,}]'), advice = line:match('"advice":"(.-)"') }
  end
  return found
end

-- Runs the doctor. → what it found, its exit code
local function visit(where, ...)
  local code, output = command.run(nil, { "doctor", "--json", where, ... })
  return read(output), code
end

-- Asserts that the check reports a text that matches the pattern.
local function assert_hurts(found, check, text)
  for _, one in ipairs(found.hurts) do
    if one.check == check and one.text:find(text) then return end
  end
  local said = {}
  for _, one in ipairs(found.hurts) do said[#said + 1] = one.check .. ": " .. one.text end
  error(("%s does not say %q, only:\n%s"):format(check, text, table.concat(said, "\n")), 2)
end

local function assert_unknown(found, check)
  for _, one in ipairs(found.unknown) do
    if one.check == check then return end
  end
  error(check .. " is not listed as not known", 2)
end

local CONFIG = "CONFIG"

describe("holdfast doctor", function()
  local server
  setup(function() server = healthy() end)
  teardown(function() server:stop() end)

  -- More servers. after_each stops them, also if the test fails.
  local others = {}
  local function another(more)
    others[#others + 1] = healthy(more)
    return others[#others]
  end
  after_each(function() while others[1] do table.remove(others):stop() end end)

  local function set(name, value) assert.equal("OK", server:cli(CONFIG, "SET", name, value)) end

  -- Calls block() with this setting, then restores the old one.
  local function with(name, value, block)
    local before = server:cli(CONFIG, "GET", name)[2]
    set(name, value)
    local ok, why = pcall(block)
    set(name, before)
    if not ok then error(why, 0) end
  end

  it("finds no fault in a healthy server", function()
    local found, code = visit(server:url(), "--kinds", "all")
    assert.same({}, found.hurts)
    if redis.major() >= 7 then assert.same({}, found.unknown) end
    assert.equal(0, code)
  end)

  it("prints version, replicas and round trip of the server, and how to fix a fault", function()
    with("maxmemory", "100mb", function()
      with("maxmemory-policy", "allkeys-lru", function()
        local code, output = command.run(server, { "doctor" })
        assert.equal(1, code)
        assert.matches("%a+ [%d.]+, standalone, no replica; round trip [%d.]+ ms", output)
        assert.matches("will hurt: eviction: maxmemory%-policy is allkeys%-lru", output)
        assert.matches("→ CONFIG SET maxmemory%-policy noeviction", output)
        assert.matches("fine: memory, ", output)
      end)
    end)
  end)

  it("writes nothing without --try, and with it only keys that expire soon", function()
    server:cli "FLUSHALL"
    visit(server:url(), "--kinds", "all")
    assert.same({}, server:cli("KEYS", "*"))
    local found, code = visit(server:url(), "--kinds", "all", "--try")
    assert.same({}, found.hurts)
    assert.equal(0, code)
    for _, key in ipairs(server:cli("KEYS", "*")) do
      local ttl = server:cli("TTL", key)
      assert.is_true(ttl > 0 and ttl <= 300, key)
    end
  end)

  for _, row in ipairs {
    { "eviction", { "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru" }, "allkeys%-lru" },
    { "eviction", { "maxmemory", "100mb", "maxmemory-policy", "volatile-ttl" }, "volatile%-ttl" },
    { "memory", { "maxmemory", "1mb" }, "of maxmemory is used" },
    { "connections", { "timeout", "5" }, "timeout is 5 s" },
    { "connections", { "tcp-keepalive", "0" }, "tcp%-keepalive is 0" },
    { "connections", { "tcp-keepalive", "3600" }, "tcp%-keepalive is 3600" },
    { "persistence", { "appendonly", "no" }, "nothing is written to disk" },
    { "replicas", { "min-replicas-to-write", "1" }, "0 of min%-replicas%-to%-write 1" },
  } do
    local check, given, text = row[1], row[2], row[3]
    it(("names %s of %s"):format(check, table.concat(given, " ")), function()
      local function planted(i, block)
        if not given[i] then return block() end
        with(given[i], given[i + 1], function() planted(i + 2, block) end)
      end
      planted(1, function()
        local found, code = visit(server:url())
        assert_hurts(found, check, text)
        assert.equal(1, code)
      end)
    end)
  end

  it("accepts any eviction policy on a server without a memory limit", function()
    with("maxmemory-policy", "allkeys-lru", function()
      assert.equal(0, select(2, visit(server:url())))
    end)
  end)

  it("names failed snapshots", function()
    local lost = another { persist = false, conf = { "tcp-keepalive 60", "save 3600 1" } }
    process.succeeds("mkdir " .. lost.directory .. "/dump.rdb")
    lost:cli "BGSAVE"
    assert(process.wait_until(function()
      return lost:cli("INFO", "persistence"):find("rdb_last_bgsave_status:err", 1, true)
    end, 20))
    assert_hurts(visit(lost:url()), "persistence", "MISCONF")
  end)

  it("names a quorum server that can forget votes, unless the restart guard is set", function()
    local other = another()
    with("appendfsync", "everysec", function()
      assert_hurts(visit(server:url(), other:url()), "persistence", "majority")
      assert.equal(0, select(2, visit(server:url(), other:url(), "--restart-guard", "30")))
    end)
    assert.equal(0, select(2, visit(server:url(), other:url())))
  end)

  it("names a maxclients limit that is nearly reached", function()
    local crowded = another { conf = { "tcp-keepalive 60", "maxclients 40" } }
    local guests = {} -- these leave room for the doctor itself
    for i = 1, 33 do guests[i] = assert(resp.connect { path = crowded.path }) end
    local found = visit(crowded:url())
    for _, guest in ipairs(guests) do guest:close() end
    assert_hurts(found, "connections", "%d+ of maxclients 40 are connected")
  end)

  it("names a replica, and a primary that needs its last replica", function()
    local primary = another { tcp = true }
    local replica = another { replica_of = primary }
    assert(process.wait_until(function()
      return primary:cli("INFO", "replication"):find("state=online", 1, true)
    end, 40))
    primary:cli(CONFIG, "SET", "min-replicas-to-write", "1")
    assert_hurts(visit(primary:url()), "replicas", "only min%-replicas%-to%-write 1")
    assert_hurts(visit(replica:url()), "topology", "READONLY")
  end)

  it("names a cluster node behind a single-server URL, and a failed cluster", function()
    local node = another { cluster = true }
    local found = visit(node:url())
    assert_hurts(found, "topology", "MOVED")
    assert_hurts(found, "topology", "CLUSTERDOWN")
  end)

  it("names a clock that is far ahead of or behind this host's", function()
    local far = another { clock = true }
    for _, ahead in ipairs { 60, -60 } do
      far:set_clock(ahead)
      assert_hurts(visit(far:url()), "clock", ahead > 0 and "60.0 s ahead of" or "60.0 s behind")
    end
  end)

  it("names a script that was too slow for the given lease, and no other", function()
    server:cli(CONFIG, "SET", "slowlog-log-slower-than", "1000")
    server:cli("EVAL", "for i = 1, 4e6 do end", "0") -- more than 4 ms, and less than 1 s, on any machine
    local found, _, code = visit(server:url(), "--lease", "0.1"), visit(server:url())
    server:cli("SLOWLOG", "RESET")
    assert_hurts(found, "speed", "EVAL took %d+ ms within")
    assert.equal(0, code)
  end)

  describe("of TLS certificates", function()
    local made
    setup(function() made = certificates.make() end)

    -- → what the doctor finds when the certificates of server and client end after these days
    local function found_with(days_of_server, days_of_client)
      local own = made.ending(days_of_server)
      local client = made.ending(days_of_client)
      local secure = another {
        tls = { cert = own.cert, key = own.key, ca = made.ca.cert, clients = "yes" },
      }
      return visit(secure:tls_url(), "--ca", made.ca.cert, "--cert", client.cert, "--key", client.key)
    end

    for whose, days in pairs { server = { 5, 300 }, client = { 300, 5 } } do
      it(("names a %s certificate that expires soon"):format(whose), function()
        assert_hurts(found_with(days[1], days[2]), "certificates", "expires in [45]%.%d days")
      end)
    end

    it("finds no fault in certificates that last long enough", function()
      assert.same({}, found_with(300, 300).hurts)
    end)
  end)

  describe("of ACL rights", function()
    after_each(function() server:cli("ACL", "DELUSER", "worker") end)

    local function url_of(...)
      assert.equal("OK", server:cli("ACL", "SETUSER", "worker", "on", ">secret", ...))
      return (server:url():gsub("://", "://worker:secret@"))
    end

    it("names each command that the user may not run", function()
      local url = url_of("~*", "&*", "+@all", "-zadd", "-publish", "-evalsha")
      local found = visit(url)
      for _, name in ipairs { "zadd", "publish", "evalsha" } do assert_hurts(found, "rights", name) end
    end)

    it("reports the checks whose commands the server refuses as unknown, and no others", function()
      local found = visit(url_of("~*", "&*", "+@all", "-config", "-slowlog"))
      local unknown = {}
      for _, one in ipairs(found.unknown) do
        unknown[#unknown + 1] = one.check .. " " .. one.text:match("answer (%u+)")
      end
      assert.same({ "connections CONFIG", "speed SLOWLOG" }, unknown)
    end)

    it("names the faults that it can see even if one command is refused", function()
      set("maxmemory", "1mb")
      local found = visit(url_of("~*", "&*", "+@all", "-config"))
      set("maxmemory", "0")
      assert_hurts(found, "memory", "of maxmemory is used")
    end)

    it("names a key that the user may not access", function()
      assert_hurts(visit(url_of("~jobs:*", "&*", "+@all"), "--prefix", "shop:"), "rights", "shop:")
    end)

    it("names an internal key that the user may not access", function()
      local function visited(...) return visit(url_of("&*", "+@all", ...), "--prefix", "shop:[a]", "--kinds", "all") end
      assert_hurts(visited "~shop:*", "rights", "redisson_lock_token:{shop:%[a%]")
      local keys = {}
      for _, word in ipairs(acl.rule_words("shop:[a]", { kinds = acl.kinds })) do
        if word:find "^~" then keys[#keys + 1] = word end
      end
      assert.same({}, visited((table.unpack or unpack)(keys)).hurts)
    end)

    it("reports rights as unknown if the server hides them, until --try shows the fault", function()
      local url = url_of("~*", "&*", "+@all", "-acl", "-hset")
      assert_unknown(visit(url), "rights")
      assert_hurts(visit(url, "--try"), "try", "cannot acquire")
    end)

    it("names what --try may not do for each kind of lock", function()
      for kind, without in pairs { latch = "-set", semaphore = "-incrby", fair = "-hset" } do
        server:cli("ACL", "DELUSER", "worker")
        local url = url_of("~*", "&*", "+@all", without)
        assert_hurts(visit(url, "--try", "--kinds", kind), "try", kind)
      end
    end)
  end)

  describe("of a server's replies", function()
    local other
    after_each(function() other.stop() end)

    local BASE = "redis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\nconnected_clients:1\r\n"
      .. "maxclients:100\r\nmaxmemory:0\r\nused_memory:1\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"

    -- `reply` answers all commands except logins and INFO.
    local function telling(more, reply, ...)
      other = fake.server { reply = reply or "+PONG\r\n", login = true, info = BASE .. more }
      return visit(other.url, ...)
    end

    it("sends one command per check to a server that replies only to INFO #check", function()
      other = fake.server { reply = "", login = true, info = BASE .. "rdb_last_bgsave_status:err\r\n" }
      local settings = process.directory() .. "/hasty.conf"
      files.write(settings, "command_timeout = 0.3\n")
      local code, output = command.run(nil, {
        "doctor", "--json", "--lease", "1s", other.url, env = { HOLDFAST_CONFIG = settings },
      })
      local found = read(output)
      assert.equal(1, code)
      assert_hurts(found, "speed", "slowest of 1 round trips")
      assert_hurts(found, "persistence", "the last snapshot failed")
      assert_unknown(found, "clock")
      assert_unknown(found, "rights")
    end)

    it("names a server with a bug that lets users change each other's scripts", function()
      assert_hurts(telling("", ":1\r\n", "--tenant", "shop:"), "tenants", "CVE%-2025%-46818")
      other.stop()
      assert.same({}, telling("", ":0\r\n", "--tenant", "shop:").hurts)
    end)

    for _, reply in ipairs { "$-1\r\n", "*0\r\n", "*2\r\n:1\r\n*1\r\n:2\r\n" } do
      it("reports checks as unknown after a nonsensical reply: " .. reply:gsub("\r\n", " "), function()
        local found = telling("", reply)
        assert_unknown(found, "clock")
        assert_unknown(found, "rights")
      end)
    end

    for what, case in pairs {
      ["a replica that lags"] = { "replicas", "10%.0%.0%.7:6379 lags",
        "connected_slaves:1\r\nslave0:ip=10.0.0.7,port=6379,state=online,offset=1,lag=60\r\n" },
      ["a server that uses nearly all of the host's memory"] = { "memory", "95 %% of the host's memory",
        "used_memory_rss:95\r\ntotal_system_memory:100\r\n" },
      ["a clock that jumps"] = { "clock", "moved by %d+.0 s while", "", "*2\r\n:<n>000\r\n:0\r\n" },
      ["an address behind which several servers reply"] = { "topology", "%d different servers",
        "run_id:<fd>\r\n" },
    } do
      it("names " .. what, function() assert_hurts(telling(case[3], case[4]), case[1], case[2]) end)
    end
  end)

  it("names an unreachable server among several, and exits with 69 if it is the only one", function()
    local code, output = command.run(nil, { "doctor", "--restart-guard", "30", server:url(), "unix:///no/such.sock" })
    assert.equal(1, code)
    assert.matches("such%.sock", output)
    assert.matches("standalone", output)
    assert.equal(69, (command.run(nil, { "doctor", "unix:///no/such.sock" })))
  end)

  it("rejects invalid options", function()
    for _, words in ipairs { { "--kinds", "rabbit" }, { "--lease", "0" }, { "nonsense" }, { "--prefix", "h" } } do
      assert.equal(64, (command.run(server, { "doctor", (table.unpack or unpack)(words) })), words[1])
    end
  end)
end)
