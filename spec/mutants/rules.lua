-- The rules by which spec/mutants/run.lua changes a file.

local functions = require "spec.sim.functions"
local text_of = require "spec.mutants.text"

local lines_of, name_of = text_of.lines_of, text_of.name_of
local paths, read = text_of.paths, text_of.read

local ENUMS = "csrc/core/*.[ch] csrc/core/*/*.[ch] csrc/posix/*.[ch]"

local rules = {}

-- ---- what is code ----

local function blank(text) return (text:gsub("[^\n]", " ")) end

-- The text with its comments and the insides of its strings blanked, to the same length.
local function code_of_lua(text)
  return (text:gsub("(['\"])([^'\"\n]*)%1", function(quote, inside)
    return quote .. blank(inside) .. quote
  end)
    :gsub("%-%-[^\n]*", blank))
end

-- How much room is asked for.
local function blank_room(call, arguments)
  return call .. arguments:gsub("%f[%w_][%d]+%f[^%w_]", blank):gsub("[-+*/]", blank)
end

local function code_of_c(text)
  text = text:gsub("/%*.-%*/", blank):gsub("//[^\n]*", blank)
  text = text:gsub("\\[\\\"']", "__"):gsub('"([^"\n]*)"', function(inside)
    return '"' .. blank(inside) .. '"'
  end)
  text = text:gsub("'[^'\n][^'\n]?'", blank)
  text = text:gsub("typedef enum[^{;]*%b{}", blank):gsub("%f[^\n%z]#[^\n]*", blank)
  -- What no test can see: what is asserted, room for characters that is larger, rows of numbers.
  text = text:gsub("%f[%w_]assert%b()", blank):gsub("%f[%w_]check_state%b();", blank)
  text = text:gsub("%f[%w_](lua_createtable%()([^\n]*)", blank_room)
    :gsub("%f[%w_](luaL_checkstack%()([^\n]*)", blank_room)
  text = text:gsub("%f[%w_]char [%w_]+%b[][^;\n]*", function(declared)
    return (declared:gsub("%f[%w_]%d+%f[^%w_]", blank))
  end)
  return (text:gsub("%f[^\n%z][%d%s,]+%f[\n}]", blank))
end

-- token between blanks → what it becomes
local OPERATORS = {
  lua = {
    ["=="] = { "~=" }, ["~="] = { "==" }, ["<"] = { "<=", ">=" }, ["<="] = { "<", ">" },
    [">"] = { ">=", "<=" },
    [">="] = { ">", "<" }, ["and"] = { "or" }, ["or"] = { "and" }, ["+"] = { "-" }, ["-"] = { "+" },
    ["*"] = { "/" },
    ["%"] = { "*" },
  },
  c = {
    ["=="] = { "!=" }, ["!="] = { "==" }, ["<"] = { "<=", ">=" }, ["<="] = { "<", ">" },
    [">"] = { ">=", "<=" },
    [">="] = { ">", "<" }, ["&&"] = { "||" }, ["||"] = { "&&" }, ["+"] = { "-" }, ["-"] = { "+" },
    ["/"] = { "*" },
    ["+="] = { "-=" }, ["-="] = { "+=" },
  },
}
local WORDS = {
  ["true"] = "false", ["false"] = "true", ["math.max"] = "math.min", ["math.min"] = "math.max",
  ["not"] = "",
}

-- Each finder calls add(rule, from, to, replacement) with positions in the line.
local find = {}

function find.operators(code, language, add)
  local start = 1
  while true do
    local from, to, token = code:find("%f[^%s](%S+)%f[%s]", start)
    if not from then return end
    for _, other in ipairs(OPERATORS[language][token] or {}) do
      if from > 1 and code:sub(1, from - 1):find("%S") then add("operator", from, to, other) end
    end
    start = to + 1
  end
end

function find.words(code, _, add)
  for from, word, to in code:gmatch("()%f[%w_.]([%l.]+)%f[^%w_.]()") do
    if WORDS[word] then add("word", from, to - 1, WORDS[word]) end
  end
end

function find.negations(code, language, add)
  if language ~= "c" then return end
  for from in code:gmatch("()!%f[%w(]") do add("negation", from, from, "") end
end

-- Where a text is looked at from its first byte, 0 is the same as 1.
local function is_start(before) return before:find(":sub%($") or before:find(":find%([^()]*, $") end

function find.constants(code, language, add)
  for from, number, to in code:gmatch("()%f[%w_.](%d+)%f[^%w_.]()") do
    local negative = code:sub(1, from - 1):find("[^%w%s)%]]%s*%-$")
      or code:sub(1, from - 1):find("%f[%w]%a+ %-$")
    local value = tonumber(number)
    local other = value == 0 and 1 or value == 1 and (negative and 2 or 0) or value == 2
      and negative and 1 or value + 1
    local same = language == "lua" and number == "1" and is_start(code:sub(1, from - 1))
    if not same then add("constant", from, to - 1, ("%d"):format(other)) end
  end
end

-- A condition without a comparison is turned round.
function find.conditions(code, language, add)
  local from, inside, to
  if language == "lua" then
    from, inside, to = code:match("%f[%w]if ()([%w_.]+)() then")
    if not from then from, inside, to = code:match("%f[%w]if ()([%w_.:]+%b())() then") end
    if from then add("condition", from, to - 1, "not (" .. inside .. ")") end
    return
  end
  from, inside, to = code:match("%f[%w]if ()(%b())()")
  if from and not inside:find("[=!<>|&]") then
    add("condition", from, to - 1, "(!" .. inside .. ")")
  end
