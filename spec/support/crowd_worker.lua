-- One process of a crowd: URL STORE KEY NAME [option=value ...]. It takes turns under the lock and
-- records each one in the store, a separate redis-server:
--
--   crowd:history  "in NAME TOKEN", "out NAME"
--   crowd:counter  incremented in each turn by read, wait, write; two at once would lose an update
--   crowd:fence    the highest token seen; with fence=1 the counter is read and written with the
--                  token, and a write with an older one is refused
--   crowd:refused  how many writes were refused
--
-- kind     "holdfast", "fair", "redisson", "protocol": the client of examples/protocol, or of module=NAME,
--          with programs=DIRECTORY
-- wait     seconds for each acquire
-- turns    how many turns it takes
-- seconds  instead of turns: for how long it takes turns
-- endless  1, instead of turns: continues until the store has crowd:stop
-- inside   how many seconds each turn lasts
-- outside  seconds between two turns
-- stubborn 1: retries when a server or a replica is unreachable
-- sync     replicas that must have the lock
-- lease, grant_lease, watchdog (1), fenced (1, redisson)
-- together 1: begins when the store has crowd:start
--
-- Several URLs, separated by commas, are a quorum.
--
-- Prints "ready", "in", "failed CODE MESSAGE", "done TURNS".

local arguments = require "spec.support.arguments"
local process = require "spec.support.process"
local resp = require "spec.support.resp"

local url, store_path, key, name = arg[1], arg[2], arg[3], arg[4]
local options = arguments(arg, 5, { kind = "holdfast", wait = 30, turns = 1, inside = 0, outside = 0 })

io.stdout:setvbuf("line")
local store = assert(resp.connect { path = store_path })

local function new_client()
  local opts = { grant_lease = options.grant_lease }
  if options.sync then opts.sync = { replicas = options.sync, timeout = 0.5 } end
  if url:find(",", 1, true) and not url:find("^redis%+%a+:") then
    opts.mode, opts.servers = "quorum", {}
    for each in url:gmatch("[^,]+") do opts.servers[#opts.servers + 1] = each end
  else
    opts.url = url
  end
  return require("holdfast").new(opts)
end

-- Returns a lock with the methods that a turn needs, made by the client of examples/protocol.
local function protocol_lock()
  local function ms(seconds) return seconds and seconds * 1000 end
  local client = require(options.module or "examples.protocol.client").new(url, {
    programs = options.programs, lease = ms(options.lease), grant_lease = ms(options.grant_lease),
  })
  local hold
  return {
    acquire = function(_, seconds)
      hold = client:acquire(key, ms(seconds))
      if not hold then return nil, "taken by another owner", "busy" end
      return true
    end,
    token = function() return hold.token end,
    release = function()
      if hold:release() then return true end
      return nil, "lost before its release", "not_held"
    end,
  }, client
end

local function new_lock()
  if options.kind == "protocol" then return protocol_lock() end
  if options.kind == "redisson" then
    return require("spec.support.redisson").new(url:match("^unix://(.*)$")):lock(key,
      { fenced = options.fenced == 1 })
  end
  local client = new_client()
  local lease, watchdog = options.lease, nil
  if options.watchdog then watchdog = options.watchdog == 1 end
  local make = options.kind == "fair" and client.fair_lock or client.lock
  return make(client, key, { lease = lease, watchdog = watchdog }), client
end

-- Reads the counter and raises the fence, unless the token is already too old.
local READ = [[
  local fence = tonumber(redis.call('GET', KEYS[1]) or 0)
  if tonumber(ARGV[1]) < fence then return false end
  redis.call('SET', KEYS[1], ARGV[1])
  return redis.call('GET', KEYS[2]) or '0']]
local WRITE = [[
  if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return redis.call('INCR', KEYS[3]) end
  redis.call('SET', KEYS[2], ARGV[2])
  return 0]]

local function use_fenced(lock)
  local token = ("%.0f"):format(lock:token())
  store:call("RPUSH", "crowd:history", ("in %s %s"):format(name, token))
  local count = store:call("EVAL", READ, 2, "crowd:fence", "crowd:counter", token)
  process.sleep(options.inside)
  if count then
    store:call("EVAL", WRITE, 3, "crowd:fence", "crowd:counter", "crowd:refused", token,
      tonumber(count) + 1)
  else
    store:call("INCR", "crowd:refused")
  end
  store:call("RPUSH", "crowd:history", "out " .. name)
end

local function use(lock)
  if options.fence == 1 then return use_fenced(lock) end
  store:call("RPUSH", "crowd:history", ("in %s %.0f"):format(name, lock:token() or 0))
  local count = tonumber(store:call("GET", "crowd:counter") or 0)
  process.sleep(options.inside)
  store:call("SET", "crowd:counter", count + 1)
  store:call("RPUSH", "crowd:history", "out " .. name)
end

local taken = 0

local STUBBORN_FOR = 60 -- seconds after the option `seconds`
local give_up_at = process.now() + (options.seconds or 0) + STUBBORN_FOR

local function turn(lock)
  local acquired, message, code = lock:acquire(options.wait)
  if not acquired then
    print(("failed %s %s"):format(code, message))
    if options.stubborn ~= 1 or (code ~= "unreachable" and code ~= "no_quorum") then
      return false
    end
    if process.now() > give_up_at then return false end
    process.sleep(0.01)
    return turn(lock)
  end
  print("in")
  use(lock)
  local released, problem, kind = lock:release()
  if not released then print(("release %s %s"):format(kind, problem)) end
  return true
end

local lock, client = new_lock()
print("ready")
while options.together == 1 and not store:call("GET", "crowd:start") do process.sleep(0.005) end
local stop = options.seconds and process.now() + options.seconds
local function is_over()
  if options.endless == 1 then return store:call("GET", "crowd:stop") end
  return stop and process.now() >= stop
end
for _ = 1, (stop or options.endless == 1) and math.huge or options.turns do
  if is_over() then break end
  if turn(lock) then taken = taken + 1 end
  if options.outside > 0 then process.sleep(options.outside) end
end
if client then client:close() end
print("done " .. taken)
