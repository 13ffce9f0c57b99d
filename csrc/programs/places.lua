--#fragment
local FRONT_MOST = 1e14 -- above all places in front, below all others
local PLACE_END = 9007199254740991 -- 2^53 - 1: above all places
