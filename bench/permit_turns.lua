-- Turns of a semaphore as the server sees them, without 64 processes next to it: one connection
-- sends what holders and waiters send, another one has their subscriptions.
--
-- BARE is the minimum: a free permit, a wait at the end of the queue, and a hand-over to its head,
-- which is subscribed, with leases and a token. It does not support Redisson, requests for several
-- permits, a lost counter, or a command that arrives twice.

local cost = require "bench.cost"
local resp = require "spec.support.resp"

local WAITERS, PERMITS, GRANT_MS, LEASE_MS, TOKEN_MS = 64, 8, 60000, 60000, 604800000

local ID = [[
local call = redis.call
local LOCK, COUNTER, QUEUE, RELEASES, LEASES = unpack(KEYS)
local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = (us - us % 1000) / 1000
local function id_of(owner)
  return 'hf' .. struct.pack('>I4I4I4I2', tonumber(owner:sub(1, 8), 16),
    tonumber(owner:sub(29, 36), 16), owner:match('%d+', 38) % 4294967296, 1)
end
local function next_token()
  local last, left = tonumber(call('GET', COUNTER) or 0), call('PTTL', COUNTER)
  local token = math.max(last + 1, us)
  token = token + -token % 8
  if left >= 604800000 then
    call('INCRBY', COUNTER, string.format('%d', token - last))
  else
    call('SET', COUNTER, string.format('%d', token), 'PX', 614250000)
  end
  return token
end
]]

local BARE = {
  acquire = ID .. [[
local free = call('GET', LOCK)
if not free then
  free = ARGV[10]
  call('SET', LOCK, free)
end
if tonumber(free) > 0 then
  if call('EXISTS', QUEUE) == 1 then return { 0, 0, 0, 0, '' } end
  call('ZADD', LEASES, string.format('%d', now + ARGV[5]), id_of(ARGV[1]))
  call('INCRBY', LOCK, -1)
  return { 1, next_token() }
end
local first_end = tonumber(call('ZRANGE', LEASES, '0', '0', 'WITHSCORES')[2])
local last = tonumber(call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2]) or 0
local place = string.format('%d', math.max(last + 1, us))
call('ZADD', QUEUE, place, ARGV[7])
return { 0, first_end - now, call('ZCARD', QUEUE) - 1, 0, place }
]],
  release = ID .. [[
if call('ZREM', LEASES, id_of(ARGV[1])) == 0 then return -1 end
if ARGV[6] then call('ZREM', QUEUE, ARGV[6]) end
local head = call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
if not head[1] or call('GET', LOCK) ~= '0' then
  call('PUBLISH', RELEASES, call('INCRBY', LOCK, 1))
  return 1
end
local owner, number = head[1]:match('^1p(.+:(%d+)):%d+$')
local channel = 'holdfast_grant:' .. owner:sub(1, 36)
if call('PUBSUB', 'NUMSUB', channel)[2] == 0 then return 3 end
call('ZADD', LEASES, string.format('%d', now + ARGV[2]), id_of(owner))
local token = string.format('%d', next_token())
call('ZADD', QUEUE, '0', head[1])
call('PUBLISH', channel,
  '1 grant p ' .. number .. ' ' .. head[2] .. ' ' .. token .. ' ' .. ARGV[2] .. ' ' .. LOCK)
return 1
]],
}

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local PROGRAMS = "build/bench/programs"
assert(os.execute(("mkdir -p %s && lua5.4 tools/embed.lua --sent %s"):format(PROGRAMS, PROGRAMS)))

local OURS = {
  acquire = read(PROGRAMS .. "/permit_acquire.lua"), release = read(PROGRAMS .. "/permit_release.lua"),
}

local Crowd = {}
Crowd.__index = Crowd

local function new_crowd(server, texts, key)
  local self = setmetatable({ clients = {}, holders = {}, numbers = 0 }, Crowd)
  self.connection = assert(resp.connect { path = server.path })
  self.listener = assert(resp.connect { path = server.path })
  self.keys = {
    key, "redisson_lock_token:{" .. key .. "}", "holdfast_queue:{" .. key .. "}",
    "redisson_sc:{" .. key .. "}", "{" .. key .. "}:timeout",
  }
  self.sha = {}
  for name, text in pairs(texts) do
    self.sha[name] = self.connection:call("SCRIPT", "LOAD", text)
  end
  return self
end

function Crowd:call(name, owner, ...)
  local call = { "EVALSHA", self.sha[name], 5 }
  for _, argument in ipairs(self.keys) do call[#call + 1] = argument end
  for _, argument in ipairs { owner, GRANT_MS, 0, ... } do call[#call + 1] = argument end
  return self.connection:call(call)
end

function Crowd:acquire(owner, member)
  return self:call("acquire", owner, 0, LEASE_MS, TOKEN_MS, member, "", "", PERMITS)
end

function Crowd:release(hold)
  assert(self:call("release", hold.owner, 0, "", hold.member) == 1)
end

function Crowd:ask(uuid)
  self.numbers = self.numbers + 1
  local owner = uuid .. ":" .. self.numbers
  local member = ("1p%s:%d"):format(owner, TOKEN_MS)
  self.clients[uuid] = { uuid = uuid, owner = owner, member = member }
  return self:acquire(owner, member)
end

function Crowd:gather(first)
  for i = first, first + WAITERS - 1 do
    local uuid = ("%08x-0000-8000-8000-%012x"):format(i * 7919, i * 104729)
    self.listener:call("SUBSCRIBE", "holdfast_grant:" .. uuid)
    if self:ask(uuid)[1] == 1 then
      self.holders[#self.holders + 1] = { uuid = uuid, owner = self.clients[uuid].owner }
    end
  end
  assert(#self.holders == PERMITS)
end

function Crowd:turn()
  local hold = table.remove(self.holders, 1)
  self:release(hold)
  local uuid = self.listener:receive()[2]:match(":(.*)$")
  self.holders[PERMITS] = self.clients[uuid]
  assert(self:ask(hold.uuid)[1] == 0)
end

local permit_turns = {}

-- → a function that makes one cycle with a free permit, and one that makes a turn in the crowd
local function subjects(server, name, texts, first)
  local alone, crowd = new_crowd(server, texts, name .. ":free"), new_crowd(server, texts, name)
  local owner = "00000001-0000-8000-8000-000000000001:1"
  crowd:gather(first)
  return function()
    assert(alone:acquire(owner, "")[1] == 1)
    alone:release { owner = owner }
  end, function() crowd:turn() end
end

-- → { ours = { free, turn }, bare = { free, turn } }, each { time, inside } of the fastest round
function permit_turns.measure(server, rounds, cycles)
  local least = { ours = {}, bare = {} }
  local own = { subjects(server, "turns:ours", OURS, 1) }
  local bare = { subjects(server, "turns:bare", BARE, 1 + WAITERS) }
  for _ = 1, rounds do
    for name, pair in pairs { ours = own, bare = bare } do
      for i = 1, 2 do
        local seen = cost.of(server, cycles, function() for _ = 1, cycles do pair[i]() end end)
        local before = least[name][i]
        if not before or seen.time < before.time then least[name][i] = seen end
      end
    end
  end
  return least
end

return permit_turns
