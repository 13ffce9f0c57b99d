-- The output of the demos: unbuffered lines, and on a terminal marks, a bar and, unless NO_COLOR is
-- set, colours.

local sys = require "spec.support.sys"

local is_live = sys.isatty(1) and os.getenv("TERM") ~= "dumb"
local colour = is_live and (os.getenv("NO_COLOR") or "") == ""

local stage = { failures = 0, is_live = is_live }

local CELLS = 40 -- of a bar
local RED, GREEN = 31, 32

local function paint(code, text)
  return colour and text ~= "" and ("\27[%dm%s\27[0m"):format(code, text) or text
end

local function write(text)
  io.stdout:write(text)
  io.stdout:flush()
end

function stage.say(format, ...)
  write((select("#", ...) > 0 and format:format(...) or format) .. "\n")
end

-- `good`: the demo shows what it is meant to show. `is_bad`: that is something harmful.
function stage.verdict(good, text, is_bad)
  if not good then stage.failures = stage.failures + 1 end
  local is_fine = good and not is_bad
  local mark = is_live and (is_fine and "✓ " or "✗ ") or ""
  stage.say("   %s", paint(is_fine and GREEN or RED, mark .. text))
end

-- Redraws the bar with how many of `total` are done; those beyond the total are red. Draws nothing
-- in a pipe.
function stage.bar(done, total, is_last)
  if not is_live then return end
  local most = math.max(done, total)
  local within = math.floor(math.min(done, total) / most * CELLS + 0.5)
  local beyond = math.floor(math.max(done - total, 0) / most * CELLS + 0.5)
  write(("\r   %s%s%s %d of %d\27[K%s"):format(paint(GREEN, ("█"):rep(within)), paint(RED, ("█"):rep(beyond)),
    ("░"):rep(CELLS - within - beyond), done, total, is_last and "\n" or ""))
end

return stage
