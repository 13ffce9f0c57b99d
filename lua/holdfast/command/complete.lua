-- holdfast complete: prints locks' keys for shell completion. The help does not list this
-- subcommand.

local exits = require "holdfast.command.exits"
local locks = require "holdfast.command.locks"
local output = require "holdfast.command.output"
local shell = require "holdfast.command.shell"
local subcommand = require "holdfast.command.subcommand"

local complete = {}

complete.usage = "holdfast complete -- bash LINE WORD | zsh"
complete.takes_several_servers = true
complete.options = subcommand.options(complete, {})

local function has_marker(words)
  for _, word in ipairs(words) do
    if word == "--" then return true end
  end
  return false
end

-- Returns the completions for `word`. Readline replaces this word, which is the end of `line`.
function complete.bash(keys, line, word)
  local head = line:sub(1, #line - #word)
  local words, typed = shell.read(line)
  local _, before, quote = shell.read(head)
  local completions = {}
  if not typed or not before or head .. word ~= line then return completions end
  for _, key in ipairs(keys) do
    local is_option = key:sub(1, 1) == "-" and not has_marker(words)
    if not is_option and key:sub(1, #typed) == typed then
      completions[#completions + 1] = shell.quote(key:sub(#before + 1), quote)
    end
  end
  return completions
end

-- Returns the distinct keys that can be passed as a program's argument.
local function keys_of(entries)
  local keys, seen = {}, {}
  for _, entry in ipairs(entries) do
    local key = entry.key
    if not seen[key] and not key:find("\0", 1, true) then keys[#keys + 1] = key end
    seen[key] = true
  end
  return keys
end

function complete.main(args)
  return subcommand.run(complete, "complete", args, 1, 3, function(client, _, words, out)
    local entries, message, code = locks.all(client)
    if not entries then return subcommand.failed(out, message, code) end
    local keys = keys_of(entries)
    if words[1] == "zsh" then
      for _, key in ipairs(keys) do io.stdout:write(key, "\0", output.name(key), "\0") end
    else
      local completions = complete.bash(keys, words[2] or "", words[3] or "")
      for _, text in ipairs(completions) do output.print(text) end
    end
    return exits.OK
  end)
end

return complete
