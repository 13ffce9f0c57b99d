-- The binding, with a client whose clock and sockets belong to the test: settings of locks and
-- clients.

local core = require "holdfast.core"
local driven = require "spec.support.driven"

local raw, engine, operation = core.lock, core.engine, core.operation
local hold = driven.hold
local near, new, server = driven.near, driven.new, driven.server

setup(driven.begin)
teardown(driven.finish)
before_each(driven.open)
after_each(driven.close)

local ENTROPY = ("e"):rep(24)

-- Returns the words after the keys of the last command that runs a program.
local function last_arguments(one)
  local found = {}
  for _, words in ipairs(one:commands()) do
    if words[1]:find("^EVAL") then
      found = {}
      for i = 4 + tonumber(words[3]), #words do found[#found + 1] = words[i] end
    end
  end
  return found
end

-- Returns the commands that were sent, sorted: over several connections, their order is not
-- defined.
local function sorted_commands(one)
  local list = one:commands()
  table.sort(list, function(a, b) return table.concat(a, " ") < table.concat(b, " ") end)
  return list
end

describe("the settings of a lock", function()
  -- Returns all settings, each with a different value.
  local function settings(one, more)
    local given = {
      lease = 17, max_hold = 9, wait = 4.5, max_waiters = 3, keep = 0.25, deadlock_check = 0.5,
      observer = 7, class = core.client.class(one.client, "jobs"), token_ttl = 90, renewed = true,
      permits = 2, initial_permits = 5,
    }
    for name, value in pairs(more or {}) do given[name] = value end
    return given
  end

  local function plain_events(one)
    local list = {}
    for i, event in ipairs(core.client.events(one.client) or {}) do
      event.token = event.token and true
      list[i] = event
    end
    return list
  end

  -- → what a lock does: it waits for its own `wait`, is renewed, ends with its max_hold, is
  -- acquired again, released and kept
  local function history(copied, kind)
    server:cli("FLUSHALL")
    server:cli("SCRIPT", "FLUSH")
    local one = new { entropy = ENTROPY, renewer_link = true }
    core.client.class(one.client, "first")
    core.client.watch(one.client)
    local first = one:lock("other", settings(one, { kind = kind }))
    local lock = copied and raw.copy(first, "k") or one:lock("k", settings(one, { kind = kind }))
    local seen = {}
    local function note(...) seen[#seen + 1] = { ... } end
    local function step(seconds)
      one:pass(seconds)
      note(sorted_commands(one), engine.load(one.client))
      note(raw.remaining(lock), raw.lost(lock), raw.waited(lock), raw.balance(lock))
    end
    note(one:call(lock, "acquire") == lock)
    step(6)
    step(4)
    note(one:call(lock, "acquire") == lock, raw.owner(lock))
    note(one:call(lock, "release"))
    step(0.2)
    step(0.3)
    server:cli("SET", "k", "another type")
    note(one:call(lock, "acquire"))
    note(plain_events(one))
    one:close()
    return seen
  end

  -- Waits behind another holder until the lock's own `wait` is over.
  local function wait_of(copied)
    server:cli("SCRIPT", "FLUSH")
    local holder = new()
    local kept = holder:lock("k")
    holder:call(kept, "acquire")
    local one = new { entropy = ENTROPY }
    local first = one:lock("other", settings(one))
    local lock = copied and raw.copy(first, "k") or one:lock("k", settings(one))
    engine.set_now(one.client, one.now)
    local op = raw.begin(lock, "acquire")
    one:wait_until(function() return server:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    one:pass(0)
    local seen = { last_arguments(one) }
    for _, seconds in ipairs { 0.4, 0.2, 3.8, 0.2 } do
      one:pass(seconds)
      seen[#seen + 1] = { operation.is_done(op), #one:commands() }
    end
    op:finish()
    one:settle()
    one:close()
    holder:call(kept, "release")
    return seen
  end

  for _, kind in ipairs { "lock", "mutex", "fair", "read", "write", "permit" } do
    it("have the same effect on a copied lock of kind " .. kind, function()
      local own, copied = history(false, kind), history(true, kind)
      assert.same(own, copied)
    end)
  end

  it("have the same effect on the waits of a copied lock", function()
    assert.same(wait_of(false), wait_of(true))
  end)

  it("have the same effect on the time limit of a copied lock", function()
    local one = new()
    local first = one:lock("other", settings(one, { within = 0.5 }))
    one:call(first, "info") -- opens the connection
    for _, lock in ipairs { first, raw.copy(first, "k") } do
      engine.set_now(one.client, one.now)
      local op = raw.begin(lock, "info")
      assert.near(one.now + 0.5, engine.deadline(one.client), 1e-6)
      op:finish()
      one:settle()
    end
    one:close()
  end)

  it("are converted to whole numbers and milliseconds, or refused", function()
    local one = new()
    local function permits_sent(permits)
      local lock = one:lock("n" .. tostring(permits), { kind = "permit", permits = permits })
      one:call(lock, "acquire")
      return last_arguments(one)[1]:match("%*(%d+)$")
    end
    assert.equal("2", permits_sent(2.9))
    assert.has_error(function() permits_sent(0) end)
    assert.has_error(function() permits_sent(0 / 0) end)
    for given, sent in pairs { [0.0015] = "2", [0.3] = "300", [1.0001] = "1001", [2] = "2000" } do
      hold(one, one:lock("t" .. given, { token_ttl = given }))
      assert.equal(sent, last_arguments(one)[3])
    end
    for _, given in ipairs { 0.0015, 0.3, 1.1, 1.001, -1, 0 / 0 } do
      local other = new { connect_timeout = given, command_timeout = 2 }
      local connect, command = engine.timeouts(other.client)
      assert.equal(given > 0 and given or 0, connect)
      assert.equal(2, command)
    end
    local _, longest = engine.timeouts(new({ command_timeout = 1 / 0 }).client)
    assert.is_true(longest > 9e9)
  end)

  it("are read from the table itself, not through its metatable", function()
    local one = new()
    local behind = { lease = 5, owner = "somebody", kind = "mutex", token_ttl = 5 }
    local given = setmetatable({ client = one.client, key = "k", lease = 12 }, { __index = behind })
    local lock = raw.new(one.client, given)
    one:call(lock, "acquire", 0)
    near(12 - 0.122, raw.remaining(lock))
    assert.matches(":1$", raw.owner(lock))
    assert.equal(given, raw.data(lock))
  end)
end)

describe("the settings of a client", function()
  it("each reach the part of the client to which they apply", function()
    local one = new {
      tenant = "tenant.", name = "own name", published_name = "published", sync_replicas = 2,
      sync_timeout = 0.25, connect_timeout = 0.5, command_timeout = 2.5, grant_lease = 3,
      entropy = ENTROPY,
    }
    local lock = one:lock("k")
    assert.same({ 0.5, 2.5 }, { engine.timeouts(one.client) })
    assert.equal("tenant.", core.client.tenant(one.client))
    local longest = ("t"):rep(126) .. "."
    assert.equal(longest, core.client.tenant(new({ tenant = longest }).client))
    assert.equal("65656565-6565-8565-a565-656565656565", core.client.uuid(one.client))
    assert.equal("no_quorum", select(3, one:call(lock, "acquire")))
    local seen = {}
    for _, words in ipairs(one:commands()) do
      seen[table.concat(words, " ", 1, math.min(#words, 3))] = true
    end
    assert.is_true(seen["CLIENT SETNAME own name"])
    assert.is_true(seen["WAIT 2 250"])
    one:settle(0.1)
    local introduced = new { tenant = "tenant.", published_name = "published", renewer_link = true }
    hold(introduced, introduced:lock("i"))
    introduced:pass(11)
    local name = server:cli("KEYS", "holdfast_client:tenant.*")[1]
    assert.matches(core.client.uuid(introduced.client), name, 1, true)
    assert.matches(" %d+ published$", server:cli("GET", name))
    for given, text in pairs { later = " %d+ later$", [""] = " %d+$" } do
      local late = new { renewer_link = true }
      core.client.introduce(late.client, given)
      hold(late, late:lock("l" .. given))
      late:pass(11)
      local key = server:cli("KEYS", "holdfast_client:*" .. core.client.uuid(late.client) .. "*")[1]
      assert.matches(text, server:cli("GET", key))
    end
    assert.has_error(function() new { entropy = "short" } end, "entropy: 24 bytes")
    assert.has_error(function() new { external = false } end, "not an external client")
  end)

  it("give each Sentinel its own login, and each cluster node the login of the URL", function()
    local sentinel = core.client.new {
      url = "redis+sentinel://u:data@10.0.0.1:1,10.0.0.2:2,10.0.0.3:3/main/2", external = true,
      sentinel_user = "watch", sentinel_password = "man", connect_timeout = 1, command_timeout = 1,
    }
    assert.matches('master "main"', core.client.server(sentinel))
    local cluster = core.client.new {
      url = "redis+cluster://10.0.0.1:1,10.0.0.2:2,10.0.0.3:3", external = true,
      connect_timeout = 1, command_timeout = 1,
    }
    for _, of in ipairs { { sentinel, "AUTH\r\n$5\r\nwatch\r\n$3\r\nman\r\n" }, { cluster, "" } } do
      local client, login = of[1], of[2]
      engine.set_now(client, 1000)
      local lock = raw.new(client, { client = client, key = "k", lease = 5 })
      local op = raw.begin(lock, "acquire", 0)
      local asked, ended = {}, 1000
      while not operation.is_done(op) and ended < 1100 do
        ended = ended + 0.5
        engine.set_now(client, ended)
        engine.tick(client)
        for link = 1, engine.links(client) do
          if engine.wants(client, link) == "open" then
            local host, port = engine.server(client, link)
            asked[host .. ":" .. port] = true
            engine.opening(client, link)
            engine.opened(client, link)
            local bytes = table.concat(engine.output(client, link) or {})
            assert.is_truthy(bytes:find(login, 1, true))
            engine.closed(client, link, "refused")
          end
        end
      end
      assert.same({ ["10.0.0.1:1"] = true, ["10.0.0.2:2"] = true, ["10.0.0.3:3"] = true }, asked)
      operation.finish(op)
    end
  end)

  it("refuse a server that is listed twice, ignoring case in hosts but not in paths", function()
    local function wrong(...)
      return (select(2, core.client.new { mode = "quorum", servers = { ... } }))
    end
    assert.equal("this server is given twice (server 2)", wrong("redis://Host:1", "redis://hOST:1"))
    assert.equal("this server is given twice (server 3)",
      wrong("unix:///a/s", "unix:///a/S", "unix:///a/s"))
    assert.is_nil(wrong("redis://h:1", "redis://h:2", "redis://g:1"))
    assert.matches("%(server 2%)$", wrong("redis://h:1", "nothing"))
  end)

  it("apply TLS options to each server with rediss://, wherever it is in the list", function()
    local client = core.client.new {
      mode = "quorum", servers = { "redis://a:1", "rediss://b:2", "redis://c:3" }, external = true,
      tls = { cert = "c.pem", key = "k.pem", server_name = "name", verify = false },
    }
    local seen = {}
    for link = 1, engine.links(client) do
      local host = engine.server(client, link)
      seen[host] = engine.tls(client, link) or false
    end
    assert.same({
      a = false, c = false,
      b = { cert = "c.pem", key = "k.pem", server_name = "name", verify = false },
    }, seen)
    for _, url in ipairs { "rediss://b:2", "rediss+sentinel://b:2/main" } do
      for _, tls in ipairs { false, {}, { verify = true }, { ca_path = "/" } } do
        client = core.client.new { url = url, external = true, tls = tls or nil }
        for link = 1, engine.links(client) do
          assert.same({ verify = true }, engine.tls(client, link))
        end
      end
    end
    for _, url in ipairs { "redis://a:1", "redis+cluster://a:1,b:2" } do
      assert.equal("the tls option requires rediss://",
        select(2, core.client.new { url = url, tls = {} }))
    end
  end)
end)
