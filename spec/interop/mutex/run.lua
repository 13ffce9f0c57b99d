-- client:mutex and other users of SET NX PX on one key: four processes of each side count by read, wait, write; no
-- update may be lost, and each side must get in. Python's redis and npm's redlock must be installed: make interop.

local process = require "spec.support.process"
local redis = require "spec.support.redis"

local SECONDS, EACH = 5, 4

local server = redis.start { tcp = true }
local failed = false

local function start(command)
  local all = {}
  for i = 1, EACH do all[i] = process.start { command[1], command[2], tostring(server.port), tostring(SECONDS) } end
  return all
end

local function turns_of(all)
  local turns = 0
  for _, each in ipairs(all) do
    each:wait(SECONDS + 60)
    turns = turns + (tonumber(each:output():match("^(%d+)%s*$")) or error(each:output()))
  end
  return turns
end

local function ours()
  local all = {}
  for i = 1, EACH do
    all[i] = process.lua { file = "spec/interop/mutex/holdfast.lua", args = { server.port, SECONDS } }
  end
  return all
end

local function compare(name, command)
  server:cli("FLUSHALL")
  local theirs, holdfast = start(command), ours()
  local their_turns, our_turns = turns_of(theirs), turns_of(holdfast)
  local count = tonumber(server:cli("GET", "count"))
  local good = count == their_turns + our_turns and their_turns > 0 and our_turns > 0
  failed = failed or not good
  print(("%s - mutex with %s: %d + %d turns, counted %d"):format(good and "ok" or "not ok", name, our_turns,
    their_turns, count))
end

compare("redis-py", { "/usr/bin/python3", "spec/interop/mutex/redis_py.py" })
compare("node-redlock", { "node", "spec/interop/mutex/redlock.js" })
server:stop()
os.exit(not failed, true)
