--#fragment
-- Whether Redisson has one of the permits, among those that end first, or last: one without an end
-- is there.
local function has_foreign(ids)
  for _, id in ipairs(ids) do
    if id:sub(1, 2) ~= 'hf' then return true end
  end
  return false
end

local function is_foreign()
  local ids = redis.call('ZRANGE', LEASES, '0', '9')
  return has_foreign(ids)
    or #ids == 10 and has_foreign(redis.call('ZRANGE', LEASES, '-10', '-1'))
end
