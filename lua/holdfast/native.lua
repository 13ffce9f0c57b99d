-- Loads the C module from package.cpath. `require` would first search all of package.path for a Lua
-- file with the module's name, and the default path includes the current directory.

local NAME, FILE, OPEN = "holdfast.core", "holdfast/core", "luaopen_holdfast_core"

local function find_module()
  for template in package.cpath:gmatch("[^;]+") do
    local path = template:gsub("%?", FILE)
    local file = io.open(path, "rb")
    if file then
      file:close()
      return path
    end
  end
end

-- LuaRocks may have several versions side by side, so its own loader must find the right one.
local has_plain_path = debug.getinfo(1, "S").source:find("/holdfast/native%.lua$")

if has_plain_path and not package.loaded[NAME] and not package.preload[NAME] then
  local path = find_module()
  local open = path and package.loadlib(path, OPEN)
  if open then package.loaded[NAME] = open(NAME, path) end
end
