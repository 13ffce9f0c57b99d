--#fragment
-- A common case, in straight-line code: see acquire.lua. Queues WAITER behind the present waiters
-- or, if MAY_BE_FIRST, as the only one, and ends the program with the reply. The program continues
-- if WAITER is already in QUEUE, if it would come first otherwise, or if it must record the age of
-- a lock's queue (acquiring.lua). last: the highest score in QUEUE; 0 or less: nobody waits.
-- ttl_ms: the time for which the lock or permit remains taken. Reads call and time.
if last > FRONT_MAX and last < PLACE_END or MAY_BE_FIRST and last <= 0 then
  local place = time[1] .. ('00000' .. time[2]):sub(-6)
  local us = place + 0
  if us <= last then
    local low = (last + 1) % 1e7 -- as digits of clock.lua
    place = string.format('%d%07d', (last + 1 - low) / 1e7, low)
  end
  -- Byte 108 is "l", a lock's waiter; byte 102 is "f", the record. From 6.75e15 µs on, clock.lua
  -- maps the clock to another time.
  local usual = us - us % LOCK_PROBE_US <= last or us < 6.75e15 and (last <= 0
    or WAITER:byte(2) ~= 108 or call('ZRANGE', QUEUE, '0', '0')[1]:byte(2) == 102)
  if usual and call('ZADD', QUEUE, 'NX', place, WAITER) == 1 then
    if last > 0 then return { 0, ttl_ms, call('ZCARD', QUEUE) - 1, 0, place } end
    call('PEXPIRE', QUEUE, QUEUE_MS)
    return { 0, ttl_ms, 0, 0, place }
  end
end
