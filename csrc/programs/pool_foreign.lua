--#fragment
-- Whether Redisson has one of the permits, among the first that end.
local function is_foreign()
  for _, id in ipairs(redis.call('ZRANGE', LEASES, '0', '9')) do
    if id:sub(1, 2) ~= 'hf' then return true end
  end
  return false
end
