-- How bench/run reports missed bars and broken benches.

-- → its output, its exit code
local function run(options, figure)
  local pipe = io.popen(("FIGURE=%s bench/run %s ../spec/fixtures/bench/row 2>&1; echo $?"):format(
    figure, options))
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

  it("fails if a benchmark raises an error", function()
    for _, options in ipairs { "", "--strict" } do
      local text, code = run(options, "none")
      assert.matches("stack traceback", text)
      assert.equal(1, code)
    end
  end)
end)
