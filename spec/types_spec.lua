-- The annotations for editors name what the core names: lua/holdfast/types.lua.

local holdfast = require "holdfast"
local redis = require "spec.support.redis"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local TYPES = read "lua/holdfast/types.lua"

-- The texts of an alias, sorted.
local function alias(name)
  local list, text = {}, TYPES:match("%-%-%-@alias " .. name:gsub("%.", "%%.") .. "\n(.-)\n\n")
  for value in assert(text, name):gmatch('%-%-%-| "([a-z_]+)"') do list[#list + 1] = value end
  table.sort(list)
  return list
end

-- The names in a list of the core's sources, sorted.
local function listed(path, from, pattern, but)
  local text, list = read(path), {}
  local body = assert(text:match(from), path)
  for value in body:gmatch(pattern) do
    if not but[value] then list[#list + 1] = value end
  end
  table.sort(list)
  return list
end

describe("the annotations", function()
  it("name each code of a failure", function()
    local named = listed("csrc/core/base/failure.h", "HF_CODE_LIST%(X%)(.-)#define", "X%([A-Z_]+, ([a-z_]+)%)",
      { ok = true, no_memory = true })
    assert.same(named, alias "holdfast.code")
  end)

  it("name each code that client:stats() counts", function()
    local server = redis.start()
    local client = holdfast.new(server:url())
    local counted = {}
    for name in pairs(client:stats().failures) do
      if name ~= "no_memory" then counted[#counted + 1] = name end
    end
    table.sort(counted)
    assert.same(counted, alias "holdfast.code")
    client:close()
    server:stop()
  end)

  it("name each reason of a loss", function()
    local named = listed("csrc/core/holdfast.h", "HF_LOST_LIST%(X%)(.-)\n\n", "X%([A-Z_]+, ([a-z_]+)%)", {})
    assert.same(named, alias "holdfast.lost_reason")
  end)

  it("name each event", function()
    local named = listed("csrc/core/op/observe.c", "hf_event_name.-{(.-)};", '"([a-z_]+)"', {})
    assert.same(named, alias "holdfast.event_name")
  end)
end)
