-- Checks the documents: each page is in the site's menu; each block of code has a language and a
-- test that runs it; nginx accepts each piece of nginx.conf; the README shows examples/hello.lua; a
-- translation has the same code, links, headings and words in backticks as the original; each
-- mutant of the simulator has a seed in spec/sim/mutant_seeds.txt; links lead to existing files and
-- headings; named files, tests and identifiers exist in the sources. tools/check_reference.lua
-- compares the reference pages with the code. If nginx has no Lua module, this only compiles the
-- Lua in those pieces.
--
--   lua5.4 tools/check_docs.lua [DOCUMENT...]   prints a line for each problem, exits with 1

local pages = require "spec.support.pages"

local tools = dofile "tools/files.lua"
local read, list, report, run = tools.read, tools.lines_of, tools.fail, tools.run

-- ---- nginx.conf ----

local directory -- for the files of nginx

local function prepare_nginx()
  local _, output = run("mktemp -d")
  directory = output:gsub("\n$", "")
  assert(run(("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=ca -days 1 -keyout %s/ca.key -out %s/ca.pem"):format(
    directory, directory)))
end

local HAS_NGX_LUA = tools.exists "/usr/lib/nginx/modules/ngx_http_lua_module.so"

local MAIN = [[
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
error_log stderr;
pid %(directory)/nginx.pid;
events {}
%(piece)
]]
local HTTP = "http {\n%s\n}\n"
-- upstreams that a location may proxy to
local SERVER = "upstream payments { server 127.0.0.1:9; }\nserver {\n%s\n}"
local TEMPORARY = { "client_body", "proxy", "fastcgi", "uwsgi", "scgi" }

-- → settings with paths that a normal user can write
local function temporary_paths()
  local lines = { "access_log off;" }
  for i, name in ipairs(TEMPORARY) do
    lines[i + 1] = ("%s_temp_path %s/%s;"):format(name, directory, name)
  end
  return table.concat(lines, "\n")
end

-- → a complete configuration that contains the piece, with paths of existing files
local function whole(piece)
  if piece:find("^location ") then piece = SERVER:format(piece) end
  if not piece:find("^http {") then piece = HTTP:format(piece) end
  piece = piece:gsub("^http {", function() return "http {\n" .. temporary_paths() end)
  piece = piece:gsub("(certificate%s+)[^;%s]+;", function(name)
    return name .. directory .. "/ca.pem;"
  end)
  return (MAIN:gsub("%%%((%w+)%)", { directory = directory, piece = piece }))
end

local function check_with_nginx(name, piece)
  if not directory then prepare_nginx() end
  tools.write(directory .. "/nginx.conf", whole(piece))
  local fine, output = run(("nginx -t -e stderr -c %s/nginx.conf"):format(directory))
  if not fine then report("%s: %s", name, output) end
end

-- Also compiles the Lua in the piece, because nginx compiles it only at run time.
local function check_piece(path, number, piece)
  local name = ("%s, nginx.conf %d"):format(path, number)
  if HAS_NGX_LUA then check_with_nginx(name, piece) end
  for block in piece:gmatch("_by_lua_block (%b{})") do
    local compiled, wrong = load(block:sub(2, -2), "@" .. name, "t")
    if not compiled then report("%s", wrong) end
  end
end

-- ---- blocks of code ----

local check_language = { nginx = check_piece }

-- Languages of blocks that are run by spec/docs_spec.lua or by the runner from pages.runner_of.
-- spec/fencing runs sql; text and diagrams are not run.
for _, language in ipairs { "lua", "sh", "console", "cron", "ini", "yaml", "text", "mermaid", "sql" } do
  check_language[language] = check_language[language] or function() end
end

function check_language.lua(path, line, text)
  local _, wrong = load(text, ("@%s:%d"):format(path, line), "t")
  if wrong then report("%s", wrong) end
end

local COMMANDS = { "holdfast", "lua5.%d", "luajit", "lua", "make", "luarocks", "apt%-get",
  "tools/%S+", "busted", "%$" }

local function is_command(line)
  for _, command in ipairs(COMMANDS) do
    if line:find("^" .. command .. " [^=┌│]") then return true end
  end
  return false
end

-- Returns whether a line is only a synopsis, although it begins like a command.
local function is_synopsis(line) return line:find("…", 1, true) or line:find("%[options%]") end

