-- The pages of the documentation and their blocks of code.

local pages = {}

local HIDDEN = { [" "] = true, ["\t"] = true }

local read = require("spec.support.files").read

pages.read = read

-- → the paths of all pages, sorted
function pages.all()
  local list = {}
  local pipe = assert(io.popen("LC_ALL=C ls *.md && LC_ALL=C find docs -name '*.md' | LC_ALL=C sort"))
  for path in pipe:lines() do list[#list + 1] = path end
  pipe:close()
  return list
end

-- → the page that this one translates, or nil
function pages.original(path)
  local original = path:gsub("%.zh%-CN", ""):gsub("^docs/zh/", "docs/")
  return original ~= path and original or nil
end

-- → the page's translation, or nil
function pages.translation(path)
  local translation = path == "README.md" and "README.zh-CN.md" or path:gsub("^docs/", "docs/zh/")
  local file = translation ~= path and io.open(translation)
  return file and file:close() and translation or nil
end

-- Indented lines in a list belong to an item.
local function is_item(line) return line:find("^%s*[-*] ") or line:find("^%s*%d+%. ") end

local function close(block, list)
  if not block then return end
  while block.lines[#block.lines] == "" do block.lines[#block.lines] = nil end
  block.text = table.concat(block.lines, "\n") .. "\n"
  list[#list + 1] = block
end

-- → { { language = the word after the fence, "" without one, false for an indented block, text,
-- lines, line = the number of its first line } ... }
function pages.blocks(path)
  local list, block, in_item, number, before = {}, nil, false, 0, ""
  for line in (read(path) .. "\n"):gmatch("([^\n]*)\n") do
    number = number + 1
    local fence = line:match("^```(.*)$")
    if block and block.language then
      if fence then
        close(block, list)
        block = nil
      else
        block.lines[#block.lines + 1] = line
      end
    elseif fence then
      close(block, list)
      block = { language = fence, lines = {}, line = number + 1 }
    elseif line:find("^    ") and (block or before == "" and not in_item) then
      block = block or { language = false, lines = {}, line = number }
      block.lines[#block.lines + 1] = line:sub(5)
    elseif block and line == "" then
      block.lines[#block.lines + 1] = ""
    else
      close(block, list)
      block = nil
      in_item = is_item(line) or in_item and (line == "" or HIDDEN[line:sub(1, 1)] or before ~= "")
    end
    before = line
  end
  close(block, list)
  return list
end

-- → the blocks in one language
function pages.blocks_in(path, language)
  local list = {}
  for _, block in ipairs(pages.blocks(path)) do
    if block.language == language then list[#list + 1] = block end
  end
  return list
end

-- → the matching lines of the page's shell blocks, without comments; a \ joins lines
function pages.shell_lines(path, pattern)
  local list = {}
  for _, block in ipairs(pages.blocks_in(path, "sh")) do
    for line in block.text:gsub("\\\n%s*", ""):gmatch("[^\n]+") do
      local command = line:gsub("%s+#.*$", "")
      if command:find(pattern) and not command:find("^#") then list[#list + 1] = command end
    end
  end
  return list
end

-- Commands that write into the system or take minutes, and what runs them instead of
-- spec/docs_spec.lua
local ELSEWHERE = {
  ["^make%f[%A]"] = "spec/install_spec.lua and tools/check_packages",
  ["^luarocks "] = "spec/install_spec.lua and tools/check_packages",
  ["^apt%-get "] = "tools/check_packages",
  ["^git clone "] = "tools/roots",
  ["^tools/"] = "tools/check_packages",
  ["^%a[%w.]* spec/%l+/run%.lua "] = "the suites of make check",
  ["^%S*%s*busted "] = "the suites of make check",
  ["^%S+ %$%(command %-v busted%) "] = "the suites of make check",
}

-- → what runs this shell line, or nil
function pages.runner_of(line)
  for pattern, runner in pairs(ELSEWHERE) do
    if line:find(pattern) then return runner end
  end
end

-- → what runs this block instead of spec/docs_spec.lua, or nil
function pages.runs_elsewhere(path, block)
  if block.language == "sh" then return pages.runner_of(block.lines[1]) end
  if path == "docs/how-to/testing.md" and block.language == "lua" then return "spec/testing_spec.lua" end
  local in_nginx = block.language == "nginx" or block.language == "lua"
  if path == "docs/how-to/openresty.md" and in_nginx then return "spec/resty_examples_spec.lua" end
  if block.language == "nginx" and not block.text:find("^http {.*\n  server {") then
    return "nginx -t"
  end
end

return pages
