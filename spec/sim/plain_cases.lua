-- What the programs of a plain semaphore do when they are called alone: see cases.lua.

local KEPT = 3600000
local TURN = 50 -- ms
local KEY, CHANNEL = "k", "redisson_sc:{k}"
local OURS, RECORD = CHANNEL .. ":holdfast", CHANNEL .. ":turns"

local cases = {}

local function case(name, run) cases[#cases + 1] = { "plain semaphores: " .. name, run } end

-- Calls that differ in their number are different calls; the same number again is a command that
-- was sent twice, or an acquire that is retried.
local function call(c, program, number, amount, ...)
  return c.run(program, { KEY, "holdfast_call:{k}:uuid:" .. number, CHANNEL }, KEPT, amount or 0,
    ...)
end

local function acquire(c, number, count, ...)
  return call(c, "semaphore_acquire", number, count, ...)
end

local function release(c, number, count) return call(c, "semaphore_release", number, count) end
local function leave(c, number) return call(c, "semaphore_leave", number) end
local function drain(c, number) return call(c, "semaphore_drain", number) end
local function set(c, number, count) return call(c, "semaphore_set", number, count) end
local function delete(c, number) return call(c, "semaphore_delete", number) end

case("an acquire takes all permits it asks for, or none", function(c)
  c.same({ 0, 0 }, acquire(c, 1, 1))
  c.same(0, c.cmd("EXISTS", KEY))
  c.cmd("SET", KEY, "3")
  c.same({ 1, 1 }, acquire(c, 1, 2))
  c.same({ 0, 1 }, acquire(c, 2, 2))
  c.same({ 1, 0 }, acquire(c, 2, 1))
  c.same("0", c.cmd("GET", KEY))
end)

case("a release reserves no permit for Redisson if the user may not count subscribers", function(c)
  local listener = c.listen(CHANNEL)
  c.cmd("SET", KEY, "0")
  c.refuse("pubsub|numsub")
  c.same(1, release(c, 1, 1))
  c.same({ "01", "1" }, listener.received())
  c.same({ 1, 0 }, acquire(c, 2, 1))
end)

case("an acquire that finds too few permits stores nothing on the server", function(c)
  c.same({ 0, 0 }, acquire(c, 1, 1))
  c.same(0, #c.cmd("KEYS", "*"))
  c.cmd("SET", KEY, "1")
  c.same({ 1, 0 }, acquire(c, 1, 1))
end)

case("each call that is resent takes effect only once, as long as the server remembers it", function(c)
  local listener = c.listen(CHANNEL)
  for _ = 1, 2 do c.same(1, set(c, 1, 5)) end
  for _ = 1, 2 do c.same(0, set(c, 2, 7)) end
  c.same({ 1, 3 }, acquire(c, 3, 2))
  c.same({ 1, 3 }, acquire(c, 3, 2))
  for _ = 1, 2 do c.same(4, release(c, 4, 1)) end
  for _ = 1, 2 do c.same(4, drain(c, 5)) end
  for _ = 1, 2 do c.same(0, drain(c, 6)) end
  c.pass(KEPT - 1)
  c.same({ 1, 0 }, acquire(c, 3, 2))
  c.same(4, release(c, 4, 1))
  c.same("0", c.cmd("GET", KEY))
  for _ = 1, 2 do c.same(1, delete(c, 7)) end
  c.same(0, delete(c, 8))
  c.same({ "05", "04" }, listener.received())
  c.pass(KEPT + 1)
  c.same(0, #c.cmd("KEYS", "*"))
end)

case("a release publishes the number of free permits, unless none is free", function(c)
  local listener = c.listen(CHANNEL)
  c.same(1, set(c, 1, 0))
  c.same({}, listener.received())
  c.same(-3, release(c, 2, -3))
  c.same(0, release(c, 3, 3))
  c.same({}, listener.received())
  c.same(2, release(c, 4, 2))
  c.same(1, release(c, 5, -1))
  c.same({ "02", "01" }, listener.received())
end)

case("undoing an acquire returns its permits once, and a late copy of the acquire takes none", function(c)
  local listener = c.listen(CHANNEL)
  c.cmd("SET", KEY, "3")
  c.same({ 1, 1 }, acquire(c, 1, 2))
  c.same(1, leave(c, 1))
  c.same({ "03" }, listener.received())
  for _ = 1, 2 do c.same(0, leave(c, 1)) end
  c.same({ 0, 3 }, acquire(c, 1, 2))
  c.same("3", c.cmd("GET", KEY))
  c.same(0, leave(c, 2))
  c.same({ 0, 3 }, acquire(c, 2, 2))
  c.same({}, listener.received())
end)

case("undoing a drain returns the drained permits once", function(c)
  c.cmd("SET", KEY, "3")
  c.same(3, drain(c, 1))
  c.same(1, leave(c, 1))
  c.same("3", c.cmd("GET", KEY))
  c.same(0, drain(c, 1))
  c.same("3", c.cmd("GET", KEY))
  c.cmd("SET", KEY, "-3")
  c.same(0, drain(c, 2))
  c.same(0, leave(c, 2))
  c.same("-3", c.cmd("GET", KEY))
end)

case("undoing an acquire does not recreate a semaphore that has since been deleted", function(c)
  c.cmd("SET", KEY, "3")
  c.same({ 1, 1 }, acquire(c, 1, 2))
  c.same(1, delete(c, 2))
  c.same(1, leave(c, 1))
  c.same(0, c.cmd("EXISTS", KEY))
  c.same(2, release(c, 3, 2))
  c.same("2", c.cmd("GET", KEY))
end)

case("every call preserves a TTL that Redisson has set", function(c)
  c.cmd("SET", KEY, "3", "PX", "5000")
  c.same({ 1, 1 }, acquire(c, 1, 2))
  c.same(3, release(c, 2, 2))
  c.same(3, drain(c, 3))
  c.same(1, leave(c, 3))
  c.same(true, c.cmd("PTTL", KEY) > 0)
end)

case("in a cluster a plain semaphore's changes are announced on both the plain and the sharded channel", function(c)
  local plain, sharded = c.listen(CHANNEL), c.listen(CHANNEL, true)
  c.same(1, call(c, "sharded_semaphore_set", 1, 2))
  c.same({ { "02" }, { "02" } }, { plain.received(), sharded.received() })
  c.pass(TURN + 1)
  c.same({ 1, 0 }, acquire(c, 2, 2))
  c.same(1, call(c, "sharded_semaphore_leave", 2, 0))
  c.same({ { "02" }, { "02" } }, { plain.received(), sharded.received() })
  plain.close()
  c.same(3, call(c, "sharded_semaphore_release", 3, 1))
  c.same({ "03" }, sharded.received())
end)

-- Subscribes a client of Redisson and `ours` of holdfast. → the client of Redisson
local function subscribe(c, ours)
  for _ = 1, ours or 0 do
    c.listen(CHANNEL)
    c.listen(OURS)
  end
  return c.listen(CHANNEL)
end

local function now_of(c)
  local time = c.cmd("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- → the record of turns; its score is relative to now
local function record(c)
  local score, rest = (c.cmd("GET", RECORD) or ""):match("^(%S+) 1f (.+)$")
  return score and ("%.0f: %s"):format(-score - now_of(c), rest)
end

local function write_record(c, ms, fields)
  c.cmd("SET", RECORD, ("%.0f 1f %s"):format(-(now_of(c) + ms), fields), "PX", 5000)
end

case("a release reserves one permit for waiting Redisson clients for a short time", function(c)
  local java = subscribe(c)
  c.cmd("SET", KEY, "1")
  c.same({ 1, 0 }, acquire(c, 1, 1)) -- it was free before, so there is no turn
  c.same(1, release(c, 2, 1))
  c.same({ "01" }, java.received())
  c.same({ 0, 0, TURN }, acquire(c, 3, 1))
  c.pass(20)
  c.same(3, release(c, 4, 2)) -- this neither ends nor prolongs the turn
  c.same({ "03" }, java.received())
  c.same({ 0, 2, TURN - 20 }, acquire(c, 5, 3))
  c.same({ 1, 1 }, acquire(c, 6, 2))
  c.pass(TURN - 21)
  c.same({ 0, 0, 1 }, acquire(c, 3, 1))
  c.pass(1)
  c.same({ 1, 0 }, acquire(c, 3, 1))
  java.close()
  c.same(1, release(c, 7, 1))
  c.same({ 1, 0 }, acquire(c, 8, 1))
  c.same(false, c.cmd("GET", RECORD))
end)

case("a permit reserved for Redisson is free to take as soon as a Redisson client has released one", function(c)
  subscribe(c, 1)
  c.same(1, release(c, 1, 1))
  c.pass(7)
  c.same({ 1, 0 }, acquire(c, 2, 1, 1))
  c.same("0: 1 0 0 7", record(c))
  c.cmd("INCRBY", KEY, "1") -- as Redisson releases
  c.same({ 1, 0 }, acquire(c, 3, 1))
end)

case("Redisson's turn ends when the permit that it took is returned", function(c)
  subscribe(c, 1)
  c.same(1, release(c, 1, 1))
  c.cmd("DECRBY", KEY, "1") -- as Redisson acquires
  c.pass(9)
  c.same({ 0, 0 }, acquire(c, 2, 1))
  c.same("-9: 0 0 0 0", record(c))
  c.pass(1)
  c.cmd("INCRBY", KEY, "1")
  c.same({ 1, 0 }, acquire(c, 2, 1))
  c.same("0: 1 0 0 10", record(c))
end)

case("Redisson's turn continues if holdfast takes other permits or needs more than are free", function(c)
  subscribe(c, 1)
  c.same(2, release(c, 1, 2))
  c.same({ 0, 2 }, acquire(c, 2, 3))
  c.same({ 1, 1 }, acquire(c, 3, 1))
  c.same("50: 0 0 - 0", record(c))
end)

case("holdfast keeps its turn for as long as Redisson's lasted, and then leaves a longer one", function(c)
  local java = subscribe(c, 1)
  write_record(c, -20, "0 0 0 0")
  c.cmd("SET", KEY, "1")
  c.same({ 1, 0 }, acquire(c, 1, 1))
  c.pass(10)
  c.same(1, release(c, 2, 1))
  c.same("-10: 2 0 0 20", record(c))
  c.same({ 1, 0 }, acquire(c, 3, 1))
  c.same({ "1" }, java.received())
  c.pass(5)
  c.same(1, release(c, 4, 1))
  c.same({ "01" }, java.received())
  c.same("50: 0 0 - 0", record(c))
  write_record(c, -1, "1 0 - 40")
  c.pass(40)
  c.same(2, release(c, 5, 1))
  c.same("80: 0 0 - 30", record(c))
end)

case("a turn of Redisson's that no client used counts only until its end", function(c)
  subscribe(c, 1)
  c.same(1, release(c, 1, 1))
  c.pass(1000)
  c.same({ 1, 0 }, acquire(c, 2, 1))
  c.same("0: 1 0 - 50", record(c))
end)

case("a turn of Redisson's that lasted for longer than two seconds counts as two seconds", function(c)
  subscribe(c, 1)
  write_record(c, -2500, "0 0 0 0")
  c.cmd("SET", KEY, "1")
  c.same({ 1, 0 }, acquire(c, 1, 1))
  c.same("0: 1 0 0 2000", record(c))
end)

case("a release after the end of Redisson's turn reserves no further permit for it", function(c)
  local java = subscribe(c, 1)
  for _, fields in ipairs { "0 0 1 0", "0 0 0 0" } do
    write_record(c, -1, fields)
    c.same(1, release(c, fields, 1))
    c.same({ "1" }, java.received())
    c.same("-1: " .. fields, record(c))
    c.cmd("SET", KEY, "0")
  end
end)

case("the record of turns is removed when a permit is taken and no holdfast client waits", function(c)
  subscribe(c)
  c.same(1, release(c, 1, 1))
  c.pass(TURN)
  c.same({ 1, 0 }, acquire(c, 2, 1))
  c.same(false, c.cmd("GET", RECORD))
end)

case("a permit is no longer reserved for Redisson once Redisson has unsubscribed", function(c)
  local java = subscribe(c, 1)
  c.same(1, release(c, 1, 1))
  java.close()
  c.same({ 1, 0 }, acquire(c, 2, 1))
  write_record(c, 20, "0 0 1 0")
  c.same(1, release(c, 3, 1))
  c.same(false, c.cmd("GET", RECORD))
end)

case("a reservation for Redisson that ends too far in the future because the clock was set back is ignored", function(c)
  subscribe(c, 1)
  c.cmd("SET", KEY, "1")
  write_record(c, 201, "0 0 1 0")
  c.same({ 1, 0 }, acquire(c, 1, 1))
  c.cmd("SET", KEY, "1")
  write_record(c, 200, "0 0 1 150")
  c.same({ 0, 0, 200 }, acquire(c, 2, 1))
end)

case("a release reserves no permit for Redisson if the user may not query the time", function(c)
  local java = subscribe(c)
  c.refuse("time")
  c.same(1, release(c, 1, 1))
  c.same({ "01", "1" }, java.received())
end)

case("the record of turns expires five seconds after its last change", function(c)
  subscribe(c, 1)
  c.same(1, release(c, 1, 1))
  c.pass(5001)
  c.same(false, c.cmd("GET", RECORD))
end)

case("a release reserves no permit for Redisson if only holdfast clients are subscribed", function(c)
  local ours, tally = c.listen(CHANNEL), c.listen(CHANNEL .. ":holdfast")
  c.same(1, release(c, 1, 1))
  c.same({ { "01", "1" }, {} }, { ours.received(), tally.received() })
  c.same({ 1, 0 }, acquire(c, 2, 1))
  local java = c.listen(CHANNEL)
  c.same(1, release(c, 3, 1))
  c.same({ "01" }, java.received())
end)

case("in a cluster a release reserves no permit for Redisson if only holdfast clients are subscribed", function(c)
  c.listen(CHANNEL)
  c.listen(CHANNEL .. ":holdfast")
  local ours = c.listen(CHANNEL, true)
  c.listen("holdfast_listening:{k}", true)
  c.same(1, call(c, "sharded_semaphore_release", 1, 1))
  c.same({ "01", "1" }, ours.received())
  local java = c.listen(CHANNEL, true)
  c.same(2, call(c, "sharded_semaphore_release", 2, 1))
  c.same({ "02" }, java.received())
end)

case("an acquire that the server refuses takes no permit, and can be sent again", function(c)
  c.cmd("SET", KEY, "3")
  c.refuse("decrby")
  c.same("string", type(acquire(c, 1, 2).err))
  c.refuse()
  c.same({ KEY }, c.cmd("KEYS", "*"))
  c.same({ 1, 1 }, acquire(c, 1, 2))
end)

case("every call refuses a key that does not hold a plain semaphore, and leaves it unchanged", function(c)
  for i, words in ipairs { { "HSET", KEY, "a", "b" }, { "SET", KEY, "owner:1" }, { "SET", KEY, "" },
      { "SET", KEY, "1.5" }, { "SET", KEY, "0x10" }, { "SET", KEY, "007" }, { "SET", KEY, "-0" },
      { "SET", KEY, "9223372036854775808" }, { "SET", KEY, "-9223372036854775809" } } do
    c.cmd("DEL", KEY)
    c.cmd((table.unpack or unpack)(words))
    for j, reply in ipairs { acquire(c, 10 * i, 1), release(c, 10 * i + 1, 1), drain(c, 10 * i + 2),
        set(c, 10 * i + 3, 1), delete(c, 10 * i + 4) } do
      c.same("WRONGTYPE", type(reply) == "table" and reply.err:match("^%u+"), "reply " .. j)
    end
    c.same(0, #c.cmd("KEYS", "holdfast_call:*"))
    c.same(1, c.cmd("EXISTS", KEY))
  end
end)

return cases
