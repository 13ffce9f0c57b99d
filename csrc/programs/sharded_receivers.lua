--#fragment
-- As plain_receivers.lua, in a cluster that has sharded channels: see announce of sharded.lua.
local receivers = tonumber(redis.pcall('SPUBLISH', RELEASES, '0')) or 0
if (redis.pcall('PUBSUB', 'NUMSUB', RELEASES)[2] or 0) ~= 0 then
  receivers = receivers + (tonumber(redis.pcall('PUBLISH', RELEASES, '0')) or 0)
end
