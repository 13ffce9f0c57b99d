-- Writes csrc/programs/embedded.h from csrc/programs/*.lua, and their SHA1 into docs/protocol.sha1.
-- Both are committed, so a build from the rockspec needs no generator. SHA1 and length always
-- belong to exactly the text in the header.
--
--   lua5.4 tools/embed.lua               write the header and the list
--   lua5.4 tools/embed.lua --check       exit 1 if one of them is stale
--   lua5.4 tools/embed.lua --expand DIR  write each program with its fragments in place, for
--                                        luacheck
--   lua5.4 tools/embed.lua --sent DIR    write each program as clients send it, byte for byte
--   lua5.4 tools/embed.lua --pack FILE   write all of them into one file, for spec/fixtures
--   lua5.4 tools/embed.lua --unpack FILE DIR
--                                        write what --sent wrote when the file was packed
--
-- "layout.lua", "holding.lua", "next.lua", "listeners.lua", "releases.lua" and others stand for
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
    ["removing.lua"] = "hash_removing.lua", ["receivers.lua"] = "plain_receivers.lua",
    ["owning.lua"] = "hash_owning.lua", ["handing.lua"] = "hash_handing.lua",
    ["unqueued.lua"] = "plain_unqueued.lua",
    ["listeners.lua"] = "plain.lua", ["releases.lua"] = "plain.lua" },
  { prefix = "mutex_", ["layout.lua"] = "string.lua", ["holding.lua"] = "string_holding.lua",
    ["next.lua"] = "string_next.lua", ["taking.lua"] = "string_taking.lua",
    ["removing.lua"] = "string_removing.lua", ["receivers.lua"] = "silent_receivers.lua",
    ["owning.lua"] = "string_owning.lua", ["handing.lua"] = "string_handing.lua",
    ["unqueued.lua"] = "plain_unqueued.lua",
    ["listeners.lua"] = "string_silent.lua", ["releases.lua"] = "plain.lua" },
  { prefix = "sharded_", ["layout.lua"] = "hash.lua", ["holding.lua"] = "hash_holding.lua",
    ["next.lua"] = "hash_next.lua", ["taking.lua"] = "hash_taking.lua",
    ["removing.lua"] = "hash_removing.lua", ["receivers.lua"] = "sharded_receivers.lua",
    ["owning.lua"] = "hash_owning.lua", ["handing.lua"] = "hash_handing.lua",
    ["unqueued.lua"] = "sharded_unqueued.lua",
    ["listeners.lua"] = "sharded.lua", ["releases.lua"] = "sharded.lua" },
}

-- → { include = "file.lua" } and { name = "file_1", lines = {…} } in turn: a file is cut at its includes.
local function pieces_of(file)
  local stem, pieces, piece = file:gsub("%.lua$", ""), {}, nil
  for line in lines_of(read(SOURCES .. "/" .. file)) do
    local included = line:match('^%s*%-%-#include%s+"([^"]+)"%s*$')
    if included then
      pieces[#pieces + 1], piece = { include = included }, nil
    elseif line:find("^%s*%-%-#include") then
      fail('%s: write --#include "file.lua", not: %s', file, line)
    else
      if not piece then
        piece = { name = ("%s_%d"):format(stem, #pieces + 1), lines = {} }
        pieces[#pieces + 1] = piece
      end
      piece.lines[#piece.lines + 1] = line
    end
  end
  return pieces
end

local function expand(name, out, open, variant)
  name = variant[name] or name
  if open[name] then fail("%s includes itself", name) end
  open[name] = true
  for _, piece in ipairs(pieces_of(name)) do
    if piece.include then expand(piece.include, out, open, variant) else out[#out + 1] = piece end
  end
  open[name] = nil
  return out
end

local function whole_text(pieces)
  local texts = {}
  for i, piece in ipairs(pieces) do
    texts[i] = piece.text or table.concat(piece.lines, "\n") .. "\n"
  end
  return table.concat(texts)
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

-- Pieces of equal text are one segment; one without text is none.
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

-- → the programs, and the segments that they are put together from, by name
local function programs()
  local list, known, segments = {}, {}, {}
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
      local pieces = expand(file, {}, {}, VARIANTS[i])
      local whole = whole_text(pieces)
      if not made[whole] then
        local own = segments_of(file, pieces, known)
        list[#list + 1] = { name = full, file = full .. ".lua", whole = whole, segments = own,
          sent = whole_text(own) }
      end
      made[whole] = true
    end
  end
  if #list == 0 then fail("no program in %s", SOURCES) end
  for _, segment in pairs(known) do segments[#segments + 1] = segment end
  for _, each in ipairs { list, segments } do
    table.sort(each, function(a, b) return a.name < b.name end)
  end
  return list, segments
end

-- In the form of sha1sum, by the files of --sent.
local function digests(list)
  local rows = {}
  for i, program in ipairs(list) do
    rows[i] = ("%s  %s\n"):format(sha1(program.sent), program.file)
  end
  return table.concat(rows)
end

-- The words with commas between them, in lines of at most 100 columns.
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

-- A program lists its segments by number, and 0 ends the list. Pointers would need 32 bytes each in
-- a shared object, with their relocations.
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
    " * what a file has between two of its includes; the text of a program is a list of segments. */\n",
    "#ifndef HF_PROGRAMS_EMBEDDED_H\n#define HF_PROGRAMS_EMBEDDED_H\n\n",
    "/* clang-format off */\n",
    "enum hf_program_id {\n", in_lines("    ", ids), ",\n    HF_PROGRAMS\n};\n\n",
    "enum hf_segment_id {\n", in_lines("    ", numbers), "\n};\n\n",
    "static const char *const hf_segment_table[] = {\n", table.concat(texts), "};\n\n",
    "static const hf_program hf_program_table[] = {\n", table.concat(rows), "};\n",
    "/* clang-format on */\n\n#endif\n",
  }
end

-- The same as one text, for spec/fixtures. No line of a program begins with --.
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

-- → the texts of an archive's programs by name
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

-- → the file's text | nil: there is no file
local function text_in(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a")
  if file then file:close() end
  return text
end

-- Leaves a file alone that has the text already: what is built from it stays as it is.
local function update(path, text)
  if text_in(path) ~= text then write(path, text) end
end

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
    if text_in(file) ~= text then fail("%s is stale: run make embed", file) end
  end
elseif mode == nil then
  update(HEADER, header(list, segments))
  update(DIGESTS, digests(list))
else
  fail("usage: embed.lua [--check | --expand DIR | --sent DIR | --pack FILE | --unpack FILE DIR]")
end
