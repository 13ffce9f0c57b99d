-- Mutants in the text of a C file, each behind a switch.
--
-- A patch is { name, file, function, text, replacement }. Its text occurs once in the function, or
-- in the file if the function is ""; a blank stands for any white space. «…» marks what is replaced
-- if that is only a part of the text. An expression is replaced by an expression, statements by
-- statements; a patch may also insert statements («»), or remove them (""). Several patches with
-- one name are one mutant.

local functions = require "spec.sim.functions"

local patches = {}

-- → a pattern that captures where the marked part begins and where the text continues after it
local function pattern_of(text)
  local before, part, behind = text:match("^(.-)«(.-)»(.*)$")
  if not before then before, part, behind = "", text:match("^%s*(.-)%s*$"), "" end
  local function literal(piece) return (piece:gsub("%p", "%%%0"):gsub("%s+", "%%s+")) end
  return literal(before) .. "()" .. literal(part) .. "()" .. literal(behind)
end

-- → where the replaced part begins, and where the text continues after it | nil, what is wrong
local function place_of(text, patch)
  local name, path, own, row = patch[1], patch[2], patch[3], patch[4]
  local from, to = functions.find(path, text, own)
  if not from then return nil, ("%s: %s has no function %s"):format(name, path, own) end
  local inside, pattern = text:sub(from, to), pattern_of(row)
  local start, _, first, behind = inside:find(pattern)
  local where = own == "" and path or ("%s of %s"):format(own, path)
  local twice = start and inside:find(pattern, start + 1)
  if start and not twice then return from + first - 1, from + behind - 1 end
  return nil, ("%s: this is %s in %s: %s%s"):format(name, twice and "more than once" or "not", where,
    row, own == "" and "" or "\n" .. inside)
end

local function is_statement(code) return code:find "[;}]%s*$" ~= nil end

-- → C code that chooses between the original and its replacements
local function switched(original, list)
  local parts = {}
  local statements = is_statement(original) or is_statement(list[1][5])
  local form = statements and "if (HF_MUTANT(%s)) { %s } else " or "HF_MUTANT(%s) ? (%s) : "
  for i, patch in ipairs(list) do parts[i] = form:format(patch[1], patch[5]) end
  local chain = table.concat(parts)
  return statements and ("{ %s{ %s } }"):format(chain, original) or ("(%s(%s))"):format(chain, original)
end

-- → the places that are replaced, in order: { from, to = the first byte after it, patch… }
local function places_of(text, list)
  local places, by_from = {}, {}
  for _, patch in ipairs(list) do
    local from, to = place_of(text, patch)
    if not from then error(to, 0) end
    local place = by_from[from]
    if not place then
      place = { from = from, to = to }
      by_from[from], places[#places + 1] = place, place
    end
    if place.to ~= to then error(patch[1] .. " overlaps with " .. place[1][1], 0) end
    place[#place + 1] = patch
  end
  table.sort(places, function(a, b) return a.from < b.from end)
  for i = 2, #places do
    local before = places[i - 1]
    if places[i].from < before.to then error(places[i][1][1] .. " overlaps with " .. before[1][1], 0) end
  end
  return places
end

-- → those of the list that have a place in the text; what is wrong with each of the others
function patches.placed(text, list)
  local placed, problems = {}, {}
  for _, patch in ipairs(list) do
    local from, problem = place_of(text, patch)
    if from then placed[#placed + 1] = patch else problems[#problems + 1] = problem end
  end
  return placed, problems
end

-- → the text with these patches in it. place_in: what is put in a place | nil: the original and its
-- mutants, behind a switch
function patches.apply(text, list, place_in)
  local parts, at = {}, 1
  for _, place in ipairs(places_of(text, list)) do
    parts[#parts + 1] = text:sub(at, place.from - 1)
    parts[#parts + 1] = (place_in or switched)(text:sub(place.from, place.to - 1), place)
    at = place.to
  end
  parts[#parts + 1] = text:sub(at)
  return table.concat(parts)
end

return patches
