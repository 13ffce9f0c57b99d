-- Crowds of processes that compete for a lock, each a spec/support/crowd_worker.lua, and the
-- history that they record.

local assert = require "luassert"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local leftovers = require "spec.support.leftovers"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local Crowd = {}
Crowd.__index = Crowd

local crowd = {}

-- Creates a crowd for the server's key, with a store of its own, started with these options.
function crowd.new(server, key, options)
  return setmetatable({ server = server, key = key, store = redis.start(options), workers = {} },
    Crowd)
end

-- A server with a TCP port, or what start() returns, a crowd for the key and a client:
--
--   before_each(function() server, others, client = scene.open() end) after_each(scene.close)
--
-- scene.renew() returns another crowd in place of the first one.
function crowd.scene(key, start)
  local scene = {}
  local server, client

  function scene.renew()
    if scene.others then scene.others:stop() end
    scene.others = crowd.new(server, key, { tcp = true })
    return scene.others
  end

  function scene.open()
    server = start and start() or redis.start { tcp = true }
    client = holdfast.new(server:url())
    return server, scene.renew(), client
  end

  function scene.close()
    client:close()
    scene.others:stop()
    server:stop()
    scene.others = nil
  end

  return scene
end

-- → a cluster, with the functions of a server that a crowd calls: its cli() is that of the key's
-- node
function crowd.cluster_of(key)
  local nodes = require("spec.support.cluster").start { masters = 3, replicas = 0 }
  return {
    nodes = nodes, port = nodes.nodes[1].port,
    url = function() return nodes:url() end,
    cli = function(_, ...) return nodes:node_of(key):cli(...) end,
    stop = function() nodes:stop() end,
  }
end

function crowd.queue_of(key) return ("holdfast_queue:{%s}"):format(key) end
function crowd.channel_of(uuid) return "holdfast_grant:" .. uuid end

-- Starts another process with the worker's options.
function Crowd:add(name, options)
  local args = process.args({ self.server:url(), self.store.path, self.key, name }, options)
  return self:join(name, process.lua { file = "spec/support/crowd_worker.lua", args = args })
end

