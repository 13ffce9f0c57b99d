-- Runs the same steps on the small Redis and on a real redis-server, and compares everything that
-- they send.
--
-- Both sides get the same bytes. The small one's clock is set to the real one's before each step,
-- so times differ by at most the longest step of the run. Integers of loose replies, and the time
-- in a record of foreign clients (queue/record.lua), are compared with that tolerance, and long
-- numbers in strings not at all. A turn of some ms may end between the two, so a difference counts
-- only if the same steps show one each time they are run. Messages of Lua's own errors differ
-- between Lua versions: only their lines count.

local Prng = require "spec.sim.prng"
local Redis = require "holdfast.testing.redis"
local resp = require "holdfast.testing.redis.resp"
local steps = require "spec.sim.redis_steps"
local sys = require "spec.support.sys"

local TIMEOUT = 10
local MAX_RUNS = 10 -- how often steps that showed a difference are run again
local MARK = "-- end of replies --"

local diff = {}

-- An end is one client of one side: send(bytes), and item() → the next reply or message.

local RealEnd = {}
RealEnd.__index = RealEnd

local function real_end(path)
  return setmetatable({ fd = assert(sys.connect_unix(path)), parser = resp.reply_parser() },
    RealEnd)
end

function RealEnd:send(bytes)
  assert(sys.write(self.fd, bytes, TIMEOUT))
end

function RealEnd:item()
  while true do
    local item = self.parser:next()
    if item ~= nil then return item end
    local bytes = assert(sys.read(self.fd, TIMEOUT))
    assert(bytes ~= "", "the real server has closed the connection")
    self.parser:feed(bytes)
  end
end

function RealEnd:close()
  sys.close(self.fd)
end

local SmallEnd = {}
SmallEnd.__index = SmallEnd

local function small_end(server)
  local self = setmetatable({ parser = resp.reply_parser(), cuts = Prng.new(1) }, SmallEnd)
  self.client = server:connect(function(bytes) self.parser:feed(bytes) end)
  return self
end

