-- A cache in two files that belong together. Many processes read it, and one refills it when it is
-- too old. Readers do not wait for each other. A process that finds the cache too old takes the
-- write lock, checks again because another process may have been faster, and refills the cache. It
-- takes the read lock before it releases the write lock, so nobody changes the cache in between.
--
--   lua5.4 examples/cache_refill.lua      starts four processes, each of which reads 50 times

local holdfast = require "holdfast"

local READERS, READS, MAX_AGE = 4, 50, 60 -- seconds

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

local function is_fresh(cache)
  local filled_at = tonumber(read(cache .. ".time") or "")
  return filled_at and os.time() - filled_at < MAX_AGE
end

-- The expensive work, which must not be done by several processes at once.
local function fill(cache)
  write(cache .. ".body", "prices of " .. os.date("!%H:%M:%S"))
  write(cache .. ".time", tostring(os.time()))
end

-- → the body, whether it was filled by this call
local function get(lock, cache)
  assert(lock:read():acquire())
  if is_fresh(cache) then
    local body = read(cache .. ".body")
    lock:read():release()
    return body, false
  end
  lock:read():release() -- a reader cannot become a writer: the code would be "deadlock"

  assert(lock:write():acquire())
  local stale = not is_fresh(cache)
  if stale then fill(cache) end
  assert(lock:read():acquire())
  lock:write():release() -- from now on others may read, and nobody can write
  local body = read(cache .. ".body")
  lock:read():release()
  return body, stale
end

local function work(cache)
  local client = holdfast.new()
  local lock = client:read_write_lock("cache:prices")
  local fills = 0
  for _ = 1, READS do
    local body, filled = get(lock, cache)
    assert(body)
    if filled then fills = fills + 1 end
  end
  client:close()
  print(fills)
end

local function main()
  local cache = os.tmpname()
  local pipes, fills = {}, 0
  for i = 1, READERS do pipes[i] = assert(io.popen(("%s %s %s"):format(arg[-1], arg[0], cache))) end
  for _, pipe in ipairs(pipes) do
    fills = fills + assert(tonumber(pipe:read("*a")), "a reader has failed")
    pipe:close()
  end
  for _, name in ipairs { "", ".body", ".time" } do os.remove(cache .. name) end
  print(("%d reads, filled %d times"):format(READERS * READS, fills))
end

if arg[1] then work(arg[1]) else main() end
