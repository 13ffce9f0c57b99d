-- Finds code that compares a kind of lock, operation or topology with a name: lua5.4
-- tools/check_kinds.lua
--
-- A kind of lock is a row; operations and topologies are interfaces. Code that compares names must
-- be changed for each new one, so it is allowed only in that one's own file. In Lua, the API's
-- functions create locks of their kinds; there, this tool finds comparisons with a kind's name,
-- tables indexed by such names, and names from the wire format that the core exports.

local tools = dofile "tools/files.lua"
local lines_of, read, fail = tools.lines_of, tools.read, tools.fail

-- Forbidden patterns, and the files in which each is allowed.
local QUESTIONS = {
  {
    "kind of lock", { "[=!]=%s*&?hf_kind_%l", "&hf_kind_%l", "letter%s*[=!]=" },
    { "csrc/core/lock/kind.c" },
  },
  {
    "operation", { "[=!]=%s*HF_OP_%u", "case%s+HF_OP_%u" },
    -- the arguments and results of a Lua call
    { "csrc/core/registry.c", "csrc/lua/call.c", "csrc/lua/op.c" },
  },
  {
    "topology",
    { "[=!]=%s*HF_MODE_%u", "case%s+HF_MODE_%u", "[-]>sentinels%f[^%w_]", "[-]>cluster%f[^%w_]",
      "[-]>quorum%f[^%w_]" },
    { "csrc/core/registry.c", "csrc/core/link/sentinel.c", "csrc/core/link/cluster.c",
      "csrc/core/quorum/" },
  },
}

local function lua_code_of(path) return (read(path):gsub("%-%-[^\n]*", "")) end

local ROWS = "lua/holdfast/command/kinds.lua"
-- Tables that are indexed by types of Lua values or of keys instead.
local NO_KIND = { number = true, string = true }
-- Fields in other tables also have these names.
local FIELDS = {
  lock = true, mutex = true, read = true, write = true, record = true, semaphore = true,
}

-- Forbidden patterns in Lua: { description, patterns, files }. The status page's script uses ===.
local function lua_rules()
  local kinds, texts, source = {}, {}, read "csrc/core/lock/kind.c"
  local function add(name)
    if NO_KIND[name] then return end
    kinds[#kinds + 1] = 'kind[^,;=~]-[=~]=%s*"' .. name .. '"'
    if not FIELDS[name] then kinds[#kinds + 1] = "[{,]%s*" .. name .. "%s*=" end
  end
  for name in source:gmatch '%.name = "([^"]+)"' do add(name) end
  for name in read(ROWS):gmatch "\n  ([%l_]+) = {" do add(name) end
  local prefixes = read "csrc/core/holdfast.h"
  for text in prefixes:gmatch 'X%(%l+, "([^"]+)"%)' do texts[#texts + 1] = '"' .. text end
  for text in source:gmatch '%.channel = "([^"]+)"' do texts[#texts + 1] = '"' .. text end
  return { { "kind of lock", kinds, { ROWS } }, { "key or a channel of the wire", texts, {} } }
end

local function is_allowed(path, files)
  for _, file in ipairs(files) do
    if path:sub(1, #file) == file then return true end
  end
  return false
end

local function has_pattern(line, patterns)
  for _, pattern in ipairs(patterns) do
    if line:find(pattern) then return true end
  end
  return false
end

local function check(path, code, what, patterns)
  local places = {}
  for number, line in tools.numbered(code) do
    if has_pattern(line, patterns) then
      places[#places + 1] = ("%s:%d: %s"):format(path, number, line:match "^%s*(.-)%s*$")
    end
  end
  if #places == 0 then return end
  fail("%s\n%s asks for a %s by name", table.concat(places, "\n"), path, what)
end

local function check_all(folder, suffix, code_of, rules)
  for _, path in ipairs(lines_of(("find %s -name '*.%s' | sort"):format(folder, suffix))) do
    local code = code_of(path)
    for _, question in ipairs(rules) do
      local what, patterns, files = question[1], question[2], question[3]
      if not is_allowed(path, files) then check(path, code, what, patterns) end
    end
  end
end

check_all("csrc", "c", tools.c_code_of, QUESTIONS)
check_all("lua", "lua", lua_code_of, lua_rules())
tools.finish()
