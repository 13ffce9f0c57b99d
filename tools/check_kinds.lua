-- Which places ask for a kind of lock, of operation or of topology by name: lua5.4
-- tools/check_kinds.lua
--
-- A kind of lock is a row, an operation and a topology are classes. What asks by name has to be
-- changed for each new one, so it stands only in the file that is about it.

-- What counts, as patterns, and the files that are about it.
local QUESTIONS = {
  {
    "kind of lock", { "[=!]=%s*&?hf_kind_%l", "&hf_kind_%l", "letter%s*[=!]=" },
    { "csrc/core/lock/kind.c" },
  },
  {
    "operation", { "[=!]=%s*HF_OP_%u", "case%s+HF_OP_%u" },
    -- what a call of Lua is given, and returns
    { "csrc/core/registry.c", "csrc/lua/call.c", "csrc/lua/op.c" },
  },
  {
    "topology",
    { "[=!]=%s*HF_MODE_%u", "case%s+HF_MODE_%u", "[-]>sentinels%f[^%w_]", "[-]>cluster%f[^%w_]",
      "[-]>quorum%f[^%w_]" },
    { "csrc/core/registry.c", "csrc/core/link/sentinel.c", "csrc/core/link/cluster.c",
      "csrc/core/quorum/" },
  },
}

local function lines_of(command)
  local pipe, lines = assert(io.popen(command)), {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  assert(pipe:close())
  return lines
end

-- Comments and texts become blanks; the lines stay.
local function code_of(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  local function blank(piece) return (piece:gsub("[^\n]", " ")) end
  return (text:gsub("/%*.-%*/", blank):gsub("//[^\n]*", blank):gsub('"[^"\n]*"', '""'))
end

local function is_about(path, files)
  for _, file in ipairs(files) do
    if path:sub(1, #file) == file then return true end
  end
  return false
end

local function asks(line, patterns)
  for _, pattern in ipairs(patterns) do
    if line:find(pattern) then return true end
  end
  return false
end

local failures = 0

local function check(path, what, patterns)
  local places, number = {}, 0
  for line in (code_of(path) .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    if asks(line, patterns) then
      places[#places + 1] = ("%s:%d: %s"):format(path, number, line:match "^%s*(.-)%s*$")
    end
  end
  if #places == 0 then return end
  failures = failures + 1
  for _, place in ipairs(places) do print(place) end
  print(("%s asks for a %s by name"):format(path, what))
end

for _, path in ipairs(lines_of "find csrc -name '*.c' | sort") do
  for _, question in ipairs(QUESTIONS) do
    local what, patterns, files = question[1], question[2], question[3]
    if not is_about(path, files) then check(path, what, patterns) end
  end
end
os.exit(failures == 0 and 0 or 1)
