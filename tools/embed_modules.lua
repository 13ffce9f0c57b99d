-- Writes Lua modules as a C file, to build the command as a single executable:
--
--   lua5.4 tools/embed_modules.lua FILE...   paths below `lua`, to standard output

local read = dofile("tools/files.lua").read

local function name_of(path)
  return (path:gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", "."))
end

local function write_text(number, text)
  io.write(("static const unsigned char text_%d[] = {"):format(number))
  for i = 1, #text do io.write(i % 24 == 1 and "\n" or "", text:byte(i), ",") end
  io.write("0};\n")
end

local files = { ... }
table.sort(files)
io.write('#include "static/modules.h"\n\n')
local rows = {}
for i, path in ipairs(files) do
  local text = read("lua/" .. path)
  write_text(i, text)
  rows[i] = ('    {"%s", "@%s", text_%d, %d},\n'):format(name_of(path), path, i, #text)
end
io.write("\nconst hf_lua_module hf_lua_modules[] = {\n", table.concat(rows), "    {0}};\n")
