--#fragment
-- A common case, in straight-line code: see acquire.lua. Queues WAITER behind the present waiters
-- and ends the program with the reply. The program continues if nobody is waiting, if WAITER is
-- already in QUEUE, or if it must record the age of a lock's queue (acquiring.lua). ttl_ms: the
-- time for which the lock or permit remains taken. Reads call and time.
local last = (call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2] or 0) + 0
if last > FRONT_MAX and last < PLACE_END then
  local place = time[1] .. ('00000' .. time[2]):sub(-6)
  local us = place + 0
  if us <= last then
    local low = (last + 1) % 1e7 -- as digits of clock.lua
    place = string.format('%d%07d', (last + 1 - low) / 1e7, low)
  end
  -- Byte 108 is "l", a lock's waiter; byte 102 is "f", the record. From 6.75e15 µs on, clock.lua
  -- maps the clock to another time.
  local usual = us - us % LOCK_PROBE_US <= last or us < 6.75e15 and (WAITER:byte(2) ~= 108
    or call('ZRANGE', QUEUE, '0', '0')[1]:byte(2) == 102)
  if usual and call('ZADD', QUEUE, 'NX', place, WAITER) == 1 then
    return { 0, ttl_ms, call('ZCARD', QUEUE) - 1, 0, place }
  end
end
