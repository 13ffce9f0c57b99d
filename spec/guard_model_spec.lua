-- Compares random calls of the idempotent guard with a small model: what each call returns, and
-- what the server contains during a run and after it. The calls have random options and are nested,
-- and the key may be deleted or taken. HOLDFAST_MODEL_SEEDS sets the number of sequences.

local compat = require "holdfast.compat"
local guard_model = require "spec.support.guard_model"
local holdfast = require "holdfast"
local random_run = require "spec.support.random_run"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local SEEDS = tonumber(os.getenv("HOLDFAST_MODEL_SEEDS") or os.getenv("HOLDFAST_GC") and 4 or 16)
local FIRST = tonumber(os.getenv("HOLDFAST_MODEL_FIRST") or 1)
local LENGTH = 20
local LEASE, LEASES, EXPIRES, TAKEN = 300, { 450, 600 }, { 750, 900 }, 1050 -- seconds
local SLACK = 90 -- seconds that a sequence may take
local DEFAULT_EXPIRE = 1
local SOMEBODY = "5f0c0f9e-3b5d-4d6e-9a59-6f0a3c1d2e4b:1" -- an owner of Redisson
local RESULTS = { { n = 0 }, { n = 1, "paid" }, { n = 3, nil, 7, true } }

describe("an idempotent call", function()
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

  local Run = random_run.kind()

  local function random_options(random)
    local function one_of(...) return (select(random(select("#", ...)), ...)) end
    return {
      lease = one_of(nil, LEASES[1], LEASES[2]), expire = one_of(nil, EXPIRES[1], EXPIRES[2]),
      keep_on_error = one_of(nil, false, true), delete_key = one_of(nil, false, true),
      replay = one_of(nil, true), fingerprint = one_of(nil, nil, "one", "two"),
    }
  end

  local function describe_options(options)
    local words = {}
    for name, value in pairs(options) do words[#words + 1] = name .. "=" .. tostring(value) end
    table.sort(words)
    return table.concat(words, " ")
  end

  local FIELDS = { nothing = 0, lock = 1, run = 2, done = 3 }

  function Run:compare_server()
    local key, fields, count = self.model.key, {}, 0
    local flat, ttl = store:call("HGETALL", self.name), store:call("PTTL", self.name) / 1000
    for i = 1, #flat, 2 do fields[flat[i]], count = flat[i + 1], count + 1 end
    if key.is == "done" and key.ttl == DEFAULT_EXPIRE then -- the record ends soon
      self:expect("that the record ends within a second", ttl <= DEFAULT_EXPIRE, true)
      store:call("DEL", self.name)
      return self.model:disturb()
    end
    self:expect("the fields of " .. key.is, count, FIELDS[key.is])
    self:expect("the print", fields.print, key.print)
    local kind = key.is == "done" and fields.done:sub(1, 1) or nil
    if kind then self:expect("the record", kind, key.results and "R" or "D") end
    local is_near = key.is == "nothing" or ttl <= key.ttl and ttl > key.ttl - SLACK
    if not is_near then self:expect("the TTL of " .. key.is, ttl, "about " .. key.ttl) end
  end

  function Run:disturb()
    local takes = self.random(2) == 1
    self:note("somebody %s the key", takes and "takes" or "deletes")
    store:call("DEL", self.name)
    if takes then
      store:call("HSET", self.name, SOMEBODY, 1)
      store:call("PEXPIRE", self.name, TAKEN * 1000)
    end
    self.model:disturb(takes and TAKEN or nil)
  end

  function Run:compare_results(what, got, want)
    if want.n == 0 then want = { n = 1, true } end
    self:expect("how many results of " .. what, got.n, want.n)
    for i = 1, want.n do self:expect(what, got[i], want[i]) end
  end

  local function with_defaults(options)
    local all = { lease = LEASE, expire = DEFAULT_EXPIRE }
    for name, value in pairs(options) do all[name] = value end
    return all
  end

  -- Runs under the guard: records the run in `call`, and returns or raises what `call` says.
  function Run:work(call, depth)
    call.run = self.model:begin(call.options)
    self:expect("that the function may run", call.run ~= nil, true)
    self:compare_server()
    local chance = self.random(4)
    if chance == 1 then self:disturb() end
    if chance <= 2 and depth == 1 then self:call(depth + 1) end
    call.has_run = true
    if not call.results then error("broken", 0) end
    return compat.unpack(call.results, 1, call.results.n)
  end

  -- → whether "broken" was raised; the results
  local function outcome(ran, ...)
    if not ran and ... ~= "broken" then error((...), 0) end
    return not ran, { n = select("#", ...), ... }
  end

  function Run:call(depth)
    local given, client = random_options(self.random), clients[(self.first + depth) % 2 + 1]
    local call = { options = with_defaults(given), results = RESULTS[self.random(4)] }
    self:note("%scall with %s, which %s", ("  "):rep(depth - 1), describe_options(given),
      call.results and "returns" or "raises an error")
    local raised, got = outcome(pcall(client.idempotent, client, self.name, given, function()
      return self:work(call, depth)
    end))
    if not call.run then
      local _, code, results = self.model:begin(call.options)
      if code == "replay" then return self:compare_results("the replay", got, results) end
      return self:expect("the code", got[3], code)
    end
    local code = self.model:finish(call.options, call.run, call.results)
    self:expect("that it raises the error", raised, not call.results)
    if raised then return end
    if code == true then return self:compare_results("the call", got, call.results) end
    self:expect("the code", got[3], code)
    self:expect("the results behind it", got[4] and got[4].n, call.results.n)
  end

  local function run(seed)
    local self = setmetatable({
      seed = seed, random = random_run.numbers(seed), model = guard_model.new(), log = {},
      name = "guard:" .. seed, first = seed,
    }, Run)
    for _ = 1, LENGTH do
      if self.random(6) == 1 then self:disturb() end
      self.first = self.random(2)
      self:call(1)
      self:compare_server()
    end
  end

  it("returns what a model predicts in random sequences", function()
    for seed = FIRST, FIRST + SEEDS - 1 do run(seed) end
  end)
end)
