-- How the demos speak: in lines that come at once, verdicts in colour on a terminal.

local sys = require "spec.support.sys"

local colour = sys.isatty(1) and not os.getenv("NO_COLOR")

local stage = { failures = 0 }

local function paint(code, text)
  return colour and ("\27[%dm%s\27[0m"):format(code, text) or text
end

function stage.say(format, ...)
  print(select("#", ...) > 0 and format:format(...) or format)
  io.stdout:flush()
end

function stage.verdict(good, text)
  if not good then stage.failures = stage.failures + 1 end
  stage.say("   %s", paint(good and 32 or 31, text))
end

return stage
