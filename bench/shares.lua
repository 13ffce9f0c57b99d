-- How the turns of a plain semaphore are shared between processes of holdfast and of Java, each in
-- a loop without a pause: bench/shares.lua [SECONDS [ROW [cluster]]]. It needs the classes of
-- spec/interop/build_java.
-- One row for each number of permits, length of a section and crowd: turns per second, Java's share
-- of them, and the longest wait of either side. The share of each side should be at least 0.35, and
-- no wait should reach 3 s. ROW: a pattern; only rows "PERMITS MS HOLDFAST+JAVA" that match.
-- cluster: on three nodes.

local cluster = require "spec.support.cluster"
local java = require "spec.support.java"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local SECONDS = tonumber(arg[1]) or 4
local ROW = arg[2] or ""
local KEY, START = "pool", "test:start"
local CLUSTER = arg[3] == "cluster"

local OURS = [[
local holdfast, sys = require "holdfast", require "spec.support.sys"
local resp = require "spec.support.resp"
local port, inside, seconds = tonumber(arg[1]), tonumber(arg[2]), tonumber(arg[3])
local server = assert(resp.connect { port = port }) -- of the key test:start
local pool = holdfast.new(arg[5]):plain_semaphore(arg[4])
pool:available()
print "ready" io.flush()
while server:call("EXISTS", "test:start") == 0 do sys.sleep(0.005) end
local stop, turns, longest = sys.now() + seconds, 0, 0
while true do
  local asked = sys.now()
  if asked >= stop then break end
  local got = pool:acquire(1, 10)
  longest = math.max(longest, sys.now() - asked)
  if got then
    if inside > 0 then sys.sleep(inside) end
    assert(pool:release())
  end
  turns = turns + 1
end
print(("done %d %.0f"):format(turns, longest * 1000))
]]

-- → the turns and the longest wait of these processes
local function sum(workers)
  local turns, longest = 0, 0
  for _, worker in ipairs(workers) do
    assert(worker:wait(SECONDS + 40))
    local count, wait = worker:output():match("done (%d+) (%d+)")
    assert(count, worker:output())
    turns, longest = turns + count, math.max(longest, tonumber(wait))
  end
  return turns, longest
end

-- → key → its server, our URL, the server's port for Java, a function that stops all
local function start_servers()
  if CLUSTER then
    local nodes = cluster.start { masters = 3, replicas = 0 }
    return function(key) return nodes:node_of(key) end, nodes:url(), nodes.nodes[1].port,
      function() nodes:stop() end
  end
  local server = redis.start { tcp = true }
  return function() return server end, server:tcp_url(), server.port, function() server:stop() end
end

local function row(permits, inside, ours, theirs)
  local server_of, url, port, stop = start_servers()
  server_of(KEY):cli("SET", KEY, permits)
  local mine, others = {}, {}
  for i = 1, theirs do
    others[i] = java.start("Semaphores", { tostring(port), KEY, "share", "seconds=" .. SECONDS,
      "inside=" .. inside, "cluster=" .. (CLUSTER and 1 or 0) })
  end
  for i = 1, ours do
    mine[i] = process.lua { code = OURS,
      args = { tostring(server_of(START).port), tostring(inside), tostring(SECONDS), KEY, url } }
  end
  for _, workers in ipairs { mine, others } do
    for _, worker in ipairs(workers) do assert(worker:wait_output("ready", java.START_UP)) end
  end
  server_of(START):cli("SET", START, 1)
  local our_turns, our_wait = sum(mine)
  local their_turns, their_wait = sum(others)
  assert(tonumber(server_of(KEY):cli("GET", KEY)) == permits, "permits are lost")
  stop()
  local share = their_turns / (our_turns + their_turns)
  print(("%7d %6d ms %4d + %d %9.0f %6.2f %8d ms %8d ms"):format(permits, inside * 1000, ours,
    theirs, (our_turns + their_turns) / SECONDS, share, our_wait, their_wait))
end

io.stdout:setvbuf "line"
print("permits   inside   ours + Java  turns/s  Java  our longest  Java's longest")
for _, crowd in ipairs { { 1, 1 }, { 3, 3 }, { 1, 4 }, { 4, 1 } } do
  for _, permits in ipairs { 1, 2, 4 } do
    for _, inside in ipairs { 0, 0.003, 0.02 } do
      local name = ("%d %d %d+%d"):format(permits, inside * 1000, crowd[1], crowd[2])
      local contended = permits < crowd[1] + crowd[2]
      if contended and name:find(ROW) then row(permits, inside, crowd[1], crowd[2]) end
    end
  end
end
