--#fragment
-- Where the next waiter stands among the first members, if it may have the free lock: behind the
-- mark of the grant that ends, if there is one.
local i = first_few[2] == '0' and 3 or 1
