-- The simulator's small Redis must give the same replies as a real redis-server.
-- HOLDFAST_DIFF_SEEDS sets how many sequences of commands are compared.

local diff = require "spec.sim.redis_diff"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local steps = require "spec.sim.redis_steps"

local SEEDS = tonumber(os.getenv("HOLDFAST_DIFF_SEEDS") or os.getenv("HOLDFAST_GC") and 4 or 60)
local LENGTH = 60
local MUTANT_SEEDS = 400

-- Each makes one command of the small Redis wrong.
local MUTANTS = {
  zcount = function(run, client, args)
    args[4] = args[4]:gsub("^%(", "")
    return run(client, args)
  end,
  publish = function(run, client, args)
    run(client, args)
    return 0
  end,
  del = function(run, client, args)
    local reply = run(client, args)
    return reply == 0 and 1 or reply
  end,
  pexpire = function() return 1 end,
  lrem = function(run, client, args) return run(client, { args[1], args[2], "0", args[4] }) end,
  zrange = function(run, client, args)
    local reply = run(client, args)
    if #reply > 1 then reply[#reply] = nil end
    return reply
  end,
  hset = function(run, client, args) return run(client, args) * 0 end,
  set = function(run, client, args) return run(client, { args[1], args[2], args[3] }) end,
  pttl = function() return -1 end,
  zadd = function(run, client, args) -- a record's run is 5 s too long
    args[4] = args[4] and args[4]:gsub("^(1f %d+ %d+ [%d-] )(%d+)$", function(rest, ms)
      return rest .. ms + 5000
    end)
    return run(client, args)
  end,
}

describe("the simulated Redis and a real one", function()
  local server, pair

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)
  after_each(function()
    if pair then pair:close() end
    pair = nil
  end)

  it(("give the same replies to %d random sequences of commands"):format(SEEDS), function()
    pair = diff.pair(server.path)
    for seed = 1, SEEDS do
      local report = pair:check(seed, LENGTH)
      if report then error(report, 0) end
    end
  end)

  it("expire short-lived keys at the same time", function()
    pair = diff.pair(server.path)
    pair:reset()
    local function alike(...) assert.is_nil(pair:compare { client = 1, args = { ... } }) end
    alike("SET", "k", "v", "PX", "60")
    alike("HSET", "h", "f", "v")
    alike("PEXPIRE", "h", "60")
    alike("GET", "k")
    alike("HGET", "h", "f")
    process.sleep(0.08)
    alike("PTTL", "k")
    alike("GET", "k")
    alike("HSET", "h", "g", "w")
    alike("HKEYS", "h")
    alike("PTTL", "h")
  end)

  for name, mutant in pairs(MUTANTS) do
    it("are found to differ if " .. name .. " is wrong", function()
      pair = diff.pair(server.path, { [name] = mutant })
      for seed = 1, MUTANT_SEEDS do
        if pair:run(steps.generate(seed, LENGTH)) then return end
      end
      error("not noticed", 0)
    end)
  end
end)
