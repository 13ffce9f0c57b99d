-- The minimum cost of a hand-off for the server: scripts with those commands of holdfast's programs
-- that its guarantees need, without any checks. One client plays an owner and 32 waiters
-- (bench/queue.lua). Holdfast's programs for a lock and a mutex run in alternating rounds with
-- them.

local cost = require "bench.cost"
local crowd = require "spec.support.crowd"
local queue = require "bench.queue"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local OWNERS, TURNS, ROUNDS = 33, 330, 15

local BARE_ACQUIRE = [[
local LOCK, COUNTER, QUEUE, OWNER, WAITER = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[7]
if WAITER ~= '' then
  local ttl_ms, holder = redis.call('PTTL', LOCK), redis.call('HKEYS', LOCK)[1]
  local last = redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2]
  local time = redis.call('TIME')
  local place = last and string.format('%.0f', last + 1) or time[1] .. '000000'
  redis.call('ZADD', QUEUE, 'NX', place, WAITER)
  return { 0, ttl_ms, redis.call('ZCARD', QUEUE) - 1, 0, place, holder }
end
redis.call('EXISTS', LOCK, QUEUE)
redis.call('TIME')
redis.call('SET', COUNTER, '8', 'KEEPTTL', 'GET')
redis.call('HSET', LOCK, OWNER, '1')
redis.call('PEXPIRE', LOCK, ARGV[5])
return 8]]

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
redis.call('TIME')
redis.call('SET', COUNTER, '8', 'KEEPTTL', 'GET')
redis.call('HSET', LOCK, member:sub(3, -11), '1')
redis.call('PEXPIRE', LOCK, GRANT_MS)
redis.call('ZADD', QUEUE, '0', member)
redis.call('PUBLISH', channel,
  '1 grant l ' .. member:sub(40, -11) .. ' ' .. two[i + 1] .. ' 8 ' .. GRANT_MS .. ' ' .. LOCK)
return 1]]

assert(sys.pin(0, 0))
local server = redis.start()
local programs = { crowd.program "acquire", crowd.program "release" }
local free = queue.new(server, "bench:free", OWNERS, "l", programs[1], programs[2])
local lock = queue.new(server, "bench:lock", OWNERS, "l", programs[1], programs[2])
local bare = queue.new(server, "bench:bare", OWNERS, "l", BARE_ACQUIRE, BARE_RELEASE)
local mutex = queue.new(server, "bench:mutex", OWNERS, "m", crowd.program "mutex_acquire",
  crowd.program "mutex_release")
local SUBJECTS = {
  { "a cycle", function() free:cycles(TURNS) end },
  { "a hand-off among 32", function() lock:hand_offs(TURNS) end },
  { "its commands alone", function() bare:hand_offs(TURNS) end },
  { "a hand-off of a mutex among 32", function() mutex:hand_offs(TURNS) end },
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
