-- The least that a hand-off costs the server: scripts that run the commands of holdfast's programs,
-- all of which its guarantees need, and check nothing. One client plays an owner and 32 waiters, so
-- no other process runs in between and all caches are warm. Beside it, in alternating rounds,
-- holdfast's programs, for a lock and a mutex.

local cost = require "bench.cost"
local crowd = require "spec.support.crowd"
local redis = require "spec.support.redis"
local report = require "bench.report"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"

local OWNERS, TURNS, ROUNDS = 33, 330, 15
local GRANT, LEASE, TTL = 2000, 30000, 604800000

local BARE_ACQUIRE = [[
local LOCK, COUNTER, QUEUE, OWNER, WAITER = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[7]
if WAITER ~= '' then
  local ttl_ms, holder = redis.call('PTTL', LOCK), redis.call('HKEYS', LOCK)[1]
  local last = redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2]
  local place = last and string.format('%.0f', last + 1) or redis.call('TIME')[1] .. '000000'
  redis.call('ZADD', QUEUE, 'NX', place, WAITER)
  return { 0, ttl_ms, redis.call('ZCARD', QUEUE) - 1, 0, place, holder }
end
redis.call('EXISTS', LOCK, QUEUE)
redis.call('GET', COUNTER)
redis.call('PTTL', COUNTER)
redis.call('TIME')
redis.call('INCRBY', COUNTER, '8')
redis.call('HSET', LOCK, OWNER, '1')
redis.call('PEXPIRE', LOCK, ARGV[5])
return { 1, 8, 0 }]]

local BARE_RELEASE = [[
local LOCK, COUNTER, QUEUE, RELEASES, GRANT_MS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[2]
redis.call('HDEL', LOCK, ARGV[1])
local two = redis.call('ZRANGE', QUEUE, '0', '1', 'WITHSCORES')
if #two == 0 then
  redis.call('PUBLISH', RELEASES, '0')
  return 1
end
local i = two[2] == '0' and 3 or 1
local member = two[i]
local channel = 'holdfast_grant:' .. member:sub(3, 38)
redis.call('PUBSUB', 'NUMSUB', RELEASES, channel)
if i == 3 then redis.call('ZREM', QUEUE, two[1]) end
redis.call('GET', COUNTER)
redis.call('PTTL', COUNTER)
redis.call('TIME')
redis.call('INCRBY', COUNTER, '8')
redis.call('HSET', LOCK, member:sub(3, -11), '1')
redis.call('PEXPIRE', LOCK, GRANT_MS)
redis.call('ZADD', QUEUE, '0', member)
redis.call('PUBLISH', channel,
  '1 grant l ' .. member:sub(40, -11) .. ' ' .. two[i + 1] .. ' 8 ' .. GRANT_MS .. ' ' .. LOCK)
return 1]]

local Crowd = {}
Crowd.__index = Crowd
local crowds = 0

local function new_crowd(server, key, letter, acquire, release)
  crowds = crowds + 1
  local self = setmetatable({
    letter = letter, calls = assert(resp.connect { path = server.path }), numbers = {}, events = {},
    uuid = ("%08x-b940-8130-bb64-%%012x"):format(crowds),
    keys = { key, "redisson_lock_token:{" .. key .. "}", crowd.queue_of(key),
      "redisson_lock__channel:{" .. key .. "}" },
  }, Crowd)
  self.acquiring = self.calls:call("SCRIPT", "LOAD", acquire)
  self.releasing = self.calls:call("SCRIPT", "LOAD", release)
  for i = 1, OWNERS do
    self.numbers[i] = 1
    self.events[i] = assert(resp.connect { path = server.path })
    self.events[i]:call("SUBSCRIBE", crowd.channel_of(self:client(i)))
  end
  return self
end

function Crowd:client(i) return self.uuid:format(i) end

function Crowd:call(sha, i, ...)
  return self.calls:call("EVALSHA", sha, 4, self.keys[1], self.keys[2], self.keys[3], self.keys[4],
    self:client(i) .. ":" .. self.numbers[i], GRANT, 0, ...)
end

function Crowd:acquire(i, waits)
  local member = waits
    and ("1%s%s:%d:%d"):format(self.letter, self:client(i), self.numbers[i], TTL) or ""
  local reply = self:call(self.acquiring, i, 0, LEASE, TTL, member)
  return assert(reply[1], reply.err)
end

function Crowd:release(i)
  assert(self:call(self.releasing, i, 0, "") == 1)
  self.numbers[i] = self.numbers[i] + 1
end

function Crowd:cycles()
  for _ = 1, TURNS do
    assert(self:acquire(1) == 1)
    self:release(1)
  end
end

-- Now and then a mutex is left free for clients that poll; then the next one asks until it has it.
function Crowd:hand_over(i)
  local next = i % OWNERS + 1
  self:release(i)
  if self.events[next]:receive()[3]:find("^1 turn ") then
    while self:acquire(next, true) == 0 do sys.sleep(0.05) end
  end
  assert(self:acquire(i, true) == 0)
  return next
end

function Crowd:line_up()
  assert(self:acquire(1) == 1)
  for i = 2, OWNERS do assert(self:acquire(i, true) == 0) end
  self.holder = 1
end

function Crowd:hand_offs()
  for _ = 1, TURNS do self.holder = self:hand_over(self.holder) end
end

assert(sys.pin(0, 0))
local server = redis.start()
local programs = { crowd.program "acquire", crowd.program "release" }
local free = new_crowd(server, "bench:free", "l", programs[1], programs[2])
local lock = new_crowd(server, "bench:lock", "l", programs[1], programs[2])
local bare = new_crowd(server, "bench:bare", "l", BARE_ACQUIRE, BARE_RELEASE)
local mutex = new_crowd(server, "bench:mutex", "m", crowd.program "mutex_acquire",
  crowd.program "mutex_release")
local SUBJECTS = {
  { "a cycle", function() free:cycles() end },
  { "a hand-off among 32", function() lock:hand_offs() end },
  { "its commands alone", function() bare:hand_offs() end },
  { "a hand-off of a mutex among 32", function() mutex:hand_offs() end },
}
for _, each in ipairs { lock, bare, mutex } do each:line_up() end
local times, inside = {}, {}
for i, subject in ipairs(SUBJECTS) do
  times[i] = {}
  subject[2]()
end
for round = 1, ROUNDS do
  for i, subject in ipairs(SUBJECTS) do
    local seen = cost.of(server, TURNS, subject[2])
    times[i][round], inside[i] = seen.time, seen.inside
  end
end
local function ratio(a, b)
  local ratios = {}
  for round = 1, ROUNDS do ratios[round] = times[a][round] / times[b][round] end
  return report.median(ratios)
end
local ratios = { ratio(2, 1), ratio(3, 1), ratio(4, 1) }
for i, subject in ipairs(SUBJECTS) do
  report.row(subject[1] .. ", scripts, µs", report.median(times[i]), "%.2f")
  report.row(subject[1] .. ", commands inside", inside[i], "%.1f")
end
report.row("a hand-off to a cycle, one client", ratios[1], "%.2f")
report.row("its commands alone to a cycle", ratios[2], "%.2f")
report.row("a hand-off of a mutex to a cycle", ratios[3], "%.2f")
server:stop()
