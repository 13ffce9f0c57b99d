-- Compares the status page with the truth: processes that hold and wait for locks record what they
-- do, and each answer of the page must agree with it, whatever happens to nginx and to Redis.

local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

if not nginx.is_there() then return end

local dkjson = require "dkjson" -- busted's own

local PATIENCE = 60
local LONG = 10 -- seconds; the page must know a wait of this length
local OFF = 2 -- seconds by which a time may be wrong

local WAITER = [[
  local holdfast, sys = require "holdfast", require "spec.support.sys"
  local lock = holdfast.new(arg[1]):lock(arg[2], { wait = 3600 })
  print(("%.3f"):format(sys.now()))
  io.stdout:flush()
  assert(lock:acquire())
  sys.sleep(3600)
]]

describe("the status page shows the true state", function()
  local server, front, holder, waiters, seen, forged

  -- Starts a process that waits for a lock that is never released: its wait begins between `asked`
  -- and `queued`. `since`: as if it had begun so many seconds earlier.
  local function wait_for(key, since)
    local child = process.lua { code = WAITER, args = { server:url(), key } }
    local waiter = { key = key, process = child }
    assert(process.wait_until(function()
      return (server:try_cli("ZCARD", "holdfast_queue:{" .. key .. "}") or 0) > 0
    end, PATIENCE), child:output())
    waiter.asked, waiter.queued = tonumber(child:output():match("^[%d.]+")), process.now()
    if since then
      local queue = "holdfast_queue:{" .. key .. "}"
      local member = server:cli("ZRANGE", queue, 0, 0)[1]
      server:cli("ZINCRBY", queue, ("%.0f"):format(-since * 1e6), member)
      waiter.asked, waiter.queued = waiter.asked - since, waiter.queued - since
    end
    waiters[#waiters + 1] = waiter
  end

  local function start(workers, locks)
    local args = { server:url(), locks, 0.5 }
    holder = process.lua { file = "spec/support/truth_worker.lua", args = args }
    for i = 1, 2 do
      server:cli("HSET", "busy:" .. i, "b983c153-7421-869a-addb-44fb92259a1b:" .. i, 1)
      server:cli("PEXPIRE", "busy:" .. i, 3600000)
    end
    assert(process.wait_until(function()
      return holder:output():find("\n")
    end, 4 * PATIENCE), holder:output())
    return function()
      front = nginx.start {
        workers = workers,
        http = ([[
          lua_shared_dict holdfast 1m;
          init_by_lua_block { CLIENT = require("holdfast").new { url = "%s" } }
        ]]):format(server:url()),
        server = [[
          location = /status { content_by_lua_block {
            ngx.header.worker = ngx.worker.pid()
            require("holdfast").status { client = CLIENT }
          } }
        ]],
      }
    end
  end

  before_each(function()
    server, waiters, seen = redis.start { persist = true, conf = { "appendfsync no" } }, {}, {}
    forged = 2 -- the locks that are waited for
  end)
  after_each(function()
    for _, waiter in ipairs(waiters) do
      waiter.process:kill("KILL")
      waiter.process:wait(PATIENCE)
    end
    holder:stop()
    if front then front:stop("TERM") end
    front = nil
    server:cli("FLUSHALL") -- removes the places of the killed waiters
    server:stop()
  end)

  -- → how many locks of the holder and forged locks are held, and how many changes there were since
  -- `from`, counting one that may not be recorded yet
  local function locks_since(from)
    local locks, changes = forged, 1
    for at, count in holder:output():gmatch("([%d.]+) (%d+)\n") do
      locks, changes = tonumber(count) + forged, changes + (tonumber(at) >= from and 1 or 0)
    end
    return locks, changes
  end

  -- → the least and the greatest longest wait that an answer may show, and how many wait for long
  local function waits(from, to)
    local least, most, long = 0, 0, 0
    for _, waiter in ipairs(waiters) do
      least, most = math.max(least, from - waiter.queued), math.max(most, to - waiter.asked)
      if from - waiter.queued > LONG then long = long + 1 end
    end
    return least, most, long
  end

  local off = 0 -- how many answers in a row had a wrong time

  -- Checks the longest wait of the answer. A busy machine may take seconds for a reading, so one of
  -- three answers in a row has to be right.
  local function check_time(answer, least, most, text)
    local shown = answer.longest_wait or 0
    off = (shown < least - OFF or shown > most + OFF) and off + 1 or 0
    assert.is_true(off < 3, text)
  end

  -- Compares one answer with what the processes have recorded.
  local function compare(answer, from, to)
    local least, most, long = waits(from, to)
    local text = ("%s, %s waiting, longest %s, true %.1f to %.1f; %s locks, complete %s"):format(answer.state,
      answer.waiters, answer.longest_wait, least, most, answer.count, tostring(answer.complete))
    if answer.state == "away" then return end
    if answer.state == "well" then
      assert.is_true(answer.waiters >= long, text)
      assert.is_true(least < 35, text)
    end
    if answer.state == "well" and long > 0 or answer.state == "long_wait" then
      check_time(answer, least, most, text)
    end
    if answer.complete then
      local locks, changes = locks_since(from - answer.count_age)
      assert.is_true(math.abs(answer.count - locks) <= changes, ("%s, true %d, %d changes"):format(text, locks, changes))
    elseif answer.keys then
      assert.is_true(answer.looked <= answer.keys, text)
    end
  end

  -- Asks once. → the answer | nil if a stopped worker does not answer
  local function ask()
    local from = process.now()
    local response = front:begin("/status?json"):finish(PATIENCE)
    if not response then return nil end
    local answer = dkjson.decode(response.body)
    seen[response.headers.worker] = true
    compare(answer, from, process.now())
    return answer
  end

  -- Asks every half second until suits(answer).
  local function watch_until(what, suits)
    local answer
    assert.truthy(process.wait_until(function()
      process.sleep(0.5)
      answer = ask()
      return answer and suits(answer)
    end, PATIENCE), what .. " is not shown: " .. (answer and dkjson.encode(answer) or "no answer"))
  end

  local function watch(seconds)
    local till = process.now() + seconds
    while process.now() < till do
      process.sleep(0.5)
      ask()
    end
  end

  local function knows_all(answer)
    local is_known = answer.state == "well" or answer.state == "long_wait"
    return answer.complete and answer.waiters == #waiters and is_known
  end

  -- What happens, one after another.
  local function restart_redis() server:restart(true) end

  local function reload()
    local before = front:workers()
    front:reload()
    assert.truthy(process.wait_until(function()
      for _, pid in ipairs(front:workers()) do
        for _, old in ipairs(before) do
          if pid == old then return false end
        end
      end
      return true
    end, PATIENCE))
  end

  -- One of them is the worker that looks.
  local function kill_workers()
    for _, pid in ipairs(front:workers()) do
      process.signal(pid, "KILL")
      watch_until("what the next worker sees", knows_all)
    end
  end

  local function stall_workers()
    for _, pid in ipairs(front:workers()) do
      process.signal(pid, "STOP")
      local requests = {} -- the worker may have accepted some of these already
      for i = 1, 8 do requests[i] = front:begin("/status?json") end
      process.sleep(7)
      process.signal(pid, "CONT")
      for _, request in ipairs(requests) do
        local from = process.now() - 7
        compare(dkjson.decode(request:finish(PATIENCE).body), from, process.now())
      end
      watch(2)
    end
  end

  it("of 20 locks right after it is opened during a long wait", function()
    local open = start(1, 20)
    wait_for("busy:1", LONG + 1)
    open()
    local first = ask()
    assert.is_true(first.state == "looking" or first.waiters == 1, first.state)
    watch_until("the waiter", knows_all)
    wait_for("busy:2")
    watch_until("both waiters", knows_all)
    watch(2)
  end)

  it("of 300 locks while Redis restarts, nginx reloads and workers are killed", function()
    local open = start(3, 300)
    open()
    wait_for("busy:1")
    watch_until("the waiter", knows_all)
    reload()
    watch_until("the waiter after a reload", knows_all)
    restart_redis()
    watch_until("the waiter after a restart", knows_all)
    kill_workers()
    local count = 0
    for _ in pairs(seen) do count = count + 1 end
    assert.is_true(count > 1, "one worker answers everything")
  end)

  for _, workers in ipairs { 1, 3 } do
    for _, locks in ipairs { 20, 1000, 20000 } do
      it(("of %d locks with %d workers for two minutes, whatever happens #check"):format(locks, workers), function()
        local open = start(workers, locks)
        wait_for("busy:1", LONG + 1)
        open()
        watch_until("the first waiter", knows_all)
        watch(20)
        wait_for("busy:2")
        watch_until("amber", function(answer) return answer.state == "long_wait" end)
        local stall = workers > 1 and stall_workers or reload -- no other worker would answer
        for _, happens in ipairs { restart_redis, reload, kill_workers, stall } do
          happens()
          watch(10)
          watch_until("all", knows_all)
        end
      end)
    end
  end
end)
