--#fragment
-- Sets foreign: whether Redisson has one of the permits, among those that end first, or last: one
-- without an end is there.
local ids, foreign = redis.call('ZRANGE', LEASES, '0', '9'), false
for _, id in ipairs(ids) do foreign = foreign or id:sub(1, 2) ~= 'hf' end
if #ids == 10 and not foreign then
  ids = redis.call('ZRANGE', LEASES, '-10', '-1')
  for _, id in ipairs(ids) do foreign = foreign or id:sub(1, 2) ~= 'hf' end
end
