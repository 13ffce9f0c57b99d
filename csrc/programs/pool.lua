--#fragment
--#include "whole_number.lua"
-- How many permits of one semaphore are free; nil: nobody has set how many there are.
local LEASES = KEYS[5]
local FREE = whole_number(LOCK)
