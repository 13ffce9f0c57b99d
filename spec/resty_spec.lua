-- The API in real nginx workers. They load the module that was built for LuaJIT, so these specs run
-- once, without sanitizers.

local cluster = require "spec.support.cluster"
local fake = require "spec.support.fake"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"

if not nginx.is_there() then return end

local INIT = [[
  lua_shared_dict counters 1m;
  init_by_lua_block {
    %(init)
    HOLDFAST = require "holdfast"
    CLIENT = HOLDFAST.new { url = "%(url)", lease = %(lease), grant_lease = %(grant),
      command_timeout = %(patience) }
    function SAY(...)
      local list = { n = select("#", ...), ... }
      for i = 1, list.n do list[i] = tostring(list[i]) end
      ngx.say(table.concat(list, "|"))
    end
  }
]]

local FINISH = "log_by_lua_block { HOLDFAST.finish() }\n"

local function handler(location, code)
  return ("location %s { content_by_lua_block {\n%s\n} }\n"):format(location, code)
end

describe("under ngx_lua", function()
  local server, front

  local function start(options)
    local values = { url = options.url or server:url(), lease = options.lease or 30,
      grant = options.grant_lease or 2, init = options.init or "",
      patience = options.command_timeout or 2 }
    front = nginx.start {
      workers = options.workers, tcp = options.tcp, connections = options.connections,
      main = options.main,
      env = options.env,
      code_cache = options.code_cache,
      http = (INIT:gsub("%%%((%w+)%)", values)) .. (options.http or ""),
      server = options.server,
    }
    return front
  end

  local function say(path, options)
    local response = front:get(path, options)
    return (response.body:gsub("\n$", ""))
  end

  local function is_free(key)
    return server:cli("EXISTS", key) == 0
  end

  local function free_within(key, seconds)
    local from = process.now()
    return process.wait_until(function() return is_free(key) end, seconds) and process.now() - from
  end

  before_each(function()
    server = redis.start { tcp = true }
  end)

  after_each(function()
    if front then front:stop("TERM") end
    front = nil
    server:stop()
  end)

  describe("over TLS", function()
    local certificates = require "spec.support.certificates"

    local made, guarded

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

    before_each(function()
      made = made or certificates.make()
    end)

    after_each(function()
      if front then front:stop("TERM") end
      front = nil
      if guarded then guarded:stop() end
      guarded = nil
    end)

    it("verifies the server's certificate", function()
      guarded = redis.start { tls = { cert = made.server.cert, key = made.server.key,
        ca = made.ca.cert }, tcp = true }
      local other = redis.start {
        tls = { cert = made.elsewhere.cert, key = made.elsewhere.key, ca = made.ca.cert },
      }
      local untrusted = redis.start {
        tls = { cert = made.stranger.cert, key = made.stranger.key, ca = made.ca.cert },
      }
      start {
        tcp = true, http = ("lua_ssl_trusted_certificate %s;\n"):format(made.ca.cert),
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
      assert.equal("true|nil", say "/good")
      assert.equal("true|nil", say "/expected")
      assert.equal("true|nil", say "/unverified")
      -- nginx reports a failed handshake or the end of the connection, whichever it sees first
      local function comes_to_say(pattern, path)
        local said
        local found = process.wait_until(function()
          said = say(path)
          return said:find(pattern)
        end, 20)
        assert(found, ("%s says %s"):format(path, said))
      end
      comes_to_say("^unreachable|.*on localhost:%d+: TLS: .*certificate host mismatch",
        "/elsewhere")
      comes_to_say("^unreachable|.*certificate", "/untrusted")
      comes_to_say("^unreachable|.*does the server speak TLS%?", "/plain")
      comes_to_say("^unreachable|.*does the server speak TLS%?", "/http?port=" .. front.port)
      comes_to_say("^unreachable|.*use rediss://", "/no-tls")
      assert.matches("lua_ssl_trusted_certificate", say "/misuse")
      other:stop()
      untrusted:stop()
    end)

    it("hands a lock to a waiter in another request", function()
      guarded = redis.start { tls = { cert = made.server.cert, key = made.server.key,
        ca = made.ca.cert } }
      start {
        url = guarded:tls_url("localhost"),
        http = ("lua_ssl_trusted_certificate %s;\n"):format(made.ca.cert),
        server = handler("/hold", [[ SAY(CLIENT:with_lock("a", function() ngx.sleep(2) return "held" end)) ]])
          .. handler("/wait", [[ SAY(CLIENT:with_lock("a", { wait = 10 }, function() return "next" end)) ]])
          .. handler("/stats", [[ SAY(CLIENT:stats().grants) ]]),
      }
      local holder = front:begin "/hold"
      assert.is_truthy(process.wait_until(function() return guarded:cli("EXISTS", "a") == 1 end, 20))
      assert.equal("next", say "/wait")
      assert.equal("held\n", assert(holder:finish()).body)
      assert.equal("1", say "/stats")
      assert.same({}, front:errors())
    end)

    -- nginx does not compare numeric addresses with a certificate: `server_name` is the name in all
    -- certificates.
    it("reaches the master named by Sentinels and the nodes of a cluster", function()
      local tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert,
        alone = true }
      local set = sentinel.start { tls = tls, replicas = 0 }
      local nodes = cluster.start { tls = tls, masters = 3, replicas = 0 }
      start {
        http = ("lua_ssl_trusted_certificate %s;\n"):format(made.ca.cert),
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
      local sys = require "spec.support.sys"
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
      guarded = redis.start {
        tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert,
          clients = "yes" },
      }
      start {
        http = ("lua_ssl_trusted_certificate %s;\n"):format(made.ca.cert),
        server = try("/good", guarded:tls_url("localhost"),
          ('cert = "%s", key = "%s"'):format(made.client.cert, made.client.key))
          .. try("/none", guarded:tls_url("localhost"), "")
          .. try("/nowhere", guarded:tls_url("localhost"), 'cert = "/nowhere", key = "/nowhere"')
          .. try("/no-key", guarded:tls_url("localhost"),
            ('cert = "%s", key = "/nowhere"'):format(made.client.cert))
          .. try("/no-cert", guarded:tls_url("localhost"),
            ('cert = "/etc/passwd", key = "%s"'):format(made.client.key))
          .. try("/other-key", guarded:tls_url("localhost"),
            ('cert = "%s", key = "/etc/passwd"'):format(made.client.cert)),
      }
      assert.matches("^unreachable|.*cannot use key /nowhere: ", say "/no-key")
      assert.matches("^unreachable|.*cannot use cert /etc/passwd: ", say "/no-cert")
      assert.matches("^unreachable|.*cannot use key /etc/passwd: ", say "/other-key")
      assert.equal("true|nil", say "/good")
      assert.matches("^unreachable|", say "/none")
      assert.matches("^unreachable|.*cannot use cert /nowhere: ", say "/nowhere")
    end)
  end)

  describe("over a quorum", function()
    local others

    before_each(function()
      others = redis.several(2, { tcp = true })
    end)

    after_each(function()
      if front then front:stop("TERM") end
      front = nil
      for _, each in ipairs(others) do each:stop() end
    end)

    it("holds a lock while a majority has it", function()
      local list = ('"%s", "%s", "%s"'):format(server:tcp_url(), others[1]:tcp_url(),
        others[2]:tcp_url())
      start {
        http = ("init_worker_by_lua_block { QUORUM = HOLDFAST.new { servers = { %s }, mode = 'quorum', lease = 1.5 } }\n")
          :format(list),
        server = handler("/use", [[
          local lock = QUORUM:lock("a")
          local got, message, code = lock:acquire(5)
          if not got then return SAY(code, message) end
          ngx.sleep(tonumber(ngx.var.arg_sleep or 0))
          SAY(lock:check(), lock:release(), math.floor(lock:remaining()))
        ]]) .. handler("/try", [[ SAY(select(3, QUORUM:lock("a"):try_acquire())) ]]),
      }
      assert.equal("true|true|0", say "/use")
      local holder = front:begin "/use?sleep=2.5"
      assert.is_truthy(process.wait_until(function() return server:cli("EXISTS", "a") == 1 end, 20))
      assert.equal("busy", say "/try")
      others[1]:kill()
      assert.equal("true|true|0\n", assert(holder:finish()).body)
      assert.equal("true|true|0", say "/use")
      others[2]:kill()
      assert.matches("^no_quorum|.*[01] of 3 granted.*127.0.0.1:" .. others[2].port, say "/use")
      assert.is_truthy(free_within("a", 5))
    end)
  end)

  describe("the API", function()
    it("returns the same results and error codes as elsewhere", function()
      start { server = FINISH .. handler("/lock", [[
        local lock = CLIENT:lock("a")
        SAY(lock:acquire(1) == lock, lock:acquire() == lock, lock:holds(), lock:is_held(), lock:check())
        SAY(lock:info().owner == lock:owner(), lock:ttl() > 29, lock:is_locked())
        SAY(lock:extend(10), lock:remaining() < 10)
        SAY(lock:release(), lock:release(), lock:is_held())
        SAY(select(3, lock:release()))
      ]]) .. handler("/busy", [[
        local mine, other = CLIENT:lock("b", { owner = "one" }), CLIENT:lock("b", { owner = "two" })
        assert(mine:acquire())
        local begun = require "holdfast.core".now()
        SAY(select(3, other:acquire(0.2)), math.floor((require "holdfast.core".now() - begun) * 10))
        SAY(other:force_release(), select(3, mine:release()))
      ]]) .. handler("/templates", [[
        SAY(CLIENT:with_lock("c", function(lock, x) return lock:is_held(), x, nil, 4 end, 2))
        SAY(pcall(CLIENT.with_lock, CLIENT, "c", function() error("bad", 0) end))
        SAY(CLIENT:one_by_one():execute("order", 7, function() return "one" end))
        SAY(CLIENT:idempotent("d", function() return "first" end))
        SAY(CLIENT:idempotent("d", { info = "again" }, function() return "second" end))
        SAY(CLIENT:once("o", 60, function(lock) return lock:is_held() end))
        SAY((select(3, CLIENT:once("o", 60, function() return "second" end))))
        local both = CLIENT:multi_lock { "e", "f" }
        SAY(both:acquire() == both, both:is_held(), both:release())
        SAY(CLIENT:mutex("g"):acquire() ~= nil, CLIENT:ping() < 1)
      ]]) .. handler("/posix", [[
        local blocking = HOLDFAST.new { url = "]] .. server:url() .. [[", driver = "posix" }
        SAY(blocking:with_lock("h", function() return CLIENT:lock("h"):try_acquire() end))
        SAY(blocking:ping() < 1)
        blocking:close()
      ]]) .. handler("/misuse", [[
        SAY(pcall(CLIENT.with_lock, CLIENT, "a", { abort_on_loss = true }, print))
      ]]) }
      assert.equal("true|true|2|true|true\ntrue|true|true\ntrue|true\ntrue|true|false\nnot_held",
        say "/lock")
      assert.equal("busy|2\ntrue|lost", say "/busy")
      assert.equal("true|2|nil|4\nfalse|bad\none\nfirst\nnil|again|duplicate\ntrue\nduplicate\ntrue|true|true\ntrue|true",
        say "/templates")
      assert.equal("nil|busy", (say("/posix"):gsub("|.-|", "|", 1):gsub("\ntrue$", "")))
      assert.truthy(say("/misuse"):find("^false|.*abort_on_loss"))
      assert.same({}, front:errors())
    end)

    it("reads and writes in pieces of varying length, which LuaJIT can intern quickly",
      function()
        start { server = handler("/", [[
          local sizes, tcp = { sent = {}, received = {} }, ngx.socket.tcp
          local function note(list, text) if text then list[#text] = true end end
          local function count(list)
            local all = 0
            for _ in pairs(list) do all = all + 1 end
            return all
          end
          ngx.socket.tcp = function()
            local socket = tcp()
            local send, receive = socket.send, socket.receiveany
            function socket:send(pieces)
              pieces = type(pieces) == "table" and pieces or { pieces }
              for _, piece in ipairs(pieces) do note(sizes.sent, piece) end
              return send(self, pieces)
            end
            function socket:receiveany(most)
              local bytes, message = receive(self, most)
              note(sizes.received, bytes)
              return bytes, message
            end
            return socket
          end
          local lock = CLIENT:lock("a")
          for _ = 1, 40 do
            assert(lock:acquire())
            assert(lock:release())
          end
          ngx.socket.tcp = tcp
          SAY(count(sizes.sent) > 30, count(sizes.received) > 8)
        ]]) }
        assert.equal("true|true", say "/")
      end)

    it("does not wait for an async release", function()
      start { server = FINISH .. handler("/", [[
        local lock, done = CLIENT:lock("a", { async_release = true }), 0
        for _ = 1, 50 do
          assert(lock:try_acquire())
          done = done + (lock:release() == true and 1 or 0)
        end
        SAY(done, lock:is_held(), select(3, lock:release()))
      ]]) .. handler("/lost", [[
        local reported
        local lock = CLIENT:lock("b", { async_release = true, on_lost = function(_, reason) reported = reason end })
        assert(lock:acquire())
        assert(CLIENT:lock("b", { owner = "other" }):force_release())
        local released = lock:release()
        for _ = 1, 100 do
          if reported then break end
          ngx.sleep(0.01)
        end
        SAY(released, reported, lock:lost())
      ]]) }
      assert.equal("50|false|not_held", say "/")
      assert.equal("true|deleted|deleted", say "/lost")
      assert.is_truthy(free_within("a", 2))
    end)

    it("sends an async release together with the request's next command", function()
      start { server = FINISH .. handler("/", [[
        local lock = CLIENT:lock("a", { async_release = true })
        for _ = 1, 100 do
          assert(lock:acquire())
          assert(lock:release())
        end
        SAY(true)
      ]]) }
      local function reads()
        return tonumber(server:cli("INFO", "stats"):match("total_reads_processed:(%d+)"))
      end
      say "/" -- the server knows the programs now
      local before = reads()
      say "/"
      local seen = reads() - before
      assert.is_true(seen < 120, seen .. " reads of the server for 100 acquires and releases")
      assert.is_truthy(free_within("a", 2))
    end)

    it("keeps a lock for its requests until other clients want it", function()
      start { server = FINISH .. handler("/", [[
        local before, last = nil, 0
        local function trips() return CLIENT:stats().round_trips end
        for _ = 1, 50 do
          local lock = assert(CLIENT:lock("hot", { keep = 30 }):acquire())
          assert(lock:token() > last)
          last = lock:token()
          assert(lock:release())
          before = before or trips()
        end
        SAY(trips() - before <= 3)
      ]]) .. handler("/race", [[
        local counter, inside, threads = 0, 0, {}
        for i = 1, 40 do
          threads[i] = ngx.thread.spawn(function()
            local lock = assert(CLIENT:lock("hot", { keep = 30 }):acquire(20))
            inside = inside + 1
            assert(inside == 1)
            ngx.sleep(0)
            counter, inside = counter + 1, inside - 1
            assert(lock:release())
          end)
        end
        for i = 1, 40 do assert(ngx.thread.wait(threads[i])) end
        SAY(counter)
      ]]) .. handler("/leaves", [[
        assert(CLIENT:lock("hot", { keep = 30 }):acquire())
        SAY("gone")
      ]]) }
      for _ = 1, 3 do assert.equal("true", say "/") end
      assert.equal("40", say "/race")
      assert.is_false(is_free("hot"))
      local other = require("holdfast").new { url = server:url(), driver = "posix" }
      local lock = assert(other:lock("hot"):acquire(20)) -- no request runs
      assert.is_true(lock:release())
      assert.equal("true", say "/")
      assert.equal("gone", say "/leaves")
      assert(lock:acquire(20)):release()
      other:close()
      assert.same({}, front:errors())
    end)

    it("lets readers share and a writer wait, and releases what a finished request held", function()
      start { server = FINISH .. handler("/read", [[
        local lock = CLIENT:read_write_lock("pages")
        assert(lock:read():acquire(5))
        ngx.sleep(tonumber(ngx.var.arg_sleep or 0))
        SAY(lock:read():is_held(), select(3, lock:write():acquire(5)), ngx.var.arg_leave or lock:read():release())
      ]]) .. handler("/write", [[
        SAY(CLIENT:with_write_lock("pages", { wait = 5 }, function(lock) return lock:is_held(), lock:token() > 0 end))
      ]]) }
      assert.equal("true|deadlock|true", say "/read")
      local reader = front:begin "/read?sleep=0.6"
      assert.is_truthy(process.wait_until(function()
        return server:cli("EXISTS", "pages") == 1
      end, 20))
      assert.equal("true|deadlock|true", say "/read")
      assert.equal("true|true", say "/write")
      assert.equal("true|deadlock|true\n", assert(reader:finish()).body)
      assert.equal("true|deadlock|yes", say "/read?leave=yes")
      assert.truthy(free_within("pages", 1))
      assert.same({}, front:errors())
    end)

    it("queues requests for a fair lock, and releases what a finished request held", function()
      start { server = FINISH .. handler("/", [[
        local lock = CLIENT:fair_lock("fair")
        assert(lock:acquire(5))
        ngx.sleep(tonumber(ngx.var.arg_sleep or 0))
        SAY(lock:is_held(), lock:token() > 0, ngx.var.arg_leave or lock:release())
      ]]) }
      local first = front:begin "/?sleep=0.6"
      assert.is_truthy(process.wait_until(function()
        return server:cli("EXISTS", "fair") == 1
      end, 20))
      local second = front:begin "/?sleep=0.1"
      assert.is_truthy(process.wait_until(function()
        return server:cli("LLEN", "redisson_lock_queue:{fair}") == 1
      end, 20))
      assert.equal("true|true|true\n", assert(first:finish()).body)
      assert.equal("true|true|true\n", assert(second:finish()).body)
      assert.equal("true|true|yes", say "/?leave=yes")
      assert.truthy(free_within("fair", 1))
      assert.same({}, front:errors())
    end)

    it("acquires a multi-lock with one command, and releases it when its request ends", function()
      start { server = FINISH .. handler("/", [[
        local both = CLIENT:multi_lock { "e", "f", "g" }
        SAY(both:acquire(1) == both, both:is_held(), ngx.var.arg_leave or both:release())
      ]]) }
      assert.equal("true|true|true", say "/")
      local monitor = server:monitor()
      assert.equal("true|true|true", say "/")
      assert.equal(2, monitor:count("EVALSHA"))
      monitor:close()
      assert.equal("true|true|yes", say "/?leave=yes")
      assert.truthy(free_within("e", 1) and free_within("f", 1) and free_within("g", 1))
      assert.same({}, front:errors())
    end)

    it("logs in and selects the database, over TCP too", function()
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
      front:stop("TERM")
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
      front:stop("TERM")
      both:stop()
    end)

    it("follows a master found through Sentinels", function()
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
      assert.truthy(process.wait_until(function() return say "/kept" == "true" end, 20))
      for _, each in ipairs(set.sentinels) do each:kill("KILL") end
      assert.equal("true", say "/kept")
      front:stop("TERM")
      front = nil
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

    it("gives each request a different owner, although requests share a coroutine", function()
      start { server = handler("/leak", [[ SAY(CLIENT:lock("a"):acquire(0) ~= nil) ]])
        .. handler("/take", [[ SAY(select(3, CLIENT:lock("a"):acquire(0))) ]]) }
      assert.equal("true", say "/leak")
      for _ = 1, 20 do assert.equal("busy", say "/take") end
    end)

    it("does not show a lock as held to a later request in the same coroutine",
      function()
      start { server = handler("/leak", [[ LEFT = CLIENT:lock("a") SAY(LEFT:acquire(0) == LEFT, tostring(LEFT)) ]])
        .. handler("/show", [[ SAY(tostring(LEFT)) ]]) }
      assert.matches("^true|holdfast.lock: a %(held, ", say "/leak")
      for _ = 1, 5 do assert.equal("holdfast.lock: a (not held)", say "/show") end
    end)

    describe("with one handle shared by several requests", function()
      local SHARED = [[ init_worker_by_lua_block {
        PAGES, LOCK = CLIENT:read_write_lock("pages"), CLIENT:lock("a")
        OWNED = CLIENT:lock("owned", { owner = "us" })
        BLOCKING = HOLDFAST.new { url = "%s", driver = "posix" }:read_write_lock("pages")
        function HANDLE() return assert(load("return " .. ngx.unescape_uri(ngx.var.arg_of)))() end
      } ]]
      local READ, BLOCKING_READ = "of=PAGES:read()", "of=BLOCKING:read()"

      -- /hold holds the lock until OVER is set, the lock is lost, or `renewals` renewals are over.
      local function start_shared(lease)
        start { lease = lease, http = SHARED:format(server:url()), server = FINISH
          .. handler("/hold", [[
            local lock, from, renewals = HANDLE(), nil, tonumber(ngx.var.arg_renewals or 1e9)
            assert(lock:acquire(5))
            from, OVER, HELD = CLIENT:stats().renewals, false, true
            repeat ngx.sleep(0.02) until OVER or lock:lost() or CLIENT:stats().renewals >= from + renewals
            HELD = false
            SAY(lock:lost(), lock:holds(), lock:release())
          ]])
          .. handler("/use", [[ local lock = HANDLE() SAY(lock:acquire(5) == lock, lock:release()) ]])
          .. handler("/leave", [[ local lock = HANDLE() SAY(lock:acquire(5) == lock, lock:holds()) ]])
          .. "location /forget { log_by_lua_block { } content_by_lua_block { "
          .. "local lock = HANDLE() SAY(lock:acquire(5) == lock, lock:holds()) } }\n"
          .. handler("/stray", [[ SAY(select(3, HANDLE():release())) ]])
          .. handler("/info", [[
            local info = HANDLE():info()
            SAY(info.readers or info.holds)
          ]])
          .. handler("/held", [[ SAY(HELD) ]]) .. handler("/over", [[ OVER = true ]]) }
      end

      local function hold(of, more)
        local holder = front:begin("/hold?" .. of .. (more or ""))
        assert.truthy(process.wait_until(function() return say "/held" == "true" end, 20))
        return holder
      end

      local function comes_to_have(of, count)
        local said
        assert(process.wait_until(function()
          said = say("/info?" .. of)
          return said == count
        end, 10), said)
      end

      it("renews the hold of one request after another one has released its own", function()
        start_shared(4)
        local holder = hold(READ, "&renewals=3")
        assert.equal("true|true", say("/use?" .. READ))
        assert.equal("nil|1|true\n", assert(holder:finish()).body)
        assert.same({}, front:errors())
      end)

      it("renews the hold of one request after another one released without holding it", function()
        start_shared(4)
        local holder = hold("of=LOCK", "&renewals=3")
        assert.equal("not_held", say "/stray?of=LOCK")
        assert.equal("nil|1|true\n", assert(holder:finish()).body)
        assert.same({}, front:errors())
      end)

      it("releases the hold of the request that ended, and of no other", function()
        start_shared(30)
        for _, of in ipairs { READ, BLOCKING_READ } do
          local holder = hold(of)
          assert.equal("true|1", say("/leave?" .. of))
          comes_to_have(of, "1")
          say "/over"
          assert.equal("nil|1|true\n", assert(holder:finish()).body)
          assert.truthy(free_within("pages", 5))
        end
        assert.same({}, front:errors())
      end)

      it("renews the remaining holds of a named owner after one of its requests has ended", function()
        start_shared(1.8)
        local holder = hold("of=OWNED", "&renewals=4")
        assert.equal("true|2", say "/leave?of=OWNED")
        assert.equal("nil|1|true\n", assert(holder:finish()).body)
        assert.truthy(free_within("owned", 5))
        assert.same({}, front:errors())
      end)

      it("renews a named owner's hold although many of its requests have ended", function()
        start_shared(1.8)
        local holder = hold("of=OWNED", "&renewals=4")
        for i = 1, 6 do assert.equal("true|" .. i + 1, say "/forget?of=OWNED") end
        assert.equal("nil|7|true\n", assert(holder:finish()).body)
        server:cli("DEL", "owned")
      end)

      it("releases as many holds of a named owner as a finished request had", function()
        start_shared(30)
        local holder = hold "of=OWNED"
        assert.equal("true|true", say "/use?of=OWNED")
        assert.equal("true|2", say "/leave?of=OWNED")
        say "/over"
        assert.equal("nil|1|true\n", assert(holder:finish()).body)
        assert.truthy(free_within("owned", 5))
        assert.same({}, front:errors())
      end)
    end)

    it("releases a lock whose handle was collected before its request ended", function()
      start { server = FINISH .. handler("/", [[
        assert(CLIENT:lock("a"):acquire())
        collectgarbage()
        assert(CLIENT:lock("b"):acquire())
      ]]) }
      for _ = 1, 3 do
        assert.equal("", say "/")
        assert.truthy(free_within("a", 5) and free_within("b", 5))
      end
      assert.same({}, front:errors())
      assert.is_nil(front:log():find("exited on signal", 1, true))
    end)

    it("releases what a client holds when it is closed", function()
      start { server = handler("/", [[
        local client = HOLDFAST.new("]] .. server:url() .. [[")
        assert(client:lock("a"):acquire())
        client:close()
        SAY(select(3, client:lock("a"):acquire()))
      ]]) }
      assert.equal("closed", say "/")
      assert.is_true(is_free("a"))
      assert.equal(0, server:leaks().clients)
    end)
  end)

  describe("the blocking driver", function()
    local BLOCKING = [[ init_worker_by_lua_block {
      BLOCKING = HOLDFAST.new { url = "%s", driver = "posix", lease = 30 }
    }
    ]]

    it("acquires and releases in every request of a worker", function()
      start { http = BLOCKING:format(server:url()), server = handler("/with", [[
        SAY(BLOCKING:with_lock("a", { wait = 0 }, function(lock) return lock:owner() ~= nil, lock:is_held() end))
      ]]) .. handler("/hand", [[
        local lock = BLOCKING:lock("a", { wait = 0 })
        SAY(lock:acquire() == lock, lock:holds(), lock:release(), lock:lost())
      ]]) .. handler("/all", [[
        local both = BLOCKING:multi_lock { "a", "b" }
        SAY(both:acquire(0) == both, both:is_held(), both:release())
      ]]) .. handler("/one", [[
        local held = function(lock) return lock:is_held() end
        SAY(BLOCKING:one_by_one { queue = false }:execute("a", 1, held))
      ]]) .. handler("/once", [[
        SAY(BLOCKING:idempotent("a", { delete_key = true }, function() return "ran" end))
      ]]) }
      for _ = 1, 3 do
        assert.equal("true|true", say "/with")
        assert.equal("true|1|true|nil", say "/hand")
        assert.equal("true|true|true", say "/all")
        assert.equal("true", say "/one")
        assert.equal("ran", say "/once")
        assert.is_true(is_free("a") and is_free("b") and is_free("a_1"))
      end
      assert.same({}, front:errors())
    end)

    it("releases what a request left held, which no later request could re-enter", function()
      start { http = BLOCKING:format(server:url()), server = handler("/leak", [[
        LEFT = BLOCKING:lock(ngx.var.arg_k)
        LEFT:acquire()
      ]]) .. "location /exit { " .. FINISH .. [[ content_by_lua_block {
        BLOCKING:with_lock("b", function() ngx.exit(204) end)
      } }
      ]] .. handler("/take", [[ SAY(select(3, BLOCKING:lock(ngx.var.arg_k):acquire(0))) ]]) }
      for _ = 1, 3 do
        assert.equal(204, front:get("/exit").status)
        assert.truthy(free_within("b", 1))
      end
      assert.equal("", say "/leak?k=a")
      for _ = 1, 5 do assert.equal("busy", say "/take?k=a") end
      assert.same({}, front:errors())
    end)

    it("runs idempotent_request", function()
      start { http = BLOCKING:format(server:url()), server = FINISH .. [[ location /pay {
        access_by_lua_block { HOLDFAST.idempotent_request { client = BLOCKING, key = "p", expire = 60 } }
        content_by_lua_block { SAY("ran") }
      } location /fail {
        access_by_lua_block { HOLDFAST.idempotent_request { client = BLOCKING, key = "f", expire = 60 } }
        content_by_lua_block { ngx.exit(500) }
      } ]] }
      assert.equal("ran", say "/pay")
      assert.truthy(process.wait_until(function()
        return server:cli("HGET", "idempotent:p", "done") == "D"
      end, 20))
      assert.equal("duplicate request", say "/pay")
      assert.equal(500, front:get("/fail").status)
      assert.truthy(free_within("idempotent:f", 5))
      assert.same({}, front:errors())
    end)

    it("acquires a lock in every phase of a request", function()
      local USE = [[ USED(BLOCKING:with_lock("a", { wait = 0 }, function(lock) return lock:is_held() end)) ]]
      start {
        http = "lua_shared_dict holdfast 1m;\n" .. BLOCKING:format(server:url()):gsub("}%s*$", [[
          USED = function(...) ngx.shared.counters:incr(tostring((...)), 1, 0) end
        } ]]),
        server = ([[ location / {
          set_by_lua_block $x { USE }
          rewrite_by_lua_block { USE }
          access_by_lua_block { USE }
          content_by_lua_block { SAY("here") }
          header_filter_by_lua_block { USE }
          body_filter_by_lua_block { if ngx.arg[2] then USE end }
          log_by_lua_block { USE HOLDFAST.finish() }
        } ]]):gsub("USE", USE) .. handler("/used", [[ SAY(ngx.shared.counters:get("true")) ]]),
      }
      for i = 1, 3 do
        assert.equal("here", say "/")
        assert.truthy(process.wait_until(function()
          return say "/used" == tostring(6 * i)
        end, 20), say "/used")
      end
      assert.is_true(is_free("a"))
      assert.same({}, front:errors())
    end)

    it("gives each request a different owner, even in phases without a coroutine", function()
      start {
        http = BLOCKING:format(server:url()):gsub("}%s*$", [[
          local locks = {}
          function TAKE(key)
            locks[key] = locks[key] or BLOCKING:lock(key)
            local got, _, code = locks[key]:acquire(0)
            ngx.shared.counters:rpush(key, got and "held" or code)
          end
          function HOLDS(key) return locks[key]:holds() end
          function RELEASE(key) return locks[key]:release() end
          TAKE "worker"
        }
        exit_worker_by_lua_block {
          ngx.log(ngx.NOTICE, "the worker's: ", tostring(RELEASE "worker"), ".")
        }
        upstream up {
          server 127.0.0.1:1;
          balancer_by_lua_block { TAKE "balancer" ngx.exit(500) }
        } ]]),
        server = [[ location / {
          set_by_lua_block $x { TAKE "worker" TAKE "set" }
          content_by_lua_block { SAY("here") }
          header_filter_by_lua_block { TAKE "header_filter" }
          body_filter_by_lua_block { if ngx.arg[2] then TAKE "body_filter" end }
          log_by_lua_block { ngx.shared.counters:rpush("holds", HOLDS "set") TAKE "log" }
        }
        location /balanced { proxy_pass http://up; }
        ]] .. handler("/said", [[ SAY(ngx.shared.counters:lpop(ngx.var.arg_in)) ]]),
      }
      local function said(name)
        local one
        assert.truthy(process.wait_until(function()
          one = say("/said?in=" .. name)
          return one ~= "nil"
        end, 20), name)
        return one
      end
      assert.equal("held", said "worker")
      for i, wanted in ipairs { "held", "busy" } do
        assert.equal("here", say "/")
        front:get "/balanced"
        assert.equal("busy", said "worker")
        for _, phase in ipairs { "set", "header_filter", "body_filter", "log", "balancer" } do
          assert.equal(wanted, said(phase), phase)
        end
        assert.equal(tostring(2 - i), said "holds")
      end
      assert.same({}, front:errors())
      front:stop()
      assert.truthy(front:log():find("the worker's: true.", 1, true))
    end)

    it("keeps a request's owner across an internal redirect in phases without a coroutine", function()
      start { http = BLOCKING:format(server:url()), server = FINISH .. [[
        location /from {
          set_by_lua_block $x { LOCK = BLOCKING:lock("a") LOCK:acquire(0) }
          content_by_lua_block { ngx.exec("/to") }
        }
        location /to {
          content_by_lua_block { SAY("here") }
          header_filter_by_lua_block { ngx.header.released = tostring(LOCK:release()) }
        } ]] }
      for _ = 1, 3 do assert.equal("true", front:get("/from").headers.released) end
      assert.same({}, front:errors())
    end)

    it("acquires a lock in the master's init phase, without a request", function()
      start { init = ([[
        local client = require("holdfast").new { url = "%s", driver = "posix" }
        BEGUN = client:with_lock("a", function(lock) return lock:is_held() end)
        client:close()
      ]]):format(server:url()), server = handler("/", "SAY(BEGUN)") }
      assert.equal("true", say "/")
      assert.is_true(is_free("a"))
    end)

    it("acquires locks in a worker's init phase, before any request", function()
      start { http = BLOCKING:format(server:url()):gsub("}%s*$", [[
        BLOCKING:with_lock("a", function() BLOCKING:with_lock("b", function() BEGUN = true end) end)
      }
      ]]), server = handler("/", "SAY(BEGUN)") }
      assert.equal("true", say "/")
      assert.is_true(is_free("a") and is_free("b"))
    end)
  end)

  describe("with a client created in each request", function()
    local OWN = handler("/", [[
      local client = HOLDFAST.new("%s")
      SAY(client:with_lock("k" .. ngx.var.arg_k, { wait = 20 }, function(lock) return lock:is_held() end))
    ]]) .. handler("/held", [[
      local client = HOLDFAST.new("%s")
      SAY(client:with_lock("k" .. ngx.var.arg_k, { wait = 20 }, function(lock)
        ngx.shared.counters:incr("held", 1, 0)
        while not OVER do ngx.sleep(0.05) end
        return lock:check()
      end))
    ]]) .. handler("/count", [[ SAY(ngx.shared.counters:get("held") or 0) ]])
      .. handler("/over", [[ OVER = true ]])
      .. handler("/timers", [[ SAY(ngx.timer.running_count()) ]])

    local function own() return (OWN:gsub("%%s", server:url())) end

    it("leaves few timers and connections, however many clients were created", function()
      start { server = FINISH .. own() }
      for i = 1, 600 do assert.equal("true", say("/?k=" .. i % 3), "request " .. i) end
      assert.is_true(tonumber(say "/timers") <= 4, say "/timers")
      assert.is_true(server:leaks().clients <= 2 * 17, server:leaks().clients .. " connections")
      assert.same({}, front:errors())
    end)

    it("starts at once while other clients are being closed, and stays connected", function()
      start { server = handler("/closed", ([[
        local now = require("holdfast.core").now
        local begun, slow = now(), 0
        for _ = 1, 30 do
          local from = now()
          local client = HOLDFAST.new("%s")
          assert(client:ping())
          client:close()
          ngx.sleep(0.001) -- its timer ends in this time
          if now() - from > 0.2 then slow = slow + 1 end
        end
        SAY(slow < 10, now() - begun < 6)
      ]]):format(server:url())) .. handler("/first", [[
        SAY(CLIENT:ping() ~= nil, CLIENT:stats().connections)
      ]]) .. handler("/timers", [[ SAY(ngx.timer.running_count()) ]]) }
      assert.equal("true|true", say "/closed")
      assert.truthy(process.wait_until(function() return say "/timers" == "0" end, 5))
      assert.equal("true|1", say "/first")
      process.sleep(0.05)
      assert.equal("true|1", say "/first")
      assert.equal("1", say "/timers")
      assert.same({}, front:errors())
    end)

    it("closes its connections a minute after its last use", function()
      start {
        init = [[
          local core, shift = require "holdfast.core", 0
          local now = core.now
          function core.now() return now() + shift end
          function LATER(seconds) shift = shift + seconds end
        ]],
        server = handler("/use", [[
          SAY(CLIENT:lock("a"):is_locked(), CLIENT:stats().connections)
        ]]) .. handler("/later", [[ LATER(tonumber(ngx.var.arg_by)) SAY("later") ]]),
      }
      for _ = 1, 2 do
        assert.equal("false|1", say "/use")
        process.sleep(1.1) -- the task looks once a second
        say "/later?by=40"
      end
      process.sleep(1.1)
      assert.equal(1, server:leaks().clients, "it counts from the first use")
      say "/later?by=25"
      assert.truthy(process.wait_until(function() return server:leaks().clients == 0 end, 5))
      assert.equal("false|2", say "/use")
      assert.same({}, front:errors())
    end)

    it("serves more clients at a time than nginx has timers, and keeps 16 connected", function()
      start { server = FINISH .. own() }
      local requests = {}
      for i = 1, 400 do requests[i] = front:begin("/held?k=" .. i) end
      assert.truthy(process.wait_until(function()
        return say "/count" == "400"
      end, 20), say "/count")
      assert.is_true(tonumber(say "/timers") <= 10, say "/timers")
      say "/over"
      for _, request in ipairs(requests) do
        assert.equal("true\n", assert(request:finish(20)).body)
      end
      assert.truthy(process.wait_until(function() return server:leaks().clients <= 16 end, 20))
      assert.equal(16, server:leaks().clients)
      assert.same({}, front:errors())
    end)

    it("keeps the connections of clients that later requests use again", function()
      start { http = "init_worker_by_lua_block { CLIENTS = {} }\n", server = FINISH .. handler("/", ([[
        local k = ngx.var.arg_k
        CLIENTS[k] = CLIENTS[k] or HOLDFAST.new("%s")
        CLIENTS[k]:with_lock("k" .. k, { wait = 20 }, function() end)
        SAY(CLIENTS[k]:stats().connections)
      ]]):format(server:url())) }
      for _ = 1, 2 do
        for i = 1, 40 do say("/?k=" .. i) end
      end
      local before = {}
      for i = 1, 40 do before[i] = say("/?k=" .. i) end
      for i = 1, 40 do assert.equal(before[i], say("/?k=" .. i)) end
    end)
  end)

  -- A key of 1 MiB is larger than a socket's buffers, so nginx cannot send the rest while the
  -- server is stopped.
  it("sends a large command within the client's command_timeout, not nginx's send timeout", function()
    start { url = "unix://" .. server.path, command_timeout = 20,
      http = "lua_socket_send_timeout 50ms;\n",
      server = FINISH .. handler("/ping", [[ SAY(CLIENT:ping() ~= nil) ]]) .. handler("/large", [[
        local lock, message = CLIENT:lock(("k"):rep(2 ^ 20 - 1)):acquire(0)
        SAY(lock and lock:release() or message:gsub("kk+", "k"))
        SAY(CLIENT:stats().connections)
      ]]) }
    assert.equal("true", say "/ping")
    server:kill("STOP")
    local request = front:begin "/large"
    process.sleep(0.5)
    server:kill("CONT")
    assert.equal("true\n1\n", request:finish(20).body)
    assert.same({}, front:errors())
  end)

  describe("when nginx has no timer left", function()
    it("fails at once with the limit of pending timers in its message", function()
      start { http = "lua_max_pending_timers 1;\n", server = FINISH
        .. handler("/fill", [[ SAY(ngx.timer.at(60, function() end)) ]])
        .. handler("/", [[
          SAY(select(2, CLIENT:lock("a"):acquire()))
          SAY(select(2, CLIENT:ping()))
        ]])
        .. handler("/leave", [[ CLIENT:close() SAY("closed") ]]) }
      assert.equal("1", say "/fill")
      local WHY = "unix:%S+: cannot start a timer: [^|]*lua_max_pending_timers|unreachable"
      assert.matches('^cannot acquire "a" on ' .. WHY .. "\ncannot ping on " .. WHY .. "$", say "/")
      assert.equal("closed", say "/leave")
    end)

    it("reports that events are not delivered, and delivers them at the next call", function()
      start { http = "lua_max_pending_timers 8;\n", server = FINISH .. handler("/", ([[
        local client = HOLDFAST.new { url = "%s", on_event = function(event)
          if event.event == "lost" then LOST = event.key end
        end }
        local lock = client:lock("k", { lease = 0.5, watchdog = true })
        assert(lock:acquire(0))
        repeat until not ngx.timer.at(60, function() end)
        local other = HOLDFAST.new { url = "%s", driver = "posix" }
        other:lock("k"):force_release()
        other:close()
        ngx.sleep(0.7) -- a call of holdfast would report the loss earlier
        local before = LOST
        client:with_lock("another", function() end)
        SAY(before, LOST)
        client:close()
      ]]):format(server:url(), server:url())) }
      assert.equal("nil|k", say "/")
      assert.matches("holdfast: too many pending timers; raise lua_max_pending_timers",
        table.concat(front:errors(), "\n"))
    end)

    it("does not report a missing timer if the worker was only blocked", function()
      start { server = FINISH .. handler("/", ([[
        local client = HOLDFAST.new("%s")
        local thread = ngx.thread.spawn(client.with_lock, client, "a", function(lock) return lock:check() end)
        local till = require "holdfast.core".now() + 0.8
        while require "holdfast.core".now() < till do end
        SAY(select(2, ngx.thread.wait(thread)))
      ]]):format(server:url())) }
      for _ = 1, 3 do assert.equal("true", say "/") end
      assert.same({}, front:errors())
    end)

    it("fails soon with the limit of running timers, and works again when one is free", function()
      start { http = "lua_max_running_timers 2;\n", server = FINISH .. handler("/use", [[
        OVER = false
        for _ = 1, 2 do
          ngx.timer.at(0, function() while not OVER do ngx.sleep(0.01) end end)
        end
        while ngx.timer.running_count() < 2 do ngx.sleep(0.01) end
        SAY("used")
      ]]) .. handler("/over", [[ OVER = true ]]) .. handler("/", [[
        local begun = require "holdfast.core".now()
        local _, message, code = CLIENT:with_lock("a", { wait = 20 }, function() return true end)
        SAY(code, message, math.floor(require "holdfast.core".now() - begun))
      ]]) .. handler("/close", ([[
        local client = HOLDFAST.new("%s")
        local begun = require "holdfast.core".now()
        SAY(select(3, client:lock("b"):acquire()))
        client:close()
        SAY(math.floor(require "holdfast.core".now() - begun))
      ]]):format(server:url())) }
      assert.equal("used", say "/use")
      local said = say "/"
      assert.matches('^unreachable|cannot acquire "a" on unix:%S+: cannot start a timer: .* 2 .*lua_max_running_timers', said)
      assert.matches("|[01]$", said)
      assert.matches("^unreachable\n[012]$", say "/close")
      assert.is_true(is_free("a") and is_free("b"))
      assert.is_nil(front:log():find("[error]", 1, true))
      say "/over"
      assert.truthy(process.wait_until(function() return say "/" == "nil|nil|0" end, 20))
    end)
  end)

  describe("under contention", function()
    it("loses no update of 500 requests in two workers, and keeps serving other requests", function()
      start { workers = 2, server = FINISH .. handler("/add", [[
        local counters = ngx.shared.counters
        SAY(CLIENT:with_lock("hot", { wait = 100 }, function()
          local value = counters:get("n") or 0
          ngx.sleep(0.001)
          counters:set("n", value + 1)
          return value + 1
        end))
      ]]) .. handler("/plain", [[ SAY("here") ]]) .. handler("/count", [[ SAY(ngx.shared.counters:get("n")) ]]) }
      local requests = {}
      for i = 1, 500 do requests[i] = front:begin("/add") end
      assert.truthy(process.wait_until(function() return (tonumber(say "/count") or 0) > 5 end, 20))
      local most, slowest = 0, 0
      for _ = 1, 20 do
        local from = process.now()
        assert.equal("here", say "/plain")
        slowest = math.max(slowest, process.now() - from)
        most = math.max(most, server:leaks().clients)
      end
      assert.is_true(tonumber(say "/count") < 500, "it was over too soon to tell")
      local seen = {}
      for _, request in ipairs(requests) do
        seen[tonumber((assert(request:finish(100)).body))] = true
      end
      assert.equal(500, #seen)
      assert.equal("500", say "/count")
      assert.is_true(most <= 4, most .. " connections")
      assert.is_true(slowest < 3, slowest .. " s for a plain answer")
      assert.is_true(is_free("hot"))
      assert.same({}, front:errors())
    end)

    it("serves requests in order of arrival", function()
      start { grant_lease = 20, server = handler("/", [[
        local counters = ngx.shared.counters
        local place = counters:incr("arrived", 1, 0)
        CLIENT:with_lock("hot", function()
          ngx.sleep(0.005)
          SAY(place, counters:incr("served", 1, 0))
        end)
      ]]) .. handler("/warm", [[ CLIENT:with_lock("warm", function() ngx.sleep(0.02) end) ]]) }
      -- the first waiter also waits for the subscription
      local first, second = front:begin("/warm"), front:begin("/warm")
      first:finish()
      second:finish()
      local requests, from = {}, process.now()
      for i = 1, 30 do requests[i] = front:begin("/") end
      for _, request in ipairs(requests) do
        local place, served = assert(request:finish()).body:match("(%d+)|(%d+)")
        assert.equal(place, served)
      end
      assert.is_true(process.now() - from < 9, "somebody was not woken")
    end)
  end)

  -- Handlers that acquire the lock on "a" and end without a release.
  local ENDS = {
    { "ngx.exit", [[ CLIENT:with_lock("a", function() ngx.exit(204) end) ]] },
    { "an error behind a second entry", [[
      local lock = CLIENT:lock("a")
      lock:acquire()
      lock:acquire()
      error("on purpose") ]] },
    { "only a return", [[ CLIENT:lock("a"):acquire() ]] },
    { "ngx.exec", [[ CLIENT:with_lock("a", function() ngx.exec("/done") end) ]] },
    { "an error page", [[ CLIENT:with_lock("a", function() ngx.exit(418) end) ]] },
    { "ngx.thread.kill", [[
      local thread = ngx.thread.spawn(CLIENT.with_lock, CLIENT, "a", function() ngx.sleep(10) end)
      while not CLIENT:lock("a"):is_locked() do end
      ngx.thread.kill(thread) ]] },
    { "an error in a sibling", [[
      ngx.thread.spawn(CLIENT.with_lock, CLIENT, "a", function() ngx.sleep(10) end)
      while not CLIENT:lock("a"):is_locked() do end
      ngx.exit(500) ]] },
  }

  local ENDLESS = handler("/hold", [[ CLIENT:with_lock("a", function() ngx.sleep(60) end) ]])
    .. handler("/wait", [[ CLIENT:with_lock("a", { wait = math.huge }, function() ngx.sleep(60) end) ]])
    .. handler("/next", [[ SAY(CLIENT:with_lock("a", { wait = 5 }, function() return true end)) ]])
    .. handler("/done", [[ CLIENT:lock("b"):is_held() ]])
    .. "error_page 418 /done; lua_check_client_abort on; lua_socket_log_errors on;\n"

  local function locations_of_ends()
    local text = ENDLESS
    for i, each in ipairs(ENDS) do text = text .. handler("/end" .. i, each[2]) end
    return text
  end

  describe("with holdfast.finish() in log_by_lua", function()
    it("releases a request's lock, however the request ends", function()
      start { server = FINISH .. locations_of_ends() }
      for i, each in ipairs(ENDS) do
        local response = front:begin("/end" .. i):finish()
        assert.truthy(response, each[1])
        assert.truthy(free_within("a", 5), each[1]) -- not after 30 s
      end
    end)

    it("releases at once what a request holds, even if acquired after an earlier finish()", function()
      start { server = FINISH .. handler("/", [[
        local lock = CLIENT:lock("a")
        assert(lock:acquire(5))
        HOLDFAST.finish()
        SAY(lock:is_held(), lock:acquire(5) == lock)
        ngx.sleep(0.05)
      ]]) }
      local seconds = 0
      for _ = 1, 12 do
        assert.equal("false|true", say "/")
        seconds = seconds + assert(free_within("a", 5))
      end
      assert.is_true(seconds < 1.2, seconds) -- the task alone would take 0.2 s each time
      assert.same({}, front:errors())
    end)

    it("ends a request's waits even if the request then continues", function()
      local holder = require("holdfast").new(server:url())
      local lock = assert(holder:lock("a"):acquire(0))
      start { server = FINISH .. handler("/", [[
        local function wait() return select(2, CLIENT:lock("a"):acquire(20)) end
        local thread = ngx.thread.spawn(wait)
        while CLIENT:lock("a"):info().waiters == 0 do end
        HOLDFAST.finish()
        SAY(select(2, ngx.thread.wait(thread)))
      ]]) }
      assert.matches('^cannot acquire "a" on unix:%S+: holdfast.finish%(%) has ended the wait'
        .. "|interrupted$", say "/")
      assert.equal(0, server:cli("ZCARD", "holdfast_queue:{a}"))
      assert(lock:release())
      holder:close()
    end)

    it("ends all waits of a request, whichever clients they use, and releases all locks of a multi-lock",
      function()
      local holder = require("holdfast").new(server:url())
      local both = assert(holder:multi_lock({ "a", "b" }):acquire(0))
      start { server = FINISH .. handler("/", ([[
        local threads, other = {}, HOLDFAST.new "%s"
        for _, client in ipairs { CLIENT, other } do
          for _, key in ipairs { "a", "b", "a" } do
            threads[#threads + 1] = ngx.thread.spawn(function()
              return select(3, client:lock(key):acquire(20))
            end)
          end
        end
        local function waiters()
          return CLIENT:lock("a"):info().waiters + CLIENT:lock("b"):info().waiters
        end
        while waiters() < 7 do ngx.sleep(0.001) end
        HOLDFAST.finish()
        local codes = {}
        for i, thread in ipairs(threads) do codes[i] = select(2, ngx.thread.wait(thread)) end
        SAY(unpack(codes))
        other:close()
      ]]):format(server:url())) .. handler("/waits", [[
        SAY(CLIENT:lock("b"):acquire(20) ~= nil)
      ]]) .. handler("/left", ([[
        BLOCKING = BLOCKING or HOLDFAST.new { url = "%s", driver = "posix" }
        for _, client in ipairs { CLIENT, BLOCKING } do
          LEFT = client:multi_lock { "x", "y", "z" }
          SAY(LEFT:acquire(0) == LEFT)
          HOLDFAST.finish()
          local function is_left(key) return CLIENT:lock(key):is_locked() end
          while is_left "x" or is_left "y" or is_left "z" do ngx.sleep(0.001) end
        end
      ]]):format(server:url())) }
      local another = front:begin "/waits"
      assert.equal(("interrupted|"):rep(5) .. "interrupted", say "/")
      assert.equal(0, server:cli("ZCARD", "holdfast_queue:{a}"))
      assert.equal(1, server:cli("ZCARD", "holdfast_queue:{b}")) -- the other request's place
      assert.is_true(both:release())
      assert.equal("true\n", another:finish().body)
      assert.equal("true\ntrue", say("/left", { timeout = 10 }))
      holder:close()
      assert.same({}, front:errors())
    end)

    it("ends a wait whose request replaced ngx.ctx, and says why", function()
      local holder = require("holdfast").new(server:url())
      local lock = assert(holder:lock("a"):acquire(0))
      start { server = FINISH .. handler("/", [[
        local function wait() return select(2, CLIENT:lock("a"):acquire(20)) end
        local thread = ngx.thread.spawn(wait)
        while CLIENT:lock("a"):info().waiters == 0 do end
        ngx.ctx = {}
        SAY(select(2, ngx.thread.wait(thread)))
        SAY(select(2, ngx.thread.wait(ngx.thread.spawn(function()
          return select(3, CLIENT:lock("a"):acquire(0))
        end))))
      ]]) }
      assert.matches('^cannot acquire "a" on unix:%S+: ngx.ctx was replaced while this request was '
        .. "waiting; set fields in it instead|interrupted\nbusy$", say "/")
      assert.equal(0, server:cli("ZCARD", "holdfast_queue:{a}"))
      assert(lock:release())
      holder:close()
    end)

    it("closes a client in the background if close is called in a phase that cannot wait", function()
      start { server = [[
        location /log {
          content_by_lua_block { OWN = NEW() assert(OWN:lock("a"):acquire(0)) SAY("held") }
          log_by_lua_block { OWN:close() }
        }
        location /filter {
          content_by_lua_block { OWN = NEW() assert(OWN:lock("a"):acquire(0)) SAY("held") }
          header_filter_by_lua_block { OWN:close() }
        }
        location /unused {
          content_by_lua_block { OWN = NEW() SAY("held") }
          log_by_lua_block { OWN:close() OWN:close() }
        }
      ]] .. handler("/closed", [[ SAY(select(3, OWN:lock("a"):acquire(0))) ]]),
        http = ([[ init_worker_by_lua_block { function NEW() return HOLDFAST.new("%s") end } ]])
          :format(server:url()) }
      for _, path in ipairs { "/log", "/filter", "/unused" } do
        assert.equal("held", say(path))
        assert.truthy(free_within("a", 5), path)
        assert.equal("closed", say "/closed")
        local function is_left() return server:leaks().clients == 0 end
        assert.truthy(process.wait_until(is_left, 5), path)
      end
      assert.same({}, front:errors())
    end)

    it("releases a subrequest's locks when its main request ends, and not before", function()
      local leaves = handler("/leaves", [[
        CLIENT:with_lock(ngx.var.arg_key or "a", function() ngx.exit(204) end)
      ]])
      start { server = FINISH .. leaves .. handler("/done", [[ SAY("done") ]])
        .. handler("/captured", [[ SAY(ngx.shared.counters:get("captured")) ]]) .. [[
        lua_check_client_abort on;
        location /several { content_by_lua_block {
          local function leaves(key) return { "/leaves?key=" .. key } end
          ngx.location.capture_multi { leaves "k1", leaves "k2", leaves "k3" }
          SAY("done")
        } }
        location /asks { auth_request /leaves; content_by_lua_block { SAY("allowed") } }
        location /captures { content_by_lua_block {
          ngx.location.capture("/leaves")
          HOLDFAST.finish()
          ngx.shared.counters:set("captured", true)
          ngx.sleep(60)
        } }
      ]] }
      assert.equal("allowed", say "/asks")
      assert.truthy(free_within("a", 5))
      assert.equal("done", say "/several")
      for i = 1, 3 do assert.truthy(free_within("k" .. i, 5)) end
      local main = front:begin("/captures")
      assert.truthy(process.wait_until(function() return say "/captured" == "true" end))
      assert.equal("done", say "/done")
      assert.is_false(is_free("a"))
      main:abort()
      assert.truthy(free_within("a", 5))
    end)

    it("releases a lock granted at the moment when its waiter is killed", function()
      start { grant_lease = 20, server = FINISH .. handler("/", [[
        local mine, theirs = CLIENT:lock("a", { owner = "mine" }), CLIENT:lock("a", { owner = "theirs" })
        assert(mine:acquire(10))
        local thread = ngx.thread.spawn(theirs.acquire, theirs)
        while mine:info().waiters == 0 do end
        mine:release()
        local till = require "holdfast.core".now() + ngx.var.arg_after / 1e6
        while require "holdfast.core".now() < till do ngx.sleep(0) end
        ngx.thread.kill(thread)
      ]]) }
      for after = 0, 500, 5 do
        say("/?after=" .. after)
        assert.truthy(free_within("a", 5), after .. " µs after the release")
      end
    end)

    it("releases the lock of a client that disconnects, or its place in the queue", function()
      start { server = FINISH .. locations_of_ends() }
      local holder = front:begin("/hold")
      assert.truthy(process.wait_until(function() return not is_free("a") end))
      local waiters = {}
      for i = 1, 20 do waiters[i] = front:begin("/wait") end
      assert.truthy(process.wait_until(function()
        return server:cli("ZCOUNT", "holdfast_queue:{a}", "(0", "+inf") == 20
      end))
      for _, waiter in ipairs(waiters) do waiter:abort() end
      assert.truthy(process.wait_until(function()
        return server:cli("ZCARD", "holdfast_queue:{a}") == 0
      end, 20))
      holder:abort()
      assert.equal("true", say "/next")
    end)
  end)

  describe("without holdfast.finish()", function()
    it("stops renewing for a request that has ended, so the lock ends with its lease", function()
      start { lease = 2, server = locations_of_ends() }
      for i, each in ipairs(ENDS) do
        local request = front:begin("/end" .. i)
        assert.truthy(request:finish(), each[1])
        assert.is_true(not is_free("a"), each[1])
        assert.truthy(free_within("a", 10), each[1])
      end
    end)

    it("stops renewing for a request that has ended although another one released its hold", function()
      start { lease = 2, http = "init_worker_by_lua_block { OWNED = CLIENT:lock('a', { owner = 'us' }) }\n",
        server = handler("/hold", [[
          assert(OWNED:acquire(5))
          HELD = true
          while not OVER do ngx.sleep(0.01) end
        ]]) .. handler("/live", [[
          assert(OWNED:acquire(5))
          assert(OWNED:release())
          OVER = true
          ngx.sleep(60)
        ]]) .. handler("/held", [[ SAY(HELD) ]]) }
      local holder = front:begin("/hold")
      assert.truthy(process.wait_until(function() return say "/held" == "true" end))
      local living = front:begin("/live")
      assert.truthy(holder:finish())
      assert.is_false(is_free("a"))
      assert.truthy(free_within("a", 10))
      living:abort()
    end)

    it("ends a listener with its request, and delivers later events in other requests", function()
      start { server = handler("/", [[
        WATCHED = HOLDFAST.new { url = "]] .. server:url() .. [[", lease = 60, on_event = function(event)
          if event.key == "stuck" then
            ngx.shared.counters:set("stuck", true)
            ngx.sleep(60)
          end
          ngx.shared.counters:set(event.key, event.event)
        end }
        STUCK = WATCHED:lock("stuck")
        STUCK:acquire()
      ]]) .. handler("/next", [[ SAY(WATCHED:with_lock("next", function() return true end)) ]])
        .. handler("/event", [[ SAY(ngx.shared.counters:get(ngx.var.arg_of)) ]])
        .. "lua_check_client_abort on;\n" }
      local request = front:begin("/")
      assert.truthy(process.wait_until(function() return say "/event?of=stuck" == "true" end))
      request:abort()
      assert.truthy(process.wait_until(function()
        return say "/next" == "true" and say "/event?of=next" == "released"
      end, 10))
    end)

    it("does not grant the lock to waiters whose clients disconnected", function()
      start { lease = 2, server = locations_of_ends() }
      local holder = front:begin("/hold")
      assert.truthy(process.wait_until(function() return not is_free("a") end))
      local waiters = {}
      for i = 1, 20 do waiters[i] = front:begin("/wait") end
      assert.truthy(process.wait_until(function()
        return server:cli("ZCOUNT", "holdfast_queue:{a}", "(0", "+inf") == 20
      end))
      for _, waiter in ipairs(waiters) do waiter:abort() end
      assert.truthy(process.wait_until(function()
        return server:cli("ZCARD", "holdfast_queue:{a}") == 0
      end, 20))
      holder:abort()
      assert.truthy(free_within("a", 10))
    end)
  end)

  it("reads replies that arrived while a request was computing before it checks for timeouts", function()
    start { server = FINISH .. handler("/", ([[
      local now = require "holdfast.core".now
      local lock, threads = CLIENT:lock("a"), {}
      assert(lock:acquire())
      local server = ngx.socket.tcp()
      assert(server:connect("unix:%s"))
      assert(server:send("CLIENT PAUSE 50\r\n") and server:receive())
      for i = 1, 5 do
        threads[i] = ngx.thread.spawn(function()
          return select(3, CLIENT:lock("a", { owner = "w" .. i }):acquire(0.1))
        end)
      end
      ngx.sleep(0.02)
      local till = now() + 0.2
      while now() < till do end
      lock:release()
      for _, thread in ipairs(threads) do SAY(ngx.thread.wait(thread)) end
    ]]):format(server.path)) }
    for _ = 1, 3 do assert.equal(("true|busy\n"):rep(5):sub(1, -2), say "/") end
    assert.same({}, front:errors())
  end)

  it("renews the lock of a live request through all its phases", function()
    start { lease = 3, server = FINISH .. [[
      location /long {
        access_by_lua_block {
          ngx.ctx.lock = CLIENT:lock("a", { owner = "me" })
          assert(ngx.ctx.lock:acquire())
          ngx.sleep(2.5)
        }
        content_by_lua_block { ngx.sleep(2.5) SAY(ngx.ctx.lock:is_held(), ngx.ctx.lock:release()) }
      }]] .. handler("/short", [[ CLIENT:with_lock("b", function() end) SAY(CLIENT:stats().renewals) ]])
      .. handler("/replaced", [[
        SAY(CLIENT:with_lock("c", function(lock) ngx.sleep(3.5) return lock:lost() end))
      ]]) }
    assert.equal("0", say "/short")
    assert.equal("true|true", say "/long")
    assert.is_true(tonumber(say "/short") >= 3)
    assert.equal("nil", say "/replaced")
  end)

  describe("holdfast.fence", function()
    local function guarded(location, opts)
      return ([[location %s {
        access_by_lua_block { HOLDFAST.fence { client = CLIENT, %s } }
        content_by_lua_block { SAY("in", ngx.req.get_headers(0)["Fence-Token"]) }
      }
      ]]):format(location, opts or "")
    end

    -- → status, body
    local function put(path, token, lock, resource)
      local response = front:get(path, { method = "PUT", headers = {
        ["Fence-Token"] = token, ["Fence-Lock"] = lock, ["Fence-Resource"] = resource } })
      return { response.status, (response.body:gsub("\n$", "")) }
    end

    local STALE = { 412, "stale: a request with a higher token has already been admitted" }

    it("refuses a token lower than one already admitted by any worker", function()
      start { workers = 2, server = guarded("/price") .. guarded("/named", 'resource = "stock"') }
      assert.same({ 200, "in|16" }, put("/price", "16", "l", "a%7Bb"))
      assert.same({ 200, "in|16" }, put("/price", "16", "l", "a%7Bb"))
      assert.same({ 200, "in|9007199254740991" }, put("/price", "9007199254740991", "l", "a%7Bb"))
      for _ = 1, 8 do assert.same(STALE, put("/price", "16", "l", "a%7Bb")) end
      assert.equal("9007199254740991", server:cli("HGET", "holdfast_fence::a{b", "token"))
      assert.same({ 200, "in|8" }, put("/price", "8", "l", "another"))
      assert.same({ 200, "in|16" }, put("/named", "16", "l", "another"))
      assert.same(STALE, put("/named", "8", "l", "a%20third%20one"))
      assert.equal("16", server:cli("HGET", "holdfast_fence:{stock}", "token"))
      assert.same({ 409, "the resource belongs to another lock" }, put("/price", "16", "m", "another"))
    end)

    it("refuses a write without a valid token, and admits requests that write nothing", function()
      start { server = guarded("/price"), command_timeout = 0.2 }
      assert.equal("in|nil", say "/price")
      for _, method in ipairs { "HEAD", "OPTIONS" } do
        assert.equal(200, front:get("/price", { method = method }).status, method)
      end
      assert.same({ 428, "this request needs a Fence-Token header" }, put "/price")
      for _, token in ipairs { "0", "-1", "1.5", "1e3", "9007199254740992", "99999999999999999999", "x" } do
        assert.same({ 400, "Fence-Token must be a fencing token, in decimal" }, put("/price", token, "l", "a"))
      end
      assert.same({ 400, "Fence-Lock must name the lock" }, put("/price", "8", nil, "a"))
      assert.same({ 400, "this request does not name a resource" }, put("/price", "8", "l"))
      assert.same({ 400, "this request does not name a resource" }, put("/price", "8", "l", "holdfast_queue:%7Ba%7D"))
      server:cli("SET", "holdfast_fence:{a}", "x")
      assert.same({ 409, "the resource belongs to another lock" }, put("/price", "8", "l", "a"))
      server:kill "STOP"
      assert.same({ 503, "try again" }, put("/price", "8", "l", "b"))
      server:kill "CONT"
      local logged = front:errors() -- the client gets no details
      assert.same({ 2 }, { #logged }, front:log())
      assert.truthy(logged[1]:find('"a"', 1, true) and logged[2]:find('"b"', 1, true))
    end)

    it("refuses a client of a quorum", function()
      start { http = [[init_worker_by_lua_block {
          QUORUM = HOLDFAST.new { servers = { "redis://127.0.0.1:1" }, mode = "quorum" }
        }
        ]], server = handler("/", [[ SAY(select(2, pcall(HOLDFAST.fence, { client = QUORUM }))) ]]) }
      assert.matches("fences need a single server, not a quorum", say "/")
    end)

    it("accepts resource functions, ttl and prefix, and decides which methods write",
      function()
      start { server = handler("/make", ([[
          PREFIXED = HOLDFAST.new { url = "%s", prefix = "app:" }
        ]]):format(server:url()))
        .. guarded("/price", "resource = function() return ngx.var.arg_of end, ttl = 100")
        .. guarded("/forever", 'resource = "ever", ttl = math.huge')
        .. [[location /prefixed {
          access_by_lua_block { HOLDFAST.fence { client = PREFIXED } }
          content_by_lua_block { SAY("in") }
        }
        location /json {
          default_type application/json;
          access_by_lua_block { HOLDFAST.fence { client = CLIENT } }
          content_by_lua_block { SAY("in") }
        }
        ]] }
      say "/make"
      for i, method in ipairs { "PUT", "POST", "PATCH", "DELETE", "MKCOL" } do
        local function send(token)
          return front:get("/price?of=stock", { method = method, headers = {
            ["Fence-Token"] = token, ["Fence-Lock"] = "l", ["Fence-Resource"] = "not%20this" } }).status
        end
        assert.same({ 200, 412 }, { send(10 * i), send(10 * i - 1) }, method)
      end
      assert.equal("50", server:cli("HGET", "holdfast_fence:{stock}", "token"))
      local ttl = server:cli("PTTL", "holdfast_fence:{stock}")
      assert.is_true(ttl > 50000 and ttl <= 100000, ttl)
      local nameless = { 400, "this request does not name a resource" }
      for _, path in ipairs { "/price", "/price?of=" } do
        assert.same(nameless, put(path, "60", "l", "stock"), path)
      end
      assert.same({ 200, "in|8" }, put("/forever", "8", "l"))
      assert.equal(-1, server:cli("PTTL", "holdfast_fence:{ever}"))
      assert.same({ 200, "in" }, put("/prefixed", "8", "l", "stock"))
      assert.equal("8", server:cli("HGET", "holdfast_fence:{app:stock}", "token"))
      assert.same({ 200, "in" }, put("/prefixed", "8", "l", "holdfast_queue:%7Ba%7D"))
      assert.same({ 200, "in" }, put("/json", "8", "l", "a"))
      local stale = front:get("/json", { method = "PUT", headers = {
        ["Fence-Token"] = 7, ["Fence-Lock"] = "l", ["Fence-Resource"] = "a" } })
      assert.same({ 412, "text/plain" }, { stale.status, stale.headers["content-type"] })
      assert.same({}, front:errors())
    end)

    it("refuses a header that was sent twice, and finds it after a hundred other headers", function()
      start { server = guarded("/price") }
      assert.same({ 400, "Fence-Token must be a fencing token, in decimal" },
        put("/price", "8\r\nFence-Token: 9", "l", "a"))
      assert.same({ 400, "Fence-Lock must name the lock" },
        put("/price", "8", "l\r\nFence-Lock: m", "a"))
      assert.same({ 400, "Fence-Resource was sent more than once" },
        put("/price", "8", "l", "a\r\nFence-Resource: b"))
      assert.same({ 400, "Fence-Resource must be escaped as in a URL" },
        put("/price", "8", "l", "%zz"))
      assert.same({}, server:cli("KEYS", "*"))
      local others = {}
      for i = 1, 120 do others[i] = ("X-%d: y\r\n"):format(i) end
      others = table.concat(others)
      local response = front:get("/price", { method = "PUT", headers = {
        ["X-0"] = "y\r\n" .. others .. "Fence-Token: 8\r\nFence-Lock: l\r\nFence-Resource: a" } })
      assert.same({ 200, "in|8" }, { response.status, (response.body:gsub("\n$", "")) })
    end)

    it("accepts the headers made by lock:fence_headers", function()
      local client = require("holdfast").new(server:url())
      start { server = guarded("/price") }
      local function send(headers)
        return front:get("/price", { method = "POST", headers = headers }).status
      end
      local first = assert(client:lock("price lock"):acquire(0))
      local headers = assert(first:fence_headers "price 7\r\n")
      assert.equal(200, send(headers))
      server:cli("DEL", "price lock")
      local other = require("holdfast").new(server:url())
      assert.equal(200, send(assert(assert(other:lock("price lock"):acquire(0)):fence_headers "price 7\r\n")))
      assert.equal(412, send(headers))
      assert.equal("price lock", server:cli("HGET", "holdfast_fence:{price 7\r\n}", "lock"))
      other:close()
      client:close()
    end)
  end)

  describe("idempotent_request", function()
    local function guarded(location, opts, content, more)
      return ([[location %s {
        access_by_lua_block { HOLDFAST.idempotent_request { client = CLIENT, principal = false, %s } }
        content_by_lua_block { %s }
        %s
      }
      ]]):format(location, opts, content, more or "")
    end

    local RUN = [[ ngx.shared.counters:incr("runs", 1, 0) ngx.sleep(tonumber(ngx.var.arg_sleep) or 0) SAY("ran") ]]
    local COUNT = handler("/runs", [[ SAY(ngx.shared.counters:get("runs") or 0) ]])
    local function post(path, key, body)
      return front:get(path, { method = "POST", body = body or "",
        headers = { ["Idempotency-Key"] = key } })
    end

    it("runs one of several requests with equal address, URI, arguments and body", function()
      start { server = FINISH .. COUNT .. guarded("/pay",
        'expire = 5, info = "twice", status = 429', RUN) }
      assert.equal(200, front:get("/pay?a=1&b=2").status)
      local second = front:get("/pay?a=1&b=2")
      assert.same({ 429, "twice\n" }, { second.status, second.body })
      assert.equal(200, front:get("/pay?a=1&b=3").status)
      assert.equal(200, front:get("/pay?a=1&b=2", { method = "POST", body = "x" }).status)
      assert.equal(429, front:get("/pay?a=1&b=2", { method = "POST", body = "x" }).status)
      for char, first in pairs { y = 200, z = 200 } do
        for _, status in ipairs { first, 429 } do
          assert.equal(status, front:get("/pay?a=1&b=2", -- nginx writes this body to a file
            { method = "POST", body = ("x"):rep(100000) .. char }).status)
        end
      end
      assert.equal("5", say "/runs")
      assert.truthy(process.wait_until(function()
        return front:get("/pay?a=1&b=2").status == 200
      end, 20))
    end)

    it("treats requests as different if the upstream server can tell them apart", function()
      start { server = FINISH .. [[
        location /pay {
          access_by_lua_block { HOLDFAST.idempotent_request {
            client = CLIENT, principal = false, replay = true, expire = 30 } }
          body_filter_by_lua_block { HOLDFAST.capture() }
          content_by_lua_block { SAY(ngx.var.request_uri) }
        }
        location /by_key {
          access_by_lua_block { HOLDFAST.idempotent_request {
            client = CLIENT, principal = false, header = true, expire = 30 } }
          content_by_lua_block { SAY(ngx.var.request_uri) }
        }
        location /renamed { rewrite ^ /pay/$arg_as? last; }
      ]] }
      for _, path in ipairs {
        "/pay/a/b", "/pay/a%2Fb", "/pay/a%2fb", "/pay/./a/b", "/pay//a/b", "/pay/b", "/renamed?as=b",
        "/pay?l=1&l=2", "/pay?l=2&l=1", "/pay?l=1&&l=2", "/pay?l=%31&l=2", "/pay?", "/pay",
      } do
        assert.equal(path .. "\n", front:get(path).body)
        assert.truthy(process.wait_until(function()
          return front:get(path).headers["idempotent-replayed"]
        end, 20), path)
      end
      assert.equal(200, post("/by_key?l=1&l=2", "k").status)
      assert.truthy(process.wait_until(function()
        return not post("/by_key?l=1&l=2", "k").headers["retry-after"]
      end, 20))
      assert.equal(422, post("/by_key?l=2&l=1", "k").status)
    end)

    it("takes the key from a header, and answers 400, 409 or 422 if the key is missing, in use or reused",
      function()
      start { server = FINISH .. COUNT .. guarded("/pay", "header = true, expire = 30", RUN) }
      local without = front:get("/pay")
      assert.equal(400, without.status)
      assert.matches("the Idempotency%-Key header is missing", without.body)
      local both = post("/pay", "k\r\nIdempotency-Key: l")
      assert.equal(400, both.status)
      assert.matches("the Idempotency%-Key header was sent more than once", both.body)
      local first = front:begin("/pay?sleep=2",
        { method = "POST", headers = { ["Idempotency-Key"] = "k" } })
      assert.truthy(process.wait_until(function() return say "/runs" == "1" end))
      local second = post("/pay?sleep=2", "k")
      assert.same({ 409, "1" }, { second.status, second.headers["retry-after"] })
      assert.equal(200, first:finish().status)
      local third
      assert.truthy(process.wait_until(function()
        third = post("/pay?sleep=2", "k")
        return not third.headers["retry-after"]
      end, 20), "still said to run")
      assert.equal(409, third.status)
      assert.equal(422, post("/pay?sleep=2", "k", "other").status)
      assert.equal("1", say "/runs")
    end)

    it("answers a duplicate at once with the given status and text while the first one runs",
      function()
      start { server = FINISH .. COUNT .. guarded("/pay",
        'header = "X-Payment", lease = 0.6, status = 425, info = "wait"', [[
          local from = CLIENT:stats().renewals
          ngx.shared.counters:incr("runs", 1, 0)
          repeat ngx.sleep(0.01) until OVER and CLIENT:stats().renewals >= from + 4
          SAY("ran")
        ]]) .. handler("/over", "OVER = true") }
      local function pay(number)
        return front:begin("/pay", { method = "POST", body = "", headers = {
          ["X-Payment"] = number } })
      end
      local first = pay "1"
      assert.truthy(process.wait_until(function() return say "/runs" == "1" end))
      local left = server:cli("PTTL", "idempotent:1")
      assert.is_true(left > 0 and left <= 600, left)
      local from = process.now()
      local second = pay("1"):finish()
      assert.is_true(process.now() - from < 5, "the duplicate waited for the first one")
      assert.same({ 425, "wait\n", "1" },
        { second.status, second.body, second.headers["retry-after"] })
      say "/over"
      assert.same({ 200, "ran\n" }, (function(response)
        return { response.status, response.body }
      end)(first:finish()))
      assert.matches("the X%-Payment header is missing", post("/pay", "1").body)
      assert.equal("1", say "/runs")
      assert.same({}, front:errors())
    end)

    it("records a finished request after an outage, as soon as the server accepts writes again", function()
      start { server = FINISH .. COUNT .. guarded("/pay", "expire = 60", RUN) }
      finally(function() server:cli("REPLICAOF", "NO", "ONE") end)
      local first = front:begin("/pay?sleep=0.3", { method = "GET" })
      assert.truthy(process.wait_until(function() return front:get("/runs").body == "1\n" end))
      server:cli("REPLICAOF", "127.0.0.1", "1")
      assert.equal(200, first:finish().status)
      process.sleep(0.3)
      server:cli("REPLICAOF", "NO", "ONE")
      assert.truthy(process.wait_until(function() return front:get("/pay?sleep=0.3").status ~= 200 end))
      assert.equal("1\n", front:get("/runs").body)
    end)

    it("finds a header after a hundred other headers, and distinguishes empty from missing headers", function()
      start { server = FINISH .. [[
        large_client_header_buffers 8 32k;
        location /pay {
          access_by_lua_block { HOLDFAST.idempotent_request { client = CLIENT, header = true,
            expire = 60, vary = { "X-Tenant" }, replay = true } }
          content_by_lua_block {
            for i = 1, 120 do ngx.header["Y-" .. i] = "y" end
            ngx.header["Y-Last"] = "last"
            SAY("ran")
          }
          body_filter_by_lua_block { HOLDFAST.capture() }
        } ]] }
      local others = {}
      for i = 1, 120 do others[i] = ("X-%d: y\r\n"):format(i) end
      others = "y\r\n" .. table.concat(others)
      -- Asks until no other request with the key runs. → the answer
      local function ask(tenant)
        local response
        process.wait_until(function()
          response = front:get("/pay", { method = "POST", body = "", headers = { ["X-0"] = others
            .. "Idempotency-Key: k\r\nAuthorization: anna" .. tenant } })
          return not response.headers["retry-after"]
        end, 20)
        return response
      end
      assert.equal(200, ask("\r\nX-Tenant: one").status)
      local again = ask("\r\nX-Tenant: one")
      assert.same({ "true", "last" },
        { again.headers["idempotent-replayed"], again.headers["y-last"] })
      for _, other in ipairs { "\r\nX-Tenant: two", "\r\nX-Tenant: ", "",
        "\r\nX-Tenant: one\r\nX-Tenant: two" } do
        assert.equal(422, ask(other).status, other)
      end
      server:cli("FLUSHALL")
      assert.equal(200, ask("\r\nX-Tenant: ").status)
      assert.equal(422, ask("").status)
    end)

    it("records an empty response to HEAD, but no headers of the connection", function()
      start { server = FINISH .. guarded("/pay", "header = true, expire = 60, replay = true", [[
        local names = "Server Date Keep-Alive Proxy-Connection TE Trailer Upgrade X-Kept"
        for name in names:gmatch("%S+") do
          ngx.header[name] = "the first"
        end
        if ngx.req.get_method() ~= "PUT" then ngx.header["Content-Length"] = 4 end -- else in chunks
        ngx.print("paid")
      ]], "body_filter_by_lua_block { HOLDFAST.capture() }\n") }
      for _, method in ipairs { "HEAD", "POST", "PUT" } do
        local function ask()
          return front:get("/pay", { method = method, body = "", headers = {
            ["Idempotency-Key"] = method } })
        end
        assert.equal(200, ask().status)
        local again
        process.wait_until(function()
          again = ask()
          return again.status ~= 409 or not again.headers["retry-after"]
        end, 20)
        assert.same({ 200, "true", "the first", method == "HEAD" and "" or "paid" }, { again.status,
          again.headers["idempotent-replayed"], again.headers["x-kept"], again.body })
        local record = server:cli("HGET", "idempotent:" .. method, "done"):lower()
        assert.truthy(record:find("x-kept", 1, true))
        for _, name in ipairs { "server", "date", "keep-alive", "proxy-connection", "te", "trailer",
          "upgrade", "connection", "content-length", "transfer-encoding" } do
          assert.is_nil(record:find((":%s"):format(name) .. "s", 1, true), name)
        end
      end
      assert.same({}, front:errors())
    end)

    it("with keep_on_error records a request whose client disconnected", function()
      start { server = FINISH .. COUNT .. "lua_check_client_abort on;\n"
        .. guarded("/pay", "header = true, expire = 60, keep_on_error = true", RUN) }
      local request = front:begin("/pay?sleep=60",
        { method = "POST", body = "", headers = { ["Idempotency-Key"] = "h" } })
      assert.truthy(process.wait_until(function() return say "/runs" == "1" end))
      request:abort()
      assert.truthy(process.wait_until(function()
        return server:cli("HGET", "idempotent:h", "done") == "D"
      end, 20))
      assert.equal(409, post("/pay?sleep=60", "h").status)
      assert.equal("1", say "/runs")
    end)

    it("records a request once even if finish is called twice, under a key shared by all users", function()
      start { server = [[
        log_by_lua_block { HOLDFAST.finish() HOLDFAST.finish() }
        gzip on;
        gzip_min_length 1;
        gzip_types text/plain;
        location /pay {
          access_by_lua_block {
            HOLDFAST.idempotent_request { client = CLIENT, key = "k", expire = 60 }
          }
          content_by_lua_block { ngx.print(("paid "):rep(100)) }
        } ]] }
      local function by(user)
        local response = front:get("/pay", { headers = { Authorization = user,
          ["Accept-Encoding"] = "gzip" } })
        return { response.status, response.headers["content-encoding"] }
      end
      assert.same({ 200, "gzip" }, by "anna") -- nothing is replayed
      assert.truthy(process.wait_until(function()
        return server:cli("HGET", "idempotent:k", "done") == "D"
      end, 20))
      assert.equal(409, by("bert")[1])
      assert.same({}, front:errors())
    end)

    it("treats requests from different addresses as different unless they name a key", function()
      local real = "set_real_ip_from unix:; set_real_ip_from 127.0.0.1; real_ip_header X-From;\n"
      start { server = real
        .. FINISH .. guarded("/pay", "expire = 60", RUN)
        .. guarded("/key", 'key = "k", expire = 60', RUN) }
      local function from(path, address)
        return front:get(path, { headers = { ["X-From"] = address } }).status
      end
      assert.same({ 200, 409, 200, 409 }, { from("/pay", "192.0.2.1"), from("/pay", "192.0.2.1"),
        from("/pay", "192.0.2.2"), from("/pay", "192.0.2.2") })
      assert.same({ 200, 409 }, { from("/key", "192.0.2.1"), from("/key", "192.0.2.2") })
    end)

    it("frees the key after a success with delete_key, and when the client disconnects", function()
      start { server = FINISH .. COUNT .. "lua_check_client_abort on;\n"
        .. guarded("/free", "header = true, delete_key = true, expire = 60", RUN)
        .. guarded("/pay", "header = true, expire = 60", RUN) }
      for run = 1, 2 do
        assert.equal(200, post("/free", "f").status)
        assert.truthy(free_within("idempotent:f", 5))
        assert.equal(tostring(run), say "/runs")
      end
      local request = front:begin("/pay?sleep=60",
        { method = "POST", body = "", headers = { ["Idempotency-Key"] = "h" } })
      assert.truthy(process.wait_until(function() return say "/runs" == "3" end))
      assert.is_false(is_free("idempotent:h"))
      request:abort()
      assert.truthy(free_within("idempotent:h", 5))
    end)

    it("replays status, headers and body", function()
      start { server = FINISH .. COUNT .. guarded("/pay", "header = true, replay = true, expire = 30", [[
        ngx.shared.counters:incr("runs", 1, 0)
        ngx.status = 201
        ngx.header["X-Order"] = { "7", "8" }
        ngx.header["Content-Type"] = "application/json"
        ngx.print("{") ngx.flush(true) ngx.print("}")
      ]], "body_filter_by_lua_block { HOLDFAST.capture() }\n")
        .. guarded("/big", "header = true, replay = true, expire = 30",
        [[ ngx.print(("x"):rep(70000)) ]],
        "body_filter_by_lua_block { HOLDFAST.capture() }\n") }
      local first = post("/pay", "k")
      local second
      process.wait_until(function()
        second = post("/pay", "k")
        return second.status ~= 409
      end, 20)
      assert.same({ 201, "{}", "application/json", "8" },
        { first.status, first.body, first.headers["content-type"], first.headers["x-order"] })
      assert.same({ 201, "{}", "application/json", "8", "true" }, { second.status, second.body,
        second.headers["content-type"], second.headers["x-order"],
        second.headers["idempotent-replayed"] })
      assert.equal("1", say "/runs")
      assert.equal(200, post("/big", "b").status)
      assert.equal(409, post("/big", "b").status)
    end)

    -- Returns the body, decompressed if it is in gzip.
    local function unpacked(response)
      if response.headers["content-encoding"] ~= "gzip" then return response.body end
      local path = process.directory() .. "/body.gz"
      local file = assert(io.open(path, "wb"))
      file:write(response.body)
      file:close()
      local pipe = assert(io.popen("gzip -dc " .. path))
      local text = pipe:read("*a")
      pipe:close()
      return text
    end

    it("replays to clients with and without gzip while nginx compresses responses", function()
      start { server = FINISH .. [[
        gzip on;
        gzip_min_length 1;
        gzip_types text/plain;
      ]] .. guarded("/pay", "header = true, replay = true, expire = 30",
        [[ ngx.print(("paid "):rep(100)) ]],
        "body_filter_by_lua_block { HOLDFAST.capture() }\n")
        .. handler("/plain", [[ ngx.print(("paid "):rep(100)) ]]) }
      local wanted = ("paid "):rep(100)
      local function read(path, gzip)
        local response = front:get(path, { method = "POST",
          headers = { ["Idempotency-Key"] = "k", ["Accept-Encoding"] = gzip } })
        return { response.status, response.headers["content-encoding"] or "plain",
          unpacked(response) }
      end
      assert.same({ 200, "gzip", wanted }, read("/plain", "gzip"))
      local first, again = read("/pay", "gzip"), nil
      assert.same({ 200, wanted }, { first[1], first[3] })
      process.wait_until(function()
        again = read("/pay", "gzip")
        return again[1] ~= 409
      end, 20)
      assert.same({ 200, "gzip", wanted }, again)
      assert.same({ 200, "plain", wanted }, read("/pay"))
      assert.same({}, front:errors())
    end)

    it("begins only one run for a request that nginx redirects internally", function()
      start { lease = 3, server = FINISH .. [[
        access_by_lua_block {
          HOLDFAST.idempotent_request { client = CLIENT, header = true, principal = false, replay = true,
            expire = 60 }
        }
        body_filter_by_lua_block { HOLDFAST.capture() }
        error_page 404 /none;
        error_page 429 /slow;
        error_page 500 /sorry;
        location /exec { content_by_lua_block { ngx.exec("/work") } }
        location /named { content_by_lua_block { ngx.exec("@work") } }
        location /early { rewrite_by_lua_block { ngx.exec("/work") } }
        location /missing { content_by_lua_block { ngx.exit(404) } }
        location /fails { content_by_lua_block { ngx.exit(500) } }
        location /limited { return 429; }
        location /slow { internal; content_by_lua_block { ngx.print("slow down") } }
        location /none { internal; content_by_lua_block { ngx.print("nothing there") } }
        location /sorry { internal; content_by_lua_block { ngx.print("sorry") } }
        location @work { content_by_lua_block { ngx.print("named") } }
        location /work { content_by_lua_block {
          local from = CLIENT:stats().renewals
          repeat ngx.sleep(0.02) until CLIENT:stats().renewals >= from + 3
          ngx.print("worked")
        } }
      ]] }
      local function replied(path, key)
        local response = post(path, key)
        return { response.status, response.body, response.headers["idempotent-replayed"] }
      end
      for path, wanted in pairs { exec = { 200, "worked" }, named = { 200, "named" },
        early = { 200, "worked" }, missing = { 404, "nothing there" } } do
        assert.same(wanted, replied("/" .. path, path))
        wanted[3] = "true"
        local again
        process.wait_until(function()
          again = replied("/" .. path, path)
          return again[1] ~= 409
        end, 20)
        assert.same(wanted, again)
      end
      assert.same({ 429, "slow down" }, replied("/limited", "limited"))
      assert.same({ 200, "named" }, replied("/named", "limited"))
      assert.same({ 500, "sorry" }, replied("/fails", "fails"))
      assert.truthy(free_within("idempotent:fails", 5))
      assert.same({}, front:errors())
    end)

    it("records the request and releases its locks after several internal redirects",
      function()
      start { server = FINISH .. COUNT .. guarded("/first", "header = true, expire = 60", [[
        assert(CLIENT:lock("left", { owner = "me" }):acquire(0))
        ngx.exec("/second")
      ]]) .. [[
        location /second { content_by_lua_block {
          CLIENT:with_lock("free", function() end)
          if ngx.var.arg_holds then assert(CLIENT:lock("also left", { owner = "me" }):acquire(0)) end
          ngx.exec("/third")
        } }
        location /third { content_by_lua_block {
          ngx.shared.counters:incr("runs", 1, 0)
          CLIENT:with_lock("free", function() SAY("ran") end)
        } }
      ]] }
      for i, query in ipairs { "", "?holds=1" } do
        local key = "k" .. i
        assert.equal("ran\n", post("/first" .. query, key).body)
        assert.truthy(process.wait_until(function()
          return server:cli("HGET", "idempotent:" .. key, "done") == "D"
        end, 5), query)
        assert.truthy(free_within("left", 5) and free_within("also left", 5))
        assert.equal(409, post("/first" .. query, key).status)
        assert.equal(tostring(i), say "/runs")
      end
      assert.same({}, front:errors())
    end)

    it("records a request that replaced ngx.ctx", function()
      start { server = FINISH .. guarded("/pay", "header = true, expire = 60, replay = true",
        [[ ngx.ctx = {} SAY("ran") ]], "body_filter_by_lua_block { HOLDFAST.capture() }\n") }
      assert.equal("ran\n", post("/pay", "k").body)
      assert.truthy(process.wait_until(function()
        return post("/pay", "k").headers["idempotent-replayed"]
      end, 5))
    end)

    it("does not record the response of a later request whose Lua table has the same address", function()
      start { server = FINISH .. [[
        body_filter_by_lua_block { HOLDFAST.capture() }
        location /other { content_by_lua_block {
          ngx.header["Set-Cookie"] = "secret"
          if ngx.var.arg_uses then CLIENT:lock("free"):is_held() end
          SAY("of somebody else")
        } }
      ]] .. guarded("/pay", "header = true, expire = 60, replay = true", [[ SAY("ran") ]],
        "log_by_lua_block { }\n") }
      for i, query in ipairs { "", "?uses=1" } do
        local key = "k" .. i
        assert.equal("ran\n", post("/pay", key).body)
        for _ = 1, 20 do assert.equal("of somebody else\n", post("/other" .. query, "x").body) end
        local again = post("/pay", key)
        assert.same({ 409, "1" }, { again.status, again.headers["retry-after"] })
        assert.is_false(is_free("idempotent:" .. key))
      end
      assert.same({}, front:errors())
    end)

    it("logs why the end of a request could not be recorded", function()
      start { server = FINISH .. guarded("/pay", 'key = "k", expire = 60', [[
        SAY("ran")
        ngx.flush(true)
        ngx.shared.counters:set("runs", 1)
        ngx.sleep(tonumber(ngx.var.arg_sleep))
      ]]) .. COUNT }
      local request = front:begin "/pay?sleep=2"
      assert.truthy(process.wait_until(function() return say "/runs" == "1" end, 20))
      server:cli("DEL", "idempotent:k")
      server:cli("RPUSH", "idempotent:k", "x")
      assert.equal("ran\n", request:finish().body)
      assert.truthy(process.wait_until(function()
        return table.concat(front:errors(), "\n"):find('cannot complete "idempotent:k"', 1, true)
      end, 20), front:log())
    end)

    it("distinguishes methods, and empty keys or principals from missing ones", function()
      start { server = FINISH .. COUNT .. guarded("/plain", "expire = 60", RUN)
        .. guarded("/header", "header = true, expire = 60", RUN)
        .. [[ location /user {
          access_by_lua_block { HOLDFAST.idempotent_request { client = CLIENT, expire = 60,
            key = function() return tonumber(ngx.var.arg_key) end,
            principal = function()
              local who = ngx.var.arg_who
              return who == "number" and 7 or who == "list" and { "anna" } or who
            end } }
          content_by_lua_block { ]] .. RUN .. [[ }
        } ]] }
      for _, method in ipairs { "GET", "POST", "PUT" } do
        for _, status in ipairs { 200, 409 } do
          assert.equal(status, front:get("/plain", { method = method }).status, method)
        end
      end
      local empty = post("/header", "")
      assert.equal(400, empty.status)
      assert.matches("the Idempotency%-Key header is missing", empty.body)
      for query, statuses in pairs {
        ["who=anna&key=7"] = { 200, 409 }, ["who=bert&key=7"] = { 200, 409 },
        ["who=anna&key=8"] = { 200, 409 }, ["who=number&key=7"] = { 401, 401 },
        ["who=list&key=7"] = { 401, 401 }, ["who=&key=7"] = { 401, 401 }, ["key=7"] = { 401, 401 },
        ["who=anna"] = { 400, 400 },
      } do
        for _, status in ipairs(statuses) do
          assert.equal(status, front:get("/user?" .. query).status, query)
        end
      end
      assert.equal("6", say "/runs")
      assert.matches("the principal function returned no name", table.concat(front:errors(), "\n"))
      assert.same({}, server:cli("KEYS", "redisson_lock_token*")) -- a guard needs no token
    end)

    it("replays a response of up to 64 KiB, and refuses duplicates of a longer one",
      function()
      start { server = FINISH .. guarded("/pay",
        "key = ngx.var.arg_size, replay = true, expire = 60", [[
          ngx.header["Idempotent-Replayed"] = "never"
          ngx.header["X-Long"] = ("h"):rep(tonumber(ngx.var.arg_head) or 0)
          for part = 1, 4 do ngx.print(("x"):rep(ngx.var.arg_size / 4)) end
        ]], "body_filter_by_lua_block { HOLDFAST.capture() }\n") }
      for query, wanted in pairs {
        ["size=40000"] = { 200, "true", 40000 }, ["size=65360"] = { 200, "true", 65360 },
        ["size=65536"] = { 409 }, ["size=65540"] = { 409 }, ["size=65200&head=400"] = { 409 },
      } do
        assert.equal(200, front:get("/pay?" .. query).status)
        local again
        process.wait_until(function()
          again = front:get("/pay?" .. query)
          return not again.headers["retry-after"]
        end, 20)
        assert.same(wanted, { again.status, again.headers["idempotent-replayed"],
          again.status == 200 and #again.body or nil }, query)
      end
      assert.same({}, front:errors())
    end)

    it("does not end a later request's run after its own run was lost", function()
      start { server = FINISH .. guarded("/pay", 'key = "k", expire = 60', [[
        STARTED = (STARTED or 0) + 1
        local number = STARTED
        repeat ngx.sleep(0.001) until OVER == number
        ngx.exit(tonumber(ngx.var.arg_status))
      ]]) .. handler("/started", "SAY(STARTED or 0)")
        .. handler("/over", "OVER = tonumber(ngx.var.arg_number)") }
      for round, status in ipairs { 200, 500 } do
        local requests = {}
        for i = 1, 2 do
          requests[i] = front:begin("/pay?status=" .. (i == 1 and status or 200))
          local number = tostring(2 * round - 2 + i)
          assert.truthy(process.wait_until(function() return say "/started" == number end, 20))
          if i == 1 then server:cli("DEL", "idempotent:k") end
        end
        say("/over?number=" .. 2 * round - 1)
        assert.equal(status, requests[1]:finish().status)
        for _ = 1, 3 do
          local again = front:get "/pay"
          assert.same({ 409, "1" }, { again.status, again.headers["retry-after"] })
          process.sleep(0.02)
        end
        assert.is_falsy(server:cli("HGET", "idempotent:k", "done"))
        say("/over?number=" .. 2 * round)
        assert.equal(200, requests[2]:finish().status)
        assert.truthy(process.wait_until(function()
          return server:cli("HGET", "idempotent:k", "done") == "D"
        end, 20))
        server:cli("DEL", "idempotent:k")
      end
    end)

    -- The task looks once a second for callers that are gone, and this record has no caller.
    it("waits for a slow server to record the request's end", function()
      start { command_timeout = 20, server = FINISH .. guarded("/pay", 'key = "k", expire = 60', [[
        CLIENT:ping()
        SAY("ran")
        ngx.flush(true)
        ngx.shared.counters:set("runs", 1)
        while not OVER do ngx.sleep(0.001) end
      ]]) .. COUNT .. handler("/over", "OVER = true") }
      local request = front:begin "/pay"
      assert.truthy(process.wait_until(function() return say "/runs" == "1" end, 20))
      server:kill "STOP"
      say "/over"
      assert.equal("ran\n", request:finish().body)
      process.sleep(2.2)
      server:kill "CONT"
      assert.truthy(process.wait_until(function()
        return server:cli("HGET", "idempotent:k", "done") == "D"
      end, 20))
      assert.same({}, front:errors())
    end)

    it("refuses a request whose body cannot be read again", function()
      start { server = [[ location /pay {
        client_body_in_file_only clean;
        access_by_lua_block {
          ngx.req.read_body()
          os.remove(ngx.req.get_body_file())
          HOLDFAST.idempotent_request { client = CLIENT, header = true, principal = false }
        }
        content_by_lua_block { SAY("ran") }
      } ]] }
      assert.equal(500, post("/pay", "k", "body").status)
      assert.matches("No such file", table.concat(front:errors(), "\n"))
    end)

    it("answers 400 if the key function returns no key", function()
      start { server = FINISH .. guarded("/pay",
        "key = function() return ngx.var.arg_key == 'none' and '' or ngx.var.arg_key end", RUN) }
      for _ = 1, 2 do assert.equal(400, front:get("/pay?key=none").status) end
      assert.equal(400, front:get("/pay").status)
      assert.equal(200, front:get("/pay?key=a").status)
    end)

    it("frees the key after a server error, or after the lease if finish is never called",
      function()
      start { lease = 2, server = guarded("/fail", 'key = "f", expire = 60', "ngx.exit(500)",
        FINISH)
        .. guarded("/forgotten", 'key = function() return "g" end, expire = 60', RUN) }
      assert.equal(500, front:get("/fail").status)
      assert.truthy(free_within("idempotent:f", 1))
      assert.equal(200, front:get("/forgotten").status)
      assert.equal(409, front:get("/forgotten").status)
      assert.truthy(free_within("idempotent:g", 10))
    end)

    it("refuses duplicates for a second after a success by default", function()
      start { server = FINISH .. guarded("/pay", 'key = "p"', RUN) }
      assert.equal(200, front:get("/pay").status)
      local left
      assert.truthy(process.wait_until(function()
        left = server:cli("PTTL", "idempotent:p")
        return left <= 1000
      end))
      assert.is_true(left > 0, left)
      assert.truthy(process.wait_until(function() return front:get("/pay").status == 200 end))
    end)

    describe("with several users", function()
      local CAPTURE = "body_filter_by_lua_block { HOLDFAST.capture() }\n"
      local SECRET = [[
        ngx.shared.counters:incr("runs", 1, 0)
        ngx.header["Set-Cookie"] = "session=secret"
        for name in ("%s"):gmatch("%%S+") do ngx.header[name] = "secret" end
        SAY("for ", ngx.var.http_authorization, ngx.var.arg_user)
      ]]
      local OWN = "Set-Cookie2 WWW-Authenticate Authentication-Info Proxy-Authenticate "
        .. "Proxy-Authentication-Info Proxy-Authorization"
      SECRET = SECRET:format(OWN)

      -- A location with only the options that the documents show.
      local function location(path, opts, content, more)
        return ([[ location %s {
          access_by_lua_block { HOLDFAST.idempotent_request { client = CLIENT, expire = 60, %s } }
          content_by_lua_block { %s }
          %s
        } ]]):format(path, opts, content, CAPTURE .. (more or ""))
      end

      local function ask(path, user, headers)
        headers = headers or {}
        headers["Authorization"] = user and "Bearer " .. user or nil
        return front:get(path, { method = "POST", body = "", headers = headers })
      end

      -- Asks until the answer to the first request is recorded.
      local function again(path, user, headers)
        local response
        assert.truthy(process.wait_until(function()
          response = ask(path, user, headers)
          return not response.headers["retry-after"]
        end, 20))
        return response
      end

      local function keyed(key) return { ["Idempotency-Key"] = key } end

      it("replays a response only to the user who sent the request", function()
        start { server = FINISH .. COUNT
          .. location("/header", "header = true, replay = true", SECRET)
          .. location("/plain", "replay = true", SECRET)
          .. location("/session", [[ replay = true, header = true,
            principal = function() return ngx.var.cookie_session end ]], SECRET)
          .. location("/key", [[ replay = true, key = "one",
            principal = function() return ngx.var.arg_user end ]], SECRET)
          .. location("/user", [[ replay = true, header = true,
            principal = function() return ngx.var.arg_user end ]], SECRET) }
        for i, case in ipairs {
          { "/header", "anna", "bert", keyed "k" }, { "/plain", "anna", "bert" },
          { "/session", nil, nil, { ["Idempotency-Key"] = "k", Cookie = "session=a" },
            { ["Idempotency-Key"] = "k", Cookie = "session=b" } },
          { "/key?user=a", nil, nil, {}, {}, "/key?user=b" },
          { "/user?user=bob", nil, nil, keyed "1x", keyed "x", "/user?user=bob1" },
        } do
          local path, anna, bert = case[1], case[2], case[3]
          local first = ask(path, anna, case[4])
          assert.equal(200, first.status, path .. ": " .. first.body)
          assert.matches("secret", tostring(first.headers["set-cookie"]), path)
          local second = again(path, anna, case[4])
          assert.same({ "true", first.body }, { second.headers["idempotent-replayed"], second.body })
          local other = again(case[6] or path, bert, case[5] or case[4])
          assert.equal(200, other.status, path)
          assert.is_nil(other.headers["idempotent-replayed"], path)
          assert.is_nil(second.headers["set-cookie"], path)
          for name in OWN:lower():gmatch("%S+") do
            assert.same({ "secret" }, { first.headers[name], second.headers[name] }, name)
          end
          assert.equal(tostring(2 * i), say "/runs")
        end
        for _, path in ipairs { "/header", "/plain", "/session", "/key" } do
          local nobody = ask(path, nil, keyed "k")
          assert.equal(401, nobody.status, path)
          assert.is_nil(nobody.headers["idempotent-replayed"])
        end
        assert.equal("10", say "/runs")
        assert.matches("idempotent_request: cannot tell who sent this request: it has no Authorization",
          table.concat(front:errors(), "\n"))
        for _, key in ipairs(server:cli("KEYS", "*")) do assert.is_nil(key:find("anna", 1, true)) end
      end)

      it("runs after nginx's authentication", function()
        local passwords = process.directory() .. "/passwords"
        local file = assert(io.open(passwords, "w"))
        file:write("anna:{PLAIN}a\nbert:{PLAIN}b\n")
        file:close()
        start { server = FINISH .. COUNT .. location("/pay", [[ header = true, replay = true,
            principal = function() return ngx.var.remote_user end ]], SECRET,
            ('auth_basic "pay"; auth_basic_user_file %s;'):format(passwords)) }
        local function as(user, password)
          local headers = keyed "k"
          headers.Authorization = user and "Basic " .. require("mime").b64(user .. ":" .. password)
          local response
          process.wait_until(function()
            response = front:get("/pay", { method = "POST", body = "", headers = headers })
            return not response.headers["retry-after"]
          end, 20)
          return { response.status, response.headers["idempotent-replayed"] }
        end
        assert.same({ 200 }, as("anna", "a"))
        assert.same({ 200, "true" }, as("anna", "a"))
        assert.same({ 401 }, as())
        assert.same({ 401 }, as("anna", "wrong"))
        assert.same({ 200 }, as("bert", "b"))
        assert.equal("2", say "/runs")
      end)

      it("records no response that refuses a request, and no error without keep_on_error", function()
        local CONTENT = [[
          ngx.status = ngx.shared.counters:incr(ngx.var.uri .. ngx.var.arg_first, 1, 0) == 1
            and tonumber(ngx.var.arg_first) or 200
          SAY("answer ", ngx.shared.counters:get(ngx.var.uri .. ngx.var.arg_first))
        ]]
        start { server = FINISH .. location("/pay", "header = true, replay = true", CONTENT)
          .. location("/kept", "header = true, replay = true, keep_on_error = true", CONTENT) }
        local function twice(path, status)
          path = path .. "?first=" .. status
          local first = ask(path, "anna", keyed(path))
          assert.equal(status, first.status)
          local second = again(path, "anna", keyed(path))
          return { second.status, second.headers["idempotent-replayed"] }
        end
        for _, status in ipairs { 401, 403, 407, 408, 425, 429, 500, 502, 503 } do
          assert.same({ 200 }, twice("/pay", status), status)
        end
        for _, status in ipairs { 400, 404, 422 } do
          assert.same({ status, "true" }, twice("/pay", status))
        end
        assert.same({ 500, "true" }, twice("/kept", 500))
        assert.same({ 200 }, twice("/kept", 401))
        assert.same({}, front:errors())
      end)

      it("treats requests as different if the headers in `vary` differ", function()
        start { server = FINISH
          .. location("/header", 'header = true, replay = true, vary = { "Accept" }', SECRET)
          .. location("/plain", 'replay = true, vary = { "Accept" }', SECRET)
          .. location("/key", 'key = "k", vary = { "Accept" }', SECRET) }
        local function statuses(path)
          local list = {}
          for i, accept in ipairs { "text/html", "text/html", "text/plain", false } do
            local headers = keyed "k"
            headers.Accept = accept or nil
            local response = again(path, "anna", headers)
            list[i] = response.headers["idempotent-replayed"] or response.status
          end
          return list
        end
        assert.same({ 200, "true", 422, 422 }, statuses "/header")
        assert.same({ 200, "true", 200, 200 }, statuses "/plain")
        assert.same({ 200, 409, 422, 422 }, statuses "/key")
      end)

      it("does not replay a response that was cut off", function()
        start { server = FINISH .. COUNT .. location("/pay", "header = true, replay = true", [[
          ngx.shared.counters:incr("runs", 1, 0)
          if ngx.var.arg_empty then ngx.exit(204) end
          if ngx.var.arg_same then ngx.exit(304) end
          ngx.print("half")
          ngx.flush(true)
          if ngx.var.arg_cut then ngx.exit(ngx.ERROR) end
          ngx.print(" and half")
        ]]) }
        ask("/pay?cut=1", "anna", keyed "cut")
        local second = again("/pay?cut=1", "anna", keyed "cut")
        assert.same({ 409 }, { second.status, second.headers["idempotent-replayed"] })
        for path, wanted in pairs {
          ["/pay"] = { 200, "half and half" }, ["/pay?empty=1"] = { 204, "" },
          ["/pay?same=1"] = { 304, "" },
        } do
          ask(path, "anna", keyed(path))
          second = again(path, "anna", keyed(path))
          wanted[3] = "true"
          assert.same(wanted, { second.status, second.body, second.headers["idempotent-replayed"] })
        end
        assert.equal("4", say "/runs")
      end)
    end)

    it("answers 503 if a lock already uses the key, and logs that", function()
      start { server = FINISH .. COUNT .. guarded("/pay", 'key = "k"', RUN) }
      server:cli("HSET", "idempotent:k", "somebody", 1)
      server:cli("PEXPIRE", "idempotent:k", 60000)
      assert.equal(503, front:get("/pay").status)
      assert.truthy(table.concat(front:errors(), "\n"):find("a lock already uses the key", 1, true))
      server:cli("DEL", "idempotent:k")
    end)

    it("answers 503 if the server is unreachable", function()
      start { url = "unix:///nowhere/redis.sock", server = FINISH
        .. guarded("/pay", "", RUN, "default_type text/html;") }
      local response = front:get("/pay")
      assert.same({ 503, "try again\n", "1", "text/plain" }, { response.status, response.body,
        response.headers["retry-after"], response.headers["content-type"] })
    end)
  end)

  describe("a call", function()
    local function try(kind)
      return kind .. [[_by_lua_block {
        local ran, message = pcall(function() local lock = CLIENT:lock("phase"):try_acquire() return lock end)
        ngx.log(ngx.NOTICE, "result of ]] .. kind .. [[: ", tostring(ran), " ", tostring(message), ".")
        if ran and message then message:release() end
        CLIENT:lock("phase"):is_held()
      }
      ]]
    end

    it("can wait in phases where ngx_lua can, and suggests what to do in others", function()
      start {
        http = [[ init_worker_by_lua_block {
          local ran, message = pcall(CLIENT.with_lock, CLIENT, "w", function() end)
          ngx.log(ngx.NOTICE, "result of init_worker: ", tostring(ran), " ", tostring(message), ".")
          ngx.timer.at(0, function()
            ngx.log(ngx.NOTICE, "result of timer: ", tostring(CLIENT:lock("w"):try_acquire() ~= nil), ".")
          end)
        }
        ]],
        server = "location / {" .. try "rewrite" .. try "access" .. try "content"
          .. try "header_filter"
          .. try "body_filter" .. try "log" .. [[ set_by_lua_block $x {
            local ran, message = pcall(CLIENT.with_lock, CLIENT, "w", function() end)
            ngx.log(ngx.NOTICE, "result of set: ", tostring(ran), " ", tostring(message), ".")
          } }]],
      }
      assert.equal(200, front:get("/").status)
      local log
      assert.truthy(process.wait_until(function()
        log = front:log()
        return log:find("result of log", 1, true)
      end))
      for _, phase in ipairs { "rewrite", "access", "content" } do
        assert.truthy(log:find("result of " .. phase .. ": true holdfast.lock: phase (held", 1,
          true), phase)
      end
      assert.truthy(log:find("result of timer: true.", 1, true))
      for _, phase in ipairs { "init_worker", "set", "header_filter", "body_filter", "log" } do
        local message = log:match("result of " .. phase .. ": false ([^\n]*)")
        assert.truthy(message, phase)
        assert.truthy(message:find("impossible in " .. phase .. "_by_lua; ", 1, true), message)
      end
      assert.truthy(log:match("result of log: false [^\n]*holdfast%.finish%(%)"))
      assert.truthy(log:match("result of set: false [^\n]*use rewrite_by_lua, where it is possible"))
      assert.truthy(log:match("result of init_worker: false [^\n]*ngx%.timer%.at"))
      assert.truthy(log:match("result of header_filter: false header_filter_by_lua:?%b():%d+: holdfast"))
    end)

    it("suggests what to do in the master's init phase and while the worker exits", function()
      start {
        init = [[
          function TRY(name, client)
            local ran, message = pcall(client.with_lock, client, "w", function() end)
            ngx.log(ngx.NOTICE, "result of ", name, ": ", tostring(ran), " ", tostring(message))
          end
          TRY("init", require("holdfast").new "redis://127.0.0.1:1")
        ]],
        http = [[
          init_worker_by_lua_block { TRY("init_worker", CLIENT) }
          exit_worker_by_lua_block { TRY("exit_worker", CLIENT) }
        ]],
      }
      say "/"
      front:stop()
      local log = front:log()
      front = nil
      for phase, advice in pairs {
        init = "in init_by_lua; workers do not exist yet, so move the call to init_worker_by_lua",
        init_worker = "in init_worker_by_lua; use ngx.timer.at(0, function",
        exit_worker = "in exit_worker_by_lua; the worker is exiting, so its locks will expire with",
      } do
        local message = log:match("result of " .. phase .. ": false ([^\n]*)")
        assert.truthy(message and message:find(advice, 1, true), phase .. ": " .. tostring(message))
      end
    end)

    it("can wait in a phase whose name the library does not know", function()
      start {
        init = [[
          local get_phase = ngx.get_phase
          function ngx.get_phase()
            local phase = get_phase()
            return phase:find("init") and phase or "newer_" .. phase
          end
        ]],
        server = handler("/", [[ SAY(ngx.get_phase(), CLIENT:lock("a"):try_acquire() ~= nil) ]])
          .. "header_filter_by_lua_block { ngx.log(ngx.NOTICE, 'filter: ', "
          .. "tostring(pcall(CLIENT.with_lock, CLIENT, 'w', print)), '.') }\n",
      }
      assert.equal("newer_content|true", say "/")
      assert.truthy(process.wait_until(function() return front:log():find("filter: false.", 1, true) end))
    end)
  end)

  describe("nginx", function()
    local WORK = FINISH .. handler("/work", [[
      local done, _, code = CLIENT:with_lock("k" .. ngx.var.arg_k, { wait = 10 }, function()
        ngx.sleep(0.01)
        return true
      end)
      SAY(done, code)
    ]]) .. handler("/slow", [[
      SAY(CLIENT:with_lock("slow", function(lock)
        ngx.sleep(1.5)
        return lock:check()
      end))
    ]])

    -- Sends `width` requests at a time for `seconds`, and calls at(elapsed) before each round.
    -- → how many requests had each result
    local function load(seconds, width, at)
      local from, under_way, results = process.now(), {}, {}
      local function count(response)
        local what = response and (response.body:gsub("\n$", "")) or "no answer"
        results[what] = (results[what] or 0) + 1
      end
      while process.now() - from < seconds do
        at(process.now() - from)
        for i = 1, width do under_way[i] = front:begin("/work?k=" .. i % 3) end
        for i = 1, width do count((under_way[i]:finish(15))) end
      end
      return results
    end

    local function once(seconds, act)
      local done = false
      return function(elapsed)
        if done or elapsed < seconds then return end
        done = true
        act()
      end
    end

    it("reloads under load without a failed request or a stale lock", function()
      start { workers = 2, lease = 3, server = WORK }
      local old, slow = front:workers(), nil
      local results = load(1.5, 20, once(0.5, function()
        slow = front:begin("/slow")
        process.sleep(0.1)
        front:reload()
      end))
      assert.equal("true", (slow:finish().body:gsub("\n", "")))
      assert.truthy(process.wait_until(function()
        local now = table.concat(front:workers(), " ") .. " "
        return not now:find(old[1] .. " ", 1, true) and not now:find(old[2] .. " ", 1, true)
      end, 20), "old workers stay")
      assert.equal(2, #front:workers())
      for what in pairs(results) do assert.equal("true|nil", what) end
      front:stop()
      assert.same({}, server:cli("KEYS", "k*"))
      assert.same({}, front:errors())
    end)

    it("quits only after a request has finished, whose lock is renewed until then",
      function()
      start { lease = 1.2, server = WORK }
      local slow = front:begin("/slow")
      process.sleep(0.2)
      front.process:kill("QUIT")
      assert.equal("true", (slow:finish().body:gsub("\n", "")))
      assert.equal("exit", front.process:wait(20))
      assert.is_true(is_free("slow"))
      assert.same({}, front:errors())
    end)

    local function quits_soon(server_hangs)
      for _, finish in ipairs { "", FINISH } do
        start { command_timeout = 20, server = handler("/stays", [[
          assert(CLIENT:lock("stays"):acquire(0))
          SAY("left")
        ]]) .. "location /leaves { " .. finish .. [[ content_by_lua_block {
          assert(CLIENT:lock("left"):acquire(0))
          SAY("left")
          ngx.flush(true)
          LEFT = true
          while not OVER do ngx.sleep(0.001) end
        } } ]] .. handler("/over", "OVER = true SAY(OVER)") .. handler("/left", "SAY(LEFT)") }
        assert.equal("left", say "/stays")
        local request = front:begin "/leaves"
        assert.truthy(process.wait_until(function() return say "/left" == "true" end))
        if server_hangs then server:kill("STOP") end
        assert.equal("true", say "/over")
        assert.equal("left\n", request:finish().body)
        front.process:kill("QUIT")
        assert.equal("exit", front.process:wait(10), finish)
        front = nil
        server:kill("CONT")
        server:cli("FLUSHALL")
      end
    end

    it("quits soon even if finished requests have left timers and connections", function() quits_soon(false) end)

    it("quits soon even while the server hangs", function() quits_soon(true) end)

    -- The task looks once a second for callers that are gone.
    it("quits only after waits and slow replies of its requests have ended", function()
      local holder = require("holdfast").new(server:url())
      local lock = assert(holder:lock("k"):acquire(0))
      start { command_timeout = 20, server = FINISH
        .. handler("/one", [[ SAY(CLIENT:lock("k"):acquire(20) ~= nil) ]])
        .. handler("/both", [[
          local both = CLIENT:multi_lock { "a", "b" }
          assert(CLIENT:ping())
          ngx.shared.counters:set("both", true)
          while not ngx.worker.exiting() do ngx.sleep(0.01) end
          SAY(both:acquire(0) == both)
        ]]) .. handler("/is_there", [[ SAY(ngx.shared.counters:get("both")) ]]) }
      local one, both = front:begin("/one"), front:begin("/both")
      assert.truthy(process.wait_until(function()
        return server:cli("ZCARD", "holdfast_queue:{k}") == 1 and say "/is_there" == "true"
      end))
      server:kill("STOP")
      front.process:kill("QUIT")
      process.sleep(2.5)
      server:kill("CONT")
      assert.equal("true\n", both:finish().body)
      assert(lock:release())
      assert.equal("true\n", one:finish().body)
      assert.equal("exit", front.process:wait(20))
      assert.same({}, front:errors())
      holder:close()
    end)

    it("frees the locks of a killed worker when their leases end", function()
      start { lease = 3, server = WORK }
      local slow = front:begin("/slow")
      assert.truthy(process.wait_until(function() return not is_free("slow") end))
      process.signal(front:workers()[1], "KILL")
      slow:finish()
      assert.is_false(is_free("slow"))
      assert.truthy(free_within("slow", 10))
      assert.equal("true|nil", say "/work?k=1")
    end)

    it("with crash_release hands a killed worker's lock to a waiter of a sibling at once", function()
      local client = ([[
        local CRASH = package.loaded.crash or HOLDFAST.new { url = "%s", crash_release = true }
        package.loaded.crash = CRASH
        local lock = CRASH:lock("k")
        ngx.log(ngx.NOTICE, ngx.var.uri, " in ", ngx.worker.pid(), ".")
      ]]):format(server:url())
      start { workers = 2, server = handler("/hold", client .. [[
        assert(lock:acquire(0))
        ngx.log(ngx.NOTICE, "holds ", lock:owner(), ".")
        ngx.sleep(60)
      ]]) .. handler("/wait", client .. [[
        local held = lock:acquire(25)
        SAY(held ~= nil, held and lock:release())
      ]]) }
      local holding, sibling, requests = front:begin("/hold"), nil, {}
      local uuid = process.wait_until(function() return front:log():match("holds (%S+):%d+%.") end)
      local holder = tonumber(front:log():match("/hold in (%d+)"))
      assert.truthy(process.wait_until(function() -- the kernel chooses a worker for each request
        requests[#requests + 1] = front:begin("/wait")
        process.wait_until(function() return select(2, front:log():gsub("/wait in", "")) == #requests end)
        sibling = tonumber(front:log():match(".*/wait in (%d+)"))
        return sibling ~= holder
      end))
      assert.truthy(process.wait_until(function()
        return server:cli("ZCOUNT", "holdfast_queue:{k}", "(0", "+inf") == #requests
      end))
      process.sleep(0.2)
      local from = process.now()
      process.signal(holder, "KILL")
      assert.equal("true|true\n", requests[#requests]:finish().body)
      assert.is_true(process.now() - from < 20, "it waited for the lease")
      holding:abort()
      for _, request in ipairs(requests) do request:abort() end
      process.succeeds(("rm -f /dev/shm/holdfast-$(id -u)/%s"):format(uuid))
    end)

    it("recovers by itself when Redis restarts under load, and no request hangs", function()
      start { workers = 2, lease = 3, server = WORK }
      local results = load(2, 20, once(0.3, function() server:restart() end))
      for what in pairs(results) do
        assert.truthy(what == "true|nil" or what == "nil|unreachable" or what == "nil|lost" , what)
      end
      assert.is_true((results["true|nil"] or 0) > 20)
      for i = 1, 20 do assert.equal("true|nil", say("/work?k=" .. i)) end
    end)

    it("makes calls fail as unreachable within seconds if Redis is down or hangs", function()
      start { server = WORK }
      assert.equal("true|nil", say "/work?k=1")
      server:kill("STOP")
      local from = process.now()
      assert.equal("nil|unreachable", say "/work?k=1")
      assert.is_true(process.now() - from < 8)
      server:kill("CONT")
      assert.truthy(process.wait_until(function() return say "/work?k=2" == "true|nil" end, 20))
      server:kill("KILL")
      from = process.now()
      assert.equal("nil|unreachable", say "/work?k=1")
      assert.is_true(process.now() - from < 8)
      server:restart()
      assert.truthy(process.wait_until(function() return say "/work?k=2" == "true|nil" end, 20))
    end)
  end)

  it("gives up a connection that cannot be opened after the connect timeout", function()
    local sys = require "spec.support.sys"
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
    assert.truthy(process.wait_until(function() return say "/" == "held" end, 20))
    assert.is_true(process.now() - from < 10)
    server:kill("CONT")
    front:stop("TERM")
    other:stop()
  end)

  it("waits several seconds for a lock or a slow reply over one connection", function()
    local holder = require("holdfast").new(server:url())
    local lock = assert(holder:lock("k"):acquire(0))
    start { command_timeout = 20, server = FINISH
      .. handler("/wait", [[ SAY(CLIENT:lock("k"):acquire(20) ~= nil, CLIENT:stats().connections) ]])
      .. handler("/ping", [[ SAY(CLIENT:ping() ~= nil, CLIENT:stats().connections) ]]) }
    assert.equal("true|1", say "/ping")
    local waiting = {}
    for i = 1, 3 do waiting[i] = front:begin("/wait") end
    assert.truthy(process.wait_until(function()
      return server:cli("ZCOUNT", "holdfast_queue:{k}", "(0", "+inf") == 3
    end))
    process.sleep(2.5)
    server:kill("STOP")
    local asking = front:begin("/ping")
    process.sleep(1.5)
    server:kill("CONT")
    assert.equal("true|2\n", asking:finish().body)
    assert(lock:release())
    for i = 1, 3 do assert.equal("true|2\n", waiting[i]:finish().body) end
    assert.same({}, front:errors())
    holder:close()
  end)

  it("renews a lock after a timer that has opened 200 connections has ended", function()
    start { server = FINISH .. handler("/", ([[
      local dials, tcp = 0, ngx.socket.tcp
      ngx.socket.tcp = function()
        dials = dials + 1
        return tcp()
      end
      local lock, server = CLIENT:lock("a", { lease = 2, watchdog = true }), tcp()
      assert(server:connect("unix:%s"))
      local function hang_up() assert(server:send("CLIENT KILL TYPE normal\r\n") and server:receive()) end
      assert(lock:acquire(0))
      while dials < 199 do
        hang_up()
        assert(CLIENT:ping())
      end
      hang_up()
      local before = CLIENT:stats().renewals
      repeat ngx.sleep(0.02) until lock:lost() or CLIENT:stats().renewals > before + 2
      ngx.socket.tcp = tcp
      SAY(lock:lost(), lock:release(), dials)
    ]]):format(server.path)) }
    assert.equal("nil|true|201", say "/")
  end)

  -- nginx itself gives no reason, or the reason of another call.
  it("reports that nginx has no free connection, and works again once it has", function()
    for _, url in ipairs { server:url(), server:tcp_url() } do
      start { connections = 32, url = url, server = handler("/", ([[
        local kept, begins = {}, ngx.var.arg_begins == "true"
        if begins then assert(CLIENT:ping()) end -- this starts its timer
        local function take_all()
          repeat
            kept[#kept + 1] = ngx.socket.tcp()
          until not kept[#kept]:connect("unix:%s")
        end
        local other = HOLDFAST.new { url = "%s", command_timeout = 2 }
        take_all()
        local got, message, code = other:lock("a"):acquire(0)
        for _, socket in ipairs(kept) do socket:close() end
        SAY(got, message, code)
        SAY(other:lock("a"):acquire(5) ~= nil)
        other:close()
      ]]):format(server.path, url)) }
      for _, cannot in ipairs { "cannot start a timer: ", "" } do
        assert.matches(("nil|cannot acquire \"a\" on [^ ]+: %snginx has no free connection; raise worker_connections"
          .. "[^|]*|unreachable\ntrue$"):format(cannot), say("/?begins=" .. tostring(cannot == "")))
      end
      front:stop("TERM")
      front = nil
    end
  end)

  it("reports that the server closed the connection", function()
    local closing = fake.server { reply = "", close = true }
    start { url = closing.url, server = handler("/", [[ SAY(select(2, CLIENT:ping())) ]]) }
    assert.matches("the server closed the connection during login", say "/", 1, true)
    closing:stop()
  end)

  -- When the handler ends, both the task and the wait are already overdue.
  it("keeps a wait and its connections while a handler blocks the worker", function()
    local holder = require("holdfast").new(server:url())
    local lock = assert(holder:lock("k"):acquire(0))
    start { grant_lease = 20, server = FINISH .. handler("/", [[ SAY(CLIENT:lock("k"):acquire(60) ~= nil) ]])
      .. handler("/block", [[ local now = require("holdfast.core").now
        local till = now() + 1.1
        while now() < till do end
        SAY("done") ]]) }
    local request = front:begin("/")
    assert.truthy(process.wait_until(function()
      return server:cli("ZCARD", "holdfast_queue:{k}") == 1
    end))
    local function connections()
      local ids = {}
      for id in server:cli("CLIENT", "LIST"):gmatch("id=(%d+)[^\n]-name=holdfast") do ids[id] = true end
      return ids
    end
    local before = connections()
    assert.equal("done", say "/block")
    process.sleep(0.3) -- in this time the wait checks that its task runs
    local now = connections()
    for id in pairs(before) do assert.is_true(now[id]) end
    assert(lock:release())
    local from = process.now()
    assert.equal("true\n", request:finish().body)
    assert.is_true(process.now() - from < 10) -- without a message: 20 s
    assert.truthy(free_within("k", 20)) -- the release of the request is over
    assert.equal(0, #front:errors(), front:log())
    holder:close()
    assert.truthy(process.wait_until(function() return server:cli("EXISTS", "k") == 0 end))
    front:stop("TERM")
  end)

  describe("with lua_code_cache off", function()
    it("leaves no timer, connection or lock behind", function()
      -- The worker loads the library again for each request before it reads the reply to the first.
      start { code_cache = false, command_timeout = 30, server = FINISH .. handler("/", [[
        SAY(CLIENT:with_lock("k" .. ngx.var.arg_k, { wait = 60 }, function() return true end))
      ]]) .. handler("/leak", [[ CLIENT:lock("leak"):acquire() ]])
        .. handler("/timers", [[ SAY(ngx.timer.running_count(), ngx.timer.pending_count()) ]]) }
      for round = 1, 10 do
        local requests = {}
        for i = 1, 20 do requests[i] = front:begin("/?k=" .. i % 3) end
        for i = 1, 20 do assert.equal("true\n", requests[i]:finish().body, "round " .. round) end
      end
      say "/leak"
      assert.truthy(free_within("leak", 5))
      assert.truthy(process.wait_until(function()
        return server:leaks().clients <= 5
      end, 20), "connections stay")
      assert.truthy(process.wait_until(function()
        return tonumber(say("/timers"):match("^%d+")) <= 3
      end, 20), "timers stay")
      assert.equal(1, #front:errors()) -- it says that lua_code_cache is off
    end)
  end)

  it("names the missing directive if nginx hides $HOLDFAST_URL from its workers", function()
    local TAKEN = "$HOLDFAST_URL is not set in the nginx workers, although nginx was started with it"
    for _, main in ipairs { "", "env HOLDFAST_URL;" } do
      start { main = main, env = { HOLDFAST_URL = server:url() },
        server = handler("/", [[ SAY(tostring(HOLDFAST.new()), tostring(HOLDFAST.new())) ]]) }
      local said, log = say "/", front:log()
      assert.equal(main ~= "", said:find(server.path, 1, true) ~= nil, said)
      local at = log:find(TAKEN, 1, true)
      assert.equal(main == "", at ~= nil, log)
      assert.is_true(main ~= "" or log:find('add "env HOLDFAST_URL;"', at, true) ~= nil)
      assert.is_nil(at and log:find(TAKEN, at + 1, true)) -- once per worker
      front:stop("TERM")
    end
  end)

  it("runs the examples of docs/how-to/openresty.md", function()
    local file = assert(io.open("docs/how-to/openresty.md", "rb"))
    local page = "\n" .. file:read("*a")
    file:close()
    local first = page:match("\n```nginx\nhttp {(.-)\n}\n```"):gsub("redis://127%.0%.0%.1:6379",
      server:url())
    local location = first:match("location / %b{}")
    local lua = {}
    for sample in page:gmatch("\n```lua\n(.-\n)```") do lua[#lua + 1] = sample end
    local access, content = lua[1]:match("^(.-\n)\n(.*)$")
    front = nginx.start {
      http = "lua_shared_dict counters 1m;\n" .. first:gsub("server %b{}", ""),
      server = location .. handler("/timer", [[
        function rebuild() ngx.shared.counters:incr("rebuilt", 1, 0) end
        ]] .. lua[2] .. [[ while not ngx.shared.counters:get("rebuilt") do ngx.sleep(0.01) end
        ngx.say("rebuilt")
      ]]) .. ("location /owner { access_by_lua_block {\n%s\n} content_by_lua_block {\n%s\n"):format(access, content)
        .. [[ ngx.say(tostring(ngx.ctx.lock:is_held())) } } ]],
    }
    assert.equal("shipped", say "/")
    assert.equal("rebuilt", say "/timer")
    assert.equal("false", say "/owner")
    assert.is_true(is_free("order:42"))
    assert.truthy(free_within("nightly", 2))
    assert.is_true(is_free("user:7"))
    assert.same({}, front:errors())
  end)

  it("loads the library from the directory of make install", function()
    local prefix = process.directory()
    local made = process.start { "make", "-s", "install", "FLAVOURS=luajit", "PREFIX=" .. prefix }
    assert.equal("exit", (made:wait(600)))
    assert.equal(0, select(2, made:status()), made:output())
    front = nginx.start {
      package_path = ("%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua;;"):format(prefix,
        prefix),
      package_cpath = prefix .. "/lib/lua/5.1/?.so;;",
      http = ([[ init_by_lua_block { LOCKS = require("holdfast").new("%s") } ]]):format(server:url()),
      server = handler("/", [[
        ngx.say(LOCKS:with_lock("a", function() return package.searchpath("holdfast.core", package.cpath) end))
      ]]),
    }
    assert.equal(prefix .. "/lib/lua/5.1/holdfast/core.so", say "/")
  end)

  it("comes with an example that answers JSON, even for failures", function()
    front = nginx.example("examples/openresty", { HOLDFAST_URL = "unix:///nowhere/redis.sock" })
    for _, path in ipairs { "/sale", "/orders/42/ship", "/report" } do
      local response = front:get(path)
      assert.same({ 503, '{"error": "unreachable"}\n' }, { response.status, response.body })
    end
    front:stop("TERM")
    front = nginx.example("examples/openresty", { HOLDFAST_URL = server:url() })
    assert.equal('{"order": "42", "shipped_now": true}\n', front:get("/orders/42/ship").body)
    assert.equal('{"sold": false}\n', front:get("/sale").body)
    assert.equal('{"report": 1}\n', front:get("/report").body)
  end)

  local COLLECT = handler("/collect", [[ collectgarbage() collectgarbage() SAY(collectgarbage("count")) ]])

  -- Returns the kilobytes of Lua memory after `count` requests, 50 at a time.
  local function many(count)
    local requests = {}
    for i = 1, count do
      local slot = i % 50
      if requests[slot] then requests[slot]:finish() end
      requests[slot] = front:begin("/?k=" .. i % 40)
    end
    for _, request in pairs(requests) do request:finish() end
    return tonumber(say "/collect")
  end

  -- 20 light threads of a request acquire for the given seconds. SAYs how often they failed, and
  -- how many connections the worker has opened.
  local USE = [[
    local failed, ends, threads = 0, ngx.now() + ngx.var.arg_seconds, {}
    local function use()
      while ngx.now() < ends do
        if not CLIENT:with_lock("a", { wait = 1 }, function() ngx.sleep(0.01) end) then failed = failed + 1 end
      end
    end
    for i = 1, 20 do threads[i] = ngx.thread.spawn(use) end
    for i = 1, 20 do ngx.thread.wait(threads[i]) end
    SAY(failed, DIALS)
  ]]

  local COUNT_DIALS = [[ lua_socket_log_errors off;
    init_worker_by_lua_block {
      DIALS = 0
      local tcp = ngx.socket.tcp
      ngx.socket.tcp = function() DIALS = DIALS + 1 return tcp() end
    }
  ]]

  -- → how often they failed, how many connections the worker has opened
  local function use(seconds)
    local failed, dials = say("/use?seconds=" .. seconds, { timeout = seconds + 10 }):match("(%d+)|(%d+)")
    return tonumber(failed), tonumber(dials)
  end

  local function start_to_use()
    start { url = "redis://127.0.0.1:" .. server.port, http = COUNT_DIALS,
      server = FINISH .. COLLECT .. handler("/use", USE) }
  end

  it("tries to reconnect a few times a second while the server refuses, and soon succeeds once it is back", function()
    start_to_use()
    local _, before = use(0.1)
    server:kill()
    local failed, dials = use(0.5)
    assert.is_true(failed >= 20)
    assert.is_true(dials - before < 30, dials - before)
    server:restart()
    assert.is_true(process.wait_until(function() return use(0.01) == 0 end, 5))
  end)

  it("doubles its pause before each reconnect, starting at 10 ms", function()
    start { server = FINISH .. handler("/", [[
      local sleep, pauses = ngx.sleep, {}
      function ngx.sleep(seconds)
        if seconds ~= 0.01 then pauses[#pauses + 1] = seconds end -- 0.01: the pause of a late task
        return sleep(seconds)
      end
      local now = require("holdfast.core").now
      local till = now() + 0.5
      while now() < till do CLIENT:ping() end
      ngx.sleep = sleep
      local most, fine = 0.01, true
      for _, pause in ipairs(pauses) do
        fine, most = fine and pause <= most, math.min(2 * most, 0.25)
      end
      SAY(#pauses > 3, fine, table.concat(pauses, " "))
    ]]) }
    server:kill()
    assert.matches("^true|true|", say "/")
  end)

  it("leaves no coroutine in memory after delivering events", function()
    start { server = handler("/", [[
      local done = 0
      for i = 1, 30 do
        require("holdfast.loop.ngx").spawn(function() done = done + 1 end)
        while done < i do ngx.sleep(0.001) end
      end
      collectgarbage()
      local count = 0
      for _, list in pairs(debug.getregistry()) do
        for key, value in pairs(type(list) == "table" and list or {}) do
          if type(key) == "thread" or type(value) == "thread" then count = count + 1 end
        end
      end
      SAY(count)
    ]]) }
    local count = tonumber(say "/")
    assert.is_true(count < 20, count)
  end)

  it("does not leak memory while the server refuses connections #check", function()
    local seconds = tonumber(os.getenv("HOLDFAST_OUTAGE")) or 120
    start_to_use()
    use(2)
    server:kill()
    local pid, sizes = front:workers()[1], {}
    for i = 1, seconds / 10 do
      use(10)
      say "/collect"
      sizes[i] = nginx.resident(pid)
    end
    local first, last = sizes[math.min(6, #sizes - 1)], sizes[#sizes]
    assert.is_true(last <= 1.1 * first, ("%d KiB at first, %d KiB then"):format(first, last))
    if os.getenv("HOLDFAST_OUTAGE") then print(("%d KiB at first, %d KiB then"):format(first, last)) end
    server:restart()
    assert.is_true(process.wait_until(function() return use(0.01) == 0 end, 5))
  end)

  it("does not leak memory over many clients #check", function()
    start { server = FINISH .. COLLECT .. handler("/", ([[
      HOLDFAST.new("%s"):with_lock("k" .. ngx.var.arg_k, { wait = 10 }, function() end)
    ]]):format(server:url())) .. handler("/timers", [[ SAY(ngx.timer.running_count()) ]]) }
    local pid = front:workers()[1]
    many(10000)
    local before = nginx.resident(pid)
    local lua = many(10000)
    local lua_after = many(40000)
    local after = nginx.resident(pid)
    assert.is_true(after - before < 4096, ("%d to %d KiB"):format(before, after))
    assert.is_true(lua_after - lua < 512, ("Lua: %.0f to %.0f KiB"):format(lua, lua_after))
    assert.is_true(tonumber(say "/timers") <= 10, say "/timers")
    assert.same({}, front:errors())
  end)

  it("does not leak memory over many requests #check", function()
    start { server = FINISH .. COLLECT .. handler("/", [[
      CLIENT:with_lock("k" .. ngx.var.arg_k, { wait = 10 }, function() end)
    ]]) }
    local pid = front:workers()[1]
    many(20000)
    local before = nginx.resident(pid)
    local lua = many(20000)
    local lua_after = many(160000)
    local after = nginx.resident(pid)
    assert.is_true(after - before < 1024, ("%d to %d KiB"):format(before, after))
    assert.is_true(lua_after - lua < 512, ("Lua: %.0f to %.0f KiB"):format(lua, lua_after))
  end)
end)
