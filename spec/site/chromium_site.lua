-- The documents as a site, in Chromium, as wide as a phone and as a desk: nothing is wider than the
-- page, no link is dead, nothing comes from elsewhere, diagrams are drawn, the search finds.

local pages = require "spec.support.pages"
local process = require "spec.support.process"

local DIRECTORY = "build/site"

local LOOK = [[
  const out = [], root = document.documentElement, here = location.href.split('#')[0];
  if (root.scrollWidth > root.clientWidth) out.push('wide ' + root.scrollWidth);
  for (const a of document.links) if (a.origin === location.origin) out.push('link ' + a.href);
  for (const e of document.querySelectorAll('[id]')) out.push('id ' + new URL('#' + e.id, here).href);
  for (const r of performance.getEntriesByType('resource'))
    if (!r.name.startsWith(location.origin)) out.push('foreign ' + r.name);
  for (const i of document.images) if (!i.naturalWidth) out.push('image ' + i.src);
  return out;]]

local DRAWN = [[
  const is_drawn = (svg) => svg && svg.clientWidth > 100 && svg.getAttribute('aria-roledescription') !== 'error';
  return [...document.querySelectorAll('.diagram')].map((d) => is_drawn(d.querySelector('svg')) ? 'drawn' : 'missing');]]

-- Where the language switch leads, and the language of the page.
local SWITCH = [[
  return [...document.querySelectorAll('.md-header a[hreflang]')].map((a) => a.href).concat(document.documentElement.lang);]]

local FOUND = "return [...document.querySelectorAll('.md-search-result__link')].map((a) => a.href);"

describe("the documentation site", function()
  local browser = require "spec.support.browser"
  local server, base

  setup(function()
    server = process.start { "python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1",
      "--directory", DIRECTORY }
    base = "http://127.0.0.1:" .. assert(server:wait_output("port (%d+)", 10), server:output())
  end)
  teardown(function() server:stop() end)

  -- All pages that links lead to from the first one. → what is wrong, and how many pages there were
  local function walk(kind)
    local view = browser.open(kind)
    finally(function() view:close() end)
    local wrong, seen, todo, links, ids = {}, {}, { base .. "/index.html" }, {}, {}
    local function report(...) wrong[#wrong + 1] = table.concat({ ... }, " "):gsub(base, "") end
    seen[todo[1]] = true
    for _, url in ipairs(todo) do
      view:go(url)
      for _, line in ipairs(view:run(LOOK)) do
        local what, value = line:match("^(%l+) (.*)$")
        if what == "id" then
          ids[value] = true
        elseif what == "link" then
          links[value] = links[value] or url
          local page = value:gsub("#.*$", "")
          if page:find("%.html$") and not seen[page] then
            seen[page] = true
            todo[#todo + 1] = page
          end
        else
          report(url, line)
        end
      end
      local function undrawn()
        for _, each in ipairs(view:run(DRAWN)) do
          if each ~= "drawn" then return true end
        end
      end
      if not process.wait_until(function() return not undrawn() end, 10) then
        report(url, "has a diagram that is not drawn")
      end
      local log = view:log()
      if log ~= "" then report(url, log) end
    end
    for link, from in pairs(links) do
      if link:find("#.") and not ids[link] then report(from, "has a dead link to", link) end
    end
    return wrong, seen
  end

  for _, kind in ipairs { "phone", "desktop" } do
    it("has no broken page on a " .. kind, function()
      local wrong, seen = walk(kind)
      assert.same({}, wrong)
      for _, path in ipairs(pages.all()) do
        local place = ({ ["README.md"] = "index", ["README.zh-CN.md"] = "zh/index" })[path]
          or path:find("/") and path:gsub("^docs/", ""):gsub("README", "index"):gsub("%.md$", "")
          or path:gsub("%.md$", ""):lower()
        assert.is_true(seen[("%s/%s.html"):format(base, place)], path
          .. " is in no menu: packaging/site/mkdocs.yml")
      end
    end)

    it("switches languages on a " .. kind, function()
      local view = browser.open(kind)
      finally(function() view:close() end)
      for page, expected in pairs {
        ["tutorial.html"] = { "index.html", "zh/tutorial.html", "en" },
        ["zh/tutorial.html"] = { "tutorial.html", "zh/index.html", "zh-CN" },
        ["zh/how-to/from/redisson.html"] = { "how-to/from/redisson.html", "zh/index.html", "zh-CN" },
        ["reference/glossary.html"] = { "index.html", "zh/index.html", "en" },
      } do
        view:go(base .. "/" .. page)
        local found = view:run(SWITCH)
        for i, link in ipairs(found) do found[i] = link:gsub("^" .. base:gsub("%p", "%%%0") .. "/", "") end
        assert.same(expected, found, page)
      end
      view:go(base .. "/tutorial.html")
      view:run("document.querySelector('.md-header a[hreflang=zh]').click(); return [];")
      assert.truthy(process.wait_until(function()
        return view:run("return [location.href];")[1] == base .. "/zh/tutorial.html"
      end, 20))
    end)

    it("finds search words on a " .. kind, function()
      local view = browser.open(kind)
      finally(function() view:close() end)
      for word, expected in pairs {
        restart_guard = "quorum.html#restart_guard",
        ["事件循环"] = "/zh/faq.html",
      } do
        view:go(base .. "/index.html?q=" .. word)
        assert.truthy(process.wait_until(function()
          for _, link in ipairs(view:run(FOUND)) do
            if link:find(expected, 1, true) then return true end
          end
        end, 60), word)
      end
    end)
  end
end)
