-- The real command as a process, in a session of its own, so that it has no terminal.

local files = require "spec.support.files"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local command = {}

-- Jobs inherit a preloaded sanitizer. A shell crashes under the thread sanitizer, so the plain
-- build runs there.
local preload, build = os.getenv("LD_PRELOAD") or false, process.build
if preload and preload:find("tsan", 1, true) then preload, build = false, "./build" end
local cpath = ("%s/%s/?.so;;"):format(build, process.flavour)

-- The command finds its modules in the default build directory. For any other one, creates a
-- prefix.
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

-- Copies the settings, since the command reads no file of another user, who may own the sources.
local function settings()
  return files.write(process.directory() .. "/holdfast.conf", files.read("spec/support/holdfast.conf"))
end

local config = settings()

-- The command as a single file that needs no interpreter.
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

-- Returns the command line, in a session of its own, and run by another command if `under` is
-- given. line{ words... [, under = { words of that command }] }
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

-- Like run, for a wait that times out. If the server does not reply within 100 ms at that moment,
-- it is unreachable, which on a busy machine may happen once, but not every time.
function command.run_out(server, words)
  local code, output
  for _ = 1, 3 do
    code, output = command.run(server, words)
    if code ~= 69 then break end
  end
  return code, output
end

-- Starts a program that is not under test, so without a preloaded sanitizer.
function command.other(words)
  words.env = { LD_PRELOAD = false }
  return process.start(words)
end

-- Returns a prelude for a shell: the command's environment, and a function `holdfast`.
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
