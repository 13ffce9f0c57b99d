-- docs/performance.md and its plots, from build/peers/results.lua: lua5.4 bench/performance.lua
-- [DIRECTORY of the page]

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
  add("![%s](performance/%s.svg)", caption, file)
  add ""
end

-- the next 1, 2 or 5 times a power of ten
local function round_up(value)
  local power = 10 ^ math.floor(math.log(math.max(value, 1e-9), 10))
  for _, factor in ipairs { 1, 2, 5, 10 } do
    if value <= factor * power then return factor * power end
  end
end

local function series(value_of)
  local list = {}
  for i, name in ipairs(names()) do
    list[i] = { name = name, values = {}, points = {} }
    for j, owners in ipairs(results.crowds) do
      local one = results.crowd[owners][name]
      list[i].values[j] = one and value_of(one) or 0
      if one then list[i].points[#list[i].points + 1] = { owners, value_of(one) } end
    end
  end
  return list
end

local function largest(list)
  local most = 0
  for _, each in ipairs(list) do
    for _, value in ipairs(each.values) do most = math.max(most, value) end
  end
  return most
end

-- → "a, b and c"
local function in_words(list)
  if #list < 2 then return list[1] end
  return table.concat(list, ", ", 1, #list - 1) .. " and " .. list[#list]
end

-- The names of those whose result passes, in words; nil: none does.
local function those(results_of, passes)
  local list = {}
  for _, name in ipairs(names()) do
    local one = results_of[name]
    if one and passes(one) then list[#list + 1] = name end
  end
  return in_words(list)
end

local MORE, LESS = 1, -1

-- A line that names those that do better than holdfast by more than a twentieth, if any does.
-- better: MORE or LESS
local function add_better(what, results_of, figure, better)
  local own = results_of.holdfast and results_of.holdfast[figure]
  local who = own and those(results_of, function(one)
    return (one[figure] - own) * better > own / 20
  end)
  if who then add("- %s: %s.", what, who) end
end

-- The library other than holdfast with the best figure, and that figure; nil: there is none.
local function best_other(results_of, figure, better)
  local best
  for _, name in ipairs(names()) do
    local one = name ~= "holdfast" and results_of[name]
    local last = best and results_of[best]
    if one and (not last or (one[figure] - last[figure]) * better > 0) then best = name end
  end
  return best, best and results_of[best][figure]
end

-- A line of the summary, if holdfast is ahead of all others. text: its figure, the next best
-- library and the figure of that, each figure by `shown`.
local function add_ahead(text, shown, results_of, figure, better)
  local own, name, other = results_of.holdfast, best_other(results_of, figure, better)
  if own and name and (own[figure] - other) * better > 0 then
    add("- " .. text, shown:format(own[figure]), name, shown:format(other))
  end
end

-- A row for each library, with a cell by text_of for each crowd.
local function crowd_table(title, text_of)
  local head = { title }
  for i, owners in ipairs(results.crowds) do head[i + 1] = ("%d owners"):format(owners) end
  table_of(head, function(name)
    local cells = { name }
    for i, owners in ipairs(results.crowds) do
      local one = results.crowd[owners][name]
      cells[i + 1] = one and text_of(one) or "failed"
    end
    return cells
  end)
end

-- ---- the page ----

local machine = results.machine
local groups = {}
for i, owners in ipairs(results.crowds) do groups[i] = ("%d"):format(owners) end
local many = results.crowds[#results.crowds]

os.execute(("mkdir -p %s/performance"):format(directory))

add "# Performance"
add ""
add "Written by `make bench-report` from one run; do not edit it by hand."
add ""
add "## In short"
add ""
local crowd, several = results.crowd[many], results.crowds[math.max(1, #results.crowds - 1)]
add_ahead("One owner alone acquires and releases **%s** times a second. The next best library, %s, does so %s times.",
  "%.0f", results.free, "rate", MORE)
add_ahead(("%d owners of one lock get **%%s** turns a second together; the next best, %%s, %%s."):format(many),
  "%.0f", crowd, "rate", MORE)
add_ahead(("The owner with the fewest turns of these %d gets **%%s** of an equal share; with the next best, %%s, %%s."):format(many),
  "%.2f", crowd, "least", MORE)
add_ahead(("Among %d owners, 99 %%%% of the acquires take at most **%%s ms**; with the next best, %%s, %%s ms."):format(several),
  "%.3g", results.crowd[several], "p99", LESS)
add "- Each acquire of holdfast draws a fencing token, and waiters get the lock in the order in which they asked. No other"
add "  library here does both."
add "- Some columns go to others: [where others are better](#where-others-are-better)."
add ""

add "## Method"
add ""
add("- %s, %s processors, of which **one** runs everything: the server, and every process of the library that",
  machine.processor, machine.cores)
add "  is measured. On one core, no wake-up of another core hides a cost."
add("- %s, Redis %s over TCP on loopback, %s.", machine.kernel, machine.redis, results.date)
add("- %d rounds of %g s for each figure. In a round every library is measured once, in another order each time;",
  results.rounds, results.seconds)
add "  a figure is the median of its rounds. Each measurement has a new, empty server."
add "- Redisson and the libraries of Node.js lock another key until the measurement begins, so that their code is"
add "  compiled."
add "- An owner acquires, stays for the section, releases, and asks again at once. A section of 1 ms sleeps."
add "- holdfast has one process per owner, because a wait blocks it. The others have up to 4 processes with threads,"
add "  goroutines or promises, and each owner has its own connection. Redisson's threads share the client of their"
add "  process, as is usual for it."
add "- Libraries that poll (redsync, redislock, redis-py, node-redlock, redis-semaphore) retry after 1 ms. Their default"
add "  is 50 to 250 ms, which costs the server less and makes waiters slower."
add "- The libraries promise different things. holdfast draws a fencing token and hands the lock over in the order of"
add "  the requests. Redisson wakes waiters by a message and rueidislock by client-side caching, both in no order. The"
add "  others use SET NX PX and a script that compares and deletes."
add ""
add "| | version | runs on |"
add "|---|---|---|"
local go = "Go " .. (machine.go or "?")
local platforms = {
  holdfast = machine.lua, Redisson = "Java " .. (machine.java or "?"),
  ["redis-py"] = "Python " .. (machine.python or "?"),
  redsync = go, rueidislock = go, redislock = go,
}
for _, peer in ipairs(results.peers) do
  row { peer.name, peer.version, platforms[peer.name] or "Node.js " .. (machine.node or "?") }
end
add ""

add "## One owner alone"
add ""
local free_head = { "", "cycles/s", "in the rounds", "server's processor, µs a cycle",
  "commands a cycle" }
table_of(free_head, function(name)
  local one = results.free[name]
  if not one then return { name, "failed", "", "", "" } end
  return { name, ("%.0f"):format(one.rate), ("%.0f to %.0f"):format(one.least_rate, one.most_rate),
    ("%.1f"):format(one.cpu), ("%.1f"):format(one.commands) }
end)
add "Commands are counted by the server and include those inside scripts."
add ""

add "## Owners that wait for each other"
add ""
local rates = series(function(one) return one.rate end)
plot("throughput", "turns a second over the number of owners", svg.lines {
  title = "Turns a second, 1 ms section", x_label = "owners", y_label = "turns/s", x_log = true,
  x_marks = results.crowds, x_from = results.crowds[1], x_to = many, y_from = 0,
    y_to = round_up(largest(rates)),
  series = rates,
})
crowd_table("turns/s", function(one) return ("%.0f"):format(one.rate) end)

add "### Turns for each waiter"
add ""
add "The fewest and the most turns that an owner got, relative to an equal share: 1 is fair, 0 starves."
add ""
plot("fairness", "the least share of an owner", svg.bars {
  title = "Least share of an owner", x_label = "owners", y_label = "share", y_to = 1,
  groups = groups,
  series = series(function(one) return one.least end),
})
crowd_table("shares", function(one) return ("%.2f to %.2f"):format(one.least, one.most) end)

add "### How long an acquire takes"
add ""
local middle = results.crowds[math.max(1, #results.crowds - 1)]
local distributions, slowest = {}, 0
for i, name in ipairs(names()) do
  local one = results.crowd[middle][name]
  distributions[i] = { name = name, points = one and one.distribution or {} }
  slowest = math.max(slowest, one and one.p99 or 0)
end
plot("latency", "share of the acquires that took less", svg.lines {
  title = ("Acquires among %d owners that took at most this long"):format(middle),
  x_label = "milliseconds",
  y_label = "share", x_log = true, x_from = 0.1, x_to = math.max(1, round_up(slowest)), y_from = 0,
    y_to = 1,
  series = distributions,
})
crowd_table("median and 99 %, ms", function(one) return ("%.3g, %.3g"):format(one.p50, one.p99) end)

add "### What a turn costs the server"
add ""
local costs = series(function(one) return one.cpu end)
plot("server", "the server's processor for each turn", svg.lines {
  title = "Server's processor for each turn", x_label = "owners", y_label = "µs", x_log = true,
  y_log = true,
  x_marks = results.crowds, x_from = results.crowds[1], x_to = many, y_from = 10,
  y_to = math.max(100, 10 ^ math.ceil(math.log(largest(costs), 10))), series = costs,
})
crowd_table("µs, commands", function(one) return ("%.0f, %.1f"):format(one.cpu, one.commands) end)

add "[Where the time goes](#where-the-time-goes) lists the steps of a hand-off."
add ""

add("## %d held locks", results.held_count)
add ""
add("One process acquires them one by one and holds them for %g s, with a lease of %g s. Some libraries renew it.",
  results.held_lease, results.held_lease)
add ""
local held_head = { "", "to take one, µs", "server's memory for one, bytes", "renewed",
  "commands/s",
  "server's processor, %", "lost" }
table_of(held_head, function(name)
  local one = results.held[name]
  if not one then return { name, "failed", "", "", "", "", "" } end
  return { name, ("%.0f"):format(one.taken), ("%.0f"):format(one.bytes), one.renewed and "yes"
    or "no",
    ("%.0f"):format(one.commands), ("%.1f"):format(one.cpu * 100), ("%.0f"):format(one.lost) }
end)

add "## Where others are better"
add ""
add "By more than 5 %, these libraries are better than holdfast in these columns, and in no others. The column \"in the"
add "rounds\" is not compared."
add ""
add_better("One owner alone, cycles/s", results.free, "rate", MORE)
add_better("One owner alone, server's processor for a cycle", results.free, "cpu", LESS)
add_better("One owner alone, commands a cycle", results.free, "commands", LESS)
for _, owners in ipairs(results.crowds) do
  local function add_column(what, figure, better)
    add_better(("%d owners, %s"):format(owners, what), results.crowd[owners], figure, better)
  end
  add_column("turns/s", "rate", MORE)
  add_column("the least share", "least", MORE)
  add_column("the greatest share", "most", LESS)
  add_column("median of the acquires", "p50", LESS)
  add_column("99 % of the acquires", "p99", LESS)
  add_column("server's processor for a turn", "cpu", LESS)
  add_column("commands for a turn", "commands", LESS)
end
add_better("Held locks, time to take one", results.held, "taken", LESS)
add_better("Held locks, server's memory for one", results.held, "bytes", LESS)
add_better("Held locks, commands/s", results.held, "commands", LESS)
add_better("Held locks, server's processor", results.held, "cpu", LESS)
add_better("Held locks, lost", results.held, "lost", LESS)
local silent = those(results.held, function(one) return not one.renewed end)
if silent then
  add ""
  add("%s do not renew leases, so they send nothing.", silent)
end
add ""
add "Where the least share is low, the median is that of the few owners that get the lock again and again."
add ""

add "## Other kinds"
add ""
add "Their cost is measured without other libraries: [semaphores](semaphore.md#what-it-costs), [plain"
add "semaphores](plain_semaphore.md#what-it-costs)."
add ""

-- This section is measured by bench/run, and written by hand.
local by_hand = assert(io.open("bench/hand_off.md"))
add((by_hand:read("*a"):gsub("\n$", "")))
by_hand:close()

local page = assert(io.open(directory .. "/performance.md", "w"))
page:write(table.concat(lines, "\n"), "\n")
page:close()
