-- The API in real nginx workers. The module there is LuaJIT's as it was built, so these run once, without sanitizers.

local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"

if process.flavour ~= "luajit" or process.build ~= "./build" then return end

local nginx = require "spec.support.nginx"

local INIT = [[
  lua_shared_dict counters 1m;
  init_by_lua_block {
    HOLDFAST = require "holdfast"
    CLIENT = HOLDFAST.new { url = "%(url)", lease = %(lease), command_timeout = 2 }
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
    local values = { url = options.url or server:url(), lease = options.lease or 30 }
    front = nginx.start {
      workers = options.workers,
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

    -- What acquire of a client says: "true", or its code and message.
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

    it("the API works; the certificate is checked", function()
      guarded = redis.start { tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert }, tcp = true }
      local other = redis.start {
        tls = { cert = made.elsewhere.cert, key = made.elsewhere.key, ca = made.ca.cert },
      }
      local untrusted = redis.start {
        tls = { cert = made.stranger.cert, key = made.stranger.key, ca = made.ca.cert },
      }
      start {
        http = ("lua_ssl_trusted_certificate %s;\n"):format(made.ca.cert),
        server = try("/good", guarded:tls_url(), "")
          .. try("/elsewhere", other:tls_url(), "")
          .. try("/expected", other:tls_url(), 'server_name = "redis.example"')
          .. try("/untrusted", untrusted:tls_url(), "")
          .. try("/unverified", untrusted:tls_url(), "verify = false")
          .. try("/plain", "rediss://127.0.0.1:" .. guarded.port, "")
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
      -- a handshake that fails may also be told as the end of the connection, whichever nginx sees first
      local function comes_to_say(pattern, path)
        local said
        local found = process.wait_until(function()
          said = say(path)
          return said:find(pattern)
        end, 10)
        assert(found, ("%s says %s"):format(path, said))
      end
      comes_to_say("^unreachable|.*on localhost:%d+: TLS: .*certificate host mismatch", "/elsewhere")
      comes_to_say("^unreachable|.*certificate", "/untrusted")
      comes_to_say("^unreachable|.*does the server speak TLS%?", "/plain")
      comes_to_say("^unreachable|.*use rediss://", "/no-tls")
      assert.matches("lua_ssl_trusted_certificate", say "/misuse")
      other:stop()
      untrusted:stop()
    end)

    it("who waits is handed the lock", function()
      guarded = redis.start { tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert } }
      start {
        url = guarded:tls_url(),
        http = ("lua_ssl_trusted_certificate %s;\n"):format(made.ca.cert),
        server = handler("/hold", [[ SAY(CLIENT:with_lock("a", function() ngx.sleep(0.5) return "held" end)) ]])
          .. handler("/wait", [[ SAY(CLIENT:with_lock("a", { wait = 10 }, function() return "next" end)) ]])
          .. handler("/stats", [[ SAY(CLIENT:stats().grants) ]]),
      }
      local holder = front:begin "/hold"
      assert.is_truthy(process.wait_until(function() return guarded:cli("EXISTS", "a") == 1 end, 5))
      assert.equal("next", say "/wait")
      assert.equal("held\n", assert(holder:finish()).body)
      assert.equal("1", say "/stats")
      assert.same({}, front:errors())
    end)

    it("a client certificate is shown", function()
      guarded = redis.start {
        tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert, clients = "yes" },
      }
      start {
        http = ("lua_ssl_trusted_certificate %s;\n"):format(made.ca.cert),
        server = try("/good", guarded:tls_url(), ('cert = "%s", key = "%s"'):format(made.client.cert, made.client.key))
          .. try("/none", guarded:tls_url(), "")
          .. try("/nowhere", guarded:tls_url(), 'cert = "/nowhere", key = "/nowhere"'),
      }
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

    it("a lock is held while a majority has it", function()
      local list = ('"%s", "%s", "%s"'):format(server:tcp_url(), others[1]:tcp_url(), others[2]:tcp_url())
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
      assert.is_truthy(process.wait_until(function() return server:cli("EXISTS", "a") == 1 end, 5))
      assert.equal("busy", say "/try")
      others[1]:kill()
      assert.equal("true|true|0\n", assert(holder:finish()).body)
      assert.equal("true|true|0", say "/use")
      others[2]:kill()
      assert.matches("^no_quorum|.*[01] of 3 taken.*127.0.0.1:" .. others[2].port, say "/use")
      assert.is_truthy(free_within("a", 5))
    end)
  end)

  describe("the API", function()
    it("is the same, with the same codes", function()
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
      assert.equal("true|true|2|true|true\ntrue|true|true\ntrue|true\ntrue|true|false\nnot_held", say "/lock")
      assert.equal("busy|2\ntrue|lost", say "/busy")
      assert.equal("true|2|nil|4\nfalse|bad\none\nfirst\nnil|again|duplicate\ntrue|true|true\ntrue|true",
        say "/templates")
      assert.equal("nil|busy", (say("/posix"):gsub("|.-|", "|", 1):gsub("\ntrue$", "")))
      assert.truthy(say("/misuse"):find("^false|.*abort_on_loss"))
      assert.same({}, front:errors())
    end)

    it("logs in and selects, over TCP too", function()
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

    it("follows the master that Sentinels name", function()
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
      assert.truthy(process.wait_until(function() return say "/kept" == "true" end, 10))
      for _, each in ipairs(set.sentinels) do each:kill("KILL") end
      assert.equal("true", say "/kept")
      front:stop("TERM")
      front = nil
      set:stop()
    end)

    it("takes no connection that other code has left in the pool", function()
      start { server = handler("/leave", [[
        for _ = 1, 3 do
          local socket = ngx.socket.tcp()
          assert(socket:connect("unix:]] .. server.path .. [["))
          assert(socket:send("SELECT 3\r\n") and socket:receive() and socket:setkeepalive())
        end
      ]]) .. handler("/", [[ SAY(CLIENT:lock("a"):acquire(0) ~= nil) ]]) }
      say "/leave"
      assert.equal("true", say "/")
      assert.is_false(is_free("a"))
    end)

    it("has another owner in each request, although they share a coroutine", function()
      start { server = handler("/leak", [[ SAY(CLIENT:lock("a"):acquire(0) ~= nil) ]])
        .. handler("/take", [[ SAY(select(3, CLIENT:lock("a"):acquire(0))) ]]) }
      assert.equal("true", say "/leak")
      for _ = 1, 20 do assert.equal("busy", say "/take") end
    end)

    it("closes a client with what it holds", function()
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

  describe("under contention", function()
    it("loses no update of 500 requests in two workers over two connections each, and answers others", function()
      start { workers = 2, server = FINISH .. handler("/add", [[
        local counters = ngx.shared.counters
        SAY(CLIENT:with_lock("hot", { wait = 30 }, function()
          local value = counters:get("n") or 0
          ngx.sleep(0.001)
          counters:set("n", value + 1)
          return value + 1
        end))
      ]]) .. handler("/plain", [[ SAY("here") ]]) .. handler("/count", [[ SAY(ngx.shared.counters:get("n")) ]]) }
      local requests = {}
      for i = 1, 500 do requests[i] = front:begin("/add") end
      assert.truthy(process.wait_until(function() return (tonumber(say "/count") or 0) > 5 end, 5))
      local most, slowest = 0, 0
      for _ = 1, 20 do
        local from = process.now()
        assert.equal("here", say "/plain")
        slowest = math.max(slowest, process.now() - from)
        most = math.max(most, server:leaks().clients)
      end
      assert.is_true(tonumber(say "/count") < 500, "it was over too soon to tell")
      local seen = {}
      for _, request in ipairs(requests) do seen[tonumber((assert(request:finish(30)).body))] = true end
      assert.equal(500, #seen)
      assert.equal("500", say "/count")
      assert.is_true(most <= 4, most .. " connections")
      assert.is_true(slowest < 0.5, slowest .. " s for a plain answer")
      assert.is_true(is_free("hot"))
      assert.same({}, front:errors())
    end)

    it("serves in the order of arrival", function()
      start { server = handler("/", [[
        local counters = ngx.shared.counters
        local place = counters:incr("arrived", 1, 0)
        CLIENT:with_lock("hot", function()
          ngx.sleep(0.005)
          SAY(place, counters:incr("served", 1, 0))
        end)
      ]]) .. handler("/warm", [[ CLIENT:with_lock("warm", function() ngx.sleep(0.02) end) ]]) }
      local first, second = front:begin("/warm"), front:begin("/warm") -- who waits first also waits for the channel
      first:finish()
      second:finish()
      local requests, from = {}, process.now()
      for i = 1, 30 do requests[i] = front:begin("/") end
      for _, request in ipairs(requests) do
        local place, served = assert(request:finish()).body:match("(%d+)|(%d+)")
        assert.equal(place, served)
      end
      assert.is_true(process.now() - from < 0.9, "somebody was not woken")
    end)
  end)

  -- Each takes the lock on "a" and is over without a release.
  local ENDS = {
    { "ngx.exit", [[ CLIENT:with_lock("a", function() ngx.exit(204) end) ]] },
    { "an error", [[ CLIENT:lock("a"):acquire() error("on purpose") ]] },
    { "nothing but the return", [[ CLIENT:lock("a"):acquire() ]] },
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
    it("frees the lock of a request within 100 ms of its end, however it ends", function()
      start { server = FINISH .. locations_of_ends() }
      for i, each in ipairs(ENDS) do
        local response = front:begin("/end" .. i):finish()
        assert.truthy(response, each[1])
        local took = free_within("a", 1)
        assert.is_true(took and took < 0.1, ("%s: %s"):format(each[1], tostring(took)))
      end
    end)

    it("frees a lock that comes in the moment in which its waiter is killed", function()
      start { server = FINISH .. handler("/", [[
        local mine, theirs = CLIENT:lock("a", { owner = "mine" }), CLIENT:lock("a", { owner = "theirs" })
        assert(mine:acquire(1))
        local thread = ngx.thread.spawn(theirs.acquire, theirs)
        while mine:info().waiters == 0 do end
        mine:release()
        local till = require "holdfast.core".now() + ngx.var.arg_after / 1e6
        while require "holdfast.core".now() < till do ngx.sleep(0) end
        ngx.thread.kill(thread)
      ]]) }
      for after = 0, 500, 5 do
        say("/?after=" .. after)
        assert.truthy(free_within("a", 0.2), after .. " µs after the release")
      end
    end)

    it("frees the lock of a client that hangs up, and the place of one that waited", function()
      start { server = FINISH .. locations_of_ends() }
      local holder = front:begin("/hold")
      assert.truthy(process.wait_until(function() return not is_free("a") end))
      local waiters = {}
      for i = 1, 20 do waiters[i] = front:begin("/wait") end
      assert.truthy(process.wait_until(function() return server:cli("ZCARD", "holdfast_queue:{a}") == 20 end))
      for _, waiter in ipairs(waiters) do waiter:abort() end
      assert.truthy(process.wait_until(function() return server:cli("ZCARD", "holdfast_queue:{a}") == 0 end, 1))
      local from = process.now()
      holder:abort()
      assert.equal("true", say "/next")
      assert.is_true(process.now() - from < 0.2)
    end)
  end)

  describe("without it", function()
    it("renews nothing for a request that is over: the lock ends with the lease", function()
      start { lease = 1, server = locations_of_ends() }
      for i, each in ipairs(ENDS) do
        local request = front:begin("/end" .. i)
        assert.truthy(request:finish(), each[1])
        assert.is_true(not is_free("a"), each[1])
        local took = free_within("a", 3)
        assert.is_true(took and took < 1.1, ("%s: %s"):format(each[1], tostring(took)))
      end
    end)

    it("does not wait for those who hung up", function()
      start { lease = 1, server = locations_of_ends() }
      local holder = front:begin("/hold")
      assert.truthy(process.wait_until(function() return not is_free("a") end))
      local waiters = {}
      for i = 1, 20 do waiters[i] = front:begin("/wait") end
      assert.truthy(process.wait_until(function() return server:cli("ZCARD", "holdfast_queue:{a}") == 20 end))
      for _, waiter in ipairs(waiters) do waiter:abort() end
      process.sleep(1.3)
      assert.equal(0, server:cli("ZCARD", "holdfast_queue:{a}"))
      holder:abort()
      local took = free_within("a", 3)
      assert.is_true(took and took < 1.1, tostring(took))
    end)
  end)

  it("renews the lock of a living request, through all its phases", function()
    start { lease = 0.6, server = FINISH .. [[
      location /long {
        access_by_lua_block {
          ngx.ctx.lock = CLIENT:lock("a", { owner = "me" })
          assert(ngx.ctx.lock:acquire())
          ngx.sleep(1)
        }
        content_by_lua_block { ngx.sleep(1) SAY(ngx.ctx.lock:is_held(), ngx.ctx.lock:release()) }
      }]] .. handler("/short", [[ CLIENT:with_lock("b", function() end) SAY(CLIENT:stats().renewals) ]])
      .. handler("/replaced", [[
        SAY(CLIENT:with_lock("c", function(lock) ngx.sleep(1) return lock:lost() end))
      ]]) }
    assert.equal("0", say "/short")
    assert.equal("true|true", say "/long")
    assert.is_true(tonumber(say "/short") >= 6)
    assert.equal("nil", say "/replaced")
  end)

  describe("idempotent_request", function()
    local function guarded(location, opts, content, more)
      return ([[location %s {
        access_by_lua_block { HOLDFAST.idempotent_request { client = CLIENT, %s } }
        content_by_lua_block { %s }
        %s
      }
      ]]):format(location, opts, content, more or "")
    end

    local RUN = [[ ngx.shared.counters:incr("runs", 1, 0) ngx.sleep(tonumber(ngx.var.arg_sleep) or 0) SAY("ran") ]]
    local COUNT = handler("/runs", [[ SAY(ngx.shared.counters:get("runs") or 0) ]])
    local function post(path, key, body)
      return front:get(path, { method = "POST", body = body or "", headers = { ["Idempotency-Key"] = key } })
    end

    it("lets one of equal requests run, by address, URI, sorted arguments and body", function()
      start { server = FINISH .. COUNT .. guarded("/pay", 'expire = 0.4, info = "twice", status = 429', RUN) }
      assert.equal(200, front:get("/pay?a=1&b=2").status)
      local second = front:get("/pay?b=2&a=1")
      assert.same({ 429, "twice\n" }, { second.status, second.body })
      assert.equal(200, front:get("/pay?a=1&b=3").status)
      assert.equal(200, front:get("/pay?a=1&b=2", { method = "POST", body = "x" }).status)
      assert.equal(429, front:get("/pay?a=1&b=2", { method = "POST", body = "x" }).status)
      assert.equal(200, front:get("/pay?a=1&b=2", { method = "POST", body = ("y"):rep(100000) }).status)
      assert.equal("4", say "/runs")
      process.sleep(0.45)
      assert.equal(200, front:get("/pay?a=1&b=2").status)
    end)

    it("takes the key from a header: 400 without, 422 for another payload, 409 while it runs", function()
      start { server = FINISH .. COUNT .. guarded("/pay", "header = true, expire = 5", RUN) }
      assert.equal(400, front:get("/pay").status)
      local first = front:begin("/pay?sleep=0.3", { method = "POST", headers = { ["Idempotency-Key"] = "k" } })
      assert.truthy(process.wait_until(function() return say "/runs" == "1" end))
      local second = post("/pay?sleep=0.3", "k")
      assert.same({ 409, "1" }, { second.status, second.headers["retry-after"] })
      assert.equal(200, first:finish().status)
      local third
      assert.truthy(process.wait_until(function()
        third = post("/pay?sleep=0.3", "k")
        return not third.headers["retry-after"]
      end, 0.2), "still said to run")
      assert.equal(409, third.status)
      assert.equal(422, post("/pay?sleep=0.3", "k", "other").status)
      assert.equal("1", say "/runs")
    end)

    it("replays status, headers and body", function()
      start { server = FINISH .. COUNT .. guarded("/pay", "header = true, replay = true, expire = 5", [[
        ngx.shared.counters:incr("runs", 1, 0)
        ngx.status = 201
        ngx.header["X-Order"] = { "7", "8" }
        ngx.header["Content-Type"] = "application/json"
        ngx.print("{") ngx.flush(true) ngx.print("}")
      ]], "body_filter_by_lua_block { HOLDFAST.capture() }\n")
        .. guarded("/big", "header = true, replay = true, expire = 5", [[ ngx.print(("x"):rep(70000)) ]],
        "body_filter_by_lua_block { HOLDFAST.capture() }\n") }
      local first = post("/pay", "k")
      local second
      process.wait_until(function()
        second = post("/pay", "k")
        return second.status ~= 409
      end, 0.2)
      assert.same({ 201, "{}", "application/json", "8" },
        { first.status, first.body, first.headers["content-type"], first.headers["x-order"] })
      assert.same({ 201, "{}", "application/json", "8", "true" }, { second.status, second.body,
        second.headers["content-type"], second.headers["x-order"], second.headers["idempotent-replayed"] })
      assert.equal("1", say "/runs")
      assert.equal(200, post("/big", "b").status)
      assert.equal(409, post("/big", "b").status)
    end)

    it("frees the key after an error of the server, and with the lease when nobody finishes", function()
      start { lease = 1, server = guarded("/fail", 'key = "f", expire = 60', "ngx.exit(500)", FINISH)
        .. guarded("/forgotten", 'key = function() return "g" end, expire = 60', RUN) }
      assert.equal(500, front:get("/fail").status)
      assert.truthy(free_within("idempotent:f", 0.1))
      assert.equal(200, front:get("/forgotten").status)
      assert.equal(409, front:get("/forgotten").status)
      local took = free_within("idempotent:g", 3)
      assert.is_true(took and took < 1.1, tostring(took))
    end)

    it("answers 503 without a server", function()
      start { url = "unix:///nowhere/redis.sock", server = FINISH .. guarded("/pay", "", RUN) }
      assert.equal(503, front:get("/pay").status)
    end)
  end)

  describe("phases", function()
    local function try(kind)
      return kind .. [[_by_lua_block {
        local ran, message = pcall(function() local lock = CLIENT:lock("phase"):try_acquire() return lock end)
        ngx.log(ngx.NOTICE, "result of ]] .. kind .. [[: ", tostring(ran), " ", tostring(message), ".")
        if ran and message then message:release() end
        CLIENT:lock("phase"):is_held()
      }
      ]]
    end

    it("wait where ngx_lua can, and say what to do where it cannot", function()
      start {
        http = [[ init_worker_by_lua_block {
          local ran, message = pcall(CLIENT.with_lock, CLIENT, "w", function() end)
          ngx.log(ngx.NOTICE, "result of init_worker: ", tostring(ran), " ", tostring(message), ".")
          ngx.timer.at(0, function()
            ngx.log(ngx.NOTICE, "result of timer: ", tostring(CLIENT:lock("w"):try_acquire() ~= nil), ".")
          end)
        }
        ]],
        server = "location / {" .. try "rewrite" .. try "access" .. try "content" .. try "header_filter"
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
        assert.truthy(log:find("result of " .. phase .. ": true holdfast.lock: phase (held", 1, true), phase)
      end
      assert.truthy(log:find("result of timer: true.", 1, true))
      for _, phase in ipairs { "init_worker", "set", "header_filter", "body_filter", "log" } do
        local message = log:match("result of " .. phase .. ": false ([^\n]*)")
        assert.truthy(message, phase)
        assert.truthy(message:find("impossible in " .. phase .. "_by_lua; ", 1, true), message)
      end
      assert.truthy(log:match("result of log: false [^\n]*holdfast%.finish%(%)"))
      assert.truthy(log:match("result of set: false [^\n]*rewrite_by_lua can wait"))
      assert.truthy(log:match("result of init_worker: false [^\n]*ngx%.timer%.at"))
      assert.truthy(log:match("result of header_filter: false header_filter_by_lua:?%b():%d+: holdfast"))
    end)
  end)

  describe("processes", function()
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

    -- Keeps `width` requests under way for `seconds`; calls at(elapsed). → how many ended in each way
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

    it("reload under load: old workers go, no request fails, no lock stays", function()
      start { workers = 2, lease = 1, server = WORK }
      local old, slow = front:workers(), nil
      local results = load(1.5, 20, once(0.5, function()
        slow = front:begin("/slow")
        process.sleep(0.1)
        front:reload()
      end))
      assert.equal("true", (slow:finish().body:gsub("\n", "")))
      local from = process.now()
      assert.truthy(process.wait_until(function()
        local now = table.concat(front:workers(), " ") .. " "
        return not now:find(old[1] .. " ", 1, true) and not now:find(old[2] .. " ", 1, true)
      end, 5), "old workers stay")
      assert.is_true(process.now() - from < 2)
      assert.equal(2, #front:workers())
      for what in pairs(results) do assert.equal("true|nil", what) end
      front:stop()
      assert.same({}, server:cli("KEYS", "k*"))
      assert.same({}, front:errors())
    end)

    it("quit while a request holds a lock beyond its lease: it keeps it, then the worker goes", function()
      start { lease = 0.6, server = WORK }
      local slow = front:begin("/slow")
      process.sleep(0.2)
      front.process:kill("QUIT")
      assert.equal("true", (slow:finish().body:gsub("\n", "")))
      local from = process.now()
      assert.equal("exit", front.process:wait(5))
      assert.is_true(process.now() - from < 2)
      assert.is_true(is_free("slow"))
      assert.same({}, front:errors())
    end)

    it("a killed worker's locks go with the lease", function()
      start { lease = 1, server = WORK }
      local slow = front:begin("/slow")
      assert.truthy(process.wait_until(function() return not is_free("slow") end))
      process.signal(front:workers()[1], "KILL")
      slow:finish()
      assert.is_false(is_free("slow"))
      local took = free_within("slow", 3)
      assert.is_true(took and took < 1.1, tostring(took))
      assert.equal("true|nil", say "/work?k=1")
    end)

    it("Redis restarts under load: nobody hangs, and the workers recover by themselves", function()
      start { workers = 2, lease = 1, server = WORK }
      local results = load(2, 20, once(0.3, function() server:restart() end))
      for what in pairs(results) do
        assert.truthy(what == "true|nil" or what == "nil|unreachable" or what == "nil|lost" , what)
      end
      assert.is_true((results["true|nil"] or 0) > 20)
      for i = 1, 20 do assert.equal("true|nil", say("/work?k=" .. i)) end
    end)

    it("Redis is away: unreachable in time; Redis hangs: the same", function()
      start { server = WORK }
      assert.equal("true|nil", say "/work?k=1")
      server:kill("STOP")
      local from = process.now()
      assert.equal("nil|unreachable", say "/work?k=1")
      assert.is_true(process.now() - from < 4)
      server:kill("CONT")
      assert.truthy(process.wait_until(function() return say "/work?k=2" == "true|nil" end, 5))
      server:kill("KILL")
      from = process.now()
      assert.equal("nil|unreachable", say "/work?k=1")
      assert.is_true(process.now() - from < 4)
      server:restart()
      assert.truthy(process.wait_until(function() return say "/work?k=2" == "true|nil" end, 5))
    end)
  end)

  it("gives up a connection whose server says nothing any more", function()
    local other = redis.start()
    start { server = handler("/", [[ SAY(select(3, CLIENT:lock("a", { lease = 0.1 }):acquire(1)) or "held") ]]) }
    assert.equal("held", say "/")
    server:kill("STOP")
    assert(os.rename(other.path, server.path))
    local from = process.now()
    assert.truthy(process.wait_until(function() return say "/" == "held" end, 6))
    assert.is_true(process.now() - from < 4)
    server:kill("CONT")
    front:stop("TERM")
    other:stop()
  end)

  describe("with lua_code_cache off", function()
    it("leaves no timer, no connection and no lock behind", function()
      start { code_cache = false, server = FINISH .. handler("/", [[
        SAY(CLIENT:with_lock("k" .. ngx.var.arg_k, { wait = 10 }, function() return true end))
      ]]) .. handler("/leak", [[ CLIENT:lock("leak"):acquire() ]])
        .. handler("/timers", [[ SAY(ngx.timer.running_count(), ngx.timer.pending_count()) ]]) }
      for round = 1, 10 do
        local requests = {}
        for i = 1, 20 do requests[i] = front:begin("/?k=" .. i % 3) end
        for i = 1, 20 do assert.equal("true\n", requests[i]:finish().body, "round " .. round) end
      end
      say "/leak"
      assert.truthy(free_within("leak", 0.2))
      assert.truthy(process.wait_until(function() return server:leaks().clients <= 5 end, 3), "connections stay")
      assert.truthy(process.wait_until(function()
        return tonumber(say("/timers"):match("^%d+")) <= 3
      end, 3), "timers stay")
      assert.equal(1, #front:errors()) -- that lua_code_cache is off
    end)
  end)

  it("does not grow over many requests #check", function()
    start { server = FINISH .. handler("/", [[
      CLIENT:with_lock("k" .. ngx.var.arg_k, { wait = 10 }, function() end)
    ]]) .. handler("/collect", [[ collectgarbage() collectgarbage() SAY(collectgarbage("count")) ]]) }
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
    local pid = front:workers()[1]
    many(20000)
    local before = nginx.resident(pid)
    local lua = many(20000)
    local lua_after = many(160000)
    local after = nginx.resident(pid)
    assert.is_true(after - before < 1024, ("%d to %d KiB"):format(before, after))
    assert.is_true(lua_after - lua < 64, ("Lua: %.0f to %.0f KiB"):format(lua, lua_after))
  end)
end)
