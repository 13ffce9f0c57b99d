--#include "hash.lua"
-- As extend.lua, of a fair lock, whose queue is a list.
--#include "extending.lua"
if shorter then
--#include "releases.lua"
  local first = redis.pcall('LINDEX', KEYS[2], 0)
  if type(first) == 'string' then announce(ARGV[5] .. ':' .. first) end
end
return 1
