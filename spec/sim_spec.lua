-- The simulator finds nothing, and finds the same under both Luas.

local flavour = rawget(_G, "jit") and "luajit" or "lua5.4"
local other = flavour == "luajit" and "lua5.4" or "luajit"
local plain = not os.getenv("HOLDFAST_BUILD") and not os.getenv("LD_PRELOAD")
local SEEDS = tonumber(os.getenv("HOLDFAST_SIM_SEEDS") or os.getenv("HOLDFAST_GC") and 50 or not plain and 300
  or flavour == "luajit" and 2500 or 1000)
local COMPARED = 200

-- → what it printed, its last line
local function simulate(interpreter, arguments)
  local pipe = assert(io.popen(("timeout 300 %s spec/sim/run.lua %s 2>&1"):format(interpreter, arguments)))
  local text = pipe:read("*a")
  pipe:close()
  return text, text:match("([^\n]*)\n$") or ""
end

local function hash_of(line)
  return line:match("trace hash (%x+)")
end

describe("the simulator", function()
  it("breaks no rule", function()
    local text, last = simulate(flavour, "--from 1000001 --seeds " .. SEEDS)
    assert.matches(SEEDS .. " schedules, 0 failed", last, nil, nil, text)
  end)

  it("breaks no rule any more with the seeds that once did", function()
    local text, last = simulate(flavour, "--kept")
    assert.matches("schedules, 0 failed", last, nil, nil, text)
  end)

  if plain then
    it("gives the same traces under both Luas", function()
      local _, here = simulate(flavour, "--seeds " .. COMPARED)
      local _, there = simulate(other, "--seeds " .. COMPARED)
      assert.is_string(hash_of(here))
      assert.equal(hash_of(here), hash_of(there))
    end)
  end
end)
