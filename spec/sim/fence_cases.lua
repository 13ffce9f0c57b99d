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

case("the first fenced write runs, and stores its token, its lock's name and the reply", function(c)
  c.same({ 1, "S2:OK" }, call(c, 16, A, 1, { set "a" }))
  c.same("a", c.cmd("GET", DATA))
  c.same({ "16", LOCK, "1 S2:OK" }, c.cmd("HMGET", FENCE, "token", "lock", A))
  c.same(TTL, c.cmd("PTTL", FENCE))
end)

case("a fenced write that is resent runs once, and returns the first reply again", function(c)
  for _ = 1, 2 do c.same({ 1, "D1;" }, call(c, 16, A, 1, { { "INCR", DATA } })) end
  c.same({ 1, "D2;" }, call(c, 16, A, 2, { { "INCR", DATA } }))
  c.same("2", c.cmd("GET", DATA))
end)

case("a fenced write that arrives after the same holder's later one is refused", function(c)
  call(c, 16, A, 10, { set "later" })
  c.same({ -2 }, call(c, 16, A, 9, { set "late" }))
  c.same("later", c.cmd("GET", DATA))
end)

case("a fenced write with a lower token than the stored one is refused, and writes nothing", function(c)
  call(c, 24, B, 1, { set "b" })
  c.pass(10)
  c.same({ 0, "24" }, call(c, 16, A, 1, { set "a" }))
  c.same("b", c.cmd("GET", DATA))
  c.same(TTL - 10, c.cmd("PTTL", FENCE))
end)

case("a stored value that is not a valid token does not block fenced writes", function(c)
  for i, number in ipairs { "9007199254740992", "9223372036854775807", "inf", "nan", "none" } do
    c.cmd("HSET", FENCE, "token", number, "lock", LOCK)
    c.same({ 1, "S2:OK" }, call(c, 16, A, i, { set(number) }))
    c.same({ number, "16" }, { c.cmd("GET", DATA), c.cmd("HGET", FENCE, "token") })
  end
end)

case("the highest possible stored token still refuses lower ones", function(c)
  c.cmd("HSET", FENCE, "token", "9007199254740991", "lock", LOCK)
  c.same({ 0, "9007199254740991" }, call(c, 16, A, 1, { set "a" }))
end)

case("a fenced write with a higher token deletes the stored replies of earlier holders", function(c)
  call(c, 16, A, 1, { set "a" })
  c.same({ 1, "S2:OK" }, call(c, 24, B, 1, { set "b" }))
  c.same({ "24", LOCK, "1 S2:OK" }, c.cmd("HMGET", FENCE, "token", "lock", B))
  c.same(3, c.cmd("HLEN", FENCE))
end)

case("two writers with the same token each get their own stored reply", function(c)
  call(c, 16, A, 1, { set "a" })
  call(c, 16, B, 1, { set "b" })
  c.same({ 1, "S2:OK" }, call(c, 16, A, 1, { set "a" }))
  c.same("b", c.cmd("GET", DATA))
end)

case("a resource that is fenced by one lock refuses writes under any other lock", function(c)
  call(c, 16, A, 1, { set "a" })
  c.same({ -1, LOCK }, call(c, 24, B, 1, { set "b" }, nil, "order:43"))
  c.same("a", c.cmd("GET", DATA))
end)

case("integer, string, array and nil replies are stored unchanged for a resend", function(c)
  c.cmd("HSET", DATA, "field", "text")
  c.same({ 1, "D1;S4:text{D1;S4:textD2;F}" }, call(c, 16, A, 1, {
    { "HSET", DATA, "other", "1" }, { "HGET", DATA, "field" }, { "HMGET", DATA, "field", "none" },
  }))
end)

case("the first command that fails ends a fenced call, and later ones do not run", function(c)
  local reply = call(c, 16, A, 1, { set "text", { "HSET", DATA, "a", "b" }, set "behind" })
  c.same(1, reply[1])
  c.same("S2:OK{S3:errS", reply[2]:sub(1, 13))
  c.same("text", c.cmd("GET", DATA))
end)

case("a fenced write never shortens the stored token's TTL, and removes it for a token without a TTL", function(c)
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
