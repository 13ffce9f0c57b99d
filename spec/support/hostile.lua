-- Strings that an attacker might choose: keys, names and messages.

local hostile = {}

-- Returns keys that would create the file `evil`, or become different words, if a shell evaluated
-- them. They differ in their first two bytes.
function hostile.keys(evil)
  return {
    ("k1`touch %s`"):format(evil), ("k2$(touch %s)"):format(evil), "k3 'a' \"b\" ", "k4\nnew\27[2J\tline",
    "k5*?[a]{b,c}", "k6ä€", "k7\226\128\174\194\133\255", "k8!!$HOME~\\", ("k9;touch %s"):format(evil),
    "ka:b=c@d|e", "kb'", ("kc'$(touch %s)'"):format(evil), ('kd"`touch %s`"'):format(evil), "ke\\",
    ("kf\\$(touch %s)"):format(evil), "kg\n", "kh&#",
  }
end

function hostile.key(keys, start)
  for _, key in ipairs(keys) do
    if key:sub(1, #start) == start then return key end
  end
end

-- ---- random texts ----

local PIECES = {
  "`", "$(", ")", "$'", "'", '"', "\\", "!", "\n", "\r", "\t", " ", "*", "?", "[", "]", "{", "}", ";", "&", "|",
  "<", ">", "#", "~", "=", ":", "@", "-", "\0", "\27[31m", "\127", "a", "012", "ä", "€", "😀", "\194\128", "\194\159",
  "\216\156", "\226\128\142", "\226\128\168", "\226\128\174", "\226\129\166", "\226\129\169", "\226\128\139", "\194\160",
  "\239\187\191", "\243\160\128\129", "\194", "\237\160\128",
  "\240\159", "\255",
}

local Random = {}
Random.__index = Random

-- → a generator, which returns the same texts for the same seed
function hostile.random(seed) return setmetatable({ state = seed % 2147483647 + 1 }, Random) end

function Random:number(most)
  self.state = self.state * 48271 % 2147483647
  return self.state % most + 1
end

-- Returns a string of 1 to `most` pieces, each a random byte or something that is special
-- somewhere.
function Random:text(most)
  local parts = {}
  for i = 1, self:number(most) do
    local any, piece = string.char(self:number(256) - 1), PIECES[self:number(#PIECES)]
    parts[i] = self:number(4) == 1 and any or piece
  end
  return table.concat(parts)
end

-- ---- random servers ----

local OWNER = "0b0e5a3c-3b2e-4b1e-9d53-0123456789ab:1"
local MIB = ("x"):rep(2 ^ 20)

local PARTS = {
  "holdfast_queue:", "holdfast_wait:", "holdfast_client:", "holdfast_once:", "redisson_lock_queue:",
  "redisson_lock_timeout:", "redisson_lock_token:", "holdfast_fence:", "", "", "",
}

local function any_text(random)
  local kind = random:number(8)
  if kind == 1 then return "" end
  if kind == 2 then return MIB:sub(1, 2 ^ random:number(20)) end
  if kind == 3 then return OWNER end
  if kind == 4 then return ("%d"):format(random:number(100) - 50) end
  if kind == 5 then return "1l" .. OWNER .. ":7" end
  return random:text(8)
end

local function any_name(random)
  local text, part = any_text(random), PARTS[random:number(#PARTS)]
  local tag = random:number(2) == 1 and "{" .. text .. "}" or text
  return part .. tag .. (random:number(4) == 1 and ":timeout" or "")
end

local MAKES = {
  function(name, one) return { "HSET", name, one, "1" } end,
  function(name, one, other) return { "HSET", name, one, "1", other, "x", "mode", "read" } end,
  function(name, _, other) return { "HSET", name, OWNER, other } end,
  function(name, one) return { "SET", name, one } end,
  function(name) return { "SET", name, "1 " .. OWNER:sub(1, 37) .. "9 l good" } end,
  function(name, one, other) return { "RPUSH", name, one, other } end,
  function(name, one, other) return { "ZADD", name, "1", one, "2", other } end,
  function(name, one) return { "SADD", name, one } end,
  function(name, one) return { "XADD", name, "*", one, "v" } end,
  function(name) return { "PEXPIRE", name, "600000" } end,
  function(name) return { "SET", "holdfast_client:" .. OWNER:sub(1, 36), name } end,
}

-- Empties the server and writes keys with random names, types and values, and a lock at the key
-- `good`.
-- → the names
function hostile.fill(server, random, good)
  server:cli("FLUSHALL")
  local names = {}
  for i = 1, random:number(40) do
    names[i] = random:number(3) == 1 and names[random:number(#names + 1)] or any_name(random)
    server:cli(MAKES[random:number(#MAKES)](names[i], any_text(random), any_text(random)))
  end
  server:cli("DEL", good)
  server:cli("HSET", good, OWNER, 1)
  server:cli("PEXPIRE", good, 600000)
  return names
end

return hostile
