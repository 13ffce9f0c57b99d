-- What real servers refuse for a time: without replicas, without memory, after a failed snapshot,
-- as a replica; and when a user loses rights.

local lfs = require "lfs"
local process = require "spec.support.process"
local unpack = table.unpack or unpack
local world = require("spec.support.world").new { conf = { "enable-protected-configs yes" } }

-- { the refusal's word, the setting, its value for on, for off; code = of a call that fails at once
-- }
local REFUSALS = {
  { "NOREPLICAS", "min-replicas-to-write", "1", "0" },
  { "MISCONF", "stop-writes-on-bgsave-error", "yes", "no" },
  { "OOM", "maxmemory", "1", "0" },
  { "READONLY", "replicaof", "127.0.0.1 1", "no one", code = "denied" },
}

-- name → an expression that waits, in a program whose client is `c`
local WAITS = {
  lock = 'c:lock("lock"):acquire(60)', mutex = 'c:mutex("mutex"):acquire(60)',
  fair = 'c:fair_lock("fair"):acquire(60)', read = 'c:read_write_lock("read"):read():acquire(60)',
  write = 'c:read_write_lock("write"):write():acquire(60)',
  permits = 'c:semaphore("permits", { permits = 2 }):acquire(1, 60)',
  plain = 'c:plain_semaphore("plain"):acquire(1, 60)',
  several = 'c:multi_lock({ "several", "more" }, { wait = 60 }):acquire()',
  one_by_one = 'c:one_by_one({ wait = 60 }):execute("one", 1, function() return true end)',
  idempotent = 'c:idempotent("idempotent", { wait = 60 }, function() return true end)',
}

local function names_of(list)
  local names = {}
  for name in pairs(list) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- → how many commands the server has refused
local function refused(word)
  local count = world.cli("INFO", "errorstats"):match("errorstat_" .. word .. ":count=(%d+)")
  return tonumber(count) or 0
end

-- Makes a snapshot fail: now stop-writes-on-bgsave-error decides whether the server accepts writes.
local function fail_to_save()
  assert(lfs.mkdir(world.server.directory .. "/stuck.rdb"))
  assert(lfs.mkdir(world.server.directory .. "/stuck.rdb/x"))
  for setting, value in pairs { save = "3600 1000000", dbfilename = "stuck.rdb",
      ["stop-writes-on-bgsave-error"] = "no" } do
    world.cli("CONFIG", "SET", setting, value)
  end
  world.cli("BGSAVE")
  assert.truthy(process.wait_until(function()
    return world.cli("INFO", "persistence"):find("rdb_last_bgsave_status:err", 1, true)
  end))
end

local function set(refusal, on)
  local value = on and refusal[3] or refusal[4]
  if refusal[2] == "replicaof" then return world.cli("REPLICAOF", value:match("(%S+) (%S+)")) end
  world.cli("CONFIG", "SET", refusal[2], value)
end

before_each(function()
  world.open()
  fail_to_save()
end)
after_each(function()
  world.cli("CONFIG", "SET", "save", "")
  world.close()
end)

describe("a refusal of writes", function()
  it("does not end any kind of wait", function()
    assert(world.client():plain_semaphore("plain"):set(#REFUSALS))
    for _, refusal in ipairs(REFUSALS) do
      local of_all = refusal[1] == "NOREPLICAS" or refusal[1] == "READONLY"
      local names = of_all and names_of(WAITS) or { "lock", "plain" }
      set(refusal, true)
      local children = {}
      for i, name in ipairs(names) do
        children[i] = world.program { code = ([[
          local c = require("holdfast").new { url = %q }
          local got, message = %s
          print(got and "got it" or message)
          c:close()
        ]]):format(world.server:url(), WAITS[name]) }
      end
      assert.truthy(process.wait_until(function() return refused(refusal[1]) >= 3 * #names end))
      for i, name in ipairs(names) do assert.equal("", children[i]:output(), name) end
      set(refusal, false)
      for i, name in ipairs(names) do
        assert.equal(0, select(2, children[i]:wait()), name)
        assert.equal("got it\n", children[i]:output(), refusal[1] .. ", " .. name)
      end
      world.cli("DEL", "idempotent")
    end
    world.cli("DEL", "plain", "permits")
  end)

  it("makes a call without a wait fail at once, and the message says what to check", function()
    local client = world.client()
    for _, refusal in ipairs(REFUSALS) do
      set(refusal, true)
      local _, message, code = client:lock("k"):try_acquire()
      assert.equal(refusal.code or "unreachable", code)
      assert.matches(refusal[1], message)
      assert.matches("; check th", message)
      local _, late, at_its_end = client:lock("k"):acquire(0.05)
      assert.equal(refusal.code or "unreachable", at_its_end)
      assert.matches(refusal[1], late)
      set(refusal, false)
    end
  end)
end)

-- ---- the rights of a user ----

local USER = { "app", "on", "resetpass", ">one", "~*", "&*", "+@all" }

-- { what fails, how }
local TROUBLES = {
  { "the user loses all rights", function() world.cli("ACL", "SETUSER", "app", "-@all") end },
  { "the user is deleted", function() world.cli("ACL", "DELUSER", "app") end },
  { "the user's password is changed", function()
    world.cli("ACL", "SETUSER", "app", "resetpass", ">two")
    world.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    world.cli("CLIENT", "KILL", "TYPE", "pubsub")
  end },
}

local function url_of_user() return (world.server:url():gsub("://", "://app:one@", 1)) end

local function mend() world.cli("ACL", "SETUSER", unpack(USER)) end

describe("a user with a temporary fault", function()
  for _, trouble in ipairs(TROUBLES) do
    it("loses no permit, queue place or record: " .. trouble[1], function()
      mend()
      local client = world.client { url = url_of_user(), command_timeout = 0.5 }
      local plain, lock = client:plain_semaphore("plain"), client:lock("lock")
      assert(plain:set(1)) assert(lock:acquire(1))
      local waiter = world.program { code = ([[
        local c = require("holdfast").new { url = %q }
        print(c:lock("lock"):acquire(60) and "got it")
        c:close()
      ]]):format(url_of_user()) }
      assert.truthy(process.wait_until(function() return world.cli("ZCARD", "holdfast_queue:{lock}") == 1 end))
      local runs = 0
      local function run()
        runs = runs + 1
        trouble[2]()
        return "paid"
      end
      local done, _, code = plain:with_permit(function()
        return select(3, client:idempotent("pay", { expire = 60 }, run))
      end)
      assert.equal("denied", done)
      assert.is_nil(code)
      assert.equal("denied", select(3, client:lock("new"):acquire(20)))
      lock:release()
      assert.equal("", waiter:output())
      mend()
      assert.equal(0, select(2, waiter:wait()))
      assert.equal("got it\n", waiter:output())
      assert.truthy(process.wait_until(function() return world.cli("GET", "plain") == "1" end))
      assert.truthy(process.wait_until(function() return world.cli("HEXISTS", "pay", "done") == 1 end))
      assert.equal("duplicate", select(3, client:idempotent("pay", {}, run)))
      assert.equal(1, runs)
      world.cli("DEL", "plain", "pay")
    end)
  end
end)
