-- Reads page by page what others may have made too large for one reply. A page that is too large is
-- requested again with fewer items.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local replies = require "holdfast.replies"

local pages = {}

local SHRINKS = 8 -- by which the size of a page that was too large is divided
local LONGEST = 1048576 + 256 -- bytes of a name of holdfast's: a lock's key, and what is added to it
local ROOM = 3145728 -- bytes of the names in a page of SHORT_ONES

-- One step of SCAN that drops names too long to be holdfast's. The reply also tells how many other
-- names it had no room for.
local SHORT_ONES = [[
local words = { 'SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1 }
if ARGV[5] ~= '' then words[7], words[8] = 'TYPE', ARGV[5] end
local reply = redis.call(unpack(words))
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

-- Calls ask(count) → reply, message, code with smaller and smaller counts, down to 1, until the
-- reply is not too large. → the last reply, message, code, the last count
function pages.shrink(count, ask)
  while true do
    local reply, message, code = ask(count)
    local is_last = count == 1 or not pages.is_too_large(message, code)
    if is_last then return reply, message, code, count end
    count = math.max(1, math.floor(count / SHRINKS))
  end
end

local function short_ones(client, node, cursor, pattern, key_type)
  local reply, message, code = driver.command(client,
    { "EVAL", SHORT_ONES, 0, cursor, pattern, LONGEST, ROOM, key_type or "" }, node)
  if code then return nil, message, code end
  return replies.check("SCAN", reply, client)
end

-- Runs one step of SCAN on a node. Names too long to be holdfast's may be missing.
-- → { cursor, names, how many names had no room | nil }, nil, nil, the count that fits | nil,
-- message, code, count
function pages.scan(client, node, cursor, pattern, key_type, count)
  local words = { "SCAN", cursor, "MATCH", pattern, "COUNT", count, key_type and "TYPE", key_type }
  local reply, message, code, fits = pages.shrink(count, function(most)
    words[6] = most
    return replies.command(client, words, node)
  end)
  if pages.is_too_large(message, code) then
    reply, message, code = short_ones(client, node, cursor, pattern, key_type)
  end
  return reply, message, code, fits
end

return pages
