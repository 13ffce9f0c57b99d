--#include "layout.lua"
--#include "queue.lua"
--#include "acquiring.lua"
-- Arguments and replies are those of acquiring.lua.
return acquire()
