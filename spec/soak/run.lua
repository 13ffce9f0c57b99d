-- A soak: processes that use locks of every kind under random faults for as long as one likes, and
-- whether their memory, their descriptors and the times of their waits stay as they are.
--
--   lua5.4 spec/soak/run.lua SECONDS [SEED]        60 s are the least that says something
--
-- It exits with 1 if something grew. Faults are those of the chaos runs that need no new process:
-- cuts, losses, resets, late bytes, kills of connections, pauses.

local jit = rawget(_G, "jit")
local build = os.getenv("HOLDFAST_BUILD") or "./build"
package.path = "./?.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = build .. "/" .. (jit and "luajit" or "lua5.4") .. "/?.so;" .. package.cpath

require "spec.support.usage".help(arg)

local leftovers = require "spec.support.leftovers"
local nemesis = require "spec.chaos.nemesis"
local process = require "spec.support.process"
local proxy = require "spec.chaos.proxy"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local seconds, seed = tonumber(arg[1]) or 60, tonumber(arg[2]) or 1
local WORKERS = 4
local POINTS = 100 -- at which each process is measured
local PERMITS = 3  -- of each semaphore
local END = 10     -- seconds for the processes to end
local FAULTS = {
  "cut_network", "cut_up", "cut_down", "lose_up", "lose_down", "delay", "cut_reply", "cut_request",
  "reset", "late",
  "refuse", "pause_clients", "kill_clients", "kill_listeners", "flush_scripts",
}

-- ---- the run ----

local directory = process.directory()
local server, proxies, workers, files = redis.start(), {}, {}, {}
local stop = sys.now() + seconds
local every = math.max(0.5, seconds / POINTS)

server:cli("SET", "places", PERMITS)
for i = 1, WORKERS do
  proxies[i] = { proxy.start(server.path) }
  files[i] = directory .. "/" .. i
  workers[i] = {
    name = "w" .. i,
    process = process.lua {
      file = "spec/soak/worker.lua", args = {
        "url=" .. proxies[i][1].url, "file=" .. files[i], "seed=" .. seed * 100 + i,
        "permits=" .. PERMITS,
        ("stop=%.3f"):format(stop),
        ("every=%.3f"):format(every),
      },
    },
  }
end

local world = {
  plan = { kind = "soak" }, workers = workers, proxies = proxies, servers = { server }, busy = {},
  faults = {},
}
nemesis.run(world, nemesis.schedule {
  seed = seed, seconds = seconds - 1, workers = WORKERS, faulty = 1, faults = FAULTS, kind = "soak",
})

local problems = {}
local function problem(...) problems[#problems + 1] = (...):format(select(2, ...)) end

for _, worker in ipairs(workers) do
  local how, code = worker.process:wait(END)
  if how ~= "exit" or code ~= 0 then
    problem("%s did not come to its end (%s %s): %s", worker.name, tostring(how), tostring(code),
      worker.process:output())
    worker.process:stop()
  end
end
-- The numbers of permits stay for ever, and all of them are free again.
local function all_free()
  return server:cli("GET", "places") == tostring(PERMITS)
    and server:cli("GET", "pool") == tostring(PERMITS) and server:cli("ZCARD", "{pool}:timeout") == 0
end
process.wait_until(all_free, END)
if not all_free() then
  problem("of %d permits %s of places and %s of pool are free", PERMITS,
    tostring(server:cli("GET", "places")), tostring(server:cli("GET", "pool")))
end
server:cli("DEL", "places", "pool", "gate")
local litter = leftovers.on(server, false, END)
if litter then problem("the server keeps %s", litter) end

-- ---- what was measured ----

-- → for each process a list of { at =, rss =, … }
local function read_all()
  local all, origin = {}, stop - seconds
  for i, path in ipairs(files) do
    all[i] = {}
    for line in io.lines(path) do
      local row = {}
      for name, value in line:gmatch("(%w+)=(%S+)") do row[name] = tonumber(value) end
      row.at = row.at - origin
      table.insert(all[i], row)
    end
  end
  return all
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)] or 0
end

-- The medians of the second quarter, when all has been used once, and of the last one.
local function early_and_late(rows, name)
  local early, late = {}, {}
  for i, row in ipairs(rows) do
    if i > #rows / 4 and i <= #rows / 2 then early[#early + 1] = row[name] end
    if i > #rows * 3 / 4 then late[#late + 1] = row[name] end
  end
  return median(early), median(late)
end

-- What may come on top: a share of it, and so much. A fault costs a wait up to a command timeout,
-- and how many there are in a quarter is left to chance.
local TIMEOUT_MS = 500
local MAY_GROW = { rss = { 0.1, 1024 }, fds = { 0, 1 }, p50 = { 1, 5 }, p90 = { 1, TIMEOUT_MS },
  p99 = { 1, 2 * TIMEOUT_MS } }
local NAMES = { "rss", "fds", "p50", "p90", "p99" }

local all = read_all()
for i, rows in ipairs(all) do
  if #rows < 8 then problem("w%d has measured %d intervals", i, #rows) end
  for _, name in ipairs(NAMES) do
    local early, late = early_and_late(rows, name)
    if late > early * (1 + MAY_GROW[name][1]) + MAY_GROW[name][2] then
      problem("%s of w%d has grown from %.1f to %.1f", name, i, early, late)
    end
  end
end

-- ---- the report ----

local function faults_in_words()
  local counts, parts = {}, {}
  for _, fault in ipairs(world.faults) do counts[fault.how] = (counts[fault.how] or 0) + 1 end
  for how, count in pairs(counts) do parts[#parts + 1] = ("%d %s"):format(count, how) end
  table.sort(parts)
  return #world.faults .. " faults: " .. table.concat(parts, ", ")
end

for _, list in ipairs(proxies) do list[1]:stop() end
server:stop()
process.remove(directory)

local uses = 0
for _, rows in ipairs(all) do
  for _, row in ipairs(rows) do uses = uses + row.done end
end
for _, text in ipairs(problems) do print("grows: " .. text) end
print(("%d uses in %d s, %s"):format(uses, seconds, faults_in_words()))
print(("%d problems"):format(#problems))
os.exit(#problems == 0 and 0 or 1, true)
