-- A quorum of five servers against one of them: the latency of an acquire and release, alternating
-- between the two, with a pause before each for late replies; with one server stopped; and the rate
-- with two dead.
--
-- On loopback a command takes a server less time than the client needs to send it, and all five
-- servers share this machine's processors with the client, so that measures the work of six
-- processes, not the wait for a reply. The bars therefore apply to the figures behind proxies that
-- model a network with 1 ms each way; a real network adds no work to the client's processor, as
-- these proxies do.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local proxy = require "spec.chaos.proxy"
local redis = require "spec.support.redis"
local report = require "bench.report"

local COUNT, SAMPLES, PAUSE, SECONDS, DELAY = 5, 200, 0.015, 2, 1
local BAR, STOPPED_BAR, DEAD_BAR = 1.6, 1.8, 0.5

local function cycle(lock)
  assert(lock:acquire(5))
  assert(lock:release())
end

local function timed(lock)
  process.sleep(PAUSE)
  local start = process.now()
  cycle(lock)
  return process.now() - start
end

-- → median seconds of each
local function pairs_of(one, quorum)
  local single, all = {}, {}
  for i = 1, 20 + SAMPLES do
    local a, b = timed(one), timed(quorum)
    if i > 20 then single[#single + 1], all[#all + 1] = a, b end
  end
  return report.median(single), report.median(all)
end

local function compare(name, one, quorum, bar)
  local single, all = pairs_of(one, quorum)
  report.row(("one server, %s, µs"):format(name), single * 1e6, "%.0f")
  report.row(("quorum of %d, %s, µs"):format(COUNT, name), all * 1e6, "%.0f")
  report.row(("ratio, %s"):format(name), all / single, "%.3f", bar and "<=", bar)
end

local function rate(lock)
  local count, start = 0, process.now()
  while process.now() < start + SECONDS do
    cycle(lock)
    count = count + 1
  end
  return count / SECONDS
end

local function locks_of(urls)
  local one, quorum = holdfast.new(urls[1]), holdfast.new { servers = urls, mode = "quorum" }
  return one:lock("bench:one"), quorum:lock("bench:quorum"), { one, quorum }
end

local function close(clients)
  for _, client in ipairs(clients) do client:close() end
end

local function near(servers)
  local urls = {}
  for i, server in ipairs(servers) do urls[i] = server:tcp_url() end
  local one, quorum, clients = locks_of(urls)
  compare("loopback", one, quorum)
  local up = rate(quorum)
  servers[4]:kill()
  servers[5]:kill()
  local down = rate(quorum)
  servers[4]:restart(false)
  servers[5]:restart(false)
  report.row("cycles/s, all up, loopback", up, "%.0f")
  report.row("cycles/s, 2 of 5 dead, loopback", down, "%.0f")
  report.row("rate with 2 of 5 dead to all up", down / up, "%.3f", ">=", DEAD_BAR)
  close(clients)
end

local function far(servers)
  local proxies, urls = {}, {}
  for i, server in ipairs(servers) do
    proxies[i] = proxy.start(server.path)
    proxies[i]:tell("delay", tostring(DELAY))
    urls[i] = proxies[i].url
  end
  local one, quorum, clients = locks_of(urls)
  compare(("%d ms away"):format(2 * DELAY), one, quorum, BAR)
  servers[3]:kill("STOP")
  compare(("%d ms away, one stopped"):format(2 * DELAY), one, quorum, STOPPED_BAR)
  servers[3]:kill("CONT")
  close(clients)
  for _, each in ipairs(proxies) do each:stop() end
end

local servers = redis.several(COUNT, { tcp = true })
near(servers)
far(servers)
for _, server in ipairs(servers) do server:stop() end
