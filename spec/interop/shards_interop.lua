-- The core's ring and Jedis' ShardedJedis agree on which of several servers a key lives.

local java = require "spec.support.java"
local process = require "spec.support.process"

local KEYS = 10000
local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local SHARDS = {
  { ":1" },
  { ":1", ":1" },
  { ":1", ":1", ":1" },
  { ":1", ":2", ":5" },
  { "a:1", "b:1", "c:1" },
  { "a:3", ":1", "Zürich:2" },
  { ":1", ":1", ":1", ":1", ":1", ":1", ":1", ":1", ":1", ":1", ":1", ":100" },
}

-- Names as programs make them, and any bytes in lengths 0 to 99; the same in each run.
local function keys(path)
  local file = assert(io.open(path, "w"))
  local state = 2026
  local function byte()
    state = (state * 16807) % 2147483647
    return math.floor(state / 8388608) % 256
  end
  for i = 1, KEYS do
    local text = {}
    if i % 2 == 0 then
      for char in ("lock:{order}:%d"):format(i):gmatch(".") do
        text[#text + 1] = ("%02x"):format(char:byte())
      end
    else
      for _ = 1, i % 100 do text[#text + 1] = ("%02x"):format(byte()) end
    end
    file:write(table.concat(text), "\n")
  end
  file:close()
end

local function run(child)
  assert.same({ "exit", 0 }, { child:wait(60) }, child:output())
  return child:output()
end

local function places(text)
  local list = {}
  for place in text:gmatch("%d+\n") do list[#list + 1] = place end
  return list
end

describe("holdfast's shards and Jedis", function()
  local path

  setup(function()
    path = process.directory() .. "/keys"
    keys(path)
  end)

  for _, shards in ipairs(SHARDS) do
    local label = table.concat(shards, " ")
    it("place each key on the same server " .. label, function()
      local ours = places(run(process.start { "build/interop/shards", path, unpack(shards) }))
      local theirs = places(run(java.start("Shards", { path, unpack(shards) },
        { LC_ALL = "C.UTF-8" })))
      local agreed = 0
      for i, place in ipairs(theirs) do
        if ours[i] == place then agreed = agreed + 1 end
      end
      print(("shards %s: %d of %d keys agree"):format(label, agreed, #theirs))
      assert.equal(KEYS, agreed)
      assert.equal(KEYS, #ours)
    end)
  end
end)
