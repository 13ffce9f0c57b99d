--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/token.lua"
--#include "read_write/rw.lua"
--#include "CHANNEL:announcing"
--#include "read_write/rw_token.lua"
--#include "base/owners.lua:ours"
--#include "queue/placing.lua"
--#include "queue/passing_over.lua:first_in_line"
--#include "read_write/rw_queue.lua"
--#include "base/owners.lua:redisson_owner"
-- Takes the lock away from all readers and writers, and passes it on. A key that is not a
-- read/write lock is left unchanged: a lock is a hash with a TTL, a mode, and owners of the form
-- <uuid>:<n> with their counts. Not safe to resend: it would hit the next holder.
--
-- ARGV[3] holder  only if the lock has this field, a reader or the writer; may be left out
--
-- 1 it was locked; 3 the same, but waiters remain to be served: call rw_leave.lua; 0 it was free,
-- or only others hold it
local kind = redis.call('TYPE', LOCK).ok
if kind == 'none' then return 0 end
if kind ~= 'hash' then return redis.error_reply('WRONGTYPE the key holds a ' .. kind) end
local function is_read_write(fields)
  local mode
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    if name == 'mode' then
      mode = value == 'read' or value == 'write' or value:find('^drain:%d+$')
    elseif not name:gsub(':write$', ''):find(REDISSON_OWNER) or not tonumber(value) then
      return false
    end
  end
  return mode
end

local fields = redis.call('HGETALL', LOCK)
if not is_read_write(fields) or redis.call('PTTL', LOCK) < 0 then
  return redis.error_reply('WRONGTYPE the key is not a read/write lock')
end
if ARGV[3] and redis.call('HEXISTS', LOCK, ARGV[3]) == 0 then return 0 end
for i = 1, #fields, 2 do
  delete_leases(LOCK, fields[i], 0, tonumber(fields[i + 1]) or 0)
end
redis.call('DEL', LOCK)
return pass_on('1')
