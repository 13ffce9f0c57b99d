-- holdfast beside other libraries on one server, all of it on one core, in interleaved rounds: what
-- one owner alone reaches, what crowds reach together, how evenly, what each cycle costs the
-- server, and what 10,000 held locks cost.
--   lua5.4 bench/peers.lua [NAME...]     HOLDFAST_PEERS_SECONDS=4 for each crowd,
--                                        HOLDFAST_PEERS_ROUNDS=5, HOLDFAST_PEERS_HELD=10000,
--                                        HOLDFAST_PEERS_CROWDS="2 8 32 128"
-- The results are left in build/peers/results.lua, of which bench/performance.lua makes
-- docs/explanation/performance.md.

local cost = require "bench.cost"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"
local wall = require("holdfast.process").time
local waits = require "bench.peers.waits"

local SECONDS = tonumber(os.getenv("HOLDFAST_PEERS_SECONDS") or 4)
local ROUNDS = tonumber(os.getenv("HOLDFAST_PEERS_ROUNDS") or 5)
local HELD = tonumber(os.getenv("HOLDFAST_PEERS_HELD") or 10000)
local HELD_LEASE, HELD_SECONDS = 6, 6
local CROWDS = {}
for owners in (os.getenv("HOLDFAST_PEERS_CROWDS") or "2 8 32 128"):gmatch("%d+") do
  CROWDS[#CROWDS + 1] = tonumber(owners)
end
local SECTION = 0.001
local PROCESSES = 4 -- processes of a library that can have several owners in one
local PATIENCE = 180

local OUT = "build/peers/"

-- command: the words before a mode and its arguments; alone: a process has one owner; start:
-- seconds until a process is ready when it shares the core with others
local PEERS = {
  { name = "holdfast", command = { sys.interpreter(), "bench/peers/holdfast.lua" }, alone = true,
    start = 0.05 },
  { name = "Redisson", command = { "java", "-cp", false, "Peer" }, start = 6 },
  { name = "redsync", command = { OUT .. "go/peer", "redsync" }, start = 0.5 },
  { name = "rueidislock", command = { OUT .. "go/peer", "rueidislock" }, start = 0.5 },
  { name = "redislock", command = { OUT .. "go/peer", "redislock" }, start = 0.5 },
  { name = "redis-py", command = { "python3", "bench/peers/python/peer.py" }, start = 1 },
  { name = "node-redlock", command = { "node", OUT .. "node/peer.js", "redlock" }, start = 1 },
  { name = "redis-semaphore", command = { "node", OUT .. "node/peer.js", "semaphore" }, start = 1 },
}

-- ---- who is there ----

local function read(path)
  local file = io.open(path)
  local text = file and file:read("*a")
  if file then file:close() end
  return text
end

local function installed()
  local versions = { holdfast = require("holdfast")._VERSION }
  local pipe = assert(io.popen("bench/peers/install"))
  for line in pipe:lines() do
    local name, version = line:match("^(%S+) (%S+)$")
    if name then versions[name] = version end
  end
  pipe:close()
  return versions
end

-- → the peers that can be run, or those of them in `wanted` if that names any
local function choose(versions, wanted)
  local list, named = {}, {}
  for _, name in ipairs(wanted) do named[name] = true end
  for _, peer in ipairs(PEERS) do
    if versions[peer.name] and (#wanted == 0 or named[peer.name]) then
      peer.version = versions[peer.name]
      if peer.name == "Redisson" then
        peer.command[3] = OUT .. "java/classes:" .. read(OUT .. "classpath")
      end
      list[#list + 1] = peer
    end
  end
  return list
end

-- ---- running them ----

local function start(peer, ...)
  local words = {
    env = { PYTHONPATH = OUT .. "python", LUA_PATH = process.lua_path,
      LUA_CPATH = process.lua_cpath },
  }
  for _, word in ipairs(peer.command) do words[#words + 1] = word end
  for _, word in ipairs { ... } do words[#words + 1] = tostring(word) end
  return process.start(words)
end

local function finish(peer, child)
  local how, code = child:wait(PATIENCE)
  local output = child:output()
  if how ~= "exit" or code ~= 0 then
    error(("%s: %s %s: %s"):format(peer.name, how, code, output:sub(-2000)))
  end
  return output
end

-- → the commands so far, including those inside scripts, and the seconds of the server's processor
local function usage(server)
  local commands = 0
  for name, calls in server:cli("INFO", "commandstats"):gmatch("cmdstat_(%S-):calls=(%d+)") do
    if name ~= "info" then commands = commands + tonumber(calls) end
  end
  return { commands = commands, seconds = cost.processor(server) }
end

local function by_owner(peer, owners)
  if peer.alone then return owners, 1 end
  local processes = math.min(PROCESSES, owners)
  return processes, owners / processes
end

-- → { rate, least, most (relative to the fair share), waits, cpu (µs of the server's processor for
-- each cycle), commands }
local function crowd(server, peer, owners, section, round)
  local processes, each = by_owner(peer, owners)
  local key = ("bench:%s:%d:%d"):format(peer.name, owners, round)
  local from = wall() + 0.5 + processes * peer.start
  local to = from + SECONDS
  local children = {}
  for i = 1, processes do
    children[i] = start(peer, "crowd", server.port, key, ("%d"):format(each), ("%.6f"):format(from),
      ("%.6f"):format(to), section)
  end
  sys.sleep(math.max(0, from + SECONDS * 0.1 - wall()))
  local before, begun = usage(server), wall()
  sys.sleep(math.max(0, to - SECONDS * 0.1 - wall()))
  local after, took = usage(server), wall() - begun
  local counts, total, least, most, seen = waits.new(), 0, math.huge, 0, 0
  for _, child in ipairs(children) do
    local output = finish(peer, child)
    for digits in output:gmatch("owner (%d+)") do
      local cycles = tonumber(digits)
      seen = seen + 1
      total, least, most = total + cycles, math.min(least, cycles), math.max(most, cycles)
    end
    for line in output:gmatch("waits ([^\n]*)") do counts:read(line) end
  end
  assert(seen == owners, ("%s: %d of %d owners came to their end"):format(peer.name, seen, owners))
  local fair, rate = total / owners, total / SECONDS
  return { rate = rate, least = least / fair, most = most / fair, waits = counts,
    cpu = (after.seconds - before.seconds) / (rate * took) * 1e6,
    commands = (after.commands - before.commands) / (rate * took) }
end

-- → { renewed, taken (µs for each), bytes (on the server for each), commands (per second, to keep
-- them), cpu, lost }
local function held(server, peer)
  server:cli("FLUSHALL")
  local empty = tonumber(server:cli("INFO", "memory"):match("used_memory:(%d+)"))
  local child = start(peer, "held", server.port, "held:", HELD, HELD_SECONDS, HELD_LEASE)
  local taken, how = assert(child:wait_output("taken ([%d.]+ %a+)", PATIENCE),
    child:output()):match("(%S+) (%S+)")
  local before, full = usage(server), tonumber(server:cli("INFO",
    "memory"):match("used_memory:(%d+)"))
  sys.sleep(HELD_SECONDS * 0.9)
  local after = usage(server)
  local lost = assert(child:wait_output("lost (%d+)", PATIENCE), child:output())
  child:stop()
  server:cli("FLUSHALL")
  local seconds = HELD_SECONDS * 0.9
  return {
    renewed = how == "renewed", taken = tonumber(taken) / HELD * 1e6, bytes = (full - empty) / HELD,
    commands = (after.commands - before.commands) / seconds,
      cpu = (after.seconds - before.seconds) / seconds,
    lost = tonumber(lost),
  }
end

-- ---- the run ----

local function median(rounds, name)
  local values = {}
  for i, result in ipairs(rounds) do values[i] = result[name] end
  return report.median(values)
end

local FIGURES = { "rate", "least", "most", "cpu", "commands" }

local function summary(rounds)
  local all = { distribution = waits.new(), least_rate = math.huge, most_rate = 0 }
  for _, name in ipairs(FIGURES) do all[name] = median(rounds, name) end
  for _, result in ipairs(rounds) do
    all.least_rate, all.most_rate = math.min(all.least_rate, result.rate),
      math.max(all.most_rate, result.rate)
    all.distribution:read(result.waits:text())
  end
  all.p50, all.p99 = all.distribution:quantile(0.5), all.distribution:quantile(0.99)
  all.distribution = all.distribution:distribution()
  return all
end

local function shuffled(list)
  local copy = { table.unpack(list) }
  for i = #copy, 2, -1 do
    local j = math.random(i)
    copy[i], copy[j] = copy[j], copy[i]
  end
  return copy
end

-- Runs one library after the other, in a different order each round. What a library cannot do is
-- reported and left out. → results by name
local function interleaved(peers, owners, section)
  local rounds = {}
  for round = 1, ROUNDS do
    for _, peer in ipairs(shuffled(peers)) do
      local server = redis.start { tcp = true }
      local ok, result = pcall(crowd, server, peer, owners, section, round)
      server:stop()
      local list = rounds[peer.name] or {}
      rounds[peer.name] = list
      if ok then list[#list + 1] = result
      else report.note(("%s fails with %d owners: %s"):format(peer.name, owners, result)) end
    end
  end
  local results = {}
  for name, list in pairs(rounds) do results[name] = #list > 0 and summary(list) or nil end
  return results
end

local function command_output(command)
  local pipe = assert(io.popen(command .. " 2>/dev/null"))
  local text = pipe:read("*a")
  pipe:close()
  return (text:gsub("%s+$", ""))
end

local function machine()
  return {
    processor = command_output("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1"),
    cores = command_output("nproc --all"),
    kernel = command_output("uname -sr"),
    redis = command_output(redis.program .. " --version"):match("v=([%d.]+)"),
    lua = _VERSION,
    java = command_output("java -version 2>&1 | head -n 1"):match('"(.-)"'),
    go = command_output("go version"):match("go([%d.]+)"),
    node = command_output("node --version"),
    python = command_output("python3 --version"):match("[%d.]+"),
  }
end

local function save(results)
  local file = assert(io.open(OUT .. "results.lua", "w"))
  local function write(value, indent)
    if type(value) ~= "table" then return file:write(("%q"):format(value)) end
    file:write("{\n")
    local names = {}
    for name in pairs(value) do names[#names + 1] = name end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    for _, name in ipairs(names) do
      file:write(indent, ("  [%q] = "):format(name))
      write(value[name], indent .. "  ")
      file:write(",\n")
    end
    file:write(indent, "}")
  end
  file:write("return ")
  write(results, "")
  file:write("\n")
  file:close()
end

os.execute("mkdir -p " .. OUT)
local versions = installed()
local peers = choose(versions, arg)
local names = {}
for i, peer in ipairs(peers) do names[i] = { name = peer.name, version = peer.version } end
for _, peer in ipairs(PEERS) do
  if not versions[peer.name] then report.note(peer.name .. " is missing") end
end
assert(sys.pin(0, 0)) -- processes started from here on inherit it
math.randomseed(os.time())

local results = {
  peers = names, machine = machine(), seconds = SECONDS, rounds = ROUNDS, crowds = CROWDS,
  held_count = HELD,
  held_lease = HELD_LEASE, date = os.date("!%Y-%m-%d"), free = interleaved(peers, 1, 0), crowd = {},
    held = {},
}
for _, peer in ipairs(peers) do
  local free = results.free[peer.name]
  if free then
    report.row(peer.name .. ", alone, cycles/s", free.rate, "%.0f")
    report.row(peer.name .. ", alone, server µs of a cycle", free.cpu, "%.1f")
  end
end
for _, owners in ipairs(CROWDS) do
  results.crowd[owners] = interleaved(peers, owners, SECTION)
  for _, peer in ipairs(peers) do
    local one = results.crowd[owners][peer.name]
    if one then
      report.row(("%s, %d owners, turns/s"):format(peer.name, owners), one.rate, "%.0f")
      report.row(("%s, %d owners, least share"):format(peer.name, owners), one.least, "%.2f")
    end
  end
end
for _, peer in ipairs(peers) do
  local server = redis.start { tcp = true }
  local ok, one = pcall(held, server, peer)
  server:stop()
  if ok then
    results.held[peer.name] = one
    report.row(("%s, %d held, commands/s to keep them"):format(peer.name, HELD), one.commands,
      "%.0f")
    report.row(("%s, %d held, lost"):format(peer.name, HELD), one.lost, "%.0f")
  else
    report.note(("%s fails with %d held: %s"):format(peer.name, HELD, one))
  end
end
save(results)
