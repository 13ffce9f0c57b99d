-- client:mutex and other users of SET NX PX on one key: four processes of each side count by read, wait, write. No update
-- may be lost, and each side must get in.

local process = require "spec.support.process"
local redis = require "spec.support.redis"

local SECONDS, EACH = 5, 4

describe("a mutex shared with", function()
  local server

  setup(function() server = redis.start { tcp = true } end)
  teardown(function() server:stop() end)
  before_each(function() server:cli("FLUSHALL") end)

  local function turns_of(all)
    local turns = 0
    for _, each in ipairs(all) do
      assert.equal("exit", (each:wait(SECONDS + 60)), each:output())
      turns = turns + assert(tonumber(each:output():match("^(%d+)%s*$")), each:output())
    end
    return turns
  end

  local function compare(name, command)
    local theirs, ours = {}, {}
    for i = 1, EACH do
      theirs[i] = process.start { command[1], command[2], tostring(server.port), tostring(SECONDS), env = command.env }
      ours[i] = process.lua { file = "spec/interop/mutex/holdfast.lua", args = { server.port, SECONDS } }
    end
    local their_turns, our_turns = turns_of(theirs), turns_of(ours)
    print(("%s: %d turns, ours: %d"):format(name, their_turns, our_turns))
    assert.equal(their_turns + our_turns, tonumber(server:cli("GET", "count")))
    assert.is_true(their_turns > 0 and our_turns > 0)
  end

  it("redis-py loses no update", function()
    compare("redis-py", { "/usr/bin/python3", "spec/interop/mutex/redis_py.py" })
  end)

  it("node-redlock loses no update", function()
    local modules = (os.getenv("PWD") or ".") .. "/build/interop/node/node_modules"
    compare("node-redlock", { "node", "spec/interop/mutex/redlock.js", env = { NODE_PATH = modules } })
  end)
end)
