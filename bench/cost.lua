-- The server's costs, from INFO commandstats and INFO cpu.

local cost = {}

local SCRIPTS = { evalsha = true, eval = true }

-- → calls, microseconds by command name
function cost.stats(server)
  local calls, usec = {}, {}
  for name, count, time in server:cli("INFO",
      "commandstats"):gmatch("cmdstat_(%S-):calls=(%d+),usec=(%d+)") do
    calls[name], usec[name] = tonumber(count), tonumber(time)
  end
  return calls, usec
end

-- → the server's processor time in seconds, since it started
function cost.processor(server)
  local sum = 0
  for seconds in server:cli("INFO", "cpu"):gmatch("used_cpu_%l+:([%d.]+)") do sum = sum + seconds end
  return sum
end

-- Runs fn. → { time = microseconds of the clients' commands, inside = commands inside scripts },
-- each divided by `count`. `direct`: how often fn sends each command outside of scripts, by name.
function cost.of(server, count, fn, direct)
  local calls, usec = cost.stats(server)
  fn()
  local calls_after, usec_after = cost.stats(server)
  local time, inside = 0, 0
  for name, after in pairs(calls_after) do
    if name ~= "info" then
      local more = after - (calls[name] or 0)
      if SCRIPTS[name] then
        time = time + usec_after[name] - (usec[name] or 0)
      else
        local sent = (direct and direct[name] or 0) * count
        inside = inside + more - sent
        if sent > 0 then time = time + (usec_after[name] - (usec[name] or 0)) / more * sent end
      end
    end
  end
  return { time = time / count, inside = inside / count }
end

return cost
