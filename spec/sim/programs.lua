-- The Redis-side programs by name, byte for byte as the core sends them: the texts of embedded.h.

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

local segments = { HF_NO_SEGMENT = "" }
for name, literals in header:gmatch('%[([%u%d_]+)%] = (".-"),\n') do
  segments[name] = unquoted(literals)
end

local programs = {}
for name, list, size in header:gmatch('{"([%l_]+)",%s+"%x+",%s+%(const unsigned char%[%]%){(.-)},%s+(%d+),') do
  programs[name] = list:gsub("([%w_]+),?%s*", segments)
  assert(#programs[name] == tonumber(size), "embedded.h is not as expected")
end
return programs
