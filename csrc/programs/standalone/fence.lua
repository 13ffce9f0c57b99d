-- Runs commands that write, unless a later holder of the lock has written to this resource. A
-- client numbers its calls, so a call that is sent twice runs once.
--
-- KEYS[1] the fence; KEYS[2], … the keys of the commands
-- ARGV[1] token, ARGV[2] the lock's key, ARGV[3] the client's uuid, ARGV[4] the number of this call
-- ARGV[5] minimum TTL of the fence in ms, "0": none, the fence never expires
-- ARGV[6], … for each command its number of words, and the words
--
-- { 1, answers } the commands have run, now or when this call arrived before
-- { 0, token } a higher token was accepted; { -1, key } the resource belongs to another lock
-- { -2 } a later call of this client has already run
local FENCE, TOKEN, LOCK, WRITER, NUMBER, TTL_MS =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local was = redis.call('HMGET', FENCE, 'token', 'lock', WRITER)
local highest = tonumber(was[1]) or 0
if highest >= 9007199254740992 then highest = 0 end -- 2^53 is above every token
if was[2] and was[2] ~= LOCK then return { -1, was[2] } end
if tonumber(TOKEN) < highest then return { 0, was[1] } end
local last, kept = (was[3] or '0 '):match('^(%d+) (.*)$')
if NUMBER == last then return { 1, kept } end
if tonumber(NUMBER) < tonumber(last) then return { -2 } end

-- The first write: if the server refuses writes, nothing has changed.
redis.call('HSET', FENCE, 'token', TOKEN, 'lock', LOCK)
if tonumber(TOKEN) > highest then
  for _, field in ipairs(redis.call('HKEYS', FENCE)) do
    if field ~= 'token' and field ~= 'lock' then redis.call('HDEL', FENCE, field) end
  end
end

-- The format that lua/holdfast/record.lua reads.
local function encoded(value)
  if type(value) == 'number' then return string.format('D%.0f;', value) end
  if type(value) == 'string' then return 'S' .. #value .. ':' .. value end
  if type(value) ~= 'table' then return 'F' end -- a nil reply
  if value.ok then return encoded(value.ok) end
  if value.err then return '{' .. encoded('err') .. encoded(value.err) .. '}' end
  local out = {}
  for i, one in ipairs(value) do out[i] = encoded(i) .. encoded(one) end
  return '{' .. table.concat(out) .. '}'
end

local at, answers = 6, {}
while ARGV[at] do
  local stop = at + tonumber(ARGV[at])
  local reply = redis.pcall(unpack(ARGV, at + 1, stop))
  answers[#answers + 1] = encoded(reply)
  if type(reply) == 'table' and reply.err then break end
  at = stop + 1
end

local all = table.concat(answers)
redis.call('HSET', FENCE, WRITER, NUMBER .. ' ' .. all)
local left = was[1] and redis.call('PTTL', FENCE) or 0
if TTL_MS == 0 then
  redis.call('PERSIST', FENCE)
elseif left ~= -1 and left < TTL_MS then
  redis.call('PEXPIRE', FENCE, ARGV[5])
end
return { 1, all }
