-- Scenarios of a lock, run step by step by the programs of one version or two, and what other
-- versions see: keys, members of the queue, messages, verdicts. Steps call the programs as
-- described in docs/reference/protocol.md.

local resp = require "spec.support.resp"
local wire = require "spec.sim.wire"

local scenarios = {}

local KEY, OTHER = "order", "stock"
local LEASE, GRANT, TTL = 30000, 20000, 600000
local UUID = { a = "aaaaaaaa-0000-8000-8000-000000000001",
  b = "bbbbbbbb-0000-8000-8000-000000000002",
  c = "cccccccc-0000-8000-8000-000000000003" }

local function names(key)
  local set = "{" .. key .. "}"
  return { key, "redisson_lock_token:" .. set, "holdfast_queue:" .. set, "redisson_lock__channel:"
    .. set }
end

local function owner(who) return UUID[who] .. ":7" end
local function member(who, kind, shared)
  return ("1%s%s:7:%d%s"):format(kind or "l", UUID[who], TTL, shared and " " .. shared or "")
end

-- ---- steps: { program, keys, arguments } ----

local ALL, step = names(KEY), {}

function step.acquire(who, from, wait) -- wait: whether to queue
  return { "acquire", ALL, { owner(who), GRANT, from or 0, 0, LEASE, TTL, wait and member(who)
    or "" } }
end

function step.shared(who, from, wait)
  return { "acquire", ALL, { "job", GRANT, from, 1, LEASE, TTL, wait and member(who, "l", "job")
    or "" } }
end

function step.release(who, stays)
  return { "release", ALL, { owner(who), GRANT, stays or 0, stays and LEASE or 0, "" } }
end
function step.leave(who) return { "leave", ALL, { owner(who), GRANT, 0, member(who), "" } } end
function step.renew(who) return { "renew", { KEY }, { owner(who), 2 * LEASE } } end

function step.extend(who, confirms)
  return { "extend", { KEY, ALL[3] }, { owner(who), LEASE, "", confirms and member(who) or "", ALL[4] } }
end

function step.mutex(verb, who, wait)
  if verb == "acquire" then
    return { "mutex_acquire", ALL, { owner(who), GRANT, 0, 0, LEASE, TTL, wait and member(who, "m")
      or "" } }
  elseif verb == "extend" then
    return { "mutex_extend", { KEY, ALL[3] }, { owner(who), LEASE, "", member(who, "m"), ALL[4] } }
  elseif verb == "renew" then
    return { "mutex_renew", { KEY }, { owner(who), LEASE } }
  end
  return { "mutex_release", ALL, { owner(who), GRANT, 0, 0, "" } }
end

function step.begin(who, print, wait)
  return { "begin", ALL, { owner(who), GRANT, 0, 0, LEASE, TTL, wait and member(who, "g") or "",
    print } }
end

function step.complete(who, print, result, keep)
  return { "complete", ALL, { owner(who), GRANT, keep or LEASE, print, result } }
end

