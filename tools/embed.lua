-- Writes csrc/programs/embedded.h from csrc/programs/*.lua, and their SHA1 into docs/protocol.sha1.
-- Both are committed, so a build from the rockspec needs no generator. SHA1 and length always
-- belong to exactly the text in the header.
--
--   lua5.4 tools/embed.lua               write the header and the list
--   lua5.4 tools/embed.lua --check       exit 1 if one of them is stale
--   lua5.4 tools/embed.lua --expand DIR  write each program with its fragments in place, for
--                                        luacheck
--   lua5.4 tools/embed.lua --sent DIR    write each program as clients send it, byte for byte
--
-- "layout.lua", "holding.lua", "next.lua", "hearers.lua", "releases.lua" and others stand for
-- files that depend on the variant of a program: see VARIANTS. A variant that would be no other
-- program is not made.
--
-- A line `--#include "queue.lua"` stands for that file's text. A file whose first line is
-- `--#fragment` is only included, never a program. Comment lines, blank lines and indentation are
-- not sent to the server.

local SOURCES = "csrc/programs"
local HEADER = "csrc/programs/embedded.h"
local DIGESTS = "docs/protocol.sha1"

local function fail(...)
  io.stderr:write("embed: ", string.format(...), "\n")
  os.exit(1)
end

local function read(path)
  local file, err = io.open(path, "rb")
  if not file then fail("%s", err) end
  local text = file:read("*a")
  file:close()
  return text
end

local function write(path, text)
  local file, err = io.open(path, "wb")
  if not file then fail("%s", err) end
  assert(file:write(text))
  assert(file:close())
end

local function output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  if not pipe:close() then fail("failed: %s", command) end
  return text
end

local function lines_of(text)
  return text:gsub("\r\n", "\n"):gsub("([^\n])$", "%1\n"):gmatch("([^\n]*)\n")
end

local VARIANTS = {
  { prefix = "", ["layout.lua"] = "hash.lua", ["holding.lua"] = "hash_holding.lua",
    ["next.lua"] = "hash_next.lua", ["taking.lua"] = "hash_taking.lua",
    ["removing.lua"] = "hash_removing.lua", ["heard.lua"] = "plain_heard.lua",
    ["hearers.lua"] = "plain.lua", ["releases.lua"] = "plain.lua",
    ["rw_releases.lua"] = "rw_plain.lua" },
  { prefix = "mutex_", ["layout.lua"] = "string.lua", ["holding.lua"] = "string_holding.lua",
    ["next.lua"] = "string_next.lua", ["taking.lua"] = "string_taking.lua",
    ["removing.lua"] = "string_removing.lua", ["heard.lua"] = "silent_heard.lua",
    ["hearers.lua"] = "string_silent.lua", ["releases.lua"] = "plain.lua",
    ["rw_releases.lua"] = "rw_plain.lua" },
  { prefix = "sharded_", ["layout.lua"] = "hash.lua", ["holding.lua"] = "hash_holding.lua",
    ["next.lua"] = "hash_next.lua", ["taking.lua"] = "hash_taking.lua",
    ["removing.lua"] = "hash_removing.lua", ["heard.lua"] = "sharded_heard.lua",
    ["hearers.lua"] = "sharded.lua", ["releases.lua"] = "sharded.lua",
    ["rw_releases.lua"] = "rw_sharded.lua" },
}

local function expand(name, out, open, variant)
  name = variant[name] or name
  if open[name] then fail("%s includes itself", name) end
  open[name] = true
  for line in lines_of(read(SOURCES .. "/" .. name)) do
    local included = line:match('^%s*%-%-#include%s+"([^"]+)"%s*$')
    if included then
      expand(included, out, open, variant)
    elseif line:find("^%s*%-%-#include") then
      fail('%s: write --#include "file.lua", not: %s', name, line)
    else
      out[#out + 1] = line
    end
  end
  open[name] = nil
  return out
end

-- Long brackets would make "comment line" and "indentation" depend on context: programs do without
-- them.
local function strip(name, lines)
  local out = {}
  for _, line in ipairs(lines) do
    if line:find("%[=*%[") then fail("%s: no long brackets in a program: %s", name, line) end
    local text = line:match("^%s*(.-)%s*$")
    if text ~= "" and not text:find("^%-%-") then out[#out + 1] = text end
  end
  return out
end

-- The text that goes to the server, and its lines.
local function sent(program)
  local lines = strip(program.file, program.lines)
  return table.concat(lines, "\n") .. "\n", lines
end

local function sha1(text)
  local path = os.tmpname()
  write(path, text)
  local digest = output_of("sha1sum " .. path):match("^%x+")
  os.remove(path)
  if not digest or #digest ~= 40 then fail("sha1sum gave no digest") end
  return digest
end

local function c_literal(text)
  return '"' .. text:gsub('["\\?]', "\\%0"):gsub("[^\32-\126]", function(char)
    return char == "\n" and "\\n" or string.format("\\%03o", char:byte())
  end) .. '"'
end

local function programs()
  local list = {}
  for path in output_of("LC_ALL=C ls " .. SOURCES .. "/*.lua"):gmatch("[^\n]+") do
    local file = path:match("[^/]+$")
    local name = file:gsub("%.lua$", "")
    if not name:find("^[a-z][a-z0-9_]*$") then
      fail("%s: a name is lower case letters, digits and _", file)
    end
    local text = read(path)
    local made = {}
    for i = 1, text:find("^%-%-#fragment") and 0 or #VARIANTS do
      local full = VARIANTS[i].prefix .. name
      local lines = expand(file, {}, {}, VARIANTS[i])
      local whole = table.concat(lines, "\n")
      if not made[whole] then
        list[#list + 1] = { name = full, file = full .. ".lua", lines = lines }
      end
      made[whole] = true
    end
  end
  if #list == 0 then fail("no program in %s", SOURCES) end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

-- In the form of sha1sum, by the files of --sent.
local function digests(list)
  local rows = {}
  for i, program in ipairs(list) do
    rows[i] = ("%s  %s\n"):format(sha1((sent(program))), program.file)
  end
  return table.concat(rows)
end

local function header(list)
  local ids, rows, known = {}, {}, {}
  for _, program in ipairs(list) do known[program.name] = true end
  for _, program in ipairs(list) do
    local text, lines = sent(program)
    local literals = {}
    for i, line in ipairs(lines) do literals[i] = "     " .. c_literal(line .. "\n") end
    ids[#ids + 1] = "    HF_PROGRAM_" .. program.name:upper() .. ",\n"
    local sharded = "sharded_" .. program.name
    rows[#rows + 1] = string.format('    {"%s", "%s",\n%s,\n     %d, %s},\n', program.name,
      sha1(text),
      table.concat(literals, "\n"), #text,
      known[sharded] and "&hf_program_table[HF_PROGRAM_" .. sharded:upper() .. "]" or "NULL")
  end
  return table.concat {
    "/* Generated by tools/embed.lua from csrc/programs: edit there, then run make embed. */\n",
    "#ifndef HF_PROGRAMS_EMBEDDED_H\n#define HF_PROGRAMS_EMBEDDED_H\n\n",
    "/* clang-format off */\n",
    "enum hf_program_id {\n", table.concat(ids), "    HF_PROGRAMS\n};\n\n",
    "static const hf_program hf_program_table[] = {\n", table.concat(rows), "};\n",
    "/* clang-format on */\n\n#endif\n",
  }
end

local mode, dir = ...
local list = programs()
if mode == "--expand" and dir then
  for _, program in ipairs(list) do
    write(dir .. "/" .. program.file, table.concat(program.lines, "\n") .. "\n")
  end
elseif mode == "--sent" and dir then
  for _, program in ipairs(list) do write(dir .. "/" .. program.file, (sent(program))) end
elseif mode == "--check" then
  for path, text in pairs { [HEADER] = header(list), [DIGESTS] = digests(list) } do
    local file = io.open(path, "rb")
    local committed = file and file:read("*a")
    if file then file:close() end
    if committed ~= text then fail("%s is stale: run make embed", path) end
  end
elseif mode == nil then
  write(HEADER, header(list))
  write(DIGESTS, digests(list))
else
  fail("usage: embed.lua [--check | --expand DIR | --sent DIR]")
end
