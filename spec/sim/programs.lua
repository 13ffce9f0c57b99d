-- The Redis-side programs by name, each with its fragments in place, as the server gets them but for comments and
-- indentation. A program that includes "layout.lua" is there once for each layout of a lock, as in tools/embed.lua.

local DIRECTORY = "csrc/programs/"
local NAMES = { "acquire", "acquire_all", "begin", "complete", "extend", "force", "info", "leave", "release",
  "release_all", "renew" }

local function expanded(file, layout)
  local handle = assert(io.open(DIRECTORY .. (file == "layout.lua" and layout or file), "rb"))
  local text = handle:read("*a")
  handle:close()
  return (text:gsub('%-%-#include "([^"\n]+)"\n', function(part) return expanded(part, layout) end))
end

local programs = {}
for _, name in ipairs(NAMES) do
  local text, mutex = expanded(name .. ".lua", "hash.lua"), expanded(name .. ".lua", "string.lua")
  programs[name] = text
  if mutex ~= text then programs["mutex_" .. name] = mutex end
end
return programs
