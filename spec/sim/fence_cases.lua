-- What the program of a fence does when it is called alone: see cases.lua.

local FENCE, DATA, LOCK, TTL = "holdfast_fence:{stock}", "{stock}:count", "order:42", 60000
local A, B = "uuid-of-a", "uuid-of-b"
local unpack = table.unpack or unpack

local cases = {}

local function case(name, run) cases[#cases + 1] = { "fences: " .. name, run } end

-- A call of `commands`, each a list of words.
local function call(c, token, writer, number, commands, ttl, lock)
  local words = {}
  for _, command in ipairs(commands) do
    words[#words + 1] = tostring(#command)
    for _, word in ipairs(command) do words[#words + 1] = word end
  end
  return c.run("fence", { FENCE, DATA }, token, lock or LOCK, writer, number, ttl or TTL, unpack(words))
end

local function set(value) return { "SET", DATA, value } end

case("the first write runs, and the token, the lock and the reply are stored", function(c)
  c.same({ 1, "S2:OK" }, call(c, 16, A, 1, { set "a" }))
  c.same("a", c.cmd("GET", DATA))
  c.same({ "16", LOCK, "1 S2:OK" }, c.cmd("HMGET", FENCE, "token", "lock", A))
  c.same(TTL, c.cmd("PTTL", FENCE))
end)

case("a call that is sent twice runs once, and gets the same reply", function(c)
  for _ = 1, 2 do c.same({ 1, "D1;" }, call(c, 16, A, 1, { { "INCR", DATA } })) end
  c.same({ 1, "D2;" }, call(c, 16, A, 2, { { "INCR", DATA } }))
  c.same("2", c.cmd("GET", DATA))
end)

case("a call that arrives after a later one does not run", function(c)
  call(c, 16, A, 10, { set "later" })
  c.same({ -2 }, call(c, 16, A, 9, { set "late" }))
  c.same("later", c.cmd("GET", DATA))
end)

case("a lower token is refused, and nothing is written", function(c)
  call(c, 24, B, 1, { set "b" })
  c.pass(10)
  c.same({ 0, "24" }, call(c, 16, A, 1, { set "a" }))
  c.same("b", c.cmd("GET", DATA))
  c.same(TTL - 10, c.cmd("PTTL", FENCE))
end)

case("a stored number that is not a token does not refuse a write", function(c)
  for i, number in ipairs { "9007199254740992", "9223372036854775807", "inf", "nan", "none" } do
    c.cmd("HSET", FENCE, "token", number, "lock", LOCK)
    c.same({ 1, "S2:OK" }, call(c, 16, A, i, { set(number) }))
    c.same({ number, "16" }, { c.cmd("GET", DATA), c.cmd("HGET", FENCE, "token") })
  end
end)

case("a stored token of the highest value refuses a lower one", function(c)
  c.cmd("HSET", FENCE, "token", "9007199254740991", "lock", LOCK)
  c.same({ 0, "9007199254740991" }, call(c, 16, A, 1, { set "a" }))
end)

case("a higher token deletes the replies to earlier holders", function(c)
  call(c, 16, A, 1, { set "a" })
  c.same({ 1, "S2:OK" }, call(c, 24, B, 1, { set "b" }))
  c.same({ "24", LOCK, "1 S2:OK" }, c.cmd("HMGET", FENCE, "token", "lock", B))
  c.same(3, c.cmd("HLEN", FENCE))
end)

case("a reply is stored for each of two writers with one token", function(c)
  call(c, 16, A, 1, { set "a" })
  call(c, 16, B, 1, { set "b" })
  c.same({ 1, "S2:OK" }, call(c, 16, A, 1, { set "a" }))
  c.same("b", c.cmd("GET", DATA))
end)

case("a resource belongs to one lock", function(c)
  call(c, 16, A, 1, { set "a" })
  c.same({ -1, LOCK }, call(c, 24, B, 1, { set "b" }, nil, "order:43"))
  c.same("a", c.cmd("GET", DATA))
end)

case("replies of each type are stored", function(c)
  c.cmd("HSET", DATA, "field", "text")
  c.same({ 1, "D1;S4:text{D1;S4:textD2;F}" }, call(c, 16, A, 1, {
    { "HSET", DATA, "other", "1" }, { "HGET", DATA, "field" }, { "HMGET", DATA, "field", "none" },
  }))
end)

case("the first command that fails ends the call", function(c)
  local reply = call(c, 16, A, 1, { set "text", { "HSET", DATA, "a", "b" }, set "behind" })
  c.same(1, reply[1])
  c.same("S2:OK{S3:errS", reply[2]:sub(1, 13))
  c.same("text", c.cmd("GET", DATA))
end)

case("the TTL is only made longer, until it is endless", function(c)
  call(c, 16, A, 1, { set "a" })
  call(c, 16, A, 2, { set "a" }, 10)
  c.same(TTL, c.cmd("PTTL", FENCE))
  call(c, 16, A, 3, { set "a" }, 2 * TTL)
  c.same(2 * TTL, c.cmd("PTTL", FENCE))
  call(c, 16, A, 4, { set "a" }, 0)
  c.same(-1, c.cmd("PTTL", FENCE))
  call(c, 16, A, 5, { set "a" })
  c.same(-1, c.cmd("PTTL", FENCE))
end)

return cases
