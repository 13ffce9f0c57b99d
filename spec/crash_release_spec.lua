-- crash_release: a waiter on the same host frees the lock of a process that is proved dead, and
-- nothing else.

local fails = require "spec.support.fails"
local holdfast = require "holdfast"
local lfs = require "lfs"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local SOON = 20 -- seconds; the lease is 30
local LOOKS = 0.3 -- seconds; in this time a waiter rechecks three times

-- Acquires "k", or "k" and "l", in one of these ways, and does not end.
local HOLDER = [[
  local holdfast, sys = require "holdfast", require "spec.support.sys"
  local client = holdfast.new { url = arg[1], crash_release = arg[3] ~= "off" }
  local locks = {
    lock = function() return client:lock("k") end,
    reentered = function()
      local lock = assert(client:lock("k"):acquire(10))
      return lock
    end,
    mutex = function() return client:mutex("k") end,
    fair = function() return client:fair_lock("k") end,
    multi = function() return client:multi_lock { "k", "l" } end,
    kept = function() return client:lock("k", { keep = 60 }) end,
    guard = function()
      client:idempotent("k", function()
        print("holds")
        io.stdout:flush()
        sys.sleep(60)
      end)
    end,
  }
  local lock = locks[arg[2] ]()
  assert(lock:acquire(10))
  if arg[2] == "kept" then assert(lock:release()) end
  print("holds")
  io.stdout:flush()
  sys.sleep(60)
]]

-- One child closes its copy of the client. The other one acquires a lock with its copy, and
-- outlives the parent.
local PARENT = [[
  local holdfast, sys = require "holdfast", require "spec.support.sys"
  local client = holdfast.new { url = arg[1], crash_release = true }
  local held = assert(client:lock("k"):acquire(10))
  if sys.fork() == 0 then
    client:close()
    print("closed")
    os.exit(0)
  end
  if sys.fork() == 0 then
    local held = assert(client:lock("c"):acquire(10))
    print("child " .. sys.getpid())
    io.stdout:flush()
  end
  sys.sleep(60)
]]

local function records()
  local pipe = io.popen "id -u"
  local path = "/dev/shm/holdfast-" .. pipe:read "*l"
  pipe:close()
  return path
end

