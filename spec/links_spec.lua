-- Connections that die silently, and replies that come late, under every driver: a proxy in front
-- of the server forgets its connections, as a NAT does, or delays the data.

local loops = require "spec.support.loops"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local proxy = require "spec.chaos.proxy"
local world = require "spec.support.world".new { tcp = true }

local QUIET = 1.1 -- seconds after which a connection is doubtful
local PATIENCE = 20 -- seconds, enough for a busy machine

-- Each child gets a driver, the proxy's URL, a directory for its cues, and the code.
local CHILD = [[
local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local driver, url, directory = arg[1], arg[2], arg[3]
io.stdout:setvbuf "no"

local loop
for _, one in ipairs(loops) do loop = one.name == driver and one or loop end
local wait_until = loop and loop.wait_until or process.wait_until
local sleep = loop and loop.sleep or process.sleep
local QUIET = 1.1 -- seconds after which a connection is doubtful

local function await(cue)
  assert(wait_until(function()
    local file = io.open(directory .. "/" .. cue)
    return file and file:close()
  end, 30), cue)
end

local function say(...)
  local list = { n = select("#", ...), ... }
  for i = 1, list.n do list[i] = tostring(list[i]) end
  print(table.concat(list, " "))
end

local function main()
  local client = holdfast.new { url = url, driver = loop and loop.driver, command_timeout = %s }
  %s
  client:close()
end

if loop then loop.run(main) else main() end
]]

local function drivers()
  local list = { "posix" }
  for _, loop in ipairs(loops) do list[#list + 1] = loop.name end
  return list
end

local between, directory

before_each(function()
  world.open()
  between = proxy.start(world.server.path)
  directory = process.directory()
end)

after_each(function()
  for _, client in ipairs(world.clients) do client:close() end
  for _, child in ipairs(world.children) do child:stop() end -- the server must see their end
  between:stop() -- this also ends the server's connections to it
  world.close()
  process.remove(directory)
end)

local function cue(name) assert(io.open(directory .. "/" .. name, "w")):close() end

-- Starts a child for each driver. → { { driver = name, child = process }, ... }
local function start(command_timeout, code)
  local list = {}
  for i, driver in ipairs(drivers()) do
    list[i] = { driver = driver, child = world.program {
      code = CHILD:format(command_timeout, code), args = { driver, between.url, directory },
    } }
  end
  return list
end

-- → driver → what its child has printed for the pattern
local function collect(children, pattern)
  local said = {}
  for _, of in ipairs(children) do
    said[of.driver] = of.child:wait_output(pattern, PATIENCE)
      or ("%s: %s"):format(of.driver, of.child:output())
  end
  return said
end

local function all(value)
  local said = {}
  for _, driver in ipairs(drivers()) do said[driver] = value end
  return said
end

-- → nginx, whose CLIENT goes through the proxy; `code` handles requests
local function start_nginx(command_timeout, code)
  return nginx.start {
    http = ([[init_by_lua_block {
      HOLDFAST = require "holdfast"
      CLIENT = HOLDFAST.new { url = "%s", command_timeout = %d }
    }]]):format(between.url, command_timeout),
    server = ("location / { content_by_lua_block { %s } }"):format(code),
  }
end

-- ---- connections that die without a word ----

for _, way in ipairs { "both", "down" } do
  it(("a connection that dies silently (%s) fails no call that has time left"):format(way), function()
    local children = start(4, [[
      local lock = client:lock(driver)
      assert(lock:acquire(0))
      assert(lock:release())
      sleep(QUIET)
      say "ready"
      await "acquire"
      local acquired, message = lock:acquire(20)
      say("acquired", acquired == lock or message)
      sleep(QUIET)
      say "still"
      await "release"
      say("released", lock:release())
      say("left", lock:is_locked())
    ]])
    assert.same(all "ready", collect(children, "ready"))
    between:tell("forget", way)
    cue "acquire"
    assert.same(all "true", collect(children, "acquired ([^\n]*)"))
    assert.same(all "still", collect(children, "still"))
    between:tell("forget", way)
    cue "release"
    assert.same(all "true", collect(children, "released ([^\n]*)"))
    assert.same(all "false", collect(children, "left ([^\n]*)"))
  end)
end

it("a connection that dies silently fails no call that has time left, under nginx", function()
  if not nginx.is_there() then return end
  local front = start_nginx(4, [[
    local lock = CLIENT:lock "turn"
    local acquired, message = lock:acquire(20)
    ngx.say(tostring(acquired == lock or message))
    ngx.say(tostring(lock:release()))
  ]])
  local first = front:get("/").body
  process.sleep(QUIET)
  between:tell("forget", "both")
  local second = front:get("/").body
  front:stop "TERM"
  assert.equal("true\ntrue\n", first)
  assert.equal("true\ntrue\n", second)
end)

-- ---- replies that come late ----

-- → how many seconds after its wait the slowest driver's acquire(1) returns, while each reply is
-- `late` ms late
local function overrun(late)
  for _, name in ipairs { "acquire", "close" } do os.remove(directory .. "/" .. name) end
  local children = start(3, [[
    local lock = client:lock "taken"
    assert(not lock:acquire(0))
    say "ready"
    await "acquire"
    local from = process.now()
    local acquired, _, code = lock:acquire(1)
    say("over", process.now() - from - 1, acquired, code)
    await "close"
  ]])
  assert.same(all "ready", collect(children, "ready"))
  local front = nginx.is_there() and start_nginx(3, [[
    local now, wait = require "holdfast.core".now, tonumber(ngx.var.arg_wait)
    if not wait then return CLIENT:close() end
    local from = now()
    local acquired, _, code = CLIENT:lock "taken":acquire(wait)
    ngx.say(now() - from - wait, " ", tostring(acquired), " ", code)
  ]])
  if front then assert.matches(" nil busy\n", front:get("/?wait=0").body) end
  cue "acquire"
  local request = front and front:begin("/?wait=1")
  process.wait_until(function()
    local waiters = #children + (request and 1 or 0)
    return world.cli("ZCOUNT", "holdfast_queue:{taken}", "(0", "+inf") == waiters
  end, 0.7)
  between:tell("delay", ("%d"):format(late / 2))
  local most, results = 0, collect(children, "over ([^\n]*)")
  if request then results.nginx = request:finish(PATIENCE).body:match "[^\n]*" end
  for _, said in pairs(results) do
    local over, code = said:match "^(%-?[%d.e-]+) nil (%w+)$"
    assert.truthy(code == "busy" or code == "unreachable", said)
    most = math.max(most, tonumber(over))
  end
  between:tell "go"
  if front then
    front:get "/"
    front:stop "TERM"
  end
  cue "close"
  for _, of in ipairs(children) do of.child:wait(PATIENCE) end
  return most
end

local function assert_returns_in_time(late)
  local holder = world.client():lock "taken"
  assert(holder:acquire(0))
  local over = math.huge
  for _ = 1, 3 do -- on a busy machine one try of three
    over = math.min(over, overrun(late))
    if over <= 1 then break end
  end
  assert.is_true(over <= 1, over)
  assert(holder:release())
end

it("an acquire returns within a second of the end of its wait even if each reply takes 0.7 s", function()
  assert_returns_in_time(700)
end)

for _, late in ipairs { 100, 300, 500, 900, 1200, 2000 } do
  it(("an acquire returns within a second of the end of its wait, replies %d ms late #check"):format(late), function()
    assert_returns_in_time(late)
  end)
end
