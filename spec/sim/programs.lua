-- The Redis-side programs of csrc/programs by name, each with its fragments in place.

local DIRECTORY = "csrc/programs/"
local NAMES = { "acquire", "extend", "force", "info", "leave", "release", "renew" }

local function read(file)
  local handle = assert(io.open(DIRECTORY .. file, "rb"))
  local text = handle:read("*a")
  handle:close()
  return (text:gsub('%-%-#include "([^"\n]+)"\n', read))
end

local programs = {}
for _, name in ipairs(NAMES) do programs[name] = read(name .. ".lua") end
return programs
