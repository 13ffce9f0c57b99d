-- Rounds through all keys of the servers, page by page, spread over as many calls as they need.
--
-- SCAN finds each key that exists from the beginning of a round to its end. So a key that existed
-- before and that the round did not find has been deleted.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local rounds = {}

local PAGE = 500 -- keys that one SCAN visits

-- A round's fields:
--   number    how many rounds have begun
--   began     when the current one began; nil between rounds
--   known_at  when the last complete one began; nil before the first one is complete
--   due       when the next one is due
--   looked    about how many keys the current one has looked at
local Round = {}
Round.__index = Round

-- `view`: has the field client. `pace`: the pause between rounds, in seconds: `share` times as
-- long as reading the last round's pages took, but at least `least` and at most `most`.
-- `visit(view, scan, name)`; `finish(view)`, at a round's end: → true | nil, message, code
function rounds.new(view, scans, pace, visit, finish)
  for _, scan in ipairs(scans) do scan.count = PAGE end
  return setmetatable({
    view = view, scans = scans, pace = pace, visit = visit, finish = finish,
    number = 0, due = 0, looked = 0,
  }, Round)
end

-- Returns how many times the client has connected.
local function connections(round)
  return core.client.stats(round.view.client).connections
end

-- → a string that identifies the servers | nil if one of them sends none
local function read_servers(client)
  local list = {}
  for i, node in ipairs(core.client.nodes(client)) do
    local text = driver.command(client, { "INFO", "server" }, node)
    list[i] = type(text) == "string" and text:match "run_id:(%x+)"
    if not list[i] then return nil end
  end
  return table.concat(list, " ")
end

-- Finds out which servers these are, if the client has connected since the last time.
local function note_servers(round)
  local count = connections(round)
  if count == round.connections then return end
  round.connections, round.servers = count, read_servers(round.view.client)
end

-- Returns whether the servers are the same, and have not restarted, since the round began. A scan
-- that continues on another server, or after a restart, has not met all keys.
local function is_whole(round)
  local before = round.servers
  if connections(round) == round.connections then return true end
  note_servers(round)
  return before ~= nil and round.servers == before
end

local function begin(round, now)
  note_servers(round)
  round.began = now
  round.number, round.turn, round.page, round.looked, round.took = round.number + 1, 1, nil, 0, 0
  for _, scan in ipairs(round.scans) do scan:restart() end
end

-- Ends the round without a result, so that a new one begins.
function Round:give_up()
  self.began, self.due = nil, 0
end

-- → true | nil, message, code
local function finish(round)
  local was_whole = is_whole(round)
  if was_whole then
    local ok, message, code = round.finish(round.view)
    if not ok then return nil, message, code end
  end
  if not was_whole or not is_whole(round) then
    round:give_up()
    return true
  end
  local pace = round.pace
  round.known_at, round.began = round.began, nil
  round.due = core.now() + math.min(math.max(pace.share * round.took, pace.least), pace.most)
  return true
end

-- Reads the names of the next page. → true | nil, message, code
local function turn_page(round, scan)
  local from = core.now()
  local page, message, code = scan:names()
  round.page, round.next, round.looked = page, 1, round.looked + PAGE
  round.took = round.took + core.now() - from
  return page and true, message, code
end

-- Visits the names on the page. → whether all were visited | nil, message, code
local function visit_page(round, scan, is_enough)
  for i = round.next, #round.page do
    if is_enough() then return false end
    local ok, message, code = round.visit(round.view, scan, round.page[i])
    if not ok then return nil, message, code end
    round.next = i + 1
  end
  round.page = nil
  if scan.ended then round.turn = round.turn + 1 end
  return true
end

-- → true | nil, message, code
local function continue_round(round, is_enough)
  repeat
    local scan = round.scans[round.turn]
    if not scan then return finish(round) end
    local ok, message, code = round.page ~= nil, nil, nil
    if not ok then ok, message, code = turn_page(round, scan) end
    local visited = ok
    if ok then visited, message, code = visit_page(round, scan, is_enough) end
    if visited == nil then return nil, message, code end
  until not visited or is_enough()
  return true
end

-- Continues the round until it ends or is_enough() returns true. Begins a new one if it is due.
-- → true | nil, message, code
function Round:continue(now, is_enough)
  if not self.began and now < self.due then return true end
  if not self.began then begin(self, now) end
  local ok, message, code = continue_round(self, is_enough)
  if not ok then self:give_up() end
  return ok, message, code
end

return rounds
