-- Writes a plan as a Lua table. The plan of a seed may change, but a written plan does not (see
-- schedules.lua).

local function quoted(value)
  if value == math.huge then return "math.huge" end
  if type(value) == "number" then
    local short = ("%.14g"):format(value)
    return tonumber(short) == value and short or ("%.17g"):format(value)
  end
  return type(value) == "string" and ("%q"):format(value) or tostring(value)
end

local function sorted_keys(map)
  local names = {}
  for name in pairs(map) do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function literal(value, indent)
  if type(value) ~= "table" then return quoted(value) end
  local out, inner = {}, indent and indent .. "  "
  for _, item in ipairs(value) do out[#out + 1] = literal(item) end
  for _, name in ipairs(sorted_keys(value)) do
    out[#out + 1] = name .. " = " .. literal(value[name], name == "parts" and inner or nil)
  end
  if not indent then return "{ " .. table.concat(out, ", ") .. " }" end
  return "{\n" .. inner .. table.concat(out, ",\n" .. inner) .. ",\n" .. indent .. "}"
end

-- Fields of a plan that only its generator needs.
local GENERATOR = { "habits", "faults", "patterns", "task_count", "process_count" }

return function(plan)
  local copy = {}
  for name, value in pairs(plan) do copy[name] = value end
  for _, name in ipairs(GENERATOR) do copy[name] = nil end
  return literal(copy, "")
end
