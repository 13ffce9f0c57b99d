-- Each kind of lock on each topology, under the blocking driver, in an event loop (a different one
-- by turns) and under ngx_lua: a waiter gets the lock when the holder releases it, and then the key
-- is free. client:deadlocks lists the waiters.

local cluster = require "spec.support.cluster"
local counts = require "holdfast.command.counts"
local holdfast = require "holdfast"
local kinds = require "spec.support.kinds"
local loops = require "spec.support.loops"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"

local PATIENCE = 30

-- ---- where ----

local function one_server()
  local server = redis.start()
  return { servers = { server }, options = ('url = "%s"'):format(server:url()),
    stop = function() server:stop() end }
end

local function with_sentinels()
  local set = sentinel.start { replicas = 0 }
  return { options = ('url = "%s"'):format(set:url()), stop = function() set:stop() end }
end

local function in_a_cluster()
  local nodes = cluster.start { masters = 3, replicas = 0 }
  return { options = ('url = "%s"'):format(nodes:url()), stop = function() nodes:stop() end }
end

local function over_shards()
  local servers, urls = redis.several(3)
  return {
    options = ('mode = "shards", servers = { "%s" }'):format(table.concat(urls, '", "')),
    stop = function()
      for _, server in ipairs(servers) do server:stop() end
    end,
  }
end

local TOPOLOGIES = {
  { "on one server", one_server }, { "with Sentinels", with_sentinels },
  { "in a cluster", in_a_cluster }, { "over shards", over_shards },
}

local function connect(options, driver)
  local given = assert((loadstring or load)("return { " .. options .. " }"))()
  given.driver = driver
  return holdfast.new(given)
end

-- ---- how ----

-- Each driver(kind, key, place, hold, look) calls hold(), which returns `release`, begins a wait,
-- and calls look(release, pause) during it, in the same coroutine. → "in" if the wait succeeded
local loop_drivers = {}

local function pause() process.sleep(0.005) end

local blocking = { "the blocking driver", function(kind, key, place, hold, look)
  local release = hold()
  local child = process.lua {
    code = ([==[
      local client = require("holdfast").new { %s }
      require("spec.support.kinds")[arg[1]].within(client, arg[2], function() print "in" end)
      client:close()
    ]==]):format(place.options), args = { kind.name, key },
  }
  look(release, pause)
  local how, code = child:wait(PATIENCE)
  local output = child:output()
  child:stop()
  assert.same({ "exit", 0 }, { how, code }, output)
  return (output:gsub("\n$", ""))
end }

for _, loop in ipairs(loops) do
  loop_drivers[#loop_drivers + 1] = { loop.name, function(kind, key, place, hold, look)
    local said
    loop.run(function()
      local release, client = hold(), connect(place.options, loop.driver)
      loop.spawn(function()
        kind.within(client, key, function() said = "in" end)
        client:close()
      end)
      look(release, function() loop.sleep(0.005) end)
    end)
    return said
  end }
end

local HTTP = [[
  init_by_lua_block { CLIENT = require("holdfast").new { %s } }
]]
local SERVER = [[
  location / { content_by_lua_block {
    local said = "out"
    local args = ngx.req.get_uri_args()
    require("spec.support.kinds")[args.kind].within(CLIENT, args.key, function() said = "in" end)
    ngx.print(said)
  } }
]]

local ngx_lua = nginx.is_there() and { "ngx_lua", function(kind, key, place, hold, look)
  local front = nginx.start { http = HTTP:format(place.options), server = SERVER }
  local release = hold()
  local request = front:begin(("/?kind=%s&key=%s"):format(kind.name:gsub(" ", "+"), key))
  look(release, pause)
  local body = request:finish().body
  front:stop("TERM")
  return body
end }

-- ---- the matrix ----

-- Opens what the loops then keep open.
local function warm()
  for _, loop in ipairs(loops) do loop.run(function() loop.sleep(0) end) end
end

local function is_waited_for(client)
  return #assert(client:deadlocks()).waits > 0 or #counts.with_waiters(client, "*") > 0
end

-- → the blocking driver, one of the loops that this Lua has, and ngx_lua
local function drivers_of(number)
  local drivers = { blocking }
  if #loops > 0 then drivers[#drivers + 1] = loop_drivers[number % #loops + 1] end
  drivers[#drivers + 1] = ngx_lua or nil
  return drivers
end

for n, topology in ipairs(TOPOLOGIES) do
  describe(topology[1], function()
    local place, client

    setup(function()
      place = topology[2]()
      warm()
    end)
    teardown(function() place.stop() end)
    before_each(function() client = connect(place.options, "posix") end)
    after_each(function() client:close() end)

    for i, kind in ipairs(kinds) do
      for _, driver in ipairs(drivers_of(i + n)) do
        it(("a %s under %s is handed to a waiter"):format(kind.name, driver[1]), function()
          local key = ("%d:%s"):format(i, driver[1]:gsub("%W", ""))
          local function hold() return kind.hold(client, key) end
          assert.equal("in", driver[2](kind, key, place, hold, function(release, pause_here)
            local till = process.now() + PATIENCE
            while not is_waited_for(client) and process.now() < till do pause_here() end
            assert.is_true(is_waited_for(client))
            release()
          end))
          assert.is_false(is_waited_for(client))
          hold()()
        end)
      end
    end
  end)
end
