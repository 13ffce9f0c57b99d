-- The rules of every schedule of leaders, in addition to those of watcher.lua or system_watcher.lua
-- for their locks.
--
--   terms   a term begins only when nobody believes in another one
--   token   …with a higher token than all before
--   told    a term that is over, and was not given up, says how it was lost, and on_lost was called
--   ended   a leader goes on with another term until it resigns, however its terms end; before its
--           first one it may be refused for a log-in while a password is replaced

local Terms = {}

-- A term begins.
function Terms:begins(mine)
  local task, token = mine.task, mine.term:token()
  self.world:note("%s leads, token %s", task.name, tostring(token))
  if task.resigned or mine.number > 1 and task.plan.once then
    self.world:fail("ended", "%s leads again, though it has resigned", task.name)
  end
  if not token or token <= self.highest and not self:may_be_one_of_two(mine) then
    self.world:fail("token", "%s leads with token %s after %.0f", task.name, tostring(token),
      self.highest)
  end
  self.highest = math.max(self.highest, token or 0)
end

-- The term was lost, and says so.
function Terms:told(task, term, reason)
  self.world:note("%s learns: %s", task.name, reason)
  self.reasons[term] = reason
end

local function check_told(self, mine)
  local reason = mine.term:lost()
  if mine.resigned or mine.ends or mine.task.process.closed then return end
  if not reason or not mine.task.plan.unwatched and self.reasons[mine.term] ~= reason then
    self.world:fail("told", "%s leads no more, it says %s and was told %s", mine.who,
      tostring(reason), tostring(self.reasons[mine.term]))
  end
end

-- client:lead has returned this for its last term.
function Terms:ends(mine, result, code)
  local lost = mine.term:lost()
  if code == "lost" and not lost or result and lost then
    self.world:fail("told", "%s: client:lead returns %s for a term that was %s", mine.who,
      tostring(code or result), lost and "lost: " .. lost or "not lost")
  end
end

-- Notes whether the term continues, and until when at least; 0: it is over.
function Terms:leads(mine, leads, till)
  local now = self.world.now
  mine.till = till
  self.terms[mine.task.slot] = leads and mine or nil
  if not leads then return check_told(self, mine) end
  if mine.resigned then
    self.world:fail("terms", "%s leads, though it has resigned", mine.who)
  end
  for slot = 1, 8 do
    local other = self.terms[slot]
    local both = other and other ~= mine and not other.task.dead and other.till > now
    if both and not self:excuses(mine) and not self:excuses(other) then
      self.world:fail("terms", "%s (until %.6f) and %s (until %.6f) lead", mine.who, till / 1e6,
        other.who, other.till / 1e6)
    end
  end
end

-- client:lead has returned.
function Terms:leads_no_more(task, terms, result, code)
  self.world:note("%s leads no more: %s", task.name, tostring(code or result))
  self.terms[task.slot] = nil
  local over = task.resigned or task.plan.once and terms == 1 or task.process.closed
  local refused = terms == 0 and code == "denied" and self.world.rotates
  if not over and not refused then
    self.world:fail("ended", "%s leads no more after %d of %d terms: %s", task.name, terms,
      task.plan.rounds, tostring(code or result))
  end
end

local leader_watcher = {}

-- → a watcher of leaders, with the rules of Locks for their locks
function leader_watcher.onto(Locks)
  local Watcher = setmetatable({}, { __index = Locks })
  Watcher.__index = Watcher
  for name, method in pairs(Terms) do Watcher[name] = method end
  function Watcher.new(world, servers, plan)
    local self = Locks.new(world, servers, plan)
    self.terms, self.highest, self.reasons = {}, 0, setmetatable({}, { __mode = "k" })
    return setmetatable(self, Watcher)
  end
  return Watcher
end

return leader_watcher
