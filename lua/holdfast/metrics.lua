-- Formats the counters of clients as OpenMetrics, or in the older text format of Prometheus.
--
-- A sample is { family, suffix, labels, value }, shown as holdfast_<family><suffix>{<labels>}.

local core = require "holdfast.core"
local locale = require "holdfast.locale"

local metrics = {}

-- In OpenMetrics, a counter's family has no suffix, unlike its samples, and a last line is
-- required.
metrics.openmetrics = {
  content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
  counter_suffix = "", last_line = "# EOF\n",
}
metrics.prometheus = {
  content_type = "text/plain; version=0.0.4; charset=utf-8",
  counter_suffix = "_total", last_line = "",
}

local FAMILIES = {
  { "acquires", "counter", "Acquires, by lock class and outcome." },
  { "reentries", "counter", "Acquires of a lock that the owner already held." },
  { "releases", "counter", "Holds released by their owner." },
  { "losses", "counter", "Holds that were lost, by reason." },
  { "hand_offs", "counter", "Locks handed over directly by the previous holder." },
  { "renewals", "counter", "Renewals that the server has confirmed." },
  { "renewed_late", "counter", "Renewals that succeeded after earlier renewals of the same hold had failed." },
  { "risks", "counter", "Number of times a hold's renewals started failing." },
  { "round_trips", "counter", "Command replies received from servers." },
  { "connections", "counter", "Connections made." },
  { "reconnects", "counter", "Connections reopened, not counting those for grants." },
  { "holds", "gauge", "Current holds, including those being acquired or cleaned up." },
  { "wait_seconds", "histogram", "How long successful acquires took." },
  { "hold_seconds", "histogram", "How long locks were held." },
  { "round_trip_seconds", "histogram", "How long servers took to answer; renewals are counted under the client's class." },
  { "dropped_series", "counter", "Series that found no room in lua_shared_dict holdfast: they are missing, or too low." },
}

local CLASS_COUNTERS = { "reentries", "releases", "hand_offs", "renewals", "renewed_late", "risks" }
local CLIENT_STATS = { "round_trips", "connections", "reconnects", "holds" }

local function escape(value)
  return (value:gsub("\\", "\\\\"):gsub('"', '\\"'):gsub("\n", "\\n"))
end

local function labels_of(...)
  local parts = {}
  for i = 1, select("#", ...), 2 do
    local name, value = select(i, ...)
    parts[#parts + 1] = ('%s="%s"'):format(name, escape(value))
  end
  return table.concat(parts, ",")
end

local function sorted_names(map)
  local names = {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names, locale.is_before)
  return names
end

local function number_text(value)
  if value % 1 == 0 and value < 2 ^ 53 then return ("%.0f"):format(value) end
  return locale.decimal("%.9g", value)
end

local function bound_text(value)
  return locale.decimal(value % 1 == 0 and "%.1f" or "%.9g", value)
end

local function add_histogram(list, family, class, histogram)
  for i, bound in ipairs(core.client.buckets()) do
    list[#list + 1] = { family, "_bucket", labels_of("class", class, "le", bound_text(bound)),
      histogram[i] }
  end
  list[#list + 1] = { family, "_bucket", labels_of("class", class, "le", "+Inf"), histogram.count }
  list[#list + 1] = { family, "_count", labels_of("class", class), histogram.count }
  list[#list + 1] = { family, "_sum", labels_of("class", class), histogram.sum }
end

local function add_class(list, class)
  for _, outcome in ipairs(sorted_names(class.outcomes)) do
    list[#list + 1] = { "acquires", "_total", labels_of("class", class.class, "outcome", outcome),
      class.outcomes[outcome] }
  end
  for _, reason in ipairs(sorted_names(class.lost)) do
    list[#list + 1] = { "losses", "_total", labels_of("class", class.class, "reason", reason),
      class.lost[reason] }
  end
  for _, name in ipairs(CLASS_COUNTERS) do
    list[#list + 1] = { name, "_total", labels_of("class", class.class), class[name] }
  end
  add_histogram(list, "wait_seconds", class.class, class.waited)
  add_histogram(list, "hold_seconds", class.class, class.held)
  add_histogram(list, "round_trip_seconds", class.class, class.round_trips)
end

-- Returns the samples of one client.
function metrics.samples(client)
  local list, stats = {}, core.client.stats(client)
  for _, class in ipairs(core.client.classes(client)) do add_class(list, class) end
  for _, name in ipairs(CLIENT_STATS) do
    list[#list + 1] = { name, name == "holds" and "" or "_total", "", stats[name] }
  end
  return list
end

-- Returns the metrics page: the families in the order of FAMILIES, and each family's samples in the
-- order of `samples`. `format`: default metrics.openmetrics.
function metrics.render(samples, format)
  format = format or metrics.openmetrics
  local by_family, out = {}, {}
  for _, sample in ipairs(samples) do
    local family = by_family[sample[1]] or {}
    by_family[sample[1]], family[#family + 1] = family, sample
  end
  for _, family in ipairs(FAMILIES) do
    local name = "holdfast_" .. family[1]
    if by_family[family[1]] then
      local family_name = name .. (family[2] == "counter" and format.counter_suffix or "")
      out[#out + 1] = ("# TYPE %s %s\n# HELP %s %s\n"):format(family_name, family[2], family_name, family[3])
    end
    for _, sample in ipairs(by_family[family[1]] or {}) do
      local labels = sample[3] ~= "" and "{" .. sample[3] .. "}" or ""
      out[#out + 1] = ("%s%s%s %s\n"):format(name, sample[2], labels, number_text(sample[4]))
    end
  end
  out[#out + 1] = format.last_line
  return table.concat(out)
end

-- Returns the statistics of a client's classes, for client:stats: name → { outcomes, lost, waited,
-- … }.
function metrics.classes(client)
  local classes = {}
  for _, class in ipairs(core.client.classes(client)) do
    classes[class.class] = class
    class.class = nil
  end
  return classes
end

return metrics
