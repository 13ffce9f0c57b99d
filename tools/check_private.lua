-- Finds unit programs that use a field of a claim, hold, operation or client, and fuzzing harnesses
-- that use one of a claim or hold: lua5.4 tools/check_private.lua
--
-- Only spec/unit/fields.h may use these fields, so that they can be renamed or moved without
-- changing tests. The compiler finds them. In a copy of the headers the fields are deprecated,
-- and the compiler warns of each use. A text search finds designators in initializers.

local tools = dofile "tools/files.lua"
local read, output_of = tools.read, tools.output_of

-- Patterns for the text before a struct's fields, and for the fields.
local HOLDS = {
  ["lock/claims.h"] = { "(\ntypedef struct hf_claim )(%b{})" },
  ["lock/holds.h"] = { "(\nstruct hf_hold )(%b{})" },
}
local OPERATIONS = { ["client.h"] = { "(\nstruct hf_op )(%b{})", "(\nstruct hf_client )(%b{})" } }
local KNOWS = "spec/unit/fields.h"
-- Maximum number of fields that each list of KNOWS may read. Tests check what the server or the
-- caller sees (drive.h, hf_hold_view), so these numbers may only decrease.
local MAX_READS = { HOLD_READS = 15, OP_READS = 19, CLIENT_READS = 12 }
local DEPRECATED = "__attribute__((deprecated)) "
local FOLDER = (os.getenv("BUILD") or "build") .. "/private" -- of the copy
local INCLUDES = ("-I@/csrc -I@/csrc/core -I@/csrc/posix -Ispec/unit"):gsub("@", FOLDER)

-- → the header's text, with a mark before each field of the struct
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

local function mark_headers(structs_of)
  for header, structs in pairs(structs_of) do
    local path = FOLDER .. "/csrc/core/" .. header
    local text = read(path)
    for _, struct in ipairs(structs) do text = deprecate(text, struct) end
    tools.write(path, text)
  end
end

local reported = {}

local function report(use)
  if not reported[use] then tools.fail("%s is private: add a function to %s", use, KNOWS) end
  reported[use] = true
end

local function check_uses(sources)
  local said = output_of(("LC_ALL=C %s -std=c11 -D_GNU_SOURCE -fsyntax-only"
    .. " %s %s 2>&1; :"):format(os.getenv("CC") or "cc", INCLUDES, sources))
  for path, line, kind, text in said:gmatch("([^\n:]+):(%d+):%d+: (%w+): ([^\n]*)") do
    local field = text:match("^.(.-). is deprecated")
    local use = ("%s:%s: %s"):format(path, line, field or text)
    local counts = kind == "error" or field and path:find("^spec/") and path ~= KNOWS
    if counts then report(use) end
  end
end

local function check_designators(paths)
  for path in paths:gmatch("%S+") do
    for _, struct in ipairs { "hf_claim", "hf_hold", "hf_op", "hf_client" } do
      for found in read(path):gmatch("%f[%w_]" .. struct .. "%)? ?[%w_]* ?=? ?{%s*(%.[%l_]+ =)") do
        report(("%s: %s {%s"):format(path, struct, found))
      end
    end
  end
end

local function check_lists()
  for list, most in pairs(MAX_READS) do
    local rows = read(KNOWS):match("#define " .. list .. "%(X%)(.-)\n\n")
    local _, count = rows:gsub("X%(", "")
    if count > most then
      tools.fail("%s: %d rows in %s are too many: show what the server or the caller sees instead (drive.h)", KNOWS, count,
        list)
    end
  end
end

local sources = output_of("ls spec/unit/*.c"):gsub("\n", " ")
assert(os.execute(("rm -rf @ && mkdir -p @ && cp -r csrc @"):gsub("@", FOLDER)))
mark_headers(HOLDS)
check_uses(output_of("ls spec/fuzz/*.c"):gsub("\n", " "))
mark_headers(OPERATIONS)
check_uses(sources)
check_designators(sources)
check_lists()
tools.finish()
