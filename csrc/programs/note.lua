--#fragment
-- Each call leaves a note of its reply, so that one that is sent twice counts once.
--
-- KEYS[2] the note of this call; ARGV[1] ms for which it stays
local NOTE = KEYS[2]

local function note(reply)
  redis.call('SET', NOTE, string.format('%.0f', reply), 'PX', ARGV[1])
  return reply
end
