-- The status page and the metrics of an nginx whose workers have CLIENT, for specs that use
-- spec.support.resty, and locks as other programs write them.

local assert = require "luassert"
local dkjson = require "dkjson" -- busted's own
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resty = require "spec.support.resty"

local front, server = resty.front, resty.server

local status = {
  PATIENCE = 20,
  UUID = "b983c153-7421-869a-addb-44fb92259a1b", -- of a client that does not exist
}

local UUID = status.UUID
local LOOK = 0.05 -- seconds

local INIT = [[
  %s
  init_by_lua_block {
    HOLDFAST = require "holdfast"
    CLIENT_URL = "%s"
    NOTED = ""
    function NOTE(event) NOTED = NOTED .. event.event .. " " .. event.class .. ";" end
    CLIENT = HOLDFAST.new { %s, class = "orders" }
    %s
  }
]]

local SERVER = [[
  location = /work { content_by_lua_block {
    CLIENT:with_lock(ngx.var.arg_key or "k" .. ngx.worker.pid(), function() end)
    ngx.print(ngx.worker.pid())
  } }
  location = /once { content_by_lua_block {
    local client = HOLDFAST.new { url = CLIENT_URL, class = "orders" }
    client:with_lock("once", function() end)
    client:close()
    ngx.print("done")
  } }
  location = /paid {
    access_by_lua_block {
      HOLDFAST.idempotent_request { client = CLIENT, key = "paid", class = "pay", on_event = NOTE }
    }
    content_by_lua_block { ngx.print("paid") }
    log_by_lua_block { HOLDFAST.finish() }
  }
  location = /noted { content_by_lua_block { ngx.print(NOTED) } }
  location = /metrics { content_by_lua_block { HOLDFAST.metrics() } }
  location = /status { lua_check_client_abort on; content_by_lua_block {
    ngx.header.worker = ngx.worker.pid()
    HOLDFAST.status { client = CLIENT }
  } }
  location = /lose { content_by_lua_block {
    local lock = CLIENT:lock("lost")
    assert(lock:acquire())
    local other = HOLDFAST.new(CLIENT_URL)
    other:lock("lost"):force_release()
    other:close()
    ngx.print(select(3, lock:check()))
  } }
]]

-- Starts nginx with options of nginx.start; more = locations, dict = its shared dict, where =
-- options of CLIENT, init = Lua code
function status.start(options)
  local dict = options.dict or "lua_shared_dict holdfast 1m;"
  local where = options.where or ('url = "%s"'):format(server:url())
  resty.use(nginx.start {
    workers = options.workers, tcp = options.tcp, server = SERVER .. (options.more or ""),
    http = INIT:format(dict, server:url(), where, options.init or "") .. (options.http or ""),
  })
end

-- Starts nginx with a CLIENT of a quorum. → its servers, which the test stops after nginx, and
-- their URLs
function status.start_quorum(count)
  local servers, urls = redis.several(count or 3)
  status.start { where = ('mode = "quorum", servers = { "%s" }'):format(table.concat(urls, '", "')) }
  return servers, urls
end

-- → the page's data; `wanted` is the status of the response
function status.state(query, wanted)
  local response = front:get("/status?json" .. (query or ""))
  assert.equal(wanted or 200, response.status, response.body)
  return dkjson.decode(response.body)
end

local state = status.state

-- Waits like process.eventually, but looks less often: nginx and this process encode and decode the
-- whole page for each look.
function status.eventually(cond, seconds, why)
  return process.eventually(function() return cond() or process.sleep(LOOK) end, seconds, why)
end

-- → a lock on the page, or nil
function status.entry(key, query)
  for _, lock in ipairs(state(query).locks) do
    if lock.key == key then return lock end
  end
end

-- Waits until the page shows the lock as it is wanted. → the lock on the page
function status.shows(key, wanted)
  return status.eventually(function()
    local lock = status.entry(key)
    return lock and (not wanted or wanted(lock)) and lock
  end, nil, function() return key .. " is not shown: " .. front:get("/status?json").body end)
end

-- Waits until the page shows so many locks.
function status.comes_to_show(count, seconds)
  status.eventually(function() return state().count == count end, seconds,
    function() return state().count .. " locks" end)
end

-- → the keys on the page in their order
function status.order(query)
  local list = {}
  for i, each in ipairs(state(query).locks) do list[i] = each.key end
  return table.concat(list, " ")
end

-- Returns the greatest number of waiters in the answer's points.
function status.most_waiting(answer)
  local most = 0
  for _, point in ipairs(answer.points) do most = math.max(most, point.waiting or 0) end
  return most
end

-- Returns the place of a waiter that has waited for `seconds`.
function status.place(seconds)
  local time = server:cli("TIME")
  return time[1] * 1e6 + time[2] - (seconds or 0) * 1e6
end

-- Puts a waiter into a queue that has waited for `seconds`; `owner` is the number of its owner, or
-- what it is called in the queue.
function status.queue(key, owner, seconds)
  resty.expect_forged_queues()
  if type(owner) == "number" then owner = ("1l%s:%d:1"):format(UUID, owner) end
  server:cli("ZADD", "holdfast_queue:{" .. key .. "}", ("%.0f"):format(status.place(seconds)), owner)
end

-- Writes a lock like another program: { key, owner, TTL in ms, token, members of its queue }.
function status.write_lock(lock)
  server:cli("HSET", lock.key, lock.owner or UUID .. ":1", 1)
  server:cli("PEXPIRE", lock.key, lock.ttl or 600000)
  if lock.token then
    server:cli("SET", "redisson_lock_token:{" .. lock.key .. "}", ("%.0f"):format(lock.token))
  end
  for i, member in ipairs(lock.queue or {}) do status.queue(lock.key, member, -i / 1e6) end
end

-- Writes locks; the first `busy` of them have 150 waiters each.
function status.forge(count, busy)
  resty.expect_forged_queues()
  server:cli("EVAL", [[
    for i = 1, tonumber(ARGV[1]) do
      local key = ("many:%05d"):format(i)
      redis.call("HSET", key, ARGV[3] .. ":" .. i, 1)
      redis.call("PEXPIRE", key, 600000)
      for place = 1, i <= tonumber(ARGV[2]) and 150 or 0 do
        local waiter = ("1l%s:%d:1"):format(ARGV[3], 1000000 + place)
        redis.call("ZADD", "holdfast_queue:{" .. key .. "}", ARGV[4] + place, waiter)
      end
    end
  ]], "0", tostring(count), tostring(busy), UUID, ("%.0f"):format(status.place()))
end

-- Returns how often the server has been asked for keys.
function status.scans()
  return tonumber(server:cli("INFO", "commandstats"):match("cmdstat_scan:calls=(%d+)") or 0)
end

return status