end

local CALL = { lua = "^%s*[%l_][%w_.:]*%b()%s*$", c = "^%s+[%a_][%w_]*%b();%s*$" }
local GUARDED = { lua = "^%s*if .- then ([%l_][%w_.:]*%b()) end%s*$",
  c = "^%s*if %b() ([%a_][%w_]*%b());%s*$" }
local ASSIGNMENT = {
  lua = "^%s*[%a_][%w_.]*%f[^%w_.] = .*$",
  c = "^%s*[%l_][%w_>.%[%]-]*%f[^%w_>.%]-] [+-|&]?= .*;%s*$",
}

local function is_call(code, language)
  return code:find(CALL[language]) and not code:find("^%s*return") and not code:find("^%s*assert")
end

function find.dropped(code, language, add)
  if is_call(code, language) then add("dropped call", 1, #code, "")
  elseif code:find(GUARDED[language]) then add("dropped call", 1, #code, "")
  elseif code:find(ASSIGNMENT[language]) and not (language == "lua" and code:find("[{,]%s*$")) then
    add("dropped assignment", 1, #code, "")
  end
end

local WRITES = { "hf_op_fail" }
local FREES = { "[%a_]*free%(", "[%l_]*_clear%(", "hf_reader_close%(", "hf_file_close%(", "close%(",
  "pthread_[%l_]*destroy%(" }
local SETS = { "set_%l+%(", "[%u_]+_set_[%l_]+%(", "setsockopt%(", "snprintf%(", "FD_ZERO%(" }
local TAKES = { "lua_set%l+%(", "lua_rawseti?%(", "hf_setuservalue%(" }

local function is_one_of(call, patterns)
  for _, pattern in ipairs(patterns) do
    if call:find("^%s*" .. pattern) then return true end
  end
  return false
end

-- Calls whose order changes nothing: one of them writes the words of a failure, or both free, or
-- both set something. Or it breaks all: one takes from Lua's stack what the other has pushed.
local function has_no_order(one, other)
  local function both(patterns) return is_one_of(one, patterns) and is_one_of(other, patterns) end
  local function either(patterns) return is_one_of(one, patterns) or is_one_of(other, patterns) end
  return either(WRITES) or either(TAKES) or both(FREES) or both(SETS)
end

-- Verdicts, states and codes of the core and the driver: the next one of the same enum.
local next_of = {}

function rules.read_enums()
  for _, path in ipairs(paths(ENUMS)) do
    local text = read(path):gsub("/%*.-%*/", "")
    for body in text:gmatch("typedef enum[^{;]*(%b{})") do
      local names = {}
      for name in body:gmatch("HF_[%u%d_]+") do names[#names + 1] = name end
      for i, name in ipairs(names) do
        next_of[name] = next_of[name] or #names > 1 and names[i % #names + 1] or nil
      end
    end
  end
end

function find.verdicts(code, language, add)
  if language ~= "c" then return end
  for from, name, to in code:gmatch("()%f[%w_](HF_[%u%d_]+)%f[^%w_]()") do
    if next_of[name] then add("verdict", from, to - 1, next_of[name]) end
  end
end

local FINDERS = { "operators", "words", "negations", "constants", "conditions", "dropped",
  "verdicts" }

local function indentation(line) return line:match("^%s*") end

-- ---- the mutants of a file ----

local function trimmed(text) return text:match("^%s*(.-)%s*$") end

-- → { file =, line =, func = the name of its function, rule =, from = text of the line(s), to =,
-- change = the line with «what was|what is», or the lines that change places with ⇄ between } …
function rules.mutants_of(path)
  local language = path:find("%.lua$") and "lua" or "c"
  local text = assert(read(path))
  local lines = lines_of(text)
  local codes = lines_of((language == "lua" and code_of_lua or code_of_c)(text))
  local list, names = {}, functions.names(path, text)
  local file = path:match("^lua/(.*)") or path:match("^csrc/(posix/.*)")
    or path:match("^csrc/(lua/.*)") or name_of(path)
  local function add(number, rule, from, to, change, count)
    if from == to then return end
    list[#list + 1] = {
      path = path, file = file, language = language, line = number, count = count or 1, rule = rule,
      from = from, to = to, change = change, func = names[number],
      id = ("%s:%d %s: %s => %s"):format(file, number, rule, trimmed(from):gsub("\n%s*", " "),
        (trimmed(to):gsub("\n%s*", " "))),
    }
  end
  for number, code in ipairs(codes) do
    local line = lines[number]
    for _, name in ipairs(FINDERS) do
      find[name](code, language, function(rule, from, to, other)
        local before, behind = line:sub(1, from - 1), line:sub(to + 1)
        local change = ("%s«%s|%s»%s"):format(before, line:sub(from, to), other, behind)
        add(number, rule, line, before .. other .. behind, trimmed(change))
      end)
    end
    local behind = codes[number + 1]
    local are_calls = behind and is_call(code, language) and is_call(behind, language)
    if are_calls and indentation(code) == indentation(behind)
      and not has_no_order(code, behind) then
      local other = lines[number + 1]
      add(number, "order of calls", line .. "\n" .. other, other .. "\n" .. line,
        trimmed(line) .. " ⇄ " .. trimmed(other), 2)
    end
  end
  return list
end

return rules
