-- Tests the checker of the chaos runs with histories written by hand, good and bad, and the proxy
-- with a real server; and runs one short round. spec/chaos/run.lua makes the long runs.

local checker = require "spec.chaos.checker"
local history = require "spec.chaos.history"
local kinds_checker = require "spec.chaos.kinds_checker"
local process = require "spec.support.process"
local proxy = require "spec.chaos.proxy"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"
local round = require "spec.chaos.round"

-- ---- histories by hand ----

local Tale = {}
Tale.__index = Tale

local function tale() return setmetatable({ ops = {} }, Tale) end

function Tale:op(start, stop, owner, fields)
  fields.start, fields.stop, fields.owner = start, stop, owner
  fields.key, fields.by, fields.number = "a", fields.by or owner, #self.ops + 1
  self.ops[#self.ops + 1] = fields
  return self
end

function Tale:acquire(start, stop, owner, token, more)
  local fields = { what = "acquire", wait = 0, lease = 1, token = token, holds = 1, result = "ok" }
  for name, value in pairs(more or {}) do fields[name] = value end
  return self:op(start, stop, owner, fields)
end

function Tale:enter(start, stop, owner, token, holds)
  return self:acquire(start, stop, owner, token, { holds = holds, count = holds - 1 })
end

function Tale:release(start, stop, owner, result, count)
  return self:op(start, stop, owner, { what = "release", result = result, count = count or 1 })
end

function Tale:claim(at, owner, token, valid, holds)
  return self:op(at, at, owner, { what = "claim", token = token, valid = valid, holds = holds
    or 1 })
end

function Tale:call(start, stop, owner, what, result, more)
  local fields = { what = what, result = result, count = 1 }
  for name, value in pairs(more or {}) do fields[name] = value end
  return self:op(start, stop, owner, fields)
end

function Tale:write(at, owner, token, accepted)
  return self:op(at, at, owner, { what = "write", token = token, accepted = accepted })
end

function Tale:forget(start, stop)
  return self:op(start, stop, nil, { what = "forget", by = "faults" })
end

local function verdict(self, more)
  table.sort(self.ops, function(a, b)
    if a.start ~= b.start then return a.start < b.start end
    return a.number < b.number
  end)
  local run = { ops = self.ops, grant = 1, timeout = 0.5 }
  for name, value in pairs(more or {}) do run[name] = value end
  local rules = {}
  for i, problem in ipairs(checker.check(run)) do rules[i] = problem.rule end
  return table.concat(rules, " ")
end

local function good(self, more) assert.equal("", verdict(self, more)) end
local function bad(rule, self, more)
  local found = verdict(self, more)
  assert.is_truthy(found:find(rule, 1, true),
    ("%s, not %s"):format(found == "" and "accepted" or found, rule))
end

local NEVER = math.huge

-- what a history tells → histories
local ACCEPTED = {
  ["one owner after the other"] = {
    tale():acquire(0, 0.1, "A", 1):claim(0.2, "A", 1, 0.9):release(0.3, 0.4, "A", "true")
      :acquire(0.35, 0.5, "B", 2):claim(0.6, "B", 2, 1.2):release(0.7, 0.8, "B", "true"),
  },
  ["overlapping calls if some order explains them"] = {
    tale():acquire(0, 2, "B", 2):acquire(0.1, 0.2, "A", 1):release(0.3, 1.9, "A", "true"),
  },
  ["a re-entered lock"] = {
    tale():acquire(0, 0.1, "A", 1):enter(0.2, 0.3, "A", 1, 2):claim(0.3, "A", 1, 1, 2)
      :release(0.4, 0.5, "A", "true", 2):claim(0.5, "A", 1, 1, 1):release(0.6, 0.7, "A", "true")
      :acquire(0.8, 0.9, "B", 2),
  },
  ["a new owner once the previous lease has ended"] = {
    tale():acquire(0, 0.1, "A", 1):claim(0.1, "A", 1, 0.97):acquire(0.5, 1.1, "B", 2, { wait = 1 })
      :release(1.2, 1.3, "A", "lost"),
  },
  ["a release without a reply that took effect"] = {
    tale():acquire(0, 0.1, "A", 1):release(0.2, 0.3, "A", "unreachable"):acquire(0.4, 0.5, "B", 2),
  },
  ["a release without a reply that took effect much later or not at all"] = {
    tale():acquire(0, 0.1, "A", 1):release(0.2, 0.3, "A", "unreachable")
      :op(0.4, 0.5, "B", { what = "look", result = "true" }):acquire(2, 2.1, "B", 2),
    tale():acquire(0, 0.1, "A", 1, { lease = 100 }):release(0.2, NEVER, "A", nil)
      :acquire(20, 20.1, "B", 2),
  },
  ["an acquire without a reply"] = {
    tale():op(0, 0.5, "A", { what = "acquire", wait = 0, lease = 1, result = "unreachable" })
      :acquire(0.6, 0.7, "B", 5),
  },
  ["a claim of the old owner until its lease ends, after the server lost the lock"] = {
    tale():acquire(0, 0.1, "A", 1):claim(0.2, "A", 1, 0.9):forget(0.3, 0.4)
      :acquire(0.4, 0.5, "B", 2):claim(0.5, "B", 2, 1.3):claim(0.6, "A", 1, 0.9)
      :release(0.7, 0.8, "A", "lost"):claim(0.8, "B", 2, 1.3),
  },
  ["a claim of the old owner until its lease ends, after a forced release"] = {
    tale():acquire(0, 0.1, "A", 1):call(0.2, 0.3, "C", "force", "true"):acquire(0.3, 0.4, "B", 2)
      :claim(0.5, "A", 1, 0.9):call(0.6, 0.7, "A", "check", "lost"),
  },
  ["an extension to a longer and to a shorter lease"] = {
    tale():acquire(0, 0.1, "A", 1):call(0.2, 0.3, "A", "extend", "true", { seconds = 5 })
      :claim(0.3, "A", 1, 5):call(0.4, 0.5, "A", "extend", "true", { seconds = 0.2 })
      :claim(0.5, "A", 1, 0.58):acquire(0.6, 0.8, "B", 2),
  },
  ["a loss during an unanswered extension that shortens the lease"] = {
    tale():acquire(0, 0.1, "A", 1):call(0.2, 0.3, "A", "extend", "true", { seconds = 5 })
      :claim(0.3, "A", 1, 5):call(0.4, 0.9, "A", "extend", "lost", { seconds = 0.2 })
      :acquire(0.95, 1, "B", 2),
  },
  ["simultaneous holds of several processes with one shared owner"] = {
    tale():acquire(0, 0.1, "shared", 1, { by = "p" })
      :acquire(0.2, 0.3, "shared", 1, { by = "q", holds = 2 })
      :op(0.4, 0.5, "shared", { what = "release", result = "true", count = 1, by = "p" })
      :claim(0.6, "shared", 1, 1.1, 1)
      :op(0.7, 0.8, "shared", { what = "release", result = "true", count = 1, by = "q" })
      :acquire(0.8, 0.9, "B", 2),
  },
}

-- what a history tells → { the rule that it breaks, history }, ...
local REJECTED = {
  ["two owners of a lock that was not released"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):claim(0.3, "A", 1, 0.9):acquire(0.2, 0.4, "B", 2) },
  },
  ["two owners that consider their leases valid at the same moment"] = {
    { "exclusion", tale():acquire(0, 0.1, "A", 1):claim(0.1, "A", 1, 0.9):acquire(0.2, 0.3, "B", 2)
      :claim(0.3, "B", 2, 1.1) },
  },
  ["a token that is not higher than the previous one"] = {
    { "token", tale():acquire(0, 0.1, "A", 5):release(0.2, 0.3, "A", "true")
      :acquire(0.4, 0.5, "B", 4) },
    { "order", tale():acquire(0, 0.1, "A", 5):release(0.2, 0.3, "A", "true")
      :acquire(0.4, 0.5, "B", 5) },
  },
  ["a token that is not higher than one from before the server lost its data"] = {
    { "token", tale():acquire(0, 0.1, "A", 5):release(0.2, 0.3, "A", "true"):forget(0.3, 0.4)
      :acquire(0.4, 0.5, "B", 1) },
  },
  ["a release that succeeds for a process that is not the owner"] = {
    { "order", tale():acquire(0, 0.1, "A", 1)
      :op(0.2, 0.3, "B", { what = "release", result = "true", count = 0 }) },
    { "order", tale():acquire(0, 0.1, "B", 1):release(0.2, 0.3, "B", "true")
      :acquire(0.3, 0.4, "A", 2):release(0.5, 0.6, "B", "true") },
  },
  ["a re-entry that does not increase the count"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):enter(0.2, 0.3, "A", 1, 2)
      :release(0.4, 0.5, "A", "true", 2):acquire(0.6, 0.7, "B", 2) },
    { "order", tale():acquire(0, 0.1, "A", 1):acquire(0.2, 0.3, "A", 2) },
  },
  ["a re-entry that increases the count by two"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):enter(0.2, 0.3, "A", 1, 3) },
    { "order", tale():acquire(0, 0.1, "A", 1):enter(0.2, 0.3, "A", 1, 2)
      :claim(0.4, "A", 1, 0.9, 1) },
  },
  ["a re-entry that changes the token"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):enter(0.2, 0.3, "A", 2, 2) },
  },
  ["a claim by the former owner of a released lock"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):release(0.2, 0.3, "A", "true")
      :claim(0.4, "A", 1, 0.9) },
  },
  ["a claim of a lock that another owner has acquired since"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):claim(0.1, "A", 1, 0.9):acquire(1, 1.1, "B", 2)
      :claim(1.2, "A", 1, 1.5) },
  },
  ["a reported loss for which the history has no cause"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):claim(0.1, "A", 1, 0.9)
      :call(0.2, 0.3, "A", "check", "lost") },
    { "order", tale():acquire(0, 0.1, "A", 1):claim(0.1, "A", 1, 0.9)
      :call(0.2, 0.3, "A", "extend", "lost", { seconds = 0.5 }) },
  },
  ["a claim renewed after the server lost the lock"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):forget(0.2, 0.3):claim(1, "A", 1, 1.8) },
    { "order", tale():acquire(0, 0.1, "A", 1):forget(0.2, 0.3)
      :call(0.4, 0.5, "A", "check", "true") },
  },
  ["a late release of an earlier hold that frees a newer hold"] = {
    { "order", tale():acquire(0, 0.1, "A", 1):release(0.2, 0.3, "A", "unreachable")
      :acquire(0.4, 0.5, "A", 2):claim(0.6, "A", 2, 1.3):acquire(0.7, 0.8, "B", 3) },
  },
}

