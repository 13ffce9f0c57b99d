-- Runs commands that write, unless a later holder of the lock has written to this resource. A
-- client numbers its calls, so that a call that is sent twice runs only once.
--
-- KEYS[1] the fence; KEYS[2], … the keys of the commands
-- ARGV[1] token, ARGV[2] the lock's key, ARGV[3] the client's uuid, ARGV[4] the number of this call
-- ARGV[5] minimum TTL of the fence in ms, "0": none, the fence never expires
-- ARGV[6], … for each command the number of its arguments, then these arguments
--
-- { 1, replies } the commands have run, now or when the first copy of this call arrived
-- { 0, token } a higher token was accepted; { -1, key } the resource belongs to another lock
-- { -2 } a later call of this client has already run
local FENCE, TOKEN, LOCK, WRITER, NUMBER, TTL_MS =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local stored = redis.call('HMGET', FENCE, 'token', 'lock', WRITER)
local highest = tonumber(stored[1]) or 0
if highest >= 9007199254740992 then highest = 0 end -- not a token: tokens are below 2^53
if stored[2] and stored[2] ~= LOCK then return { -1, stored[2] } end
if tonumber(TOKEN) < highest then return { 0, stored[1] } end
local last, last_replies = (stored[3] or '0 '):match('^(%d+) (.*)$')
if NUMBER == last then return { 1, last_replies } end
if tonumber(NUMBER) < tonumber(last) then return { -2 } end

-- If the server refuses this first write, nothing has changed.
redis.call('HSET', FENCE, 'token', TOKEN, 'lock', LOCK)
if tonumber(TOKEN) > highest then
  for _, field in ipairs(redis.call('HKEYS', FENCE)) do
    if field ~= 'token' and field ~= 'lock' then redis.call('HDEL', FENCE, field) end
  end
end

-- Encodes a reply in the format that lua/holdfast/record.lua reads.
local function encode(value)
  if type(value) == 'number' then return string.format('D%.0f;', value) end
  if type(value) == 'string' then return 'S' .. #value .. ':' .. value end
  if type(value) ~= 'table' then return 'F' end -- false: a nil reply
  if value.ok then return encode(value.ok) end
  if value.err then return '{' .. encode('err') .. encode(value.err) .. '}' end
  local out = {}
  for i, element in ipairs(value) do out[i] = encode(i) .. encode(element) end
  return '{' .. table.concat(out) .. '}'
end

local index, replies = 6, {}
while ARGV[index] do
  local last_index = index + tonumber(ARGV[index])
  local reply = redis.pcall(unpack(ARGV, index + 1, last_index))
  replies[#replies + 1] = encode(reply)
  if type(reply) == 'table' and reply.err then break end
  index = last_index + 1
end

local encoded_replies = table.concat(replies)
redis.call('HSET', FENCE, WRITER, NUMBER .. ' ' .. encoded_replies)
local left_ms = stored[1] and redis.call('PTTL', FENCE) or 0
if TTL_MS == 0 then
  redis.call('PERSIST', FENCE)
elseif left_ms ~= -1 and left_ms < TTL_MS then
  redis.call('PEXPIRE', FENCE, ARGV[5])
end
return { 1, encoded_replies }
