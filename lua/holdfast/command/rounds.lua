-- Scans all keys on the servers in rounds: page by page, spread over as many calls as needed.
--
-- SCAN finds each key that exists from the beginning to the end of a round. If a round does not
-- find a key that existed before, the key has therefore been deleted.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local rounds = {}

local PAGE = 500 -- COUNT of each SCAN

-- Runs one round after another. Its fields:
--   number          the number of rounds that have begun
--   began           when the current round began; nil between rounds
--   complete_as_of  when the last complete round began; nil until the first round is complete
--   due             when the next round is due
--   scanned_count   approximately the number of keys that the current round has scanned
--   scan_index      the index of the scan that the current round has reached
--   read_seconds    how long reading the current round's pages has taken
--   run_ids         the servers' run ids, or nil if one is unknown
local Scanner = {}
Scanner.__index = Scanner

-- `view`: an object with a field `client`, passed to the functions. `pace`: { factor, min_pause,
-- max_pause }. The pause between rounds is `factor` times as long as reading the last round's pages
-- took, but at least `min_pause` and at most `max_pause` seconds. `visit(view, scan, name)`
-- is called for each key, `finish(view)`, if not nil, at the end of a round; both → true | nil,
-- message, code
function rounds.new(view, scans, pace, visit, finish)
  for _, scan in ipairs(scans) do scan.count = PAGE end
  return setmetatable({
    view = view, scans = scans, pace = pace, visit = visit, finish = finish,
    number = 0, due = 0, scanned_count = 0,
  }, Scanner)
end

-- Returns the scans of a view's rounds, `queues` and `locks`, and its search for latches.
function rounds.scans(view)
  local list = { view.latches }
  for _, round in ipairs { view.queues, view.locks } do
    for _, scan in ipairs(round.scans) do list[#list + 1] = scan end
  end
  return list
end

-- Returns how many connections the client has opened.
local function connections(scanner)
  return core.client.stats(scanner.view.client).connections
end

-- → a string of the servers' run ids | nil if one id is unknown
local function read_run_ids(client)
  local ids = {}
  for i, node in ipairs(core.client.nodes(client)) do
    local info = driver.command(client, { "INFO", "server" }, node)
    ids[i] = type(info) == "string" and info:match "run_id:(%x+)"
    if not ids[i] then return nil end
  end
  return table.concat(ids, " ")
end

-- Stores the servers' run ids, if the client has opened a connection since they were last read.
local function update_run_ids(scanner)
  local count = connections(scanner)
  if count == scanner.connections then return end
  scanner.connections, scanner.run_ids = count, read_run_ids(scanner.view.client)
end

-- Returns whether the servers are still the ones on which the round began, without a restart. A
-- scan that continues on another server, or after a restart, may miss keys.
local function is_valid(scanner)
  local old_run_ids = scanner.run_ids
  if connections(scanner) == scanner.connections then return true end
  update_run_ids(scanner)
  return old_run_ids ~= nil and scanner.run_ids == old_run_ids
end

local function begin_round(scanner, now)
  update_run_ids(scanner)
  scanner.began = now
  scanner.number, scanner.scan_index, scanner.page = scanner.number + 1, 1, nil
  scanner.scanned_count, scanner.read_seconds = 0, 0
  for _, scan in ipairs(scanner.scans) do scan:restart() end
end

-- Aborts the round, so that a new one begins.
function Scanner:abort()
  self.began, self.due = nil, 0
end

-- → true | nil, message, code
local function finish(scanner)
  local was_valid = is_valid(scanner)
  if was_valid and scanner.finish then
    local ok, message, code = scanner.finish(scanner.view)
    if not ok then return nil, message, code end
  end
  if not was_valid or not is_valid(scanner) then
    scanner:abort()
    return true
  end
  local pace = scanner.pace
  scanner.complete_as_of, scanner.began = scanner.began, nil
  local pause = math.max(pace.factor * scanner.read_seconds, pace.min_pause)
  scanner.due = core.now() + math.min(pause, pace.max_pause)
  return true
end

-- Reads the names of the next page. → true | nil, message, code
local function read_page(scanner, scan)
  local start = core.now()
  local page, message, code = scan:names()
  scanner.page, scanner.next, scanner.scanned_count = page, 1, scanner.scanned_count + PAGE
  scanner.read_seconds = scanner.read_seconds + core.now() - start
  return page and true, message, code
end

-- Visits the names on the page. → whether it has visited all of them | nil, message, code
local function visit_page(scanner, scan, must_pause)
  for i = scanner.next, #scanner.page do
    if must_pause() then return false end
    local ok, message, code = scanner.visit(scanner.view, scan, scanner.page[i])
    if not ok then return nil, message, code end
    scanner.next = i + 1
  end
  scanner.page = nil
  if scan.ended then scanner.scan_index = scanner.scan_index + 1 end
  return true
end

-- → true | nil, message, code
local function continue_round(scanner, must_pause)
  repeat
    local scan = scanner.scans[scanner.scan_index]
    if not scan then return finish(scanner) end
    local ok, message, code = scanner.page ~= nil, nil, nil
    if not ok then ok, message, code = read_page(scanner, scan) end
    local visited = ok
    if ok then visited, message, code = visit_page(scanner, scan, must_pause) end
    if visited == nil then return nil, message, code end
  until not visited or must_pause()
  return true
end

-- Continues the current round, or begins the next one if it is due, until the round ends or
-- must_pause() returns true.
-- → true | nil, message, code
function Scanner:continue(now, must_pause)
  if not self.began and now < self.due then return true end
  if not self.began then begin_round(self, now) end
  local ok, message, code = continue_round(self, must_pause)
  if not ok then self:abort() end
  return ok, message, code
end

return rounds
