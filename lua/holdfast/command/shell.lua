-- Reads and writes words as bash does, for its completion. Nothing is ever expanded.

local texts = require "holdfast.text"

local shell = {}

local Reader = {}
Reader.__index = Reader

function Reader:add(char)
  self.word = (self.word or "") .. char
end

-- Ends the word. An operator begins another command.
function Reader:finish(is_operator)
  if is_operator then
    self.words = {}
  elseif self.word then
    self.words[#self.words + 1] = self.word
  end
  self.word, self.unknown = nil, false
end

function Reader:quoted(char, following)
  if char == self.quote then
    self.quote = nil
  elseif self.quote == '"' and char == "\\" and following:find('[$`"\\]') then
    self:add(following)
    return 2
  else
    if self.quote == '"' and char:find("[$`]") then self.unknown = true end
    self:add(char)
  end
  return 1
end

function Reader:bare(char, following)
  if char == "\\" then
    self:add(following)
    return 2
  elseif char == "'" or char == '"' then
    self:add ""
    self.quote = char
  elseif char:find("[ \t\n]") then
    self:finish()
  elseif char:find("[;&|()<>]") then
    self:finish(true)
  else
    if char:find("[$`]") then self.unknown = true end
    self:add(char)
  end
  return 1
end

-- Reads the line up to the cursor.
-- → the words before the last one, the last one, the quote that is open in it or nil; nothing: it
-- holds something that the shell would expand
function shell.read(line)
  local self, at = setmetatable({ words = {}, unknown = false }, Reader), 1
  while at <= #line do
    local read = self.quote and self.quoted or self.bare
    at = at + read(self, line:sub(at, at), line:sub(at + 1, at + 1))
  end
  if not self.unknown then return self.words, self.word or "", self.quote end
end

local function octal(bytes)
  return (bytes:gsub(".", function(byte) return ("\\%03o"):format(byte:byte()) end))
end

-- Inside open quotes: special or hidden characters are put between two quoted parts.
local function continue(text, quote)
  local special = quote == "'" and "'" or '[$`"\\!]'
  local body = text:gsub(special, function(char)
    return quote .. (char == "'" and "\\'" or "'" .. char .. "'") .. quote
  end)
  body = texts.escape(body, function(bytes) return quote .. "$'" .. octal(bytes) .. "'" .. quote end)
  -- readline takes a first quote for the one that is there already, and adds none behind a last one
  return (body:sub(1, 1) == quote and quote or "") .. body .. quote
end

-- Every shell reads what is between these quotes as it is, but fish and csh not all of it: these
-- characters stand outside, where a backslash does the same in each of them.
local APART = "['\\!]"
local INSIDE = "[^'\\!]"

local function quoted(text)
  local parts = {}
  for inside, apart in text:gmatch("(" .. INSIDE .. "*)(" .. APART .. "?)") do
    if inside ~= "" then parts[#parts + 1] = "'" .. inside .. "'" end
    if apart ~= "" then parts[#parts + 1] = "\\" .. apart end
  end
  return table.concat(parts)
end

-- Returns what the shell reads as `text`, on one line and fit for a terminal: sh, bash, zsh, ksh,
-- fish and csh. What may not be shown is written as $'…', which bash, zsh and ksh read; fish refuses
-- it, and sh reads another text. Behind an open quote it goes on inside, and closes it, for bash.
function shell.quote(text, open)
  if open then return continue(text, open) end
  if text == "" then return "''" end
  if not text:find("[^A-Za-z0-9_./:@%%+,-]") then return text end
  if texts.printable(text) == text then return quoted(text) end
  local body = text:gsub("[^A-Za-z0-9_./:@%%+,\128-\255-]", octal)
  return "$'" .. texts.escape(body, octal) .. "'"
end

-- What a shell runs to break the lock of this key. `verb`: of the command; nil: break.
function shell.break_line(key, verb)
  return ("holdfast %s%s %s"):format(verb or "break", key:find("^%-") and " --" or "", shell.quote(key))
end

return shell
