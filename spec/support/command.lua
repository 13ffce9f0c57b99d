-- The real command as a process, in a session of its own so that no terminal is near.

local process = require "spec.support.process"
local sys = require "spec.support.sys"

local command = {}

-- The jobs inherit a preloaded sanitizer. A shell does not survive the thread sanitizer: there the
-- plain build is run.
local preload, build = os.getenv("LD_PRELOAD") or false, process.build
if preload and preload:find("tsan", 1, true) then preload, build = false, "./build" end
local cpath = ("%s/%s/?.so;;"):format(build, process.flavour)

-- The command finds the modules in the sources' own build; a prefix is made around any other one.
local function program()
  if build == "./build" then return "bin/holdfast" end
  local directory, version = process.directory(), _VERSION:match("%d%.%d")
  local made = process.succeeds(([[
    root=$PWD build=$(cd '%s/%s' && pwd) && cd '%s' && mkdir -p bin share/lua lib/lua &&
    ln -s "$root/bin/holdfast" bin/ && ln -s "$root/lua" share/lua/%s && ln -s "$build" lib/lua/%s
  ]]):format(build, process.flavour, directory, version, version))
  assert(made, "cannot make a prefix for " .. build)
  return directory .. "/bin/holdfast"
end

command.program = program()

-- A copy of the settings: the command reads no file of another user, as the sources' may be.
local function settings()
  local path = process.directory() .. "/holdfast.conf"
  local from, to = assert(io.open("spec/support/holdfast.conf")), assert(io.open(path, "w"))
  to:write(from:read("*a"))
  from:close()
  to:close()
  return path
end

local config = settings()

-- The command as one file, which needs no interpreter.
local static = os.getenv "HOLDFAST_STATIC"

command.is_static = static ~= nil

function command.words(...)
  if static then return { static, ... } end
  return { sys.interpreter(), command.program, ... }
end

function command.environment(server, more)
  local env = {
    LUA_PATH = process.lua_path, LUA_CPATH = cpath, LUA_INIT = false,
    HOLDFAST_URL = server and server:url() or false, HOLDFAST_SERVERS = false,
    HOLDFAST_CONFIG = config, HOLDFAST_KEY = false, HOLDFAST_OWNER = false,
    LD_PRELOAD = preload, ASAN_OPTIONS = "detect_leaks=0",
  }
  for name, value in pairs(more or {}) do env[name] = value end
  return env
end

-- The command in a session of its own, by another command that ends in it, if there is one.
-- line{ words... [, under = { words of that command }] }
function command.line(words)
  local all = { "setsid" }
  for _, part in ipairs { words.under or {}, command.words((table.unpack or unpack)(words)) } do
    for _, word in ipairs(part) do all[#all + 1] = word end
  end
  return all
end

-- start(server, { words... [, env = {}] [, under = {}] })
function command.start(server, words)
  local all = command.line(words)
  all.env = command.environment(server, words.env)
  return process.start(all)
end

-- → exit code, output; raises unless it exits
function command.run(server, words)
  local child = command.start(server, words)
  local how, code = child:wait(60)
  assert(how == "exit", ("%s %s: %s"):format(how, code, child:output()))
  return code, child:output()
end

-- The same for a wait that runs out. A server that is silent for 100 ms at that moment is
-- unreachable, which on a busy machine it may be once, not each time.
function command.run_out(server, words)
  local code, output
  for _ = 1, 3 do
    code, output = command.run(server, words)
    if code ~= 69 then break end
  end
  return code, output
end

-- A program that is not tested: without a sanitizer that may be preloaded here.
function command.other(words)
  words.env = { LD_PRELOAD = false }
  return process.start(words)
end

-- For a shell: the command with its environment, `holdfast` as a function.
function command.shell_prelude(server)
  local lines, env = {}, command.environment(server)
  env.LD_PRELOAD = nil
  for name, value in pairs(env) do
    lines[#lines + 1] = value and ("export %s='%s'"):format(name, value) or "unset " .. name
  end
  lines[#lines + 1] = ("holdfast() { %s '%s' \"$@\"; }"):format(
    preload and ("LD_PRELOAD='%s'"):format(preload) or "", table.concat(command.words(), "' '"))
  return table.concat(lines, "\n")
end

return command
