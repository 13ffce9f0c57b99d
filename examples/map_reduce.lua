-- Counts the words of several files, each file in its own process, and adds them up when all are
-- counted. The latch also works for workers on other hosts.
--
--   lua5.4 examples/map_reduce.lua [FILE…]      without files: some of holdfast's documents
--
-- Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"

local PATIENCE = 30 -- seconds for all workers

local client = holdfast.new()

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

-- A worker: counts words, stores its result, and only then counts down the latch.
local function map(job, path, result)
  local words = select(2, read(path):gsub("%S+", ""))
  local file = assert(io.open(result, "w"))
  file:write(words)
  file:close()
  local left = assert(client:latch(job):count_down())
  io.stderr:write(("%s: %d words, %d files to go\n"):format(path, words, left))
end

local function quoted(text) return "'" .. text:gsub("'", [['\'']]) .. "'" end

-- Starts a worker. → its pipe
local function start(...)
  local words = { quoted(arg[-1]), quoted(arg[0]), "--map" }
  for i = 1, select("#", ...) do words[#words + 1] = quoted((select(i, ...))) end
  return assert(io.popen(table.concat(words, " ")))
end

local function reduce(paths)
  local results, workers, total = {}, {}, 0
  local job = "words:" .. os.tmpname()
  local latch = client:latch(job)
  assert(latch:set(#paths)) -- before the first of them can count down
  for i, path in ipairs(paths) do
    results[i] = os.tmpname()
    workers[i] = start(job, path, results[i])
  end
  local done, message, code = latch:wait(PATIENCE)
  if code == "timeout" then
    print(("%d of %d workers have not finished"):format(latch:count(), #paths))
    latch:delete() -- no worker will open it
  elseif not done then
    print(message)
  end
  for _, result in ipairs(results) do
    total = total + (tonumber(read(result)) or 0)
    os.remove(result)
  end
  for _, worker in ipairs(workers) do worker:close() end
  os.remove((job:gsub("^words:", "")))
  print(("%d words in %d files%s"):format(total, #paths, done and "" or ", those counted so far"))
end

if arg[1] == "--map" then
  map(arg[2], arg[3], arg[4])
else
  reduce(#arg > 0 and arg
    or { "docs/how-to/latch.md", "docs/how-to/semaphore.md", "docs/explanation/choosing.md", "README.md" })
end
client:close()
