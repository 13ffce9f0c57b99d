-- The page of holdfast.status in a real browser, headless Chromium. make check runs it; the
-- screenshots stay in build/status.

local chromium = require "spec.browser.chromium"
local command = require "spec.support.command"
local dkjson = require "dkjson"
local files = require "spec.support.files"
local process = require "spec.support.process"
local resp = require "spec.support.resp"
local scenes = require "spec.browser.scene"

local PATIENCE = 60
local JAVA = "b983c153-7421-469a-addb-44fb92259a1b:1"
local OURS = "b983c153-7421-869a-addb-44fb92259a1b:"
local TAB, ENTER, ESCAPE, LEFT, UP, DOWN = "\238\128\132", "\238\128\135", "\238\128\140",
  "\238\128\146", "\238\128\147", "\238\128\149"

-- → what has too little contrast for WCAG AA, as lines of text
local CONTRAST = [[
  const parse = text => { const n = text.match(/[\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  const behind = of => {
    for (; of; of = of.parentElement) {
      const colour = parse(getComputedStyle(of).backgroundColor);
      if (getComputedStyle(of).opacity !== "1") throw new Error("opacity of " + of.outerHTML.slice(0, 80));
      if (colour[3] === 1) return colour;
      if (colour[3] !== 0) throw new Error("half transparent: " + of.outerHTML.slice(0, 80));
    }
  };
  const found = [], check = (of, style, text) => {
    const inPlot = of.closest("svg"), fill = inPlot ? style.fill : style.color;
    const back = text === "no data" ? parse(getComputedStyle(document.querySelector(".gap")).fill) : behind(of);
    const value = ratio(light(parse(fill)), light(back));
    if (value < 4.5) found.push(value.toFixed(2) + " " + text);
    count += 1;
  };
  let count = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const of = node.parentElement, text = node.textContent.trim();
    if (!text || of.closest("script, style, option") || !of.getClientRects().length) continue;
    check(of, getComputedStyle(of), text);
  }
  check(document.getElementById("search"), getComputedStyle(document.getElementById("search"), "::placeholder"), "placeholder");
  return [count].concat(found);
]]

describe("the status page in a browser", function()
  local scene, server, client, browser, children

  setup(function()
    process.succeeds("mkdir -p build/status")
    browser = chromium.open()
  end)
  teardown(function() browser:stop() end)

  local function begin(options)
    scene, children = scenes.new(options), {}
    server, client = scene.server, scene.client
  end

  after_each(function()
    browser:go("about:blank")
    for _, child in ipairs(children) do
      child:kill("KILL")
      child:wait(PATIENCE)
    end
    if scene then scene:stop() end
    scene = nil
  end)

  local function visit(path, width, height)
    browser:resize(width or 1200, height or 900)
    browser:colours("light")
    browser:go("about:blank")
    browser:complaints()
    browser:go(scene:url(path))
  end

  local function text() return browser:run("return document.body.innerText") end

  local function all(script) return browser:run("return " .. script) end
  local function keys() return all("[...document.querySelectorAll('.lock bdi')].map(key => key.textContent)") end
  local function click(selector) browser:run("document.querySelector(arguments[0]).click()", selector) end
  local function focused() return all("document.activeElement.textContent || document.activeElement.id") end

  local function eventually(what, wanted, seconds)
    local happened = process.wait_until(wanted, seconds or PATIENCE)
    assert.truthy(happened, what .. "; shown: " .. text():sub(1, 1500))
  end

  local function shows(pattern) eventually(pattern, function() return text():find(pattern) end) end

  local function shows_keys(...)
    local wanted = table.concat({ ... }, " ")
    eventually(wanted, function() return table.concat(keys(), " ") == wanted end)
  end

  local function polls()
    return all("performance.getEntriesByType('resource').filter(entry => entry.name.includes('?json')).length")
  end

  local function waits_for_polls(count)
    local from = polls()
    eventually("polls", function() return polls() >= from + count end)
  end

  local function state()
    local level = all("document.getElementById('state').dataset.level")
    return { level, all("document.getElementById('words').textContent"), browser:call("GET", browser.session .. "/title") }
  end

  local function comes_to(level, words)
    eventually(words, function()
      local now = state()
      return now[1] == level and now[2]:find(words) and now[3] == now[2] .. " · holdfast"
    end, 90)
  end

  -- Neither an error of a script nor a refused resource.
  local function no_complaints()
    local list = {}
    for _, message in ipairs(browser:complaints()) do
      if not message:find("status of 503", 1, true) then list[#list + 1] = message end
    end
    assert.same({}, list)
  end

  -- Sets a lock as another program would: the bytes of its key as they are.
  local function forge(key, owner, ttl)
    server:cli("HSET", key, owner or JAVA, 1)
    server:cli("PEXPIRE", key, ttl or 600000)
  end

  -- The same, with an owner of a number.
  local function forge_of(number, key, ttl) forge(key, JAVA:sub(1, -2) .. number, ttl) end

  local function wait_for(key)
    children[#children + 1] = command.start(server, { "run", "--name", "patient", key, "--", "true" })
    assert(process.wait_until(function() return client:lock(key):info().waiters > 0 end, PATIENCE))
    return children[#children]
  end

  local function check_contrast(name)
    for _, scheme in ipairs { "light", "dark" } do
      browser:colours(scheme)
      local found = browser:run(CONTRAST)
      assert.is_true(table.remove(found, 1) > 15, "little text was seen")
      assert.same({}, found, name .. ", " .. scheme)
    end
    browser:colours("light")
  end

  it("shows locks and waiters of other clients", function()
    begin()
    visit()
    shows("No locks are held")
    local job = command.start(server, { "run", "--name", "nightly", "from:job", "--", "sleep", "600" })
    children[1] = job
    forge("from:java")
    local lock = assert(client:lock("from:lua"):acquire())
    local pool = assert(client:semaphore("pool", { permits = 3 }):acquire(2))
    local catalogue = client:read_write_lock("catalogue"):read()
    assert(catalogue:acquire())
    local waiter = wait_for("from:lua")
    shows("pid " .. job.pid .. " nightly")
    shows("lua%-owner %(one reader%)")
    shows("2 of 3 permits taken")
    shows("5 locks, 1 waiting")
    local _, listing = command.run(server, { "ls", "--json" })
    local seen = {}
    for line in listing:gmatch("[^\n]+") do
      local one = dkjson.decode(line)
      seen[#seen + 1] = one.key
      local holder = one.host and ("%s pid %d"):format(one.host, one.pid) or one.owner or "2 of 3"
      assert.truthy(text():find(holder, 1, true), holder)
    end
    local shown = keys()
    table.sort(seen)
    table.sort(shown)
    assert.same(seen, shown)
    assert.equal("from:lua", keys()[1]) -- the longest wait comes first
    assert.is_nil(text():find("patient", 1, true))
    click(".key")
    shows("1?%.? ?[^\n]* pid " .. waiter.pid .. " patient, for")
    local info = lock:info()
    shows(("Owner%s%s"):format("%s+", info.owner:gsub("%-", "%%-")))
    shows("Token%s+" .. ("%.0f"):format(info.token))
    browser:screenshot("build/status/wide.png")
    lock:release()
    pool:release()
    catalogue:release()
    shows("protect it")
    no_complaints()
  end)

  it("shows the same overall state in its headline and its title", function()
    begin { more = [[
      location = /lose { content_by_lua_block {
        local lock = CLIENT:lock("gone:1", { class = "orders" })
        assert(lock:acquire())
        local other = require("holdfast").new(URL)
        other:lock("gone:1"):force_release()
        other:close()
        ngx.print(select(3, lock:check()))
      } }
    ]] }
    visit()
    comes_to("well", "^All is well$")
    check_contrast("empty")
    local lock = assert(client:lock("slow"):acquire())
    local waiter = wait_for("slow")
    comes_to("warn", "^Long wait: [34]%d s for “slow”$")
    check_contrast("long wait")
    assert.equal("lost", scene.front:get("/lose").body)
    comes_to("warn", "^1 lock lost in the last ten minutes: “gone:1”$")
    shows("%d%d:%d%d:%d%d “gone:1”: it was broken or deleted; lost by nginx worker %d+, class orders, owner " .. "%x+%-")
    check_contrast("loss")
    scene:deadlock("left", "right")
    comes_to("bad", "^1 deadlock: “%l+”, “%l+”$")
    shows("transfer waits for left, held by [^\n]* transfer")
    shows("transfer waits for right, held by [^\n]* transfer")
    shows("To resolve the deadlock, end one of these processes: [^\n]+ pid %d+ transfer, [^\n]+ pid %d+ transfer%.")
    shows("Or break one of the locks:%s+Copy%s+holdfast break (%l+)%s+The next in line then gets “%1”%. "
      .. "%S+ pid %d+ transfer is not stopped: it runs on as if it held the lock until its next renewal%.")
    check_contrast("deadlock")
    server:kill()
    comes_to("bad", "^Redis is not answering$")
    check_contrast("away")
    waiter:kill("KILL")
    no_complaints()
    lock:release()
  end)

  it("shows during an outage of Redis how old the data is, and recovers afterwards", function()
    begin()
    forge("old")
    visit()
    shows_keys("old")
    local before = all("getComputedStyle(document.querySelector('.holder')).color")
    server:cli("CONFIG", "SET", "save", "")
    server:kill()
    shows("Cannot %l[%l ]* on [^\n]*; [^\n]*%. This data is %d[%d.]* s old%.")
    assert.equal(503, scene.front:get("/locks?json").status)
    local function age() return tonumber(text():match("This data is (%d+)")) end
    local first = age()
    eventually("the age grows", function() return age() > first end)
    assert.same({ "old" }, keys())
    assert.are_not.equal(before, all("getComputedStyle(document.querySelector('.holder')).color"))
    assert.equal("Redis is not answering", state()[2])
    browser:screenshot("build/status/away.png")
    server:restart()
    comes_to("well", "^All is well$")
    shows("No locks are held")
    assert.is_true(all("document.getElementById('trouble').hidden"))
    no_complaints()
  end)

  it("says what it leaves out because the data is too large", function()
    begin()
    forge("old")
    visit()
    shows_keys("old")
    assert.is_true(all("document.getElementById('left-out').hidden"))
    local listener = assert(resp.connect { path = server.path })
    listener:call("SUBSCRIBE", "redisson_countdownlatch__channel__{" .. ("x"):rep(5 * 2 ^ 20) .. "}")
    shows("Left out: latches, because the list of channels is larger than 4 MiB%.")
    check_contrast("left out")
    browser:screenshot("build/status/left_out.png")
    listener:close()
    eventually("nothing is left out", function() return all("document.getElementById('left-out').hidden") end)
    assert.same({ "old" }, keys())
    no_complaints()
  end)

  it("says so when nginx stops responding", function()
    begin()
    forge("old")
    visit()
    shows_keys("old")
    scene.front:stop("TERM")
    comes_to("bad", "^nginx is not answering$")
    shows("This data is [%d.]+ s old")
    scene.front = { stop = function() end }
  end)

  it("sorts by each column, searches keys, and updates only the cells that changed", function()
    begin()
    local now = os.time()
    for i, key in ipairs { "b:order:7", "a:order:9", "c:stock:7" } do
      forge(key, OURS .. i, 300000 * i)
      server:cli("SET", "redisson_lock_token:{" .. key .. "}", ("%.0f"):format((now - 100 * (i % 3)) * 1e6))
    end
    visit()
    shows_keys("a:order:9", "b:order:7", "c:stock:7") -- the longest held first
    local function head(name, times)
      for _ = 1, times or 1 do click("th[data-sort=" .. name .. "] button") end
      return all("document.querySelector('th[data-sort=" .. name .. "]').getAttribute('aria-sort')")
    end
    assert.equal("ascending", head("key"))
    shows_keys("a:order:9", "b:order:7", "c:stock:7")
    assert.equal("descending", head("key"))
    shows_keys("c:stock:7", "b:order:7", "a:order:9")
    assert.equal(1, all("document.querySelectorAll('th[aria-sort]').length"))
    assert.equal("ascending", head("ttl"))
    shows_keys("b:order:7", "a:order:9", "c:stock:7")
    assert.equal("descending", head("held"))
    shows_keys("a:order:9", "b:order:7", "c:stock:7")
    assert.equal("ascending", head("held"))
    shows_keys("c:stock:7", "b:order:7", "a:order:9")
    assert.equal("ascending", head("holder"))
    shows_keys("b:order:7", "a:order:9", "c:stock:7")
    browser:run [[
      window.changes = 0;
      new MutationObserver(list => { window.changes += list.length; })
        .observe(document.getElementById("locks"), { childList: true });
      document.querySelector(".lock").marked = true;
    ]]
    waits_for_polls(2)
    assert.equal(0, all("window.changes"))
    assert.is_true(all("document.querySelector('.lock').marked"))
    server:cli("DEL", "a:order:9")
    shows_keys("b:order:7", "c:stock:7")
    assert.equal(1, all("window.changes"))
    local function search(what)
      browser:run([[
        const field = document.getElementById("search");
        field.value = arguments[0];
        field.dispatchEvent(new Event("input"));
      ]], what)
    end
    search(":order:")
    assert.same({}, keys()) -- nothing that belongs to another search
    shows_keys("b:order:7")
    search("STOCK")
    shows_keys("c:stock:7")
    search("nowhere")
    shows("No lock has “nowhere” in its key")
    search("")
    shows_keys("b:order:7", "c:stock:7")
    no_complaints()
  end)

  local HOSTILE = {
    "<script>document.title='x'</script>", "<img src=x onerror=alert(1)>", "'\"`$(touch pwned)`; rm -rf \\", "-rf",
    "__proto__", "line\nbreak\ttab", "right\226\128\174left", "caf\195\169 \228\184\173\230\150\135", "bytes\255\254\1",
    "%41&open=x#y", " spaces ", ("long/"):rep(190),
  }

  it("shows keys with arbitrary bytes as text, and copies commands that name them correctly", function()
    begin()
    for i, key in ipairs(HOSTILE) do forge_of(i, key) end
    visit()
    eventually("all rows", function() return #keys() == #HOSTILE end)
    assert.equal(0, all("document.querySelectorAll('main script, main img').length"))
    shows("right\\u{202e}left")
    shows("line\\u{a}break\\u{9}tab")
    local path = process.directory() .. "/line"
    for _, key in ipairs(HOSTILE) do
      local hash = key:gsub("[^%w_]", function(byte) return ("%%%02X"):format(byte:byte()) end)
      visit("#" .. hash)
      eventually("the lock of the link is open", function()
        return #keys() >= 1 and all("!!document.querySelector('.details code') && !document.querySelector('.details code').hidden")
      end)
      browser:run("navigator.clipboard.writeText = async text => { window.copied = text; }")
      click(".details button")
      eventually("copied", function() return all("window.copied || null") ~= dkjson.null end)
      files.write(path, "holdfast() { shift; [ \"$1\" = -- ] && shift; printf %s \"$*\"; }\n", all("window.copied"), "\n")
      local pipe = io.popen("bash " .. path)
      assert.equal(key, pipe:read("*a"))
      pipe:close()
    end
    browser:run [[
      navigator.clipboard.writeText = async () => { throw new Error("refused"); };
      window.selected = null;
      document.addEventListener("copy", () => { window.selected = String(document.activeElement.value); });
    ]]
    browser:click(".details button")
    eventually("copied without the clipboard's leave", function() return all("window.selected") ~= dkjson.null end)
    assert.equal(all("document.querySelector('.details code').textContent"), all("window.selected"))
    no_complaints()
  end)

  it("can be operated by keyboard, and keeps the focus when it updates", function()
    begin()
    for i, key in ipairs { "one", "two", "three" } do forge_of(i, key) end
    visit("?search=")
    click("th[data-sort=key] button")
    shows_keys("one", "three", "two")
    browser:run("document.activeElement.blur()")
    browser:press("/")
    assert.equal("search", focused())
    browser:press(DOWN)
    assert.equal("one", focused())
    browser:press(DOWN)
    assert.equal("three", focused())
    browser:press(ENTER)
    assert.equal("true", all("document.activeElement.getAttribute('aria-expanded')"))
    shows("Owner%s+b983c153")
    waits_for_polls(2)
    assert.equal("three", focused())
    browser:press(TAB)
    eventually("the button to copy has the focus", function() return focused():find("^Cop") end)
    browser:press(UP)
    browser:run("[...document.querySelectorAll('.key')][1].focus()")
    server:cli("DEL", "three")
    shows_keys("one", "two")
    eventually("the focus goes to the next row", function() return focused() == "two" end)
    browser:press("p")
    assert.equal("true", all("document.getElementById('pause').getAttribute('aria-pressed')"))
    local before = polls()
    process.sleep(2.5)
    assert.is_true(polls() <= before + 1) -- one may have been under way
    browser:press("p")
    waits_for_polls(1)
    browser:run("document.getElementById('waits').focus()")
    local function value() return all("document.getElementById('waits').getAttribute('aria-valuetext')") end
    eventually("the newest five seconds are known", function() return value():find("^%d%d:%d%d:%d%d: 0 waiters$") end)
    for _ = 1, 30 do browser:press(LEFT) end
    assert.matches("^%d%d:%d%d:%d%d: no data$", value())
    assert.equal(value(), all("document.getElementById('waits-value').textContent"))
    browser:press("/", ESCAPE)
    assert.equal(0, all("[...document.querySelectorAll('button, input, select, [tabindex]')].filter(of => " ..
      "!(of.textContent || of.labels && of.labels.length || of.getAttribute('aria-label'))).length"))
    assert.equal("status", all("document.getElementById('words').getAttribute('role')"))
    no_complaints()
  end)

  it("labels the axes of its plots, and shows the value under the pointer", function()
    begin()
    local lock = assert(client:lock("k"):acquire())
    wait_for("k")
    visit()
    shows("peak: 1 waiter")
    eventually("the value of the last bar", function() -- which may have begun just now
      browser:run [[
        const svg = document.getElementById("waits"), box = svg.getBoundingClientRect();
        svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.right - 2, clientY: box.top + 20 }));
      ]]
      return all("document.getElementById('waits-value').textContent"):find "^%d%d:%d%d:%d%d: 1 waiter$"
    end)
    assert.same({ "1", "0", "10 min ago", "5 min ago", "now", "no data" },
      all("[...document.querySelectorAll('#waits text')].map(of => of.textContent)"))
    assert.is_true(all("document.querySelectorAll('#waits .gap').length") > 60)
    assert.equal(120, all("document.querySelectorAll('#waits rect').length"))
    lock:release()
  end)

  it("labels its axes with whole numbers, and shows no gap at the start of a new interval", function()
    begin()
    visit()
    shows("peak: 0 waiters")
    browser:run [[
      const fetched = window.fetch;
      window.fetch = async (...words) => {
        const reply = await fetched(...words), state = await reply.json();
        state.points.forEach(point => { delete point.waiting; });
        state.points[60].waiting = 100000;
        return { ok: true, json: async () => state };
      };
    ]]
    eventually("the axis", function() return all("document.querySelector('#waits text').textContent") == "100,000" end)
    assert.is_true(all("document.querySelector('#waits text').getBoundingClientRect().left >= "
      .. "document.getElementById('waits').getBoundingClientRect().left"))
    assert.equal("bar", all("[...document.querySelectorAll('#waits rect')].pop().getAttribute('class')"))
    browser:run("document.getElementById('waits').focus()")
    assert.matches("^%d%d:%d%d:%d%d: not yet known$", all("document.getElementById('waits-value').textContent"))
    browser:press(LEFT)
    assert.matches("^%d%d:%d%d:%d%d: no data$", all("document.getElementById('waits-value').textContent"))
  end)

  it("shows the first lock on a phone without scrolling", function()
    begin()
    local lock = assert(client:lock("a-rather-long-key:with:many:parts:2026-11-22:0000000000000001"):acquire())
    wait_for(lock:key())
    for i = 1, 5 do forge_of(i, "other:" .. i) end
    visit("", 390, 844)
    eventually("six rows", function() return #keys() == 6 end)
    assert.equal('" waiting,"', all("getComputedStyle(document.querySelector('.waits'), '::after').content"))
    assert.is_true(all("document.documentElement.scrollWidth <= innerWidth"))
    assert.is_true(all("document.querySelector('.lock').getBoundingClientRect().bottom < innerHeight / 2"))
    for _, lines in ipairs(all("[...document.querySelectorAll('.lock')].map(row => { const range = document.createRange();" ..
        "range.selectNodeContents(row); return [...range.getClientRects()].filter(box => box.width)" ..
        ".map(box => (box.top + box.bottom) / 2).sort((a, b) => a - b)" ..
        ".filter((middle, i, list) => i == 0 || middle - list[i - 1] > 8).length; })")) do
      assert.is_true(lines <= 2, lines .. " lines")
    end
    local held = "[...document.querySelectorAll('.lock')].map(row => row.cells[4].getClientRects().length > 0)"
    -- others' tokens do not tell since when
    assert.same({ true, false, false, false, false, false }, all(held))
    check_contrast("phone")
    browser:screenshot("build/status/phone.png")
    click(".key")
    shows("Token%s+%d+")
    assert.is_true(all("document.documentElement.scrollWidth <= innerWidth"))
    no_complaints()
    lock:release()
  end)

  it("shows the first of 5,000 locks within a second, in pages of 100", function()
    begin()
    scene:forge(5000)
    local best = math.huge
    for _ = 1, 5 do -- the machine may be busy; one of a few has to do
      visit()
      eventually("rows", function() return #keys() > 0 end)
      best = math.min(best, all("performance.getEntriesByType('resource')[0].responseEnd"))
    end
    assert.is_true(best < 1000, ("the first rows came after %.0f ms"):format(best))
    eventually("5,000 locks", function() return text():find("5,000 locks, 0 waiting", 1, true) end)
    click("th[data-sort=key] button")
    eventually("the first by key", function() return keys()[1] == "many:00001" end)
    shows("1–100 of 5,000")
    click("#next")
    shows("101–200 of 5,000")
    assert.equal("many:00101", keys()[1])
    assert.equal(100, #keys())
    click("#back")
    eventually("the first page again", function() return keys()[1] == "many:00001" end)
    waits_for_polls(1)
    local from, began = polls(), process.now()
    process.sleep(6)
    assert.is_true(polls() - from <= (process.now() - began) / 2 + 1)
    assert.is_true(all("document.querySelectorAll('*').length") < 2500)
    no_complaints()
  end)
end)
