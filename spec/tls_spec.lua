local assert_fails = require "spec.support.fails"
local certificates = require "spec.support.certificates"
local cluster = require "spec.support.cluster"
local core = require "holdfast.core"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local sentinel = require "spec.support.sentinel"

local options = { tcp = true }
local world = require("spec.support.world").new(options)

local COMMAND = 30

local made

setup(function()
  made = certificates.make()
  options.tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert }
end)
before_each(world.open)
after_each(world.close)

local function server_with(cert, more)
  local all = { tls = { cert = cert.cert, key = cert.key, ca = made.ca.cert } }
  for name, value in pairs(more or {}) do all.tls[name] = value end
  return world.another(all)
end

-- Returns a client with `opts`; it trusts `ca` unless these say otherwise.
local function client(opts)
  opts = opts or {}
  opts.url = opts.url or world.server:tls_url()
  opts.tls = opts.tls or {}
  if not opts.tls.ca_path and not opts.tls.ca_file then opts.tls.ca_file = made.ca.cert end
  return world.client(opts)
end

local function round_trip(one)
  local lock = assert(one:lock("k"):acquire(0))
  assert.is_true(lock:check())
  assert(lock:release())
end

-- Asserts that an acquire fails as unreachable, and that its message has the reason and the server.
local function fails(reason, opts)
  opts.connect_timeout = opts.connect_timeout or 5
  local one = opts.tls and client(opts) or world.client(opts)
  local lock = one:lock("k")
  local message = assert_fails("unreachable", lock:acquire(0))
  assert.is_truthy(message:find(reason, 1, true), message)
  assert.is_truthy(message:find(opts.url:match("([%w%.]+:%d+)$"), 1, true), message)
  assert.is_false(lock:is_held())
  return message
end

-- Runs a program, with the server's URL, the authority's file and `...` as its arguments, until
-- it has ended well. → its output
local function output_of(code, ...)
  local child = world.program { code = code, args = { world.server:tls_url(), made.ca.cert, ... } }
  assert.same({ "exit", 0 }, { child:wait(60) }, child:output())
  return child:output()
end

-- A client in another process, which trusts the authority, waits for the lock `handed`.
local WAITER = [[
  local client = require("holdfast").new { url = arg[1], grant_lease = tonumber(arg[3]),
    tls = { ca_file = arg[2] } }
  local lock = client:lock("handed")
  local got = lock:acquire(30)
  print(got == lock, client:stats().grants, lock:release())
]]

-- Hands this client's lock over to a waiter; before(child) is called while the lock is held.
local function hand_over(url, before, grant_lease)
  local lock = assert(client({ url = url, grant_lease = grant_lease }):lock("handed"):acquire(0))
  local child = world.program { code = WAITER, args = { url, made.ca.cert, grant_lease } }
  assert.is_truthy(process.wait_until(function() return lock:info().waiters == 1 end, 20))
  if before then before(child) end
  assert(lock:release())
  if before then child:kill("CONT") end
  assert.same({ "exit", 0 }, { child:wait(10) }, child:output())
  assert.matches("true\t1\ttrue", child:output())
end

