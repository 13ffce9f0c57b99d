-- The history of a chaos round in the format that spec/porcupine checks: a line for each operation,
--
--   <key> <kind> <process> <start> <stop> <owner> <token>
--
-- with times in microseconds. A stop of -1 means that it may take effect at any later time. Kinds:
--
--   take     the owner acquires or re-enters the lock, with this token
--   holds    the owner holds the lock
--   free     the owner releases its last hold
--   maybe    the owner may have released its last hold
--   end      from here on the owner's lease is over, as far as it knew
--
-- Counts, shared owners and rounds that lose data are left to the project's own checker.

local export = {}

local GOOD = { ok = true, ["true"] = true }

local function line(kind, op, token, start, stop)
  return ("%s %s %s %.0f %.0f %s %.0f"):format(op.key, kind, op.by, start * 1e6, stop and stop * 1e6
    or -1, op.owner,
    token)
end

-- → kind | nil if the operation is not exported
local function kind_of(op)
  local good, last = GOOD[op.result], tonumber(op.count) == 1
  if op.what == "acquire" then return good and "take" or nil end
  if op.what == "claim" then return "holds" end
  if op.what == "release" and good then return last and "free" or "holds" end
  if op.what == "check" or op.what == "extend" then return good and "holds" or nil end
  local lost = op.result == "lost" or op.result == "not_held"
  if (op.what == "release" or op.what == "drop") and last and not lost then return "maybe" end
end

-- `ops`: from history.read. → lines
function export.lines(ops)
  local lines, tokens, holds, order = {}, {}, {}, {}
  for _, op in ipairs(ops) do
    local slot = op.owner and op.key and op.owner ~= "shared" and op.owner .. " " .. op.key
    if slot then
      local kind = kind_of(op)
      if kind == "take" or op.what == "claim" then tokens[slot] = op.token end
      local token = tokens[slot]
      if kind and token then
        local name = slot .. " " .. token
        if not holds[name] then
          holds[name] = { op = op, token = token, till = op.stop }
          order[#order + 1] = holds[name]
        end
        if op.what == "claim" then holds[name].till = op.valid end
        if kind == "free" then holds[name].freed = true end
        lines[#lines + 1] = line(kind, op, token, op.start, kind ~= "maybe" and op.stop or nil)
      -- the extend may have been carried out
      elseif op.what == "extend" and token and holds[slot .. " " .. token] then
        local hold = holds[slot .. " " .. token]
        hold.till = math.min(hold.till, op.start + op.seconds)
      end
    end
  end
  for _, hold in ipairs(order) do
    if not hold.freed then lines[#lines + 1] = line("end", hold.op, hold.token, hold.till) end
  end
  return lines
end

function export.write(path, ops)
  local file = assert(io.open(path, "w"))
  file:write(table.concat(export.lines(ops), "\n"), "\n")
  file:close()
end

return export
