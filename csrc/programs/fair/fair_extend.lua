--#include "lock/hash.lua:layout"
-- Extends a fair lock, whose queue is a list. Has the arguments and replies of extend.lua.
--#include "lock/extend.lua:extending"
if is_shortened then
--#include "CHANNEL:announcing"
  local first = redis.pcall('LINDEX', KEYS[2], 0)
  if type(first) == 'string' then announce(ARGV[5] .. ':' .. first) end
end
return 1
