--#fragment
-- Since when a waiter has waited, in µs of the server's clock, as its place tells. One in front got
-- its place when it came back (front_place in placing.lua), and has waited for longer.
local function since_us(place)
  return place < FRONT_MOST and place * 1024 or place
end
