-- The live status page for OpenResty: what is held, by whom, who waits, and what is wrong; as JSON
-- with ?json. It is read-only.
--
-- One worker reads the servers and keeps the result in holdfast.status_view. The other workers ask
-- it through the lua_shared_dict.

local locale = require "holdfast.locale"
local page = require "holdfast.status_page"
local status_json = require "holdfast.status_json"
local status_view = require "holdfast.status_view"
local timer = require "holdfast.timer"

local status = {}

local TICK = 0.25 -- seconds
-- While an answer has rows that are too old, it is built again: up to TRIES times in all, PAUSE
-- seconds apart.
local TRIES, PAUSE = 4, 0.25

local views = setmetatable({}, { __mode = "k" })

local function view_of(client, pattern, where)
  local of_client = views[client] or {}
  views[client] = of_client
  of_client[pattern] = of_client[pattern] or status_view.new(client, pattern, where)
  return of_client[pattern]
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

-- `question`: the query string of a request. → the JSON that answers it, the HTTP status
local function answer(view, question)
  local asked = status_json.parse_arguments(ngx.decode_args(question))
  status_view.note_request(view)
  local text, away, is_old
  for _ = 1, TRIES do
    status_view.refresh(view)
    text, away, is_old = status_json.reply(view, asked)
    if not is_old then break end
    ngx.sleep(PAUSE)
  end
  return text, away and 503 or 200
end

local function answer_others(view)
  for question in view.record.question, view.record do
    view.record:publish(question, answer(view, question))
  end
end

-- From now on this worker reads the servers periodically, or is ready to take over. Each tick first
-- schedules the next one, because it may have to wait for the servers.
local function watch(view)
  local function tick(ends)
    view.ticks = false
    if ends then return view.record:leave() end
    if not status_view.is_needed(view) then return end
    watch(view)
    if not status_view.leads(view) then return end
    answer_others(view)
    status_view.refresh(view)
  end
  if not view.ticks and view.record:has_timer() then view.ticks = timer.at(TICK, tick) end
end

local function serve_json(view)
  watch(view)
  local question, text, code = ngx.var.args or "", nil, nil
  local function leads() return status_view.leads(view) end
  if not leads() then text, code = view.record:ask(question, leads) end
  if not text then text, code = answer(view, question) end
  ngx.header["Content-Type"] = "application/json"
  ngx.status = code
  ngx.print(text)
end

-- ---- the page ----

-- Returns whether the request is for one of the hosts. A foreign site can point its own name at
-- this server and then read the responses (DNS rebinding), but the browser still sends that name.
local function is_for(host)
  if not host then return true end
  for _, name in ipairs(type(host) == "table" and host or { host }) do
    if locale.lower(name) == ngx.var.host then return true end
  end
  return false
end

-- The content handler. `opts`: pattern, host. `where`: a string that is different for clients of
-- different servers. In init_worker_by_lua, where there is no request, starts to poll.
function status.serve(client, opts, where)
  local pattern = opts.pattern or "*"
  if ngx.get_phase() == "init_worker" then return watch(view_of(client, pattern, where)) end
  local method = ngx.req.get_method()
  if method ~= "GET" and method ~= "HEAD" then return ngx.exit(405) end
  if not is_for(opts.host) then return ngx.exit(421) end
  for name, value in pairs(HEADERS) do ngx.header[name] = value end
  if ngx.req.get_uri_args().json then return serve_json(view_of(client, pattern, where)) end
  ngx.header["Content-Type"] = "text/html; charset=utf-8"
  ngx.print(page.html)
end

return status