describe("over TLS", function()
  it("a client connects by name and by address, and uses a lock", function()
    round_trip(client())
    round_trip(client { url = world.server:tls_url("127.0.0.1") })
    round_trip(client { url = world.server:tls_url() .. "/3" })
  end)

  it("a client connects to a server that has only TLS 1.2", function()
    local server = world.another { tls = options.tls, conf = { "tls-protocols TLSv1.2" } }
    round_trip(client { url = server:tls_url() })
  end)

  -- Two records come at once: data that is already decrypted must not wait for more on the socket.
  it("a waiter receives a grant that arrives together with another message", function()
    hand_over(world.server:tls_url(), function(child)
      local channel = world.cli("PUBSUB", "CHANNELS")[1]
      child:kill("STOP")
      for _ = 1, 3 do world.cli("PUBLISH", channel, "unknown") end
    end, 20) -- it rechecks after 20 s
  end)

  it("a client sends and receives megabytes", function()
    local one = client()
    local text = ("0123456789abcdef"):rep(131072)
    assert.equal("OK", core.client.command(one, { "SET", "big", text }))
    assert.is_true(core.client.command(one, { "GET", "big" }) == text)
    assert.same({ 1, 1 }, { core.client.command(one, { "DEL", "big" }), one:stats().connections })
  end)

  it("a quorum can mix servers with and without TLS", function()
    local urls = { world.server:tls_url(), world.server:url() }
    for _ = 1, 3 do urls[#urls + 1] = world.another { tls = options.tls }:tls_url() end
    for _ = 1, 2 do
      local one = holdfast.new { servers = urls, mode = "quorum", tls = { ca_file = made.ca.cert } }
      round_trip(one)
      one:close()
      urls[1], urls[2] = urls[2], urls[1]
    end
  end)

  it("a program can exit with os.exit while its watchdog connects", function()
    for i = 1, 12 do
      output_of([[
        local client = require("holdfast").new { url = arg[1], tls = { ca_file = arg[2] } }
        local lock = assert(client:lock("k" .. arg[3]):acquire(0))
        lock = nil
        collectgarbage() collectgarbage() -- a new connection sends the release
        require("spec.support.sys").sleep(arg[3] / 4000)
        os.exit(0)
      ]], tostring(i))
    end
    world.server:cli("FLUSHALL") -- removes locks whose processes ended before the release
  end)

  it("a client reads each TLS option only once, so that it uses the value it has checked", function()
    local asked = 0
    local settings = setmetatable({}, { __index = function(_, name)
      if name ~= "ca_file" then return nil end
      asked = asked + 1
      return asked == 1 and made.ca.cert or "/nowhere"
    end })
    round_trip(world.client { url = world.server:tls_url(), tls = settings })
  end)

  it("forks succeed while another thread is in a handshake", function()
    assert.matches("done", output_of([[
      local sys = require "spec.support.sys"
      local core = require "holdfast.core"
      local client = require("holdfast").new { url = arg[1], tls = { ca_file = arg[2] } }
      local lock = client:lock("k", { lease = 1.5, watchdog = true }) -- renewed every 0.5 s
      for i = 1, 5 do
        assert(lock:acquire(20))
        -- ends all connections but this one, so the watchdog has to make a new one
        assert(core.client.command(client, { "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" }))
        sys.sleep(0.485 + i / 150)
        local pid = assert(sys.fork())
        if pid == 0 then
          local own = client:lock("own" .. i)
          local ok = own:acquire(20) and own:release()
          sys.exit(ok and 0 or 1)
        end
        local till, how, code = sys.now() + 20
        repeat how, code = sys.wait(pid) until how or sys.now() > till
        assert(how == "exit" and code == 0, how)
        lock:release()
      end
      client:close()
      print "done"
    ]]))
  end)
end)

local function refused(pattern, opts)
  assert.matches(pattern, assert_fails("unreachable", client(opts):lock("k"):acquire(0)))
end

-- Options for servers that use only TLS, also with each other.
local function alone(more)
  local tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert, alone = true }
  for name, value in pairs(more or {}) do tls[name] = value end
  return tls
end

local function close_clients() for _, one in ipairs(world.clients) do one:close() end end

describe("Sentinels over TLS", function()
  local set
  after_each(function()
    close_clients()
    set:stop()
  end)

  it("lead to a master over TLS, and to its successor", function()
    set = sentinel.start { tls = alone(), password = "secret" }
    round_trip(client { url = set:url() })
    hand_over(set:url())
    local one = client { url = set:url() }
    local lock = assert(one:lock("k"):acquire(0))
    set:wait_key("k")
    local old = set:master()
    old:kill("KILL")
    set:wait_failover(old)
    assert.is_truthy(process.wait_until(function() return lock:check() end, 20))
    assert(lock:release())
  end)

  it("are refused without a valid certificate, and not reachable through a plain URL", function()
    set = sentinel.start { tls = alone(), replicas = 0 }
    refused("no sentinel at .*certificate verify failed",
      { url = set:url(), tls = { ca_file = made.other_ca.cert } })
    local plain = world.client { url = (set:url():gsub("^rediss", "redis")) }
    assert.matches("use rediss", assert_fails("unreachable", plain:lock("k"):acquire(0)))
  end)
end)

