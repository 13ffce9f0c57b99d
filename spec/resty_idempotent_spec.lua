-- Under ngx_lua: idempotent_request.

local files = require "spec.support.files"
local process = require "spec.support.process"
local resty = require "spec.support.resty"

if not resty.is_there() then return end

local FINISH, CAPTURE = resty.FINISH, resty.CAPTURE
local comes_to_be_recorded, comes_to_say = resty.comes_to_be_recorded, resty.comes_to_say
local free_within, front, handler = resty.free_within, resty.front, resty.handler
local is_free, reply_of, say, server = resty.is_free, resty.reply_of, resty.say, resty.server
local start = resty.start
local eventually = process.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("idempotent_request", function()
    -- A location with only these options, which captures what it may have to replay.
    local function location(path, opts, content, more)
      return ([[location %s {
        access_by_lua_block { HOLDFAST.idempotent_request { client = CLIENT, %s } }
        content_by_lua_block { %s }
        %s
      }
      ]]):format(path, opts, content, (opts:find("replay = true") and CAPTURE or "") .. (more or ""))
    end

    local function guarded(path, opts, content, more)
      return location(path, "principal = false, " .. opts, content, more)
    end

    local RUN = [[ ngx.shared.counters:incr("runs", 1, 0) ngx.sleep(tonumber(ngx.var.arg_sleep) or 0) SAY("ran") ]]
    local COUNT = handler("/runs", [[ SAY(ngx.shared.counters:get("runs") or 0) ]])

    -- → the options of a POST request with this key
    local function keyed(key, body)
      return { method = "POST", body = body or "", headers = { ["Idempotency-Key"] = key } }
    end
    local function post(path, key, body) return front:get(path, keyed(key, body)) end

    -- Sends the request until no other one with its key is running. → the response
    local function settled(path, options)
      local response
      eventually(function()
        response = front:get(path, options)
        return not response.headers["retry-after"]
      end)
      return response
    end

    -- → status, body and whether it was replayed
    local function parts(response)
      return { response.status, response.body, response.headers["idempotent-replayed"] }
    end

    local function logged() return table.concat(front:errors(), "\n") end

    it("runs one of several requests with equal address, URI, arguments and body", function()
      start { server = FINISH .. COUNT .. guarded("/pay",
        'expire = 3, info = "twice", status = 429', RUN) }
      assert.equal(200, front:get("/pay?a=1&b=2").status)
      assert.same({ 429, "twice\n" }, parts(front:get("/pay?a=1&b=2")))
      assert.equal(200, front:get("/pay?a=1&b=3").status)
      local large = ("x"):rep(100000) -- nginx writes such a body to a file
      for _, body in ipairs { "x", large .. "y", large .. "z" } do
        for _, status in ipairs { 200, 429 } do
          assert.equal(status, front:get("/pay?a=1&b=2", { method = "POST", body = body }).status)
        end
      end
      assert.equal("5", say "/runs")
      eventually(function() return front:get("/pay?a=1&b=2").status == 200 end)
    end)

    it("treats requests as different if the upstream server can tell them apart", function()
      local URI = "SAY(ngx.var.request_uri)"
      start { server = FINISH .. guarded("/pay", "replay = true, expire = 30", URI)
        .. guarded("/by_key", "header = true, expire = 30", URI)
        .. "location /renamed { rewrite ^ /pay/$arg_as? last; }\n" }
      for _, path in ipairs {
        "/pay/a/b", "/pay/a%2Fb", "/pay/a%2fb", "/pay/./a/b", "/pay//a/b", "/pay/b", "/renamed?as=b",
        "/pay?l=1&l=2", "/pay?l=2&l=1", "/pay?l=1&&l=2", "/pay?l=%31&l=2", "/pay?", "/pay",
      } do
        assert.equal(path .. "\n", front:get(path).body)
        assert.equal("true", settled(path).headers["idempotent-replayed"], path)
      end
      assert.equal(200, post("/by_key?l=1&l=2", "k").status)
      settled("/by_key?l=1&l=2", keyed "k")
      assert.equal(422, post("/by_key?l=2&l=1", "k").status)
    end)

    it("takes the key from a header, and answers 400, 409 or 422 if the key is missing, in use or reused", function()
      start { server = FINISH .. COUNT .. guarded("/pay", "header = true, expire = 30", RUN) }
      for text, response in pairs {
        ["is missing"] = front:get("/pay"),
        ["was sent more than once"] = post("/pay", "k\r\nIdempotency-Key: l"),
      } do
        assert.equal(400, response.status)
        assert.matches("the Idempotency%-Key header " .. text, response.body)
      end
      local first = front:begin("/pay?sleep=2", { method = "POST", headers = keyed("k").headers })
      comes_to_say("/runs", "1")
      local second = post("/pay?sleep=2", "k")
      assert.same({ 409, "1" }, { second.status, second.headers["retry-after"] })
      assert.equal(200, first:finish().status)
      assert.equal(409, settled("/pay?sleep=2", keyed "k").status)
      assert.equal(422, post("/pay?sleep=2", "k", "other").status)
      assert.equal("1", say "/runs")
    end)

    it("answers a duplicate at once with the given status and text while the first one runs", function()
      start { server = FINISH .. COUNT .. guarded("/pay",
        'header = "X-Payment", lease = 0.6, status = 425, info = "wait"', [[
          local from = CLIENT:stats().renewals
          ngx.shared.counters:incr("runs", 1, 0)
          repeat ngx.sleep(0.01) until OVER and CLIENT:stats().renewals >= from + 4
          SAY("ran")
        ]]) .. handler("/over", "OVER = true") }
      local function pay()
        return front:begin("/pay", { method = "POST", body = "", headers = { ["X-Payment"] = "1" } })
      end
      local first = pay()
      comes_to_say("/runs", "1")
      local left = server:cli("PTTL", "idempotent:1")
      assert.is_true(left > 0 and left <= 600, left)
      local from = process.now()
      local second = pay():finish()
      assert.is_true(process.now() - from < 5, "the duplicate waited for the first one")
      assert.same({ { 425, "wait\n" }, "1" }, { parts(second), second.headers["retry-after"] })
      say "/over"
      assert.same({ 200, "ran\n" }, parts(first:finish()))
      assert.matches("the X%-Payment header is missing", post("/pay", "1").body)
      assert.equal("1", say "/runs")
    end)

    it("records a finished request after an outage, as soon as the server accepts writes again", function()
      start { server = FINISH .. COUNT .. guarded("/pay", "expire = 60", RUN) }
      finally(function() server:cli("REPLICAOF", "NO", "ONE") end)
      local first = front:begin "/pay?sleep=0.3"
      comes_to_say("/runs", "1")
      server:cli("REPLICAOF", "127.0.0.1", "1")
      assert.equal(200, first:finish().status)
      process.sleep(0.3)
      server:cli("REPLICAOF", "NO", "ONE")
      eventually(function() return front:get("/pay?sleep=0.3").status ~= 200 end)
      assert.equal("1", say "/runs")
    end)

    it("finds a header after a hundred other headers, and distinguishes empty from missing headers", function()
      start { server = FINISH .. "large_client_header_buffers 8 32k;\n"
        .. location("/pay", 'header = true, expire = 60, vary = { "X-Tenant" }, replay = true', [[
          for i = 1, 120 do ngx.header["Y-" .. i] = "y" end
          ngx.header["Y-Last"] = "last"
          SAY("ran")
        ]]) }
      local others = {}
      for i = 1, 120 do others[i] = ("X-%d: y\r\n"):format(i) end
      others = "y\r\n" .. table.concat(others)
      local function ask(tenant)
        return settled("/pay", { method = "POST", body = "", headers = { ["X-0"] = others
          .. "Idempotency-Key: k\r\nAuthorization: anna" .. tenant } })
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
      ]]) }
      for _, method in ipairs { "HEAD", "POST", "PUT" } do
        local options = keyed(method)
        options.method = method
        assert.equal(200, front:get("/pay", options).status)
        local again = settled("/pay", options)
        assert.same({ { 200, method == "HEAD" and "" or "paid", "true" }, "the first" },
          { parts(again), again.headers["x-kept"] })
        local record = server:cli("HGET", "idempotent:" .. method, "done"):lower()
        assert.truthy(record:find("x-kept", 1, true))
        for _, name in ipairs { "server", "date", "keep-alive", "proxy-connection", "te", "trailer",
          "upgrade", "connection", "content-length", "transfer-encoding" } do
          assert.is_nil(record:find((":%s"):format(name) .. "s", 1, true), name)
        end
      end
    end)

    it("with keep_on_error records a request whose client disconnected", function()
      start { server = FINISH .. COUNT .. "lua_check_client_abort on;\n"
        .. guarded("/pay", "header = true, expire = 60, keep_on_error = true", RUN) }
      local request = front:begin("/pay?sleep=60", keyed "h")
      comes_to_say("/runs", "1")
      request:abort()
      comes_to_be_recorded "h"
      assert.equal(409, post("/pay?sleep=60", "h").status)
      assert.equal("1", say "/runs")
    end)

    it("records a request once even if finish is called twice, under a key shared by all users", function()
      start { server = [[
        log_by_lua_block { HOLDFAST.finish() HOLDFAST.finish() }
        gzip on;
        gzip_min_length 1;
        gzip_types text/plain;
        ]] .. location("/pay", 'key = "k", expire = 60', [[ ngx.print(("paid "):rep(100)) ]]) }
      local function by(user)
        local response = front:get("/pay", { headers = { Authorization = user,
          ["Accept-Encoding"] = "gzip" } })
        return { response.status, response.headers["content-encoding"] }
      end
      assert.same({ 200, "gzip" }, by "anna") -- nothing is replayed
      comes_to_be_recorded "k"
      assert.equal(409, by("bert")[1])
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
      local request = front:begin("/pay?sleep=60", keyed "h")
      comes_to_say("/runs", "3")
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
      ]]) }
      local first = post("/pay", "k")
      for replayed, response in pairs { [false] = first, ["true"] = settled("/pay", keyed "k") } do
        local headers = response.headers
        assert.same({ { 201, "{}", replayed or nil }, "application/json", "8" },
          { parts(response), headers["content-type"], headers["x-order"] })
      end
      assert.equal("1", say "/runs")
    end)

    -- Returns the body, decompressed if it is in gzip.
    local function unpacked(response)
      if response.headers["content-encoding"] ~= "gzip" then return response.body end
      local path = process.directory() .. "/body.gz"
      files.write(path, response.body)
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
        [[ ngx.print(("paid "):rep(100)) ]]) .. handler("/plain", [[ ngx.print(("paid "):rep(100)) ]]) }
      local wanted = ("paid "):rep(100)
      local function read(path, gzip)
        local response = settled(path, { method = "POST",
          headers = { ["Idempotency-Key"] = "k", ["Accept-Encoding"] = gzip } })
        return { response.status, response.headers["content-encoding"] or "plain",
          unpacked(response) }
      end
      assert.same({ 200, "gzip", wanted }, read("/plain", "gzip"))
      local first = read("/pay", "gzip")
      assert.same({ 200, wanted }, { first[1], first[3] })
      assert.same({ 200, "gzip", wanted }, read("/pay", "gzip"))
      assert.same({ 200, "plain", wanted }, read("/pay"))
    end)

    it("begins only one run for a request that nginx redirects internally", function()
      start { lease = 1.5, server = FINISH .. [[
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
      local function replied(path, key) return parts(post(path, key)) end
      for path, wanted in pairs { exec = { 200, "worked" }, named = { 200, "named" },
        early = { 200, "worked" }, missing = { 404, "nothing there" } } do
        assert.same(wanted, replied("/" .. path, path))
        wanted[3] = "true"
        assert.same(wanted, parts(settled("/" .. path, keyed(path))))
      end
      assert.same({ 429, "slow down" }, replied("/limited", "limited"))
      assert.same({ 200, "named" }, replied("/named", "limited"))
      assert.same({ 500, "sorry" }, replied("/fails", "fails"))
      assert.truthy(free_within("idempotent:fails", 5))
    end)

    it("records the request and releases its locks after several internal redirects", function()
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
        comes_to_be_recorded(key)
        assert.truthy(free_within("left", 5) and free_within("also left", 5))
        assert.equal(409, post("/first" .. query, key).status)
        assert.equal(tostring(i), say "/runs")
      end
    end)

    it("records a request that replaced ngx.ctx", function()
      start { server = FINISH .. guarded("/pay", "header = true, expire = 60, replay = true",
        [[ ngx.ctx = {} SAY("ran") ]]) }
      assert.equal("ran\n", post("/pay", "k").body)
      assert.same({ 200, "ran\n", "true" }, parts(settled("/pay", keyed "k")))
    end)

    it("does not record the response of a later request whose Lua table has the same address", function()
      start { server = FINISH .. CAPTURE .. [[
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
    end)

    it("logs why the end of a request could not be recorded", function()
      resty.expect_errors()
      start { server = FINISH .. guarded("/pay", 'key = "k", expire = 60', [[
        SAY("ran")
        ngx.flush(true)
        ngx.shared.counters:set("runs", 1)
        ngx.sleep(tonumber(ngx.var.arg_sleep))
      ]]) .. COUNT }
      local request = front:begin "/pay?sleep=2"
      comes_to_say("/runs", "1")
      server:cli("DEL", "idempotent:k")
      server:cli("RPUSH", "idempotent:k", "x")
      assert.equal("ran", reply_of(request))
      eventually(function() return logged():find('cannot complete "idempotent:k"', 1, true) end)
    end)

    it("distinguishes methods, and empty keys or principals from missing ones", function()
      resty.expect_errors()
      start { server = FINISH .. COUNT .. guarded("/plain", "expire = 60", RUN)
        .. guarded("/header", "header = true, expire = 60", RUN)
        .. location("/user", [[ expire = 60, key = function() return tonumber(ngx.var.arg_key) end,
          principal = function()
            local who = ngx.var.arg_who
            return who == "number" and 7 or who == "list" and { "anna" } or who
          end ]], RUN) }
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
      assert.matches("the principal function returned no name", logged())
      assert.same({}, server:cli("KEYS", "redisson_lock_token*")) -- a guard needs no token
    end)

    it("replays a response of up to 64 KiB, and refuses duplicates of a longer one", function()
      start { server = FINISH .. guarded("/pay",
        "key = ngx.var.arg_size, replay = true, expire = 60", [[
          ngx.header["Idempotent-Replayed"] = "never"
          ngx.header["X-Long"] = ("h"):rep(tonumber(ngx.var.arg_head) or 0)
          for part = 1, 4 do ngx.print(("x"):rep(ngx.var.arg_size / 4)) end
        ]]) }
      for query, wanted in pairs {
        ["size=40000"] = { 200, "true", 40000 }, ["size=65360"] = { 200, "true", 65360 },
        ["size=65536"] = { 409 }, ["size=65540"] = { 409 }, ["size=65200&head=400"] = { 409 },
      } do
        assert.equal(200, front:get("/pay?" .. query).status)
        local again = settled("/pay?" .. query)
        assert.same(wanted, { again.status, again.headers["idempotent-replayed"],
          again.status == 200 and #again.body or nil }, query)
      end
    end)

    it("does not end a later request's run after its own run was lost", function()
      resty.expect_errors()
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
          comes_to_say("/started", number)
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
        comes_to_be_recorded "k"
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
      comes_to_say("/runs", "1")
      server:kill "STOP"
      say "/over"
      assert.equal("ran", reply_of(request))
      process.sleep(1.3)
      server:kill "CONT"
      comes_to_be_recorded "k"
    end)

    it("refuses a request whose body cannot be read again", function()
      resty.expect_errors()
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
      assert.matches("No such file", logged())
    end)

    it("answers 400 if the key function returns no key", function()
      start { server = FINISH .. guarded("/pay",
        "key = function() return ngx.var.arg_key == 'none' and '' or ngx.var.arg_key end", RUN) }
      for _ = 1, 2 do assert.equal(400, front:get("/pay?key=none").status) end
      assert.equal(400, front:get("/pay").status)
      assert.equal(200, front:get("/pay?key=a").status)
    end)

    it("frees the key after a server error, or after the lease if finish is never called", function()
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
      eventually(function()
        left = server:cli("PTTL", "idempotent:p")
        return left <= 1000
      end)
      assert.is_true(left > 0, left)
      eventually(function() return front:get("/pay").status == 200 end)
    end)

    describe("with several users", function()
      local SECRET = [[
        ngx.shared.counters:incr("runs", 1, 0)
        ngx.header["Set-Cookie"] = "session=secret"
        for name in ("%s"):gmatch("%%S+") do ngx.header[name] = "secret" end
        SAY("for ", ngx.var.http_authorization, ngx.var.arg_user)
      ]]
      local OWN = "Set-Cookie2 WWW-Authenticate Authentication-Info Proxy-Authenticate "
        .. "Proxy-Authentication-Info Proxy-Authorization"
      SECRET = SECRET:format(OWN)

      local function by(user, headers)
        headers = headers or {}
        headers.Authorization = user and "Bearer " .. user or nil
        return { method = "POST", body = "", headers = headers }
      end
      local function ask(path, user, headers) return front:get(path, by(user, headers)) end
      local function again(path, user, headers) return settled(path, by(user, headers)) end
      local function named(key) return { ["Idempotency-Key"] = key } end

      it("replays a response only to the user who sent the request", function()
        resty.expect_errors()
        start { server = FINISH .. COUNT
          .. location("/header", "expire = 60, header = true, replay = true", SECRET)
          .. location("/plain", "expire = 60, replay = true", SECRET)
          .. location("/session", [[ expire = 60, replay = true, header = true,
            principal = function() return ngx.var.cookie_session end ]], SECRET)
          .. location("/key", [[ expire = 60, replay = true, key = "one",
            principal = function() return ngx.var.arg_user end ]], SECRET)
          .. location("/user", [[ expire = 60, replay = true, header = true,
            principal = function() return ngx.var.arg_user end ]], SECRET) }
        for i, case in ipairs {
          { "/header", "anna", "bert", named "k" }, { "/plain", "anna", "bert" },
          { "/session", nil, nil, { ["Idempotency-Key"] = "k", Cookie = "session=a" },
            { ["Idempotency-Key"] = "k", Cookie = "session=b" } },
          { "/key?user=a", nil, nil, {}, {}, "/key?user=b" },
          { "/user?user=bob", nil, nil, named "1x", named "x", "/user?user=bob1" },
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
          local nobody = ask(path, nil, named "k")
          assert.equal(401, nobody.status, path)
          assert.is_nil(nobody.headers["idempotent-replayed"])
        end
        assert.equal("10", say "/runs")
        assert.matches("idempotent_request: cannot tell who sent this request: it has no Authorization",
          logged())
        for _, key in ipairs(server:cli("KEYS", "*")) do assert.is_nil(key:find("anna", 1, true)) end
      end)

      it("runs after nginx's authentication", function()
        resty.expect_errors()
        local passwords = process.directory() .. "/passwords"
        files.write(passwords, "anna:{PLAIN}a\nbert:{PLAIN}b\n")
        start { server = FINISH .. COUNT .. location("/pay", [[ expire = 60, header = true, replay = true,
            principal = function() return ngx.var.remote_user end ]], SECRET,
            ('auth_basic "pay"; auth_basic_user_file %s;'):format(passwords)) }
        local function as(user, password)
          local options = keyed "k"
          options.headers.Authorization = user
            and "Basic " .. require("mime").b64(user .. ":" .. password)
          local response = settled("/pay", options)
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
        start { server = FINISH .. location("/pay", "expire = 60, header = true, replay = true", CONTENT)
          .. location("/kept", "expire = 60, header = true, replay = true, keep_on_error = true", CONTENT) }
        local function twice(path, status)
          path = path .. "?first=" .. status
          local first = ask(path, "anna", named(path))
          assert.equal(status, first.status)
          local second = again(path, "anna", named(path))
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
      end)

      it("treats requests as different if the headers in `vary` differ", function()
        start { server = FINISH
          .. location("/header", 'expire = 60, header = true, replay = true, vary = { "Accept" }', SECRET)
          .. location("/plain", 'expire = 60, replay = true, vary = { "Accept" }', SECRET)
          .. location("/key", 'expire = 60, key = "k", vary = { "Accept" }', SECRET) }
        local function statuses(path)
          local list = {}
          for i, accept in ipairs { "text/html", "text/html", "text/plain", false } do
            local headers = named "k"
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
        start { server = FINISH .. COUNT .. location("/pay", "expire = 60, header = true, replay = true", [[
          ngx.shared.counters:incr("runs", 1, 0)
          if ngx.var.arg_empty then ngx.exit(204) end
          if ngx.var.arg_same then ngx.exit(304) end
          ngx.print("half")
          ngx.flush(true)
          if ngx.var.arg_cut then ngx.exit(ngx.ERROR) end
          ngx.print(" and half")
        ]]) }
        ask("/pay?cut=1", "anna", named "cut")
        local second = again("/pay?cut=1", "anna", named "cut")
        assert.same({ 409 }, { second.status, second.headers["idempotent-replayed"] })
        for path, wanted in pairs {
          ["/pay"] = { 200, "half and half" }, ["/pay?empty=1"] = { 204, "" },
          ["/pay?same=1"] = { 304, "" },
        } do
          ask(path, "anna", named(path))
          wanted[3] = "true"
          assert.same(wanted, parts(again(path, "anna", named(path))))
        end
        assert.equal("4", say "/runs")
      end)
    end)

    it("answers 503 if a lock already uses the key, and logs the conflict", function()
      resty.expect_errors()
      start { server = FINISH .. COUNT .. guarded("/pay", 'key = "k"', RUN) }
      server:cli("HSET", "idempotent:k", "somebody", 1)
      server:cli("PEXPIRE", "idempotent:k", 60000)
      assert.equal(503, front:get("/pay").status)
      assert.truthy(logged():find("a lock already uses the key", 1, true))
      server:cli("DEL", "idempotent:k")
    end)

    it("answers 503 if the server is unreachable", function()
      resty.expect_errors()
      start { url = "unix:///nowhere/redis.sock", server = FINISH
        .. guarded("/pay", "", RUN, "default_type text/html;") }
      local response = front:get("/pay")
      assert.same({ { 503, "try again\n" }, "1", "text/plain" },
        { parts(response), response.headers["retry-after"], response.headers["content-type"] })
    end)
  end)
end)
