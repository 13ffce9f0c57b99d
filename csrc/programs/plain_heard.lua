--#fragment
local heard = redis.pcall('PUBLISH', RELEASES, '0')
