-- Run by busted before the specs: the interpreters are the two that holdfast is built for, what the specs started
-- ends with them, no test leaves anything behind, and HOLDFAST_GC=stress makes the collector work at every allocation.

local flavour = rawget(_G, "jit") and "luajit" or "lua" .. _VERSION:match("%d%.%d")

if not package.searchpath or not package.searchpath("spec.support.sys", package.cpath) then
  error(("nothing is built for %s: run make, then lua5.4 (or luajit) with the path of busted"):format(flavour), 0)
end

if os.getenv("HOLDFAST_GC") == "stress" then
  if flavour == "luajit" then
    collectgarbage("setpause", 0)
    collectgarbage("setstepmul", 200)
  else
    collectgarbage("incremental", 0, 1000, 1)
    collectgarbage("setpause", 0)
  end
end

local process = require "spec.support.process"
local busted = require "busted"
busted.subscribe({ "suite", "end" }, function() process.stop_all() return nil, true end)

local leaks = require "spec.support.leaks"
busted.subscribe({ "test", "start" }, function(test) leaks.test = test.name return nil, true end)
busted.before_each(leaks.begin_test)
busted.after_each(leaks.end_test)
