--#fragment
-- The server's clock in ms.
local function now_ms()
  return math.floor(server_us() / 1000)
end
