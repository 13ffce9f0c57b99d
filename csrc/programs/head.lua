--#fragment
--#include "free.lua"
-- The common case in straight lines, because making functions takes longer than running them. Where
-- the new token is the clock and the counter's TTL stays as it is, this does what fresh.lua does.
-- Anything else is left to the text behind it, and nothing is written before that is decided: a
-- lock without fencing, a guard, a quorum, an owner that keeps the lock (its number begins with 0),
-- and a counter that is missing, that Java has drawn from, or that is ahead of the clock.
if FREE and TOKEN_TTL ~= '0' and not ARGV[8] and OWNER:byte(38) ~= 48 then
  local call = redis.call
  local last = tonumber(call('GET', COUNTER))
  if last and last >= 0 and last % 8 == 0 then
    local least, ttl_left, time = TOKEN_TTL + 0, call('PTTL', COUNTER), call('TIME')
    local token = time[1] * 1000000 + time[2]
    token = token + -token % 8
    if last < token
      and (ttl_left >= least and ttl_left <= least + least / 64 or ttl_left == -1) then
      call('INCRBY', COUNTER, token - last)
--#include "taking.lua"
      return { 1, token, 0 }
    end
  end
end