describe("the checker", function()
  for name, histories in pairs(ACCEPTED) do
    it("accepts " .. name, function()
      for _, each in ipairs(histories) do good(each) end
    end)
  end

  for name, histories in pairs(REJECTED) do
    it("rejects " .. name, function()
      for _, each in ipairs(histories) do bad(each[1], each[2]) end
    end)
  end

  it("accepts a hold acquired from a kept lock that expires at the end of the kept lock's lease", function()
    local tale_of_lent = tale():acquire(0, 0.1, "A", 1, { kept = 1 }):call(0.3, 0.4, "A", "release",
      "lost", { reason = "expired" })
    good(tale_of_lent:acquire(0.5, 0.6, "B", 2))
    bad("order", tale():acquire(0, 0.1, "A", 1, { kept = 1 }):call(0.11, 0.12, "A", "release",
      "lost", { reason = "expired" }))
  end)

  it("rejects a held lock that is reported as free", function()
    bad("order", tale():acquire(0, 0.1, "A", 1):claim(0.1, "A", 1, 0.9)
      :op(0.2, 0.3, "B", { what = "look", result = "false" }))
    good(tale():acquire(0, 0.1, "A", 1):claim(0.1, "A", 1, 0.9)
      :op(0.2, 0.3, "B", { what = "look", result = "false" }), { reports = true })
  end)

  it("rejects a fenced store that accepts a lower token or refuses the holder's token", function()
    bad("fence", tale(), { log = { "a 2 B 1", "a 1 A 1" } })
    bad("fence", tale():acquire(0, 0.1, "A", 1):write(0.2, "A", 1, 0):claim(0.3, "A", 1, 0.9))
    good(tale(), { log = { "a 1 A 1", "a 2 B 1", "a 1 A 0", "b 1 A 1" } })
  end)

  it("rejects a wait that exceeds its limit or never ends", function()
    bad("bound", tale():acquire(0, 30, "A", 1, { wait = 1 }))
    bad("bound", tale():op(0, NEVER, "A", { what = "acquire", wait = 1, lease = 1 }),
      { finished = { A = true } })
    good(tale():acquire(0, 30, "A", 1, { wait = 1 }),
      { pauses = { A = { { from = 1, to = 29 } } } })
    good(tale():acquire(0, 30, "A", 1, { wait = 1, theirs = true }))
  end)

  it("rejects a lost hold in a run whose only faults are moving slots", function()
    local lost = tale():acquire(0, 0.1, "A", 1):release(1.2, 1.3, "A", "lost")
    good(lost)
    bad("kept", lost, { kept = true })
  end)
end)

