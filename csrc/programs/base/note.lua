--#fragment
--#section note
-- Each call stores its reply in a note, so that a call that is sent twice counts only once.
--
-- KEYS[2] this call's note; ARGV[1] the note's TTL in ms
local NOTE = KEYS[2]

-- Writes the note. If the server refuses that, undoes the call and fails, because without a note a
-- resent call would count again. The arguments after `reply` are the command that undoes the call,
-- if there is something to undo. → reply
local function note(reply, ...)
  local reply_string = string.format('%.0f', reply)
  if redis.pcall('SET', NOTE, reply_string, 'PX', ARGV[1]).err then
    if ... then redis.call(...) end
    redis.call('SET', NOTE, reply_string, 'PX', ARGV[1])
  end
  return reply
end
--#end

--#section earlier_reply
-- Defines earlier_reply: the reply of an earlier copy of this call, or false.
local earlier_reply = redis.call('GET', NOTE)
--#end
