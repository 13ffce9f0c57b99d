-- Finds uses of functions that depend on the program's locale: lua5.4 tools/check_locale.lua
--
-- Data that must be the same in all programs, or that a parser reads, must not depend on the
-- locale: ids, sort orders, records, metrics, JSON, messages, options. lua/holdfast/locale.lua and
-- csrc/core/base/types.h have replacements. An allowed use ends with `-- any locale: ` and the
-- reason.

local files = dofile "tools/files.lua"

local ABOUT_IT = {
  ["lua/holdfast/locale.lua"] = true,
  ["lua/holdfast/status_page.lua"] = true, -- HTML, CSS and JavaScript in a string
}

-- Numbers may be compared with <, <=, > and >=. The last word of a name shows that it is a number.
-- Strings must be compared with locale.is_before.
local NUMBERS = {}
for name in ([[
  at best_distance columns count deadline from head last lease least length most now rate read_at seconds
  since size sleeps_until till token ttl wait waiters workers
]]):gmatch "%S+" do NUMBERS[name] = true end

local FLOAT = "%%[-+ #0]*%d*%.?%d*[aAeEfgG]"

-- A pattern, or a function that returns the position, and what to use instead.
local LUA = {
  { "[.:]lower%s*%(", "locale.lower" }, { "[.:]upper%s*%(", "a table of words" },
  { "%f[%w_.]tonumber%s*%(", "locale.number" }, { "%f[%w_.]tostring%s*%(", "locale.text" },
  { "table%.sort%s*%([^,()]*%)", "table.sort with locale.is_before" },
  { "os%.date%s*%(%s*\"[^\"]*%%[^YmdHMS%%]", "os.date with numbers only" },
  { "setlocale", "no locale of one's own" },
}

local C = {}
for name in ([[
  strtod strtof strtold atof strcoll strxfrm strcasecmp strncasecmp tolower toupper isalnum isalpha
  isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit strftime setlocale
  lua_lessthan lua_compare lua_arith luaL_tolstring
]]):gmatch "%S+" do
  C[#C + 1] = { "%f[%w_]" .. name .. "%s*%(", "hf_slice_equal, hf_equal_ignoring_case or hf_seconds_text" }
end

local function fail(path, number, what, instead)
  files.fail("%s:%d: %s follows the program's locale; use %s", path, number, what, instead)
end

-- → the code, with each string replaced by ""
local function code_of(line)
  line = line:gsub("\\.", ""):gsub('"[^"]*"', '""'):gsub("'[^']*'", "''"):gsub("%[%[.-%]%]", '""')
  return (line:gsub("%-%-.*", ""):gsub("%f[%w_]locale%.[%a_]+", ""))
end

local function texts_of(line)
  local texts = {}
  for _, text in line:gmatch "([\"'])(.-)%1" do texts[#texts + 1] = text end
  return texts
end

local function is_number(side)
  if side:find "%d%s*$" or side:find "#[%w_.%[%]]+%s*$" or side:find "[+*/-]" then return true end
  if side:find "%)%s*$" then return true end -- the result of a call: now(), math.floor(…)
  local name = side:gsub("%b[]%s*$", ""):match "([%a_][%w_]*)%s*$"
  return name ~= nil and (NUMBERS[name] or name:find "^%u[%u_]*$" ~= nil)
end

local function is_number_ahead(side)
  local name = side:match "^%s*([%w_.:#]+%b())" or side:match "^%s*([%w_.:#]+)"
  return side:find "^%s*[-%d#(]" ~= nil or name ~= nil and is_number(name)
end

local function check_order(path, number, code)
  for before, ahead in code:gmatch "()%s[<>]=?%s()" do
    if not (is_number(code:sub(1, before - 1)) or is_number_ahead(code:sub(ahead))) then
      fail(path, number, "an order of texts", "locale.is_before")
    end
  end
end

-- Finds a character class of Lua's patterns, such as %a, and a format directive for a float.
local function check_texts(path, number, line)
  local matches = line:find "[.:]g?match%s*[(\"']" or line:find "[.:]gsub%s*%("
    or line:find "[.:]find%s*[(\"']"
  for _, text in ipairs(texts_of(line)) do
    local plain = text:gsub("%%%%", "")
    if matches and plain:find "%%[aclpuwACLPUWS]" then
      fail(path, number, ("a class in %q"):format(text), "letters, such as [a-z]")
    elseif not matches and plain:gsub("%%%.0f", ""):find(FLOAT) and not line:find("locale.decimal(", 1, true) then
      fail(path, number, ("the point in %q"):format(text), "locale.decimal")
    end
  end
end

local function check_lua(path)
  for number, line in files.numbered(files.read(path)) do
    local code = code_of(line)
    if code ~= "" and not line:find "%-%- any locale: %S" then
      for _, rule in ipairs(LUA) do
        if code:find(rule[1]) then fail(path, number, code:match(rule[1]), rule[2]) end
      end
      check_order(path, number, code)
      check_texts(path, number, line)
    end
  end
end

local function check_c(path)
  for number, line in files.numbered(files.read(path)) do
    for _, rule in ipairs(C) do
      if code_of(line):find(rule[1]) then fail(path, number, line:match(rule[1]), rule[2]) end
    end
    for text in line:gmatch '"([^"]*)"' do
      if text:gsub("%%%%", ""):find(FLOAT) then
        fail(path, number, ("the point in %q"):format(text), "hf_seconds_text")
      end
    end
  end
end

local function each(command, check)
  for _, path in ipairs(files.lines_of(command)) do
    if not ABOUT_IT[path] then check(path) end
  end
end

-- the small Redis and the programs run in the locale "C"
each("find lua -name '*.lua' -not -path 'lua/holdfast/testing/redis*' | sort; echo bin/holdfast", check_lua)
each("find csrc -name '*.[ch]' -not -path 'csrc/programs/*' | sort", check_c)
files.finish()
