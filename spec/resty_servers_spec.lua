-- Under ngx_lua: how a client connects to one server or several, by which names, and over TLS.

local certificates = require "spec.support.certificates"
local cluster = require "spec.support.cluster"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resty = require "spec.support.resty"
local sentinel = require "spec.support.sentinel"
local sys = require "spec.support.sys"

if not resty.is_there() then return end

local FINISH, comes_to_say = resty.FINISH, resty.comes_to_say
local front, handler, is_free = resty.front, resty.handler, resty.is_free
local say, server, start, stop = resty.say, resty.server, resty.start, resty.stop
local eventually = process.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("over TLS", function()
    local made, guarded

    local function certified(by, more)
      local tls = { cert = made[by].cert, key = made[by].key, ca = made.ca.cert }
      for name, value in pairs(more or {}) do tls[name] = value end
      return tls
    end

    -- What acquire of a client returns: "true", or its code and message.
    local function try(location, host, tls)
      return handler(location, ([[
        local client = HOLDFAST.new { url = "%s", connect_timeout = 2, tls = { %s } }
        local lock = client:lock("a")
        local got, message, code = lock:acquire(5)
        SAY(got and (lock:check() and lock:release()) or code, message)
        client:close()
      ]]):format(host, tls))
    end

    local function trust() return ("lua_ssl_trusted_certificate %s;\n"):format(made.ca.cert) end

    before_each(function() made = made or certificates.make() end)

    after_each(function()
      stop()
      if guarded then guarded:stop() end
      guarded = nil
    end)

    it("verifies the server's certificate", function()
      resty.expect_errors()
      guarded = redis.start { tls = certified "server", tcp = true }
      local other = redis.start { tls = certified "elsewhere" }
      local untrusted = redis.start { tls = certified "stranger" }
      start {
        tcp = true, http = trust(),
        server = try("/good", guarded:tls_url("localhost"), "")
          .. try("/elsewhere", other:tls_url("localhost"), "")
          .. try("/expected", other:tls_url("localhost"), 'server_name = "redis.example"')
          .. try("/untrusted", untrusted:tls_url("localhost"), "")
          .. try("/unverified", untrusted:tls_url("localhost"), "verify = false")
          .. try("/plain", "rediss://127.0.0.1:" .. guarded.port, "")
          .. try("/http", 'rediss://127.0.0.1:" .. ngx.var.arg_port .. "', "")
          .. handler("/no-tls", ([[
            local client = HOLDFAST.new { url = "redis://127.0.0.1:%d" }
            local _, message, code = client:lock("a"):acquire(0)
            SAY(code, message)
            client:close()
          ]]):format(guarded.tls_port))
          .. handler("/misuse", [[
            SAY(select(2, pcall(HOLDFAST.new, { url = "rediss://localhost", tls = { ca_file = "x" } })))
          ]]),
      }
      for _, path in ipairs { "/good", "/expected", "/unverified" } do
        assert.equal("true|nil", say(path), path)
      end
      -- nginx reports a failed handshake or the end of the connection, whichever it sees first
      for path, reason in pairs {
        ["/elsewhere"] = "on localhost:%d+: TLS: .*certificate host mismatch",
        ["/untrusted"] = "certificate", ["/plain"] = "does the server speak TLS%?",
        ["/http?port=" .. front.port] = "does the server speak TLS%?", ["/no-tls"] = "use rediss://",
      } do
        eventually(function() return say(path):find("^unreachable|.*" .. reason) end, 20, path)
      end
      assert.matches("lua_ssl_trusted_certificate", say "/misuse")
      other:stop()
      untrusted:stop()
    end)

    -- nginx does not compare numeric addresses with a certificate: `server_name` is the name in all
    -- certificates.
    it("reaches the master named by Sentinels and the nodes of a cluster", function()
      resty.expect_errors()
      local tls = certified("server", { alone = true })
      local set = sentinel.start { tls = tls, replicas = 0 }
      local nodes = cluster.start { tls = tls, masters = 3, replicas = 0 }
      start {
        http = trust(),
        server = try("/sentinel", set:url(), 'server_name = "localhost"')
          .. try("/cluster", nodes:url(), 'server_name = "localhost"')
          .. try("/other-name", set:url(), 'server_name = "redis.example"'),
      }
      assert.equal("true|nil", say "/sentinel")
      assert.equal("true|nil", say "/cluster")
      assert.matches("^unreachable|.*no sentinel", say "/other-name")
      set:stop()
      nodes:stop()
    end)

    it("gives up a server that hangs in the handshake after the connect timeout", function()
      local listener, port = assert(sys.listen_tcp())
      start { server = handler("/", ([[
        local client = HOLDFAST.new { url = "rediss://127.0.0.1:%d", connect_timeout = 0.2,
          command_timeout = 20 }
        SAY(select(2, client:lock("a"):acquire(0)))
        client:close()
      ]]):format(port)) }
      local from = process.now()
      assert.matches("TLS handshake timed out; does the server speak TLS", say "/")
      assert.is_true(process.now() - from < 10)
      sys.close(listener)
    end)

    it("presents its client certificate to the server", function()
      resty.expect_errors()
      guarded = redis.start { tls = certified("server", { clients = "yes" }) }
      local cert, key = made.client.cert, made.client.key
      local cases = { -- { certificate, key, what acquire says }
        { cert, key, "^true|nil$" }, { nil, nil, "^unreachable|" },
        { "/nowhere", "/nowhere", "^unreachable|.*cannot use cert /nowhere: " },
        { cert, "/nowhere", "^unreachable|.*cannot use key /nowhere: " },
        { "/etc/passwd", key, "^unreachable|.*cannot use cert /etc/passwd: " },
        { cert, "/etc/passwd", "^unreachable|.*cannot use key /etc/passwd: " },
      }
      local locations = ""
      for i, case in ipairs(cases) do
        locations = locations .. try("/" .. i, guarded:tls_url("localhost"),
          case[1] and ('cert = "%s", key = "%s"'):format(case[1], case[2]) or "")
      end
      start { http = trust(), server = locations }
      for _, i in ipairs { 4, 5, 6, 1, 2, 3 } do assert.matches(cases[i][3], say("/" .. i)) end
    end)
  end)

  it("logs in and selects the database over TCP", function()
    local guarded = redis.start { tcp = true, password = "s3cret" }
    start { url = guarded:tcp_url() .. "/5", server = handler("/", [[
      SAY(CLIENT:with_lock("a", function(lock) return lock:check() end))
    ]]) .. handler("/wrong", [[
      local client = HOLDFAST.new(("]] .. guarded:tcp_url() .. [["):gsub("s3cret", "wrong"))
      SAY(select(3, client:lock("a"):acquire(1)))
    ]]) }
    assert.equal("true", say "/")
    assert.equal("denied", say "/wrong")
    assert.truthy(guarded:cli("CLIENT", "LIST"):find(" db=5 ", 1, true))
    stop()
    guarded:stop()
  end)

  it("connects to localhost by name, and over IPv6", function()
    local both = redis.start { tcp = true, conf = { "bind 127.0.0.1 -::1" } }
    local function by(path, host)
      return handler(path, ([[
        local client = HOLDFAST.new("redis://%s:%d")
        SAY(client:with_lock("a", function(lock) return lock:check() end))
        client:close()
      ]]):format(host, both.port))
    end
    start { server = by("/name", "localhost") .. by("/six", "[::1]") }
    assert.equal("true", say "/name")
    if process.succeeds("grep -qE '^0{31}1 ' /proc/net/if_inet6 2>/dev/null") then
      assert.equal("true", say "/six")
    end
    stop()
    both:stop()
  end)

  it("follows a master found through Sentinels", function()
    resty.expect_errors()
    local set = sentinel.start {}
    start { url = set:url(), server = FINISH .. handler("/", [[
      local client = HOLDFAST.new { url = "]] .. set:url() .. [[", command_timeout = 20 }
      local lock = client:lock(ngx.var.arg_key)
      SAY(lock:acquire(0) == lock, lock:check(), lock:release())
      client:close()
    ]]) .. handler("/kept", [[ SAY(CLIENT:with_lock("kept", { wait = 1 }, function(lock) return lock:check() end)) ]]) }
    assert.equal("true|true|true", say "/?key=a")
    assert.equal("true", say "/kept")
    local old = set:master()
    old:kill("KILL")
    assert.equal("true|true|true", say "/?key=b")
    set:wait_failover(old)
    comes_to_say("/kept", "true")
    for _, each in ipairs(set.sentinels) do each:kill("KILL") end
    assert.equal("true", say "/kept")
    stop()
    set:stop()
  end)

  for _, by in ipairs { "unix", "tcp" } do
    it("takes no connection that other code has left in the pool: " .. by, function()
      local place = by == "unix" and ("%q"):format("unix:" .. server.path)
        or ('"127.0.0.1", %d'):format(server.port)
      start { url = by == "tcp" and server:tcp_url(), server = handler("/leave", [[
        for _ = 1, 3 do
          local socket = ngx.socket.tcp()
          assert(socket:connect(]] .. place .. [[))
          assert(socket:send("SELECT 3\r\n") and socket:receive() and socket:setkeepalive())
        end
      ]]) .. handler("/", [[ SAY(CLIENT:lock("a"):acquire(0) ~= nil) ]]) }
      say "/leave"
      assert.equal("true", say "/")
      assert.is_false(is_free("a"))
    end)
  end

  it("gives up a connection that cannot be opened after the connect timeout", function()
    resty.expect_errors()
    local listener, port = assert(sys.listen_tcp()) -- its queue is full, so it accepts none
    local waiting = {}
    for i = 1, 65 do waiting[i] = assert(sys.connect_tcp(port)) end
    start { server = handler("/", ([[
      local client = HOLDFAST.new { url = "redis://127.0.0.1:%d", connect_timeout = 0.25,
        command_timeout = 20 }
      local begun, now = require("holdfast.core").now(), nil
      local got, message, code = client:lock("k"):acquire(0)
      now = require("holdfast.core").now()
      client:close()
      SAY(got, code, now - begun >= 0.2, require("holdfast.core").now() - begun < 10, message)
    ]]):format(port)) }
    assert.matches("^nil|unreachable|true|true|.*timed? ?out", say "/")
    for _, fd in ipairs(waiting) do sys.close(fd) end
    sys.close(listener)
  end)

  it("gives up a connection whose server has gone silent", function()
    local other = redis.start()
    start { server = handler("/", [[ SAY(select(3, CLIENT:lock("a", { lease = 0.5 }):acquire(2)) or "held") ]]) }
    assert.equal("held", say "/")
    server:kill("STOP")
    assert(os.rename(other.path, server.path))
    local from = process.now()
    comes_to_say("/", "held")
    assert.is_true(process.now() - from < 10)
    server:kill("CONT")
    stop()
    other:stop()
  end)
end)
