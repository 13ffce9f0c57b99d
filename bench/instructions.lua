-- What a cycle of acquire and release costs in two builds, counted and not timed, so that a busy
-- machine does not matter:
--
--   lua5.4 bench/instructions.lua OLD NEW     trees of the sources in which `make CHECKED=` has run
--
-- Valgrind counts the instructions of the client. Those of the kernel are not among them, but each
-- request is a write and a read, and the server counts the requests. The last row says what the
-- ratio means for the whole cycle, with the share of the new build's time that the client's own
-- instructions take; that share is timed, on one processor, and needs a quiet machine. For whole
-- times: bench/pair.lua.

local cost = require "bench.cost"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local FEW, MANY, PATIENCE = 500, 2500, 300
local TIMED, TICKS = 40000, 100 -- cycles; of user time in /proc, per second
local INTERPRETER = sys.interpreter()
local LUA = INTERPRETER:match("[^/]+$")
local CODE = [[
  local lock = require("holdfast").new(%q):lock("bench:instructions")
  for _ = 1, %d do assert(lock:acquire(60)) assert(lock:release()) end
  print(io.open("/proc/self/stat"):read("a"):match("%%) (.*)"))
]]

if #arg ~= 2 then
  io.stderr:write("usage: lua5.4 bench/instructions.lua OLD NEW\n")
  os.exit(2)
end

-- Runs a program that does that many cycles with the build of that tree, behind the words of
-- `wrapper`. → what it prints
local function run(server, tree, cycles, wrapper)
  local words = { INTERPRETER, "-e", CODE:format(server:url(), cycles) }
  for i, word in ipairs(wrapper) do table.insert(words, i, word) end
  words.env = {
    LUA_PATH = ("%s/lua/?.lua;%s/lua/?/init.lua;;"):format(tree, tree),
    LUA_CPATH = ("%s/build/%s/?.so;;"):format(tree, LUA),
  }
  local child = process.start(words)
  assert(child:wait(PATIENCE), "the client did not end")
  return child:output()
end

local function instructions_of(server, tree, cycles)
  local output = run(server, tree, cycles, { "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null" })
  return tonumber((assert(output:match("Collected : (%d+)"), output)))
end

-- → the share of the time of a cycle in which the client's own instructions run
local function share_of_client(server, tree)
  local begun = process.now()
  local fields = run(server, tree, TIMED, {})
  local user = tonumber((assert(fields:match("^%a" .. (" %S+"):rep(10) .. " (%d+)"), fields)))
  return user / TICKS / (process.now() - begun)
end

-- → by figure, what one cycle costs; what a program costs once is subtracted
local function measured(server, tree)
  local few = instructions_of(server, tree, FEW)
  local before = cost.stats(server)
  local many = instructions_of(server, tree, MANY)
  local after, commands = cost.stats(server), 0
  for name, count in pairs(after) do
    if name ~= "evalsha" then commands = commands + count - (before[name] or 0) end
  end
  return {
    instructions = (many - few) / (MANY - FEW),
    requests = (after.evalsha - before.evalsha) / MANY,
    commands = commands / MANY, -- inside the scripts
  }
end

assert(sys.pin(0, 0))
local server = redis.start {}
local old, new = measured(server, arg[1]), measured(server, arg[2])
local share = share_of_client(server, arg[2])
server:stop()
for _, figure in ipairs { "instructions", "requests", "commands" } do
  local ratio = new[figure] / old[figure]
  print(("%-12s %9.1f %9.1f   ratio %.3f"):format(figure, old[figure], new[figure], ratio))
end
local whole = 1 + share * (new.instructions / old.instructions - 1)
print(("%-12s %30s ratio %.3f"):format("cycle", ("%.0f %% of it the client"):format(share * 100), whole))
