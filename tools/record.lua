-- Records a real terminal as an animated SVG: tools/record.lua DIRECTORY writes demo.svg and
-- waiting.svg. A dark background makes it readable on light and on dark pages.

local command = require "spec.support.command"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local terminal = require "spec.support.terminal"

local unpack = table.unpack or unpack

local STEP, LAST = 0.08, 4 -- seconds between two frames, and for the last frame
local WIDTH, HEIGHT, SIZE, MARGIN = 8.4, 20, 14, 16 -- in pixels; SIZE: of the font
local COLOURS = { ["31"] = "r", ["32"] = "g", ["2"] = "d" }

-- ---- recording ----

local Record = {}
Record.__index = Record

-- Records for this long, or until is_over(screen) returns true. A frame is { at = seconds, text }.
function Record:watch(seconds, is_over)
  local till = process.now() + seconds
  repeat
    local text = self.shell:screen("-e"):gsub("%s+$", "")
    local last = self.frames[#self.frames]
    if not last or last.text ~= text then
      self.frames[#self.frames + 1] = { at = process.now() - self.began, text = text }
    end
    if is_over and is_over(self.shell:screen()) then return end
    process.sleep(STEP)
  until process.now() > till
  assert(not is_over, "the recorded program does not end")
end

-- Waits until is_over(screen) returns true, and omits that time from the animation.
function Record:skip(is_over)
  local from = process.now()
  self.shell:sees(is_over)
  self.began = self.began + process.now() - from
end

function Record:types(text)
  for char in text:gmatch(".") do
    self.shell:types("-l", char)
    self:watch(0.02)
  end
  self:watch(0.3)
  self.shell:types("Enter")
end

-- Calls play(record) with a shell that has run the prelude. → frames
local function record(prelude, columns, rows, play)
  local shell = terminal.open(prelude, columns, rows)
  local self = setmetatable({ shell = shell, frames = {}, began = process.now() }, Record)
  play(self)
  shell:close()
  return self.frames
end

-- ---- drawing ----

local function escaped(text)
  return (text:gsub("[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" }))
end

local BLOCKS = { ["█"] = "full", ["░"] = "empty" }

-- Splits a line with SGR codes into runs of characters with the same colour and type. → { { text,
-- block, class, column, cells }, … }
local function runs_of(line)
  local runs, column = {}, 0
  for code, text in ("\27[0m" .. line):gmatch("\27%[([%d;]*)m([^\27]*)") do
    local class, run = COLOURS[code] or "", nil
    for char in text:gmatch("[^\128-\191][\128-\191]*") do
      if not run or run.block ~= BLOCKS[char] then
        run = { text = "", block = BLOCKS[char], class = class, column = column, cells = 0 }
        runs[#runs + 1] = run
      end
      run.text, run.cells, column = run.text .. char, run.cells + 1, column + 1
    end
  end
  return runs
end

-- Draws block characters as rectangles, because fonts leave gaps between them.
local function draw_run(run, y)
  local x, width = run.column * WIDTH, run.cells * WIDTH
  local class = run.class ~= "" and (' class="%s"'):format(run.class) or ""
  if run.block then
    return ('<rect x="%.1f" y="%.1f" width="%.1f" height="%d"%s/>'):format(x, y - SIZE + 1, width,
      SIZE + 2, run.block == "full" and class or ' class="e"')
  end
  if not run.text:find("%S") then return "" end
  return ('<text x="%.1f" y="%.1f" textLength="%.1f"%s>%s</text>'):format(x, y, width, class, escaped(run.text))
end

local function draw_frame(frame, top)
  local parts, row = {}, 0
  for line in (frame.text .. "\n"):gmatch("([^\n]*)\n") do
    for _, run in ipairs(runs_of(line)) do
      parts[#parts + 1] = draw_run(run, top + row * HEIGHT + SIZE)
    end
    row = row + 1
  end
  return table.concat(parts)
end

local HEAD = [[
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">
<title>%s</title>
<style>
svg { font: %dpx ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
text { fill: #e6edf3; white-space: pre; } rect { fill: #e6edf3; }
.r { fill: #ff8b82; } .g { fill: #6fdd8b; } .d { fill: #a9b4bf; } .e { fill: #3a424c; }
#f { animation: f %.2fs step-end infinite; }
@media (prefers-reduced-motion: reduce) { #f { animation: none; transform: translateY(%dpx); } }
@keyframes f {
]]

local PANEL = [[
}
</style>
<rect width="100%%" height="100%%" rx="8" style="fill: #161b22"/>
<svg x="%d" y="%d" width="%d" height="%d"><g id="f">
]]

-- Places the frames below each other; the animation moves from one to the next.
local function write(path, title, columns, rows, frames)
  local width, height = math.ceil(columns * WIDTH), rows * HEIGHT
  local total, out = frames[#frames].at - frames[1].at + LAST, {}
  local outer, high = width + 2 * MARGIN, height + 2 * MARGIN
  out[1] = HEAD:format(outer, high, outer, high, title, title, SIZE, total, -(#frames - 1) * height)
  for i, frame in ipairs(frames) do
    local share = (frame.at - frames[1].at) / total * 100
    out[#out + 1] = ("%.2f%% { transform: translateY(%dpx); }\n"):format(share, -(i - 1) * height)
  end
  out[#out + 1] = PANEL:format(MARGIN, MARGIN, width, height)
  for i, frame in ipairs(frames) do out[#out + 1] = draw_frame(frame, (i - 1) * height) .. "\n" end
  out[#out + 1] = "</g></svg>\n</svg>\n"
  dofile("tools/files.lua").write(path, table.concat(out))
  print(("%s: %d frames, %d bytes"):format(path, #frames, #table.concat(out)))
end

-- ---- recordings ----

local DEMO = "make demo: eight processes oversell without a lock, sell exactly 100 items with one, "
  .. "and the next process gets the lock after its holder is killed"
local WAITING = "holdfast run waits: one line names the holder and the place in line, counts the time, "
  .. "and is gone when the job starts"

local function is_prompt(screen) return screen:find("\n%$ *\n*$") ~= nil end

-- Omits what make checks and builds before the demo begins.
local function demo(path)
  local columns, rows = 62, 11
  local frames = record("unset NO_COLOR", columns, rows, function(self)
    self.shell:types("-l", "make demo")
    self:skip("make demo")
    self:watch(0.8)
    self.shell:types("Enter")
    self:skip("\n1%. ")
    self:watch(60, is_prompt)
  end)
  write(path, DEMO, columns, rows, frames)
end

-- Runs the command under a different host name, if this system supports that.
local function on_host(host, words)
  local script = 'hostname "$0" 2>/dev/null; exec "$@"'
  local all = { "unshare", "--user", "--map-root-user", "--uts", "sh", "-c", script, host, unpack(words) }
  local probe = command.other { "unshare", "--user", "--map-root-user", "--uts", "hostname", host }
  local how, code = probe:wait(20)
  if how ~= "exit" or code ~= 0 then all = words end
  return all
end

local function waiting(path)
  local columns, rows = 98, 4
  local server = redis.start()
  local function start(host, ...)
    local words = on_host(host, command.words(...))
    words.env = command.environment(server)
    return process.start(words)
  end
  local function waiters() return tonumber(server:cli("ZCARD", "holdfast_queue:{backup:db}")) or 0 end
  local holder = start("web-3", "hold", "--name", "nightly-backup", "backup:db")
  assert(holder:wait_output("backup:db %d+\n", 20), holder:output())
  local first = start("web-1", "run", "backup:db", "--", "sleep", "2.6")
  assert(process.wait_until(function() return waiters() == 1 end))
  local frames = record(command.shell_prelude(server), columns, rows, function(self)
    self:watch(0.5)
    self:types("holdfast run backup:db -- echo 'backup of db: done'")
    self:watch(3.6)
    holder:kill("TERM")
    self:watch(30, is_prompt)
  end)
  first:wait(20)
  server:stop()
  write(path, WAITING, columns, rows, frames)
end

local directory = arg[1] or "docs/pictures"
demo(directory .. "/demo.svg")
waiting(directory .. "/waiting.svg")
