-- Scans all keys on the servers in rounds: page by page, spread over as many calls as needed.
--
-- SCAN finds each key that exists from the beginning to the end of a round. If a round does not
-- find a key that existed before, the key has therefore been deleted.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local rounds = {}

local PAGE = 500 -- COUNT of each SCAN

-- A round's fields:
--   number    the number of rounds that have begun
--   began     when the current round began; nil between rounds
--   known_at  when the last complete round began; nil until the first round is complete
--   due       when the next round is due
--   looked    approximately the number of keys that the current round has scanned
local Round = {}
Round.__index = Round

-- `view`: an object with a field `client`, passed to the functions. `pace`: { factor, min_pause,
-- max_pause }. The pause between rounds is `factor` times as long as reading the last round's pages
-- took, but at least `min_pause` and at most `max_pause` seconds. `visit(view, scan, name)`
-- is called for each key, `finish(view)` at the end of a round; both → true | nil, message, code
function rounds.new(view, scans, pace, visit, finish)
  for _, scan in ipairs(scans) do scan.count = PAGE end
  return setmetatable({
    view = view, scans = scans, pace = pace, visit = visit, finish = finish,
    number = 0, due = 0, looked = 0,
  }, Round)
end

-- Returns how many connections the client has opened.
local function connections(round)
  return core.client.stats(round.view.client).connections
end

-- → a string of the servers' run ids | nil if one id is unknown
local function read_servers(client)
  local ids = {}
  for i, node in ipairs(core.client.nodes(client)) do
    local info = driver.command(client, { "INFO", "server" }, node)
    ids[i] = type(info) == "string" and info:match "run_id:(%x+)"
    if not ids[i] then return nil end
  end
  return table.concat(ids, " ")
end

-- Stores the servers' run ids, if the client has opened a connection since they were last read.
local function update_servers(round)
  local count = connections(round)
  if count == round.connections then return end
  round.connections, round.servers = count, read_servers(round.view.client)
end

-- Returns whether the servers are still the ones on which the round began, without a restart. A
-- scan that continues on another server, or after a restart, may miss keys.
local function is_valid(round)
  local old_servers = round.servers
  if connections(round) == round.connections then return true end
  update_servers(round)
  return old_servers ~= nil and round.servers == old_servers
end

local function begin_round(round, now)
  update_servers(round)
  round.began = now
  round.number, round.turn, round.page, round.looked, round.took = round.number + 1, 1, nil, 0, 0
  for _, scan in ipairs(round.scans) do scan:restart() end
end

-- Aborts the round, so that a new one begins.
function Round:abort()
  self.began, self.due = nil, 0
end

-- → true | nil, message, code
local function finish(round)
  local was_valid = is_valid(round)
  if was_valid then
    local ok, message, code = round.finish(round.view)
    if not ok then return nil, message, code end
  end
  if not was_valid or not is_valid(round) then
    round:abort()
    return true
  end
  local pace = round.pace
  round.known_at, round.began = round.began, nil
  local pause = math.min(math.max(pace.factor * round.took, pace.min_pause), pace.max_pause)
  round.due = core.now() + pause
  return true
end

-- Reads the names of the next page. → true | nil, message, code
local function read_page(round, scan)
  local start = core.now()
  local page, message, code = scan:names()
  round.page, round.next, round.looked = page, 1, round.looked + PAGE
  round.took = round.took + core.now() - start
  return page and true, message, code
end

-- Visits the names on the page. → whether it has visited all of them | nil, message, code
local function visit_page(round, scan, must_pause)
  for i = round.next, #round.page do
    if must_pause() then return false end
    local ok, message, code = round.visit(round.view, scan, round.page[i])
    if not ok then return nil, message, code end
    round.next = i + 1
  end
  round.page = nil
  if scan.ended then round.turn = round.turn + 1 end
  return true
end

-- → true | nil, message, code
local function continue_round(round, must_pause)
  repeat
    local scan = round.scans[round.turn]
    if not scan then return finish(round) end
    local ok, message, code = round.page ~= nil, nil, nil
    if not ok then ok, message, code = read_page(round, scan) end
    local visited = ok
    if ok then visited, message, code = visit_page(round, scan, must_pause) end
    if visited == nil then return nil, message, code end
  until not visited or must_pause()
  return true
end

-- Continues the current round, or begins the next one if it is due, until the round ends or
-- must_pause() returns true.
-- → true | nil, message, code
function Round:continue(now, must_pause)
  if not self.began and now < self.due then return true end
  if not self.began then begin_round(self, now) end
  local ok, message, code = continue_round(self, must_pause)
  if not ok then self:abort() end
  return ok, message, code
end

return rounds
