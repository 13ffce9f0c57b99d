--#include "lock/hash.lua:layout"
-- Extends a fair lock, whose queue is a list, like extend.lua does for other locks.
--#include "lock/extend.lua:extending"
if is_shortened then
--#include "CHANNEL:announcing"
  local first = redis.pcall('LINDEX', KEYS[2], 0)
  if type(first) == 'string' then announce(ARGV[5] .. ':' .. first) end
end
return 1