-- Adds a process that was started elsewhere.
function Crowd:join(name, worker)
  worker.name = name
  self.workers[#self.workers + 1] = worker
  return worker
end

-- Returns how many are queued.
function Crowd:queued() return self.server:cli("ZCOUNT", crowd.queue_of(self.key), "(0", "+inf") end

function Crowd:wait_queued(count, seconds)
  return process.wait_until(function() return self:queued() == count end, seconds or 20)
end

-- Queues processes in this order for a held lock.
function Crowd:line_up(names, options)
  for _, name in ipairs(names) do
    local before = self:queued()
    self:add(name, options)
    assert(self:wait_queued(before + 1), name .. " does not come into the queue")
  end
end

-- Lets the workers begin that were started with together=1, after all have reported that they are
-- ready.
function Crowd:begin(seconds)
  for _, worker in ipairs(self.workers) do
    local ready = process.wait_until(function()
      return worker:status() or worker:output():match("ready")
    end, seconds)
    assert(ready == "ready", worker:output())
  end
  self.store:cli("SET", "crowd:start", 1)
end

-- Returns whether this worker gets a turn within `seconds`.
function Crowd:came_in(name, seconds)
  return process.wait_until(function() return self:turns_of(name) > 0 end, seconds)
end

-- Ends the workers started with endless=1, each after its turn.
function Crowd:call_off() self.store:cli("SET", "crowd:stop", 1) end

-- Waits until all have ended. → nil, or what went wrong
function Crowd:finish(seconds)
  local deadline = process.now() + (seconds or 20)
  for _, worker in ipairs(self.workers) do
    local how, code = worker:wait(math.max(0, deadline - process.now()))
    if how ~= "exit" or code ~= 0 then
      return ("%s: %s %s: %s"):format(worker.name, how, code, worker:output())
    end
  end
end

-- Returns the history: { names = the holders in order, tokens, overlap = the first line at which
-- two held the lock at once, turns, refused, lost = how many updates of the counter were lost }
function Crowd:history()
  local history = { names = {}, tokens = {}, turns = 0 }
  local inside
  local function overlap(i, line)
    history.overlap = history.overlap
      or ("two owners at once, line %d: %s while %s is in"):format(i, line, inside)
  end
  for i, line in ipairs(self.store:cli("LRANGE", "crowd:history", 0, -1)) do
    local what, name, token = line:match("^(%S+) (%S+) ?(%S*)$")
    if what == "in" then
      if inside then overlap(i, line) end
      inside = name
      history.names[#history.names + 1] = name
      history.tokens[#history.tokens + 1] = tonumber(token)
    else
      if inside ~= name then overlap(i, line) end
      inside = nil
      history.turns = history.turns + 1
    end
  end
  history.refused = tonumber(self.store:cli("GET", "crowd:refused") or 0)
  history.lost = history.turns - history.refused
    - tonumber(self.store:cli("GET", "crowd:counter") or 0)
  return history
end

-- Waits until all have ended, and asserts that each held the lock alone, and that no update was
-- lost. `turns`: how many they had in total; by default any number. → the history
function Crowd:assert_turns(turns, seconds)
  assert.is_nil(self:finish(seconds or 40))
  local history = self:history()
  assert.is_nil(history.overlap)
  assert.equal(0, history.lost)
  assert.equal(turns or history.turns, history.turns)
  return history
end

-- Returns how many turns the workers had whose names begin with these letters.
function Crowd:turns_of_side(side)
  local turns = 0
  for _, each in ipairs(self:history().names) do
    if each:match("%a+") == side then turns = turns + 1 end
  end
  return turns
end

function Crowd:turns_of(name)
  local turns = 0
  for _, each in ipairs(self:history().names) do
    if each == name then turns = turns + 1 end
  end
  return turns
end

-- Returns how many turns each worker had while all took part: from the first turn of the last
-- worker to join until the last turn of the first one to leave. `names`: who had each turn.
function crowd.turns_together(names)
  local first, last, from, to, turns = {}, {}, 1, #names, {}
  for i, name in ipairs(names) do first[name], last[name] = first[name] or i, i end
  for name in pairs(first) do from, to = math.max(from, first[name]), math.min(to, last[name]) end
  for i = from, to do turns[names[i]] = (turns[names[i]] or 0) + 1 end
  return turns
end

function Crowd:stop()
  for _, worker in ipairs(self.workers) do worker:stop() end
  self.store:stop()
end

-- Stops all processes and the server, and asserts that nothing was left on the server.
function Crowd:clear()
  for _, worker in ipairs(self.workers) do worker:stop() end
  local litter = leftovers.on(self.server)
  self:stop()
  self.server:stop()
  assert.is_nil(litter)
end

-- Asserts that each turn had a higher token than the one before.
function crowd.assert_rising(tokens)
  for i = 2, #tokens do assert.is_true(tokens[i - 1] < tokens[i], "token " .. i) end
end

-- Returns the names of so many processes.
function crowd.names(count)
  local list = {}
  for i = 1, count do list[i] = "w" .. i end
  return list
end

-- ---- members of the queue without a process ----

-- Creates a client that subscribes to its grants but never uses them.
function crowd.silent_client(server, number)
  local self = { uuid = ("00000000-0000-8000-8000-%012x"):format(number) }
  self.connection = assert(resp.connect { path = server.path })
  self.connection:call("SUBSCRIBE", crowd.channel_of(self.uuid))
  return self
end

-- Returns a member of the queue, as described in csrc/programs/queue/queue.lua.
function crowd.member(uuid, wait) return ("1l%s:%d:0"):format(uuid, wait) end

-- Returns the complete text of a program in csrc/programs.
function crowd.program(name)
  local directory = process.directory()
  assert(process.succeeds(("lua5.4 tools/embed.lua --expand %s"):format(directory)))
  local text = files.read(("%s/%s.lua"):format(directory, name))
  process.remove(directory)
  return text
end

-- ---- cost ----

-- Returns the number of calls so far by command, including calls inside scripts.
function crowd.calls(server)
  local calls = {}
  for name, count in server:cli("INFO", "commandstats"):gmatch("cmdstat_(%S-):calls=(%d+)") do
    calls[name] = tonumber(count)
  end
  return calls
end

-- Returns the calls since `before`, without INFO, which only the spec itself sends.
function crowd.calls_since(server, before)
  local since = {}
  for name, count in pairs(crowd.calls(server)) do
    local more = count - (before[name] or 0)
    if more > 0 and name ~= "info" then since[name] = more end
  end
  return since
end

-- Counts the commands that clients send in `seconds`. → their number, the seconds actually elapsed
function crowd.commands_in(server, seconds)
  local function sent()
    local calls = crowd.calls(server)
    local total = 0
    for _, name in ipairs { "evalsha", "eval", "ping", "subscribe", "psubscribe",
        "punsubscribe" } do
      total = total + (calls[name] or 0)
    end
    return total
  end
  local from, before = process.now(), sent()
  process.sleep(seconds)
  local more = sent() - before
  return more, process.now() - from
end

return crowd
