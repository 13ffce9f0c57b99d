-- Texts as somebody would choose them who wants to do harm: keys, names and messages.

local hostile = {}

-- Keys that would write the file `evil` if a shell evaluated them, or be another word. The first
-- two bytes tell them apart.
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

-- ---- by chance ----

local PIECES = {
  "`", "$(", ")", "$'", "'", '"', "\\", "!", "\n", "\r", "\t", " ", "*", "?", "[", "]", "{", "}", ";", "&", "|",
  "<", ">", "#", "~", "=", ":", "@", "-", "\0", "\27[31m", "\127", "a", "012", "ä", "€", "😀", "\194\128", "\194\159",
  "\216\156", "\226\128\142", "\226\128\168", "\226\128\174", "\226\129\166", "\226\129\169", "\226\128\139", "\194\160",
  "\239\187\191", "\243\160\128\129", "\194", "\237\160\128",
  "\240\159", "\255",
}

local Random = {}
Random.__index = Random

-- → a generator: the same texts for the same seed
function hostile.random(seed)
  return setmetatable({ state = seed % 2147483647 + 1 }, Random)
end

function Random:number(most)
  self.state = self.state * 48271 % 2147483647
  return self.state % most + 1
end

-- A text of 1 to `most` pieces, each of a kind that is special somewhere or any byte.
function Random:text(most)
  local parts = {}
  for i = 1, self:number(most) do
    local any, piece = string.char(self:number(256) - 1), PIECES[self:number(#PIECES)]
    parts[i] = self:number(4) == 1 and any or piece
  end
  return table.concat(parts)
end

return hostile
