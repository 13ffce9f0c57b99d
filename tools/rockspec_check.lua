-- The rockspec names every C source and every Lua module, and nothing else.
--
--   lua5.4 tools/rockspec_check.lua           exit 1 if its lists differ from what is there
--   lua5.4 tools/rockspec_check.lua --update  writes the lists

local ROCKSPEC = "holdfast-scm-1.rockspec"

local function files(pattern)
  local list = {}
  for path in io.popen("LC_ALL=C ls " .. pattern .. " 2>/dev/null"):lines() do list[#list + 1] = path end
  return list
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

local SOURCES = {
  ["holdfast.core"] = "csrc/core/*.c csrc/posix/*.c csrc/lua/*.c",
  ["holdfast.process"] = "csrc/process/*.c",
}

local function sources(module)
  local lines = {}
  for _, path in ipairs(files(SOURCES[module])) do
    lines[#lines + 1] = ('        "%s",\n'):format(path)
  end
  return table.concat(lines)
end

local function modules()
  local lines = {}
  for _, path in ipairs(files("lua/holdfast/*.lua lua/holdfast/*/*.lua")) do
    local name = path:gsub("^lua/", ""):gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".")
    local key = name:find("^[%a_]+$") and name or ('["%s"]'):format(name)
    lines[#lines + 1] = ('    %s = "%s",\n'):format(key, path)
  end
  return table.concat(lines)
end

-- The lists stand between fixed lines of the file, so the rest of it is written by hand.
local function updated(text)
  text = text:gsub('(%["(holdfast%.%w+)"%] = {\n      sources = {\n).-(      },\n)', function(head, module, tail)
    return head .. sources(module) .. tail
  end)
  local compiled, tail = text:match("^(.*\n    },\n).-(  },\n}\n)$")
  return compiled .. modules() .. tail
end

local text = read(ROCKSPEC)
local fresh = updated(text)
if ... == "--update" then
  local file = assert(io.open(ROCKSPEC, "wb"))
  file:write(fresh)
  file:close()
elseif fresh ~= text then
  io.stderr:write(ROCKSPEC, " does not list what is there: run lua5.4 tools/rockspec_check.lua --update\n")
  os.exit(1)
end
