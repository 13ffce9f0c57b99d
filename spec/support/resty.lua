-- A redis-server, and an nginx whose workers have HOLDFAST, a CLIENT of that server and SAY, for
-- specs that run in nginx:
--
--   before_each(resty.open) after_each(resty.close)
--
-- Workers load the module that was built for LuaJIT, so these specs run once, without sanitizers.

local holdfast = require "holdfast"
local leaks = require "spec.support.leaks"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local stand_in = require "spec.support.stand_in"

local eventually = process.eventually

local resty = {
  is_there = nginx.is_there,
  FINISH = "log_by_lua_block { HOLDFAST.finish() }\n",
  CAPTURE = "body_filter_by_lua_block { HOLDFAST.capture() }\n",
}

local now = {} -- the server and the front of this test
resty.server = stand_in(function() return now.server end)
resty.front = stand_in(function() return now.front end)

-- clients of this process; whether, in this test, nginx may log errors, and queues are forged
local others, may_log, is_forged

local INIT = [[
  lua_shared_dict counters 1m;
  init_by_lua_block {
    %(init)
    HOLDFAST = require "holdfast"
    CLIENT = HOLDFAST.new { url = "%(url)", lease = %(lease), grant_lease = %(grant),
      command_timeout = %(patience) }
    function SAY(...)
      local list = { n = select("#", ...), ... }
      for i = 1, list.n do list[i] = tostring(list[i]) end
      ngx.say(table.concat(list, "|"))
    end
  }
]]

function resty.open()
  others, may_log, is_forged = {}, false, false
  now.server = redis.start { tcp = true }
end

-- Stops nginx, as it must be before a server that a test has started.
function resty.stop(signal)
  local front = now.front
  if not front then return end
  local errors = may_log and {} or front:errors()
  now.front = nil
  front:stop(signal or "TERM")
  if #errors > 0 then
    error(("nginx has logged in %q: %s"):format(leaks.test, table.concat(errors, "\n")), 0)
  end
end

function resty.close()
  local fine, message = pcall(resty.stop)
  for _, client in ipairs(others) do client:close() end
  if is_forged then now.server:try_cli "FLUSHALL" end
  now.server:stop()
  if not fine then error(message, 0) end
end

-- Lets this test make nginx log errors. resty.stop and resty.close fail any other test in which
-- nginx logs one.
function resty.expect_errors() may_log = true end

-- Lets this test write queues, whose waiters do not exist.
function resty.expect_forged_queues() is_forged = true end

function resty.use(front)
  now.front = front
  return front
end

-- Starts nginx with options of nginx.start; init = Lua code that runs before HOLDFAST is loaded,
-- and url, lease, grant_lease and command_timeout of CLIENT
function resty.start(options)
  local values = { url = options.url or now.server:url(), lease = options.lease or 30,
    grant = options.grant_lease or 2, init = options.init or "",
    patience = options.command_timeout or 2 }
  local given = {}
  for name, value in pairs(options) do given[name] = value end
  given.http = (INIT:gsub("%%%((%w+)%)", values)) .. (options.http or "")
  return resty.use(nginx.start(given))
end

function resty.handler(location, code)
  return ("location %s { content_by_lua_block {\n%s\n} }\n"):format(location, code)
end

-- → the body of the response, without its last line break
function resty.say(path, options) return (now.front:get(path, options).body:gsub("\n$", "")) end

-- → what a request that was begun is answered
function resty.reply_of(request, timeout)
  return (assert(request:finish(timeout)).body:gsub("\n$", ""))
end

function resty.comes_to_say(path, wanted, seconds)
  local said
  local function says_it()
    said = resty.say(path)
    return said == wanted
  end
  if process.wait_until(says_it, seconds) then return end
  error(("%s says %s, not %s"):format(path, said, wanted), 2)
end

function resty.is_free(key) return now.server:cli("EXISTS", key) == 0 end

-- → after how many seconds the key was free; nil if it was not
function resty.free_within(key, seconds)
  local from = process.now()
  local is_free = process.wait_until(function() return resty.is_free(key) end, seconds)
  return is_free and process.now() - from
end

-- Waits until so many callers are in the key's queue.
function resty.comes_to_wait(count, key)
  eventually(function()
    return now.server:cli("ZCOUNT", "holdfast_queue:{" .. key .. "}", "(0", "+inf") == count
  end)
end

-- Waits until the idempotent request with this key is recorded as done.
function resty.comes_to_be_recorded(key)
  eventually(function() return now.server:cli("HGET", "idempotent:" .. key, "done") == "D" end)
end

-- → the lock, held by a client of this process; several keys: a multi-lock
function resty.hold_elsewhere(...)
  local client = holdfast.new(now.server:url())
  others[#others + 1] = client
  local lock = select("#", ...) > 1 and client:multi_lock { ... } or client:lock((...))
  return assert(lock:acquire(0))
end

return resty
