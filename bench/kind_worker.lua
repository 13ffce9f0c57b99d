-- One of the processes of bench/kinds.lua: URL START STOP KIND KEY [SECTION]. Prints how many turns
-- it had. It also counts turns of a semaphore on the server, in bench:turns.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local resp = require "spec.support.resp"

local url, start, stop, kind, key = arg[1], tonumber(arg[2]), tonumber(arg[3]), arg[4], arg[5]
local section = tonumber(arg[6] or 0)

local client = holdfast.new(url)

local function permits()
  local pool = client:semaphore(key, { permits = 8, wait = 30 })
  local counter = assert(resp.connect { path = url:match("^unix://(.*)$") })
  return function()
    local permit = assert(pool:acquire())
    counter:call("INCR", "bench:turns")
    return permit
  end
end

local function locked(lock)
  return function()
    assert(lock:acquire(30))
    return lock
  end
end

-- Tries to take a lock that another client holds.
local function refused()
  local holder, lock = holdfast.new(url):lock(key, { lease = 600 }), client:lock(key)
  assert(holder:acquire(0))
  local nothing = { release = function() return true end }
  return function()
    assert(not lock:try_acquire() and holder)
    return nothing
  end
end

local KINDS = {
  lock = function() return locked(client:lock(key)) end,
  read = function() return locked(client:read_write_lock(key):read()) end,
  permit = permits,
  refused = refused,
}

local enter = KINDS[kind]()
assert(client:ping())
process.sleep(math.max(0, start - process.now()))
local turns = 0
while process.now() < stop do
  local hold = enter()
  if section > 0 then process.sleep(section) end
  turns = turns + 1
  assert(hold:release())
end
client:close()
print(turns)
