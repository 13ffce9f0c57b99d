-- The lines of the Lua files: lua5.4 tools/check_lines.lua
--
-- No line has more than 100 columns, unless a string in it or an annotation makes it longer. An
-- adapter for an event loop has at most 150 lines.

local files = dofile "tools/files.lua"

local MOST = 100
local MAX_OF_A_LOOP = 150

-- Files that all loops share, and nginx, which has its own sockets instead of descriptors.
local NO_LOOP = { init = true, pump = true, descriptors = true, ngx = true, cosockets = true }

-- A line at which a string of several lines begins or ends has unpaired quotes, which are ignored.
local function without_texts(line)
  local short = line:gsub('\\.', ""):gsub('"[^"]*"', '""'):gsub("'[^']*'", "''"):gsub("%[%[.-%]%]",
    "[[]]")
  return short
end

local function is_too_long(line)
  if utf8.len(line) and utf8.len(line) <= MOST or line:find "^%s*%-%-%-@" then return false end
  return #without_texts(line) > MOST
end

-- → the end of a long string that begins after `at` and does not end on this line
local function open_text(line, at)
  while true do
    local _, last, level = line:find("%[(=*)%[", at)
    if not last then return nil end
    local close = "]" .. level .. "]"
    local _, to = line:find(close, last + 1, true)
    if not to then return close end
    at = to + 1
  end
end

-- Lines inside a long string are not checked.
local function check(path)
  local close
  for number, line in files.numbered(files.read(path)) do
    local to = close and select(2, line:find(close, 1, true))
    if to then
      close = open_text(line, to + 1)
    elseif not close then
      close = open_text(line, 1)
      if not close and is_too_long(line) then
        files.fail("%s:%d: %d columns, at most %d", path, number, utf8.len(line) or #line, MOST)
      end
    end
  end
end

for _, path in ipairs(files.lines_of "find lua spec tools bench examples csrc/programs -name '*.lua' -not -path 'spec/fixtures/*'") do
  check(path)
end
for _, path in ipairs(files.lines_of "find lua/holdfast/loop -name '*.lua'") do
  local _, lines = files.read(path):gsub("\n", "")
  if lines > MAX_OF_A_LOOP and not NO_LOOP[path:match "([^/]+)%.lua$"] then
    files.fail("%s: %d lines, at most %d for an event loop", path, lines, MAX_OF_A_LOOP)
  end
end
files.finish()
