-- The documents as a site, in Chromium, as wide as a phone and as a desk: nothing is wider than the
-- page, no link is dead, nothing comes from elsewhere, diagrams are drawn, text has enough contrast
-- in both palettes, the search finds.

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

-- Reports text with less contrast than WCAG AA requires, against the shape behind it. Each pair of
-- colours is reported once.
local PALE = [[
  const parse = (text) => { const n = (text.match(/[\d.]+/g) || []).map(Number); return [n[0] || 0, n[1] || 0, n[2] || 0, n[3] ?? 1]; };
  const over = (front, back) => back.map((c, i) => i < 3 ? front[i] * front[3] + c * (1 - front[3]) : 1);
  const light = (colour) => colour.slice(0, 3).map((c) => c / 255)
    .map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const back = (of) => of ? over(parse(getComputedStyle(of).backgroundColor), back(of.parentElement)) : [255, 255, 255, 1];
  const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
  const behind = (of) => {
    const box = of.getBoundingClientRect(), svg = of.closest('.diagram svg');
    const shapes = svg ? [...svg.querySelectorAll('rect, polygon')].filter((s) => inside(box, s.getBoundingClientRect())) : [];
    const shape = shapes.filter((s) => getComputedStyle(s).fill !== 'none').pop();
    return shape ? parse(getComputedStyle(shape).fill) : back(of);
  };
  const found = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const of = node.parentElement, style = getComputedStyle(of);
    if (!node.textContent.trim() || of.closest('script, style, .md-clipboard') || !of.checkVisibility({ opacityProperty: true })) continue;
    const ground = behind(of), colour = over(parse(of.closest('svg') ? style.fill : style.color), ground);
    const [a, b] = [light(colour), light(ground)].sort((x, y) => y - x), large = parseFloat(style.fontSize) >= 24;
    const ratio = (a + .05) / (b + .05);
    if (ratio < (large ? 3 : 4.5)) found.add(ratio.toFixed(2) + ' ' + colour.map(Math.round) + ' on ' + ground.map(Math.round)
      + ' ' + of.tagName + '.' + (of.getAttribute('class') || '') + ': ' + node.textContent.trim().slice(0, 30));
  }
  return [...new Map([...found].map((f) => [f.replace(/:.*/, ''), f])).values()];]]

local OTHER_PALETTE = "document.querySelector('form[data-md-component=palette] label:not([hidden])').click(); return [];"

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
      for _ = 1, 2 do
        if not process.wait_until(function() return not undrawn() end, 10) then
          report(url, "has a diagram that is not drawn")
        end
        for _, line in ipairs(view:run(PALE)) do report(url, "is pale:", line) end
        view:run(OTHER_PALETTE)
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
