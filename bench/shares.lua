-- How the turns of each kind are shared between processes of holdfast and of Java, each in a
-- loop without a pause. Needs spec/interop/build_java.
--
--   bench/shares.lua [SECONDS [ROW [cluster] [busy]]]
--
-- ROW: a pattern; only rows "KIND PERMITS MS HOLDFAST+JAVA" that match. cluster: on three nodes.
-- busy: beside two busy loops. Start it with "taskset -c 0" to keep everything on one core.
--
-- One row for each kind, number of permits, length of a section and crowd: turns per second, Java's
-- share of them, and the longest wait of either side. A semaphore's first row has a permit for each
-- process, so nobody waits: it shows the share that a side has because its own work takes longer.
-- In the other rows, each side's share should be at least 0.35, beside busy loops 0.2, or 85 % of
-- its share when nobody waits; a side with fewer processes should have at least half of its part of
-- all processes. No wait should reach 3 s. Other rows end with "missed".

local cluster = require "spec.support.cluster"
local java = require "spec.support.java"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local SECONDS = tonumber(arg[1]) or 4
local ROW = arg[2] or ""
local KEY, START = "pool", "test:start"
local CLUSTER = arg[3] == "cluster"
local BUSY = arg[3] == "busy" or arg[4] == "busy"
local MIN_SHARE, MAX_WAIT = BUSY and 0.2 or 0.35, 3000
local KINDS = { "lock", "fair_lock", "write_lock", "read_write_lock", "semaphore",
  "plain_semaphore" }

local OURS = [[
local holdfast, sys = require "holdfast", require "spec.support.sys"
local resp = require "spec.support.resp"
local port, kind, inside, seconds = tonumber(arg[1]), arg[2], tonumber(arg[3]), tonumber(arg[4])
local key, permits = arg[5], tonumber(arg[6])
local server = assert(resp.connect { port = port }) -- of the key test:start
local client = holdfast.new(arg[7])
local kinds = {}
function kinds.lock() return { client:lock(key) } end
function kinds.fair_lock() return { client:fair_lock(key) } end
function kinds.write_lock() return { client:read_write_lock(key):write() } end
function kinds.read_write_lock()
  local both = client:read_write_lock(key)
  return { both:write(), both:read() }
end
local locks = kinds[kind] and kinds[kind]()
local turns = 0
local function take() return locks[turns % #locks + 1]:acquire(10) end
if kind == "semaphore" then
  local pool = client:semaphore(key, { permits = permits })
  take = function() return pool:acquire(1, 10) end
elseif kind == "plain_semaphore" then
  local pool = client:plain_semaphore(key)
  take = function() return pool:acquire(1, 10) and pool end
end
print "ready" io.flush()
while server:call("EXISTS", "test:start") == 0 do sys.sleep(0.005) end
local stop, longest = sys.now() + seconds, 0
while true do
  local asked = sys.now()
  if asked >= stop then break end
  local got = take()
  longest = math.max(longest, sys.now() - asked)
  if got then
    if inside > 0 then sys.sleep(inside) end
    assert(got:release())
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

-- Sets the total of both kinds of semaphore. → a check that none was lost
local function set_permits(server, kind, permits)
  if kind ~= "semaphore" and kind ~= "plain_semaphore" then return function() end end
  server:cli("SET", KEY, permits)
  return function() assert(tonumber(server:cli("GET", KEY)) == permits, "permits are lost") end
end

local function start_workers(url, port, start_port, row)
  local mine, others, busy = {}, {}, {}
  for i = 1, row.theirs do
    others[i] = java.start("Shares", { tostring(port), KEY, row.kind, "seconds=" .. SECONDS,
      "inside=" .. row.inside, "cluster=" .. (CLUSTER and 1 or 0) })
  end
  for i = 1, row.ours do
    mine[i] = process.lua { code = OURS, args = { tostring(start_port), row.kind,
      tostring(row.inside), tostring(SECONDS), KEY, tostring(row.permits), url } }
  end
  for _, workers in ipairs { mine, others } do
    for _, worker in ipairs(workers) do assert(worker:wait_output("ready", java.START_UP)) end
  end
  for i = 1, BUSY and 2 or 0 do busy[i] = process.start { "sh", "-c", "while :; do :; done" } end
  return mine, others, busy
end

local unhindered = {} -- kind, section and crowd → Java's share when nobody waits

-- → whether a side's share is too small. unhindered_share: nil if it is not known
local function falls_short(share, workers, others, unhindered_share)
  local least = workers < others and 0.5 * workers / (workers + others) or MIN_SHARE
  return share < math.min(least, 0.85 * (unhindered_share or 1))
end

local function run(row)
  local server_of, url, port, stop = start_servers()
  local check = set_permits(server_of(KEY), row.kind, row.permits)
  local mine, others, busy = start_workers(url, port, server_of(START).port, row)
  server_of(START):cli("SET", START, 1)
  local our_turns, our_wait = sum(mine)
  local their_turns, their_wait = sum(others)
  for _, worker in ipairs(busy) do worker:stop() end
  check()
  stop()
  local all = our_turns + their_turns
  local share = their_turns / all
  local name = ("%s %g %d+%d"):format(row.kind, row.inside, row.ours, row.theirs)
  local is_free, free = row.permits >= row.ours + row.theirs, unhindered[name]
  if is_free then unhindered[name] = share end
  local missed = falls_short(share, row.theirs, row.ours, free)
    or falls_short(1 - share, row.ours, row.theirs, free and 1 - free)
    or math.max(our_wait, their_wait) >= MAX_WAIT
  print(("%-15s %7d %6d ms %4d + %d %9.0f %6.2f %8d ms %8d ms%s"):format(row.kind, row.permits,
    row.inside * 1000, row.ours, row.theirs, all / SECONDS, share, our_wait, their_wait,
    is_free and "  nobody waits" or missed and "  missed" or ""))
end

-- → the numbers of permits to try with `all` processes
local function permits_for(kind, all)
  if not kind:find("semaphore") then return { 1 } end
  local list = { all }
  for _, permits in ipairs { 1, 2, 4 } do list[#list + 1] = permits < all and permits or nil end
  return list
end

io.stdout:setvbuf "line"
print("kind            permits   inside   ours + Java  turns/s  Java  our longest  Java's longest")
for _, kind in ipairs(KINDS) do
  for _, crowd in ipairs { { 1, 1 }, { 3, 3 }, { 1, 4 }, { 4, 1 } } do
    for _, permits in ipairs(permits_for(kind, crowd[1] + crowd[2])) do
      for _, inside in ipairs { 0, 0.002, 0.02 } do
        local row = { kind = kind, permits = permits, inside = inside, ours = crowd[1],
          theirs = crowd[2] }
        local name = ("%s %d %d %d+%d"):format(kind, permits, inside * 1000, crowd[1], crowd[2])
        if name:find(ROW) then run(row) end
      end
    end
  end
end
