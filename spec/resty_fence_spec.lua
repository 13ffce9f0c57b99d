-- Under ngx_lua: holdfast.fence.

local resty = require "spec.support.resty"

if not resty.is_there() then return end

local front, handler, say, server = resty.front, resty.handler, resty.say, resty.server
local start = resty.start

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

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
      resty.expect_errors()
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
      resty.expect_errors()
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

    it("accepts resource functions, ttl and prefix, and decides which methods write", function()
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
end)