describe("crash_release", function()
  local world = require("spec.support.world").new()
  local events, owners

  before_each(function()
    world.open()
    events, owners = {}, {}
  end)

  after_each(function()
    world.close()
    for _, owner in ipairs(owners) do os.remove(records() .. "/" .. owner:sub(1, 36)) end
  end)

  local function waiting_client()
    return world.client {
      crash_release = true, on_event = function(event) events[#events + 1] = event end,
    }
  end

  local function owner_of(client, key)
    local owner = client:lock(key):info().owner
    owners[#owners + 1] = owner
    return owner
  end

  local function start(code, kind, off)
    local child = world.program { code = code, args = { world.server:url(), kind or "lock", off } }
    assert(child:wait_output(code == HOLDER and "holds" or "child"))
    return child
  end

  local function reported()
    for _, event in ipairs(events) do
      if event.event == "crash_released" then return event end
    end
  end

  -- The dead child is a zombie, because the test collects it only at its end.
  for _, kind in ipairs { "lock", "reentered", "mutex", "fair", "kept" } do
    it(("lets a waiter acquire the lock (%s) of a killed process at once"):format(kind), function()
      local child = start(HOLDER, kind)
      local client = waiting_client()
      local makers = { mutex = client.mutex, fair = client.fair_lock }
      local lock = (makers[kind] or client.lock)(client, "k")
      local owner = lock:info().owner
      owners[1] = owner
      child:kill("KILL")
      assert.is_truthy(lock:acquire(SOON))
      assert.same({ "k", owner }, { reported().key, reported().owner })
      assert(lock:release())
    end)
  end

  -- A client without crash_release has "k", and waits for "l".
  it("lets a waiter free a killed process's next lock while another client has the first", function()
    local client = waiting_client()
    local child = start(HOLDER, "multi")
    owner_of(client, "k")
    local owner = owner_of(client, "l")
    child:stop()
    world.cli("DEL", "k")
    world.cli("HSET", "k", "theirs", 1)
    world.cli("PEXPIRE", "k", 60000)
    local both = client:multi_lock { "k", "l" }
    local left = SOON -- each wait ends before the test knows whether "l" is free
    while world.cli("EXISTS", "l") == 1 and left > 0 do
      fails("busy", both:acquire(LOOKS))
      left = left - LOOKS
    end
    assert.same({ "l", owner }, { reported().key, reported().owner })
    world.cli("DEL", "k")
  end)

  it("lets another process run an idempotent function again if its process was killed", function()
    local child = start(HOLDER, "guard")
    local client = waiting_client()
    owners[1] = client:lock("k"):info().owner
    child:kill("KILL")
    assert.equal("again", client:idempotent("k", { wait = SOON }, function() return "again" end))
    assert.equal(owners[1], reported().owner)
    world.cli("DEL", "k")
  end)

  it("does not free the lock of a process whose client lacks the option", function()
    local child = start(HOLDER, "lock", "off")
    local client = waiting_client()
    child:stop()
    fails("busy", client:lock("k"):acquire(LOOKS))
    world.cli("DEL", "k")
  end)

  it("does not free a lock for a waiter whose client lacks the option", function()
    local child = start(HOLDER)
    local client = world.client()
    owner_of(client, "k")
    child:stop()
    fails("busy", client:lock("k"):acquire(LOOKS))
    world.cli("DEL", "k")
  end)

  it("frees the lock of a killed parent, but not that of its living child", function()
    local parent = start(PARENT)
    local child = tonumber(parent:output():match("child (%d+)"))
    assert(parent:wait_output("closed"))
    local client = waiting_client()
    owner_of(client, "k")
    local owner = owner_of(client, "c")
    parent:stop()
    local lock = client:lock("k")
    assert.is_truthy(lock:acquire(SOON))
    assert(lock:release())
    fails("busy", client:lock("c"):acquire(LOOKS))
    assert.same({ [owner] = "1" }, world.hash("c"))
    process.signal(child, "KILL")
    lock = client:lock("c")
    assert.is_truthy(lock:acquire(SOON))
    assert(lock:release())
    world.cli("DEL", "holdfast_client:" .. owner:sub(1, 36))
  end)

  it("is refused in a quorum, and with an owner of the form that clients generate", function()
    assert.has_error(function()
      holdfast.new { servers = { "redis://a", "redis://b", "redis://c" }, mode = "quorum", crash_release = true }
    end, "holdfast.new: crash_release does not work in a quorum, which has no queue")
    local client = waiting_client()
    local lock = assert(client:lock("k"):acquire())
    local _, message = pcall(client.lock, client, "k", { owner = lock:owner() })
    assert.matches("client:lock: owner must not have the form <client uuid>:<n> if crash_release is on", message, 1, true)
    local uuid = lock:owner():sub(1, 36)
    for _, owner in ipairs { "import-7", "7:1", "abc-def:12", uuid .. ":1:2", uuid .. ":x", uuid } do
      assert(assert(client:lock("other", { owner = owner }):acquire()):release())
    end
    assert(lock:release())
  end)

  it("reports through on_event that it is off if its directory cannot be used", function()
    local uid = 1900000000 + sys.getpid()
    local directory = "/dev/shm/holdfast-" .. uid
    local code = [[
      local client = require("holdfast").new { crash_release = true, on_event = function(event)
        print(event.event, event.code)
      end }
      client:ping()
      client:lock("k"):is_held()
    ]]
    if not process.succeeds "test $(id -u) = 0 && command -v setpriv >/dev/null" then return pending("needs root") end
    assert(lfs.mkdir(directory))
    local child = process.start { "setpriv", "--reuid", tostring(uid), "--clear-groups",
      sys.interpreter(), "-e", code,
      env = { LUA_PATH = process.lua_path, LUA_CPATH = process.lua_cpath, LUA_INIT = false } }
    child:wait(10)
    assert(lfs.rmdir(directory))
    assert.matches("crash_release_off\tdenied", child:output())
  end)
end)
