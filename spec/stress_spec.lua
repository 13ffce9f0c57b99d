-- Many processes acquire and release locks as fast as they can, sometimes after a renewal, while
-- MONITOR shows what the server executes. HOLDFAST_STRESS=10000 is the number of rounds of each
-- process. Run with --run=check.

local process = require "spec.support.process"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new()

local PROCESSES = 16
local KEYS = 8
local ROUNDS = tonumber(os.getenv("HOLDFAST_STRESS")) or 150
local LEASE_MS = 600

local PROGRAM = [[
local url, number, rounds, keys, lease = arg[1], tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4]), tonumber(arg[5])
local sys = require "spec.support.sys"
local client = require("holdfast").new { url = url, lease = lease }
math.randomseed(number)
local long = math.max(1, math.floor(rounds / (rounds > 1000 and 40 or 4)))
local last = {}
for round = 1, rounds do
  local key = "k" .. math.random(keys)
  local lock = client:lock(key)
  assert(lock:acquire(600))
  assert(lock:token() > (last[key] or 0))
  last[key] = lock:token()
  if round % long == 0 then sys.sleep(lease * 0.6) end
  assert(lock:release())
end
local stats = client:stats()
assert(stats.acquires == rounds and stats.releases == rounds and stats.holds == 0)
print("stats", stats.renewals, stats.late_renewals, stats.losses)
client:close()
]]

before_each(world.open)
after_each(world.close)

-- Follows from the scripts' commands which owner holds which lock.
local Follower = {}
Follower.__index = Follower

function Follower:script_line(line)
  local command, key, owner = line:match('^"(%a+)" "(k%d+)"(.*)$')
  if command == "HSET" then
    local new = owner:match('^ "(.-)"')
    -- a grant that another acquire confirms is written twice
    if self.held[key] ~= new then self.acquired = self.acquired + 1 end
    self.held[key] = new
  elseif command == "HDEL" and self.held[key] == owner:match('^ "(.-)"') then
    self.held[key] = nil
  end
end

function Follower:renewal(key, owner, line)
  self.renewed = self.renewed + 1
  if self.held[key] ~= owner then self.wrong[#self.wrong + 1] = line end
end

function Follower:renewal_line(rest)
  local count, pairs_text = rest:match('^"EVAL%a*" ".-" "(%d+)" (.*)$')
  count = tonumber(count)
  local args = {}
  for text in pairs_text:gmatch('"(.-)"') do args[#args + 1] = text end
  -- the confirmation of a grant: lock, queue, owner, lease ...
  if count == 2 and args[2]:find("^holdfast_queue:") then
    self:renewal(args[1], args[3], rest)
  elseif #args == 3 * count then
    for i = 1, count do self:renewal(args[i], args[count + 2 * i - 1], rest) end
  end
end

function Follower:line(line)
  local source, rest = line:match("^%S+ %[%d+ (.-)%] (.*)$")
  if source == "lua" then
    self:script_line(rest)
  elseif rest and rest:find('^"EVALSHA"') then
    self:renewal_line(rest)
  end
end

function Follower:read()
  local bytes = sys.read(self.fd, 0.05)
  if not bytes then return false end
  self.rest = self.rest .. bytes
  local last = 1
  for line, stop in self.rest:gmatch("%+?([^\r]*)\r\n()") do
    self:line(line)
    last = stop
  end
  self.rest = self.rest:sub(last)
  return true
end

local function follow(server)
  local monitor = server:monitor()
  return setmetatable({
    monitor = monitor, fd = monitor.connection.fd, rest = "", held = {}, wrong = {}, acquired = 0,
    renewed = 0,
  }, Follower)
end

describe("under stress #check", function()
  it(("no renewal follows a release: %d processes, %d rounds each"):format(PROCESSES, ROUNDS),
    function()
    local follower = follow(world.server)
    local children = {}
    for i = 1, PROCESSES do
      children[i] = world.program {
        code = PROGRAM, args = { world.server:url(), i, ROUNDS, KEYS, LEASE_MS / 1000 },
      }
    end
    local deadline = process.now() + 60 + ROUNDS / 10
    local function all_ended()
      for _, child in ipairs(children) do
        if not child:status() then return false end
      end
      return true
    end
    while not all_ended() and process.now() < deadline do follower:read() end
    while follower:read() do end -- luacheck: ignore 542
    local renewals = 0
    for _, child in ipairs(children) do
      assert.same({ "exit", 0 }, { child:status() }, child:output())
      local sent, late, lost = child:output():match("stats\t(%d+)%.?0?\t(%d+)%.?0?\t(%d+)")
      assert.equal("0", late)
      assert.equal("0", lost)
      renewals = renewals + tonumber(sent)
    end
    follower.monitor:close()
    assert.same({}, follower.wrong)
    assert.equal(PROCESSES * ROUNDS, follower.acquired)
    assert.is_true(renewals >= PROCESSES, renewals .. " renewals")
    assert.is_true(follower.renewed >= renewals,
      ("%d of %d renewals were seen"):format(follower.renewed, renewals))
    for key in pairs(follower.held) do assert.equal("", key) end
  end)
end)
