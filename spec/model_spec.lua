-- Random calls on handles that are used again, over two clients, with losses on purpose, against a
-- small model of the API: what each call returns, what each handle knows afterwards, and what
-- stands on the server. HOLDFAST_MODEL_SEEDS sets how many sequences are run.

local holdfast = require "holdfast"
local lock_model = require "spec.support.lock_model"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local SEEDS = tonumber(os.getenv("HOLDFAST_MODEL_SEEDS") or os.getenv("HOLDFAST_GC") and 4 or 60)
local FIRST = tonumber(os.getenv("HOLDFAST_MODEL_FIRST") or 1)
local LENGTH = 40
local LEASES = { 200, 400, 800 } -- seconds, so far apart that no delay makes one look like another
local SLACK = 90 -- seconds that a sequence may take, and the drift of a lease
local LEASE, TAKEN = 300, 600 -- of the clients; of somebody else
local SOMEBODY = "5f0c0f9e-3b5d-4d6e-9a59-6f0a3c1d2e4b:1" -- an owner of Redisson

describe("what a lock says", function()
  local server, store, clients

  before_each(function()
    server = redis.start()
    store = resp.connect { path = server.path }
    local settings = { lease = LEASE, connect_timeout = 60, command_timeout = 60 }
    clients = { holdfast.new(server:url(), settings), holdfast.new(server:url(), settings) }
  end)
  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    store:close()
    server:stop()
  end)

  -- Random numbers that are the same under each Lua.
  local function random_of(seed)
    local state = seed * 7919 % 2147483647
    return function(most)
      for _ = 1, 3 do state = state * 16807 % 2147483647 end
      return state % most + 1
    end
  end

  local function random_options(random)
    local function one_of(...) return (select(random(select("#", ...)), ...)) end
    local options = { lease = one_of(nil, nil, LEASES[random(3)], LEASES[random(3)]),
      watchdog = one_of(nil, nil, true, false), fencing = one_of(nil, nil, nil, false),
      async_release = one_of(nil, true, false) }
    local renewed = options.watchdog == nil and options.lease == nil or options.watchdog
    if renewed and random(3) == 1 then options.max_hold = LEASES[random(3)] end
    return options
  end

  local function describe_options(options)
    local words = {}
    for _, name in ipairs { "lease", "watchdog", "fencing", "async_release", "max_hold" } do
      if options[name] ~= nil then
        words[#words + 1] = name .. "=" .. tostring(options[name])
      end
    end
    return table.concat(words, " ")
  end

  local Run = {}
  Run.__index = Run

  local function new_run(seed)
    local self = setmetatable({
      random = random_of(seed), model = lock_model.new(), handles = {}, log = {}, highest = {},
      seed = seed,
    }, Run)
    for i = 1, 6 do
      local client, key = i % 2 + 1, ("%d:%d"):format(seed, self.random(2))
      local options = random_options(self.random)
      local known = { lease = options.lease or LEASE, fencing = options.fencing,
        max_hold = options.max_hold, async_release = options.async_release }
      local one = self.model:handle(client, key, known)
      one.name = ("%s%d"):format(client == 1 and "a" or "b", i)
      one.heard = 0
      options.on_lost = function() one.heard = one.heard + 1 end
      one.lock = clients[client]:lock(key, options)
      self.handles[i] = one
      self:note("%s on %s: %s", one.name, key, describe_options(options))
    end
    return self
  end

  function Run:note(format, ...)
    self.log[#self.log + 1] = format:format(...)
  end

  function Run:expect(what, got, want)
    if got == want then return end
    error(("seed %d, after\n  %s\n%s is %s, and the model says %s"):format(self.seed,
      table.concat(self.log, "\n  "), what, tostring(got), tostring(want)), 0)
  end

  local function outcome(result, message, code)
    if result == nil then return code == "unreachable" and message or code end
    return result and true
  end

  -- The lease of `handle` on the server and here.
  function Run:compare_ttl(what, got, want)
    local is_near = got and got <= want and got > want - SLACK
    if not is_near then self:expect(what, got, "about " .. want) end
  end

  function Run:compare_token(one, has_token)
    local token = one.lock:token()
    self:expect(one.name .. ":token()", token ~= nil, has_token)
    local hold = self.model.holds[one.client][one.key]
    if not has_token then return end
    if not hold.token then
      local highest = self.highest[one.key] or 0
      self:expect("that the token of " .. one.name .. " is higher than all before", token > highest,
        true)
      hold.token, self.highest[one.key] = token, token
    end
    self:expect(one.name .. ":token()", token, hold.token)
  end

  function Run:compare_handle(one)
    local held, holds, ttl, has_token, lost = self.model:view(one)
    local lock, name = one.lock, one.name
    self:expect(name .. ":is_held()", lock:is_held(), held)
    self:expect(name .. ":holds()", lock:holds(), holds)
    local reason = lock:lost()
    local is_another = lost and reason and self.model:may_say(one, reason)
    if not is_another then self:expect(name .. ":lost()", reason, lost) end
    self:expect(name .. ":waited() ~= nil", lock:waited() ~= nil, one.has_waited == true)
    if held then self:compare_ttl(name .. ":remaining()", lock:remaining(), ttl)
    else self:expect(name .. ":remaining()", lock:remaining(), 0) end
    self:compare_token(one, has_token)
  end

  function Run:compare_server(one)
    local wanted = self.model.server[one.key]
    local fields = store:call("HGETALL", one.key)
    self:expect("owners of " .. one.key, #fields / 2, wanted and 1 or 0)
    if not wanted then return end
    self:expect("the count of " .. one.key, tonumber(fields[2]), wanted.count)
    self:compare_ttl("the TTL of " .. one.key, store:call("PTTL", one.key) / 1000, wanted.ttl)
    if wanted == self.model.holds[one.client][one.key] and not wanted.lost then
      self:expect(one.name .. ":owner()", one.lock:owner(), fields[1])
    end
  end

  local calls = {}

  function calls.acquire(self, one)
    return outcome(one.lock:acquire(0)), self.model:acquire(one)
  end

  function calls.release(self, one)
    local released = outcome(one.lock:release())
    -- the reply of a ping comes behind that of a release
    if one.options.async_release then assert(clients[one.client]:ping()) end
    return released, self.model:release(one)
  end

  function calls.check(self, one)
    return outcome(one.lock:check()), self.model:check(one)
  end

  function calls.extend(self, one)
    local seconds = LEASES[self.random(3)]
    return outcome(one.lock:extend(seconds)), self.model:extend(one, seconds)
  end

  function calls.is_locked(self, one)
    return outcome(one.lock:is_locked()), self.model.server[one.key] ~= nil
  end

  function calls.force_release(self, one)
    return outcome(one.lock:force_release()), self.model:force_release(one)
  end

  function calls.delete(self, one)
    return store:call("DEL", one.key) == 1, self.model:disturb(one.key)
  end

  function calls.take(self, one)
    store:call("DEL", one.key)
    store:call("HSET", one.key, SOMEBODY, 1)
    store:call("PEXPIRE", one.key, TAKEN * 1000)
    self.model:disturb(one.key, TAKEN)
  end

  local CHANCES = { "acquire", "acquire", "acquire", "acquire", "release", "release", "release",
    "check", "extend", "is_locked", "force_release", "delete", "take" }

  local function run(seed)
    local self = new_run(seed)
    for _ = 1, LENGTH do
      local one, name = self.handles[self.random(#self.handles)], CHANCES[self.random(#CHANCES)]
      self:note("%s:%s", one.name, name)
      local got, want = calls[name](self, one)
      self:expect(("%s:%s()"):format(one.name, name), got, want)
      self:compare_server(one)
      for _, each in ipairs(self.handles) do
        if each.key == one.key then self:compare_handle(each) end
      end
    end
    for _, one in ipairs(self.handles) do
      self.model:tell(one)
      one.lock:is_held()
      self:expect("what on_lost of " .. one.name .. " has been told", one.heard, one.told)
    end
    for _, one in ipairs(self.handles) do
      store:call("DEL", one.key)
      repeat until not one.lock:release()
    end
  end

  it("is what the model says", function()
    for seed = FIRST, FIRST + SEEDS - 1 do run(seed) end
  end)

  -- Calls the method of an unrelated object while a loss is known that has not been told.
  local function tells(object, method)
    local told, client = 0, clients[1]
    local lost = client:lock("lost", { on_lost = function() told = told + 1 end })
    assert(lost:acquire(0))
    store:call("DEL", "lost")
    assert.equal("lost", select(3, client:lock("lost"):check()))
    assert.equal(0, told)
    object[method](object)
    assert.equal(1, told, method)
  end

  it("comes with what on_lost has not been told yet", function()
    local lock, both = clients[1]:lock("other"), clients[1]:multi_lock { "other", "another" }
    for _, method in ipairs {
      "check", "is_held", "is_locked", "holds", "remaining", "ttl", "token", "token_text", "lost",
      "info", "force_release", "try_acquire", "release",
    } do tells(lock, method) end
    for _, method in ipairs {
      "check", "is_held", "remaining", "lost", "tokens", "try_acquire", "release",
    } do tells(both, method) end
  end)
end)
