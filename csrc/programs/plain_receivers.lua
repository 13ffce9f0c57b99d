--#fragment
-- A part of release.lua, which would spend more on a function: announces the release on RELEASES.
-- Defines receivers: how many got it; an error where the client may not publish.
local receivers = redis.pcall('PUBLISH', RELEASES, '0')
