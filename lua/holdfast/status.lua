-- The live status page for OpenResty. It shows what is held and by whom, who is waiting, and what
-- is wrong; with ?json, as JSON. It is read-only.
--
-- One worker reads from the servers and keeps the result in holdfast.status_view. The other workers
-- send it queries through the lua_shared_dict.

local locale = require "holdfast.locale"
local page = require "holdfast.status_page"
local status_json = require "holdfast.status_json"
local status_view = require "holdfast.status_view"
local timer = require "holdfast.timer"

local status = {}

local TICK = 0.25 -- seconds
-- A reply with rows that are too old is built again: up to MAX_TRIES times in total, PAUSE
-- seconds apart.
local MAX_TRIES, PAUSE = 4, 0.25

local views = setmetatable({}, { __mode = "k" })

local function view_of(client, pattern, servers_id)
  local client_views = views[client] or {}
  views[client] = client_views
  client_views[pattern] = client_views[pattern] or status_view.new(client, pattern, servers_id)
  return client_views[pattern]
end

-- The page loads nothing from elsewhere, and only its own style and script are allowed.
local HEADERS = {
  ["Cache-Control"] = "no-store",
  ["X-Content-Type-Options"] = "nosniff",
  ["Referrer-Policy"] = "no-referrer",
  ["Content-Security-Policy"] = ("default-src 'none'; style-src '%s'; script-src '%s'; "
    .. "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    :format(page.style, page.script),
}

-- ---- which worker reads ----

-- `query`: the query string of a request. → the JSON reply, the HTTP status
local function reply_to(view, query)
  local request = status_json.parse_arguments(ngx.decode_args(query))
  status_view.record_request(view)
  local json, outage, is_old
  for _ = 1, MAX_TRIES do
    status_view.refresh(view)
    json, outage, is_old = status_json.reply(view, request)
    if not is_old then break end
    ngx.sleep(PAUSE)
  end
  return json, outage and 503 or 200
end

local function reply_to_others(view)
  for query in view.record.next_query, view.record do
    view.record:publish(query, reply_to(view, query))
  end
end

-- From now on, this worker reads from the servers periodically, or is ready to take over. Each tick
-- first schedules the next tick, because reading may take longer than TICK.
local function start_ticks(view)
  local function tick(exiting)
    view.has_tick = false
    if exiting then return view.record:give_up_lease() end
    if not status_view.is_needed(view) then return end
    start_ticks(view)
    if not status_view.update_role(view) then return end
    reply_to_others(view)
    status_view.refresh(view)
  end
  if not view.has_tick and view.record:claim_timer() then
    view.has_tick = timer.at(TICK, tick)
  end
end

local function serve_json(view)
  start_ticks(view)
  local query, json, http_status = ngx.var.args or "", nil, nil
  local function leads() return status_view.update_role(view) end
  if not leads() then json, http_status = view.record:request(query, leads) end
  if not json then json, http_status = reply_to(view, query) end
  ngx.header["Content-Type"] = "application/json"
  ngx.status = http_status
  ngx.print(json)
end

-- ---- the page ----

-- Returns whether the request is for one of the hosts. A foreign site can point its own host name
-- at this server and then read the responses (DNS rebinding), but the browser still sends that
-- name.
local function is_allowed_host(host)
  if not host then return true end
  for _, name in ipairs(type(host) == "table" and host or { host }) do
    if locale.lower(name) == ngx.var.host then return true end
  end
  return false
end

-- The content handler. `opts`: pattern, host. `servers_id`: identifies the client's servers. In
-- init_worker_by_lua, where there is no request, starts to poll.
function status.serve(client, opts, servers_id)
  local pattern = opts.pattern or "*"
  if ngx.get_phase() == "init_worker" then return start_ticks(view_of(client, pattern, servers_id)) end
  local method = ngx.req.get_method()
  if method ~= "GET" and method ~= "HEAD" then return ngx.exit(405) end
  if not is_allowed_host(opts.host) then return ngx.exit(421) end
  for name, value in pairs(HEADERS) do ngx.header[name] = value end
  if ngx.req.get_uri_args().json then return serve_json(view_of(client, pattern, servers_id)) end
  ngx.header["Content-Type"] = "text/html; charset=utf-8"
  ngx.print(page.html)
end

return status
