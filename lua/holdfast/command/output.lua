-- The command's output. Results go to standard output, events to standard error as lines of text.
-- With --json, each event is a JSON object, on standard error or the descriptor from --json-fd.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local lazy = require "holdfast.lazy"
local json = lazy "holdfast.command.json"
local process = require "holdfast.process"
local texts = require "holdfast.text"
local width = lazy "holdfast.command.width"
local unpack = require("holdfast.compat").unpack

local output = {}

local Output = {}
Output.__index = Output

-- `given`: { json, json-fd, verbose }. Each line begins with `name`.
function output.new(name, given)
  return setmetatable({
    name = name, json = given.json, fd = given["json-fd"], verbose = given.verbose,
  }, Output)
end

local printable = texts.printable

output.printable = printable
output.name = texts.name

-- Writes a line to `fd` or standard error. Drops the line if the reader is not ready, because
-- nothing may block while a job is running.
local function write(line, fd)
  process.say(line .. "\n", fd)
end

-- Returns the time in RFC 3339 format, in UTC, with milliseconds.
local function timestamp()
  local ms = math.floor(process.time() * 1000)
  return os.date("!%Y-%m-%dT%H:%M:%S", math.floor(ms / 1000)) .. (".%03dZ"):format(ms % 1000)
end

-- Prints an event with --json, or as `text` with --verbose.
function Output:event(event, fields, text)
  if self.json then
    write(json.object { { "event", event }, { "time", timestamp() }, unpack(fields) }, self.fd)
  elseif self.verbose then
    write(self.name .. ": " .. texts.shown(text))
  end
end

-- Prints the event unconditionally.
function Output:problem(event, fields, text)
  local verbose = self.verbose
  self.verbose = true
  self:event(event, { { "message", core.wire.mask_credentials(text) }, unpack(fields) }, text)
  self.verbose = verbose
end

-- Prints the event on a terminal, and with --json or --verbose.
function Output:advice(event, fields, text)
  if self.json or self.verbose or process.is_terminal(2) then self:problem(event, fields, text) end
end

-- Returns how to show the wait: "line" for a live line on the terminal, "events" for JSON or
-- separate lines, or nil for not at all.
function Output:wait_display(quiet)
  local is_live = not self.json and process.is_terminal(2) and os.getenv("TERM") ~= "dumb"
  if self.json or self.verbose or is_live and not quiet then return is_live and "line" or "events" end
end

-- The library's advice for programs, and the command's advice that replaces it.
local ADVICE = "use client:mutex for a string set with SET NX; otherwise use another key or a prefix"
local SHELL_ADVICE = "use another KEY, or the same --shared, --exclusive or --permits in every run with this KEY"

local NO_PASSWORD = "; a job of holdfast run or lead gets no password unless you pass --pass-url to run or lead"

local function adapt_to_shell(message)
  local first, last = message:find(ADVICE, 1, true)
  if first then return message:sub(1, first - 1) .. SHELL_ADVICE .. message:sub(last + 1) end
  local needs_password = os.getenv "HOLDFAST_OWNER" and message:find("NOAUTH", 1, true)
  return needs_password and message .. NO_PASSWORD or message
end

-- Reports a failure. `who`: the holder's { host, pid, name, held_for }, or nil. → the exit code
function Output:fail(exit, code, message, who)
  who = who or {}
  self:problem("error", { { "code", code }, { "exit", exit }, { "host", who.host }, { "pid", who.pid },
    { "name", who.name }, { "held_for", who.held_for } }, adapt_to_shell(message))
  return exit
end

-- Reports a usage error. `usage` may have several lines. → the exit code
function Output:usage_error(message, usage)
  local exit = self:fail(exits.USAGE, "usage", message)
  if not self.json then write("usage: " .. usage) end
  return exit
end

-- ---- results ----

local EPIPE = 32
local write_problem -- why a result could not be written, or nil

-- Stores why a write failed. EPIPE is not a failure: a reader such as head exits early.
local function store_failure(written, message, number)
  if not written and number ~= EPIPE then write_problem = write_problem or message end
  return written, message
end

-- Prints a line of a result.
function output.print(text)
  if not process.has_output then write_problem = "it is closed" end
  store_failure(io.stdout:write(text, "\n"))
end

-- Prints a line instead of an empty result, on a terminal only.
function output.hint(text)
  if process.is_terminal(1) then output.print(text) end
end

-- → true | nil, message
function output.flush()
  local flushed, message = store_failure(io.stdout:flush())
  if write_problem then return nil, write_problem end
  return flushed, message
end

-- Called at a subcommand's end, with its exit code. → the program's exit code: exits.OUTPUT instead
-- of OK or BUSY if the results were not written
function output.finish(exit)
  output.flush()
  if not write_problem or exit > exits.BUSY then return exit end
  return output.new("holdfast", {}):report_write_failure(write_problem)
end

-- Reports that results could not be written. → the exit code
function Output:report_write_failure(message)
  return self:fail(exits.OUTPUT, "output", "cannot write to standard output: " .. message)
end

output.MAX_WIDTH = 100 -- columns of an aligned cell; a longer cell shifts only its own row

local function column_widths(rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do
      widths[i] = math.max(widths[i] or 0, math.min(width.of(cell), output.MAX_WIDTH))
    end
  end
  return widths
end

-- Converts rows of strings to lines with aligned columns. `right`: column -> whether the
-- column is right-aligned. `paint(cell, row, column)` → the text to show; if nil, cells are shown
-- unchanged.
function output.columns(rows, right, paint)
  local widths, lines = column_widths(rows), {}
  for number, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      local padding = (" "):rep(widths[i] - width.of(cell))
      cells[i] = right[i] and padding .. cell or cell .. padding
      if paint then cells[i] = paint(cells[i], number, i) end
    end
    lines[#lines + 1] = table.concat(cells, "  "):match("^.*[^ ]") or ""
  end
  return lines
end

return output
