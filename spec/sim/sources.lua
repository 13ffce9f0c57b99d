-- The sources that make sim-mutants builds for the simulator and the chaos runs: csrc with the
-- mutants of spec/sim/core_mutants.lua, each behind a switch, and with spec/sim/core, which lets
-- Lua read and change the core's internals.
--
--   lua spec/sim/sources.lua DIR     into DIR/csrc; a file that is as it was is not written again
--
-- One build has all mutants: separate builds would compile a file and link two modules ninety
-- times.

package.path = "./?.lua;" .. package.path
local core_mutants = require "spec.sim.core_mutants"
local mutants = require "spec.sim.mutants"
local patches = require "spec.sim.patches"

local INSIDE = "spec/sim/core"
local FIELDS = "spec/unit/fields.h"

-- The places where spec/sim/core is inserted: { purpose, file, function, text, replacement }
local DOORS = {
  { "steps", "core/lock/holds.c", "", "«void hf_hold_become(hf_hold *hold, hf_hold_state state) {» assert(",
    '#include "lua/steps.h"\n\nvoid hf_hold_become(hf_hold *hold, hf_hold_state state) {\n'
    .. "    taken[hold->state] |= 1 << state;" },
  { "replaced", "core/lock/kind.c", "", '#include "programs/embedded.h"',
    '#include "programs/embedded.h"\n#include "lua/replaced.h"' },
  { "program", "core/lock/kind.c", "", "return «&hf_program_table[id]»;", "current_program(id)" },
  { "segment", "core/lock/kind.c", "", "return «hf_segment_table[program->segments[i]]»;",
    "current_segment(program, i)" },
  { "open", "lua/engine.c", "", '«»lua_setfield(L, -2, "engine");', "hf_open_inside(L);\n    " },
}

local function fail(...)
  io.stderr:write("sources: ", string.format(...), "\n")
  os.exit(1)
end

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a")
  if file then file:close() end
  return text
end

local function lines_of(command)
  local pipe, lines = assert(io.popen(command)), {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  return lines
end

-- Checks that each mutant of the core changes something, and that each change belongs to a listed
-- mutant.
local function check_names()
  local changed, listed = {}, {}
  for _, patch in ipairs(core_mutants) do changed[patch[1]] = true end
  for _, list in ipairs(mutants.named()) do
    for _, mutant in ipairs(list) do
      if not mutant.entry then listed[mutant.name] = true end
      if not (mutant.entry or changed[mutant.name]) then
        fail("%s of spec/sim/mutants.lua changes nothing", mutant.name)
      end
    end
  end
  for name in pairs(changed) do
    if not listed[name] then fail("%s is not in spec/sim/mutants.lua", name) end
  end
end

local function of_file(list, path)
  local own = {}
  for _, patch in ipairs(list) do
    if "csrc/" .. patch[2] == path then own[#own + 1] = patch end
  end
  return own
end

-- A mutant without a place has a switch that changes nothing; make check reports it.
local function with_mutants(text, list)
  return patches.apply(text, (patches.placed(text, list)))
end

local function always(_, place) return place[1][5] end

local function source(path)
  local doors, own = of_file(DOORS, path), of_file(core_mutants, path)
  if #doors + #own == 0 then return read(path) end
  local text = patches.apply(with_mutants(read(path), own), doors, always)
  return '#include "lua/inside.h"\n' .. text
end

local function names()
  local seen, lines = {}, { "#define HF_MUTANT_LIST(X) X(NONE)" }
  for _, patch in ipairs(core_mutants) do
    if not seen[patch[1]] then lines[#lines + 1] = ("X(%s)"):format(patch[1]) end
    seen[patch[1]] = true
  end
  return table.concat(lines, " \\\n    ") .. "\n"
end

-- → what the directory has to contain, by path
local function sources()
  local texts = { ["csrc/lua/mutants.h"] = names() }
  for _, path in ipairs(lines_of "find csrc -name '*.[ch]'") do texts[path] = source(path) end
  for _, path in ipairs(lines_of("ls " .. INSIDE)) do
    texts["csrc/lua/" .. path] = read(INSIDE .. "/" .. path)
  end
  texts["csrc/lua/fields.h"] = read(FIELDS)
  texts["csrc/lua/names_of.h"] = read("spec/unit/names_of.h")
  for _, list in ipairs { DOORS, core_mutants } do
    for _, patch in ipairs(list) do
      if not texts["csrc/" .. patch[2]] then fail("%s: there is no csrc/%s", patch[1], patch[2]) end
    end
  end
  return texts
end

local function write_all(directory, texts)
  for path, text in pairs(texts) do
    local target = directory .. "/" .. path
    if read(target) ~= text then
      os.execute("mkdir -p " .. target:match("^(.*)/"))
      local file = assert(io.open(target, "wb"))
      assert(file:write(text))
      assert(file:close())
    end
  end
  for _, path in ipairs(lines_of(("cd %s && find csrc -name '*.[ch]'"):format(directory))) do
    if not texts[path] then assert(os.remove(directory .. "/" .. path)) end
  end
end

local directory = ... or fail("usage: sources.lua DIR")
check_names()
local ok, texts = pcall(sources)
if not ok then fail("%s", texts) end
write_all(directory, texts)
