-- The command as it is installed: where it finds its modules, and what it does not run.

local command = require "spec.support.command"
local holdfast = require "holdfast"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local PATIENCE, exits = jobs.PATIENCE, jobs.exits

describe("the installed command", function()
  local directory

  local function shell(script)
    local child = command.other { "sh", "-ec", script }
    exits(child, 0)
    return child:output()
  end

  before_each(function()
    directory = process.directory()
    local version = _VERSION:match("%d%.%d")
    shell(([[
      cd %s && mkdir -p "a b/bin" "a b/share/lua/%s" "a b/lib/lua/%s" links
      ln -s "$OLDPWD/lua/holdfast" "a b/share/lua/%s/holdfast"
      ln -s "$OLDPWD/%s/%s/holdfast" "a b/lib/lua/%s/holdfast"
      cp "$OLDPWD/bin/holdfast" "a b/bin/holdfast"
    ]]):format(directory, version, version, version, process.build, process.flavour, version))
  end)
  after_each(function() process.remove(directory) end)

  local function version_by(path)
    return shell(("cd %s && unset LUA_PATH LUA_CPATH LUA_INIT && '%s' %s --version"):format(
      directory, sys.interpreter(), path))
  end

  it("finds its modules relative to its own path", function()
    local expected = "holdfast " .. holdfast._VERSION .. "\n"
    assert.equal(expected, version_by("'a b/bin/holdfast'"))
    assert.equal(expected, version_by(directory .. "/'a b/bin/holdfast'"))
    assert.equal(expected, shell(
      ("cd '%s/a b/bin' && unset LUA_PATH LUA_CPATH LUA_INIT && '%s' holdfast --version"):format(
        directory, sys.interpreter())))
  end)

  it("does not run LUA_INIT, whose failure would look like a busy lock", function()
    if process.build ~= "./build" or process.flavour ~= "lua5.4" then return end
    local init = "LUA_INIT=@/nonexistent.lua LUA_INIT_5_4=@/nonexistent.lua "
    assert.equal("holdfast " .. holdfast._VERSION .. "\n", shell(init .. "bin/holdfast --version"))
  end)

  it("says what to do if its modules are missing", function()
    local child = command.other { "sh", "-c", ([[
      cd %s && unset LUA_PATH LUA_CPATH LUA_INIT && mkdir -p bin && cp "$OLDPWD/bin/holdfast" bin
      '%s' bin/holdfast --version
    ]]):format(directory, sys.interpreter()) }
    local how, code = child:wait(PATIENCE)
    assert.same({ "exit", 70 }, { how, code })
    assert.matches("^holdfast: cannot find holdfast%.process for Lua %d%.%d beside bin/holdfast: [^\n]+make install[^\n]+\n$",
      child:output())
  end)

  it("runs no code from the current directory, LUA_PATH or LUA_CPATH", function()
    local evil = directory .. "/evil"
    shell(([[
      mkdir -p %s/holdfast/command %s/luarocks && cd %s
      echo 'io.stderr:write("this was run: ", ...)' >holdfast.lua
      for file in holdfast/init holdfast/core holdfast/process holdfast/version holdfast/command \
          holdfast/command/init holdfast/command/ls luarocks/loader; do
        cp holdfast.lua $file.lua
      done
      cp holdfast.lua holdfast/core.so && cp holdfast.lua holdfast/process.so
    ]]):format(evil, evil, evil))
    local version = _VERSION:match("%d%.%d"):gsub("%.", "_")
    local unset, sources = "unset LUA_PATH LUA_CPATH LUA_INIT; ", shell("pwd"):match("[^\n]+")
    local paths = ("LUA_PATH='%s/?.lua;%s/?/init.lua' LUA_CPATH=%s/?.so "):format(evil, evil, evil)
    local newer = paths:gsub("(LUA_C?PATH)", "%1_" .. version)
    local places = { "../a b/bin/holdfast", "../links/holdfast" }
    if process.build == "./build" then places[3] = sources .. "/bin/holdfast" end
    shell(("ln -s '../a b/bin/holdfast' %s/links/holdfast"):format(directory))
    for _, place in ipairs(places) do
      for _, environment in ipairs { "", paths, newer } do
        assert.equal("holdfast " .. holdfast._VERSION .. "\n", shell(("cd %s; %s%s'%s' '%s' --version"):format(
          evil, unset, environment, sys.interpreter(), place)))
      end
    end
  end)
end)

-- ---- documents ----
