-- The Redis-side programs by name, to the byte as the core sends them: the texts of embedded.h.

local HEADER = "csrc/programs/embedded.h"
local ESCAPES = { ["\\n"] = "\n", ["\\\\"] = "\\", ['\\"'] = '"', ["\\?"] = "?" }

local function unquoted(literals)
  local parts = {}
  for line in literals:gmatch('%s*"([^\n]*)"') do
    parts[#parts + 1] = line:gsub("\\[n\\\"?]", ESCAPES)
  end
  return table.concat(parts)
end

local handle = assert(io.open(HEADER, "rb"))
local header = handle:read("*a")
handle:close()

local programs = {}
for name, literals, size in header:gmatch('{"([%l_]+)", "%x+",\n(.-),\n%s+(%d+), [^\n]-},\n') do
  programs[name] = unquoted(literals)
  assert(#programs[name] == tonumber(size), "embedded.h is not as expected")
end
return programs
