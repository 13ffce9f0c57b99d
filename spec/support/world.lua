-- A real server with clients, and a check that a spec leaves nothing behind: no key, queue or
-- channel, no connection, no descriptor, no process.
--
--   local world = require("spec.support.world").new()   takes options of redis.start
--   before_each(world.open) after_each(world.close)

local holdfast = require "holdfast"
local leftovers = require "spec.support.leftovers"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local M = {}

function M.new(options)
  local world = {}

  function world.open()
    collectgarbage() collectgarbage()
    world.before = process.descriptors()
    world.clients, world.children, world.servers = {}, {}, {}
    world.server = options ~= false and redis.start(options) or nil
    world.cli = world.server and function(...) return world.server:cli(...) end
  end

  -- Starts another server, which is stopped without being checked.
  function world.another(more)
    local server = redis.start(more)
    world.servers[#world.servers + 1] = server
    return server
  end

  -- Creates a client of the server, or of the given `url`, which is closed at the end.
  function world.client(opts)
    local all = {}
    for name, value in pairs(opts or {}) do all[name] = value end
    all.url = all.url or world.server:url()
    local client = holdfast.new(all)
    world.clients[#world.clients + 1] = client
    return client
  end

  -- Starts a Lua program, which is killed at the end.
  function world.program(opts)
    local child = process.lua(opts)
    world.children[#world.children + 1] = child
    return child
  end

  -- Starts a Lua program, whose arg[1] is the server's URL.
  function world.run(code, ...)
    return world.program { code = code, args = { world.server:url(), ... } }
  end

  -- Returns the hold stored on the server: { owner = count, ... }
  function world.hash(key)
    local fields, all = world.cli("HGETALL", key), {}
    for i = 1, #fields, 2 do all[fields[i]] = fields[i + 1] end
    return all
  end

  -- Stores another client's lock, in the layout that all clients share.
  function world.hold_as(owner, key, ms)
    world.cli("HSET", key, owner, 1)
    world.cli("PEXPIRE", key, ms or 30000)
  end

  -- Waits until the key's TTL has grown `times` times (2).
  function world.wait_renewed(key, times)
    local last, rises = math.huge, 0
    assert(process.wait_until(function()
      local left = world.cli("PTTL", key)
      if left > last then rises = rises + 1 end
      last = left
      return rises == (times or 2)
    end, 20), "it is not renewed")
  end

  function world.is_free(key)
    return process.wait_until(function() return world.cli("EXISTS", key) == 0 end, 10)
  end

  function world.close()
    for _, child in ipairs(world.children) do child:stop() end
    if world.server and not world.server.process:status() then world.server:kill("CONT") end
    for _, client in ipairs(world.clients) do client:close() end
    local left
    if world.server then
      left = not world.server.process:status() and leftovers.on(world.server)
      world.server:stop()
    end
    for _, server in ipairs(world.servers) do server:stop() end
    collectgarbage() collectgarbage()
    local after = process.descriptors()
    assert(not left, "left on the server: " .. tostring(left))
    assert(after == world.before, ("%d descriptors were open before, %d after"):format(world.before,
      after))
  end

  return world
end

return M
