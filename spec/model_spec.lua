-- Compares random calls with a small model of the API: what each call returns, what each handle
-- knows afterwards, and what the server contains. The handles and multi locks of two clients are
-- used again and again, with pairs of options and deliberate losses. HOLDFAST_MODEL_SEEDS sets the
-- number of sequences: a quarter each with any options, kept locks, shared owners, and multi locks.

local holdfast = require "holdfast"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local lock_model = require "spec.support.lock_model"
local multi_model = require "spec.support.multi_model"
local process = require "spec.support.process"
local random_run = require "spec.support.random_run"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local SEEDS = tonumber(os.getenv("HOLDFAST_MODEL_SEEDS") or os.getenv("HOLDFAST_GC") and 4 or 64)
local FIRST = tonumber(os.getenv("HOLDFAST_MODEL_FIRST") or 1)
local LENGTH = 40
local LEASES = { 200, 400, 800 } -- seconds, so far apart that no delay makes one look like another
local SLACK = 90 -- seconds that a sequence may take, and the drift of a lease
local KEEP, GRANT = 60, 150 -- longer than a sequence takes, and shorter than all leases
local LEASE, TAKEN = 300, 600 -- of the clients; of another program
local SOMEBODY = "5f0c0f9e-3b5d-4d6e-9a59-6f0a3c1d2e4b:1" -- an owner of Redisson

