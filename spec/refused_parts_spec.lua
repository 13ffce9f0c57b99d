-- A user on a real server may run all commands of a program except one that writes; each is tried.
-- Nothing is lost for good. spec/sim/refused_parts.lua covers more states of the keys, and commands
-- that read.

local process = require "spec.support.process"
local resp = require "spec.support.resp"

local world = require("spec.support.world").new()

local LISTENER = "aaaaaaaa-0000-8000-8000-000000000001" -- this client's waiter gets what is released
local WRITES = {}
for name in ("set del hset hdel pexpire zadd zrem zremrangebyscore incrby decrby lpop rpush lrem"):gmatch "%S+" do
  WRITES[name] = true
end

before_each(world.open)
after_each(world.close)

local function acquire_and_release(lock, refuse)
  refuse()
  if lock:acquire(0) then lock:release() end
end

local function is_open(latch) return latch:count() == 0 end

-- Puts a waiter into the key's queue. `kind` is that of the member.
local function queue_up(key, kind)
  world.cli("ZADD", "holdfast_queue:{" .. key .. "}", 1700000000000000,
    ("1%s%s:7:600000"):format(kind, LISTENER))
end

-- name → { programs, begin(client, key), run(client, key, refuse, the result of `begin`),
--   ends(client, key) → whether all is well for another client, for which nothing is refused }
local function of_locks(method, more)
  local job = {
    programs = more.programs,
    run = function(client, key, refuse)
      acquire_and_release(more.of(client[method](client, key)), refuse)
    end,
    ends = function(client, key)
      local lock = more.of(client[method](client, key))
      return lock:acquire(0) and lock:release()
    end,
  }
  return job
end

local function itself(lock) return lock end

local JOBS = {
  lock = of_locks("lock", { programs = { "acquire", "release" }, of = itself }),
  mutex = of_locks("mutex", { programs = { "mutex_acquire", "mutex_release" }, of = itself }),
  fair = of_locks("fair_lock", { programs = { "fair_acquire", "fair_release" }, of = itself }),
  read = of_locks("read_write_lock", { programs = { "rw_acquire", "rw_release" },
    of = function(lock) return lock:read() end }),
  write = of_locks("read_write_lock", { programs = { "rw_acquire", "rw_release" },
    of = function(lock) return lock:write() end }),
}

JOBS.handed_on = {
  programs = { "release" },
  begin = function(client, key)
    local lock = client:lock(key)
    assert(lock:acquire(0))
    queue_up(key, "l")
    return lock
  end,
  run = function(_, _, refuse, lock)
    refuse()
    lock:release()
  end,
  ends = JOBS.lock.ends,
}

JOBS.several = {
  programs = { "acquire_all", "release_all" },
  run = function(client, key, refuse)
    acquire_and_release(client:multi_lock({ key, key .. ".2" }, { lease = 1 }), refuse)
  end,
  ends = function(client, key)
    local locks = client:multi_lock { key, key .. ".2" }
    return locks:acquire(0) and locks:release()
  end,
}

JOBS.run = {
  programs = { "complete" },
  run = function(client, key, refuse)
    client:idempotent(key, { expire = 60 }, function() refuse() return "done" end)
  end,
  ends = function(client, key)
    local again = false
    local _, _, code = client:idempotent(key, { wait = 0 }, function() again = true return true end)
    assert.is_false(again, key .. " has run twice")
    return code == "duplicate"
  end,
}

-- → whether all permits, two, can be acquired
local function has_all(client, key)
  local permit = client:semaphore(key):acquire(2, 0)
  return permit and permit:release() and client:semaphore(key):permits() == 2
end

JOBS.permits = {
  programs = { "permit_acquire", "permit_release" },
  begin = function(client, key) assert(client:semaphore(key):set_permits(2)) end,
  run = function(client, key, refuse)
    refuse()
    local permit = client:semaphore(key):acquire(1, 0)
    if permit then permit:release() end
  end,
  ends = has_all,
}

