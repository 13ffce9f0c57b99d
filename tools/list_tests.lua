-- Prints all tests' names and files, as found in the sources: lua5.4 tools/list_tests.lua [FILE
-- ...]. If a name is computed at run time, prints the expression.

package.path = "./?.lua;" .. package.path
local files = require "tools.files"

local kinds = { describe = true, it = true, it_as_root = true, it_yields = true, it_runs = true,
  case = true }
local list = arg[1] and arg
  or files.sources "-path 'spec/*' '(' -name '*.lua' -o -path 'spec/unit/test_*.c' ')'"

for _, path in ipairs(list) do
  for line in files.read(path):gmatch "[^\n]+" do
    local test = line:match "^TEST%(([%w_]+)%)"
    local indent, kind, name = line:match "^(%s*)([%l_]+)[%s(]+([^%s=].*)$"
    if test then
      print(path .. ": " .. test:gsub("_", " "))
    elseif kinds[kind] and path:find "%.lua$" then
      name = name:gsub(",? *function%(.*$", ""):gsub("[,{ ]+$", "")
      print(path .. ": " .. indent .. name:gsub('^"([^"]*)"$', "%1"))
    end
  end
end
