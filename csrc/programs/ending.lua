--#fragment
-- Sets the TTL of the lock that the program has just created. If the server refuses that, the lock
-- is removed, because it would never end, and the program fails. Reads lock and ms.
if redis.pcall('PEXPIRE', lock, ms) ~= 1 then
  redis.call('DEL', lock)
  redis.call('PEXPIRE', lock, ms)
end
