local states = require("holdfast.core").states
local sys = require "spec.support.sys"
local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

local function run(count, code)
  local programs = {}
  for i = 1, count do
    programs[i] = ("local url, number = %q, %d\n"):format(world.server:url(), i) .. code
  end
  return sys.run_threads(programs)
end

describe("Lua states in threads of one process", function()
  it("have separate owners, and exclude each other", function()
    world.cli("SET", "count", 0)
    local owners = run(4, [[
      local resp = require "spec.support.resp"
      local connection = resp.connect { path = url:match("^unix://(.*)$") }
      local client = require("holdfast").new(url)
      for _ = 1, 50 do
        assert(client:with_lock("k", { wait = 30 }, function()
          local count = tonumber(connection:call("GET", "count"))
          return connection:call("SET", "count", count + 1)
        end))
      end
      connection:close()
      local owner = client:lock("k"):owner()
      client:close()
      return owner
    ]])
    assert.equal("200", world.cli("GET", "count"))
    world.cli("DEL", "count")
    table.sort(owners)
    for i = 1, 4 do
      assert.matches("^%x+%-.*/1$", owners[i])
      assert.is_true(owners[i] ~= owners[i + 1])
    end
  end)

  it("renew, lose and release locks independently", function()
    local results = run(4, [[
      local process = require "spec.support.process"
      local sys = require "spec.support.sys"
      local client = require("holdfast").new { url = url, lease = 3 }
      local losses = 0
      local mine = client:lock("k" .. number, { on_lost = function() losses = losses + 1 end })
      local other = client:lock("k" .. number % 4 + 1)
      for _ = 1, 3 do
        assert(mine:acquire(20))
        sys.sleep(1.2)
        other:try_acquire()
        if other:is_held() then assert(other:release()) end
        assert(mine:check())
        assert(mine:release())
      end
      for i = 1, 20 do client:lock("litter" .. number .. "." .. i):acquire() end
      collectgarbage() collectgarbage()
      local renewals = client:stats().renewals
      client:close()
      assert(losses == 0)
      return renewals > 0 and "good" or "no renewals"
    ]])
    assert.same({ "good", "good", "good", "good" }, results)
  end)

  it("are counted while they are open", function()
    local count = [[ return require("holdfast.core").states() ]]
    local before = states()
    assert.same({ tostring(before + 1) }, run(1, count))
    assert.equal(before, states())
  end)

  -- A look-up of a name cannot be stopped: its thread may return when all states are closed.
  it("keep the C module loaded for its own threads after they end", function()
    local program = world.program { code = [[
      require("spec.support.sys").run_threads { 'require("holdfast.core").states() return "ended"' }
      local maps = io.open "/proc/self/maps"
      print(not maps or maps:read("*a"):find("holdfast/core.so", 1, true) ~= nil)
    ]] }
    assert.same({ "exit", 0 }, { program:wait(20) }, program:output())
    assert.matches("^true", program:output())
  end)

  it("release their locks when they end without closing their clients", function()
    assert.same({ "held", "held", "held" }, run(3, [[
      local lock = assert(require("holdfast").new(url):lock("k" .. number):acquire())
      return lock:is_held() and "held"
    ]]))
    for i = 1, 3 do assert.is_truthy(world.is_free("k" .. i)) end
  end)
end)
