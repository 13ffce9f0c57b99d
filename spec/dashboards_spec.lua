-- The dashboard and the alerts of packaging/: their metrics exist, and promtool reads them.

local files = require "spec.support.files"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local ALERTS, DASHBOARD = "packaging/prometheus/alerts.yml", "packaging/grafana/holdfast.json"
local NGINX_ALONE = { holdfast_dropped_series_total = true } -- docs/how-to/openresty.md

local read = files.read

-- Returns the names and labels of the samples of a client that has used every feature.
local function known_names()
  local server = redis.start()
  local client = holdfast.new { url = server:url(), class = "orders" }
  client:with_lock("k", function() client:lock("k"):acquire(0) end)
  server:cli("DEL", "l")
  local lost = client:lock("l")
  assert(lost:acquire())
  server:cli("DEL", "l")
  lost:release()
  local names = {}
  for name, labels in client:metrics():gmatch("\n(holdfast_[a-z_]+)(%b{})") do names[name] = labels end
  for name in client:metrics():gmatch("\n(holdfast_[a-z_]+) ") do names[name] = names[name] or "{}" end
  client:close()
  server:stop()
  return names
end

-- Iterates over the metrics in a text: the name of each, and its labels.
local function each_use(text) return text:gmatch("(holdfast_[a-z_]+)(%b{})") end

describe("the monitoring files in packaging:", function()
  local names = known_names()

  for _, path in ipairs { ALERTS, DASHBOARD } do
    it(path .. " uses only metrics that client:metrics() provides", function()
      local count = 0
      for name in read(path):gsub("class=~", ""):gmatch("%f[%w_](holdfast_[a-z_]+)%f[^%w_]") do
        count = count + 1
        assert.is_truthy(names[name] or NGINX_ALONE[name], name)
      end
      assert.is_true(count > 8)
    end)

    it(path .. " uses only labels that its metrics have", function()
      for name, labels in each_use(read(path):gsub('\\"', '"')) do
        for label in labels:gmatch("([a-z_]+)=") do
          assert.is_truthy((names[name] or ""):find(label .. "=", 1, true), name .. " has no " .. label)
        end
      end
    end)
  end

  it("the dashboard shows the longest wait and the losses first", function()
    local text = read(DASHBOARD)
    local wait, lost = text:find('"title": "Longest wait"', 1, true), text:find('"title": "Locks lost', 1, true)
    assert.is_true(wait < lost and lost < text:find('"title": "Acquires', 1, true))
  end)

  -- Does nothing without promtool, which `tools/setup.sh check` installs.
  local function promtool_accepts(directory, ...)
    if not process.succeeds "command -v promtool >/dev/null" then return pending("there is no promtool") end
    for _, words in ipairs { ... } do
      local child = process.start { "sh", "-c", ("cd %s && promtool %s"):format(directory, words),
        env = { LD_PRELOAD = false } }
      assert.same({ "exit", 0 }, { child:wait(60) }, child:output())
    end
  end

  it("the alert rules are accepted by promtool, and each fires on its condition #check", function()
    promtool_accepts("packaging/prometheus", "check rules alerts.yml", "test rules alerts_test.yml")
  end)

  it("the dashboard contains only expressions that promtool accepts #check", function()
    local directory = process.directory()
    local file, count = assert(io.open(directory .. "/rules.yml", "w")), 0
    file:write("groups:\n  - name: dashboard\n    rules:\n")
    for expression in read(DASHBOARD):gmatch '"expr": ("[^\n]*")' do
      count = count + 1
      local filled = expression:gsub("%$__rate_interval", "5m"):gsub("%$__range", "3h"):gsub("%$class", ".*")
      file:write(("      - { record: 'panel:%d', expr: %s }\n"):format(count, filled))
    end
    file:close()
    assert.is_true(count > 10)
    promtool_accepts(directory, "check rules rules.yml")
  end)

  it("the alert rules are all tested, and explained in docs/how-to/dashboards.md", function()
    local tests, page = read "packaging/prometheus/alerts_test.yml", read "docs/how-to/dashboards.md"
    for name in read(ALERTS):gmatch("alert: (%w+)") do
      assert.is_truthy(tests:find('alertname="' .. name .. '"', 1, true), name)
      assert.is_truthy(tests:find("alertname: " .. name, 1, true), name)
      assert.is_truthy(page:find("`" .. name .. "`", 1, true), name)
    end
  end)
end)
