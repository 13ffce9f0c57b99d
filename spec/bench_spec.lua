-- How bench/run reports missed bars, growth and broken benches.

local counted = require "bench.counted"
local redis = require "spec.support.redis"

-- → its output, its exit code
local function run(options, figure, bench)
  local pipe = io.popen(("FIGURE=%s bench/run %s ../spec/fixtures/bench/%s 2>&1; echo $?"):format(
    figure, options, bench or "row"))
  local text = pipe:read("*a")
  pipe:close()
  local output, code = text:match("^(.*\n)(%d+)\n$")
  return output, tonumber(code)
end

describe("bench/run", function()
  it("reports a figure that misses its bar, and still exits with 0", function()
    local text, code = run("", 11)
    assert.matches("a figure +11 +<= 10 +miss\n$", text)
    assert.equal(0, code)
  end)

  it("with --strict fails if a figure misses its bar, and names the figure", function()
    local text, code = run("--strict", 11)
    assert.matches("\nmissed:\na figure +11 +<= 10 +miss\n$", text)
    assert.equal(1, code)
    text, code = run("--strict", 10)
    assert.matches("a figure +10 +<= 10 +pass\n$", text)
    assert.equal(0, code)
  end)

  it("repeats at the end each figure that is more than 2 % above the last release", function()
    local text, code = run("--strict", 103, "growth")
    assert.matches("\na figure +103 +1%.030 grown\nmore than 2 %% above the last release:\na figure +103 +1%.030 grown\n$", text)
    assert.equal(0, code)
    for _, figure in ipairs { 102, 100, 50 } do
      assert.is_nil(run("", figure, "growth"):find("grown", 1, true))
      assert.is_nil(run("", figure, "growth"):find("above", 1, true))
    end
  end)

  it("fails if a benchmark raises an error", function()
    for _, options in ipairs { "", "--strict" } do
      local text, code = run(options, "none")
      assert.matches("stack traceback", text)
      assert.equal(1, code)
    end
  end)
end)

describe("the figures that are counted", function()
  it("have plausible values without any timing", function()
    local server = redis.start {}
    local hold, aof = counted.measure("hold", server, "."), counted.measure("aof", server, ".")
    server:stop()
    assert.is_true(hold > 500 and hold < 5000, hold)
    assert.is_true(aof > 200 and aof < 2000, aof)
  end)

  it("include valgrind's counts where it is installed", function()
    if not counted.may_measure "cycle" then return end
    local server = redis.start {}
    local start, cycle = counted.measure("start", server, "."), counted.measure("cycle", server, ".")
    server:stop()
    assert.is_true(start > 1e6 and start < 1e9, start)
    assert.is_true(cycle > 1000 and cycle < 1e6, cycle)
  end)
end)
