-- The cost of the status page while it is open, with 20,000 locks and three workers: the processor
-- time of the nginx worker that serves it, and of Redis.

local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"

local LOCKS, WAITERS, SECONDS, POLL = 20000, 20, 60, 2

local FORGE = [[
for i = 1, tonumber(ARGV[1]) do
  local key, owner = ("user:%06d:cart"):format(i), ("b983c153-7421-869a-addb-44fb92259a1b:%d"):format(i)
  redis.call("HSET", key, owner, 1)
  redis.call("PEXPIRE", key, 3600000)
  redis.call("SET", "redisson_lock_token:{" .. key .. "}", ARGV[3])
  for place = 1, i <= tonumber(ARGV[2]) and 3 or 0 do
    redis.call("ZADD", "holdfast_queue:{" .. key .. "}", ARGV[3] + place, "1l" .. owner .. place .. ":1")
  end
end]]

local server = redis.start()
server:cli("EVAL", FORGE, 0, LOCKS, WAITERS, ("%.0f"):format(server:cli("TIME")[1] * 1e6))
local front = nginx.start {
  workers = 3,
  http = ([[
    lua_shared_dict holdfast 1m;
    init_by_lua_block { CLIENT = require("holdfast").new { url = "%s" } }
  ]]):format(server:url()),
  server = 'location = /status { content_by_lua_block { require("holdfast").status { client = CLIENT } } }',
}

-- → the process's processor time in seconds
local function time_of(pid)
  local file = assert(io.open(("/proc/%d/stat"):format(pid)))
  local user, system = file:read("*a"):match("%) " .. ("%S+ "):rep(11) .. "(%d+) (%d+)")
  file:close()
  return (user + system) / 100
end

local function times()
  local list = { server = time_of(server.pid) }
  for i, pid in ipairs(front:workers()) do list[i] = time_of(pid) end
  return list
end

local function ask() return front:get("/status?json&search=&sort=wait&from=0").body end

local from = process.now()
while not ask():find('"complete":true', 1, true) do process.sleep(0.1) end
report.row("20,000 locks, seconds until all are known", process.now() - from, "%.1f")
local before, began = times(), process.now()
while process.now() < began + SECONDS do
  ask()
  process.sleep(POLL)
end
local after, took, most = times(), process.now() - began, 0
for i in ipairs(after) do most = math.max(most, after[i] - before[i]) end
report.row("the worker that looks, share of a core", most / took, "%.4f", "<=", 0.05)
report.row("Redis, share of a core", (after.server - before.server) / took, "%.4f", "<=", 0.02)
front:stop("TERM")
server:stop()
