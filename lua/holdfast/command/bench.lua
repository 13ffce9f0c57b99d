-- holdfast bench: measures how fast this host can acquire and release locks on the server.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local locale = require "holdfast.locale"
local process = require "holdfast.process"
local subcommand = require "holdfast.command.subcommand"

local bench = {}

bench.usage = "holdfast bench [options]"
bench.summary = "Measure the speed of acquire/release and of hand-offs between processes."

bench.options = subcommand.options(bench, {
  { "cycles", value = "N", check = options.count, help = "acquires per process (default: 1000)" },
  { "workers", value = "N", check = options.count, help = "number of competing processes (default: 4)" },
  { "worker", value = "KEY", help = "be one of the workers", hidden = true },
})
bench.examples = {
  "holdfast bench",
  "holdfast bench --workers 16 # more contention",
  "holdfast bench --cycles 100 # on a slow link",
}

local TOKEN_TTL = 60 -- seconds until the server deletes the benchmark's keys

local function run_cycles(lock, count, wait)
  for _ = 1, count do
    local held, message, code = lock:acquire(wait)
    local released = held
    if held then released, message, code = lock:release() end
    if not released then return nil, message, code end
  end
  return true
end

-- → seconds per cycle, after a warm-up | nil, message, code
local function measure_uncontended(lock, count)
  local ok, message, code = run_cycles(lock, math.min(count, 100), 0)
  if not ok then return nil, message, code end
  local start = core.now()
  ok, message, code = run_cycles(lock, count, 0)
  if not ok then return nil, message, code end
  return (core.now() - start) / count
end

-- Returns the command line that starts this program with these arguments. It does not take varargs,
-- because in Lua 5.1 varargs would hide the global `arg`.
local function command_line(args)
  local first, words = 0, {}
  while arg[first - 1] do first = first - 1 end
  for i = first, 0 do words[#words + 1] = arg[i] end
  for _, word in ipairs(args) do words[#words + 1] = word end
  return words
end

local function start_workers(key, given, config)
  local pids, cycles = {}, ("%d"):format(given.cycles)
  local words = command_line { "bench", "--worker", key, "--cycles", cycles }
  -- The URL may contain a password, and other users can read a process's arguments.
  local environment = { "HOLDFAST_URL=" .. config.url, "HOLDFAST_SERVERS=" }
  for _, name in ipairs { "ca", "cert", "key" } do
    if given[name] then words[#words + 1] = ("--%s=%s"):format(name, given[name]) end
  end
  for i = 1, given.workers do
    local pid, message = process.spawn(words, environment, false)
    if not pid then return nil, "cannot start a worker: " .. message, "server" end
    pids[i] = pid
  end
  return pids
end

-- Waits for the workers to exit. → the number of workers that succeeded
local function wait_for_workers(pids)
  local succeeded = 0
  for _, pid in ipairs(pids) do
    local how, number
    repeat
      how, number = process.status(pid)
      if not how then process.wait(0.1) end
    until how == "exit" or how == "signal" or how == "gone"
    if how == "exit" and number == 0 then succeeded = succeeded + 1 end
  end
  return succeeded
end

local QUEUE_TIMEOUT = 10 -- seconds within which all workers must be queued

-- Waits until all workers are queued, before the first hand-off.
local function wait_for_queue(lock, count)
  local deadline = core.now() + QUEUE_TIMEOUT
  repeat
    local info, message, code = lock:info()
    if not info then return nil, message, code end
    if info.waiters == count then return true end
    process.wait(0.01)
  until core.now() > deadline
  return nil, "the workers did not start", "server"
end

-- → seconds per hand-off | nil, message, code
local function measure_contended(lock, key, given, config)
  local held, pids, ready, message, code
  held, message, code = lock:acquire(0)
  if not held then return nil, message, code end
  pids, message, code = start_workers(key, given, config)
  if pids then ready, message, code = wait_for_queue(lock, given.workers) end
  local start = core.now()
  lock:release()
  local succeeded = pids and wait_for_workers(pids) or 0
  if not ready then return nil, message, code end
  if succeeded < given.workers then return nil, "a worker failed", "server" end
  return (core.now() - start) / (given.workers * given.cycles)
end

local function row(name, seconds)
  return { name, locale.decimal("%.1f", seconds * 1e6), ("%.0f"):format(1 / seconds) }
end

function bench.main(args)
  return subcommand.run(bench, "bench", args, 0, 0, function(client, given, _, out, config)
    given.cycles, given.workers = given.cycles or 1000, given.workers or 4
    process.catch("CHLD")
    local ok, uncontended, contended, message, code
    if given.worker then
      local lock = client:lock(given.worker, { token_ttl = TOKEN_TTL })
      ok, message, code = run_cycles(lock, given.cycles, 60)
      return ok and exits.OK or subcommand.failed(out, message, code)
    end
    local key = "holdfast_bench:" .. core.client.uuid(client)
    local lock = client:lock(key, { token_ttl = TOKEN_TTL })
    uncontended, message, code = measure_uncontended(lock, given.cycles)
    if uncontended then contended, message, code = measure_contended(lock, key, given, config) end
    if not contended then return subcommand.failed(out, message, code) end
    local rows = { { "", "µs", "per second" } }
    rows[2] = row("acquire and release, uncontended", uncontended)
    rows[3] = row(("hand-off, %d processes"):format(given.workers), contended)
    output.print(table.concat(output.columns(rows, { false, true, true }), "\n"))
    return exits.OK
  end)
end

return bench
