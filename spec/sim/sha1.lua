-- SHA-1 (FIPS 180-4), by which Redis names scripts. Slow and plain: callers keep its results.

-- The operators of 5.4 are no syntax for LuaJIT, hence the text.
local function operations()
  if rawget(_G, "jit") then
    local bit = require "bit"
    return bit.band, bit.bor, bit.bxor, bit.bnot, bit.rol, bit.tobit
  end
  return load [[
    local function word(x) return x & 0xffffffff end
    return function(a, b) return a & b end,
      function(a, b) return a | b end,
      function(a, b, c, d) return a ~ b ~ (c or 0) ~ (d or 0) end,
      function(a) return word(~a) end,
      function(a, n) return word(a << n) | a >> (32 - n) end,
      word
  ]]()
end

local band, bor, bxor, bnot, rol, word = operations()

local function padded(text)
  local bits = #text * 8
  local length = {}
  for i = 8, 1, -1 do
    length[i] = string.char(bits % 256)
    bits = math.floor(bits / 256)
  end
  return text .. "\128" .. ("\0"):rep((55 - #text) % 64) .. table.concat(length)
end

local function schedule(block, at)
  local w = {}
  for i = 0, 15 do
    local a, b, c, d = block:byte(at + 4 * i, at + 4 * i + 3)
    w[i] = word(a * 16777216 + b * 65536 + c * 256 + d)
  end
  for i = 16, 79 do
    w[i] = rol(bxor(w[i - 3], w[i - 8], w[i - 14], w[i - 16]), 1)
  end
  return w
end

local function mix(i, b, c, d)
  if i < 20 then return bor(band(b, c), band(bnot(b), d)), 0x5a827999 end
  if i < 40 then return bxor(b, c, d), 0x6ed9eba1 end
  if i < 60 then return bor(bor(band(b, c), band(b, d)), band(c, d)), 0x8f1bbcdc end
  return bxor(b, c, d), 0xca62c1d6
end

local function hex(x)
  return ("%08x"):format(x % 4294967296)
end

return function(text)
  local h0, h1, h2, h3, h4 = 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0
  local blocks = padded(text)
  for at = 1, #blocks, 64 do
    local w = schedule(blocks, at)
    local a, b, c, d, e = h0, h1, h2, h3, h4
    for i = 0, 79 do
      local f, k = mix(i, b, c, d)
      a, b, c, d, e = word(rol(a, 5) + f + e + k + w[i]), a, rol(b, 30), c, d
    end
    h0, h1, h2, h3, h4 = word(h0 + a), word(h1 + b), word(h2 + c), word(h3 + d), word(h4 + e)
  end
  return hex(h0) .. hex(h1) .. hex(h2) .. hex(h3) .. hex(h4)
end
