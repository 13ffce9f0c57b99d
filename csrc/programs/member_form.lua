--#fragment
-- A waiter's member of a queue: kind, client, number, token ttl, owner
local MEMBER = '^1(%l)([%x-]+):(%d+):(%d+) ?(.*)$'
