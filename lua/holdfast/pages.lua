-- Reads data page by page, because other clients may have made it too large for one reply. A page
-- that is too large is requested again with fewer items.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local replies = require "holdfast.replies"

local pages = {}

local SHRINK_FACTOR = 8 -- the size of a page that was too large is divided by this number
-- The maximum size in bytes of a Redis key that holdfast uses: a lock's key with prefix and suffix.
local MAX_NAME_SIZE = 1048576 + 256
local MAX_NAMES_SIZE = 3145728 -- bytes of all names in a page of SCAN_SHORT_NAMES

-- One step of SCAN that drops names too long to be holdfast's. The reply also contains the number
-- of short enough names that did not fit.
local SCAN_SHORT_NAMES = [[
local args = { 'SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1 }
if ARGV[5] ~= '' then args[7], args[8] = 'TYPE', ARGV[5] end
local reply = redis.call(unpack(args))
local names, size, left_out = {}, 0, 0
for _, name in ipairs(reply[2]) do
  if #name <= ARGV[3] + 0 then
    if size + #name <= ARGV[4] + 0 then
      names[#names + 1], size = name, size + #name
    else
      left_out = left_out + 1
    end
  end
end
return { reply[1], names, left_out }
]]

-- Returns whether a command failed because its reply was too large.
function pages.is_too_large(message, code)
  return code == "unreachable" and message:find(core.wire.too_large, 1, true) ~= nil
end

-- Calls ask(count) → reply, message, code with smaller and smaller counts, down to 1, until a reply
-- is not too large. → the last reply, message, code, the last count
function pages.retry_smaller(count, ask)
  while true do
    local reply, message, code = ask(count)
    local is_last = count == 1 or not pages.is_too_large(message, code)
    if is_last then return reply, message, code, count end
    count = math.max(1, math.floor(count / SHRINK_FACTOR))
  end
end

local function scan_short_names(client, node, cursor, pattern, key_type)
  local reply, message, code = driver.command(client,
    { "EVAL", SCAN_SHORT_NAMES, 0, cursor, pattern, MAX_NAME_SIZE, MAX_NAMES_SIZE, key_type or "" },
    node)
  if code then return nil, message, code end
  return replies.check("SCAN", reply, client)
end

-- Runs one step of SCAN on a node. Names too long to be holdfast's may be missing.
-- → { cursor, names, the number of names that did not fit | nil }, nil, nil, the last count
-- | nil, message, code, the last count
function pages.scan(client, node, cursor, pattern, key_type, count)
  local args = { "SCAN", cursor, "MATCH", pattern, "COUNT", count, key_type and "TYPE", key_type }
  local reply, message, code, last_count = pages.retry_smaller(count, function(limit)
    args[6] = limit
    return replies.command(client, args, node)
  end)
  if pages.is_too_large(message, code) then
    reply, message, code = scan_short_names(client, node, cursor, pattern, key_type)
  end
  return reply, message, code, last_count
end

return pages
