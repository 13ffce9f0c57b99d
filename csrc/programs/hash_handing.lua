--#fragment
-- A part of release.lua: the common hand-over in straight lines, as in head.lua. The first waiter
-- of a lock listens, and has waited for less than LOCK_PROBE_US; nobody waits without a queue, and
-- the token is the clock or there is none. Anything else is left to the text behind it, which
-- finds everything as it was: a record, a guard, and an owner that keeps the lock.
do
  local i = first_few[2] == '0' and 3 or 1 -- behind the mark of the grant that ends
  local member, place = first_few[i], (first_few[i + 1] or ''):match('^[1-9]%d*$')
--#include "member_form.lua"
  local kind, client, number, ttl_ms, owner = (place and member or ''):match(MEMBER)
  if owner == '' then owner = client .. ':' .. number end
  if kind == 'l' and #ttl_ms < 16 and owner:byte(38) ~= 48 then
    local counts = redis.pcall('PUBSUB', 'NUMSUB', RELEASES, 'holdfast_grant:' .. client)
--#include "unqueued.lua"
--#include "places.lua"
    local call = redis.call
    local time = (counts[4] or 0) > 0 and unqueued == 0 and call('TIME')
    if time and time[1] * 1000000 + time[2] - place <= LOCK_PROBE_US then
      local drawn, text = ttl_ms == '0', '0'
      if not drawn then
--#include "drawing.lua"
      end
      if drawn then
        if i == 3 then call('ZREM', QUEUE, first_few[1]) end
        call('HSET', LOCK, owner, '1')
        local lock, ms = LOCK, GRANT_MS
--#include "ending.lua"
        call('ZADD', QUEUE, '0', member)
        redis.pcall('PUBLISH', 'holdfast_grant:' .. client, '1 grant l ' .. number .. ' ' .. place
          .. ' ' .. text .. ' ' .. GRANT_MS .. ' ' .. LOCK)
        return 1
      end
    end
  end
end
