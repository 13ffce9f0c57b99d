-- A lock with an owner and waiters, all of them played by one client, which calls the programs
-- itself: no other process runs in between, and all caches are warm.

local crowd = require "spec.support.crowd"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"

local GRANT, LEASE, TTL = 60000, 60000, 604800000 -- ms; a line may stand still while another runs
local MOST_CHANNELS = 1000 -- of one SUBSCRIBE

local Queue = {}
Queue.__index = Queue
local queues = 0

local queue = {}

local function subscribe(events, channels)
  for from = 1, #channels, MOST_CHANNELS do
    local words = { "SUBSCRIBE" }
    local to = math.min(from + MOST_CHANNELS - 1, #channels)
    for i = from, to do words[#words + 1] = channels[i] end
    events:send(words)
    for _ = 2, #words do events:receive() end
  end
end

-- letter: of the kind; acquire, release: texts of the programs
function queue.new(server, key, owners, letter, acquire, release)
  queues = queues + 1
  local self = setmetatable({
    letter = letter, owners = owners, numbers = {},
    calls = assert(resp.connect { path = server.path }),
    events = assert(resp.connect { path = server.path }),
    uuid = ("%08x-b940-8130-bb64-%%012x"):format(queues),
    keys = { key, "redisson_lock_token:{" .. key .. "}", crowd.queue_of(key),
      "redisson_lock__channel:{" .. key .. "}" },
  }, Queue)
  self.acquiring = self.calls:call("SCRIPT", "LOAD", acquire)
  self.releasing = self.calls:call("SCRIPT", "LOAD", release)
  local channels = {}
  for i = 1, owners do
    self.numbers[i] = 1
    channels[i] = crowd.channel_of(self:client(i))
  end
  subscribe(self.events, channels)
  return self
end

function Queue:client(i) return self.uuid:format(i) end

function Queue:call(sha, i, ...)
  return self.calls:call("EVALSHA", sha, 4, self.keys[1], self.keys[2], self.keys[3], self.keys[4],
    self:client(i) .. ":" .. self.numbers[i], GRANT, 0, ...)
end

-- → 1 it has the lock, 0 it has not
function Queue:acquire(i, waits)
  local member = waits
    and ("1%s%s:%d:%d"):format(self.letter, self:client(i), self.numbers[i], TTL) or ""
  local reply = self:call(self.acquiring, i, 0, LEASE, TTL, member)
  return assert(reply[1], reply.err)
end

function Queue:release(i)
  assert(self:call(self.releasing, i, 0, "") == 1)
  self.numbers[i] = self.numbers[i] + 1
end

-- One owner alone.
function Queue:cycles(count)
  for _ = 1, count do
    assert(self:acquire(1) == 1)
    self:release(1)
  end
end

-- The first owner has the lock, the others wait in their order.
function Queue:line_up()
  assert(self:acquire(1) == 1)
  for i = 2, self.owners do self:wait(i) end
  self.holder = 1
end

function Queue:wait(i) assert(self:acquire(i, true) == 0) end

-- The holder releases. Now and then a mutex is left free for clients that poll; then the next one
-- asks until it has it. → who had it
function Queue:pass_on()
  local i = self.holder
  self.holder = i % self.owners + 1
  self:release(i)
  if self.events:receive()[3]:find("^1 turn ") then
    while self:acquire(self.holder, true) == 0 do sys.sleep(0.05) end
  end
  return i
end

function Queue:hand_offs(count)
  for _ = 1, count do self:wait(self:pass_on()) end
end

function Queue:close()
  self.calls:close()
  self.events:close()
end

return queue