function check_language.text(path, line, text)
  if text:find("require", 1, true) and load(text, "=text", "t") then
    report("%s:%d: put it into a block of lua, so that it is run", path, line)
  end
  for each in text:gmatch("[^\n]+") do
    if is_command(each) and not is_synopsis(each) then
      report("%s:%d: put it into a block of sh, so that it is run: %s", path, line, each)
    end
  end
end

-- Checks that install.md lists each package of an image, which is built from that page's lines.
function check_language.dockerfile(path, line, text)
  local install = read("docs/how-to/install.md")
  for arguments in text:gmatch("apt%-get install ([^\n&]+)") do
    for package in arguments:gmatch("%S+") do
      local named = package:find("^[-/]") or install:find(package, 1, true)
      if not named then report("%s:%d: docs/how-to/install.md does not install %s", path, line, package) end
    end
  end
  for target in text:gmatch("make %-C %S+ (%S+)") do
    if not run("make -n " .. target) then
      report("%s:%d: make does not know how: %s", path, line, target)
    end
  end
end

-- Checks that one runner runs the whole block, and that each make target exists.
function check_language.sh(path, line, text)
  local runner = pages.runner_of(text)
  for each in text:gsub("\\\n%s*", ""):gmatch("[^\n]+") do
    if not each:find("^#") and (pages.runner_of(each) ~= nil) ~= (runner ~= nil) then
      report("%s:%d: one block is run by %s, but not all of it: %s", path, line, runner
        or "spec/docs_spec.lua", each)
    end
    if each:find("^make%f[%A]") and not run("make -n "
        .. each:gsub("^make", ""):gsub("#.*", "")) then
      report("%s:%d: make does not know how: %s", path, line, each)
    end
  end
end

local function check_block(path, number, block)
  local check = check_language[block.language or "text"]
  if check == check_piece then return check(path, number, block.text) end
  if not check then
    return report("%s:%d: a block in the language %q", path, block.line, block.language)
  end
  check(path, block.line, block.text)
end

-- ---- links ----

-- → a heading's anchor, in the format that forges use
local function anchor_of(heading)
  local text = heading:gsub("%[(.-)%]%b()", "%1"):gsub("`", ""):lower()
  text = text:gsub("[%z\1-\127]", function(char) return char:find("[%w%-_ ]") and char or "" end)
  for _, mark in ipairs { "…", "，", "：", "、", "（", "）", "。", "“", "”", "？" } do
    text = text:gsub(mark, "")
  end
  return (text:gsub(" ", "-"))
end

local anchors = {}

local function anchors_of(path)
  if anchors[path] then return anchors[path] end
  local set, count = {}, {}
  for heading in ("\n" .. read(path):gsub("\n```.-\n```", "\n")):gmatch("\n##?#?#? ([^\n]+)") do
    local name = anchor_of(heading)
    set[count[name] and ("%s-%d"):format(name, count[name]) or name] = true
    count[name] = (count[name] or 0) + 1
  end
  anchors[path] = set
  return set
end

local function check_link(path, target)
  if target:find("^%a+:") then return end
  local file, anchor = target:match("^([^#]*)#?(.*)$")
  local relative = file == "" and path or path:gsub("[^/]*$", "") .. file
  if not tools.exists(relative) then
    report("%s: %s leads nowhere", path, target)
  elseif anchor ~= "" and not anchors_of(relative)[anchor] then
    report("%s: %s has no such heading", path, target)
  end
end

-- ---- files ----

local TOP = { bench = true, bin = true, completions = true, csrc = true, docs = true,
  examples = true, lua = true, packaging = true, spec = true, tools = true }

-- Checks that the files which a page names exist in the sources.
local function check_files(path)
  for name in read(path):gsub("\n```.-\n```", "\n"):gmatch("`([%w_]+/[%w_./-]+)`") do
    if TOP[name:match("^[^/]+")] and not io.open(name) then
      report("%s: there is no %s", path, name)
    end
  end
end

local function check_document(path)
  check_files(path)
  local pieces = 0
  for _, block in ipairs(pages.blocks(path)) do
    if block.language == "nginx" then pieces = pieces + 1 end
    check_block(path, pieces, block)
  end
  for target in read(path):gsub("\n```.-\n```", "\n"):gmatch("%]%(([^%s)]+)%)") do
    check_link(path, target)
  end
end

-- ---- translations ----

-- Removes comments, because they are translated: "--" in Lua, "#" in a shell.
local COMMENTS = { lua = { "%-%-" }, sh = { "#" }, nginx = { "#", "%-%-" } }

