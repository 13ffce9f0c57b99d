-- lazy "holdfast.x" stands for the module holdfast.x, which is loaded when one of its fields is
-- first read, so that a program reads only the files that it needs.
--
-- Loading such a module must not change any other module. A call must use the module before it
-- acquires anything, so that a failed load leaves no lock behind.

local VERSION = "holdfast.version"
local version = require(VERSION)

local lazy = {}

local names = {} -- the names of all lazy modules

-- An upgrade may have replaced the files since this program started, and modules of different
-- versions must not work together.
local function check_version()
  package.loaded[VERSION] = nil
  local installed = require(VERSION)
  if installed == version then return end
  error(("holdfast %s was replaced by %s while this program runs; restart the program"):format(version, installed), 0)
end

-- Loads all modules now.
function lazy.load_all()
  local i = 1
  while names[i] do -- loading a module may add names
    require(names[i])
    i = i + 1
  end
end

local function make_proxy(_, name)
  names[#names + 1] = name
  return setmetatable({}, {
    __index = function(self, field)
      if package.loaded[name] == nil then check_version() end
      local module = require(name)
      setmetatable(self, { __index = module })
      return module[field]
    end,
  })
end

return setmetatable(lazy, { __call = make_proxy })
