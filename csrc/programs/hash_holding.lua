--#fragment
-- What more there is to a reentrant lock: see hash.lua.

-- Sets the count; never shortens a TTL. It always writes, so that a WAIT behind it waits for what
-- it wrote.
local function set_holds(lock, owner, holds, ms)
  redis.call('HSET', lock, owner, holds)
  if redis.call('PTTL', lock) < tonumber(ms) then redis.call('PEXPIRE', lock, ms) end
end

-- → the holder, nil: there is none; and the count of `owner`, if that is it. A read/write lock has
-- its mode beside its owners, whose holds are not to be entered here.
local function holder_of(lock, owner)
  local fields, holder, mode = redis.call('HKEYS', lock), nil, false
  for _, field in ipairs(fields) do
    local beside = field == 'print' or field == 'done' or field == 'by' or field == 'mode'
    mode = mode or #fields > 1 and field == 'mode'
    if #fields == 1 or not beside then holder = field end
  end
  return holder, holder and holder == owner and not mode and holds_of(lock, owner) or nil
end
