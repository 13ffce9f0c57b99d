-- client:lead: one term after another, each over before the next can begin.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local fails = require "spec.support.fails"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local proxy = require "spec.chaos.proxy"
local redis = require "spec.support.redis"
local world = require("spec.support.world").new()

local PATIENCE = 20
local LEASE = 2 -- seconds

before_each(world.open)
after_each(world.close)

local eventually = process.eventually

describe("client:lead", function()
  it("runs the function in term after term until it resigns", function()
    local client, terms, tokens = world.client(), {}, {}
    local first, second, third = client:lead("chief", function(term, ...)
      terms[#terms + 1], tokens[#tokens + 1] = term, term:token()
      assert.same({ true, nil, "chief", "holdfast.term: chief (leader)" },
        { term:is_leader(), term:lost(), term:key(), tostring(term) })
      assert.same({ 1, nil, "x" }, { ... })
      if #terms < 3 then return end
      assert.is_true(term:resign())
      assert.same({ false, 0 }, { term:is_leader(), world.cli("EXISTS", "chief") })
      return "done", nil, #terms
    end, 1, nil, "x")
    assert.same({ "done", nil, 3 }, { first, second, third })
    assert.is_true(tokens[1] < tokens[2] and tokens[2] < tokens[3])
    for i, term in ipairs(terms) do
      assert.same({ false, nil, tokens[i], ("%.0f"):format(tokens[i]), "holdfast.term: chief (over)" },
        { term:is_leader(), term:lost(), term:token(), term:token_text(), tostring(term) })
    end
    assert.is_true(terms[1]:resign()) -- it is over already
  end)

  it("on resigning releases the holds that the function has re-entered", function()
    local client = world.client()
    assert.is_true(client:lead("chief", { once = true }, function(term)
      for _ = 1, 2 do assert(client:lock("chief"):acquire()) end
      assert.is_true(term:resign())
      assert.equal(0, world.cli("EXISTS", "chief"))
      return true
    end))
  end)

  it("with once returns the function's results, like with_lock", function()
    local client = world.client { prefix = "app:" }
    assert.is_true(client:lead("chief", { once = true }, function(term)
      assert.equal("app:chief", term:key())
    end))
    assert.same({ 1, 2 }, { client:lead("chief", { once = true }, function() return 1, 2 end) })
    local other
    local message, results = fails("lost", client:lead("chief", { once = true }, function(term)
      other = term
      world.cli("DEL", "app:chief")
      eventually(function()
        client:lock("chief"):check()
        return not term:is_leader()
      end)
      assert.equal("deleted", term:lost())
      return "unprotected"
    end))
    assert.equal("unprotected", results[1])
    assert.matches('"app:chief"', message)
    assert.same({ "deleted", false }, { other:lost(), other:is_leader() })
    assert.equal("holdfast.term: app:chief (lost: deleted)", tostring(other))
    assert.matches('the lock "app:chief" was lost (deleted)',
      fails("lost", client:fence("prices"):claim(other)), 1, true)
    client:lead("chief", { once = true }, function(term) other = term end)
    assert.matches('the lock "app:chief" is not held',
      fails("not_held", client:fence("prices"):claim(other)), 1, true)
  end)

  it("reports a lost term to on_lost, and leads again", function()
    local client, lost, count = world.client(), {}, 0
    local lock = client:lock("chief")
    client:lead("chief", { on_lost = function(term, reason)
      lost[#lost + 1] = { term:token(), reason }
    end }, function(term)
      count = count + 1
      if count == 2 then return term:resign() end
      world.cli("DEL", "chief")
      eventually(function() return lock:check() == nil and term:lost() end)
      assert.same({ { term:token(), "deleted" } }, lost)
    end)
    assert.same({ 2, 1 }, { count, #lost })
  end)

  it("with abort_on_loss aborts the function when the term is lost", function()
    local client, count, last = world.client(), 0, nil
    client:lead("chief", { abort_on_loss = true, lease = 1 }, function(term)
      count = count + 1
      if count == 2 then return term:resign() end
      last = term
      world.cli("DEL", "chief")
      world.hold_as("b983c153-7421-469a-addb-44fb92259a1b:1", "chief", 300)
      while true do count = count + 0 end
    end)
    assert.equal(2, count)
    assert.truthy(last:lost())
  end)

  it("raises the function's error after it has released the lock", function()
    local client = world.client()
    local fine, err = pcall(client.lead, client, "chief", function() error({ "mine" }) end)
    assert.same({ false, { "mine" } }, { fine, err })
    assert.equal(0, world.cli("EXISTS", "chief"))
  end)

  it("runs no term after an earlier term object has resigned", function()
    local client, first, terms, resigned = world.client(), nil, 0, nil
    local results = { client:lead("chief", {
      on_event = function(event)
        if event.event == "acquired" and first then resigned = first:resign() end
      end,
    }, function(term)
      terms, first = terms + 1, first or term
      return terms
    end) }
    assert.same({ 1 }, results)
    assert.same({ true, 1 }, { resigned, terms })
    assert.is_truthy(world.is_free("chief"))
  end)

  it("lets other coroutines query and resign the term", function()
    local ended = world.client():lead("chief", function(term)
      local seen
      coroutine.wrap(function()
        assert.is_true(term:is_leader() and term:resign())
        seen = term:is_leader()
      end)()
      assert.is_false(seen)
      assert.is_true(world.is_free("chief"))
      return "resigned"
    end)
    assert.equal("resigned", ended)
  end)

  it("returns closed when the client is closed", function()
    local client = world.client()
    assert.matches('^cannot acquire "chief"', fails("closed", client:lead("chief", function() client:close() end)))
    fails("closed", client:lead("chief", error))
  end)

  it("releases the lock at the end of a term even if the client keeps locks", function()
    local client = world.client { keep = 60 }
    assert.is_true(client:lead("chief", { once = true }, function() return true end))
    assert.equal(0, world.cli("EXISTS", "chief"))
  end)

  local acquire, pause = driver.lock.acquire, driver.lock.pause
  after_each(function() driver.lock.acquire, driver.lock.pause = acquire, pause end)

  -- During the test, an acquire of the driver returns what instead(number of the try, ...) does, if
  -- that is something, and otherwise reaches the server.
  local function with_acquire(instead)
    local tries = 0
    function driver.lock.acquire(...)
      tries = tries + 1
      local message, code = instead(tries, ...)
      if code then return nil, message, code end
      return acquire(...)
    end
  end

  -- Calls client:lead. Its first acquire fails with this code, later ones reach the server.
  local function lead_after(code)
    with_acquire(function(try) if try == 1 then return "it failed", code end end)
    return world.client():lead("chief", { once = true }, function() return "led" end)
  end

  it("retries only after failures that may pass", function()
    for _, code in ipairs { "unreachable", "no_quorum", "server", "lost", "busy" } do
      assert.equal("led", (lead_after(code)))
    end
    for _, code in ipairs { "denied", "conflict", "closed", "interrupted", "deadlock" } do
      assert.same({ nil, "it failed", code }, { lead_after(code) })
    end
  end)

  it("reports losses of other locks between two attempts to lead", function()
    local client, lost, known = world.client(), 0, {}
    local held = assert(client:lock("other", { watchdog = true, lease = 0.3, on_lost = function()
      lost = lost + 1
    end }):acquire())
    with_acquire(function(try)
      known[try] = lost
      if try > 1 then return end
      world.cli("DEL", "other")
      eventually(function() return core.client.stats(client).losses == 1 end)
      return "it failed", "unreachable"
    end)
    assert.is_true(client:lead("chief", { once = true }, function() end))
    assert.same({ { 0, 1 }, "deleted" }, { known, held:lost() })
  end)

  it("runs no term with a lock that was lost before it began", function()
    local client, tries, terms = world.client(), 0, 0
    function driver.lock.acquire(lock, wait)
      tries = tries + 1
      local acquired, message, code = acquire(lock, wait)
      if tries == 1 then
        world.cli("DEL", "chief")
        assert.equal("lost", select(3, core.lock.check(lock)))
      end
      return acquired, message, code
    end
    assert.is_true(client:lead("chief", { once = true }, function(term)
      terms = terms + 1
      return term:is_leader() and term:token() ~= nil and term:lost() == nil
    end))
    assert.same({ 2, 1 }, { tries, terms })
  end)

  it("retries after `denied` if it has led before", function()
    local terms, tries = 0, 0
    with_acquire(function(try)
      tries = try
      if try == 2 then return "NOPERM", "denied" end
    end)
    assert(world.client():lead("chief", function(term)
      terms = terms + 1
      if terms == 2 then term:resign() end
    end))
    assert.same({ 2, 3 }, { terms, tries })
  end)

  it("doubles its pause after each failure up to a second, and starts over in each term", function()
    local client, pauses, failures = world.client(), {}, 6
    function driver.lock.pause(lock, seconds)
      pauses[#pauses + 1] = seconds
      return pause(lock, 0.001)
    end
    with_acquire(function()
      if failures == 0 then return end
      failures = failures - 1
      return "no answer", "unreachable"
    end)
    local terms = 0
    local led, message = client:lead("chief", function(term)
      terms = terms + 1
      if terms == 2 then return term:resign() end
      failures = 6
    end)
    assert(led, message)
    assert.same({ 0.1, 0.2, 0.4, 0.8, 1, 1, 0.1, 0.2, 0.4, 0.8, 1, 1 }, pauses)
  end)
end)

-- Writes "in" and "out" for each term to a file, with the leader's name, the token and the time.
local LEADER = [[
  local sys = require "spec.support.sys"
  local name, file, lease, urls = arg[1], arg[2], tonumber(arg[3]), {}
  for url in arg[4]:gmatch("%S+") do urls[#urls + 1] = url end
  local given = { url = urls[1], command_timeout = 1.5, name = name }
  if urls[2] then given.url, given.servers, given.mode = nil, urls, "quorum" end
  local client = require("holdfast").new(given)
  local log = assert(io.open(file, "a"))
  local function note(what, term)
    log:write(("%s %s %d %.6f\n"):format(what, name, term:token(), sys.now()))
    log:flush()
  end
  client:lead("chief", { lease = lease }, function(term)
    note("in", term)
    while term:is_leader() do sys.sleep(0.002) end
    note("out", term)
  end)
]]

describe("leaders of several processes", function()
  local path, children

  before_each(function()
    local directory = process.directory()
    path, children = directory .. "/terms", {}
  end)

  after_each(function() -- a killed waiter leaves its place
    for _, child in pairs(children) do child:stop() end
    world.cli("FLUSHALL")
  end)

  local function lead(name, urls)
    children[name] = world.program { code = LEADER,
      args = { name, path, LEASE, urls or world.server:url() } }
  end

  -- → a list of { what, name, token, at }
  local function terms()
    local list, file = {}, io.open(path)
    for line in file and file:lines() or function() end do
      local what, name, token, at = line:match("^(%S+) (%S+) (%S+) (%S+)$")
      list[#list + 1] = { what = what, name = name, token = tonumber(token), at = tonumber(at) }
    end
    if file then file:close() end
    return list
  end

  local function last()
    local list = terms()
    return list[#list] or {}
  end

  -- Asserts that each term is over before the next begins, and has a higher token. Terms of
  -- `killed` have no end.
  local function check(killed)
    local inside, token = nil, 0
    for _, each in ipairs(terms()) do
      if each.what == "in" then
        assert.is_true(inside == nil or inside == killed, "two leaders")
        assert.is_true(each.token > token)
        inside, token = each.name, each.token
      else
        assert.equal(inside, each.name)
        inside = nil
      end
    end
  end

  for _, how in ipairs { "stopped", "cut off" } do
    it("run only after a leader that is " .. how .. " knows that its term is over", function()
      local between = proxy.start(world.server.path)
      lead("a", between.url)
      eventually(function() return last().name == "a" end)
      lead("b")
      eventually(function() return world.cli("ZCARD", "holdfast_queue:{chief}") == 1 end)
      if how == "stopped" then children.a:kill("STOP") else between:tell("stop", "up") end
      eventually(function() return last().name == "b" end)
      if how == "stopped" then
        children.a:kill("CONT") -- it sees at once that its lease has ended
        eventually(function() return last().name == "a" end)
        assert.equal("out", last().what)
      else
        check()
        assert.equal("out", terms()[2].what)
        between:tell("go")
      end
      children.a:stop()
      between:stop()
    end)
  end

  it("lead one at a time in a quorum, and not at all without a majority", function()
    local servers, urls = redis.several(3)
    lead("a", table.concat(urls, " "))
    eventually(function() return last().name == "a" end)
    lead("b", table.concat(urls, " "))
    servers[1]:kill("KILL")
    process.sleep(LEASE + 1)
    assert.equal(1, #terms())
    servers[2]:kill("KILL")
    eventually(function() return last().what == "out" end)
    servers[2]:restart(true)
    eventually(function() return last().what == "in" end)
    check()
    for _, child in pairs(children) do child:stop() end
    for _, server in ipairs(servers) do server:stop() end
  end)
end)

for _, loop in ipairs(loops) do
  describe("leaders under " .. loop.name, function()
    local function client(options)
      options = options or {}
      options.driver = loop.driver
      return world.client(options)
    end

    local function run(fn)
      loop.spawn(fn)
      loop.run()
    end

    local function wait_until(look, seconds)
      local till = process.now() + (seconds or PATIENCE)
      while not look() and process.now() < till do loop.sleep(0.005) end
      return look()
    end

    it("take turns, and stop when the client is closed", function()
      local one, inside, terms, codes, closed = client(), 0, { 0, 0, 0 }, {}, false
      run(function()
        for i = 1, 3 do
          loop.spawn(function()
            codes[i] = select(3, one:lead("chief", function(term)
              inside = inside + 1
              assert.equal(1, inside)
              terms[i] = terms[i] + 1
              loop.sleep(0.01)
              assert.equal(not closed, term:is_leader())
              inside = inside - 1
            end))
          end)
        end
        assert.is_true(wait_until(function()
          return math.min(terms[1], terms[2], terms[3]) >= 2
        end))
        closed = true
        one:close()
        assert.is_true(wait_until(function() return #codes == 3 end))
      end)
      assert.same({ "closed", "closed", "closed" }, codes)
    end)

    it("learn of a loss without making a call, and lead again", function()
      local one, reported, count = client(), nil, 0
      run(function()
        one:lead("chief", { lease = LEASE, on_lost = function(_, reason)
          reported = reason
        end }, function(term)
          count = count + 1
          if count == 2 then return term:resign() end
          world.cli("DEL", "chief")
          assert.equal("deleted", wait_until(function() return reported end))
          assert.is_false(term:is_leader())
        end)
      end)
      assert.same({ "deleted", 2 }, { reported, count })
    end)

    it("can resign between two terms", function()
      local one, other, first, result = client(), client(), nil, nil
      local function waiters() return world.cli("ZCARD", "holdfast_queue:{chief}") end
      run(function()
        loop.spawn(function()
          result = { one:lead("chief", { lease = LEASE }, function(term)
            first = first or term
            wait_until(function() return not term:is_leader() end)
            return term:lost()
          end) }
        end)
        assert.is_true(wait_until(function() return first ~= nil end))
        world.cli("DEL", "chief")
        local held = assert(other:lock("chief"):acquire(0))
        assert.is_true(wait_until(function() return waiters() == 1 end))
        assert.is_true(first:resign())
        assert.is_true(wait_until(function() return result ~= nil end))
        assert.is_true(wait_until(function() return waiters() == 0 end))
        assert(held:release())
        one:close()
        other:close()
      end)
      assert.same({ "lost", { "taken", n = 1 } }, { result[3], result[4] })
    end)

    it("can resign while the server for the next term is unreachable", function()
      local server, first, result = world.another(), nil, nil
      local one = client { url = server:url(), command_timeout = 0.2 }
      run(function()
        loop.spawn(function()
          result = { one:lead("chief", { lease = LEASE }, function(term)
            first = term
            wait_until(function() return not term:is_leader() end)
            return term:lost()
          end) }
        end)
        assert.is_true(wait_until(function() return first ~= nil end))
        server:kill("KILL")
        assert.is_true(wait_until(function() return not first:is_leader() end))
        loop.sleep(0.3)
        assert.is_true(first:resign())
        assert.is_true(wait_until(function() return result ~= nil end))
        one:close()
      end)
      assert.same({ "lost", { "unreachable", n = 1 } }, { result[3], result[4] })
    end)
  end)
end

local nginx = require "spec.support.nginx"
if not nginx.is_there() then return end

describe("leaders under ngx_lua", function()
  local front

  local HTTP = [[
    lua_shared_dict terms 1m;
    init_by_lua_block { CLIENT = require("holdfast").new { url = "%s", lease = 3 } }
    init_worker_by_lua_block {
      local terms = ngx.shared.terms
      local function run(term)
        local number = terms:incr("inside", 1, 0)
        terms:incr("terms", 1, 0)
        if number > 1 then ngx.log(ngx.ERR, "two leaders") end
        terms:set("leader", ngx.worker.pid())
        while term:is_leader() do ngx.sleep(0.01) end
        terms:incr("inside", -1)
      end
      local function lead()
        local _, message, code = CLIENT:lead("chief", run)
        ngx.log(ngx.NOTICE, "leads no more: ", message, " ", code)
      end
      assert(ngx.timer.at(0, lead))
    }
  ]]

  before_each(function()
    front = nginx.start { workers = 2, http = HTTP:format(world.server:url()), server = [[
      location = / { content_by_lua_block {
        local terms = ngx.shared.terms
        ngx.print(terms:get("leader") or 0, " ", terms:get("inside") or 0, " ", terms:get("terms") or 0)
      } }
    ]] }
  end)

  after_each(function() -- workers that end at once leave their places
    front:stop("TERM")
    world.cli("FLUSHALL")
  end)

  -- → the leader's process, how many lead now, how many terms there were
  local function state()
    local leader, inside, terms = front:get("/").body:match("^(%d+) (%d+) (%d+)$")
    return tonumber(leader), tonumber(inside), tonumber(terms)
  end

  local function is_one_of(pid, list) return pid == list[1] or pid == list[2] end

  it("lead in only one of all workers, and hand over at a reload", function()
    eventually(function() return is_one_of(state(), front:workers()) end)
    eventually(function() return world.cli("ZCARD", "holdfast_queue:{chief}") == 1 end)
    world.wait_renewed "chief"
    local _, inside, terms = state()
    assert.same({ 1, 1 }, { inside, terms })
    local before = front:workers()
    front:reload()
    eventually(function()
      local workers = front:workers()
      return #workers == 2 and not is_one_of(workers[1], before)
        and not is_one_of(workers[2], before)
    end, PATIENCE, "the old workers stay")
    eventually(function()
      local leader, now = state()
      return is_one_of(leader, front:workers()) and now == 1
    end)
    assert.same({}, front:errors())
  end)
end)