local function both()
  local keys = names(KEY)
  for _, name in ipairs(names(OTHER)) do keys[#keys + 1] = name end
  return keys
end

function step.acquire_both(who)
  return { "acquire_all", both(), { "", GRANT, LEASE, TTL, owner(who), 0, owner(who), 0 } }
end

function step.release_both(who)
  return { "release_all", both(), { "", GRANT, owner(who), 0, 0, owner(who), 0, 0 } }
end

-- `number`: the call's, whose note remains.
function step.permits(verb, number, count)
  return { "semaphore_" .. verb,
    { KEY, ("holdfast_call:{%s}:%s:%d"):format(KEY, UUID.a, number), "redisson_sc:{" .. KEY .. "}" },
    { 60 * LEASE, count or 0 } }
end

function step.command(...) return { command = { ... } } end

scenarios.list = {
  { "a lock is entered again, waited for, handed over, confirmed and renewed", {
    step.acquire("a"), step.acquire("a", 1), step.acquire("b"), step.acquire("b", 0, true),
    step.acquire("c", 0, true),
    step.release("a", 1), step.release("a"), step.extend("b", true), step.renew("b"),
      step.release("b"),
    step.acquire("c", 0, true), step.release("c"),
  } },
  { "a wait ends in the queue, and at its grant", {
    step.acquire("a"), step.acquire("b", 0, true), step.acquire("c", 0, true), step.leave("b"),
    step.release("a"),
    step.leave("c"),
  } },
  { "a waiter that does not listen is passed over", {
    step.acquire("a"), step.command("ZADD", ALL[3], 1,
      "1ldddddddd-0000-8000-8000-000000000004:7:600000"),
    step.acquire("b", 0, true), step.release("a"), step.release("b"),
  } },
  { "a command comes late", {
    step.acquire("a"), step.release("a"), step.acquire("b"), step.release("a"), step.renew("a"),
    step.extend("a"),
    step.acquire("a", 1), step.release("b"), step.release("b"),
  } },
  { "a shared owner enters what another of its processes holds", {
    step.shared("a", 0), step.shared("b", 0), step.shared("b", 1), step.acquire("c", 0, true),
    { "release", ALL, { "job", GRANT, 0, LEASE, 1 } },
    { "release", ALL, { "job", GRANT, 0, 0, 1 } },
    step.shared("a", 0, true), step.release("c"),
    { "leave", ALL, { "job", GRANT, 0, member("a", "l", "job"), 0 } },
  } },
  { "a mutex is waited for and handed over", {
    step.mutex("acquire", "a"), step.mutex("acquire", "a"), step.mutex("acquire", "b", true),
    step.mutex("renew", "a"),
    step.mutex("release", "a"), step.mutex("extend", "b"), step.mutex("release", "b"),
  } },
  { "permits without a lease are taken and given back, and an acquire is undone", {
    step.permits("set", 1, 3), step.permits("acquire", 2, 2), step.permits("acquire", 2, 2),
    step.permits("acquire", 3, 2), step.permits("release", 4, 1), step.permits("acquire", 3, 2),
    step.permits("leave", 2), step.permits("acquire", 2, 2), step.permits("leave", 2),
    step.permits("drain", 5), step.permits("release", 6, -1), step.permits("delete", 7),
  } },
  { "a guard's run ends in a record", {
    step.begin("a", "one"), step.begin("b", "one", true), step.begin("c", "two"),
    step.complete("a", "one", "RT"),
    step.begin("b", "one", true), step.begin("c", "two"), step.complete("a", "one", "RT"),
  } },
  { "a guard's run fails, and the next one begins", {
    step.begin("a", "one"), step.begin("b", "one", true), step.complete("a", "one", "", 0),
    step.begin("b", "one", true),
    step.complete("b", "one", "D"),
  } },
  { "a guard and a lock are no waiters of each other", {
    step.acquire("a"), step.begin("a", "", true), step.begin("b", "one"), step.release("a"),
    step.begin("a", ""), step.begin("b", "", true), step.acquire("c", 0, true),
    step.acquire_both("c"), step.complete("a", "", "", 0), step.acquire("b"), step.acquire("c"),
    step.complete("b", "", "D"), step.acquire("c", 0, true),
  } },
  { "several locks are taken at once", {
    step.acquire("a"), step.acquire_both("b"), step.release("a"), step.acquire_both("b"),
    step.acquire("c", 0, true),
    step.release_both("b"), step.acquire_both("b"), step.release("c"),
  } },
  { "a lock is taken by force", {
    step.acquire("a"), step.acquire("b", 0, true), { "force", ALL, { owner("c"), GRANT } },
    step.renew("a"),
    step.release("a"), step.release("b"),
  } },
  { "a quorum agrees on its token", {
    { "acquire", ALL, { owner("a"), GRANT, 0, 0, LEASE, TTL, "", "", 9000000000000000 } },
    { "raise", { ALL[2] }, { 9000000000000500, TTL } }, step.release("a"), step.acquire("b"),
    step.release("b"),
  } },
  { "clients without a queue had the lock", {
    step.command("HSET", KEY, "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33", 1),
    step.command("PEXPIRE", KEY, LEASE),
    step.acquire("a", 0, true), step.command("DEL", KEY), step.acquire("a", 0, true),
      step.acquire("b", 0, true),
    step.release("a"), step.release("b"),
  } },
  { "clients of a higher format wait", {
    step.acquire("a"), step.command("ZADD", ALL[3], 1, "2l" .. UUID.c .. ":7:600000"),
    step.acquire("b", 0, true),
    step.acquire("a", 1), step.release("a"), step.acquire("b"),
  } },
}

-- ---- what others see ----

local CLOCK = "%f[%d]%d%d%d%d%d%d%d%d%d%d%d%d%d+%f[^%d]"

-- Replaces times, tokens and places, which differ in each run.
local function settled(text)
  text = text:gsub("(1 grant %l %d+) %S+ %d+", "%1 PLACE TOKEN"):gsub("(1f %d+ %d+ [%d-]) %d+",
    "%1 RUN")
  text = text:gsub("9000000000%d+", "%0!") -- the quorum's token is not a time
  return (text:gsub(CLOCK .. "!?", function(clock)
    return clock:find("!", 1, true) and clock or "CLOCK"
  end))
end

local function pairs_of(list)
  local rows = {}
  for i = 1, #list, 2 do rows[#rows + 1] = ("%s=%s"):format(list[i], list[i + 1]) end
  table.sort(rows)
  return table.concat(rows, " ")
end

local LONGEST = 1000000 -- s

local function lease_of(cli, key)
  local ttl = cli("PTTL", key)
  if ttl < 0 then return ttl end
  -- Rounded, so that a slow test has the same result. A counter that is ahead of the clock is kept
  -- until the clock reaches it; how long that takes depends on the date.
  return ("%d s"):format(math.min(10 * math.floor(ttl / 10000 + 0.5), LONGEST))
end

-- Names the score of a member of the queue.
local function score_name(score)
  if score == 0 then return "(0)" end
  return score > 0 and "(place)" or "(until)"
end

local function content_of(cli, key)
  local kind = cli("TYPE", key)
  if kind == "hash" then return pairs_of(cli("HGETALL", key)) end
  if kind == "string" then return cli("GET", key) end
  local rows = cli("ZRANGE", key, 0, -1, "WITHSCORES")
  for i = 2, #rows, 2 do rows[i] = score_name(tonumber(rows[i])) end
  return table.concat(rows, " ")
end

local function state_of(cli, out)
  local keys = cli("KEYS", "*")
  table.sort(keys)
  for _, key in ipairs(keys) do
    out[#out + 1] = settled(("    %s: %s, %s"):format(key, content_of(cli, key),
      lease_of(cli, key)))
  end
