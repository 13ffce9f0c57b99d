-- Matches Redis's patterns for channels and keys: * ? [abc] [^abc] [a-c] and \ before a literal
-- character. No pattern is invalid: an unclosed bracket ends at the end of the pattern. An empty
-- string matches no pattern, not even a star.

local byte = string.byte
local STAR, QUESTION, OPEN, CLOSE, BACKSLASH, CARET, DASH = byte("*?[]\\^-", 1, 7)

local function in_range(low, high, char)
  if low > high then low, high = high, low end
  return low <= char and char <= high
end

-- Matches a bracket expression, from the character after its `[`. → whether it contains `char`, the
-- position of its last character
local function match_bracket(pattern, at, char)
  local negated = byte(pattern, at) == CARET
  if negated then at = at + 1 end
  local found = false
  while true do
    local first = byte(pattern, at)
    if first == nil then
      at = at - 1
      break
    elseif first == BACKSLASH and at < #pattern then
      at = at + 1
      found = found or byte(pattern, at) == char
    elseif first == CLOSE then
      break
    elseif at + 2 <= #pattern and byte(pattern, at + 1) == DASH then
      found = found or in_range(first, byte(pattern, at + 2), char)
      at = at + 2
    else
      found = found or first == char
    end
    at = at + 1
  end
  return found ~= negated, at
end

local match_from

local function match_star(pattern, p, text, t)
  while byte(pattern, p + 1) == STAR do p = p + 1 end
  if p == #pattern then return true end
  for from = t, #text do
    if match_from(pattern, p + 1, text, from) then return true end
  end
  return false
end

function match_from(pattern, p, text, t)
  while p <= #pattern and t <= #text do
    local char = byte(pattern, p)
    local same = true
    if char == STAR then
      return match_star(pattern, p, text, t)
    elseif char == OPEN then
      same, p = match_bracket(pattern, p + 1, byte(text, t))
    elseif char ~= QUESTION then
      if char == BACKSLASH and p < #pattern then p = p + 1 end
      same = byte(pattern, p) == byte(text, t)
    end
    if not same then return false end
    p, t = p + 1, t + 1
  end
  if t > #text then
    while byte(pattern, p) == STAR do p = p + 1 end
  end
  return p > #pattern and t > #text
end

return function(pattern, text)
  if text == "" then return pattern == "" end
  return match_from(pattern, 1, text, 1)
end
