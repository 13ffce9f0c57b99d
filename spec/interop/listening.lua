-- Processes of both sides that wait for messages on a channel, or take permits of "pool" again and
-- again, and print "done RESULT".

local assert = require "luassert"
local java = require "spec.support.java"
local process = require "spec.support.process"

local listening = { workers = {} }

-- Counts the permits that are out in "test:out", and notes them in "test:log", as Java's do.
local WORKS = [[
local holdfast, sys = require "holdfast", require "spec.support.sys"
local resp = require "spec.support.resp"
local port, kind, name, count = tonumber(arg[1]), arg[2], arg[3], tonumber(arg[4])
local server = assert(resp.connect { port = port })
local client = holdfast.new("redis://127.0.0.1:" .. port)
local pool = client[kind](client, "pool", { wait = 30 })
print "ready" io.flush()
while server:call("EXISTS", "test:start") == 0 do sys.sleep(0.005) end
local stop, taken = sys.now() + tonumber(arg[5]), 0
while sys.now() < stop do
  local permit = assert(pool:acquire(count))
  server:call("RPUSH", "test:log", name .. " " .. server:call("INCRBY", "test:out", count))
  sys.sleep(tonumber(arg[6]))
  server:call("INCRBY", "test:out", -count)
  if permit == true then assert(pool:release(count)) else assert(permit:release()) end
  sys.sleep(0.002)
  taken = taken + 1
end
client:close()
print("done " .. taken)
]]

-- Starts a process that takes `count` permits again and again. kind: a method of a client.
function listening.works(server, kind, name, count, seconds, inside)
  return listening.join(process.lua { code = WORKS,
    args = { server.port, kind, name, count, seconds, inside } })
end

-- Lets the processes begin once all are ready, and waits until they are done. → turns by side, the
-- most permits that were out at once
function listening.turns(server)
  for _, worker in ipairs(listening.workers) do
    assert(worker:wait_output("ready", java.START_UP), worker:output())
  end
  server:cli("SET", "test:start", 1)
  for _, worker in ipairs(listening.workers) do
    assert(worker:wait_output("done %d", java.START_UP), worker:output())
  end
  local turns, most = { java = 0, ours = 0 }, 0
  for _, line in ipairs(server:cli("LRANGE", "test:log", 0, -1)) do
    local side, out = line:match("^(%a+)%d* (%S+)$")
    turns[side], most = turns[side] + 1, math.max(most, tonumber(out))
  end
  print(("\nholdfast %d turns, Java %d"):format(turns.ours, turns.java))
  return turns, most
end

-- Adds a process, which stop() ends.
function listening.join(child)
  listening.workers[#listening.workers + 1] = child
  return child
end

function listening.stop()
  for _, child in ipairs(listening.workers) do child:stop() end
  listening.workers = {}
end

function listening.done(child, want, seconds)
  assert(child:wait_output("done [^\n]+", seconds or java.START_UP), child:output())
  assert.equal(want, child:output():match "done ([^\n]+)")
end

-- Waits until `count` clients listen to the channel on this server.
function listening.heard_by(server, count, channel, sharded)
  process.eventually(function()
    return server:cli("PUBSUB", sharded and "SHARDNUMSUB" or "NUMSUB", channel)[2] == count
  end, java.START_UP, "they do not listen")
  process.sleep(0.2) -- for what a client does after its subscription
end

return listening
