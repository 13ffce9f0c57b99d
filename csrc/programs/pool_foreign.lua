--#fragment
-- Sets foreign: whether Redisson has one of the permits, among those that end first, or last: one
-- without an end is there. It may have, where the server refuses to tell.
local ids = redis.pcall('ZRANGE', LEASES, '0', '9')
local foreign = ids.err ~= nil
for _, id in ipairs(ids) do foreign = foreign or id:sub(1, 2) ~= 'hf' end
if #ids == 10 and not foreign then
  ids = redis.call('ZRANGE', LEASES, '-10', '-1')
  for _, id in ipairs(ids) do foreign = foreign or id:sub(1, 2) ~= 'hf' end
end
