--#fragment
--#section note
-- Each call keeps its reply in a note, so that a call that is sent twice counts once.
--
-- KEYS[2] the note of this call; ARGV[1] ms for which it is kept
local NOTE = KEYS[2]

-- Writes the note. If the server refuses that, undoes the call and fails, because without a note a
-- resent call would count again. The arguments after `reply` are the command that undoes the call;
-- none: there is nothing to undo. → reply
local function note(reply, ...)
  local text = string.format('%.0f', reply)
  if redis.pcall('SET', NOTE, text, 'PX', ARGV[1]).err then
    if ... then redis.call(...) end
    redis.call('SET', NOTE, text, 'PX', ARGV[1])
  end
  return reply
end
--#end

--#section noted
-- Defines noted: the reply of this call if it has already run, otherwise false.
local noted = redis.call('GET', NOTE)
--#end
