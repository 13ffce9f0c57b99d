-- Under ngx_lua: the examples of docs/how-to/openresty.md and examples/openresty, and the installed
-- library.

local files = require "spec.support.files"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local resty = require "spec.support.resty"

if not resty.is_there() then return end

local free_within, front, handler = resty.free_within, resty.front, resty.handler
local is_free, say, server, start = resty.is_free, resty.say, resty.server, resty.start
local stop, use = resty.stop, resty.use

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  it("names the missing directive if nginx hides $HOLDFAST_URL from its workers", function()
    resty.expect_errors()
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
      stop()
    end
  end)

  it("runs the examples of docs/how-to/openresty.md", function()
    local page = "\n" .. files.read "docs/how-to/openresty.md"
    local first = page:match("\n```nginx\nhttp {(.-)\n}\n```"):gsub("redis://127%.0%.0%.1:6379",
      server:url())
    local location = first:match("location / %b{}")
    local lua = {}
    for sample in page:gmatch("\n```lua\n(.-\n)```") do lua[#lua + 1] = sample end
    local access, content = lua[1]:match("^(.-\n)\n(.*)$")
    use(nginx.start {
      http = "lua_shared_dict counters 1m;\n" .. first:gsub("server %b{}", ""),
      server = location .. handler("/timer", [[
        function rebuild() ngx.shared.counters:incr("rebuilt", 1, 0) end
        ]] .. lua[2] .. [[ while not ngx.shared.counters:get("rebuilt") do ngx.sleep(0.01) end
        ngx.say("rebuilt")
      ]]) .. ("location /owner { access_by_lua_block {\n%s\n} content_by_lua_block {\n%s\n"):format(access, content)
        .. [[ ngx.say(tostring(ngx.ctx.lock:is_held())) } } ]],
    })
    assert.equal("shipped", say "/")
    assert.equal("rebuilt", say "/timer")
    assert.equal("false", say "/owner")
    assert.is_true(is_free("order:42"))
    assert.truthy(free_within("nightly", 2))
    assert.is_true(is_free("user:7"))
  end)

  it("loads the library from the directory of make install #check", function()
    local prefix = process.directory()
    local made = process.start { "make", "-s", "install", "FLAVOURS=luajit", "PREFIX=" .. prefix }
    assert.equal("exit", (made:wait(600)))
    assert.equal(0, select(2, made:status()), made:output())
    use(nginx.start {
      package_path = ("%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua;;"):format(prefix,
        prefix),
      package_cpath = prefix .. "/lib/lua/5.1/?.so;;",
      http = ([[ init_by_lua_block { LOCKS = require("holdfast").new("%s") } ]]):format(server:url()),
      server = handler("/", [[
        ngx.say(LOCKS:with_lock("a", function() return package.searchpath("holdfast.core", package.cpath) end))
      ]]),
    })
    assert.equal(prefix .. "/lib/lua/5.1/holdfast/core.so", say "/")
  end)

  it("comes with an example that answers JSON, even for failures", function()
    resty.expect_errors()
    use(nginx.example("examples/openresty", { HOLDFAST_URL = "unix:///nowhere/redis.sock" }))
    for _, path in ipairs { "/sale", "/orders/42/ship", "/report" } do
      local response = front:get(path)
      assert.same({ 503, '{"error": "unreachable"}\n' }, { response.status, response.body })
    end
    stop()
    use(nginx.example("examples/openresty", { HOLDFAST_URL = server:url() }))
    assert.equal('{"order": "42", "shipped_now": true}\n', front:get("/orders/42/ship").body)
    assert.equal('{"sold": false}\n', front:get("/sale").body)
    assert.equal('{"report": 1}\n', front:get("/report").body)
  end)
end)
