local command = require "spec.support.command"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local PATIENCE = 200 -- seconds for 16 processes that pass a lock on 16,000 times on a busy machine
local SUBCOMMANDS = { "run", "lead", "hold", "wait", "latch", "ls", "show", "top", "deadlocks", "doctor", "break",
  "ping", "bench", "acl" }
local PROGRAMS = { "backup", "deploy.sh", "move", "scheduler", "import", "mail", "restore", "late", "alert", "start" }
local DAEMONS = { scheduler = true, mail = true }

-- Runs each example of each --help. Only `make check` does this: it is slow, and finds few faults.

local HELD = 'holdfast run backup -- sleep 60 & until [ "$(redis EXISTS backup)" = 1 ]; do sleep 0.01; done\n'

-- These tables are indexed by the first words of an example.
local BEFORE = { -- what runs before it
  ["latch down"] = "holdfast latch set build:7 1\n",
  ["latch wait"] = "holdfast latch set build:7 1; (holdfast latch delete build:7) &\n",
  ["break"] = "redis SET lock:7 x PX 60000 >/dev/null\n" .. HELD,
  ["show"] = HELD,
}
local EXITS = { -- exit codes other than 0
  ["show -- -odd-key"] = 1, -- it is free
  ["doctor redis://a"] = 69, -- the host does not exist
  ["break backup"] = 64, -- there is no terminal to ask
  ["hold"] = 0, ["lead --lease"] = 143, ["lead scheduler"] = 143,
}
local ENDLESS = { ["hold"] = true, ["lead --lease"] = true, ["lead scheduler"] = true } -- the test ends these

local function of(list, line)
  for words, value in pairs(list) do
    if line:find("^holdfast " .. words:gsub("%-", "%%-") .. "%f[ ]") then return value end
  end
end

describe("holdfast --help of", function()
  local server, directory

  setup(function()
    server = redis.start { persist = true }
    directory = process.directory()
    local script = ""
    for _, name in ipairs(PROGRAMS) do
      local daemon = DAEMONS[name] and "exec sleep 60" or ""
      script = script .. ("printf '#!/bin/sh\\necho %s \"$@\"\\n%s\\n' >%s; chmod +x %s\n")
        :format(name, daemon, name, name)
    end
    assert(command.other({ "sh", "-ec", "cd " .. directory .. "\n" .. script }):wait(PATIENCE) == "exit")
  end)
  teardown(function()
    process.remove(directory)
    server:stop()
  end)
  before_each(function() server:cli("FLUSHALL") end)

  local function help(subcommand)
    local code, text = command.run(server, { subcommand, "--help" })
    assert.equal(0, code)
    return text
  end

  local function examples_of(subcommand)
    local list = {}
    for line in help(subcommand):match("\nExamples:\n(.*)$"):gmatch("  ([^\n]+)\n") do list[#list + 1] = line end
    return list
  end

  -- Starts the line as if a user typed it in a directory with the programs.
  local function start(line, before)
    local script = ("%s\nroot=$PWD; program=%s; [ \"${program#/}\" != \"$program\" ] || program=$root/$program\n"
      .. "holdfast() { '%s' \"$program\" \"$@\"; }\n"
      .. "redis() { redis-cli -s '%s' \"$@\"; }\ncd %s\ntrap : TERM\n%s%s\nexit $?\n")
      :format(command.shell_prelude(server), command.program, sys.interpreter(), server.path,
        directory, before or "", line)
    return command.other { "setsid", "bash", "-c", script }
  end

  for _, subcommand in ipairs(SUBCOMMANDS) do
    it(subcommand .. " has examples that work", function()
      for _, line in ipairs(examples_of(subcommand)) do
        server:cli("FLUSHALL")
        local child = start(line, of(BEFORE, line))
        if of(ENDLESS, line) then
          assert(child:wait_output("[^\n]\n", PATIENCE), line)
          process.signal(-child.pid, "TERM")
        end
        local expected = of(EXITS, line) or 0
        assert.same({ "exit", expected }, { child:wait(PATIENCE) }, line .. "\n" .. child:output())
        process.signal(-child.pid, "TERM")
        assert.is_nil(child:output():find("unknown option", 1, true), child:output())
      end
    end)
  end
end)
