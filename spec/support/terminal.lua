-- A shell in a real terminal: tmux, with the command as `holdfast`.

local command = require "spec.support.command"
local files = require "spec.support.files"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local PATIENCE = 40
local LOOK = 0.05 -- seconds between two captures of the screen, each of which starts a program

local Terminal = {}
Terminal.__index = Terminal

local terminal = {}

-- Returns whether tmux is installed.
function terminal.is_there() return process.succeeds "command -v tmux >/dev/null" end

local function answers(path)
  local fd = sys.connect_unix(path)
  return fd and sys.close(fd)
end

-- `prelude`: what the shell reads first. The terminal should be closed; it always ends with this
-- program.
function terminal.open(prelude, columns, rows)
  local self = setmetatable({ directory = process.directory() }, Terminal)
  files.write(self.directory .. "/rc", prelude, "\nPS1='$ '\n")
  command.other { "tmux", "-D", "-S", self.directory .. "/tmux", "-f", "/dev/null" }
  assert(process.wait_until(function() return answers(self.directory .. "/tmux") end, PATIENCE))
  self:tmux("new-session", "-d", "-s", "spec", "-x", tostring(columns), "-y", tostring(rows),
    "bash --rcfile " .. self.directory .. "/rc -i")
  self:sees("^%$")
  return self
end

function Terminal:close()
  self:tmux("kill-server")
  process.remove(self.directory)
end

-- → the output of this tmux command
function Terminal:tmux(...)
  local child = command.other { "tmux", "-S", self.directory .. "/tmux", "-f", "/dev/null", ... }
  assert(child:wait(PATIENCE) == "exit" and child.code == 0, child:output())
  return child:output()
end

function Terminal:screen(...) return self:tmux("capture-pane", "-p", "-t", "spec", ...) end

-- Waits until the screen's text matches `is_right`, a pattern or a function. → the match, or the
-- function's result
function Terminal:sees(is_right)
  local matches = is_right
  if type(is_right) == "string" then matches = function(text) return text:match(is_right) end end
  local seen
  local found = process.wait_until(function()
    seen = self:screen()
    return matches(seen) or process.sleep(LOOK)
  end, PATIENCE)
  return assert(found, ("not %s:\n%s"):format(tostring(is_right), tostring(seen)))
end

function Terminal:types(...) self:tmux("send-keys", "-t", "spec", ...) end

function Terminal:resize(columns, rows)
  self:tmux("resize-window", "-t", "spec", "-x", tostring(columns), "-y", tostring(rows))
end

return terminal
