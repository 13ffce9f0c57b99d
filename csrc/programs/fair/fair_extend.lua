--#include "lock/hash.lua:layout"
-- Does what extend.lua does, for a fair lock, whose queue is a list.
--#include "lock/extend.lua:extending"
if shorter then
--#include "CHANNEL:announcing"
  local first = redis.pcall('LINDEX', KEYS[2], 0)
  if type(first) == 'string' then announce(ARGV[5] .. ':' .. first) end
end
return 1
