-- What a build costs in figures that are counted and not timed, so that a busy machine hardly
-- matters. Valgrind counts the instructions of the client; those of the kernel are not among them.
--
--   start      instructions of `holdfast run k -- true`
--   cycle      instructions of a free acquire and release
--   with_lock  the same through client:with_lock
--   hand_off   instructions of a turn, by turns with another process
--   refused    instructions of an attempt to acquire a lock that another client holds
--   hold       bytes by which the process grows for each lock that it holds
--   aof        bytes of a cycle in the server's append-only file

local process = require "spec.support.process"
local sys = require "spec.support.sys"

local counted = { names = { "start", "cycle", "with_lock", "hand_off", "refused", "hold", "aof" } }

local FEW, MANY = 200, 1200 -- cycles; what a program costs once is subtracted
local HOLDS, AOF_CYCLES, PATIENCE = 20000, 1000, 120
local INTERPRETER = sys.interpreter()
local LUA = INTERPRETER:match("[^/]+$")
local VALGRIND = { "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null" }

local CYCLES = [[
  local client, cycles = require("holdfast").new(%q), %d
  local lock, nothing = client:lock("bench:counted"), function() end
  for _ = 1, cycles do assert(%s) end
  client:close()
]]
local CYCLE = "lock:acquire(60) and lock:release()"
local REFUSED, OTHER_OWNER = "not lock:try_acquire()", "00000000-0000-8000-8000-000000000000:1"
local WITH_LOCK = 'client:with_lock("bench:counted", nothing)'

local HOLD = [[
  local function size() return tonumber(io.open("/proc/self/status"):read("*a"):match("VmRSS:%%s+(%%d+)")) * 1024 end
  local client, count, locks = require("holdfast").new(%q), %d, {}
  for i = 1, count do locks[i] = false end
  local before = size()
  for i = 1, count do
    locks[i] = client:lock("bench:hold:" .. i, { lease = 600, watchdog = false })
    assert(locks[i]:acquire(0))
  end
  print((size() - before) / count)
  client:close()
]]

-- Starts an interpreter with the build of that tree, behind the words of `wrapper`.
local function start(server, tree, words, wrapper)
  local all = { INTERPRETER }
  for i, word in ipairs(wrapper or {}) do table.insert(all, i, word) end
  for _, word in ipairs(words) do all[#all + 1] = word end
  all.env = {
    LUA_PATH = ("%s/lua/?.lua;%s/lua/?/init.lua;;"):format(tree, tree),
    LUA_CPATH = ("%s/build/%s/?.so;;"):format(tree, LUA),
    LUA_INIT = false, HOLDFAST_URL = server:url(), HOLDFAST_SERVERS = false, HOLDFAST_CONFIG = "/dev/null",
  }
  return process.start(all)
end

-- → what the program prints
local function run(...)
  local child = start(...)
  local how, code = child:wait(PATIENCE)
  assert(how == "exit" and code == 0, child:output())
  return child:output()
end

local function instructions_of(server, tree, words)
  local output = run(server, tree, words, VALGRIND)
  return tonumber((assert(output:match("Collected : (%d+)"), output)))
end

local function instructions_of_each(server, tree, body)
  local function of(cycles)
    return instructions_of(server, tree, { "-e", CYCLES:format(server:url(), cycles, body) })
  end
  local few = of(FEW)
  return (of(MANY) - few) / (MANY - FEW)
end

local measures = {}

function measures.start(server, tree)
  return instructions_of(server, tree, { tree .. "/bin/holdfast", "run", "bench:counted", "--", "true" })
end

function measures.cycle(server, tree) return instructions_of_each(server, tree, CYCLE) end

function measures.with_lock(server, tree) return instructions_of_each(server, tree, WITH_LOCK) end

function measures.hand_off(server, tree)
  local other = start(server, tree, { "-e", CYCLES:format(server:url(), 1e9, CYCLE) })
  local each = instructions_of_each(server, tree, CYCLE)
  other:kill("KILL")
  server:cli("DEL", "bench:counted", "holdfast_queue:{bench:counted}")
  return each
end

function measures.refused(server, tree)
  server:cli("HSET", "bench:counted", OTHER_OWNER, 1)
  server:cli("PEXPIRE", "bench:counted", PATIENCE * 1000)
  local each = instructions_of_each(server, tree, REFUSED)
  server:cli("DEL", "bench:counted")
  return each
end

function measures.hold(server, tree)
  local output = run(server, tree, { "-e", HOLD:format(server:url(), HOLDS) })
  server:cli "FLUSHALL" -- the close of the client does not wait for so many releases
  return tonumber((output:match("%d[%d.]*")))
end

function measures.aof(server, tree)
  local function size() return tonumber(server:cli("INFO", "persistence"):match("aof_current_size:(%d+)")) end
  server:cli("CONFIG", "SET", "appendonly", "yes")
  assert(process.wait_until(function()
    return server:cli("INFO", "persistence"):find("aof_rewrite_in_progress:0", 1, true)
  end, PATIENCE))
  local before = size()
  run(server, tree, { "-e", CYCLES:format(server:url(), AOF_CYCLES, CYCLE) })
  local grown = size() - before
  server:cli("CONFIG", "SET", "appendonly", "no")
  return grown / AOF_CYCLES
end

-- Returns whether this system can measure the figure: instructions need valgrind.
function counted.may_measure(name)
  return name == "hold" or name == "aof" or process.succeeds "command -v valgrind >/dev/null"
end

-- → the figure of the build in the tree, in which `make CHECKED=` has run
function counted.measure(name, server, tree)
  return measures[name](server, tree)
end

return counted
