-- Run by busted before the specs. Checks that holdfast was built for this interpreter, ends all
-- processes of the specs after them, and fails tests that leave anything behind. Under Lua 5.4 the
-- collector runs whenever the main coroutine begins or finishes an operation, so that a handle that
-- no test keeps is collected; with HOLDFAST_GC=stress it runs at every allocation.

local flavour = rawget(_G, "jit") and "luajit" or "lua" .. _VERSION:match("%d%.%d")

if not pcall(require, "spec.support.sys") then
  error(("nothing is built for %s: run make, then an interpreter it was built for with the path of busted"):format(flavour), 0)
end

if os.getenv("HOLDFAST_GC") == "stress" then
  if flavour == "lua5.4" then
    collectgarbage("incremental", 0, 1000, 1)
  else
    collectgarbage("setstepmul", 200)
  end
  collectgarbage("setpause", 0)
elseif flavour == "lua5.4" then
  local core, is_operation = require "holdfast.core", {}
  for _, group in ipairs { core.lock, core.operation } do
    for _, call in pairs(group) do is_operation[call] = true end
  end
  debug.sethook(function()
    if is_operation[debug.getinfo(2, "f").func] then collectgarbage() end
  end, "c")
end

local process = require "spec.support.process"
local busted = require "busted"
busted.subscribe({ "suite", "end" }, function() process.stop_all() return nil, true end)

local leaks = require "spec.support.leaks"
busted.subscribe({ "test", "start" }, function(test) leaks.test = test.name return nil, true end)
busted.before_each(leaks.begin_test)
busted.after_each(leaks.end_test)
