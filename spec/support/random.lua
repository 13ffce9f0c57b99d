-- random(seed) -> a function of random numbers from 1 to `most`, the same under each Lua

return function(seed)
  local state = seed * 7919 % 2147483647
  return function(most)
    for _ = 1, 3 do state = state * 16807 % 2147483647 end
    return state % most + 1
  end
end
