--#fragment
-- A part of release.lua, which would spend more on a function: announces the release on RELEASES.
-- Defines heard: how many have heard it; an error where the client may not publish.
local heard = redis.pcall('PUBLISH', RELEASES, '0')
