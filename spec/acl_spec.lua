-- What docs/redis.md says a user needs is what a user needs.

local process = require "spec.support.process"

local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

local JAVA = "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33"

-- The words of the documented rule: name, then rights.
local function documented()
  local file = assert(io.open("docs/redis.md"))
  local text = file:read("*a")
  file:close()
  local words = {}
  for word in text:match("\n    ACL SETUSER (.-)\n\n"):gmatch("%S+") do words[#words + 1] = word end
  return words, text:match("or, shorter: `(.-)`")
end

-- A client of a user with these rights, its password "secret", after the last of them those of `more`.
local function client_of(words, more)
  local command = { "ACL", "SETUSER" }
  for _, word in ipairs(words) do command[#command + 1] = word end
  for word in (more or ""):gmatch("%S+") do command[#command + 1] = word end
  assert.equal("OK", world.server:cli(command))
  return world.client {
    url = ("unix://%s:secret@%s?db=1"):format(words[1], world.server.path), prefix = "lock:", command_timeout = 10,
  }
end

local function copy(words, keep)
  local list = {}
  for _, word in ipairs(words) do
    if keep(word) then list[#list + 1] = word end
  end
  return list
end

-- Not missed below: what a release does for waiters, what listens to Redisson, and what may be refused.
local NEEDS_A_COUNTERPART = {
  ["+publish"] = true, ["+pubsub|numsub"] = true, ["+zcard"] = true, ["+zremrangebyscore"] = true,
  ["&redisson_lock__channel:*"] = true, ["+psubscribe"] = true, ["+punsubscribe"] = true,
  ["+auth"] = true, ["+client|setname"] = true,
}

-- Each has no counterpart.
local STEPS = {
  function(client) return client:ping() end,
  function(_, locks) return locks.a:acquire(0) end,
  function(_, locks) return locks.a:acquire(0) end,
  function(_, locks) return locks.a:check() end,
  function(_, locks) return locks.a:extend(30) end,
  function(_, locks) return locks.a:info() end,
  function(_, locks) return locks.a:ttl() end,
  function(_, locks) return locks.a:release() end,
  function(_, locks) return locks.a:release() end,
  function(_, locks) return locks.a:force_release() end,
  function(_, locks) return locks.c:acquire(0) end,
  function(_, locks) return locks.c:info() end,
  function(_, locks) return locks.c:release() end,
  function(_, locks) return locks.both:acquire(0) end,
  function(_, locks) return locks.both:release() end,
  function(client) return client:idempotent("f", { expire = 0.1 }, function() return "result" end) end,
  function(_, locks) -- a lock of Java's, whose release is the end of its TTL
    world.cli("SELECT", 1)
    world.cli("HSET", "lock:g", JAVA, 1)
    world.cli("PEXPIRE", "lock:g", 1000)
    world.cli("SELECT", 0)
    return locks.g:acquire(20)
  end,
  function(_, locks) return locks.g:release() end,
  function(client) -- two renewals
    return client:with_lock("b", { lease = 1.2, watchdog = true }, function() process.sleep(0.9) return true end)
  end,
}

-- → nothing, or the code and message of the first failure
local function everything(client)
  local locks = { both = client:multi_lock { "d", "e" }, c = client:mutex "c" } -- a collected one is released
  for _, key in ipairs { "a", "g" } do locks[key] = client:lock(key) end
  for _, step in ipairs(STEPS) do
    local result, message, code = step(client, locks)
    if result == nil then return code, message end
  end
end

local function clean(client)
  client:close()
  world.cli("FLUSHALL")
end

describe("the documented rights", function()
  it("are enough, in both forms", function()
    local words, shorter = documented()
    local long = client_of(words)
    assert.is_nil((select(2, everything(long))))
    clean(long)
    local short = client_of(copy(words, function(word) return not word:find("^[+-]") end), shorter)
    assert.is_nil((select(2, everything(short))))
    clean(short)
  end)

  it("are enough for a hand-over between two clients", function()
    local client = client_of((documented()))
    local lock = client:lock("a")
    assert(lock:acquire(0))
    local child = world.program {
      code = [[
        local lock = require("holdfast").new({ url = arg[1], prefix = "lock:" }):lock("a")
        print(lock:acquire(20) == lock, lock:release())
      ]],
      args = { ("unix://locks:secret@%s?db=1"):format(world.server.path) },
    }
    assert.is_truthy(process.wait_until(function() local seen = assert(lock:info()) return seen.waiters == 1 end, 10))
    assert(lock:release())
    assert.same({ "exit", 0 }, { child:wait(10) })
    assert.matches("true\ttrue", child:output())
    assert.same({}, world.cli("ACL", "LOG"))
  end)

  it("are needed, each of them", function()
    for _, right in ipairs((documented())) do
      if right:find("^[+~&]") and not NEEDS_A_COUNTERPART[right] then
        world.cli("SCRIPT", "FLUSH")
        local client = client_of(copy((documented()), function(word) return word ~= right end))
        local code, message = everything(client)
        assert.equal("denied", code, right)
        assert.is_truthy(message:find("unix:" .. world.server.path, 1, true), message)
        world.cli("ACL", "SETUSER", "locks", right) -- so that close can leave what it must
        clean(client)
        world.cli("ACL", "DELUSER", "locks")
      end
    end
  end)
end)
