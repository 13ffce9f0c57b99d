-- What the programs of a latch do when they are called alone: see cases.lua.

local KEPT = 60000
local KEY, CHANNEL = "k", "redisson_countdownlatch__channel__{k}"

local cases = {}

local function case(name, run) cases[#cases + 1] = { "latches: " .. name, run } end

-- Calls that differ in their number are different calls; the same number again is a command that
-- was sent twice.
local function call(c, program, number, amount)
  return c.run(program, { KEY, "holdfast_call:{k}:uuid:" .. number, CHANNEL }, KEPT, amount)
end

local function set(c, number, count) return call(c, "latch_set", number, count) end
local function down(c, number, amount) return call(c, "latch_down", number, amount or 1) end
local function delete(c, number, count) return call(c, "latch_delete", number, count or 0) end

case("a latch's count is set and announced once, and cannot be set again until it opens", function(c)
  local listener = c.listen(CHANNEL)
  c.same(1, set(c, 1, 3))
  c.same({ "1" }, listener.received())
  c.same(0, set(c, 2, 5))
  c.same({}, listener.received())
  c.same("3", c.cmd("GET", KEY))
  c.same(-1, c.cmd("PTTL", KEY))
end)

case("the last count_down opens the latch and announces that once", function(c)
  local listener = c.listen(CHANNEL)
  c.cmd("SET", KEY, "3")
  c.same(2, down(c, 1))
  c.same(1, down(c, 2))
  c.same({}, listener.received())
  c.same(0, down(c, 3))
  c.same({ "0" }, listener.received())
  c.same(0, c.cmd("EXISTS", KEY))
  c.same(-1, down(c, 4))
  c.same({}, listener.received())
  c.same(0, c.cmd("EXISTS", KEY))
end)

case("a count_down by more than the remaining count opens the latch", function(c)
  local listener = c.listen(CHANNEL)
  c.cmd("SET", KEY, "3")
  c.same(0, down(c, 1, 9))
  c.same({ "0" }, listener.received())
  c.same(0, c.cmd("EXISTS", KEY))
end)

case("a call that is resent takes effect only once, as long as the server remembers it", function(c)
  local listener = c.listen(CHANNEL)
  for _ = 1, 2 do c.same(1, set(c, 1, 3)) end
  for _ = 1, 2 do c.same(2, down(c, 2)) end
  c.pass(KEPT - 1)
  c.same(2, down(c, 2))
  c.same("2", c.cmd("GET", KEY))
  for _ = 1, 2 do c.same(0, down(c, 3, 2)) end
  for _ = 1, 2 do c.same(-1, down(c, 4)) end
  for _ = 1, 2 do c.same(0, delete(c, 5)) end
  c.same({ "1", "0" }, listener.received())
  c.pass(KEPT + 1)
  c.same(0, #c.cmd("KEYS", "*"))
end)

case("a late copy of a call that had no effect has no effect on a newer count", function(c)
  c.cmd("SET", KEY, "1")
  c.same(0, set(c, 1, 5))
  c.same(0, down(c, 2))
  c.same(-1, down(c, 3))
  c.same(0, delete(c, 4))
  c.same(0, set(c, 1, 5))
  c.same(0, c.cmd("EXISTS", KEY))
  c.cmd("SET", KEY, "7")
  c.same({ -1, 0 }, { down(c, 3), delete(c, 4) })
  c.same("7", c.cmd("GET", KEY))
end)

case("a late copy of a call does not change a count that was set since", function(c)
  c.same(1, set(c, 1, 1))
  c.same(0, down(c, 2))
  c.same(1, set(c, 3, 2))
  c.same(0, down(c, 2))
  c.same(1, set(c, 1, 1))
  c.same("2", c.cmd("GET", KEY))
end)

case("a late copy of a delete of an open latch does not delete a count that was set since", function(c)
  c.same(0, delete(c, 1))
  c.same(1, set(c, 2, 2))
  c.same(0, delete(c, 1))
  c.same("2", c.cmd("GET", KEY))
end)

case("deleting a latch opens it for all waiters", function(c)
  local listener = c.listen(CHANNEL)
  c.cmd("SET", KEY, "3")
  for _ = 1, 2 do c.same(1, delete(c, 1)) end
  c.same({ "0" }, listener.received())
  c.same(0, delete(c, 2))
  c.same({}, listener.received())
end)

case("a delete with a count opens the latch only if it has that count, even if it is sent twice", function(c)
  local listener = c.listen(CHANNEL)
  c.cmd("SET", KEY, "3")
  c.same({ 0, 0 }, { delete(c, 1, 2), delete(c, 2, 4) })
  c.cmd("SET", KEY, "2")
  c.same({ 0, {} }, { delete(c, 1, 2), listener.received() })
  for _ = 1, 2 do c.same(1, delete(c, 3, 2)) end
  c.same({ "0" }, listener.received())
  c.cmd("SET", KEY, "-3")
  c.same(0, delete(c, 4, 3))
  c.cmd("SET", KEY, "3")
  c.same(1, c.run("latch_delete", { KEY, "holdfast_call:{k}:uuid:5", CHANNEL }, KEPT))
end)

case("a latch with a count of 0 or less is open and can be set again", function(c)
  for i, text in ipairs { "0", "-3" } do
    c.cmd("SET", KEY, text)
    c.same(-1, down(c, 10 * i))
    c.same(0, delete(c, 10 * i + 1))
    c.same(1, set(c, 10 * i + 2, 4))
    c.same("4", c.cmd("GET", KEY))
  end
end)

case("in a cluster a latch's changes are announced on both the plain and the sharded channel", function(c)
  local plain, sharded = c.listen(CHANNEL), c.listen(CHANNEL, true)
  c.same(1, call(c, "sharded_latch_set", 1, 1))
  c.same({ { "1" }, { "1" } }, { plain.received(), sharded.received() })
  c.same(0, call(c, "sharded_latch_down", 2, 1))
  c.same({ { "0" }, { "0" } }, { plain.received(), sharded.received() })
  c.cmd("SET", KEY, "3")
  plain.close()
  c.same(1, call(c, "sharded_latch_delete", 3, 0))
  c.same({ "0" }, sharded.received())
end)

case("every call refuses a key that does not hold a latch, and leaves it unchanged", function(c)
  for i, words in ipairs { { "HSET", KEY, "a", "b" }, { "SET", KEY, "owner:1" }, { "SET", KEY, "" },
      { "SET", KEY, "-12.50" }, { "SET", KEY, "0.00" }, { "SET", KEY, "nan" }, { "SET", KEY, "1.5" },
      { "SET", KEY, " 7" }, { "SET", KEY, "007" }, { "SET", KEY, "-0" }, { "SET", KEY, "0x10" },
      { "SET", KEY, "9223372036854775808" } } do
    c.cmd("DEL", KEY)
    c.cmd((table.unpack or unpack)(words))
    local before = words[1] == "SET" and c.cmd("GET", KEY)
    for j, reply in ipairs { set(c, 10 * i, 1), down(c, 10 * i + 1), delete(c, 10 * i + 2) } do
      c.same("WRONGTYPE", type(reply) == "table" and reply.err:match("^%u+"), "reply " .. j)
    end
    c.same(0, #c.cmd("KEYS", "holdfast_call:*"))
    c.same(1, c.cmd("EXISTS", KEY))
    if before then c.same(before, c.cmd("GET", KEY)) end
  end
end)

return cases