describe("a recorded history", function()
  it("is read back as written, except for a last line cut off by a kill", function()
    local path = process.directory() .. "/h"
    local writer = history.writer(path, "w1")
    local id = writer:call { what = "acquire", key = "a", owner = "w1.1", wait = 0.25, lease = 1 }
    writer:done(id, { result = "ok", token = 1795242610963960 })
    writer:seen(0.5, { what = "claim", key = "a", owner = "w1.1", token = 1795242610963960,
      valid = 2.5 })
    writer:call { what = "release", key = "a", owner = "w1.1" }
    writer.file:write("done id=3 at=")
    writer.file:close()
    local ops = history.read { path, "/nowhere" }
    table.sort(ops, function(a, b) return a.id < b.id end)
    assert.equal(3, #ops)
    assert.same({ "acquire", "ok", 0.25, 1795242610963960 },
      { ops[1].what, ops[1].result, ops[1].wait, ops[1].token })
    assert.same({ 0.5, 2.5, "w1" }, { ops[2].start, ops[2].valid, ops[2].by })
    assert.same({ math.huge }, { ops[3].stop, ops[3].result })
  end)
end)

-- ---- the proxy ----

describe("the fault proxy", function()
  local server, between, client

  before_each(function()
    server = redis.start()
    between = proxy.start(server.path)
    client = assert(resp.connect { port = between.port })
  end)

  after_each(function()
    client:close()
    between:stop()
    server:stop()
  end)

  -- → reply | nil, message
  local function ask(timeout, ...)
    local sent, message = pcall(client.send, client, ...)
    if not sent then return nil, message end
    local received, reply = pcall(client.receive, client, timeout)
    if received then return reply end
    return nil, reply
  end

  local function is_timeout(_, message)
    return message ~= nil and message:find("timed out") ~= nil
  end

  it("delays traffic in both directions", function()
    between:tell("delay", "150")
    local begun = process.now()
    assert.equal("PONG", client:call("PING"))
    assert.is_true(process.now() - begun >= 0.299)
    between:tell("go")
  end)

  it("splits data into small chunks", function()
    between:tell("chunk", "1")
    assert.equal("OK", client:call("SET", "k", "value"))
    between:tell("chunk", "7")
    assert.equal("value", client:call("GET", "k"))
  end)

  it("holds back requests or replies until the network is restored", function()
    between:tell("stop", "up")
    assert.is_true(is_timeout(ask(0.1, "INCR", "n")))
    assert.is_false(server:cli("GET", "n"))
    between:tell("go")
    assert.equal(1, client:receive(5))
    between:tell("stop", "down")
    assert.is_true(is_timeout(ask(0.1, "INCR", "n")))
    assert.equal("2", server:cli("GET", "n"))
    between:tell("go")
    assert.equal(2, client:receive(5))
  end)

  it("drops requests or replies together with their connection", function()
    between:tell("lose", "down")
    assert.is_true(is_timeout(ask(0.1, "INCR", "n")))
    assert.equal("1", server:cli("GET", "n"))
    between:tell("go")
    assert.is_nil(ask(5, "PING"))
    client:close()
    client = assert(resp.connect { port = between.port })
    between:tell("lose", "up")
    assert.is_true(is_timeout(ask(0.1, "INCR", "n")))
    assert.equal("1", server:cli("GET", "n"))
  end)

  it("silently drops all existing connections, and accepts new ones", function()
    assert.equal("PONG", client:call("PING"))
    between:tell("forget", "up")
    assert.is_true(is_timeout(ask(0.1, "INCR", "n")))
    assert.is_false(server:cli("GET", "n"))
    local other = assert(resp.connect { port = between.port })
    assert.equal(1, other:call("INCR", "n"))
    other:close()
  end)

  it("closes the connection after a given byte", function()
    between:tell("cut", "down", "3")
    client:send("PING")
    assert(process.wait_until(function() return not client:_fill(1) end, 20))
    assert.equal("+PO", client.buffer)
  end)

  it("resets connections, and refuses new ones", function()
    assert.equal("PONG", client:call("PING"))
    between:tell("reset")
    assert.is_nil(ask(5, "PING"))
    between:tell("refuse")
    local _, message = resp.connect { port = between.port }
    assert.matches("refused", message)
    between:tell("accept")
    client:close()
    client = assert(resp.connect { port = between.port })
    assert.equal("PONG", client:call("PING"))
  end)

  it("resets a client's connection, and delivers its command to the server late", function()
    assert.equal("PONG", client:call("PING"))
    between:tell("stop", "up")
    assert.is_true(is_timeout(ask(0.1, "INCR", "n")))
    between:tell("late", "200")
    between:tell("go")
    assert.is_nil(ask(5, "PING"))
    client:close()
    client = assert(resp.connect { port = between.port })
    assert.equal("PONG", client:call("PING"))
    assert.equal(1, client:call("SETNX", "first", "the next connection"))
    assert(process.wait_until(function() return server:cli("GET", "n") == "1" end, 20))
    assert.equal("PONG", client:call("PING"))
  end)

  it("closes the server's side after it has delivered a late command", function()
    between:tell("stop", "up")
    assert.is_true(is_timeout(ask(0.1, "INCR", "n")))
    between:tell("late", "0")
    between:tell("go")
    assert(process.wait_until(function() return server:cli("GET", "n") == "1" end, 20))
    local function clients() return select(2, server:cli("CLIENT", "LIST"):gsub("id=", "")) end
    assert(process.wait_until(function()
      return clients() == 1
    end, 20), server:cli("CLIENT", "LIST"))
  end)
end)

-- ---- the kinds ----

-- lines: "START STOP WHAT KEY OWNER [name=value ...]"
local function verdict_of_kinds(lines)
  local ops = {}
  for line in lines:gmatch("%s*([^\n]+)") do
    local start, stop, what, key, owner, rest =
      line:match("^(%S+) (%S+) (%a+) (%a+) (%S+) ?(.*)$")
    local op = { start = tonumber(start), stop = tonumber(stop) or math.huge, what = what,
      key = key, owner = owner, number = #ops + 1 }
    for name, value in rest:gmatch("(%a+)=(%S+)") do op[name] = tonumber(value) or value end
    ops[#ops + 1] = op
  end
  local rules = {}
  local problems = kinds_checker.check {
    ops = ops, permits = 3, latch = 2, timeout = 0.8,
    whole = { from = 100, grant = 0.5, lease = 1.5, timeout = 0.8 },
  }
  for i, problem in ipairs(problems) do rules[i] = problem.rule end
  return table.concat(rules, " ")
end

describe("the checker of kinds", function()
  local GOOD = {
    ["readers together, then a writer"] = [[
      0 0.1 claim rw A valid=1 mode=read
      0.2 0.3 claim rw B valid=1 mode=read
      0.4 0.5 release rw A
      0.4 0.6 release rw B
      0.7 0.8 acquire rw C mode=write token=2 result=ok
      0.8 0.9 claim rw C valid=2 mode=write]],
    ["as many permits in use as there are"] = [[
      0 0.1 claim pool A valid=1 permits=2
      0.2 0.3 claim pool B valid=1 permits=1
      0.4 0.5 claim pool A valid=1.5 permits=2
      1.4 1.5 claim pool C valid=2 permits=2]],
    ["plain permits that a killed process has taken"] = [[
      0 0.1 take places A permits=2 result=ok by=w1
      0.2 0.3 take places B permits=1 result=ok by=w2
      0.4 0.5 give places B result=unreachable by=w2
      0.6 open take places C permits=1 by=w3
      0.7 0.7 end x x by=w2
      0.8 0.8 free places X left=0]],
    ["plain permits after a release and an acquire that got no reply"] = [[
      0 0.1 take places A permits=2 result=ok by=w1
      0.2 0.3 give places A result=unreachable by=w1
      0.4 0.5 take places B permits=3 result=unreachable by=w2
      0.6 0.6 end x x by=w1
      0.6 0.6 end x x by=w2
      0.8 0.8 free places X left=3]],
    ["one term after the other"] = [[
      0 0.1 leads boss A token=1
      0.4 0.5 leads boss A token=1
      0.6 0.7 leads boss B token=2]],
    ["runs of two keys, and a call that was denied during a fault"] = [[
      0 0 ran x A
      0.1 0.1 ran y B
      0.2 0.3 acquire own C result=denied]],
    ["a wait for a lock that other clients hold in turn"] = [[
      100 100.1 acquire own A result=ok token=1
      100.1 102 acquire own C result=busy
      100.2 101 release own A result=ok
      101.4 101.5 acquire own B result=ok token=2
      101.9 102 release own B result=ok]],
    ["a call that got no reply while another process was also waiting for one"] = [[
      100.1 100.3 release own A result=ok by=w1
      100.5 100.9 acquire own C result=unreachable by=w2]],
    ["a call with a very short wait that got no reply while another process was waiting for one"] = [[
      100.1 100.11 release own A result=ok by=w1
      100.5 100.56 acquire own C result=unreachable by=w2 wait=0.05]],
    ["a wait for a free lock while the machine was slow"] = [[
      100 100.1 release own A result=ok by=w1
      100 101.5 acquire own B result=ok token=2 by=w2]],
    ["a plain permit of a process whose client was closed without a reply"] = [[
      0 0.1 take places A permits=1 result=unreachable by=w1
      0.6 1.5 end x x by=w1
      1.6 1.6 free places X left=2]],
    ["a wait until the lease ends for a lock whose release failed"] = [[
      100 100.1 acquire pair A result=ok token=1 mode=pair
      100.1 102.4 acquire pair B result=ok token=2 mode=pair
      100.6 100.61 release pair A result=lost]],
    ["a wait for a pair of locks that were freed during a fault"] = [[
      98 98.1 acquire pair A result=ok token=1 mode=pair
      98.2 100.4 acquire pair B result=ok token=2 mode=pair
      98.3 98.4 release pair A result=ok]],
    ["a latch that opens after a call whose outcome is unknown"] = [[
      0 0.1 down gate A result=ok left=1
      0.2 open down gate B
      0.3 0.4 await gate C result=timeout
      0.5 0.6 await gate C result=ok]],
  }
  local BAD = {
    ["a reader beside a writer"] = { "alone", [[
      0 0.1 claim rw A valid=1 mode=read
      0.2 0.3 claim rw B valid=1 mode=write]] },
    ["two writers"] = { "alone", [[
      0 0.1 claim rw A valid=1 mode=write
      0.2 0.3 claim rw B valid=1 mode=write]] },
    ["two owners of a fair lock"] = { "alone", [[
      0 0.1 claim fair A valid=1 mode=fair
      0.2 0.3 claim fair B valid=1 mode=fair]] },
    ["more permits than there are"] = { "permits", [[
      0 0.1 claim pool A valid=1 permits=2
      0.2 0.3 claim pool B valid=1 permits=2]] },
    ["more plain permits than there are, long after they were taken"] = { "permits", [[
      0 0.1 take places A permits=2 result=ok by=w1
      60.2 60.3 take places B permits=2 result=ok by=w2]] },
    ["missing plain permits that nobody has taken"] = { "count", [[
      0 0.1 take places A permits=2 result=ok by=w1
      0.2 0.3 give places A result=ok by=w1
      0.4 0.5 take places B permits=1 result=busy by=w2
      0.8 0.8 free places X left=2]] },
    ["a plain permit kept by a process that has ended"] = { "count", [[
      0 0.1 take places A permits=1 result=unreachable by=w1
      0.6 0.6 end x x by=w1
      0.8 0.8 free places X left=2]] },
    ["plain permits that were given back twice"] = { "count", [[
      0 0.1 take places A permits=1 result=ok by=w1
      0.2 0.3 give places A result=ok by=w1
      0.8 0.8 free places X left=4]] },
    ["a term within another term"] = { "terms", [[
      0 0.1 leads boss A token=1
      0.2 0.3 leads boss B token=2
      0.4 0.5 leads boss A token=1]] },
    ["a token that decreases"] = { "token", [[
      0 0.1 acquire rw A mode=write token=2 result=ok
      0.2 0.3 acquire rw B mode=write token=1 result=ok]] },
    ["a leader with an old token"] = { "token", [[
      0 0.1 leads boss A token=2
      0.2 0.3 leads boss B token=2]] },
    ["two runs of one key"] = { "once", [[
      0 0 ran x A
      5 5 ran x B]] },
    ["a call that is refused after the fault has ended"] = { "whole", [[
      100.2 100.3 acquire own C result=denied]] },
    ["a call that got no reply while only its own process was slow"] = { "whole", [[
      100.1 100.12 release own A result=ok by=w1
      100.2 100.4 release own B result=ok by=w2
      100.5 100.9 acquire own C result=unreachable by=w2]] },
    ["a call that failed at once on a machine that was not slow"] = { "whole", [[
      100.1 100.11 release own A result=ok by=w1
      100.5 100.51 acquire own C result=unreachable by=w2 wait=0.05]] },
    ["two releases that got no reply before their timeouts"] = { "whole", [[
      100.1 100.9 release own A result=unreachable by=w1
      100.1 100.9 release own C result=unreachable by=w2]] },
    ["a long wait for a free lock beside one slow reply"] = { "whole", [[
      100 100.1 release own A result=ok by=w1
      100 108 acquire own B result=ok token=2 by=w2]] },
    ["a wait for a lock that nobody holds"] = { "whole", [[
      100 100.1 acquire own A result=ok token=1
      100.1 102 acquire own C result=busy
      100.2 100.25 release own A result=ok
      101.4 101.5 acquire own B result=ok token=2
      101.9 102 release own B result=ok]] },
    ["an acquire of a pair of locks that had already been free for seconds"] = { "whole", [[
      99 99.1 acquire pair A result=ok token=1 mode=pair
      99.2 103 acquire pair B result=ok token=2 mode=pair
      100.3 100.4 release pair A result=ok]] },
    ["two owners of one lock of a pair"] = { "alone", [[
      0 0.1 claim pair A valid=1 mode=pair
      0 0.1 acquire pair A mode=pair result=busy
      0.2 0.3 claim pair B valid=1 mode=pair]] },
    ["a latch that opens too early"] = { "latch", [[
      0 0.1 down gate A result=ok left=1
      0.2 0.3 await gate C result=ok]] },
    ["a latch that stays closed"] = { "latch", [[
      0 0.1 down gate A result=ok left=1
      0.2 0.3 down gate B result=ok left=0
      0.4 0.5 await gate C result=timeout]] },
    ["a count-down that is counted twice"] = { "latch", [[
      0 0.1 down gate A result=ok left=0]] },
    ["two count-downs that return the same number"] = { "latch", [[
      0 0.1 down gate A result=ok left=1
      0.2 0.3 down gate B result=ok left=1]] },
  }

  for name, lines in pairs(GOOD) do
    it("accepts " .. name, function() assert.equal("", verdict_of_kinds(lines)) end)
  end
  for name, case in pairs(BAD) do
    it("finds " .. name, function() assert.equal(case[1], verdict_of_kinds(case[2])) end)
  end
end)

-- ---- a round ----

describe("a short round #check", function()
  for _, seed in ipairs { 1, 2, 5, 8 } do
    it("keeps every rule: " .. round.describe(round.plan(seed, { seconds = 1.5 })), function()
      local problems, ops = round.run(round.plan(seed, { seconds = 1.5 }))
      assert.equal("", problems[1] and problems[1].rule .. ": " .. problems[1].text or "")
      assert.is_true(#ops > 5)
    end)
  end
end)