-- Sends the bytes in two parts, to test the request parser.
function SmallEnd:send(bytes)
  local cut = self.cuts:range(0, #bytes)
  self.parser:feed(self.client:feed(bytes:sub(1, cut)))
  self.parser:feed(self.client:feed(bytes:sub(cut + 1)))
end

function SmallEnd:item()
  local item = self.parser:next()
  assert(item ~= nil, "the small Redis has sent nothing")
  return item
end

function SmallEnd:close()
  self.client:close()
end

local function is_mark(item)
  return item == MARK or type(item) == "table" and item[1] == "pong" and item[2] == MARK
end

-- → everything that has arrived at this end since the last call
local function told(an_end)
  an_end:send(resp.command { "PING", MARK })
  local list = {}
  while true do
    local item = an_end:item()
    if is_mark(item) then return list end
    list[#list + 1] = item
  end
end

local Pair = {}
Pair.__index = Pair

-- path: the real server's socket; replaced: commands of the small one, see holdfast.testing.redis
function diff.pair(path, replaced)
  local self = setmetatable({ control = real_end(path), reals = {}, smalls = {} }, Pair)
  self:set_clock()
  self.small = Redis.new { now = function() return self.now end }
  self.small.replaced = replaced or {}
  for i = 1, steps.CLIENTS do
    self.reals[i], self.smalls[i] = real_end(path), small_end(self.small)
  end
  return self
end

function Pair:close()
  self.control:close()
  for _, an_end in ipairs(self.reals) do an_end:close() end
end

function Pair:ask(...)
  self.control:send(resp.command { ... })
  return self.control:item()
end

function Pair:set_clock()
  self.step_began = sys.now()
  local time = self:ask("TIME")
  self.now = time[1] * 1000000 + time[2]
end

function Pair:note_step()
  self.longest_step = math.max(self.longest_step, sys.now() - self.step_began)
end

local function expect_ok(reply)
  assert(type(reply) == "table" and reply.ok == "OK", reply.err)
end

-- The setting by which a real server has the fault.
local SETTINGS = { oom = "maxmemory", noreplicas = "min-replicas-to-write" }

function Pair:set_fault(step)
  local setting = SETTINGS[step.fault]
  if setting then
    expect_ok(self:ask("CONFIG", "SET", setting, step.on and "1" or "0"))
    self.small.faults[step.fault] = step.on
  else
    expect_ok(self:ask("ACL", "SETUSER", "default", (step.on and "-" or "+") .. step.name))
    self.small.faults.deny[step.name] = step.on or nil
  end
end

-- Resets everything except the connections.
function Pair:reset()
  expect_ok(self:ask("ACL", "SETUSER", "default", "+@all"))
  for _, setting in pairs(SETTINGS) do expect_ok(self:ask("CONFIG", "SET", setting, "0")) end
  self.small.faults = { deny = {} }
  self.longest_step = 0
  self:set_clock()
  for _, command in ipairs { { "UNSUBSCRIBE" }, { "PUNSUBSCRIBE" }, { "SELECT", "0" },
      { "CLIENT", "SETNAME", "" } } do
    for i = 1, steps.CLIENTS do
      for _, an_end in ipairs { self.reals[i], self.smalls[i] } do
        an_end:send(resp.command(command))
        told(an_end)
      end
    end
  end
  for _, an_end in ipairs { self.control, self.smalls[1] } do
    for _, command in ipairs { { "FLUSHALL" }, { "SCRIPT", "FLUSH" } } do
      an_end:send(resp.command(command))
      expect_ok(an_end:item())
    end
  end
end

-- within: { slack = the seconds by which times may differ, loose = whether integers may be times }
local function same_number(a, b, within)
  if a == b then return true end
  if not within.loose then return false end
  local slack, least, distance = within.slack, math.min(a, b), math.abs(a - b)
  if least >= 1e15 then return distance <= slack * 1e6 end
  return least >= 15 and distance <= slack * 1e3 + 1
end

local function comparable(text)
  return (text:gsub("(user_script:%d+: )[^\r\n]*( script: %x+, on @user_script:)", "%1%2")
    :gsub("(user_script:%d+: )[^\r\n]*$", "%1")
    :gsub("on @user_script:%d+%.", "on @user_script.")
    :gsub("NOPERM [^\r\n]*", "NOPERM") -- worded differently since 7.2, also in scripts
    :gsub("The user executing the script [^\r\n]-( script: %x+,)", "ACL failure in script%1")
    :gsub("(ACL failure in script)[^\r\n]-( script: %x+,)", "%1%2")
    :gsub("%d%d%d%d%d%d%d%d%d%d%d%d%d+%.?%d*", "<time>"))
end

-- Splits a record of foreign clients. → all but how long their run took, that time in ms
local function split_record(text)
  return text:match("^(1f %d+ %d+ [%d-] )(%d+)$")
end

local function same_string(a, b, within)
  local rest, run = split_record(a)
  local other_rest, other_run = split_record(b)
  if rest and rest == other_rest then
    return math.abs(run - other_run) <= within.slack * 1e3 + 1
  end
  return comparable(a) == comparable(b)
end

local same

-- The rest of a hold or of a turn, in ms: the second element of a reply that begins with 0.
local function same_ttl(a, b, slack)
  return a[1] == 0 and b[1] == 0 and math.min(a[2], b[2]) >= 0
    and math.abs(a[2] - b[2]) <= slack * 1e3 + 1
end

-- Returns whether both are numbers that follow a time of the server's clock in microseconds.
local function are_spans(a, b, i)
  local clock = a[i - 1]
  return type(clock) == "number" and clock >= 1e15 and type(a[i]) == "number"
    and type(b[i]) == "number"
end

local function same_table(a, b, within)
  local slack = within.loose and within.slack
  if a.ok or b.ok or a.err or b.err then
    return comparable(a.ok or a.err or "") == comparable(b.ok or b.err or "")
      and (a.ok == nil) == (b.ok == nil)
  end
  if #a ~= #b then return false end
  for i = 1, #a do
    local times = slack and i == 2 and type(a[2]) == "number" and type(b[2]) == "number"
    local spans = slack and are_spans(a, b, i) and math.abs(a[i] - b[i]) <= slack * 1e6
    if not (spans or same(a[i], b[i], within) or times and same_ttl(a, b, slack)) then
      return false
    end
  end
  return true
end

function same(a, b, within)
  if type(a) ~= type(b) then return false end
  if type(a) == "number" then return same_number(a, b, within) end
  if type(a) == "string" then return same_string(a, b, within) end
  if type(a) == "table" then return same_table(a, b, within) end
  return a == b
end

local function show(value)
  if type(value) == "string" then return ("%q"):format(value):gsub("\r", "\\r") .. "" end
  if type(value) ~= "table" then return tostring(value) end
  if value.err then return "-" .. value.err end
  if value.ok then return "+" .. value.ok end
  local parts = {}
  for i, item in ipairs(value) do parts[i] = show(item) end
  return "[" .. table.concat(parts, ", ") .. "]"
end

local function before(a, b)
  return show(a) < show(b)
end

local function sort_lists(value)
  for _, item in ipairs(value) do
    if type(item) == "table" then sort_lists(item) end
  end
  table.sort(value, before)
end

-- The real server returns sets of names, and the patterns that match a message, in its own order.
local function arranged(list, sorted)
  local plain, loose_ends = {}, {}
  for _, item in ipairs(list) do
    local is_list = type(item) == "table" and not item.ok and not item.err
    if is_list and item[1] == "pmessage" then
      loose_ends[#loose_ends + 1] = item
    elseif sorted and is_list and (item[1] == "unsubscribe" or item[1] == "punsubscribe") then
      loose_ends[#loose_ends + 1] = { item[1], item[2] }
    elseif sorted and is_list then
      sort_lists(item)
      plain[#plain + 1] = item
    else
      plain[#plain + 1] = item
    end
  end
  table.sort(loose_ends, before)
  for _, item in ipairs(loose_ends) do plain[#plain + 1] = item end
  return plain
end

local PUBLISHING = { PUBLISH = true, EVAL = true, EVALSHA = true }

-- Runs one command on both sides. → nil, or how they differ
function Pair:compare(step)
  self:set_clock()
  local bytes = resp.command(step.args)
  self.reals[step.client]:send(bytes)
  self.smalls[step.client]:send(bytes)
  local ends = PUBLISHING[step.args[1]:upper()] and steps.CLIENTS or 0
  for i = 1, steps.CLIENTS do
    if i == step.client or i >= steps.LISTENER and ends > 0 then
      local real, small = arranged(told(self.reals[i]), step.sorted),
        arranged(told(self.smalls[i]), step.sorted)
      self:note_step()
      if not same(real, small, { slack = self.longest_step, loose = step.loose }) then
        return ("client %d hears\n  real:  %s\n  small: %s"):format(i, show(real), show(small))
      end
    end
  end
  return nil
end

-- → nil, or the number of the first step whose replies differ, and how
function Pair:run(list)
  self:reset()
  for i, step in ipairs(list) do
    if step.fault then
      self:set_fault(step)
    else
      local difference = self:compare(step)
      if difference then return i, difference end
    end
  end
  return nil
end

local function without(list, at, last)
  local rest = {}
  for i = 1, last do
    if i ~= at then rest[#rest + 1] = list[i] end
  end
  return rest
end

-- Removes from a list of steps, whose last step differs, all steps that are not needed for that. →
-- list, how it differs
function Pair:shorten(list, difference)
  for at = #list - 1, 1, -1 do
    local rest = without(list, at, #list)
    local where, how = self:run(rest)
    if where then list, difference = without(rest, nil, where), how end
  end
  return list, difference
end

-- → nil, or a report with the shortest sequence found
function Pair:check(seed, count)
  local list, last, difference = steps.generate(seed, count)
  for _ = 1, MAX_RUNS do
    last, difference = self:run(list)
    if not last then return nil end
  end
  list, difference = self:shorten(without(list, nil, last), difference)
  local lines = { ("seed %d differs:"):format(seed) }
  for _, step in ipairs(list) do lines[#lines + 1] = "  " .. steps.describe(step) end
  lines[#lines + 1] = difference
  return table.concat(lines, "\n")
end

return diff
