--#fragment
-- What more there is to a reentrant lock: see hash.lua.

-- Sets the count; never shortens a TTL. It always writes, so that a WAIT behind it waits for what
-- it wrote.
local function set_holds(lock, owner, holds, ms, print)
  if write_hold(lock, owner, holds, print) > 0 then
--#include "ending.lua"
  elseif redis.call('PTTL', lock) < tonumber(ms) then
    redis.call('PEXPIRE', lock, ms)
  end
end

-- Fields that stand beside owners, and whose they are: alone, such a field is an owner itself.
local BESIDE = { print = 'guard', done = 'guard', by = 'guard', mode = 'read_write' }

-- → the holder, nil: there is none; the count of `owner`, if that is it; what has the key: "lock",
-- "guard", "read_write", nil: it is gone
local function holder_of(lock, owner)
  local fields = redis.call('HKEYS', lock)
  local holder, kind = nil, fields[1] and 'lock'
  for _, field in ipairs(fields) do
    local beside = fields[2] and BESIDE[field]
    if beside then kind = beside else holder = field end
  end
  return holder, holder and holder == owner and holds_of(lock, owner) or nil, kind
end