describe("a cluster over TLS", function()
  local nodes
  after_each(function()
    close_clients()
    nodes:stop()
  end)

  it("serves locks on every node, and follows a slot that moves", function()
    nodes = cluster.start { masters = 3, replicas = 0, tls = alone(), password = "secret" }
    local one = client { url = nodes:url { nodes.nodes[1] }, command_timeout = COMMAND }
    local served = {}
    for i = 1, 30 do
      local key = "k" .. i
      assert(one:lock(key):acquire(0)):release()
      served[nodes:node_of(key)] = true
    end
    for _, node in ipairs(nodes.nodes) do assert.is_true(served[node]) end
    hand_over(nodes:url())
    local slot = nodes:slot("moved")
    local lock = assert(one:lock("moved"):acquire(0))
    local from = nodes:owner(slot)
    nodes:move(slot, from == nodes.nodes[1] and nodes.nodes[2] or nodes.nodes[1])
    assert.is_true(lock:check())
    assert(lock:release())
    assert.is_true(one:stats().redirects > 0)
  end)

  it("is shown the client's certificate on every connection, and must have a valid certificate itself", function()
    nodes = cluster.start { masters = 3, replicas = 0, tls = alone { clients = "yes" } }
    local given = { ca_file = made.ca.cert, cert = made.client.cert, key = made.client.key }
    for i = 1, 5 do
      assert(client({ url = nodes:url(), tls = given }):lock("k" .. i):acquire(0)):release()
    end
    refused("client certificate", { url = nodes:url() })
    refused("certificate verify failed", { url = nodes:url(),
      tls = { ca_file = made.other_ca.cert } })
  end)
end)

describe("a certificate", function()
  it("from an untrusted authority is refused", function()
    fails("certificate verify failed: ", { url = world.server:tls_url(),
      tls = { ca_file = made.other_ca.cert } })
    fails("certificate verify failed: ", { url = world.server:tls_url() })
  end)

  it("from an authority in ca_path is accepted", function()
    local directory = process.directory()
    files.write(directory .. "/ca.pem", files.read(made.ca.cert))
    certificates.openssl("rehash %s", directory)
    round_trip(client { tls = { ca_path = directory } })
    round_trip(client { tls = { ca_path = directory, ca_file = made.other_ca.cert } })
    process.remove(directory)
  end)

  it("for a different name is refused, unless server_name says to expect it", function()
    local url = server_with(made.elsewhere):tls_url()
    fails("hostname mismatch", { url = url, tls = { server_name = "localhost" } })
    fails("IP address mismatch", { url = url, tls = {} })
    round_trip(client { url = url, tls = { server_name = "redis.example" } })
    fails("hostname mismatch", { url = url, tls = { server_name = "example" } })
    fails("IP address mismatch", { url = world.server:tls_url(), tls = { server_name = "127.0.0.2" } })
  end)

  it("that has expired is refused", function()
    fails("certificate has expired", { url = server_with(made.expired):tls_url(), tls = {} })
  end)

  it("is accepted without verification with verify = false", function()
    for _, cert in ipairs { made.expired, made.elsewhere, made.stranger } do
      round_trip(client { url = server_with(cert):tls_url(),
        tls = { ca_file = made.other_ca.cert, verify = false } })
    end
    round_trip(client { tls = { verify = true } })
  end)

  it("of the client is presented when the server requires one", function()
    local server = server_with(made.server, { clients = "yes" })
    local given = { cert = made.client.cert, key = made.client.key }
    round_trip(client { url = server:tls_url(), tls = given })
    fails("the server requires a client certificate", { url = server:tls_url(), tls = {} })
    fails("TLS: ", { url = server:tls_url(),
      tls = { cert = made.stranger.cert, key = made.stranger.key } })
  end)

  it("with an encrypted key causes no passphrase prompt", function()
    local key = made.directory .. "locked.key"
    certificates.openssl("ec -in %s -aes128 -passout pass:secret -out %s", made.client.key, key)
    assert.matches("^nil\tcannot acquire .*: TLS: cannot use key " .. key:gsub("%W", "%%%0"), output_of([[
      local tls = { ca_file = arg[2], cert = arg[3], key = arg[4] }
      print(require("holdfast").new({ url = arg[1], tls = tls }):lock("k"):acquire(0))
    ]], made.client.cert, key))
  end)
end)

describe("a server", function()
  it("with TLS is recognized by a client without TLS, which suggests rediss://", function()
    local port = world.server.tls_port
    for _, login in ipairs { "", ":secret@", "app:secret@" } do
      fails("use rediss://", { url = ("redis://%s127.0.0.1:%d"):format(login, port) })
    end
  end)
end)

describe("the TLS options", function()
  it("are refused for URLs without rediss://", function()
    for _, url in ipairs { "redis://localhost", "unix:///run/redis.sock", "redis+sentinel://localhost/m",
      "redis+cluster://localhost" } do
      assert.error_matches(function() holdfast.new { url = url, tls = { verify = false } } end,
        "the tls option requires rediss://")
      assert.error_matches(function() holdfast.new { url = url, tls = {} } end,
        "the tls option requires rediss://")
    end
    for _, url in ipairs { "rediss+sentinel://localhost/m", "rediss+cluster://localhost" } do
      world.client { url = url, tls = {} }
    end
  end)
end)