end

-- Adds all messages received before the reply to a PING.
local function received_by(listener, who, out)
  listener:send("PING", "end")
  repeat
    local push = listener:receive(2)
    if push[1] == "message" then
      out[#out + 1] = settled(("    %s hears: %s"):format(who, push[3]))
    end
  until push[1] == "pong"
end

-- → the first word of a reply, which is its verdict; for a batch, that of the first lock
local function verdict(reply)
  if type(reply) ~= "table" then return tostring(reply) end
  return tostring(type(reply[1]) == "table" and reply[1][1] or reply[1])
end

local function run_once(server, scenario, text_of)
  local function cli(...) return server:cli(...) end
  local listeners, out = {}, { scenario[1] }
  for who, uuid in pairs(UUID) do
    listeners[who] = assert(resp.connect { path = server.path })
    listeners[who]:call("SUBSCRIBE", "holdfast_grant:" .. uuid)
  end
  for i, each in ipairs(scenario[2]) do
    local reply, message
    if each.command then
      reply = cli((table.unpack or unpack)(each.command))
    else
      local words = { "EVAL", text_of(i, each[1]), #each[2] }
      for _, list in ipairs { each[2], each[3] } do
        for _, word in ipairs(list) do
          words[#words + 1] = type(word) == "number" and ("%.0f"):format(word) or word
        end
      end
      reply, message = cli((table.unpack or unpack)(words))
    end
    out[#out + 1] = ("  %s: %s"):format(each[1] or each.command[1], reply == nil and message
      or verdict(wire.spelled_out(each[1] or "", reply)))
    for _, who in ipairs { "a", "b", "c" } do received_by(listeners[who], who, out) end
    state_of(cli, out)
  end
  for _, listener in pairs(listeners) do listener:close() end
  server:cli("FLUSHALL")
  return table.concat(out, "\n") .. "\n"
end

local TRIES = 5

-- Runs a scenario on an empty server. `text_of(i, program)` returns the program of the i-th step.
-- If a queue exists when the server's clock passes a multiple of eight seconds, it gets a record;
-- then the scenario is run again. → the transcript
function scenarios.run(server, scenario, text_of)
  local function span() return math.floor(tonumber(server:cli("TIME")[1]) / 8) end
  for _ = 1, TRIES do
    local began, transcript = span(), run_once(server, scenario, text_of)
    if span() == began then return transcript end
  end
  error(scenario[1] .. ": it takes more than eight seconds")
end

return scenarios
