-- Runs the command as the child of a process that reaps the orphans that it leaves behind. On some
-- machines init takes seconds to do that.

local command = require "spec.support.command"
local process = require "spec.support.process"

local adopted = {}

local ADOPTER = [[
  local sys = require "spec.support.sys"
  assert(sys.adopt())
  print("command " .. assert(sys.spawn(arg)))
  io.stdout:flush()
  repeat
    local how, _, none_left = sys.wait(-1)
    if not how then sys.sleep(0.005) end
  until none_left
]]

-- start(server, words as for command.start) → the adopting process, the pid of the command, which
-- ends with it
function adopted.start(server, words)
  local env = command.environment(server, words.env)
  local child = process.lua { code = ADOPTER, args = command.line(words), env = env }
  local pid = child:wait_output("command (%d+)")
  if not pid then error("not started: " .. child:output()) end
  return child, tonumber(pid)
end

return adopted
