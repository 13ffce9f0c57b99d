-- Loads the C module where package.cpath has it. `require` would first search the whole of
-- package.path for a Lua file of its name, and the default path ends with the current directory.

local NAME, FILE, OPEN = "holdfast.core", "holdfast/core", "luaopen_holdfast_core"

local function find()
  for template in package.cpath:gmatch("[^;]+") do
    local path = template:gsub("%?", FILE)
    local file = io.open(path, "rb")
    if file then
      file:close()
      return path
    end
  end
end

-- The loader of LuaRocks, which may have several versions side by side, finds its own.
local is_plain = debug.getinfo(1, "S").source:find("/holdfast/native%.lua$")

if is_plain and not package.loaded[NAME] and not package.preload[NAME] then
  local path = find()
  local open = path and package.loadlib(path, OPEN)
  if open then package.loaded[NAME] = open(NAME, path) end
end
