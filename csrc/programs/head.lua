--#fragment
-- The common case in straight lines, because making functions takes longer than running them: a
-- caller that neither holds the lock nor waits for it finds it free, without a queue; the token is
-- the clock, and the counter's TTL lasts (token.lua) or begins. Anything else is left to the text
-- behind it, which finds everything as it was: a lock without fencing, one whose counter has no
-- end, a guard, a quorum, an owner that keeps the lock (its number begins with 0), and a counter
-- that is no number, that Java has drawn from, or that is ahead of the clock. A server before 6.2
-- does not know this SET, and refuses it each time.
local LOCK, COUNTER, QUEUE, RELEASES, OWNER = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local SHORT = not ARGV[4]
local LEASE, TOKEN_TTL = ARGV[SHORT and 2 or 5], ARGV[SHORT and 3 or 6]
local FREE = (SHORT or ARGV[3] == '0' and ARGV[7] == '') and redis.call('EXISTS', LOCK, QUEUE) == 0
if FREE and TOKEN_TTL ~= '0' and #TOKEN_TTL < 16 and not ARGV[8] and OWNER:byte(38) ~= 48 then
  local call, ttl_ms = redis.call, TOKEN_TTL
  local time, drawn, text = call('TIME'), false, nil
--#include "drawing.lua"
  if drawn then
--#include "taking.lua"
    return { 1, text + 0, 0 }
  end
end
local ARGV = SHORT and { OWNER, '2000', '0', '0', LEASE, TOKEN_TTL, '' } or ARGV
local GRANT_MS = ARGV[2]
