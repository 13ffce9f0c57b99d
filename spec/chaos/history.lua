-- What the processes of a chaos run did, as lines of text in a file per process.
--
--   call id=7 at=12.500001 by=w1 what=acquire key=a owner=w1.2 ...    before an operation
--   done id=7 at=12.523456 result=ok token=... ...                    after it
--   seen id=8 from=12.523470 at=12.523480 by=w1 what=claim ...        an observation, in one line
--
-- Times are seconds of the monotonic clock that all processes of a host share. Each line is a
-- single write to a file opened for appending: a kill loses at most the result of the current call,
-- which then remains open. Values contain no spaces.

local sys = require "spec.support.sys"

local history = {}

-- ---- writing ----

local Writer = {}
Writer.__index = Writer

-- `name`: the process's, unique in its run
function history.writer(path, name)
  local file = assert(io.open(path, "a"))
  file:setvbuf("no")
  return setmetatable({ file = file, name = name, last = 0 }, Writer)
end

local function text_of(value)
  if type(value) ~= "number" then return (tostring(value):gsub("%s+", "_")) end
  return value % 1 == 0 and ("%.0f"):format(value) or ("%.6f"):format(value)
end

local function words(fields)
  local names, list = {}, {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do list[i] = name .. "=" .. text_of(fields[name]) end
  return table.concat(list, " ")
end

-- → id
function Writer:call(fields)
  self.last = self.last + 1
  self.file:write(("call id=%d at=%.6f by=%s %s\n"):format(self.last, sys.now(), self.name,
    words(fields)))
  return self.last
end

function Writer:done(id, fields)
  self.file:write(("done id=%d at=%.6f %s\n"):format(id, sys.now(), words(fields)))
end

-- `from`: when the observation began
function Writer:seen(from, fields)
  self.last = self.last + 1
  self.file:write(("seen id=%d from=%.6f at=%.6f by=%s %s\n"):format(self.last, from, sys.now(),
    self.name,
    words(fields)))
end

-- ---- reading ----

local NUMBERS = {
  id = true, at = true, from = true, wait = true, lease = true, token = true, holds = true,
  valid = true, grant = true, kept = true,
  seconds = true, accepted = true,
}

local function parse(line)
  local kind = line:match("^%a+")
  local fields = {}
  for name, value in line:gmatch("(%a+)=(%S*)") do
    fields[name] = NUMBERS[name] and tonumber(value) or value
  end
  return kind, fields
end

-- Appends a process's operations to `ops`: { start, stop, by, what, result | nil while open, ... }
function history.parse(text, ops)
  local calls = {}
  for line in text:gmatch("([^\n]*)\n") do
    local kind, fields = parse(line)
    if kind == "done" then
      local op = calls[fields.id]
      op.stop = fields.at
      for name, value in pairs(fields) do
        if name ~= "at" then op[name] = value end
      end
    else
      fields.start, fields.stop = fields.from or fields.at, kind == "seen" and fields.at
        or math.huge
      fields.at, fields.from = nil, nil
      ops[#ops + 1] = fields
      calls[fields.id] = fields
    end
  end
  return ops
end

-- Returns the operations of all files, sorted by time. Missing files are skipped.
function history.read(paths)
  local ops = {}
  for _, path in ipairs(paths) do
    local file = io.open(path, "rb")
    if file then
      history.parse(file:read("*a"), ops)
      file:close()
    end
  end
  table.sort(ops, function(a, b) return a.start < b.start end)
  for number, op in ipairs(ops) do op.number = number end
  return ops
end

-- ---- in words ----

local SHOWN = { "key", "owner", "wait", "lease", "seconds", "token", "holds", "valid", "accepted",
  "reason", "how", "place", "why" }

local function shown(name, value, origin)
  if name == "valid" then return ("valid until %.3f"):format(value - origin) end
  if name == "key" or name == "owner" or name == "how" or name == "place" then
    return tostring(value)
  end
  return name .. " " .. text_of(value)
end

-- Returns a line for an operation, with times relative to `origin`.
function history.describe(op, origin)
  local parts = {}
  for _, name in ipairs(SHOWN) do
    if op[name] ~= nil then parts[#parts + 1] = shown(name, op[name], origin) end
  end
  local stop = op.stop < math.huge and ("%9.3f"):format(op.stop - origin) or "     open"
  return ("%9.3f %s  %-6s %-9s %s%s"):format(op.start - origin, stop, op.by, op.what,
    table.concat(parts, ", "),
    op.result and " -> " .. op.result or "")
end

return history
