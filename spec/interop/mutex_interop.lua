-- client:mutex and other users of SET NX PX on one key: processes of each side count by read, wait,
-- write. No update may be lost, and while both sides run, those that poll get at least a quarter of
-- their fair share.

local process = require "spec.support.process"
local redis = require "spec.support.redis"

local SECONDS, SPANS = 9, 3 -- the floor holds in each part: the first one in does not keep the lock
local START_UP = 60 -- seconds: a machine of few cores starts several processes at once
local INSIDE = 3 -- ms of each turn
local LEAST = 0.25 -- of the fair share

describe("a mutex is fairly shared with", function()
  local server, workers

  before_each(function() server, workers = redis.start { tcp = true }, {} end)

  after_each(function()
    for _, worker in ipairs(workers) do worker:stop() end
    server:stop()
  end)

  local function begin()
    for _, worker in ipairs(workers) do
      assert(process.wait_until(function()
        return worker:output():match("ready") or worker:status()
      end, START_UP))
      assert.is_nil(worker:status(), worker:output())
    end
    server:cli("SET", "start", 1)
  end

  local function finish()
    server:cli("SET", "stop", 1)
    for _, worker in ipairs(workers) do
      local how, code = worker:wait(START_UP)
      assert.same({ "exit", 0 }, { how, code }, worker:output())
    end
  end

  -- Turns by name from this place of the list on, and the next place.
  local function turns(from)
    local counts = { ours = 0, theirs = 0, all = 0 }
    for _, name in ipairs(server:cli("LRANGE", "turns", from, -1)) do
      counts[name], counts.all = counts[name] + 1, counts.all + 1
    end
    return counts, from + counts.all
  end

  -- A number of processes of each side; the others try each `poll` ms.
  local function compare(label, command, theirs, ours, poll)
    local function args(name)
      return tostring(server.port), name, tostring(poll), tostring(INSIDE)
    end
    for _ = 1, theirs do
      local words = { command[1], command[2], args("theirs") }
      words.env = command.env
      workers[#workers + 1] = process.start(words)
    end
    for _ = 1, ours do
      workers[#workers + 1] = process.lua { file = "spec/interop/mutex/holdfast.lua",
        args = { args("ours") } }
    end
    begin()
    local fair, at = theirs / (theirs + ours), 0
    local spans = {}
    for i = 1, SPANS do -- all of them are at it in each
      process.sleep(SECONDS / SPANS)
      spans[i], at = turns(at)
    end
    finish()
    assert.equal(select(2, turns(0)), tonumber(server:cli("GET", "count")))
    for i, seen in ipairs(spans) do
      local share = seen.theirs / seen.all
      print(("\n%s, %d that poll each %d ms, part %d: %d turns; ours, %d: %d; %.2f of their fair share"):format(label, theirs,
        poll, i, seen.theirs, ours, seen.ours, share / fair))
    end
    for _, seen in ipairs(spans) do
      assert.is_true(seen.theirs >= LEAST * fair * seen.all,
        ("they had %d of %d turns"):format(seen.theirs, seen.all))
      assert.is_true(seen.ours >= LEAST * (1 - fair) * seen.all,
        ("we had %d of %d turns"):format(seen.ours, seen.all))
    end
  end

  local modules = (os.getenv("PWD") or ".") .. "/build/interop/node/node_modules"
  local REDIS_PY = { "/usr/bin/python3", "spec/interop/mutex/redis_py.py" }
  local REDLOCK = { "node", "spec/interop/mutex/redlock.js", env = { NODE_PATH = modules } }

  it("redis-py, which polls every 100 ms", function() compare("redis-py", REDIS_PY, 4, 4, 100) end)
  it("redis-py that polls every 5 ms", function() compare("redis-py", REDIS_PY, 4, 4, 5) end)
  it("node-redlock, which polls every 200 ms", function()
    compare("node-redlock", REDLOCK, 4, 4, 200)
  end)
  it("one client of node-redlock beside two holdfast clients", function() compare("node-redlock", REDLOCK, 1, 2, 200) end)
end)
