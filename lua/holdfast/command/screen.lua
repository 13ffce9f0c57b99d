-- Full-screen mode on the terminal: draws rows and reads single keys.

local process = require "holdfast.process"

local screen = { BOLD = "1", RED = "31", YELLOW = "33" }

-- Escape sequences that enter and leave the alternate screen, where the cursor is hidden and long
-- rows are not wrapped.
local ENTER, LEAVE = "\27[?1049h\27[?25l\27[?7l", "\27[?7h\27[?25h\27[?1049l"

local function write(...)
  io.stdout:write(...)
  io.stdout:flush()
end

function screen.enter()
  process.cbreak(true)
  write(ENTER)
end

function screen.leave()
  process.cbreak(false)
  write(LEAVE)
end

-- Draws the first `rows` lines.
function screen.draw(lines, rows)
  write("\27[H\27[K", table.concat(lines, "\r\n\27[K", 1, rows))
end

local is_coloured = process.is_terminal(1) and (os.getenv "NO_COLOR" or "") == ""

-- Returns the text in a colour. Returns it unchanged if `colour` is nil, if the output is not a
-- terminal, or if NO_COLOR is set.
function screen.paint(text, colour)
  if not is_coloured or not colour or text == "" then return text end
  return ("\27[%sm%s\27[m"):format(colour, text)
end

-- The bytes that a special key sends → the key's name.
local SPECIAL_KEYS = {
  ["\27[A"] = "up", ["\27OA"] = "up", ["\27[B"] = "down", ["\27OB"] = "down",
  ["\27[5~"] = "page_up", ["\27[6~"] = "page_down",
  ["\27[H"] = "home", ["\27OH"] = "home", ["\27[1~"] = "home",
  ["\27[F"] = "end", ["\27OF"] = "end", ["\27[4~"] = "end",
  ["\27"] = "escape", ["\r"] = "enter", ["\n"] = "enter", ["\127"] = "backspace", ["\b"] = "backspace",
  ["\21"] = "clear",
}

screen.KEY_NAMES = { other = true } -- a set
for _, name in pairs(SPECIAL_KEYS) do screen.KEY_NAMES[name] = true end

-- → the list of keys that were pressed: characters, and names of special keys
function screen.parse_keys(bytes)
  local keys = {}
  while bytes ~= "" do
    local sequence = bytes:match("^\27%[[%d;]*[@-~]") or bytes:match("^\27O[@-~]")
      or bytes:match("^[^\128-\191][\128-\191]*") or bytes:sub(1, 1)
    bytes = bytes:sub(#sequence + 1)
    keys[#keys + 1] = SPECIAL_KEYS[sequence] or sequence:find("^[%z\1-\31]") and "other" or sequence
  end
  return keys
end

return screen
