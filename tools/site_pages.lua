-- Writes the documents for the site: README.md becomes its first page, docs/ its root. A link to a
-- source file that is not a page leads to the forge.
--
--   lua5.4 tools/site_pages.lua DIRECTORY

local pages = require "spec.support.pages"
local files = dofile "tools/files.lua"

local FORGE = pages.read("holdfast-scm-1.rockspec"):match('homepage = "(.-)"')
local directory = assert(..., "usage: site_pages.lua DIRECTORY")

local MOVED = {
  ["README.md"] = "index.md", ["README.zh-CN.md"] = "zh/index.md",
  ["CHANGELOG.md"] = "changelog.md",
  ["CONTRIBUTING.md"] = "contributing.md", ["SECURITY.md"] = "security.md",
}

-- → a page's path on the site
local function site_path(path) return MOVED[path] or path:gsub("^docs/", "") end

local function quoted(path) return "'" .. path .. "'" end

local function directory_of(path) return path:match("^(.*)/[^/]*$") or "" end

local function is_directory(path) return os.execute("test -d " .. quoted(path)) == true end

local is_page, is_image = {}, {}
for _, path in ipairs(pages.all()) do is_page[path] = true end
for path in io.popen("find docs -name '*.svg' -o -name '*.png'"):lines() do is_image[path] = true end

local function link(path, target)
  local file, anchor = target:match("^([^#]*)(#?.*)$")
  if file == "" or target:find("^%a+:") then return target end
  local source = files.join(directory_of(path), file)
  if not is_page[source] and not is_image[source] then
    return ("%s/%s/main/%s%s"):format(FORGE, is_directory(source) and "tree" or "blob", source,
      anchor)
  end
  local up = ("../"):rep(select(2, site_path(path):gsub("/", "")))
  return up .. site_path(source) .. anchor
end

local function is_item(line) return line:find("^[-*] ") or line:find("^%d+%. ") end

-- Indents the content of list items by four spaces and adds an empty line before lists, which the
-- generator needs.
local function adapt_lists(path, text)
  local out, in_code, in_list, before = {}, false, false, "\n"
  for source in text:gmatch("[^\n]*\n") do
    local line = source
    if line:find("^```") then in_code = not in_code end
    if not in_code then
      if is_item(line) and not in_list and before ~= "\n" then out[#out + 1] = "\n" end
      in_list = is_item(line) or in_list and (line == "\n" or line:find("^ ") or before ~= "\n")
      if in_list then
        line = line:gsub("^  +", function(space) return #space <= 4 and "    " or "        " end)
      end
      line = line:gsub("%]%(([^%s)]+)%)", function(target)
        return ("](%s)"):format(link(path, target))
      end)
    end
    out[#out + 1], before = line, line
  end
  return table.concat(out)
end

-- → the path to write to, in a directory that exists
local function prepare(path)
  local place = directory .. "/" .. site_path(path)
  assert(os.execute("mkdir -p " .. quoted(directory_of(place))))
  return place
end

for path in pairs(is_image) do
  assert(os.execute(("cp %s %s"):format(quoted(path), quoted(prepare(path)))))
end
for path in pairs(is_page) do
  files.write(prepare(path), adapt_lists(path, pages.read(path)))
end
