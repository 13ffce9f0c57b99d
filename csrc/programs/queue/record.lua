--#fragment
-- The record of what is known about foreign clients. It is a member of the queue, before the
-- waiters: "1f <turns> <unused> <holders> <run>" with a score below -1. Until the server's clock
-- shows -score ms, the free lock, or one free permit of a semaphore, is left to those clients.
--
-- turns      our turns since a foreign client had the lock; 0: such a client has it, or had it last
-- unused     how often in a row the free lock was left to foreign clients and none of them took it;
--            0 for a semaphore
-- holders    how many foreign holders our first waiter saw in their last run, at most MAX_HOLDERS;
--            "-": the lock is left to the clients that listen to its channel, while there are any;
--            if turns > 0: it was left to them, and none was seen to take it
-- run        for how many ms foreign clients last had the lock; -score is then the ms at which that
--            ended. While the lock is left to listening clients: the ms beyond LISTEN_MS for which
--            it is left to them
--#section reading
local LISTEN_MS, MAX_LISTEN_MS = 50, 200 -- how long the lock is left to listening clients
--#section now
-- → the server's clock in ms
local function now_ms()
  return math.floor(server_us() / 1000)
end
--#end

-- → the record, if these first members begin with one
local function record_in(members)
  local score = tonumber(members[2])
  if not score or score >= 0 then return nil end
  local turns, unused, holders, run = members[1]:match('^1f (%d+) (%d+) ([%d-]) (%d+)$')
  return turns and {
    member = members[1], till = -score, turns = tonumber(turns), unused = tonumber(unused),
    holders = holders, listeners = holders == '-', run = tonumber(run),
    -- the ms at which the lock was left to them, or their run began; not during a run of ours
    began = turns ~= '0' and math.huge or holders == '-' and -score - LISTEN_MS - run or -score,
  }
end
--#end

local function first_members()
  return redis.call('ZRANGE', QUEUE, '0', '1', 'WITHSCORES')
end

-- Replaces the record. Adds the new member first, because a queue that has no other member would
-- otherwise lose its TTL.
local function write_record(record, turns, unused, holders, run, till)
  local member = ('1f %d %d %s %.0f'):format(turns, unused, holders, run)
  redis.call('ZADD', QUEUE, string.format('%.0f', -till), member)
  if record and record.member ~= member then redis.call('ZREM', QUEUE, record.member) end
end
