-- Checks the lines of Lua files, and the words in all files: lua5.4 tools/check_lines.lua
--
-- No line has more than 100 columns, unless a string in it or an annotation makes it longer. An
-- adapter for an event loop has at most 150 lines. No file contains an obscure phrase.

local files = dofile "tools/files.lua"

local MAX_COLUMNS = tonumber(files.read(".editorconfig"):match "max_line_length = (%d+)")
local MAX_OF_A_LOOP = 150

-- Files that all loops share, and the files for nginx, which uses its own sockets.
local NO_LOOP = { init = true, pump = true, descriptors = true, ngx = true, cosockets = true }

-- Ignores unpaired quotes: a string with several lines begins or ends on such a line.
local function without_texts(line)
  local short = line:gsub('\\.', ""):gsub('"[^"]*"', '""'):gsub("'[^']*'", "''"):gsub("%[%[.-%]%]",
    "[[]]")
  return short
end

local function is_too_long(line)
  if utf8.len(line) and utf8.len(line) <= MAX_COLUMNS or line:find "^%s*%-%-%-@" then return false end
  return #without_texts(line) > MAX_COLUMNS
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
        files.fail("%s:%d: %d columns, at most %d", path, number, utf8.len(line) or #line, MAX_COLUMNS)
      end
    end
  end
end

-- Phrases that readers did not understand. Write instead: except, without success, again, only,
-- learns, a client that, must, Redisson's, has passed.
local OBSCURE = { "but for", "in vain", "once more", "nobody but", "no word", "is told", "are told", "whoever", "is to be",
  "are to be", "each time anew", "the like", "of ours", "of theirs", "time is over" }

-- Also finds marks of an unfinished merge. A phrase may continue on the next line of a comment.
local function check_words(path)
  local whole = files.read(path)
  if whole:find "\n<<<<<<< " or whole:find "\n>>>>>>> " then files.fail("%s: unfinished merge", path) end
  local text = whole:lower():gsub("\n[%s*#/-]*", " ")
  for _, phrase in ipairs(path == "CHANGELOG.md" and {} or OBSCURE) do
    if text:find("%f[%w]" .. phrase .. "%f[%W]") then files.fail('%s: "%s" is obscure', path, phrase) end
  end
end

local OURS = "-not -path 'spec/fixtures/*' "
for _, path in ipairs(files.sources(OURS .. "-not -path 'csrc/programs/*' -not -path tools/check_lines.lua")) do
  check_words(path)
end
for _, path in ipairs(files.sources(OURS .. "-name '*.lua'")) do
  check(path)
  local adapter = path:match "^lua/holdfast/loop/(.+)%.lua$"
  local _, lines = files.read(path):gsub("\n", "")
  if adapter and not NO_LOOP[adapter] and lines > MAX_OF_A_LOOP then
    files.fail("%s: %d lines, at most %d for an event loop", path, lines, MAX_OF_A_LOOP)
  end
end
files.finish()
