-- Finds the function at a place of a C or Lua file, by the layout that the formatters enforce: a C
-- function begins at the margin and ends with "}" there; a Lua function ends with an "end" indented
-- like its beginning.

local functions = {}

local function lines_of(text)
  return (text:gsub("([^\n])$", "%1\n")):gmatch("([^\n]*)\n")
end

-- → the name of the C function that the line begins, if it is not a declaration | nil
local function c_head(line)
  return not line:find(";%s*$") and line:match("^%a[^=;(]*%f[%w_]([%w_]+)%(") or nil
end

local function lua_head(line)
  return line:match("^(%s*).-%f[%w_]function ([%w_.:]+)%(")
end

local function names_in_c(text)
  local names, name = {}, nil
  for line in lines_of(text) do
    name = name or c_head(line)
    names[#names + 1] = name or ""
    if line:find("^}") then name = nil end
  end
  return names
end

local function names_in_lua(text)
  local names, open = {}, {}
  for line in lines_of(text) do
    local indentation, name = lua_head(line)
    if name then open[#open + 1] = { name = name, last = indentation .. "end" } end
    local inner = open[#open]
    names[#names + 1] = inner and inner.name or ""
    local ends = inner and (line:sub(1, #inner.last) == inner.last
      or name and line:find("%f[%w_]end%f[^%w_][^%w_]*$"))
    if ends then open[#open] = nil end
  end
  return names
end

-- → for each line the name of the innermost function, or "". path: a Lua file ends with .lua,
-- others are C
function functions.names(path, text)
  return path:find("%.lua$") and names_in_lua(text) or names_in_c(text)
end

-- → where the function begins and ends | nil. The name "" stands for the whole text.
function functions.find(path, text, name)
  if name == "" then return 1, #text end
  local at, from, to = 1, nil, nil
  local names, number = functions.names(path, text), 0
  for line in lines_of(text) do
    number = number + 1
    if names[number] == name then from, to = from or at, at + #line - 1 end
    at = at + #line + 1
  end
  return from, to
end

return functions
