-- Writes docs/explanation/performance.md and its plots from build/peers/results.lua: lua5.4
-- bench/performance.lua [DIRECTORY of the documents]

local svg = require "bench.svg"

local results = assert(loadfile("build/peers/results.lua"),
  "no results: run bench/peers.lua before")()
local directory = arg[1] or "docs"

local lines = {}

local function add(format, ...)
  lines[#lines + 1] = select("#", ...) > 0 and format:format(...) or format
end

local function names()
  local list = {}
  for i, peer in ipairs(results.peers) do list[i] = peer.name end
  return list
end

local function row(cells) add("| " .. table.concat(cells, " | ") .. " |") end

local function table_of(head, cells_of)
  local marks = {}
  for i in ipairs(head) do marks[i] = i == 1 and "---" or "--:" end
  row(head)
  row(marks)
  for _, name in ipairs(names()) do row(cells_of(name)) end
  add ""
end

local function plot(file, caption, picture)
  local out = assert(io.open(("%s/performance/%s.svg"):format(directory, file), "w"))
  out:write(picture)
  out:close()
  add("![%s](../performance/%s.svg)", caption, file)
  add ""
end

-- → the next higher 1, 2 or 5 times a power of ten
local function round_up(value)
  local power = 10 ^ math.floor(math.log(math.max(value, 1e-9), 10))
  for _, factor in ipairs { 1, 2, 5, 10 } do
    if value <= factor * power then return factor * power end
  end
end

local function series(value_of)
  local list = {}
  for i, name in ipairs(names()) do
    list[i] = { name = name, points = {} }
    for _, owners in ipairs(results.crowds) do
      local one = results.crowd[owners][name]
      if one then list[i].points[#list[i].points + 1] = { owners, value_of(one) } end
    end
  end
  return list
end

local function largest(list)
  local most = 0
  for _, each in ipairs(list) do
    for _, point in ipairs(each.points) do most = math.max(most, point[2]) end
  end
  return most
end

local MORE, LESS = 1, -1

-- Returns whether this figure is better than holdfast's by more than 5 %. better: MORE or LESS
local function beats(results_of, one, figure, better)
  local own = results_of.holdfast and results_of.holdfast[figure]
  return own and (one[figure] - own) * better > own / 20
end

-- → the figure as text, in bold if it beats holdfast's
local function cell(results_of, one, figure, better, format, scale)
  local value = one[figure] * (scale or 1)
  if format == "%.3g" and value >= 1000 then format = "%.0f" end -- not 1.25e+03
  local text = format:format(value)
  return beats(results_of, one, figure, better) and "**" .. text .. "**" or text
end

-- → the library other than holdfast with the best figure, and that figure | nil
local function best_other(results_of, figure, better)
  local best
  for _, name in ipairs(names()) do
    local one = name ~= "holdfast" and results_of[name]
    local last = best and results_of[best]
    if one and (not last or (one[figure] - last[figure]) * better > 0) then best = name end
  end
  return best, best and results_of[best][figure]
end

-- → the ratio of the larger to the smaller, as "1.1 times"
local function times(larger, smaller)
  if smaller == 0 then return "many times" end
  local factor = larger / smaller
  return (factor < 10 and "%.2g times" or "%.0f times"):format(factor)
end

-- Adds a line to the summary if holdfast is ahead of all others. text: its figure, by how much it
-- is ahead, the next best library and its figure; `shown` formats each figure.
local function add_ahead(text, shown, results_of, figure, better)
  local own, name, other = results_of.holdfast, best_other(results_of, figure, better)
  if not own or not name or (own[figure] - other) * better <= 0 then return end
  local mine = own[figure]
  add("- " .. text, shown:format(mine), times(math.max(mine, other), math.min(mine, other)), name,
    shown:format(other))
end

-- Adds a line to the summary if other libraries are ahead, about the one that is furthest ahead.
-- places: { { results, its name } ... }
local function add_behind(what, shown, places, figure, better)
  local most, line = 0, nil
  for _, place in ipairs(places) do
    local results_of, where = place[1], place[2]
    local name, other = best_other(results_of, figure, better)
    if name and beats(results_of, results_of[name], figure, better) then
      local own = results_of.holdfast[figure]
      local lead = math.max(own, other) / math.max(math.min(own, other), 1e-9)
      if lead > most then
        most = lead
        line = ("- %s%s: %s %s, holdfast %s."):format(what, where, name, shown:format(other),
          shown:format(own))
      end
    end
  end
  if line then add(line) end
end

-- Adds a row for each library, with a cell by text_of for each crowd. text_of is called with a
-- function (figure, better, format) → text.
local function crowd_table(title, text_of)
  local head = { title }
  for i, owners in ipairs(results.crowds) do head[i + 1] = ("%d owners"):format(owners) end
  table_of(head, function(name)
    local cells = { name }
    for i, owners in ipairs(results.crowds) do
      local one = results.crowd[owners][name]
      local function text(figure, better, format)
        return cell(results.crowd[owners], one, figure, better, format)
      end
      cells[i + 1] = one and text_of(text) or "failed"
    end
    return cells
  end)
end

-- ---- the page ----

local machine = results.machine
local many = results.crowds[#results.crowds]

os.execute(("mkdir -p %s/explanation %s/performance"):format(directory, directory))

add "# Performance"
add ""
add "<!-- Written by `make bench-report` from one run and bench/hand_off.md; do not edit it by hand. -->"
add ""
add "## In short"
add ""
local crowd, several = results.crowd[many], results.crowds[math.max(1, #results.crowds - 1)]
add_ahead("One owner alone acquires and releases (a *cycle*) **%s** times a second: %s as often as with the next-best library, %s (%s).",
  "%.0f", results.free, "rate", MORE)
add_ahead(("%d owners of one lock together get **%%s** *turns* a second (acquire, sleep 1 ms, release): %%s as many as with the next-best library, %%s (%%s)."):format(many),
  "%.0f", crowd, "rate", MORE)
add_ahead(("With %d owners, even the one with the fewest turns gets **%%s** of an equal share, %%s as much as with %%s (%%s)."):format(many),
  "%.2f", crowd, "least", MORE)
add_ahead(("Among %d owners, 99 %%%% of the acquires take at most **%%s ms**, and %%s that with the next-best library, %%s (%%s ms)."):format(several),
  "%.3g", results.crowd[several], "p99", LESS)
add "- Only holdfast both issues a fencing token for each acquire and serves waiters in the order in which they asked."
add ""
add "In the tables, **bold** is better than holdfast by more than 5 %. Other libraries lead in the following columns; each"
add "line shows the largest lead:"
add ""
local renewed = {}
for name, one in pairs(results.held) do
  renewed[name] = one.renewed and { commands = one.commands, percent = one.cpu * 100 } or nil
end
local alone, held = { { results.free, "" } }, { { results.held, "" } }
local renewing = { { renewed, "" } }
local crowds = {}
for i, owners in ipairs(results.crowds) do
  crowds[i] = { results.crowd[owners], (" (%d owners)"):format(owners) }
end
add_behind("cycles/s of one owner", "%.0f", alone, "rate", MORE)
add_behind("server's CPU time for a cycle of one owner, µs", "%.1f", alone, "cpu", LESS)
add_behind("commands for a cycle of one owner", "%.1f", alone, "commands", LESS)
add_behind("turns/s", "%.0f", crowds, "rate", MORE)
add_behind("least share", "%.2f", crowds, "least", MORE)
add_behind("greatest share", "%.2f", crowds, "most", LESS)
add_behind("median of the acquires, ms", "%.3g", crowds, "p50", LESS)
add_behind("99 % of the acquires, ms", "%.3g", crowds, "p99", LESS)
add_behind("server's CPU time for a turn, µs", "%.0f", crowds, "cpu", LESS)
add_behind("commands for a turn", "%.1f", crowds, "commands", LESS)
add_behind("time to acquire one of many locks, µs", "%.0f", held, "taken", LESS)
add_behind("server's memory for one of many locks, bytes", "%.0f", held, "bytes", LESS)
add_behind("commands/s to renew the held locks", "%.0f", renewing, "commands", LESS)
add_behind("server's CPU, %, to renew the held locks", "%.1f", renewing, "percent", LESS)
add ""
add "A median far below the 99th percentile means that a few owners get the lock again and again."
add ""

add "## One owner alone"
add ""
local free_head = { "", "cycles/s", "range of the rounds", "server's CPU, µs per cycle",
  "commands per cycle" }
table_of(free_head, function(name)
  local one = results.free[name]
  if not one then return { name, "failed", "", "", "" } end
  local function text(figure, better, format)
    return cell(results.free, one, figure, better, format)
  end
  return { name, text("rate", MORE, "%.0f"), ("%.0f–%.0f"):format(one.least_rate, one.most_rate),
    text("cpu", LESS, "%.1f"), text("commands", LESS, "%.1f") }
end)
add "The server counts the commands, including those inside scripts."
add ""

add "## Owners that compete for one lock"
add ""
local rates = series(function(one) return one.rate end)
plot("throughput", "turns a second by number of owners", svg.lines {
  title = "Turns a second, 1 ms section", x_label = "owners", x_log = true,
  x_marks = results.crowds, x_from = results.crowds[1], x_to = many,
  y_from = 0, y_to = round_up(largest(rates)), series = rates,
})
plot("fairness", "the smallest share of any owner", svg.lines {
  title = "Smallest share of any owner; 1 is fair", x_label = "owners", x_log = true,
  x_marks = results.crowds, x_from = results.crowds[1], x_to = many, y_from = 0, y_to = 1,
  series = series(function(one) return one.least end),
})
add "In brackets: the fewest and the most turns that any one owner got, relative to an equal share. 1 is fair, 0 is starved."
add ""
crowd_table("turns/s (shares)", function(text)
  return ("%s (%s–%s)"):format(text("rate", MORE, "%.0f"), text("least", MORE, "%.2f"),
    text("most", LESS, "%.2f"))
end)

add "### How long an acquire takes"
add ""
local middle = results.crowds[math.max(1, #results.crowds - 1)]
local distributions, slowest = {}, 0
for i, name in ipairs(names()) do
  local one = results.crowd[middle][name]
  distributions[i] = { name = name, points = one and one.distribution or {} }
  slowest = math.max(slowest, one and one.p99 or 0)
end
slowest = math.max(1, round_up(slowest))
for _, one in ipairs(distributions) do
  if one.points[1] then one.points[#one.points + 1] = { slowest, 1 } end
end
plot("latency", "share of the acquires that took at most a given time", svg.lines {
  title = ("Share of acquires that took at most …, %d owners"):format(middle),
  x_label = "milliseconds", x_log = true, x_from = 0.1, x_to = slowest, y_from = 0, y_to = 1,
  series = distributions,
})
crowd_table("median, 99th percentile, ms", function(text)
  return text("p50", LESS, "%.3g") .. ", " .. text("p99", LESS, "%.3g")
end)

add "### What a turn costs the server"
add ""
local costs = series(function(one) return one.cpu end)
plot("server", "the server's CPU time for each turn", svg.lines {
  title = "Server's CPU time for each turn, µs", x_label = "owners", x_log = true, y_log = true,
  x_marks = results.crowds, x_from = results.crowds[1], x_to = many, y_from = 10,
  y_to = math.max(100, 10 ^ math.ceil(math.log(largest(costs), 10))), series = costs,
})
crowd_table("CPU µs, commands", function(text)
  return text("cpu", LESS, "%.0f") .. ", " .. text("commands", LESS, "%.1f")
end)

add("## %d held locks", results.held_count)
add ""
add("One process acquires them one by one and holds them for %g s, with a lease of %g s.", results.held_lease,
  results.held_lease)
add ""
local held_head = { "", "to acquire one, µs", "server's memory for one, bytes", "renewed",
  "commands/s",
  "server's CPU, %", "lost" }
table_of(held_head, function(name)
  local one = results.held[name]
  if not one then return { name, "failed", "", "", "", "", "" } end
  local function text(figure, better, format, scale)
    return cell(results.held, one, figure, better, format, scale)
  end
  return { name, text("taken", LESS, "%.0f"), text("bytes", LESS, "%.0f"), one.renewed and "yes" or "no",
    text("commands", LESS, "%.0f"), text("cpu", LESS, "%.1f", 100), ("%.0f"):format(one.lost) }
end)

add "## Method"
add ""
add("- %s, %s processors, of which **one** runs the server and the measured library's processes.",
  machine.processor, machine.cores)
add("  %s, Redis %s over TCP on loopback, %s.", machine.kernel, machine.redis, results.date)
add("- Figures are medians of %d rounds of %g s. In a round, every library is measured once, in a different order each time,",
  results.rounds, results.seconds)
add "  with a new, empty server. JIT-compiled code is warmed up first."
add "- An owner acquires, sleeps for 1 ms unless it is alone, releases, and acquires again at once."
add "- holdfast has one process per owner, because a wait blocks the process. The others have up to 4 processes with"
add "  threads, goroutines or promises. Each owner has its own connection; only Redisson's threads share one client per"
add "  process, as is usual."
add "- redsync, redislock, redis-py, node-redlock and redis-semaphore poll; here they retry after 1 ms. Their defaults, 50"
add "  to 250 ms, cost the server less, but make waiters slower. Redisson wakes waiters with a message, and rueidislock uses"
add "  client-side caching."
local go = "Go " .. (machine.go or "?")
local platforms = {
  holdfast = machine.lua, Redisson = "Java " .. (machine.java or "?"),
  ["redis-py"] = "Python " .. (machine.python or "?"),
  redsync = go, rueidislock = go, redislock = go,
}
add "- Versions:"
for i, peer in ipairs(results.peers) do
  -- A page is measured before the version of its release is set.
  local version = peer.name == "holdfast" and "of " .. results.date or peer.version
  add("  %s %s (%s)%s", peer.name, version, platforms[peer.name] or "Node.js " .. (machine.node or "?"),
    i < #results.peers and "," or ".")
end
add ""

-- This section is measured by bench/run, and is not generated.
local by_hand = assert(io.open("bench/hand_off.md"))
add((by_hand:read("*a"):gsub("\n$", "")))
by_hand:close()

local page = assert(io.open(directory .. "/explanation/performance.md", "w"))
page:write(table.concat(lines, "\n"), "\n")
page:close()
