-- OpenResty, one worker, everything on one core:
--
-- * 64 connections of wrk, each request acquires and releases a key of its own, against the same
--   two EVALSHA sent by hand through pooled cosockets;
-- * the p99 of a plain location of the worker while 500 requests contend for one key, against the
--   idle worker; beside it that of 500 requests that only sleep as long, without any lock;
-- * 64 requests that use one key again and again, with and without `keep`;
-- * turns of two and of eight light threads on one key, with nothing to do under the lock;
-- * the first row beside 30 MB of the application's Lua objects, where strings are collected later.
--
-- Rounds alternate. Free cycles in nginx are in bench/free.lua.

local cycle = require "bench.cycle"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local ROUNDS, SECONDS, RATIO_BAR = tonumber(os.getenv("HOLDFAST_ROUNDS") or 7), 2, 1
local P99_BAR, KEEP_BAR, FEW_BAR, LARGE_BAR = 3, 10, 0.8, 0.8
local CYCLES = 10 -- cycles in a request that makes several, so that the request itself costs little
local PLACE = ("k"):rep(32) -- as long as a request id

local HTTP = [[
  init_by_lua_block {
    OBJECTS = {}
    for i = 1, %d do OBJECTS[i] = { i } end
    HOLDFAST = require "holdfast"
    CLIENT = HOLDFAST.new("%s")
    KEEPING = HOLDFAST.new { url = "%s", keep = 0.1 }
    REDIS = "unix:%s"
    COMMANDS = dofile("%s")
    function CYCLE(client, key, count)
      local lock = client:lock(key)
      for _ = 1, count do
        assert(lock:acquire(60))
        assert(lock:release())
      end
      ngx.say("ok")
    end
  }
]]

local SERVER = [[
  location /seen { content_by_lua_block {
    local lock = CLIENT:lock(ngx.var.arg_key)
    assert(lock:acquire())
    assert(lock:release())
  } }
  location /holdfast { content_by_lua_block {
    local lock = CLIENT:lock(ngx.var.request_id)
    assert(lock:acquire())
    assert(lock:release())
    ngx.say("ok")
  } }
  location /by-hand { content_by_lua_block {
    local id, concat = ngx.var.request_id, table.concat
    local socket = ngx.socket.tcp()
    local function call(parts)
      assert(socket:send(concat(parts, id)))
      local line = assert(socket:receive())
      assert(line:byte() ~= 45, line)
      if line:byte() == 42 then
        for _ = 1, tonumber(line:sub(2)) do assert(socket:receive()) end
      end
    end
    assert(socket:connect(REDIS))
    call(COMMANDS[1])
    call(COMMANDS[2])
    socket:setkeepalive(10000, 64)
    ngx.say("ok")
  } }
  location /plain { content_by_lua_block { ngx.say("ok") } }
  location /contended { content_by_lua_block {
    ngx.say(assert(CLIENT:with_lock("hot", { wait = 60 }, function() ngx.sleep(0.001) return "ok" end)))
  } }
  location /hot { content_by_lua_block { CYCLE(CLIENT, "cycles", %d) } }
  location /kept { content_by_lua_block { CYCLE(KEEPING, "kept", %d) } }
  location /turns { content_by_lua_block {
    local count, turns, ends = tonumber(ngx.var.arg_owners), 0, ngx.now() + %d
    local function owner()
      local lock = CLIENT:lock("turns")
      while ngx.now() < ends do
        assert(lock:acquire(60))
        turns = turns + 1
        assert(lock:release())
        ngx.update_time()
      end
    end
    local threads = {}
    for i = 1, count do threads[i] = ngx.thread.spawn(owner) end
    for i = 1, count do assert(ngx.thread.wait(threads[i])) end
    ngx.print(turns)
  } }
  location /asleep { content_by_lua_block {
    ngx.sleep(0.5)
    ngx.say("ok")
  } }
]]

