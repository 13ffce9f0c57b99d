-- Runs Lua programs as separate processes, with the current interpreter and the project's modules.
-- Processes started here are killed, and their files removed, by stop_all or when this process
-- ends.

local sys = require "spec.support.sys"

local unpack = table.unpack or unpack

local process = { now = sys.now, sleep = sys.sleep }

local SIGNALS = {
  HUP = 1, INT = 2, QUIT = 3, KILL = 9, USR1 = 10, USR2 = 12, PIPE = 13, TERM = 15, CHLD = 17,
  CONT = 18, STOP = 19,
}
local STEP, MAX_STEP = 0.002, 0.05

process.flavour = rawget(_G, "jit") and "luajit" or "lua" .. _VERSION:match("%d%.%d")
process.build = os.getenv("HOLDFAST_BUILD") or "./build"
process.lua_path = "./?.lua;./lua/?.lua;./lua/?/init.lua;;"
process.lua_cpath = ("%s/%s/?.so;;"):format(process.build, process.flavour)

local home = sys.getpid()
local running, litter = {}, {}
local killed = {} -- pid -> true if it was ended by a signal, or was sent KILL

-- Waits until cond() is true, for at most `seconds` (20). A long step counts only MAX_STEP, so
-- that a machine that stalls does not use up the time. → the result of cond(), or nil
function process.wait_until(cond, seconds)
  local left, last = seconds or 20, sys.now()
  repeat
    local result = cond()
    if result then return result end
    sys.sleep(STEP)
    local now = sys.now()
    left, last = left - math.min(now - last, MAX_STEP), now
  until left < 0
  return cond() or nil
end

local PATIENCE = 40 -- seconds, enough for a busy machine

-- Waits like wait_until, by default for PATIENCE, and raises an error if cond() does not become
-- true; `why` is what the error says then, or a function that returns it.
function process.eventually(cond, seconds, why)
  local result = process.wait_until(cond, seconds or PATIENCE)
  if result then return result end
  if type(why) == "function" then why = why() end
  error(why and tostring(why) or "the condition did not become true", 2)
end

-- → a TCP port on which nothing listens
function process.free_port()
  local fd, port = assert(sys.listen_tcp())
  sys.close(fd)
  return port
end

-- → how many descriptors this process has open
function process.descriptors()
  local count = 0
  for _ in require("lfs").dir("/proc/self/fd") do count = count + 1 end
  return count
end

-- Returns whether the shell's command exits with 0. Lua 5.1's os.execute returns a number, which is
-- always true.
function process.succeeds(command)
  local result = os.execute(command)
  return result == true or result == 0
end

function process.signal(pid, signal)
  if signal == "KILL" then killed[pid] = true end
  return sys.kill(pid, SIGNALS[signal] or signal)
end

local Process = {}
Process.__index = Process

-- → "exit", code | "signal", number | nil while it is running
function Process:status()
  if not self.how then
    self.how, self.code = sys.wait(self.pid)
    if self.how then running[self.pid] = nil end
    if self.how == "signal" then killed[self.pid] = true end
  end
  return self.how, self.code
end

-- Returns whether a process with this id was started here and ended by a signal, so that it could
-- not clean up.
function process.was_killed(pid) return killed[pid] == true end

function Process:kill(signal)
  if self:status() then return nil, "has ended" end
  return process.signal(self.pid, signal or "KILL")
end

-- Waits for the end, for at most `seconds`. → like status() | nil, "timeout"
function Process:wait(seconds)
  if process.wait_until(function() return self:status() end, seconds) then
    return self.how, self.code
  end
  return nil, "timeout"
end

function Process:stop()
  self:kill("KILL")
  return self:wait(5)
end

-- Returns all output so far.
function Process:output()
  local file = io.open(self.path, "rb")
  if not file then return "" end
  local text = file:read("*a")
  file:close()
  return text
end

function Process:wait_output(pattern, seconds)
  return process.wait_until(function() return self:output():match(pattern) end, seconds)
end

-- Creates a private directory, which is removed at the end.
function process.directory()
  local path = assert(sys.mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/holdfast-"))
  litter[path] = true
  return path
end

function process.remove(path)
  sys.remove(path)
  litter[path] = nil
end

local function temporary_file()
  local path = os.tmpname()
  litter[path] = true
  return path
end

-- Appends option=value for each option to a worker's arguments. → args
function process.args(args, options)
  for option, value in pairs(options or {}) do
    args[#args + 1] = option .. "=" .. tostring(value)
  end
  return args
end

-- start{ command, arguments..., env = { NAME = value | false }, output = path }
function process.start(options)
  options.output = options.output or temporary_file()
  local self = setmetatable({ path = options.output, pid = assert(sys.spawn(options)) }, Process)
  running[self.pid] = self
  return self
end

-- Lua 5.1 and 5.2 fill `arg` only after -e.
local function code_words(code, args)
  for i, argument in ipairs(args) do args[i] = ("%q"):format(argument) end
  return { "-e", "arg = { " .. table.concat(args, ", ") .. " }", "-e", code }
end

-- lua{ code = text | file = path, args = {}, env = {}, output = path, descriptors = number }:
-- starts a Lua program, which may open up to that many descriptors
function process.lua(options)
  local command = {
    env = { LUA_PATH = process.lua_path, LUA_CPATH = process.lua_cpath, LUA_INIT = false },
    output = options.output,
  }
  if options.descriptors then
    command = {
      "sh", "-c", ('ulimit -n %d && exec "$0" "$@"'):format(options.descriptors),
      env = command.env, output = command.output,
    }
  end
  command[#command + 1] = assert(sys.interpreter())
  for name, value in pairs(options.env or {}) do command.env[name] = value end
  local args = {}
  for i, argument in ipairs(options.args or {}) do args[i] = tostring(argument) end
  for _, word in ipairs(options.code and code_words(options.code, args)
      or { options.file, unpack(args) }) do
    command[#command + 1] = word
  end
  return process.start(command)
end

-- Copies the members: acting on them changes the table, and then LuaJIT's compiled pairs may loop
-- forever.
local function members(set, pick)
  local list = {}
  for key, value in pairs(set) do list[#list + 1] = pick == "keys" and key or value end
  return list
end

function process.stop_all()
  if sys.getpid() ~= home then return end
  local children = members(running, "values")
  for _, child in ipairs(children) do child:kill("KILL") end
  for _, child in ipairs(children) do child:wait(5) end
  for _, path in ipairs(members(litter, "keys")) do process.remove(path) end
end

-- LuaJIT may spin in a compiled loop over pairs while it closes its state.
if rawget(_G, "jit") then
  for _, each in ipairs { members, process.remove, process.stop_all } do
    rawget(_G, "jit").off(each)
  end
end

-- Only a finalizer runs however this program ends.
if rawget(_G, "newproxy") then
  local sentinel = newproxy(true) -- luacheck: ignore 113
  getmetatable(sentinel).__gc = process.stop_all
  process.sentinel = sentinel
else
  process.sentinel = setmetatable({}, { __gc = process.stop_all })
end

return process