local function without_comments(language, text)
  text = "\n" .. text
  for _, mark in ipairs(COMMENTS[language] or {}) do
    text = text:gsub("%f[^%s]" .. mark .. " [^\n]*", "")
  end
  if language == "sh" then -- a shell block that writes Lua into a file
    text = text:gsub("%f[^\n]cat >%S+%.lua <<'END'\n.-\nEND\n", function(lua)
      return without_comments("lua", lua)
    end)
  end
  return (text:gsub("[ \t]*\n", "\n"))
end

local function code_of(path)
  local code = {}
  for _, block in ipairs(pages.blocks(path)) do
    if block.language ~= "mermaid" then
      code[#code + 1] = without_comments(block.language, block.text)
    end
  end
  return code
end

local function prose_of(path) return (read(path):gsub("\n```.-\n```", "\n")) end

-- → the levels of the page's headings, such as "# ## ## ###"
local function outline_of(path)
  local marks = {}
  for mark in ("\n" .. prose_of(path)):gmatch("\n(#+) ") do marks[#marks + 1] = mark end
  return table.concat(marks, " ")
end

-- → the set of the words in backticks
local function names_of(path)
  local set = {}
  for name in prose_of(path):gmatch("`([^`]+)`") do set[name:gsub("%s+", " ")] = true end
  return set
end

-- → the files that the page links to, as keys
local function linked(path)
  local set, base = {}, path:match("^(.*)/") or ""
  for target in prose_of(path):gmatch("%]%(([^%s)]+)%)") do
    if not target:find("^%a+:") and not target:find("^#") then
      set[tools.join(base, (target:gsub("#.*", "")))] = true
    end
  end
  return set
end

-- Checks that a translation's links lead to pages in the same language, if these exist.
local function check_translated_links(path, original)
  local here, there = linked(path), linked(original)
  for target in pairs(there) do
    local wanted = pages.translation(target) or target
    if wanted ~= path and not here[wanted] then
      report("%s: it has no link to %s, as %s has", path, wanted, original)
    end
  end
  for target in pairs(here) do
    local translation = pages.translation(target)
    if translation and target ~= original then
      report("%s: it links to %s instead of %s", path, target, translation)
    end
  end
  if not here[original] then report("%s: it has no link to %s", path, original) end
  if not there[path] then report("%s: it has no link to %s", original, path) end
end

local function check_names(path, counterpart)
  local there = names_of(counterpart)
  for name in pairs(names_of(path)) do
    if not there[name] then report("%s has `%s`, and %s has not", path, name, counterpart) end
  end
end

local function check_translation(path, original)
  check_translated_links(path, original)
  local here, there = code_of(path), code_of(original)
  for i = 1, math.max(#here, #there) do
    if here[i] ~= there[i] then report("%s: its block %d is not that of %s", path, i, original) end
  end
  if outline_of(path) ~= outline_of(original) then
    report("%s: its headings are not those of %s", path, original)
  end
  check_names(path, original)
  check_names(original, path)
end

local function check_hello()
  local code = read("examples/hello.lua"):gsub("^[^\n]*\n", "")
  if not read("README.md"):find(code, 1, true) then
    report("README.md does not show examples/hello.lua as it is")
  end
end

-- Checks that each page is in the menu of the site.
local function check_menu()
  local menu = read("packaging/site/mkdocs.yml")
  for _, path in ipairs(pages.all()) do
    local name = path:match("^docs/(.*%.md)$")
    if name and not menu:find(" " .. name .. "\n", 1, true) then
      report("packaging/site/mkdocs.yml has no %s", name)
    end
  end
end

-- Checks that each mutant that random seeds find has a row, and that each row belongs to such a
-- mutant. A row contains the kind of system, if any, the mutant's name and its seed, as --mutants
-- prints them.
local function check_mutants()
  local rows, mutants = {}, require "spec.sim.mutants"
  for line in read("spec/sim/mutant_seeds.txt"):gmatch("[^\n]+") do
    local name = line:match("^(%a.-) +%d+ +[%l_]+ ")
    if name then
      rows[name:gsub(" +", " ")] = true
    elseif not line:find("^#") then
      report("spec/sim/mutant_seeds.txt: no name, seed and rule in the row %s", line)
    end
  end
  local named = mutants.named()
  for _, all in ipairs { named[1], named[2] } do
    for _, mutant in ipairs(all) do
      local name = (mutant.kind and mutant.kind .. " " or "") .. mutant.name
      if not rows[name] then report("spec/sim/mutant_seeds.txt has no row of the mutant %s", name) end
      rows[name] = nil
    end
  end
  for name in pairs(rows) do
    report("spec/sim/mutant_seeds.txt has a row of %s, but no mutant is called that", name)
  end
end

-- Checks that the tests that a document names exist. It names a file, then tests in quotation
-- marks.
local function check_tests_of(document, least)
  local file, count = nil, 0
  for word, name in read(document):gsub("\n *", " "):gmatch '([%w_]*),? "([^"]+)"' do
    if word:find("^test_") then file = "spec/unit/" .. word .. ".c"
    elseif word:find("_spec$") then file = "spec/" .. word .. ".lua"
    elseif word:find("cases$") then file = "spec/sim/" .. word .. ".lua" end
    if file then
      local shown = file:find("%.c$") and ("TEST(%s)"):format(name) or '"' .. name
      if not read(file):find(shown, 1, true) then
        report('%s: %s has no "%s"', document, file, name)
      end
      count = count + 1
    end
  end
  if count < least then report("%s names %d tests", document, count) end
end

-- Checks SECURITY.md: each item begins with words in bold, which are repeated at the beginning of a
-- row in the table of tests. Each row names a test, or says that there is none.
local function check_promises()
  local text, rows, items = read("SECURITY.md"), {}, {}
  for name, tests in text:gmatch("\n| ([^|]+) | ([^|\n]+) |") do
    rows[name] = true
    if not tests:find('[%w_]+ "[^"]+"') and tests ~= "no test" then
      report("SECURITY.md: the row %s names no test", name)
    end
  end
  for name in text:gmatch("\n%-? ?%*%*([^*]+)%*%*") do
    items[name] = true
    if not rows[name] then report("SECURITY.md has no row of tests for %s", name) end
  end
  for name in pairs(rows) do
    if not items[name] then report("SECURITY.md says nothing of %s, which has a row", name) end
  end
  for item in text:gmatch("\n%- ([^\n]+)") do
    if not item:find("^%*%*") then report("SECURITY.md: an item without a name: %s", item) end
  end
end

-- Checks spec/pairs.md: each two of the listed features have one row, which names a test or says
-- why they cannot meet.
local function check_pairs()
  local text, features, rows = read("spec/pairs.md"), {}, {}
  for name in text:gmatch("\n%- %*%*([^*]+)%*%*") do features[#features + 1] = name end
  local body = text:match("\n|%-.*")
  for one, other, tests in body:gmatch("\n| ([^|]+) | ([^|]+) | ([^|\n]+) |") do
    local pair = one .. " and " .. other
    if rows[pair] then report("spec/pairs.md has two rows of %s", pair) end
    rows[pair] = true
    if not tests:find('[%w_]+ "[^"]+"') and not tests:find("^cannot meet: ") then
      report("spec/pairs.md: the row of %s names no test and no reason", pair)
    end
  end
  for i, one in ipairs(features) do
    for j = i + 1, #features do
      local pair = one .. " and " .. features[j]
      if not rows[pair] then report("spec/pairs.md has no row of %s", pair) end
      rows[pair] = nil
    end
  end
  for pair in pairs(rows) do report("spec/pairs.md has a row of %s, which are not listed like that", pair) end
end

local SOURCES = "find Makefile bench bin completions csrc examples lua packaging spec tools -type f"
  .. " -not -name '*.md'"

-- Checks that each name with an underscore in backticks exists in the sources or is a file's.
local function check_identifiers(documents)
  local known = {}
  for _, path in ipairs(list(SOURCES)) do
    for name in (path .. " " .. read(path)):gmatch("[%a_][%w_]*") do known[name] = true end
  end
  for _, document in ipairs(documents) do
    for code in read(document):gsub("```.-```", ""):gmatch("`([^`\n]+)`") do
      for name in code:gmatch("[%a_][%w_]*") do
        if name:find("%w_%w") and not known[name] then
          report("%s: %s is nowhere in the sources", document, name)
        end
      end
    end
  end
end

check_tests_of("SECURITY.md", 60)
check_promises()
check_tests_of("spec/defects.md", 80)
check_tests_of("spec/pairs.md", 60)
check_pairs()
check_identifiers { "docs/explanation/architecture.md", "docs/reference/glossary.md", "docs/explanation/proof.md", "CONTRIBUTING.md" }
check_hello()
check_mutants()
check_menu()
for _, path in ipairs(#arg > 0 and arg or pages.all()) do
  check_document(path)
  local original = pages.original(path)
  if original then check_translation(path, original) end
end
if directory then run(("rm -r '%s'"):format(directory)) end
tools.finish()
