--#fragment
--#include "recorded_next.lua"
-- The next waiter for a free mutex, which has a record before it.
local next_waiter = next_behind_record
