-- Writes csrc/programs/embedded.h from the folders in csrc/programs, and each program's SHA1 to
-- docs/protocol.sha1. Both are committed, so a build from the rockspec needs no generator. SHA1 and
-- length always match the text in the header exactly.
--
--   lua5.4 tools/embed.lua               write the header and the list
--   lua5.4 tools/embed.lua --check       exit 1 if one of them is stale
--   lua5.4 tools/embed.lua --expand DIR  write each program whole, with its comments; a line such
--                                        as "-- queue/queue.lua:120" says where a part is from
--   lua5.4 tools/embed.lua --sent DIR    write each program as clients send it, byte for byte
--   lua5.4 tools/embed.lua --pack FILE   write all of them into one file, for spec/fixtures
--   lua5.4 tools/embed.lua --unpack FILE DIR
--                                        write what --sent wrote when the file was packed
--
-- Each file is a program with the file's name, unless its first line is `--#fragment`. These lines
-- are replaced or dropped:
--
--   --#include "queue/queue.lua"         that file's text
--   --#include "lock/hash.lua:take"      one of its sections
--   --#include "LAYOUT:take"             …of the file that the variant of the program has for
--                                        LAYOUT: see VARIANTS
--   --#section take … --#end             a section: part of its file, and included on its own
--
-- A function must not contain an #include, so that it can be read in its file. The exception is
-- `--#include_in_function`, for functions that only one branch needs, because creating them takes
-- longer than running them.
--
-- Comment lines, blank lines and indentation are not sent to the server. A comment after code is
-- sent.

local tools = dofile "tools/files.lua"
local read, write, output_of = tools.read, tools.write, tools.output_of

local SOURCES = "csrc/programs"
local HEADER = "csrc/programs/embedded.h"
local DIGESTS = "docs/protocol.sha1"

local function fail(...)
  io.stderr:write("embed: ", string.format(...), "\n")
  os.exit(1)
end

local function lines_of(text)
  return text:gsub("\r\n", "\n"):gsub("([^\n])$", "%1\n"):gmatch("([^\n]*)\n")
end

-- A program without a LAYOUT also serves mutexes.
local VARIANTS = {
  { prefix = "", LAYOUT = "lock/hash.lua", CHANNEL = "channel/plain.lua" },
  { prefix = "mutex_", LAYOUT = "lock/string.lua", CHANNEL = "channel/silent.lua", needs = "LAYOUT" },
  { prefix = "sharded_", LAYOUT = "lock/hash.lua", CHANNEL = "channel/sharded.lua" },
}

-- ---- splitting files into pieces ----

local function is_head_of_function(line)
  return line:find("^local function ") and not line:find("%f[%w_]end$")
end

local Cutter = {}
Cutter.__index = Cutter

