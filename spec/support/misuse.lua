-- Asserts that calls raise errors at their caller's line.

local assert = require "luassert"

local unpack = table.unpack or unpack

local misuse = {}

-- Asserts that `fn` raises an error at one of its lines, and that all patterns match the message.
function misuse.raises(fn, ...)
  local ok, message = pcall(fn)
  assert.is_false(ok, "nothing was raised")
  assert.is_string(message)
  local info = debug.getinfo(fn, "S")
  local file, line, text = message:match("^(.-):(%d+): (.*)$")
  assert.equal(info.short_src, file, message)
  line = tonumber(line)
  assert.is_true(line >= info.linedefined and line <= info.lastlinedefined, message)
  for _, pattern in ipairs { ... } do assert.matches(pattern, text) end
end

-- Asserts that the call with these arguments raises an error at its caller's line, and that all
-- patterns match the message.
function misuse.refuses(patterns, call, ...)
  local arguments, count = { ... }, select("#", ...)
  misuse.raises(function() local _ = call(unpack(arguments, 1, count)) end, unpack(patterns))
end

-- The same if the message begins with `text`.
function misuse.says(text, call, ...)
  misuse.refuses({ "^" .. text:gsub("%p", "%%%0") }, call, ...)
end

return misuse