-- → the parts between the occurrences of the key in a command's bytes, as Lua
local function parts_of(args)
  local text = { ("*%d\r\n"):format(#args) }
  for _, arg in ipairs(args) do text[#text + 1] = ("$%d\r\n%s\r\n"):format(#arg, arg) end
  local parts = {}
  for part in (table.concat(text) .. PLACE):gmatch("(.-)" .. PLACE) do
    parts[#parts + 1] = ("%q"):format(part)
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function start(server, path, objects)
  return nginx.start {
    tcp = true,
    http = HTTP:format(objects or 0, server:url(), server:url(), server.path, path),
    server = SERVER:format(CYCLES, CYCLES, SECONDS),
  }
end

local function learn_commands(server, path)
  local front = start(server, "/dev/null")
  front:get("/seen?key=" .. PLACE)
  local sent = cycle.commands(server, function() front:get("/seen?key=" .. PLACE) end)
  front:stop()
  local file = assert(io.open(path, "wb"))
  file:write("return {", parts_of(sent[1]), ", ", parts_of(sent[2]), "}")
  file:close()
end

local function wrk(front, location, connections, seconds)
  return process.start {
    "wrk", "-t1", "-c" .. connections, "-d" .. seconds, "--latency", "--timeout", "60",
    ("http://127.0.0.1:%d%s"):format(front.port, location),
  }
end

local UNITS = { us = 1e-6, ms = 1e-3, s = 1 }

local function result(run)
  assert(run:wait(120) == "exit", run:output())
  local text = run:output()
  assert(not text:find("Non-2xx", 1, true), text)
  local value, unit = text:match("99%%%s+([%d.]+)(%a+)")
  return tonumber(text:match("Requests/sec:%s+([%d.]+)")), tonumber(value) * UNITS[unit]
end

local function compare_rates(front)
  local ours, theirs, ratios = {}, {}, {}
  for i = 1, ROUNDS do
    ours[i] = result(wrk(front, "/holdfast", 64, SECONDS))
    theirs[i] = result(wrk(front, "/by-hand", 64, SECONDS))
    ratios[i] = ours[i] / theirs[i]
  end
  report.row("acquire + release, 64 connections, /s", report.median(ours), "%.0f")
  report.row("the same by pooled cosockets, /s", report.median(theirs), "%.0f")
  report.row("ratio", report.median(ratios), "%.2f", ">=", RATIO_BAR)
end

-- → the p99 of the plain location while another wrk keeps 500 requests on `beside`
local function p99_beside(front, beside)
  local load = beside and wrk(front, beside, 500, SECONDS + 1)
  if load then process.sleep(0.5) end
  local _, p99 = result(wrk(front, "/plain", 4, SECONDS))
  if load then result(load) end
  return p99
end

local function compare_latencies(front)
  local idle, contended, asleep = {}, {}, {}
  for i = 1, ROUNDS do
    idle[i], contended[i], asleep[i] = p99_beside(front), p99_beside(front, "/contended"),
      p99_beside(front, "/asleep")
  end
  report.row("p99 of a plain location, idle, ms", report.median(idle) * 1e3, "%.2f")
  report.row("beside 500 that only sleep, ms", report.median(asleep) * 1e3, "%.2f")
  report.row("beside 500 on one key, ms", report.median(contended) * 1e3, "%.2f")
  report.row("ratio to idle", report.median(contended) / report.median(idle), "%.2f", "<=", P99_BAR)
end

local function compare_hot(front)
  local hot, kept, ratios = {}, {}, {}
  for i = 1, ROUNDS do
    hot[i] = CYCLES * result(wrk(front, "/hot", 64, SECONDS))
    kept[i] = CYCLES * result(wrk(front, "/kept", 64, SECONDS))
    ratios[i] = kept[i] / hot[i]
  end
  report.row("64 requests on one key, cycles/s", report.median(hot), "%.0f")
  report.row("64 requests on one key, keep = 0.1, cycles/s", report.median(kept), "%.0f")
  report.row("kept to not kept", report.median(ratios), "%.1f", ">=", KEEP_BAR)
end

local function turns_of(front, owners)
  return tonumber(front:get("/turns?owners=" .. owners).body) / SECONDS
end

local function compare_few(front)
  local two, eight, ratios = {}, {}, {}
  for i = 1, ROUNDS do
    two[i], eight[i] = turns_of(front, 2), turns_of(front, 8)
    ratios[i] = two[i] / eight[i]
  end
  report.row("2 owners in a worker, turns/s", report.median(two), "%.0f")
  report.row("8 owners in a worker, turns/s", report.median(eight), "%.0f")
  report.row("2 owners to 8", report.median(ratios), "%.2f", ">=", FEW_BAR)
end

local function compare_heaps(small, server, path)
  local large, ratios = start(server, path, 500000), {}
  for i = 1, ROUNDS do
    ratios[i] = result(wrk(large, "/holdfast", 64, SECONDS))
      / result(wrk(small, "/holdfast", 64, SECONDS))
  end
  large:stop()
  report.row("rate beside 30 MB of Lua objects to without", report.median(ratios), "%.2f", ">=",
    LARGE_BAR)
end

assert(sys.pin(0, 0))
local server = redis.start()
local path = server.directory .. "/commands.lua"
learn_commands(server, path)
local front = start(server, path)
compare_rates(front)
compare_latencies(front)
compare_hot(front)
compare_few(front)
compare_heaps(front, server, path)
front:stop()
server:stop()
