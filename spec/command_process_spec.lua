-- The command's calls of the system: processes, signals, files, the process that reports.

local process = require "spec.support.process"
local world = require("spec.support.world").new()

local PATIENCE = 20

before_each(world.open)
after_each(world.close)

local COMMON = [[
  local process, sys, lfs = require "holdfast.process", require "spec.support.sys", require "lfs"
  local read = require("spec.support.files").read_any
  local function count(path)
    local sum = 0
    for _ in lfs.dir(path) do sum = sum + 1 end
    return sum
  end
  local eventually = require("spec.support.process").eventually
  local function descriptors() return count "/proc/self/fd" end
  local function children()
    local list = {}
    for pid in read(("/proc/self/task/%d/children"):format(process.pid())):gmatch("%d+") do
      list[#list + 1] = tonumber(pid)
    end
    return list
  end
  local function ended(pid)
    local how, number, name
    eventually(function()
      how, number, name = process.status(pid)
      return how
    end)
    return how, number, name
  end
]]

-- Runs the code, which raises an error if something is wrong. → its output
local function program(code, env)
  local child = process.lua { code = COMMON .. code, args = { world.server:url() }, env = env }
  assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
  return child:output()
end

describe("a spawned program", function()
  it("inherits the environment, except for the variables that are overridden", function()
    local text = program([[
      local pid = assert(process.spawn({ "env" }, { "HF_AB=new", "HF_EMPTY=", "HF_MORE=a=b" }, false))
      assert(ended(pid) == "exit")
    ]], { HF_AB = "old", HF_A = "1", HF_ABC = "2", HF_EMPTY = "full" })
    local seen = {}
    for line in text:gmatch("[^\n]+") do
      if line:find "^HF_" then seen[#seen + 1] = line end
    end
    table.sort(seen)
    assert.same({ "HF_A=1", "HF_AB=new", "HF_ABC=2", "HF_EMPTY=", "HF_MORE=a=b" }, seen)
  end)

  it("leaves no descriptor or zombie, whether or not it starts", function()
    program [[
      local pid = assert(process.spawn({ "true" }, {}, false))
      assert(ended(pid) == "exit")
      local before = descriptors()
      for _ = 1, 5 do
        local none, message, number = process.spawn({ "/no/such/command" }, {}, false)
        assert(none == nil and number == 2 and message:find "No such file")
        pid = assert(process.spawn({ "true" }, {}, false))
        local how, code = ended(pid)
        assert(how == "exit" and code == 0)
        assert(process.status(pid) == "gone")
      end
      none, message, number = process.spawn({ "/tmp" }, {}, false)
      assert(none == nil and number == 13, message)
      assert(descriptors() == before, descriptors() - before .. " descriptors are left")
      assert(#children() == 0)
    ]]
  end)

  it("starts with the original signal dispositions and mask, in a process group of its own", function()
    program [[
      local function signals(text) return text:match "SigBlk:%s*(%x+)\nSigIgn:%s*(%x+)" end
      local blocked, ignored = signals(read "/proc/self/status")
      assert(process.catch("TERM", "HUP", "CHLD") and process.ignore("TTOU", "XFSZ"))
      local pid = assert(process.spawn({ "sleep", "60" }, {}, false))
      local status, group
      eventually(function() return read(("/proc/%d/comm"):format(pid)) == "sleep\n" end)
      local blocked_there, ignored_there = signals(read(("/proc/%d/status"):format(pid)))
      assert(blocked_there == blocked and ignored_there == ignored, blocked_there .. " " .. ignored_there)
      assert(read(("/proc/%d/stat"):format(pid)):match "%) %a %d+ (%d+)" == ("%d"):format(pid))
      assert(process.exists(pid) and process.exists(-pid))
      assert(process.kill(-pid, "STOP"))
      local how, number, name = ended(pid)
      assert(how == "stopped" and name == "STOP", how)
      assert(process.kill(pid, "CONT"))
      assert(ended(pid) == "continued")
      assert(process.kill(pid, "TERM"))
      how, number, name = ended(pid)
      assert(how == "signal" and number == 15 and name == "TERM", how)
      assert(not process.exists(pid) and not process.exists(-pid))
      local done, message, errno = process.kill(pid, "TERM")
      assert(done == nil and errno == 3, message)
    ]]
  end)

  it("cannot be signalled as pid 0 or -1, which would mean more than one group", function()
    program [[
      for _, pid in ipairs { 0, -1 } do
        local done, message = pcall(process.kill, pid, "WINCH")
        assert(not done and message:find "more than one group", message)
      end
    ]]
  end)
end)

describe("a caught signal", function()
  it("ends one interruptible wait, even if it was caught just before the wait, unless it is SIGCHLD", function()
    world.hold_as("somebody:1", "k")
    program [[
      local lock = require("holdfast").new(arg[1]):lock("k", { interruptible = true })
      assert(process.catch("TERM", "CHLD"))
      assert(lock:acquire(0) == nil)
      assert(process.kill(process.pid(), "TERM"))
      local from = sys.now()
      local _, message, code = lock:acquire(15)
      assert(code == "interrupted", message)
      assert(sys.now() - from < 10)
      assert(process.wait(0) == "TERM" and process.wait(0) == nil)
      assert(process.kill(process.pid(), "CHLD"))
      _, message, code = lock:acquire(1.1)
      assert(code == "busy", message)
      assert(process.wait(0) == "CHLD")
    ]]
    world.cli("DEL", "k")
  end)

  it("is returned in order of arrival, before typed input, and never in the program's child", function()
    program [[
      assert(process.catch("USR1", "USR2", "WINCH"))
      local pid = assert(process.spawn({ "sleep", "60" }, {}, false))
      assert(process.kill(pid, "USR1"))
      local how, number = ended(pid)
      assert(how == "signal" and number == 10)
      assert(process.wait(0) == nil)
      for _, name in ipairs { "USR2", "WINCH", "USR1" } do assert(process.kill(process.pid(), name)) end
      assert(process.wait(5, true) == "USR2" and process.wait(5) == "WINCH" and process.wait(5) == "USR1")
      assert(process.wait(5, true) == "input") -- the end of the input
      process.uncatch "WINCH"
      assert(process.kill(process.pid(), "WINCH"))
      assert(process.wait(0.01) == nil)
      assert(process.catch "WINCH")
      assert(process.kill(process.pid(), "WINCH"))
      assert(process.wait(0.01) == "WINCH")
    ]]
  end)
end)

describe("the process that prints reports", function()
  it("ends when end_report is called, when its parent ends, and before a new one begins", function()
    local text = program [[
      assert(process.begin_report(function() while true do process.wait(60) end end))
      local first = children()
      assert(#first == 1)
      assert(process.begin_report(function() while true do process.wait(60) end end))
      local second = children()
      assert(#second == 1 and second[1] ~= first[1])
      process.end_report()
      assert(#children() == 0)
      process.end_report()
      assert(process.begin_report(function() error "it is broken" end))
      eventually(function() return read(("/proc/%d/stat"):format(children()[1])):find "%) Z" end)
      process.end_report()
      assert(#children() == 0)
      assert(process.begin_report(function()
        while process.parent_is_running() do process.wait(60) end
      end))
      local last = children()[1]
      eventually(function() return read(("/proc/%d/stat"):format(last)):find "%) S" end)
      print("reporter", last)
    ]]
    local pid = tonumber(text:match "^reporter\t(%d+)\n$")
    assert.is_truthy(process.wait_until(function() return not process.signal(pid, 0) end, PATIENCE))
  end)

  it("receives no signal that is meant for its parent", function()
    program [[
      assert(process.catch "USR1")
      local before = descriptors()
      assert(process.begin_report(function() while true do process.wait(60) end end))
      assert(descriptors() == before)
      for _ = 1, 20 do
        assert(process.kill(process.pid(), "USR1"))
        assert(process.wait(5) == "USR1")
        sys.sleep(0.005)
      end
      local reporter = children()[1]
      assert(process.kill(reporter, "USR1")) -- the reporter does not catch it
      eventually(function() return read(("/proc/%d/stat"):format(reporter)):find "%) Z" end)
      process.end_report()
    ]]
  end)
end)

describe("process.read_file", function()
  it("returns content and mode up to a size limit, and closes the file", function()
    program [[
      local path = os.tmpname()
      local file = assert(io.open(path, "wb"))
      file:write(("x"):rep(99), "\0")
      file:close()
      assert(os.execute("chmod 4640 " .. path))
      local before = descriptors()
      local text, mode, is_foreign = process.read_file(path, 100)
      assert(text == ("x"):rep(99) .. "\0" and mode == 2464 and is_foreign == false)
      local none, message, number = process.read_file(path, 99)
      assert(none == nil and message == "it is too large" and number == 22)
      none, message, number = process.read_file(path .. "/x", 99)
      assert(none == nil and number == 20, message)
      assert(select(2, process.read_file("/dev/null", 99)) == "it is not a regular file")
      assert(descriptors() == before)
      os.remove(path)
    ]]
  end)
end)
