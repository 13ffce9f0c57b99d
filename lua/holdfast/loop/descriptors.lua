-- The connections of all loops except nginx's: the core's own sockets, which never block. The loop
-- waits for one descriptor of the core, which becomes readable when a socket is ready or a timer
-- has expired.

local core = require "holdfast.core"
local pump = require "holdfast.loop.pump"

local engine, now = core.engine, core.now

-- seconds for which an idle task continues, so that the next call need not start a new one
local LINGER = 0.02

-- seconds for which resumed callers may pass a kept lock to each other before the task yields
local PASS_TIME = 0.001

local descriptors = {}

-- Creates the task's descriptor before anything is sent. → true | nil, why it cannot
function descriptors.prepare(self)
  local fd, message = engine.prepare_wait(self.client, math.huge)
  if not fd then return nil, message end
  return true
end

-- The credentials that the previous task requested may never arrive, so they are requested again.
function descriptors.begin(self)
  engine.forget_logins(self.client)
end

function descriptors.end_abandoned() end

-- Must be called after each change of the core's state. Sends what can be sent; the task reads
-- replies.
function descriptors.advance(self)
  self.has_deferred_output = false
  engine.serve(self.client)
end

descriptors.send = descriptors.advance

-- Leaves pending output to the next `send`, or to the task, which runs soon.
function descriptors.defer_output(self)
  if self.has_deferred_output then return end
  self.has_deferred_output = true
  engine.defer_output(self.client)
end

-- Called in the task. Does what is due, and wakes the callers whose operations have ended.
function descriptors.tend(self)
  local deadline = now() + PASS_TIME
  self.has_deferred_output, self.is_last = false, false
  engine.serve(self.client, self.done)
  while self.done[1] do
    pump.wake_done(self)
    if not self.client or now() >= deadline then return end
    engine.ended(self.client, self.done)
  end
end

function descriptors.sleep(self, seconds)
  local started_at = now()
  if self.idle_until then seconds = math.min(seconds, self.idle_until - started_at) end
  if self.closed_signal then seconds = math.min(seconds, self.close_by - started_at) end
  local fd = assert(engine.prepare_wait(self.client, seconds))
  self.watch = self.watch or self.loop.watch(fd)
  self.watch:wait()
end

function descriptors.wake(self)
  engine.wake(self.client)
end

function descriptors.stop(self)
  local watch = self.watch
  self.watch = nil
  if watch then watch:close() end
end

function descriptors.close(client)
  core.client.close(client, 0)
  engine.forget(client)
end

function descriptors.is_over(self, _, operations, held, leaving)
  if self.closed_signal and now() >= self.close_by then return true end
  if operations + held + leaving > 0 then
    self.idle_until = nil
    return false
  end
  self.idle_until = self.idle_until or now() + LINGER
  return self.closing or now() >= self.idle_until
end

-- Called where no coroutine can wait. A thread in the core cleans up the rest.
function descriptors.close_at_once(self, client, patience)
  core.client.close(client, patience)
  if self.task then engine.wake(client) else engine.forget(client) end
end

return descriptors
