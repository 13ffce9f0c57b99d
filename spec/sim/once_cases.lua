-- What the program of a schedule's record does when it is called alone: see cases.lua.

local RECORD, HALF, TTL = "holdfast_once:job", 30000, 120000
local T0 = 1700000000000 -- ms of the server's clock
local A, B, C = "uuid-of-a:1", "uuid-of-b:1", "uuid-of-c:1"

local cases = {}

local function case(name, run) cases[#cases + 1] = { "schedules: " .. name, run } end

-- `at`: ms after T0, nil: now. more: token, retry. → may, the record before the call
local function call(c, by, state, at, more)
  more = more or {}
  at = at and ("%.0f"):format(T0 + at) or ""
  local reply = c.run("once", { RECORD }, by, at, state, more.token or "0", HALF, TTL,
    more.retry and "1" or "0", "host 7 name")
  return reply[1], reply[4], reply
end

local function recorded(c, at, state, token, by)
  c.same(("%.0f %s %s %s host 7 name"):format(T0 + at, state, token, by), c.cmd("GET", RECORD))
end

-- A whole run. → whether it counts
local function run(c, by, at, token, ended, retry)
  local more = { token = token, retry = retry }
  if call(c, by, "running", at, more) == 0 then return 0 end
  return (call(c, by, ended or "done", at, more))
end

case("asking whether a job is due writes nothing, and returns the server's time", function(c)
  local may, kept, reply = call(c, A, "")
  c.same({ 1, "", T0, T0 }, { may, kept, reply[2], reply[3] })
  c.same(false, c.cmd("GET", RECORD) or false)
end)

case("a run of a job prevents other runs that are due less than half a period earlier or later", function(c)
  for at, may in pairs { [29999] = 0, [30000] = 1, [-29999] = 0 } do
    c.cmd("DEL", RECORD)
    run(c, A, 0, "8")
    c.same(may, call(c, B, "", at), at)
    c.same(may, call(c, B, "claimed", at), at)
  end
end)

case("the record of a job's run expires after two periods", function(c)
  run(c, A, 0, "8")
  c.same(TTL, c.cmd("PTTL", RECORD))
  recorded(c, 0, "done", "8", A)
end)

case("a run that outlives its record still records its end, which prevents a second run", function(c)
  for _, ended in ipairs { "done", "failed" } do
    c.cmd("DEL", RECORD)
    local at = c.cmd("TIME")[1] * 1000 - T0
    call(c, A, "running", at, { token = "8" })
    c.pass(TTL + 1)
    c.same(1, (call(c, A, ended, at, { token = "8" })))
    recorded(c, at, ended, "8", A)
    c.same(0, (call(c, B, "running", at + 10, { token = "16" })))
    c.same(ended == "failed" and 1 or 0, (call(c, B, "", at + 10, { retry = true })))
  end
end)

case("a run whose record was deleted records no end", function(c)
  call(c, A, "running", 0, { token = "8" })
  c.pass(TTL - 1)
  c.cmd("DEL", RECORD)
  c.same(0, (call(c, A, "done", 0, { token = "8" })))
  c.same(false, c.cmd("GET", RECORD) or false)
end)

case("the first of several hosts that claim a scheduled run gets it", function(c)
  c.same(1, (call(c, A, "claimed", 5)))
  c.same(0, (call(c, B, "claimed", 0)))
  recorded(c, 5, "claimed", "0", A)
  c.same(1, (call(c, A, "running", 5, { token = "8" })))
  recorded(c, 5, "running", "8", A)
end)

case("a command that is resent does not change a run's record", function(c)
  for _ = 1, 2 do c.same(1, (call(c, A, "claimed", 0))) end
  for _ = 1, 2 do c.same(1, (call(c, A, "running", 0, { token = "8" }))) end
  c.same(1, (call(c, A, "claimed", 0)))
  recorded(c, 0, "running", "8", A)
  for _ = 1, 2 do c.same(1, (call(c, A, "done", 7))) end
  c.same(1, (call(c, A, "running", 0, { token = "8" })))
  recorded(c, 0, "done", "8", A)
end)

case("a failed run is repeated only with the option retry", function(c)
  for _, ended in ipairs { "failed", "running" } do
    c.cmd("DEL", RECORD)
    call(c, A, "running", 0, { token = "8" })
    if ended == "failed" then call(c, A, ended, 0) end
    c.same(0, (call(c, B, "", 10)))
    c.same(1, (call(c, B, "", 10, { retry = true })))
    c.same(1, (call(c, B, "running", 10, { retry = true, token = "16" })))
    recorded(c, 10, "running", "16", B)
    c.same(0, (call(c, A, "done", 0)))
    recorded(c, 10, "running", "16", B)
    c.same(1, (call(c, B, "done", 10)))
    c.same(0, (call(c, C, "running", 20, { retry = true, token = "24" })))
  end
end)

case("any host may run a job whose command could not be started", function(c)
  call(c, A, "claimed", 0)
  c.same(1, (call(c, A, "unstarted", 0)))
  c.same(1, (call(c, B, "claimed", 10)))
  recorded(c, 10, "claimed", "0", B)
  c.same(0, (call(c, A, "running", 0, { token = "8" })))
end)

case("a host whose claim was taken over by another run does not run the job", function(c)
  call(c, A, "claimed", 0)
  c.same(1, run(c, B, 1, "8", "done", true))
  c.same(0, (call(c, A, "running", 0, { token = "16" })))
end)

case("a late command with a lower token than the recorded run's is refused", function(c)
  call(c, B, "running", 0, { token = "16", retry = true })
  c.same(0, (call(c, A, "running", 0, { token = "8", retry = true })))
  recorded(c, 0, "running", "16", B)
end)

case("a run that waited for longer than a period still runs, unless a later one has run", function(c)
  run(c, A, 0, "8")
  c.pass(100000)
  call(c, B, "claimed", 60000)
  call(c, C, "claimed", 90000 + 1)
  c.same(1, run(c, B, 60000, "16"))
  c.same(1, run(c, C, 90001, "24"))
  c.same(0, run(c, "late", 60000, "32"))
end)

case("claiming a run keeps the previous run's token in the record", function(c)
  run(c, A, 0, "16")
  call(c, B, "claimed", 60000)
  recorded(c, 60000, "claimed", "16", B)
end)

case("a record of a run far in the future does not prevent a run that is due now", function(c)
  run(c, A, 600000, "99")
  c.same(1, run(c, B, 0, "8"))
  recorded(c, 0, "done", "8", B)
end)

case("a key of another type is refused with WRONGTYPE, and left unchanged", function(c)
  c.cmd("HSET", RECORD, "done", "D")
  local reply = c.run("once", { RECORD }, A, "", "", "0", HALF, TTL, "0", "host 7")
  c.same(true, reply.err:find("WRONGTYPE", 1, true) ~= nil)
  c.same("D", c.cmd("HGET", RECORD, "done"))
end)

return cases
