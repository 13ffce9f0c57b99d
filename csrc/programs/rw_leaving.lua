--#fragment
-- The common release in straight lines, as in head.lua: nobody of ours waits, and the hold is the
-- only one of its owner. Others may go on reading: a lock that would end with this reader is made
-- to end with the last of them. What needs more is left to the text behind it, such as dead readers
-- to forget, or a writer that reads.
if TO == 0 and holds == 1 and redis.call('EXISTS', QUEUE) == 0 then
  local call, left = redis.call, redis.call('HLEN', LOCK) - 2
  local tag = (LOCK:find('{', 1, true) and LOCK or '{' .. LOCK .. '}') .. ':'
  local reads = OWNER:sub(-6) ~= ':write'
  local own = tag .. OWNER .. ':rwlock_timeout:1'
  if left == 0 then
    call('DEL', LOCK)
    if reads then call('DEL', own) end
    if announce(RELEASES, reads and '0' or '1') == 0 then return 1 end
    holds = 0
  elseif left <= 100 and call('HGET', LOCK, 'mode') == 'read' then -- MANY of rw.lua
    local own_ms, lock_ms = call('PTTL', own), call('PTTL', LOCK)
    local longest, fields = own_ms < lock_ms and own_ms or 0, nil
    if longest == 0 then fields = call('HGETALL', LOCK) end
    for i = 1, fields and #fields or 0, 2 do
      local owner, count = fields[i], fields[i + 1]
      if owner ~= OWNER and owner ~= 'mode' then
        local ms = count == '1' and call('PTTL', tag .. owner .. ':rwlock_timeout:1') or 0
        longest = ms > 0 and math.max(longest, ms) or nil
        if not longest or longest >= own_ms then break end
      end
    end
    if longest then
      call('DEL', own)
      call('HDEL', LOCK, OWNER)
      if longest < own_ms then call('PEXPIRE', LOCK, longest) end
      return 1
    end
  end
end
