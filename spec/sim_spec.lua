-- The parts of the simulator, and that its results are the same in both Luas. The suites `sim`,
-- `sim-system` and `sim-kept` of make test use it to look for broken rules.

local process = require "spec.support.process"

local flavour = rawget(_G, "jit") and "luajit" or "lua5.4"
local other = flavour == "luajit" and "lua5.4" or "luajit"
local plain = not os.getenv("HOLDFAST_BUILD") and not os.getenv("LD_PRELOAD")
local COMPARED, COMPARED_SYSTEMS = 30, 15
local GUIDED, COMPARED_GUIDED = 30, 8

-- → its output, the last line
local function simulate(interpreter, arguments, build)
  local pipe = assert(io.popen(("%s timeout 300 %s spec/sim/run.lua %s 2>&1"):format(
    build and "HOLDFAST_BUILD=" .. build or "", interpreter, arguments)))
  local text = pipe:read("*a")
  pipe:close()
  return text, text:match("([^\n]*)\n$") or ""
end

-- A build directory without the core with mutants, which another suite may be building now.
local function without_mutants()
  local directory = process.directory()
  for _, name in ipairs { flavour, other } do
    assert(process.succeeds(('ln -s "$PWD/build/%s" %s/%s'):format(name, directory, name)))
  end
  return directory
end

local function hash_of(line) return line:match("trace hash (%x+)") end

local function without_rate(text) return (text:gsub("%d+ a second", "")) end

describe("the simulator", function()
  it("inserts mutants behind switches, and does not change the rest of the file", function()
    local patches = require "spec.sim.patches"
    local source = "void go(void);\nvoid f(int a) {\n  if (a &&\n    b) {\n    go(a);\n    stop();\n  }\n"
      .. "  return b;\n}\n\nvoid g(int a) {\n  go(a);\n}\n"
    assert.equal("void go(void);\nvoid f(int a) {\n  if ((HF_MUTANT(ANY) ? (true) : HF_MUTANT(NONE) ? (false) : "
      .. "(a &&\n    b))) {\n    { if (HF_MUTANT(STAYS)) {  } else { go(a); } }\n    stop();\n  }\n"
      .. "  return (HF_MUTANT(OTHER) ? (a) : (b));\n}\n\nvoid g(int a) {\n  go(a);\n}\n", patches.apply(source, {
        { "ANY", "x.c", "f", "if («a && b»)", "true" }, { "STAYS", "x.c", "f", "go(a);", "" },
        { "NONE", "x.c", "f", "a && b", "false" }, { "OTHER", "x.c", "f", "return «b»;", "a" },
      }))
    assert.has_error(function()
      patches.apply(source, {
        { "Y", "x.c", "f", "a && b", "" }, { "X", "x.c", "f", "a && b) { go(a);", "" },
      })
    end, "X overlaps with Y")
  end)

  it("skips a mutant whose code is not found exactly once, and prints its function", function()
    local patches = require "spec.sim.patches"
    local source = "void f(void) {\n  a();\n}\n\nvoid g(void) {\n  b();\n  b();\n}\n"
    local rows = {
      { "STAYS", "x.c", "f", "a()", "c()" }, { "MOVED", "x.c", "g", "a()", "c()" },
      { "TWICE", "x.c", "g", "b()", "c()" }, { "GONE", "x.c", "h", "a()", "c()" },
    }
    local placed, problems = patches.placed(source, rows)
    assert.same({ rows[1] }, placed)
    local g = "void g(void) {\n  b();\n  b();\n}"
    assert.same({
      "MOVED: this is not in g of x.c: a()\n" .. g,
      "TWICE: this is more than once in g of x.c: b()\n" .. g, "GONE: x.c has no function h",
    }, problems)
  end)

  it("passes all cases of single programs", function()
    local text, last = simulate(flavour, "--cases")
    assert.matches("^[1-9]%d+ cases, 0 failed", last, nil, nil, text)
  end)

  for tag, count in pairs { [""] = 200, [" #check"] = 10000 } do
    it(("replies, writes and publishes the same without its straight-line code, in %d states of each program%s")
      :format(count, tag), function()
      assert.is_nil(require("spec.sim.long_way").check(1, count))
    end)
  end

  it("finds by a case each mutant that no schedule finds #check", function()
    local run_all = require "spec.sim.case_runner".run_all
    for _, mutant in ipairs(require "spec.sim.mutants".of_cases()) do
      assert.not_same({}, (run_all(mutant.texts, true)), mutant.name)
    end
  end)

  if flavour == "luajit" then
    it("loses nothing permanently when any one command of a program is refused", function()
      local text, last = simulate(flavour, "--cases --refused")
      assert.matches("^[1-9]%d+ cases, 0 failed", last, nil, nil, text)
    end)

    it("finds each program that cannot cope with a refused command #check", function()
      local run_all = require "spec.sim.case_runner".run_all
      for _, mutant in ipairs(require "spec.sim.mutants".of_refused_parts()) do
        assert.not_same({}, (run_all(mutant.texts, true, mutant.program)), mutant.name)
      end
    end)
  end

  if plain then
    it("produces the same traces under both Luas", function()
      local _, here = simulate(flavour, "--seeds " .. COMPARED)
      local _, there = simulate(other, "--seeds " .. COMPARED)
      assert.is_string(hash_of(here))
      assert.equal(hash_of(here), hash_of(there))
      _, here = simulate(flavour, "--system --seeds " .. COMPARED_SYSTEMS)
      _, there = simulate(other, "--system --seeds " .. COMPARED_SYSTEMS)
      assert.equal(hash_of(here), hash_of(there))
    end)

    local function covered(interpreter, seeds, build)
      return simulate(interpreter, "--guided --coverage --seeds " .. seeds, build)
    end

    it("reaches each branch of the programs with a few seeds and the cases", function()
      local text = covered(flavour, GUIDED, without_mutants())
      assert.matches("programs: %d+ of %d+ branches", text)
      assert.not_matches("reached by nothing", text)
    end)

    it("measures the same coverage under both Luas #check", function()
      local build = without_mutants()
      local here = covered(flavour, COMPARED_GUIDED, build)
      local there = covered(other, COMPARED_GUIDED, build)
      assert.matches("programs: %d+ of %d+ branches", here)
      assert.equal(without_rate(here), without_rate(there))
    end)
  end
end)
