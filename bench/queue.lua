-- A lock with an owner and waiters, all played by one client, which calls the programs itself: no
-- other process runs in between, and all caches are warm. `queue.of_kind` creates the same for a
-- fair lock, a semaphore's permit, or one half of a read/write lock.

local crowd = require "spec.support.crowd"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"

local GRANT, LEASE, TTL = 60000, 60000, 604800000 -- ms; a queue may stand still while another runs
local MAX_CHANNELS = 1000 -- for one SUBSCRIBE

local Queue = {}
Queue.__index = Queue
local queues = 0

local queue = {}

local function subscribe(events, channels)
  for from = 1, #channels, MAX_CHANNELS do
    local words = { "SUBSCRIBE" }
    local to = math.min(from + MAX_CHANNELS - 1, #channels)
    for i = from, to do words[#words + 1] = channels[i] end
    events:send(words)
    for _ = 2, #words do events:receive() end
  end
end

-- letter: the kind's; acquire, release: texts of the programs
function queue.new(server, key, owners, letter, acquire, release)
  queues = queues + 1
  local self = setmetatable({
    letter = letter, owners = owners, numbers = {}, suffix = "",
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

local KINDS = {
  fair = { letter = "f", programs = "fair_", keys = { "redisson_lock_queue:{%s}",
    "redisson_lock__channel:{%s}", "redisson_lock_timeout:{%s}" } },
  permit = { letter = "p", programs = "permit_", permits = 1, keys = { "holdfast_queue:{%s}",
    "redisson_sc:{%s}", "{%s}:timeout" } },
  read = { letter = "r", programs = "rw_", keys = { "holdfast_queue:{%s}", "redisson_rwlock:{%s}" } },
  write = { letter = "w", programs = "rw_", suffix = ":write", keys = { "holdfast_queue:{%s}",
    "redisson_rwlock:{%s}" } },
}

function queue.of_kind(name, server, key, owners)
  local kind = KINDS[name]
  local self = queue.new(server, key, owners, kind.letter, crowd.program(kind.programs .. "acquire"),
    crowd.program(kind.programs .. "release"))
  self.suffix, self.permits = kind.suffix or "", kind.permits
  for i, pattern in ipairs(kind.keys) do self.keys[i + 2] = pattern:format(key) end
  return self
end

function Queue:client(i) return self.uuid:format(i) end

function Queue:call(sha, i, ...)
  local words = { "EVALSHA", sha, #self.keys }
  for _, key in ipairs(self.keys) do words[#words + 1] = key end
  for _, word in ipairs { self:owner(i), GRANT, 0, ... } do words[#words + 1] = word end
  return self.calls:call(words)
end

function Queue:owner(i)
  return self:client(i) .. ":" .. self.numbers[i] .. self.suffix
end

function Queue:member(i)
  return ("1%s%s:%d:%d"):format(self.letter, self:client(i), self.numbers[i], TTL)
end

-- → 1 if the owner has acquired it, else 0
function Queue:acquire(i, waits)
  local reply = self:call(self.acquiring, i, 0, LEASE, TTL, waits and self:member(i) or "",
    self.permits)
  if type(reply) == "number" then return 1 end -- the token
  return assert(reply[1], reply.err)
end

function Queue:release(i)
  assert(self:call(self.releasing, i, 0, "", self:member(i)) == 1)
  self.numbers[i] = self.numbers[i] + 1
end

-- Makes `count` cycles of one owner alone.
function Queue:cycles(count)
  for _ = 1, count do
    assert(self:acquire(1) == 1)
    self:release(1)
  end
end

-- The first owner acquires the lock, and the others queue in order.
function Queue:line_up()
  assert(self:acquire(1) == 1)
  for i = 2, self.owners do self:wait(i) end
  self.holder = 1
end

function Queue:wait(i) assert(self:acquire(i, true) == 0) end

-- The holder releases. Now and then a mutex is left free for clients that poll; then the next owner
-- asks until it has acquired it. → who held it
function Queue:pass_on()
  local i = self.holder
  self.holder = i % self.owners + 1
  self:release(i)
  local message = self.events:receive()[3]
  if message:find("^1 recheck ") then assert(self:acquire(self.holder, true) == 1) end
  if message:find("^1 turn ") then
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
