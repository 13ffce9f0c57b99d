--#fragment
local FRONT_MOST = 1e14 -- above all places in front, below all others
local PLACE_END = 9007199254740991 -- 2^53 - 1: above all places
-- A lock's users seldom poll. They are looked for when a waiter has waited for this time, and in a
-- queue that has had waiters for so long.
local LOCK_PROBE_US = 8000000
