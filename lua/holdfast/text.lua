-- Makes keys, names and messages from other parties safe to show. They may contain bytes that
-- control a terminal, reverse the direction of a line, or are not text at all.

local core = require "holdfast.core"

local text = {}

local CONTINUATION = "[\128-\191]"

-- a UTF-8 character's first byte → a pattern for the bytes that follow
local FOLLOWING = {}

local function add(first, last, pattern)
  for byte = first, last do FOLLOWING[byte] = "^" .. pattern end
end

add(0xc2, 0xdf, CONTINUATION)
add(0xe0, 0xef, CONTINUATION .. CONTINUATION)
add(0xe0, 0xe0, "[\160-\191]" .. CONTINUATION)
add(0xed, 0xed, "[\128-\159]" .. CONTINUATION)
add(0xf0, 0xf4, CONTINUATION .. CONTINUATION .. CONTINUATION)
add(0xf0, 0xf0, "[\144-\191]" .. CONTINUATION .. CONTINUATION)
add(0xf4, 0xf4, "[\128-\143]" .. CONTINUATION .. CONTINUATION)

-- A UTF-8 character of i bytes has a code point that begins with its first byte modulo
-- FIRST_BYTE_MODULUS[i].
local FIRST_BYTE_MODULUS = { 0x80, 0x20, 0x10, 0x08 }

function text.code_point(char)
  local code = char:byte() % FIRST_BYTE_MODULUS[#char]
  for i = 2, #char do code = code * 64 + char:byte(i) % 64 end
  return code
end

local UNSAFE_RANGES = core.wire.hidden -- code points: first, last, first, last, …

-- → the character's code point if it is unsafe to show | nil
local function unsafe_code(char)
  local code = text.code_point(char)
  for i = 1, #UNSAFE_RANGES, 2 do
    local first, last = UNSAFE_RANGES[i], UNSAFE_RANGES[i + 1]
    if code < first then return nil end -- any locale: compares numbers
    if code <= last then return code end -- any locale: compares numbers
  end
end

-- Returns `s` with show(bytes, code) in place of each character that must not be shown. `code`: its
-- code point, or nil for a single byte that is a control character or not UTF-8.
function text.escape(s, show)
  return (s:gsub("[^\32-\126]+", function(run)
    local parts, at = {}, 1
    while at <= #run do
      local following, last = FOLLOWING[run:byte(at)], nil
      if following then last = select(2, run:find(following, at + 1)) end
      local char = run:sub(at, last or at)
      local code = last and unsafe_code(char)
      parts[#parts + 1] = last and not code and char or show(char, code)
      at = at + #char
    end
    return table.concat(parts)
  end))
end

local SPACE = "[ \t\n\v\f\r]"

-- Returns `s` without surrounding white space, such as the line end that echo writes to a file.
function text.trim(s)
  return (s:gsub("^" .. SPACE .. "+", ""):gsub(SPACE .. "+$", ""))
end

-- Like trim, but also removes a pair of quotes, because some parsers of env files leave them in.
function text.unquote(s)
  s = text.trim(s)
  local inside = s:match('^"(.*)"$') or s:match("^'(.*)'$")
  return inside and text.trim(inside) or s
end

local HEX = {}

for byte = 0, 255 do HEX[string.char(byte)] = ("\\x%02x"):format(byte) end

-- Returns `s` with \xNN for bytes that a terminal must not show. Idempotent.
function text.printable(s)
  return text.escape(s, function(bytes) return HEX[bytes] or bytes:gsub(".", HEX) end)
end

-- Like printable, for names that must not look alike: shows a literal \xNN as \x5cxNN.
function text.name(s)
  return text.printable((s:gsub("\\(x%x%x)", HEX["\\"] .. "%1")))
end

-- Returns a whole number with its noun: "1 lock", "2 locks".
function text.plural(count, noun)
  return ("%.0f %s%s"):format(count, noun, count == 1 and "" or "s")
end

-- ---- durations ----

local UNITS = { { 86400, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } }

-- Returns a duration in its two largest units: "850 ms", "42 s", "4 min 50 s", "2 h". The locale
-- does not affect whole numbers.
function text.duration(seconds)
  local ms = math.floor(seconds * 1000 + 0.5)
  if ms < 1000 then return ("%d ms"):format(ms) end
  local left, i = math.floor(ms / 1000), 1
  while left < UNITS[i][1] do i = i + 1 end -- any locale: compares numbers
  local unit, smaller = UNITS[i], UNITS[i + 1]
  local shown = ("%d %s"):format(math.floor(left / unit[1]), unit[2])
  local rest = smaller and math.floor(left % unit[1] / smaller[1]) or 0
  return rest > 0 and ("%s %d %s"):format(shown, rest, smaller[2]) or shown
end

-- Returns a caller's string as all messages, including the core's, must show it: hides the log-in
-- of any URL in it.
function text.shown(s)
  return text.printable(core.wire.mask_credentials(s))
end

return text
