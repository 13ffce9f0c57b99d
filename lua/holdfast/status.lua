-- The live page of OpenResty: what is held, by whom, who waits, what is wrong, and the hand-offs of
-- the last ten minutes; the same as JSON with ?json. It only reads.
--
-- holdfast.status_view has what is known of the locks. With a lua_shared_dict one worker polls as
-- well, so that the view's record has what happened while the page was not open.

local locale = require "holdfast.locale"
local page = require "holdfast.status_page"
local status_json = require "holdfast.status_json"
local status_view = require "holdfast.status_view"

local status = {}

local views = setmetatable({}, { __mode = "k" })

local function view_of(client, pattern, where)
  local of_client = views[client] or {}
  views[client] = of_client
  of_client[pattern] = of_client[pattern] or status_view.new(client, pattern, where)
  return of_client[pattern]
end

-- Nothing comes from elsewhere, and only the page's own style and script are let in.
local HEADERS = {
  ["Cache-Control"] = "no-store",
  ["X-Content-Type-Options"] = "nosniff",
  ["Referrer-Policy"] = "no-referrer",
  ["Content-Security-Policy"] = ("default-src 'none'; style-src '%s'; script-src '%s'; "
    .. "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    :format(page.style, page.script),
}

-- Looks by the clock as well, from now on, if there is a record of all workers.
local function watch(view)
  view.record:watch(function() status_view.refresh(view) end)
end

local function serve_json(view, args)
  watch(view)
  status_view.refresh(view)
  local text, away = status_json.answer(view, status_json.asked_for(args))
  ngx.header["Content-Type"] = "application/json"
  if away then ngx.status = 503 end
  ngx.print(text)
end

-- Whether the request is for one of the hosts. A page of another site can make its own name lead
-- here, and would then read the answers (DNS rebinding); the browser still sends that name.
local function is_for(host)
  if not host then return true end
  for _, name in ipairs(type(host) == "table" and host or { host }) do
    if locale.lower(name) == ngx.var.host then return true end
  end
  return false
end

-- The content handler. `opts`: pattern, host. `where`: distinguishes the keys of this client from
-- those of other clients. In init_worker_by_lua there is no request: it starts to poll.
function status.serve(client, opts, where)
  local pattern = opts.pattern or "*"
  if ngx.get_phase() == "init_worker" then return watch(view_of(client, pattern, where)) end
  local method = ngx.req.get_method()
  if method ~= "GET" and method ~= "HEAD" then return ngx.exit(405) end
  if not is_for(opts.host) then return ngx.exit(421) end
  for name, value in pairs(HEADERS) do ngx.header[name] = value end
  local args = ngx.req.get_uri_args()
  if args.json then return serve_json(view_of(client, pattern, where), args) end
  ngx.header["Content-Type"] = "text/html; charset=utf-8"
  ngx.print(page.html)
end

return status
