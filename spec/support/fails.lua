-- fails(code, results of a call...) asserts that the call has failed with this code. → its message,
-- and what it returned after the code

local assert = require "luassert"

return function(code, result, message, got, ...)
  assert.is_nil(result)
  assert.is_string(message)
  assert.equal(code, got, message)
  return message, ...
end
