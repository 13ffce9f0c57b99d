-- A queue with a limited number of places, between a producer and workers in other processes: the
-- producer waits while the queue is full, and the workers wait while it is empty. Two semaphores
-- count the free places and the queued jobs. Each permit is taken in one process and given back in
-- another, so permits have no owner.
--
--   lua5.4 examples/bounded_queue.lua [JOBS [WORKERS]]
--
-- Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"

local PLACES = 3
local PATIENCE = 20 -- seconds to wait for one job or place

local client = holdfast.new()

local function quoted(text) return "'" .. text:gsub("'", [['\'']]) .. "'" end

-- The queue that both sides share: a directory with a file for each job, and the two semaphores.
local function open(directory)
  return {
    directory = directory,
    places = client:plain_semaphore(directory .. ":places", { wait = PATIENCE }),
    ready = client:plain_semaphore(directory .. ":ready", { wait = PATIENCE }),
  }
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function put(queue, number, job)
  local path = ("%s/%d"):format(queue.directory, number)
  assert(queue.places:acquire())
  write(path .. ".new", job)
  assert(os.rename(path .. ".new", path))
  assert(queue.ready:release())
end

-- Takes the first job from `number` on that no other worker has taken: there is one.
-- → the job, its number
local function take(queue, number)
  assert(queue.ready:acquire())
  local path = queue.directory .. "/%d"
  while not os.rename(path:format(number), path:format(number) .. ".taken") do number = number + 1 end
  local file = assert(io.open(path:format(number) .. ".taken"))
  local job = file:read("*a")
  file:close()
  os.remove(path:format(number) .. ".taken")
  assert(queue.places:release())
  return job, number
end

local function work(directory)
  local queue, count = open(directory), 0
  local job, number = take(queue, 1)
  while job ~= "stop" do
    count = count + 1 -- the work goes here
    job, number = take(queue, number)
  end
  print(count)
end

local function start(directory)
  return assert(io.popen(("%s %s --work %s"):format(quoted(arg[-1]), quoted(arg[0]),
    quoted(directory))))
end

local function produce(jobs, count)
  local directory = os.tmpname()
  os.remove(directory)
  assert(os.execute("mkdir " .. quoted(directory)))
  local queue, workers, done = open(directory), {}, 0
  assert(queue.places:set(PLACES))
  for i = 1, count do workers[i] = start(directory) end
  for number = 1, jobs do put(queue, number, "job " .. number) end
  for i = 1, count do put(queue, jobs + i, "stop") end
  for _, worker in ipairs(workers) do
    done = done + assert(worker:read("*n"))
    worker:close()
  end
  print(("%d jobs done by %d workers; %d of %d places are free"):format(done, count,
    queue.places:available(), PLACES))
  queue.places:delete()
  queue.ready:delete()
  os.execute("rmdir " .. quoted(directory))
end

if arg[1] == "--work" then
  work(arg[2])
else
  produce(tonumber(arg[1]) or 40, tonumber(arg[2]) or 2)
end
client:close()