-- What a handle may have. Each function sets the options for it.
local FEATURES = {
  { "lease", function(options, random) options.lease = LEASES[random(3)] end },
  { "unrenewed", function(options) options.watchdog = false end },
  { "max_hold", function(options, random) options.max_hold = LEASES[random(3)] end },
  { "unfenced", function(options) options.fencing = false end },
  { "async_release", function(options) options.async_release = true end },
  { "keep", function(options) options.keep = KEEP end },
  { "owner", function(options) options.owner = "shared" end },
  { "class", function(options) options.class = "orders" end },
  { "interruptible", function(options) options.interruptible = true end },
  { "fair" }, -- the kind of all locks of the sequence
}
local EXCLUDED = { -- by the API; the last one by the model
  ["unrenewed max_hold"] = true, ["keep owner"] = true, ["keep fair"] = true, ["owner fair"] = true,
  ["unfenced owner"] = true,
}
local PAIRS = {}
for i, one in ipairs(FEATURES) do
  for j = i + 1, #FEATURES do
    local name = one[1] .. " " .. FEATURES[j][1]
    if not EXCLUDED[name] then PAIRS[#PAIRS + 1] = { name = name, one, FEATURES[j] } end
  end
end

describe("calls on a lock", function()
  local server, store, clients

  before_each(function()
    server = redis.start()
    store = resp.connect { path = server.path }
    local settings = {
      lease = LEASE, grant_lease = GRANT, connect_timeout = 60, command_timeout = 60,
    }
    clients = { holdfast.new(server:url(), settings), holdfast.new(server:url(), settings) }
    -- the server must know both programs, or a ping overtakes the resent release
    for _, lock in ipairs { clients[1]:lock("known"), clients[1]:fair_lock("known") } do
      assert(lock:acquire(0))
      assert(lock:release())
    end
  end)
  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    store:close()
    server:stop()
  end)

  local function is_renewed(options)
    if options.watchdog == nil then return options.lease == nil end
    return options.watchdog
  end

  -- `theme`: what most locks of a sequence are: 1 kept, 2 with a shared owner, 0 neither
  local function random_options(random, theme)
    local function one_of(...) return (select(random(select("#", ...)), ...)) end
    local options = { lease = one_of(nil, nil, LEASES[random(3)], LEASES[random(3)]),
      watchdog = one_of(nil, nil, true, false), fencing = one_of(nil, nil, nil, false),
      async_release = one_of(nil, true, false),
      keep = one_of(nil, KEEP, theme == 1 and KEEP or nil) }
    if random(8) <= (theme == 2 and 5 or 1) then
      options.owner, options.keep, options.fencing = "shared", nil, nil
    end
    if is_renewed(options) and random(3) == 1 then options.max_hold = LEASES[random(3)] end
    return options
  end

  local function options_of(random, pair)
    local options = {}
    for _, feature in ipairs(pair) do
      if feature[2] then feature[2](options, random) end
    end
    if options.lease and options.max_hold then options.watchdog = true end
    return options
  end

  local function describe_options(options)
    local words = {}
    for _, name in ipairs { "lease", "watchdog", "fencing", "async_release", "max_hold", "keep",
      "owner", "class", "interruptible" } do
      if options[name] ~= nil then words[#words + 1] = name .. "=" .. tostring(options[name]) end
    end
    return table.concat(words, " ")
  end

  local Run = random_run.kind()

  local function new_run(seed)
    local self = setmetatable({
      random = random_run.numbers(seed), model = lock_model.new(GRANT), handles = {}, multis = {},
      log = {}, highest = {}, seed = seed, counts = {},
    }, Run)
    if seed % 4 == 3 then self:add_multis() else self:add_handles(seed % 4) end
    return self
  end

  -- Without `lock`, adds a new one.
  function Run:add(client, key, options, lock)
    local known = { lease = options.lease or LEASE }
    for _, name in ipairs { "fencing", "max_hold", "async_release", "keep", "owner", "class" } do
      known[name] = options[name]
    end
    known.renewed = is_renewed(options)
    local one = self.model:handle(client, key, known)
    one.name, one.losses = ("%s%d"):format(client == 1 and "a" or "b", #self.handles + 1), 0
    options.on_lost = options.on_lost or function() one.losses = one.losses + 1 end
    local make = self.is_fair and clients[client].fair_lock or clients[client].lock
    one.lock = lock or make(clients[client], key, options)
    self.handles[#self.handles + 1] = one
    self:note("%s on %s: %s", one.name, key, describe_options(options))
    return one
  end

  -- Sequences without multi locks have the pairs in turn.
  local function pair_of(seed) return PAIRS[(seed - math.floor((seed + 1) / 4)) % #PAIRS + 1] end

  function Run:add_handles(theme)
    local pair = pair_of(self.seed)
    self.is_fair = pair[2][1] == "fair"
    self:note("%s", pair.name)
    for i = 1, 6 do
      local key = ("%d:%d"):format(self.seed, theme > 0 and 1 or self.random(2))
      local options = i <= 3 and options_of(self.random, pair) or random_options(self.random, theme)
      if self.is_fair then options.keep, options.owner = nil, nil end
      self:add(i % 2 + 1, key, options)
    end
    for client = 1, 2 do self.counts[client] = self:class_counts(client) end
  end

  function Run:add_multi(lock, handles)
    local multi = multi_model.new(self.model, handles)
    multi.lock, multi.name = lock, "m" .. #self.multis + 1
    self.multis[#self.multis + 1] = multi
    self:note("%s: %s of %d", multi.name, multi.is_one_step and "one step" or "in order", #handles)
  end

  -- Adds a multi lock over keys, one over locks of both clients, and single handles.
  function Run:add_multis()
    local keys, handles, by_key = {}, {}, {}
    for i = 1, 3 do keys[i] = ("%d:%d"):format(self.seed, i) end
    local options = random_options(self.random, self.random(3) == 1 and 2 or 0)
    options.keep = nil
    options.on_lost = function(lock)
      local one = by_key[lock:key()]
      one.losses = one.losses + 1
    end
    local lock = clients[1]:multi_lock(keys, options)
    for i, key in ipairs(keys) do
      handles[i] = self:add(1, key, options, lock.locks[i])
      by_key[key] = handles[i]
    end
    self:add_multi(lock, handles)
    local locks = {}
    handles = {}
    for i = 1, 1 + self.random(2) do
      handles[i] = self:add(self.random(2), keys[i], random_options(self.random, 0))
      locks[i] = handles[i].lock
    end
    self:add_multi(holdfast.multi_lock(locks), handles)
    for i = 1, 2 do self:add(i, keys[2], random_options(self.random, 0)) end
  end

  local function outcome(result, message, code)
    if result == nil then return code == "unreachable" and message or code end
    return result and true
  end

  -- Returns whether a lease is `want`, or less by the time of the sequence.
  local function is_near(got, want) return got and want and got <= want and got > want - SLACK end

  -- `renewed`: the lease if a renewal has already come
  function Run:compare_ttl(what, got, want, renewed)
    if not (is_near(got, want) or is_near(got, renewed)) then self:expect(what, got, "about " .. want) end
  end

  function Run:compare_token(one, draw)
    local token = one.lock:token()
    self:expect(one.name .. ":token()", token ~= nil, draw ~= nil)
    if not draw then return end
    if not draw.token then
      local highest = self.highest[one.key] or 0
      -- the token of an acquire that was rolled back was never seen
      local before = draw.behind and (draw.behind.token or 0) or highest
      self:expect("that the token of " .. one.name .. " is higher than those before", token > before,
        true)
      draw.token, self.highest[one.key] = token, math.max(token, highest)
    end
    self:expect(one.name .. ":token()", token, draw.token)
  end

  function Run:compare_handle(one)
    local held, holds, ttl, draw, lost = self.model:view(one)
    local lock, name = one.lock, one.name
    self:expect(name .. ":is_held()", lock:is_held(), held)
    -- the renewer's link may bring the reply to an asynchronous release
    for _ = 1, 1000 do
      if lock:holds() == holds then break end
      process.sleep(0.001)
    end
    self:expect(name .. ":holds()", lock:holds(), holds)
    local reason = lock:lost()
    local is_another = lost and reason and self.model:may_say(one, reason)
    if not is_another then self:expect(name .. ":lost()", reason, lost) end
    self:expect(name .. ":waited() ~= nil", lock:waited() ~= nil, one.has_waited == true)
    local record = self.model.server[one.key]
    if held then
      self:compare_ttl(name .. ":remaining()", lock:remaining(), ttl, record and record.renewed_ttl)
    else
      self:expect(name .. ":remaining()", lock:remaining(), 0)
    end
    self:compare_token(one, draw)
  end

  function Run:compare_server(one)
    local wanted = self.model.server[one.key]
    local fields = store:call("HGETALL", one.key)
    self:expect("owners of " .. one.key, #fields / 2, wanted and 1 or 0)
    if not wanted then return end
    self:expect("the count of " .. one.key, tonumber(fields[2]), wanted.count)
    self:compare_ttl("the TTL of " .. one.key, store:call("PTTL", one.key) / 1000, wanted.ttl,
      wanted.renewed_ttl)
    if self.model:has_record(one) then
      self:expect(one.name .. ":owner()", one.lock:owner(), fields[1])
    end
  end

  local calls = {}

  -- The counters of acquires of the class "orders" and of the client's own.
  function Run.class_counts(_, client)
    local counts = {}
    for _, name in ipairs { "", "orders" } do
      local class = clients[client]:stats().classes[name] or { outcomes = {} }
      for _, code in ipairs { "acquired", "busy", "lost" } do
        counts[name .. " " .. code] = class.outcomes[code] or 0
      end
      counts[name .. " reentries"] = class.reentries or 0
    end
    return counts
  end

  function Run:count(one, what)
    local counts, name = self.counts[one.client], (one.options.class or "") .. " " .. what
    if counts then counts[name] = counts[name] + 1 end
  end

  function calls.acquire(self, one)
    local hold = lock_model.parts.hold_of(self.model, one)
    local got, want = outcome(one.lock:acquire(0)), self.model:acquire(one)
    self:count(one, want ~= true and want or hold and not hold.lost and "reentries" or "acquired")
    return got, want
  end

  function calls.release(self, one)
    local released = outcome(one.lock:release())
    -- the reply to a ping comes after the reply to a release
    if one.options.async_release then assert(clients[one.client]:ping()) end
    return released, self.model:release(one)
  end

  function calls.check(self, one) return outcome(one.lock:check()), self.model:check(one) end

  function calls.extend(self, one)
    local seconds = LEASES[self.random(3)]
    return outcome(one.lock:extend(seconds)), self.model:extend(one, seconds)
  end

  function calls.is_locked(self, one)
    return outcome(one.lock:is_locked()), self.model.server[one.key] ~= nil
  end

  -- The client asks for its other owner's hold in the background; a check is answered after that.
  function calls.force_release(self, one)
    local got, want = outcome(one.lock:force_release()), self.model:force_release(one)
    for _, other in ipairs(self.handles) do
      if other.home == one.home and other.place ~= one.place then
        self:expect(other.name .. ":check()", calls.check(self, other))
      end
    end
    return got, want
  end

  local function disturb(one, harm)
    store:call("DEL", one.key)
    if harm == "delete" then return end
    store:call("HSET", one.key, SOMEBODY, 1)
    store:call("PEXPIRE", one.key, TAKEN * 1000)
  end

  function calls.delete(self, one)
    return store:call("DEL", one.key) == 1, self.model:disturb(one.key)
  end

  function calls.take(self, one)
    disturb(one, "take")
    self.model:disturb(one.key, TAKEN)
  end

  local CHANCES = { "acquire", "acquire", "acquire", "acquire", "release", "release", "release",
    "check", "extend", "is_locked", "force_release", "delete", "take" }

  -- ---- several locks as one ----

  local multi_calls = {}

  -- The reply to a ping comes after the reply to a release.
  local function ping_all()
    for _, client in ipairs(clients) do assert(client:ping()) end
  end

  -- Calls acquire(), and act(i) when this has acquired i locks.
  local function watched(acquire, act)
    local plain, count = driver.lock.acquire, 0
    driver.lock.acquire = function(...)
      local acquired, message, code = plain(...)
      count = count + 1
      if acquired then act(count) end
      return acquired, message, code
    end
    local result = outcome(acquire())
    driver.lock.acquire = plain
    return result
  end

  -- One of the handles that are already acquired may be lost during the call.
  function multi_calls.acquire(self, multi)
    local after, harm = self.random(2 * #multi.handles), self.random(2) == 1 and "delete" or "take"
    local victim = multi.handles[self.random(math.min(after, #multi.handles))]
    if not multi.is_one_step and after <= #multi.handles then
      self:note("  %s of %s when it has %d", harm, victim.name, after)
    end
    local got = watched(function() return multi.lock:acquire(0) end, function(count)
      if count == after then disturb(victim, harm) end
    end)
    return got, multi:acquire(function(count)
      if count == after then self.model:disturb(victim.key, harm == "take" and TAKEN or nil) end
    end)
  end

  function multi_calls.release(_, multi) return outcome(multi.lock:release()), multi:release() end

  function multi_calls.check(_, multi) return outcome(multi.lock:check()), multi:check() end

  function multi_calls.extend(self, multi)
    local seconds = LEASES[self.random(3)]
    return outcome(multi.lock:extend(seconds)), multi:extend(seconds)
  end

  function Run:compare_multi(multi)
    local held, ttl = multi:view()
    self:expect(multi.name .. ":is_held()", multi.lock:is_held(), held)
    if held then self:compare_ttl(multi.name .. ":remaining()", multi.lock:remaining(), ttl)
    else self:expect(multi.name .. ":remaining()", multi.lock:remaining(), 0) end
    local reason, tokens = nil, multi.lock:tokens()
    for _, one in ipairs(multi.handles) do
      reason = reason or one.lock:lost()
      self:expect(("%s:tokens() of %s"):format(multi.name, one.key), tokens[one.key],
        one.lock:token())
    end
    self:expect(multi.name .. ":lost()", (multi.lock:lost()), reason)
  end

  local MULTI_CHANCES = { "acquire", "acquire", "acquire", "release", "release", "check", "extend" }

  -- ---- sequences ----

  function Run:step()
    local multi = #self.multis > 0 and self.random(3) > 1 and self.multis[self.random(2)]
    local one = multi or self.handles[self.random(#self.handles)]
    local chances = multi and MULTI_CHANCES or CHANCES
    local name = chances[self.random(#chances)]
    self:note("%s:%s", one.name, name)
    local got, want = (multi and multi_calls or calls)[name](self, one)
    if multi then ping_all() end
    self:expect(("%s:%s()"):format(one.name, name), got, want)
    for _, each in ipairs(multi and multi.handles or { one }) do self:compare_server(each) end
    for _, each in ipairs(self.handles) do
      if multi or each.key == one.key then self:compare_handle(each) end
    end
    for _, each in ipairs(self.multis) do self:compare_multi(each) end
  end

  local function run(seed)
    local self = new_run(seed)
    for _ = 1, LENGTH do self:step() end
    for client, counts in pairs(self.counts) do
      for name, count in pairs(self:class_counts(client)) do
        self:expect(("client %d's count of %s"):format(client, name), count, counts[name])
      end
    end
    for _, one in ipairs(self.handles) do
      self.model:report(one)
      one.lock:is_held()
      self:expect("the losses that on_lost of " .. one.name .. " got", one.losses, one.reported)
    end
    for _, one in ipairs(self.handles) do
      store:call("DEL", one.key)
      repeat until not one.lock:release()
      one.lock:force_release() -- frees an idle lock
    end
  end

  it("return what a model predicts in random sequences", function()
    local drawn, count = {}, 0
    for seed = FIRST, FIRST + SEEDS - 1 do
      run(seed)
      local pair = seed % 4 < 3 and pair_of(seed)
      if pair and not drawn[pair] then drawn[pair], count = true, count + 1 end
    end
    if SEEDS >= 64 then assert.equal(#PAIRS, count) end
  end)

  -- Acquires `count` locks of both clients, of which the last one is taken. → the wait of each
  -- lock, and the time before it
  local function waits_of(count, wait)
    local plain, locks, given, spent, first = driver.lock.acquire, {}, {}, {}, nil
    for i = 1, count do locks[i] = clients[i % 2 + 1]:lock(("wait:%d:%d"):format(count, i)) end
    disturb({ key = locks[count]:key() }, "take")
    driver.lock.acquire = function(lock, seconds)
      first = first or core.now()
      given[#given + 1], spent[#spent + 1] = seconds, core.now() - first
      return plain(lock, seconds)
    end
    assert.equal("busy", outcome(holdfast.multi_lock(locks):acquire(wait)))
    driver.lock.acquire = plain
    for i = 1, count - 1 do assert.equal(0, store:call("EXISTS", locks[i]:key())) end
    return given, spent
  end

  it("that acquire several locks wait no longer than asked in total, and hold none on failure", function()
    for count = 2, 5 do
      local wait = 0.01 * count
      local given, spent = waits_of(count, wait)
      assert.equal(count, #given)
      for i = 1, count do
        assert.is_true(given[i] <= math.max(0, wait - (i > 1 and spent[i - 1] or 0)))
        assert.is_true(i == 1 or given[i] == 0 or given[i] < given[i - 1])
      end
    end
  end)
end)
