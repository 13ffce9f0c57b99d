--#fragment
-- Defines noted: the reply of this call, if it has been made before.
local noted = redis.call('GET', NOTE)