JOBS.permits_back = {
  programs = { "permit_release" },
  begin = function(client, key)
    assert(client:semaphore(key):set_permits(2))
    return assert(client:semaphore(key):acquire(2, 0))
  end,
  run = function(_, _, refuse, permit)
    refuse()
    permit:release()
  end,
  ends = has_all,
}

JOBS.permit_handed_on = {
  programs = { "permit_release" },
  begin = function(client, key)
    assert(client:semaphore(key):set_permits(2))
    local permits = {}
    for i = 1, 2 do permits[i] = assert(client:semaphore(key):acquire(1, 0)) end
    queue_up(key, "p")
    return permits
  end,
  run = function(_, _, refuse, permits)
    refuse()
    for _, permit in ipairs(permits) do permit:release() end
  end,
  ends = has_all,
}

JOBS.plain = {
  programs = { "semaphore_acquire", "semaphore_release", "semaphore_leave" },
  begin = function(client, key) assert(client:plain_semaphore(key):set(2)) end,
  run = function(client, key, refuse)
    local plain = client:plain_semaphore(key)
    plain:with_permit(function()
      refuse()
      if plain:acquire(1, 0) then plain:release() end
    end)
  end,
  ends = function(client, key)
    local free = client:plain_semaphore(key):available()
    assert.is_true(not free or free <= 2, key .. " has more permits")
    return free == 2
  end,
}

JOBS.latch = {
  programs = { "latch_down" },
  begin = function(client, key)
    local latch = client:latch(key)
    assert(latch:set(2))
    return latch
  end,
  run = function(_, _, refuse, latch)
    refuse()
    if latch:count_down() then latch:set(1) end
  end,
  ends = function(client, key)
    local latch = client:latch(key)
    local count = latch:count()
    return count and count > 0 and latch:count_down(count) and is_open(latch)
  end,
}

-- Returns the commands of these programs that write.
local function commands_of(programs)
  local found = {}
  for _, name in ipairs(programs) do
    for command in require("spec.sim.programs")[name]:gmatch "call%('(%u+)'" do
      found[command:lower()] = WRITES[command:lower()]
    end
  end
  return found
end

-- Returns a client with its own user.
local function client_of(user)
  world.cli("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all")
  return world.client {
    url = (world.server:url():gsub("://", ("://%s:secret@"):format(user), 1)),
    command_timeout = 0.2, grant_lease = 0.2,
  }
end

-- Returns false only for a hash without a TTL: a lock that would never end by itself.
local function has_an_end(key)
  return world.cli("TYPE", key) ~= "hash" or world.cli("PTTL", key) ~= -1
end

-- Runs one job without one command, with its own client. → the job's key
local function run_without(name, job, command)
  local key = name .. "." .. command
  local client = client_of(key)
  local begun = job.begin and job.begin(client, key)
  job.run(client, key, function() world.cli("ACL", "SETUSER", key, "-" .. command) end, begun)
  assert.is_true(has_an_end(key), key)
  return key
end

describe("a user who may not run one of the commands that a program calls", function()
  it("loses no permit, record or lock permanently, and acquires nothing twice", function()
    local listener, jobs = resp.connect { path = world.server.path }, {}
    listener:call("SUBSCRIBE", "holdfast_grant:" .. LISTENER)
    for name, job in pairs(JOBS) do
      for command in pairs(commands_of(job.programs)) do
        jobs[run_without(name, job, command)] = job
      end
    end
    for key in pairs(jobs) do world.cli("ACL", "SETUSER", key, "+@all") end
    local other = world.client { grant_lease = 0.2 }
    for key, job in pairs(jobs) do
      assert.truthy(process.wait_until(function() return job.ends(other, key) end, 10), key)
    end
    listener:close()
    world.cli("FLUSHALL")
  end)
end)
