-- The examples that need only Redis.

local process = require "spec.support.process"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

-- Starts this file of examples with these arguments.
local function start(name, ...)
  return process.start {
    env = {
      LUA_PATH = process.lua_path, LUA_CPATH = process.lua_cpath, LUA_INIT = false,
      HOLDFAST_URL = world.server:url(), HOLDFAST_SERVERS = false,
    },
    sys.interpreter(), "examples/" .. name .. ".lua", ...,
  }
end

describe("an example", function()
  for _, name in ipairs { "hello", "transfer", "one_by_one", "idempotent", "once", "payments", "map_reduce",
      "fair", "bounded_queue" } do
    it("runs and prints tokens in full: " .. name, function()
      local child = start(name)
      assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
      assert.is_nil(child:output():find("%de%+%d"), child:output())
      world.cli("FLUSHALL") -- the record of a finished run stays
    end)
  end
end)

describe("the example lead.lua", function()
  it("runs its job once a night on one host, and hands over to the other", function()
    local children, nights = {}, {}
    for i = 1, 2 do
      children[i] = start("lead", "1", "1")
    end
    for i = 1, 2 do
      assert.same({ "exit", 0 }, { children[i]:wait(20) }, children[i]:output())
      nights[i] = children[i]:output():match("^leader\nnight (%d+): written with token %d+\n$")
      assert(nights[i], children[i]:output())
    end
    assert.is_true(nights[1] ~= nights[2])
    world.cli("FLUSHALL")
  end)
end)

describe("the example who_leads.lua", function()
  it("prints the leader in each process", function()
    local children = {}
    for i = 1, 2 do
      children[i] = start("who_leads", "2")
      assert(children[i]:wait_output("leads since %d%d:%d%d:%d%d\n", 20), children[i]:output())
    end
    for i = 1, 2 do
      assert.same({ "exit", 0 }, { children[i]:wait(20) }, children[i]:output())
      assert.matches(("%%(pid %d%%) leads since [%%d:]+\n"):format(children[i].pid), children[i]:output())
    end
    world.cli("FLUSHALL")
  end)
end)

describe("the example cache_refill.lua", function()
  it("fills a cache once for 200 readers", function()
    local child = start "cache_refill"
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    assert.equal("200 reads, filled 1 times\n", child:output())
  end)
end)

describe("an example of an event loop", function()
  local socket = require "socket"

  it("for luv counts under the lock while a timer ticks", function()
    local child = start "loops/luv"
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    assert.equal("10, and the timer ticked meanwhile\n", child:output())
    world.cli("FLUSHALL")
  end)

  it("for a custom loop counts under the lock", function()
    local child = start "loops/own"
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    assert.equal("10\n", child:output())
    world.cli("FLUSHALL")
  end)

  -- Starts a server on a free port; calls use(connect), where connect(text) sends a text over a new
  -- connection.
  local function serve(name, use)
    -- Debian has no such package for Lua 5.4
    if not pcall(require, name == "copas" and "copas" or "http.server") then return end
    local child = start("loops/" .. name, "0")
    local port = assert(child:wait_output("listening on (%d+)", 10), child:output())
    use(function(text)
      local connection = assert(socket.connect("127.0.0.1", tonumber(port)))
      connection:settimeout(10)
      assert(connection:send(text))
      return connection
    end)
    child:stop()
    world.cli("FLUSHALL")
  end

  it("for lua-http serializes requests for one order, and serves other pages without delay", function()
    serve("lua_http", function(connect)
      local function get(path)
        return connect("GET " .. path .. " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      end
      local from, orders = process.now(), {}
      for i = 1, 3 do orders[i] = get("/order/7") end
      assert.matches("^HTTP/1.1 200 .*hello", (get("/"):receive("*a")))
      local plain = process.now() - from
      for i = 1, 3 do assert.matches("^HTTP/1.1 200 .*shipped 7", (orders[i]:receive("*a"))) end
      local took = process.now() - from
      assert.is_true(took >= 0.6 and took < 10, took)
      assert.is_true(plain < took - 0.2, plain) -- it ends before the orders
    end)
  end)

  it("for copas serializes requests for one order", function()
    serve("copas", function(connect)
      local orders = {}
      for i = 1, 5 do orders[i] = connect("order 7\n") end
      assert.equal("hello", (connect("hello\n"):receive("*l")))
      local numbers = {}
      for i = 1, 5 do
        numbers[i] = assert(orders[i]:receive("*l")):match("^order 7 is number (%d)$")
      end
      table.sort(numbers)
      assert.equal("12345", table.concat(numbers))
    end)
  end)
end)
