-- Which modules a start loads: each takes its time. What else a program uses is loaded when it is
-- first used (holdfast.lazy).

local command = require "spec.support.command"
local files = dofile "tools/files.lua"
local process = require "spec.support.process"

local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

local LOCK = [[ compat core driver events lazy leaving locale lock loop loop.owner loss notifier options
  process servers text client version ]]
local COMMAND = LOCK .. [[ command command.exits command.options command.output command.settings ]]
local RUN = COMMAND .. [[ command.holding command.job command.run command.signals command.target command.work ]]
local LS = COMMAND .. [[ command.counts command.identity command.json command.kinds command.locks command.ls
  command.records command.subcommand abort holder names observed once pages replies traceback with_lock ]]
local LIBRARY = LOCK .. [[ abort holder names native observed replies traceback with_lock ]]

-- A larger start is slower: see "start" in bench/pair.lua.
local KILOBYTES = { run = 193, ls = 217, library = 135 }

local PRINT = [[
  local exit = os.exit
  function os.exit(code)
    for name in pairs(package.loaded) do
      if name:find "^holdfast" then print("loaded " .. name) end
    end
    io.stdout:flush()
    exit(code)
  end
]]

local function path_of(name)
  local path = "lua/" .. name:gsub("%.", "/")
  return files.exists(path .. ".lua") and path .. ".lua" or path .. "/init.lua"
end

-- `code`: what a program does before it ends. → the modules that it has loaded, without their
-- prefix, their size in kilobytes
local function loaded_by(code, args, env)
  local child = process.lua { code = PRINT .. code .. "\nos.exit(0)", args = args, env = env }
  local how, exit = child:wait(20)
  assert.same({ "exit", 0 }, { how, exit }, child:output())
  local names, size = {}, 0
  for name in child:output():gmatch "loaded (%S+)" do
    names[name:gsub("^holdfast%.?", "")] = true
    local is_native = name == "holdfast.core" or name == "holdfast.process"
    if not is_native then size = size + #files.read(path_of(name)) / 1000 end
  end
  return names, size
end

