-- The second run of failed tests in make test (tools/suites.d/again.sh), and the last line of its
-- output (tools/tally).

local files = require "spec.support.files"
local process = require "spec.support.process"

local SCRIPT = [[
tally=$1 at_once=0
. tools/suites.d/run.sh
. tools/suites.d/again.sh
for program in "$tally"/*.sh; do
    name=$(basename "$program" .sh)
    may_run_again "$name" tap "spec/$name.c" sh "$program"
    suite "$name" tap sh "$program"
done
second_look
tools/tally "$tally"
]]

local directory

local function write(name, text) files.write(directory .. "/" .. name, text) end

before_each(function()
  directory = process.directory()
  write("script", SCRIPT)
end)

after_each(function() process.remove(directory) end)

-- Makes a unit program that fails so often, and then passes.
local function program(name, failures)
  write(name .. ".sh", ([[
echo run >>"$0.runs"
if [ "$(wc -l <"$0.runs")" -le %d ]; then
    echo "not ok - the first of %s"
    echo "not ok - the second of %s"
    exit 1
fi
echo "ok - the first of %s"
]]):format(failures, name, name, name))
end

-- → the output of the run, its exit code
local function run(before)
  local pipe = io.popen(("%s sh %s/script %s 2>&1; echo $?"):format(before or "", directory,
    directory))
  local text = pipe:read("*a")
  pipe:close()
  local output, code = text:match("^(.*\n)(%d+)\n$")
  return output, tonumber(code)
end

local function runs_of(name)
  local count = 0
  for _ in io.lines(directory .. "/" .. name .. ".sh.runs") do count = count + 1 end
  return count
end

describe("the test runner", function()
  it("does not rerun a file that passes", function()
    program("a", 0)
    local text, code = run()
    assert.equal(0, code)
    assert.matches("\n1 passed, 0 failed\n$", text)
    assert.not_matches("shaky", text)
    assert.equal(1, runs_of("a"))
  end)

  it("reruns a failed file once, and names it as shaky", function()
    program("a", 1)
    program("b", 0)
    local text, code = run()
    assert.equal(0, code)
    assert.matches("\nshaky: spec/a%.c: the first of a; the second of a %(a%)\n2 passed, 0 failed\n$",
      text)
    assert.equal(2, runs_of("a"))
    assert.equal(1, runs_of("b"))
    assert.matches("not ok %- the first of a", files.read(directory .. "/a.first.log"))
  end)

  it("fails if a file fails twice", function()
    program("a", 2)
    local text, code = run()
    assert.equal(1, code)
    assert.matches("\n0 passed, 2 failed\n$", text)
    assert.not_matches("shaky", text)
    assert.equal(2, runs_of("a"))
  end)

  it("does not rerun a file in which a lock had two owners at once", function()
    write("a.sh", [[
echo run >>"$0.runs"
echo "not ok - two owners at once, line 7: in a while b is in"
[ "$(wc -l <"$0.runs")" -gt 1 ]
]])
    local text, code = run()
    assert.equal(1, code)
    assert.matches("two owners at once, line 7", text)
    assert.not_matches("shaky", text)
    assert.equal(1, runs_of("a"))
  end)

  it("accepts three shaky files, but not four", function()
    for _, name in ipairs { "a", "b", "c" } do program(name, 1) end
    local text, code = run()
    assert.equal(0, code)
    assert.matches("\n3 passed, 0 failed\n$", text)
    process.succeeds("rm " .. directory .. "/*.runs " .. directory .. "/*.shaky " .. directory .. "/again")
    program("d", 1)
    text, code = run()
    assert.equal(1, code)
    assert.matches("\nfailed: 4 shaky files, 3 are the most that may be\n4 passed, 1 failed\n$", text)
  end)
end)

describe("the check of C formatting", function()
  before_each(function()
    write("script", [[
tally=$1 at_once=0
. tools/suites.d/run.sh
. tools/suites.d/sources.sh
clang_format_version() { echo "$VERSION"; }
suite() { echo "runs $*"; echo 1 0 >"$tally/$1.count"; }
format
tools/tally "$tally"
]])
  end)

  it("always runs in CI", function()
    for _, environment in ipairs { "CI=true VERSION=", "CI=true VERSION=14", "CI= VERSION=14" } do
      local text = run(environment)
      assert.matches("^runs format one tools/check_format\n", text)
      assert.not_matches("SKIPPED", text)
    end
  end)

  it("reports that it was skipped if clang-format has a different version", function()
    for _, environment in ipairs { "CI= VERSION=", "CI= VERSION=19", "CI=true VERSION=19" } do
      local text = run(environment)
      assert.matches("^runs format one tools/check_format lines\n", text)
      assert.matches("\nSKIPPED: clang%-format: the sources are formatted by clang%-format 14; here is %w+", text)
    end
  end)
end)

describe("a skipped suite", function()
  it("is named before the closing line", function()
    write("script", [[
tally=$1 at_once=0
. tools/suites.d/run.sh
. tools/suites.d/specs.sh
. tools/suites.d/sources.sh
is_root() { false; }
has() { false; }
get_lua5_5() { false; }
suite() { :; }
specs_under() { echo 1 0 >"$tally/specs.count"; }
packages
other_luas
tools/tally "$tally"
]])
    local text, code = run()
    assert.equal(0, code)
    assert.matches("\nSKIPPED: lua5.5: there is no lua5.5 with busted\n"
      .. "SKIPPED: packages: a clean root is made by root alone\n1 passed, 0 failed\n$", text)
  end)

  -- Makes a tree in which make check prints `said`.
  local function release(said)
    for _, folder in ipairs { "tools", "build", "lua/holdfast", ".ci" } do
      process.succeeds(("mkdir -p %s/%s"):format(directory, folder))
    end
    process.succeeds(("cp tools/release %s/tools/release"):format(directory))
    write("lua/holdfast/version.lua", 'return "1"\n')
    write(".ci/run", "#!/bin/sh\necho 1 passed, 0 failed\n")
    write("Makefile", ("check:\n\t@printf '%s1 passed, 0 failed\\n'\ninterop:\n"):format(said))
    write("script", ("chmod +x %s/.ci/run; sh %s/tools/release tests"):format(directory, directory))
    return run()
  end

  it("prevents a release", function()
    local text, code = release("SKIPPED: musl: no musl-gcc\\n")
    assert.equal(1, code)
    assert.matches("\nnot ok %- make check\n# SKIPPED: musl: no musl%-gcc\n# 1 passed", text)
    text, code = release("")
    assert.equal(0, code)
    assert.matches("\nok %- make check\n", text)
  end)
end)
