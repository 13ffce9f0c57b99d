-- Finds unit programs that name a field of a claim, hold, operation or client: lua5.4
-- tools/check_private.lua
--
-- Only spec/unit/fields.h may, so that a field can be renamed or moved without a change to tests.
-- The compiler finds them: in a copy of the headers these fields are deprecated, and it warns of
-- each use. Designators in initializers are found by their text.

-- Patterns of the text before the fields of a struct, and of the fields.
local STRUCTS = {
  ["lock/claims.h"] = { "(#define HF_CLAIM_FIELDS)(.-\n\n)" },
  ["lock/holds.h"] = { "(\nstruct hf_hold )(%b{})" },
  ["client.h"] = { "(\nstruct hf_op )(%b{})", "(\nstruct hf_client )(%b{})" },
}
local KNOWS = "spec/unit/fields.h"
-- How many fields each list of KNOWS may read. Tests check what the server or the caller sees
-- (drive.h, hf_hold_view), so these numbers may only fall.
local MOST = { HOLD_READS = 18, OP_READS = 22, CLIENT_READS = 14 }
local DEPRECATED = "__attribute__((deprecated)) "

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return text
end

local function output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

-- The header's text, with a mark before each field of the struct.
local function deprecate(text, struct)
  local count = 0
  text = text:gsub(struct, function(head, body)
    body = body:gsub("/%*.-%*/", ""):gsub("%f[%w_][^;{}]+;", DEPRECATED .. "%0")
    count = select(2, body:gsub("deprecated", ""))
    return head .. body
  end)
  assert(count > 0, "no struct " .. struct)
  return text
end

local function write_headers(folder)
  assert(os.execute(("rm -rf %s && mkdir -p %s && cp -r csrc %s"):format(folder, folder, folder)))
  for header, structs in pairs(STRUCTS) do
    local path = folder .. "/csrc/core/" .. header
    local text = read(path)
    for _, struct in ipairs(structs) do text = deprecate(text, struct) end
    local file = assert(io.open(path, "w"))
    file:write(text)
    file:close()
  end
end

local function includes(folder)
  return ("-I%s/csrc -I%s/csrc/core -I%s/csrc/posix"):format(folder, folder, folder)
end

-- → "path:line: field" for each use
local function uses_in(sources, folder)
  local uses, known = {}, {}
  local said = output_of(("LC_ALL=C %s -std=c11 -D_GNU_SOURCE -fsyntax-only"
    .. " %s %s 2>&1"):format(os.getenv("CC") or "cc", includes(folder),
    sources))
  for path, line, kind, text in said:gmatch("([^\n:]+):(%d+):%d+: (%w+): ([^\n]*)") do
    local field = text:match("^.(.-). is deprecated")
    local use = ("%s:%s: %s"):format(path, line, field or text)
    local counts = kind == "error" or field and path:find("^spec/unit/") and path ~= KNOWS
    if counts and not known[use] then uses[#uses + 1] = use end
    known[use] = true
  end
  return uses
end

local function designators_in(paths)
  local uses = {}
  for path in paths:gmatch("%S+") do
    for _, struct in ipairs { "hf_claim", "hf_hold", "hf_op", "hf_client" } do
      for found in read(path):gmatch("%f[%w_]" .. struct .. "%)? ?[%w_]* ?=? ?{%s*(%.[%l_]+ =)") do
        uses[#uses + 1] = ("%s: %s {%s"):format(path, struct, found)
      end
    end
  end
  return uses
end

-- The lists of KNOWS that have more rows than they may.
local function long_lists()
  local found = {}
  for list, most in pairs(MOST) do
    local rows = read(KNOWS):match("#define " .. list .. "%(X%)(.-)\n\n")
    local _, count = rows:gsub("X%(", "")
    if count > most then found[#found + 1] = ("%s: %d rows in %s"):format(KNOWS, count, list) end
  end
  return found
end

local FOLDER = (os.getenv("BUILD") or "build") .. "/private"
local sources = output_of("ls spec/unit/*.c"):gsub("\n", " ")
write_headers(FOLDER)
local uses = uses_in(sources, FOLDER)
table.move(designators_in(sources), 1, 1000, #uses + 1, uses)
local long = long_lists()
for _, use in ipairs(uses) do
  print(use .. " is private: add a function to " .. KNOWS)
end
for _, list in ipairs(long) do
  print(list .. " are too many: show what the server or the caller sees instead (drive.h)")
end
if #uses + #long > 0 then os.exit(1) end
print "unit programs name no private field"