-- Adds a part (a piece, an include or a section) to the open file or section.
function Cutter:add(part)
  local parts = self.open[#self.open].parts
  parts[#parts + 1] = part
end

function Cutter:include(name, directive, line)
  if directive ~= "include" and directive ~= "include_in_function" or not name then
    fail("%s: what is this? %s", self.file, line)
  elseif (directive == "include_in_function") ~= self.in_function then
    fail("%s: write #include outside of functions, and #include_in_function in one: %s", self.file, line)
  end
  self:add { include = name }
  self.piece, self.last = nil, nil
end

function Cutter:section(name)
  local section = { section = name, parts = {} }
  if self.sections[name] then fail("%s: there are two sections %s", self.file, name) end
  self:add(section)
  self.sections[name], self.open[#self.open + 1] = section, section
  self.piece = nil
end

function Cutter:close()
  self.open[#self.open] = nil
  if not self.open[1] then fail("%s: an #end without a #section", self.file) end
  self.piece = nil
end

function Cutter:code(line, number)
  if not self.piece then
    self.count = self.count + 1
    self.piece = { name = ("%s_%d"):format(self.stem, self.count), file = self.file, line = number,
      follows = self.last, lines = {} }
    self.last = self.piece
    self:add(self.piece)
  end
  table.insert(self.piece.lines, line)
  if is_head_of_function(line) then self.in_function = true end
  if line == "end" then self.in_function = false end
end

function Cutter:line(line, number)
  local directive, rest = line:match("^%s*%-%-#([%l_]+)%s*(.-)%s*$")
  if directive == "section" and rest:find("^[%l_]+$") then self:section(rest)
  elseif directive == "end" and rest == "" then self:close()
  elseif directive == "fragment" and number == 1 then return
  elseif directive then self:include(rest:match('^"([^"]+)"$'), directive, line)
  else self:code(line, number) end
end

-- → { parts =, sections = by name, is_program = }
local function cut(file)
  local text = read(SOURCES .. "/" .. file)
  local whole = { parts = {}, sections = {}, is_program = not text:find("^%-%-#fragment\n") }
  local cutter = setmetatable({ file = file, stem = file:match("([%l%d_]+)%.lua$"), count = 0,
    sections = whole.sections, open = { whole }, in_function = false }, Cutter)
  local number = 0
  for line in lines_of(text) do
    number = number + 1
    cutter:line(line, number)
  end
  if #cutter.open > 1 then fail("%s: a #section without an #end", file) end
  return whole
end

local files = setmetatable({}, { __index = function(known, file)
  known[file] = cut(file)
  return known[file]
end })

-- ---- assembling programs from pieces ----

-- → the parts of a file or of one of its sections; `name` is "file" or "file:section"
local function parts_of(name, variant, used)
  local file, section = name:match("^([^:]+):?(.*)$")
  if variant[file] then file, used[file] = variant[file], true end
  local whole = files[file]
  local found = section == "" and whole or whole.sections[section]
  if not found then fail("%s has no section %s", file, section) end
  return found.parts
end

local function expand(parts, out, open, variant, used)
  open[parts] = true
  for _, part in ipairs(parts) do
    local inner = part.parts or part.include and parts_of(part.include, variant, used)
    if not inner then
      out[#out + 1] = part
    elseif open[inner] then
      fail("%s includes itself", part.include)
    else
      expand(inner, out, open, variant, used)
    end
  end
  open[parts] = nil
  return out
end

-- → the whole text; each piece begins with its origin, unless it continues the one before it
local function whole_text(pieces)
  local texts, before = {}, nil
  for i, piece in ipairs(pieces) do
    local goes_on = before and piece.follows == before
    local mark = goes_on and "" or ("-- %s:%d\n"):format(piece.file, piece.line)
    texts[i], before = mark .. table.concat(piece.lines, "\n") .. "\n", piece
  end
  return table.concat(texts)
end

-- Programs must not contain long brackets: with them, a line's context would decide whether it is a
-- comment or indented.
local function strip(name, lines)
  local out = {}
  for _, line in ipairs(lines) do
    if line:find("%[=*%[") then fail("%s: no long brackets in a program: %s", name, line) end
    local text = (" " .. line):gsub("%s%-%- .*", "", 1):match("^%s*(.-)%s*$")
    if select(2, text:gsub("['\"]", "")) % 2 == 1 then fail("%s: a string has a comment: %s", name, line) end
    if text ~= "" and not text:find("^%-%-") then out[#out + 1] = text end
  end
  return out
end

-- Pieces with equal text share a segment. Empty pieces are dropped.
local function segments_of(file, pieces, known)
  local list = {}
  for _, piece in ipairs(pieces) do
    local lines = strip(file, piece.lines)
    local text = table.concat(lines, "\n") .. "\n"
    if #lines > 0 then
      known[text] = known[text] or { name = piece.name, lines = lines, text = text }
      list[#list + 1] = known[text]
    end
  end
  return list
end

local function sent_text(segments)
  local texts = {}
  for i, segment in ipairs(segments) do texts[i] = segment.text end
  return table.concat(texts)
end

local hashes = {} -- by text

local function sha1(text)
  if hashes[text] then return hashes[text] end
  local path = os.tmpname()
  write(path, text)
  local digest = output_of("sha1sum " .. path):match("^%x+")
  os.remove(path)
  if not digest or #digest ~= 40 then fail("sha1sum gave no digest") end
  hashes[text] = digest
  return digest
end

local function c_literal(text)
  return '"' .. text:gsub('["\\?]', "\\%0"):gsub("[^\32-\126]", function(char)
    return char == "\n" and "\\n" or string.format("\\%03o", char:byte())
  end) .. '"'
end

-- → all files; their names without the folder must be distinct
local function all_files()
  local list, known = {}, {}
  for path in output_of("LC_ALL=C ls " .. SOURCES .. "/*/*.lua"):gmatch("[^\n]+") do
    local file, name = path:match("([^/]+/([^/]+)%.lua)$")
    if not name:find("^[a-z][a-z0-9_]*$") then
      fail("%s: a name is lower case letters, digits and _", file)
    elseif known[name] then
      fail("%s and %s have the same name", known[name], file)
    end
    list[#list + 1], known[name] = { path = file, name = name }, file
  end
  return list
end

-- `used`: the set of slots (LAYOUT and CHANNEL) that the program uses
local function program_of(file, variant, known, used)
  local pieces = expand(files[file.path].parts, {}, {}, variant, used)
  local segments, name = segments_of(file.path, pieces, known), variant.prefix .. file.name
  return { name = name, file = name .. ".lua", whole = whole_text(pieces), segments = segments,
    sent = sent_text(segments) }
end

-- Adds a program for each variant, but not one that equals an earlier one.
local function add_programs(list, file, known)
  local used, made = {}, {}
  for _, variant in ipairs(VARIANTS) do
    local has_own = not variant.needs or used[variant.needs]
    local program = has_own and program_of(file, variant, known, used)
    if program and not made[program.sent] then
      list[#list + 1], made[program.sent] = program, true
    end
  end
end

-- → the programs, and the segments from which they are assembled, by name
local function programs()
  local list, known, segments = {}, {}, {}
  for _, file in ipairs(all_files()) do
    if files[file.path].is_program then add_programs(list, file, known) end
  end
  if #list == 0 then fail("no program in %s", SOURCES) end
  for _, segment in pairs(known) do segments[#segments + 1] = segment end
  for _, each in ipairs { list, segments } do
    table.sort(each, function(a, b) return a.name < b.name end)
  end
  return list, segments
end

-- → the list in the format of sha1sum, for the files that --sent writes
local function digests(list)
  local rows = {}
  for i, program in ipairs(list) do
    rows[i] = ("%s  %s\n"):format(sha1(program.sent), program.file)
  end
  return table.concat(rows)
end

-- → the words separated by commas, in lines of at most 100 columns
local function in_lines(indent, words)
  local lines, line = {}, indent
  for i, word in ipairs(words) do
    if i < #words then word = word .. "," end
    if #line + #word > 98 then lines[#lines + 1], line = line, indent end
    line = line == indent and line .. word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

-- Each program is a list of segment numbers that ends with 0. A pointer with its relocation would
-- take 32 bytes in a shared object.
local function header(list, segments)
  if #segments > 255 then fail("more than 255 segments: a list needs a wider type") end
  local ids, numbers, texts, rows, known = {}, { "HF_NO_SEGMENT" }, {}, {}, {}
  for _, program in ipairs(list) do known[program.name] = true end
  local function pointer(name)
    return known[name] and "&hf_program_table[HF_PROGRAM_" .. name:upper() .. "]" or "NULL"
  end
  for i, segment in ipairs(segments) do
    local literals = {}
    for at, line in ipairs(segment.lines) do literals[at] = c_literal(line .. "\n") end
    numbers[i + 1] = segment.name:upper()
    texts[i] = ("    [%s] = %s,\n"):format(segment.name:upper(), table.concat(literals, "\n    "))
  end
  for i, program in ipairs(list) do
    local row, sharded = { ('{"%s"'):format(program.name), ('"%s"'):format(sha1(program.sent)) },
      "sharded_" .. program.name
    for at, segment in ipairs(program.segments) do
      row[#row + 1] = (at == 1 and "(const unsigned char[]){" or "") .. segment.name:upper()
    end
    row[#row + 1] = "HF_NO_SEGMENT}"
    row[#row + 1] = #program.sent
    row[#row + 1] = pointer(sharded)
    row[#row + 1] = pointer(program.name:match("^sharded_(.*)") or "") .. "},"
    ids[i] = "HF_PROGRAM_" .. program.name:upper()
    rows[i] = in_lines("    ", row) .. "\n"
  end
  return table.concat {
    "/* Generated by tools/embed.lua from csrc/programs: edit there, then run make embed. A segment is\n",
    " * what a file has between two lines of #include, #section or #end; the text of a program is a list of segments. */\n",
    "#ifndef HF_PROGRAMS_EMBEDDED_H\n#define HF_PROGRAMS_EMBEDDED_H\n\n",
    "/* clang-format off */\n",
    "enum hf_program_id {\n", in_lines("    ", ids), ",\n    HF_PROGRAMS\n};\n\n",
    "enum hf_segment_id {\n", in_lines("    ", numbers), "\n};\n\n",
    "static const char *const hf_segment_table[] = {\n", table.concat(texts), "};\n\n",
    "static const hf_program hf_program_table[] = {\n", table.concat(rows), "};\n",
    "/* clang-format on */\n\n#endif\n",
  }
end

-- → the programs as one string, for spec/fixtures; no line of a program begins with --
local function archive(list, segments)
  local parts = {}
  for i, segment in ipairs(segments) do parts[i] = "--# segment " .. segment.name .. "\n" .. segment.text end
  for _, program in ipairs(list) do
    local names = {}
    for at, segment in ipairs(program.segments) do names[at] = segment.name end
    parts[#parts + 1] = ("--# program %s %s\n"):format(program.name, table.concat(names, " "))
  end
  return table.concat(parts)
end

-- → the programs' texts in an archive, by name
local function texts_of(path)
  local segments, texts, name = {}, {}, nil
  for line in lines_of(read(path)) do
    local kind, first, rest = line:match("^%-%-# (%l+) (%S+) ?(.*)$")
    if kind == "segment" then
      name, segments[first] = first, ""
    elseif kind == "program" then
      texts[first] = rest:gsub("(%S+) ?", segments)
    else
      segments[name] = segments[name] .. line .. "\n"
    end
  end
  return texts
end

local function has_text(path, text) return tools.exists(path) and read(path) == text end

-- Writes the file only if its text has changed, so that make does not rebuild what depends on it.
local function update(path, text) if not has_text(path, text) then write(path, text) end end

local mode, path, dir = ...
if mode == "--unpack" and dir then
  for name, text in pairs(texts_of(path)) do write(dir .. "/" .. name .. ".lua", text) end
  os.exit(0)
end
local list, segments = programs()
if mode == "--expand" and path then
  for _, program in ipairs(list) do write(path .. "/" .. program.file, program.whole) end
elseif mode == "--sent" and path then
  for _, program in ipairs(list) do write(path .. "/" .. program.file, program.sent) end
elseif mode == "--pack" and path then
  write(path, archive(list, segments))
elseif mode == "--check" then
  for file, text in pairs { [HEADER] = header(list, segments), [DIGESTS] = digests(list) } do
    if not has_text(file, text) then fail("%s is stale: run make embed", file) end
  end
elseif mode == nil then
  update(HEADER, header(list, segments))
  update(DIGESTS, digests(list))
else
  fail("usage: embed.lua [--check | --expand DIR | --sent DIR | --pack FILE | --unpack FILE DIR]")
end
