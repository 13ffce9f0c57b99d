-- Splits a command line into words like bash, for completion, and quotes words for shells. It never
-- expands anything.

local texts = require "holdfast.text"

local shell = {}

local Reader = {}
Reader.__index = Reader

function Reader:add(char)
  self.word = (self.word or "") .. char
end

-- Ends the current word. An operator also begins a new command.
function Reader:finish(is_operator)
  if is_operator then
    self.words = {}
  elseif self.word then
    self.words[#self.words + 1] = self.word
  end
  self.word, self.has_expansion = nil, false
end

function Reader:quoted(char, following)
  if char == self.quote then
    self.quote = nil
  elseif self.quote == '"' and char == "\\" and following:find('[$`"\\]') then
    self:add(following)
    return 2
  else
    if self.quote == '"' and char:find("[$`]") then self.has_expansion = true end
    self:add(char)
  end
  return 1
end

function Reader:unquoted(char, following)
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
    if char:find("[$`]") then self.has_expansion = true end
    self:add(char)
  end
  return 1
end

-- Parses the line up to the cursor. → the words before the last word; the last word; its open
-- quote, or nil | nothing if the line contains something that the shell would expand
function shell.read(line)
  local self, index = setmetatable({ words = {}, has_expansion = false }, Reader), 1
  while index <= #line do
    local read = self.quote and self.quoted or self.unquoted
    index = index + read(self, line:sub(index, index), line:sub(index + 1, index + 1))
  end
  if not self.has_expansion then return self.words, self.word or "", self.quote end
end

local function octal(bytes)
  return (bytes:gsub(".", function(byte) return ("\\%03o"):format(byte:byte()) end))
end

-- Quotes text that follows an open quote. Special or hidden characters go between two quoted parts.
local function continue(text, quote)
  local special = quote == "'" and "'" or '[$`"\\!]'
  local body = text:gsub(special, function(char)
    return quote .. (char == "'" and "\\'" or "'" .. char .. "'") .. quote
  end)
  body = texts.escape(body, function(bytes) return quote .. "$'" .. octal(bytes) .. "'" .. quote end)
  -- Readline takes a leading quote for the open quote, and adds no quote after a trailing quote.
  return (body:sub(1, 1) == quote and quote or "") .. body .. quote
end

-- Most shells take all characters in single quotes literally, but fish and csh do not. These
-- characters therefore go outside the quotes, after a backslash, which works in all shells.
local OUTSIDE = "['\\!]"
local INSIDE = "[^'\\!]"

local function quoted(text)
  local parts = {}
  for inside, outside in text:gmatch("(" .. INSIDE .. "*)(" .. OUTSIDE .. "?)") do
    if inside ~= "" then parts[#parts + 1] = "'" .. inside .. "'" end
    if outside ~= "" then parts[#parts + 1] = "\\" .. outside end
  end
  return table.concat(parts)
end

-- Quotes `text` for sh, bash, zsh, ksh, fish and csh. The result is one line that is safe to print
-- on a terminal: control characters become $'…', which only bash, zsh and ksh understand. fish
-- rejects that, and sh takes it literally. `open`: for bash, a quote that is already open; the
-- result closes it.
function shell.quote(text, open)
  if open then return continue(text, open) end
  if text == "" then return "''" end
  if not text:find("[^A-Za-z0-9_./:@%%+,-]") then return text end
  if texts.printable(text) == text then return quoted(text) end
  local body = text:gsub("[^A-Za-z0-9_./:@%%+,\128-\255-]", octal)
  return "$'" .. texts.escape(body, octal) .. "'"
end

-- Returns the command line that breaks the lock on this key. `subcommand`: nil for "break".
function shell.break_line(key, subcommand)
  return ("holdfast %s%s %s"):format(subcommand or "break", key:find("^%-") and " --" or "", shell.quote(key))
end

return shell
