-- How the API reaches a server: the core's own calls, which block, or under ngx_lua those of holdfast.resty for the
-- clients that it drives. Elsewhere nothing stands between the API and the core.

local core = require "holdfast.core"

local ngx = rawget(_G, "ngx")
local under_ngx = type(ngx) == "table" and ngx.socket ~= nil and ngx.socket.tcp ~= nil and ngx.timer ~= nil

if under_ngx then return require "holdfast.resty" end

return {
  default = "posix",
  names = { "posix" },
  lock = core.lock,
  ping = core.client.ping,
  close = core.client.close,
}
