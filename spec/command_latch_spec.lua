-- holdfast latch, as a process.

local command = require "spec.support.command"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local CHANNEL = "redisson_countdownlatch__channel__{job}"

local function run(...) return command.run(world.server, { "latch", ... }) end

local function listen(count)
  return process.wait_until(function()
    return world.cli("PUBSUB", "NUMSUB", CHANNEL)[2] == count
  end, 20)
end

local function waits(...)
  assert(listen(0))
  local child = command.start(world.server, { "latch", "wait", ... })
  world.children[#world.children + 1] = child
  assert(listen(1), child:output())
  return child
end

describe("holdfast latch", function()
  before_each(world.open)
  after_each(function()
    world.cli("DEL", "job")
    world.close()
  end)

  it("sets a count, counts it down and prints the remaining count", function()
    assert.same({ 0, "" }, { run("set", "job", "3") })
    assert.equal("3", world.cli("GET", "job"))
    assert.same({ 1, 'holdfast latch: "job" is already counting\n' }, { run("set", "job", "9") })
    assert.same({ 0, "3\n" }, { run("count", "job") })
    assert.same({ 0, "2\n" }, { run("down", "job") })
    assert.same({ 0, "" }, { run("-q", "down", "job", "1") })
    assert.same({ 0, "0\n" }, { run("down", "job", "5") })
    assert.same({ 1, 'holdfast latch: "job" is open\n' }, { run("down", "job") })
    assert.same({ 7, "" }, { run("down", "-q", "-E7", "job") })
    assert.same({ 0, "0\n" }, { run("count", "job") })
    assert.equal(0, (run("wait", "job")))
  end)

  it("wait returns when other processes have counted down to 0", function()
    assert.equal(0, (run("set", "job", "2")))
    local child = waits "job"
    assert.same({ 0, "1\n" }, { run("down", "job") })
    assert.is_nil(child:status())
    assert.same({ 0, "0\n" }, { run("down", "job") })
    assert.same({ "exit", 0 }, { child:wait(20) })
  end)

  it("wait returns when the latch is deleted", function()
    assert.equal(0, (run("set", "job", "2")))
    local child = waits "job"
    assert.same({ 0, "" }, { run("delete", "job") })
    assert.same({ "exit", 0 }, { child:wait(20) })
    assert.same({ 0, "" }, { run("delete", "job") })
  end)

  it("wait gives up at once with -n or after -w, with the code of -E", function()
    assert.equal(0, (run("set", "job", "2")))
    for _, words in ipairs { { "-n" }, { "-w", "1" }, { "--wait=1000ms" } } do
      local code, text = run("wait", "job", (table.unpack or unpack)(words))
      assert.equal(1, code)
      assert.matches('^holdfast latch: cannot wait for "job" on .*: its count is still 2', text)
    end
    assert.same({ 0, "" }, { run("wait", "job", "-n", "-E", "0") })
    assert.same({ 3, "" }, { run("wait", "job", "-nqE", "3") })
  end)

  it("wait is ended by TERM or INT, without output", function()
    assert.equal(0, (run("set", "job", "1")))
    for name, number in pairs { TERM = 15, INT = 2 } do
      local child = waits "job"
      child:kill(name)
      assert.same({ "signal", number }, { child:wait(20) })
      assert.equal("", child:output())
    end
  end)

  it("exits with 64 for a wrong argument, and names it", function()
    local function wrong(text, ...)
      local code, said = run(...)
      assert.equal(64, code)
      assert.matches(text, said)
    end
    wrong("too few arguments\nusage: holdfast latch [^\n]*\n       holdfast latch ", "set")
    wrong('"up" is not one of set, down, wait, count, delete', "up", "job")
    wrong("`latch set` needs a COUNT after the KEY", "set", "job")
    wrong('COUNT must be a whole number from 1 to 1e9, not "0"', "set", "job", "0")
    wrong('COUNT must be a whole number from 1 to 1e9, not "x"', "down", "job", "x")
    wrong('unexpected argument "5" for latch wait', "wait", "job", "5")
    wrong('unexpected argument "x\\x0ay"\nusage: [^\n]*\n       holdfast', "set", "job", "5", "x\ny")
    wrong("KEY is empty", "wait", "")
    wrong('KEY must be one that does not begin with "holdfast_queue:"', "set", "holdfast_queue:{a}",
      "1")
    wrong("%-n and %-w cannot be combined", "wait", "job", "-n", "-w1")
    wrong("%-n and %-w work only with `latch wait`", "down", "job", "-n")
    for _, words in ipairs { { "down", "job" }, { "set", "job", "5" }, { "count", "job" }, { "delete", "job" } } do
      words[#words + 1] = "-w1"
      wrong("%-n and %-w work only with `latch wait`", (table.unpack or unpack)(words))
    end
    wrong("%-q and %-v cannot be combined", "wait", "job", "-qv")
    wrong("unknown option", "--servers", "redis://a,redis://b,redis://c", "count", "job")
  end)

  it("exits with 73 for a key of another type and 69 for an unreachable server", function()
    world.cli("HSET", "job", "a", "b")
    for _, words in ipairs { { "set", "job", "1" }, { "down", "job" }, { "wait", "job" },
        { "count", "job" }, { "delete", "job" } } do
      assert.equal(73, (run((table.unpack or unpack)(words))))
    end
    assert.equal(69, (run("--url", "unix:///nowhere", "wait", "job")))
  end)
end)
