-- A free cycle (acquire and release), and its two commands.

local cycle = {}

function cycle.run(lock, count)
  for _ = 1, count do
    assert(lock:acquire(0))
    assert(lock:release())
  end
end

-- Runs fn, which makes one cycle. → the words of each command that came from a client meanwhile
function cycle.commands(server, fn)
  local monitor = server:monitor()
  fn()
  local sent = {}
  for _, entry in ipairs(monitor:commands()) do
    if not entry.script then sent[#sent + 1] = entry.args end
  end
  monitor:close()
  assert(#sent == 2, "a cycle is not two commands but " .. #sent)
  return sent
end

return cycle
