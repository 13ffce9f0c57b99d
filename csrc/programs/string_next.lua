--#fragment
-- Where the next waiter stands among the first members, if it may have the free mutex: a record is
-- before it, and the mark of the grant that ends.
local now_us = server_us()
local i
--#include "recorded_next.lua"
