-- Two builds of holdfast in one run: how many turns the second one has for each of the first one.
--
--   lua5.4 bench/pair.lua OLD NEW     trees of the sources in which `make CHECKED=` has run
--
-- Everything shares one processor. The builds take rounds by turns, on one server; the median of
-- the rounds' ratios is shown, with a quarter of the rounds below and above what stands behind it.
-- $HOLDFAST_BENCH_ROUNDS rounds, $HOLDFAST_BENCH_SECONDS each, of the parts that are named in
-- $HOLDFAST_BENCH_PARTS.

local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local ROUNDS = tonumber(os.getenv("HOLDFAST_BENCH_ROUNDS") or 41)
local SECONDS = tonumber(os.getenv("HOLDFAST_BENCH_SECONDS") or 0.5)
local START = 0.4 -- seconds until all workers of a round are connected
local INTERPRETER = sys.interpreter()
local LUA = INTERPRETER:match("[^/]+$")

-- Name, kind of bench/kind_worker.lua, workers.
local PARTS = {
  { "free", "lock", 1 },
  { "handoff", "lock", 8 },
  { "crowd", "lock", 32 },
  { "readers", "read", 4 },
  { "permits", "permit", 12 },
}

local trees = { arg[1], arg[2] }
if #trees ~= 2 then
  io.stderr:write("usage: lua5.4 bench/pair.lua OLD NEW\n")
  os.exit(2)
end

-- → turns of all workers of one build
local function round(server, tree, kind, workers)
  local start, started, turns = process.now() + START, {}, 0
  for i = 1, workers do
    started[i] = process.start {
      INTERPRETER, "bench/kind_worker.lua", server:url(), ("%.6f"):format(start), ("%.6f"):format(start + SECONDS),
      kind, "bench:" .. kind,
      env = {
        LUA_PATH = ("%s/lua/?.lua;%s/lua/?/init.lua;./?.lua;;"):format(tree, tree),
        LUA_CPATH = ("%s/build/%s/?.so;%s;;"):format(tree, LUA, process.lua_cpath),
      },
    }
  end
  for _, worker in ipairs(started) do
    assert(worker:wait(60))
    turns = turns + assert(tonumber(worker:output():match("%d+")), worker:output())
  end
  return turns
end

local function at(sorted, share) return sorted[math.max(1, math.ceil(#sorted * share))] end

local function compare(server, name, kind, workers)
  local ratios, old, new = {}, {}, {}
  for i = 1, ROUNDS do
    if i % 2 == 1 then old[i] = round(server, trees[1], kind, workers) end
    new[i] = round(server, trees[2], kind, workers)
    if i % 2 == 0 then old[i] = round(server, trees[1], kind, workers) end
    ratios[i] = new[i] / old[i]
  end
  table.sort(ratios)
  table.sort(old)
  print(("%-8s %7.0f turns/s before, ratio %.3f (%.3f to %.3f)"):format(name, at(old, 0.5) / SECONDS, at(ratios, 0.5),
    at(ratios, 0.25), at(ratios, 0.75)))
end

assert(sys.pin(0, 0))
local server = redis.start()
local wanted = os.getenv("HOLDFAST_BENCH_PARTS")
for _, part in ipairs(PARTS) do
  if not wanted or wanted:find(part[1], 1, true) then compare(server, part[1], part[2], part[3]) end
end
server:stop()
