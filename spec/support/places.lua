-- The two environments of the tests in spec/testing_spec.lua: without a server, and with one.
--
--   place.open() place.close()     are called around each test
--   place.client(opts)             creates a client
--   place.pass(seconds)            lets time pass
--   place.lose(lock, reason)       makes the calling coroutine lose this lock, or a term's lock
--   place.fail() place.recover()   make the server unreachable, and end that
--   place.delete(key)              deletes what a test leaves on purpose

local core = require "holdfast.core"
local lead = require "holdfast.lead"
local sys = require "spec.support.sys"
local testing = require "holdfast.testing"
local world = require("spec.support.world").new()

local without = {
  name = "without a server", open = testing.reset, close = testing.reset, client = testing.client,
  pass = testing.advance, lose = testing.lose, recover = testing.recover,
}

function without.fail() testing.fail("unreachable") end

function without.delete() end -- leftovers do no harm here

local with = {
  name = "with a server", open = world.open, close = world.close, client = world.client,
  pass = sys.sleep,
}

function with.fail() world.server:kill("STOP") end

function with.recover() world.server:kill("CONT") end

function with.delete(key) world.cli("DEL", key) end

local LOSE = {}

-- Acts as if the process were stopped.
function LOSE.expired(lock, client)
  client:watchdog():stop()
  sys.sleep(lock:remaining() * 1.02 + 0.02)
  client:watchdog():start()
end

function LOSE.unreachable(lock)
  with.fail()
  sys.sleep(lock:remaining() * 1.02 + 0.02)
  with.recover()
end

function LOSE.deleted(lock)
  world.cli("DEL", lock:key())
  lock:check()
end

function LOSE.taken(lock)
  world.cli("DEL", lock:key())
  with.taker = world.client { lease = 30 }:lock(lock:key())
  assert(with.taker:try_acquire())
  lock:check()
end

function LOSE.max_hold(lock) sys.sleep(core.lock.data(lock).max_hold) end

function with.lose(lock, reason)
  if lead.is_term(lock) then lock = lock.lock end
  LOSE[reason](lock, core.lock.data(lock).client)
  lock:is_held() -- reports the loss, like any call
end

return { without, with }
