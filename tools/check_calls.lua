-- Checks which files call which, as found in the sources: lua5.4 tools/check_calls.lua
--
-- A folder must not contain a cycle of calls with more files than its limit, and must not call or
-- include anything in a folder that is not below it. Calls through a pointer (interface, callback)
-- do not count: that is their purpose. Outside the core, no file includes any of the core's headers
-- except holdfast.h.

local tools = dofile "tools/files.lua"
local lines_of, read, fail = tools.lines_of, tools.read, tools.fail

-- The folders from the bottom up: name, maximum files in a cycle, further folders below it. Each
-- folder in CORE is below all that follow it. The headers in csrc/core itself contain the
-- interfaces between its folders.
local CORE = { "csrc/core/base", "csrc/core/lock", "csrc/core/link", "csrc/core/op", "csrc/core/quorum", "csrc/core" }
local FOLDERS = {
  { "csrc/core/base", 1 }, { "csrc/core/lock", 1 },
  { "csrc/core/link", 1 }, { "csrc/core/op", 2 },
  { "csrc/core/quorum", 2 }, { "csrc/core", 1 },
  { "csrc/posix", 1 }, { "csrc/lua", 1, "csrc/posix" },
  { "csrc/process", 1, "csrc/lua", "csrc/posix" }, -- compat.h, system.h, crash.h
}

local DOOR = "holdfast.h"

-- → the code of a file without comments, strings and preprocessor lines
local function code_of(path) return (tools.c_code_of(path):gsub("\n%s*#[^\n]*", "\n")) end

local function each_file(folder, each)
  for _, path in ipairs(lines_of("ls " .. folder .. "/*.c")) do each(path) end
end

-- { name → path } of the functions that other files can call
local function definitions()
  local defined = {}
  for _, folder in ipairs(FOLDERS) do
    each_file(folder[1], function(path)
      for head, name in code_of(path):gmatch "\n([%a_][^\n;{}()=]-)([%a_][%w_]*)%([^;{}]-%)%s*{" do
        if not head:find "^static" and not head:find "^return" then defined[name] = path end
      end
    end)
  end
  return defined
end

-- { path → { path called → { names } } }
local function calls(defined)
  local arrows = {}
  for _, folder in ipairs(FOLDERS) do
    each_file(folder[1], function(path)
      local to = {}
      for name in code_of(path):gmatch "([%a_][%w_]*)%s*%(" do
        local target = defined[name]
        if target and target ~= path then
          to[target] = to[target] or {}
          to[target][name] = true
        end
      end
      arrows[path] = to
    end)
  end
  return arrows
end

-- → { path → true } of the files that this one calls, directly or through others
local function reached_from(arrows, path)
  local reached, left = {}, { path }
  while left[1] do
    for target in pairs(arrows[table.remove(left)]) do
      if not reached[target] then left[#left + 1] = target end
      reached[target] = true
    end
  end
  return reached
end

-- → lists of files that all call each other, directly or through others
local function circles_of(arrows)
  local reached, found, seen = {}, {}, {}
  for path in pairs(arrows) do reached[path] = reached_from(arrows, path) end
  for path in pairs(arrows) do
    local circle = {}
    for target in pairs(reached[path]) do
      if reached[target][path] and not seen[target] then circle[#circle + 1] = target end
    end
    for _, member in ipairs(circle) do seen[member] = true end
    table.sort(circle)
    if circle[1] then found[#found + 1] = circle end
  end
  return found
end

local function folder_of(path) return path:match "^(.*)/[^/]*$" end

local function names_in(set) return table.concat(tools.sorted(set), ", ") end

local function check_circle(arrows, circle, limit)
  if #circle <= limit then return end
  fail("a circle of %d files, at most %d may be one:", #circle, limit)
  local inside = {}
  for _, path in ipairs(circle) do inside[path] = true end
  for _, path in ipairs(circle) do
    for target, names in pairs(arrows[path]) do
      if inside[target] then print(("  %s -> %s: %s"):format(path, target, names_in(names))) end
    end
  end
end

local function may_use(folder)
  local allowed = { [folder[1]] = true }
  for _, below in ipairs(CORE) do
    if below == folder[1] then return allowed end
    allowed[below] = true
  end
  for i = 3, #folder do allowed[folder[i]] = true end
  return allowed
end

local function check_include(path, name, allowed, is_in_core)
  if name:find("..", 1, true) then fail("%s includes %s by way of its parent", path, name) end
  for _, other in ipairs(FOLDERS) do
    local in_core = name:find "/" and other[1]:find "^csrc/core/"
    local target = in_core and "csrc/core/" .. name or other[1] .. "/" .. name
    local found = folder_of(target) == other[1] and tools.exists(target) and not allowed[other[1]]
    if found and other[1] ~= "csrc/core" then fail("%s includes %s", path, name) end
  end
  if not is_in_core and name ~= DOOR and tools.exists("csrc/core/" .. name) then
    fail("%s includes %s, which is the core's own: use %s", path, name, DOOR)
  end
end

local arrows = calls(definitions())
local circles = circles_of(arrows)
for _, folder in ipairs(FOLDERS) do
  local paths, allowed = lines_of("ls " .. folder[1] .. "/*.c"), may_use(folder)
  for _, circle in ipairs(circles) do
    if folder_of(circle[1]) == folder[1] then check_circle(arrows, circle, folder[2]) end
  end
  for _, path in ipairs(paths) do
    for target, names in pairs(arrows[path]) do
      if not allowed[folder_of(target)] then
        fail("%s calls up to %s: %s", path, target, names_in(names))
      end
    end
  end
  for _, path in ipairs(lines_of("ls " .. folder[1] .. "/*.[ch]")) do
    for name in read(path):gmatch '#include "([^"]+)"' do
      check_include(path, name, allowed, folder[1]:find "^csrc/core")
    end
  end
end
tools.finish()