local function assert_loads(allowed, most, names, size)
  allowed = " holdfast closing " .. allowed:gsub("%s+", " ") -- closing: only from Lua 5.4 on
  local more = {}
  for name in pairs(names) do
    if name ~= "" and not allowed:find(" " .. name .. " ", 1, true) then more[#more + 1] = name end
  end
  table.sort(more)
  assert.same({}, more)
  assert.is_true(size <= most, ("%.1f kB"):format(size))
end

local function loaded_by_command(...)
  local code = ("arg[0] = %q\ndofile(arg[0])"):format(command.program)
  return loaded_by(code, { ... }, command.environment(world.server))
end

describe("starting up", function()
  it("holdfast run loads no module that it does not need", function()
    assert_loads(RUN, KILOBYTES.run, loaded_by_command("run", "k", "--", "true"))
  end)

  it("holdfast ls loads no module that it does not need", function()
    assert_loads(LS, KILOBYTES.ls, loaded_by_command "ls")
  end)

  it("the library loads what locks and with_lock need, and nothing else", function()
    local names, size = loaded_by 'require "holdfast"'
    assert_loads(LIBRARY, KILOBYTES.library, names, size)
    local code = [[
      local client = require("holdfast").new(arg[1])
      assert(client:with_lock("k", function() return true end))
      assert(not client:lock("k"):info().owner)
      client:close()
    ]]
    assert.same(names, (loaded_by(code, { world.server:url() })))
  end)
end)

-- An upgrade replaces the files while a job runs, which may be for hours.
describe("a run whose modules are removed once its job has started", function()
  local tree

  before_each(function()
    tree = process.directory()
    assert(process.succeeds(([[
      root=$PWD && cd '%s' && mkdir -p bin build && cp "$root/bin/holdfast" bin/ && cp -r "$root/lua" . &&
      build=$(cd "$root" && cd '%s/%s' && pwd) && ln -s "$build" build/%s
    ]]):format(tree, process.build, process.flavour, process.flavour)))
  end)

  after_each(function() process.remove(tree) end)

  -- `words`: options and keys of the run. → its process
  local function start(words, job)
    local line = { "setsid", require("spec.support.sys").interpreter(), tree .. "/bin/holdfast", "run" }
    for word in words:gmatch "%S+" do line[#line + 1] = word end
    for _, word in ipairs { "-c", ("rm -r '%s/lua'; echo begun; %s"):format(tree, job) } do line[#line + 1] = word end
    line.env = command.environment(world.server)
    world.children[#world.children + 1] = process.start(line)
    return world.children[#world.children]
  end

  for _, words in ipairs { "k", "-v k", "--json k", "k l", "-x k", "-s k", "--permits 2 k", "--one-by-one k:1",
    "--idempotent 1h k", "--once-per 1h k", "--min-hold 0.1 k", "--max-runtime 1h k" } do
    it("releases its locks and has the job's exit code: holdfast run " .. words, function()
      for _, code in ipairs(words:find "once%-per" and { 0 } or { 3, 0 }) do
        local run = start(words, "exit " .. code)
        local how, exit = run:wait(20)
        assert.same({ "exit", code }, { how, exit }, run:output())
        assert.is_nil(run:output():find("stack traceback", 1, true), run:output())
        assert.same({}, world.hash "k")
        assert(process.succeeds(("cp -r lua '%s/'"):format(tree)))
      end
      world.cli("DEL", "k", "holdfast_once:k")
    end)
  end

  it("stops the job when the lock is lost", function()
    for _, words in ipairs { "--lease 1 k", "--json --lease 1 k" } do
      local run = start(words, "exec sleep 60")
      assert(run:wait_output "begun")
      world.cli("DEL", "k")
      local how, exit = run:wait(20)
      assert.same({ "exit", 75 }, { how, exit }, run:output())
      assert.matches("lost", run:output())
      assert(process.succeeds(("cp -r lua '%s/'"):format(tree)))
    end
  end)

  it("passes on a signal that ends the job", function()
    local run = start("-v k", "exec sleep 60")
    assert(run:wait_output "begun")
    process.signal(run.pid, "TERM")
    local how, exit = run:wait(20)
    assert.same({ "exit", 143 }, { how, exit }, run:output())
    assert.same({}, world.hash "k")
  end)
end)

describe("a module that is loaded when it is first used", function()
  local PREPARE = 'local client = require("holdfast").new(arg[1])\n'

  -- → what the code raises
  local function message_of(code)
    local child = process.lua { code = PREPARE .. ("print((select(2, pcall(function() %s end))))"):format(code),
      args = { world.server:url() } }
    local how, exit = child:wait(20)
    assert.same({ "exit", 0 }, { how, exit }, child:output())
    return child:output()
  end

  it("is refused if its version differs from the one that the program has loaded", function()
    local code = [[
      package.preload["holdfast.version"] = function() return "99.0" end
      client:latch("l")
    ]]
    local text = message_of(code)
    assert.matches("^holdfast %S+ was replaced by 99%.0 while this program runs; restart the program\n$", text)
    assert.equal(text, message_of(code:gsub("client", "pcall(client.latch, client, 'l') %0")))
    assert.matches("^nil\n$", message_of(code:gsub("client", "client:with_lock('k', type) client:lock('k') --")))
  end)

  it("is loaded with the others under nginx, where a worker may not be able to read its file", function()
    local before, after = loaded_by 'require "holdfast"', loaded_by 'ngx = {} require "holdfast"'
    for _, name in ipairs { "semaphore", "latch", "fence", "lead", "multi_lock", "deadlocks", "loop.pump" } do
      assert.is_nil(before[name])
      assert.is_true(after[name], name)
    end
  end)
end)
