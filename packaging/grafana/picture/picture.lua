-- Writes docs/pictures/dashboard.png: the upper part of packaging/grafana/holdfast.json with what
-- Prometheus has scraped from a real run of ten minutes. Argument: the directory of the page that
-- draws it, which tools/pictures has made of page.jsx.

local chromium = require "spec.browser.chromium"
local dkjson = require "dkjson"
local http = require "socket.http"
local nginx = require "spec.support.nginx"
local pages = require "spec.support.pages"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"
local url = require "socket.url"

local SECONDS, LEAD = 600, 40 -- that the picture shows, and before that
local SCRAPE, STEP, RATE = 2, 5, 20 -- seconds
local ROWS = 20 -- of the dashboard's grid that are shown
local WIDTH, HEIGHT, SCALE = 640, 764, 1.5

-- Locks keys of one class again and again, and writes its metrics into a file each second.
local WORKER = [[
  local holdfast, support = require "holdfast", require "spec.support.process"
  local url, path, class, keys, hold, pause, wait = (table.unpack or unpack)(arg)
  local client = holdfast.new { url = url, class = class, lease = 3, wait = tonumber(wait) }
  local written = 0
  local function sleep(seconds)
    if support.now() > written + 1 then
      local file = assert(io.open(path .. ".new", "w"))
      file:write(client:metrics())
      file:close()
      os.rename(path .. ".new", path)
      written = support.now()
    end
    support.sleep(tonumber(seconds) * (0.5 + math.random()))
  end
  math.randomseed(#path + path:byte(-1))
  while true do
    local lock = client:lock(class .. ":" .. math.random(tonumber(keys)))
    if lock:acquire() then
      sleep(hold)
      lock:release()
    end
    sleep(pause)
  end
]]

-- How many processes; their class; keys; seconds that they hold, pause, and wait.
local WORK = {
  { 4, "checkout", 12, 0.08, 0.25, 5 },
  { 4, "stock", 1, 0.02, 0.05, 5 },
  { 3, "invoices", 2, 1.2, 1.5, 4 },
}

local CONFIG = [[
global: { scrape_interval: %ds }
scrape_configs:
  - job_name: work
    static_configs:
%s]]

local TARGET = [[
      - { targets: ["127.0.0.1:%d"], labels: { __metrics_path__: "/%s", instance: "%s" } }
]]

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function free_port()
  local fd, port = assert(sys.listen_tcp())
  sys.close(fd)
  return port
end

-- ---- the run ----

-- → the configuration of Prometheus, which finds the metrics of each process at a path of its own
local function start_work(server, front)
  local targets = {}
  for _, work in ipairs(WORK) do
    for i = 1, work[1] do
      local name = work[2] .. i
      local path = front.directory .. "/" .. name
      process.lua { code = WORKER, args = { server:url(), path, unpack(work, 2) } }
      targets[#targets + 1] = TARGET:format(front.port, name, name)
    end
  end
  return CONFIG:format(SCRAPE, table.concat(targets))
end

local function start_prometheus(config)
  local directory, port = process.directory(), free_port()
  write(directory .. "/prometheus.yml", config)
  process.start { "prometheus", "--config.file=" .. directory .. "/prometheus.yml", "--storage.tsdb.path=" .. directory,
    ("--web.listen-address=127.0.0.1:%d"):format(port), env = { LD_PRELOAD = false } }
  return ("http://127.0.0.1:%d/api/v1/query_range?"):format(port)
end

-- What a day brings: a lock is deleted, and the server does not answer for a while.
local function run(server)
  process.sleep(LEAD + SECONDS * 0.4)
  assert(process.wait_until(function() return server:cli("DEL", "invoices:1") == 1 end, 60))
  process.sleep(SECONDS * 0.3)
  server:kill("STOP")
  process.sleep(4)
  server:kill("CONT")
  process.sleep(SECONDS * 0.3)
end

-- ---- the picture ----

local function query(api, expression, from, to)
  local filled = expression:gsub("%$__rate_interval", RATE .. "s"):gsub("%$__range", SECONDS .. "s")
    :gsub("%$class", ".*")
  local words = ("query=%s&start=%d&end=%d&step=%d"):format(url.escape(filled), from, to, STEP)
  local body = assert(http.request(api .. words))
  return assert(dkjson.decode(body).data, body).result
end

-- The panels that are shown, each of their targets with `result`, as Prometheus' API returned it.
local function panels_of(api, from, to)
  local shown = {}
  for _, panel in ipairs(dkjson.decode(pages.read "packaging/grafana/holdfast.json").panels) do
    if panel.gridPos.y < ROWS then
      for _, target in ipairs(panel.targets) do
        target.result = query(api, target.expr, from, to)
      end
      shown[#shown + 1] = panel
    end
  end
  return shown
end

local PAGE = [[
<!doctype html>
<meta charset="utf-8">
<link rel="stylesheet" href="page.css">
<div id="root"></div>
<script>DASHBOARD = %s</script>
<script src="page.js"></script>
]]

local function draw(directory, dashboard)
  write(directory .. "/page.html", PAGE:format(dkjson.encode(dashboard)))
  local browser = chromium.open()
  browser:resize(WIDTH, HEIGHT, SCALE)
  browser:go("file://" .. directory .. "/page.html")
  process.sleep(3) -- until everything is drawn
  browser:screenshot "docs/pictures/dashboard.png"
  browser:stop()
end

local server = redis.start()
local front = nginx.start { tcp = true, server = [[
  location / {
    root .;
    default_type "application/openmetrics-text; version=1.0.0; charset=utf-8";
  }
]] }
local api = start_prometheus(start_work(server, front))
run(server)
local now = os.time()
draw(arg[1], { from = now - SECONDS, till = now, panels = panels_of(api, now - SECONDS, now) })
process.stop_all()
