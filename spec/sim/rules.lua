-- Rules that several watchers share.

local wire = require "spec.sim.wire"

local max = math.max

local MAX_COMMANDS = 150 -- of one process per second, in addition to those that its tasks ask for
local MAX_BRISK = 200    -- the same if a lease is 20 ms, which is renewed 150 times a second
local SLACK = 300000      -- µs beyond an operation's time limit
local SOON = 50000        -- µs for which a waiter may rely on a grant without asking again
local CLOSING_US = 400000 -- within which a client closes in a calm schedule
local LEASES_MS = 125000  -- after this time an unused queue is gone, too

local rules = {}

local GENTLE = { give_up = true, stall_link = true }

-- Returns whether nothing in the plan makes an owner lose its hold, or the server keep a hold
-- without an owner.
function rules.is_gentle(plan)
  for _, part in ipairs(plan.parts) do
    local gentle = part.name == "close" or GENTLE[part.name] and part.link == "events"
    if part.late or part.what == "fault" and not gentle then return false end
  end
  return true
end

-- The longest lease of a grant that any process gives, in microseconds.
function rules.longest_grant(plan)
  local longest = plan.grant_lease
  for _, part in ipairs(plan.parts) do
    if part.what == "process" then longest = max(longest, part.grant_lease) end
  end
  return longest * 1000000
end

-- Returns whether a command may arrive after its sender has given it up: then it may take a place
-- or a lock without an owner, and report an older count.
function rules.is_late(plan)
  if plan.gather then return true end
  for _, part in ipairs(plan.parts) do
    if part.late or part.name == "stall_up" then return true end
  end
  return false
end

-- → entry | nil. `name` may be nil: that of a queue that no program has named yet.
function rules.live(server, name)
  local entry = name and server.db.entries[name]
  if entry and entry.expires and server.redis:now_ms() > entry.expires then return nil end
  return entry
end

-- → the queue of this name | nil
function rules.queue_at(server, name)
  local entry = rules.live(server, name)
  return entry and entry.kind == "zset" and entry.value or nil
end

-- A caller whose acquire failed may try again at once, and the failed call may leave its queue much
-- later, which makes the first waiter ask again.
function rules.note_failed_call(process)
  process.late_commands = process.late_commands + 3
end

-- Counts one more command of a process.
function rules.count_command(world, process)
  local now = world.now
  if now - process.commands_since > 1000000 then
    process.commands, process.calls, process.commands_since = 0, 0, now
  end
  process.commands = process.commands + 1
  local most = world.brisk and MAX_BRISK or MAX_COMMANDS
  if process.commands <= most + 2 * process.calls then return end
  process.late_commands = process.late_commands - 1
  if process.late_commands < 0 then
    world:fail("spin", "%s has sent more than %d commands in a second", process.name, most)
  end
end

-- Checks that a client does not renew a hold after its release, or after its owner has been gone
-- for longer than it may take to notice.
function rules.check_renewal(world, client, key, owner)
  local process, hold = client.process, owner .. " " .. key
  local released, vanished = process.released[hold], process.vanished[hold]
  if released and client.sent_at > released then
    world:fail("renewal", "%s renews %s after its release", process.name, key)
  end
  if vanished and client.sent_at > vanished + 2e6 * process.plan.command_timeout then
    world:fail("renewal", "%s renews %s without its owner's word", process.name, key)
  end
end

-- Checks that a waiter in the queue does not ask for its lock if it received the grant soon after
-- it last asked.
function rules.check_asking(world, client, wait)
  local process = client.process
  local asked_at, granted_at = process.asked_at[wait], process.granted_at[wait]
  process.asked_at[wait] = client.sent_at
  local fresh = asked_at and granted_at and granted_at - asked_at < SOON
  if fresh and client.sent_at > granted_at then
    world:fail("again", "%s asks again for what it was granted %.6f s before", process.name,
      (client.sent_at - granted_at) / 1e6)
  end
end

-- Checks what a client says it is busy with, between two events: the operations that have not
-- ended, and the holds that are its own or may become so. A busy process may not have noticed yet
-- that a hold is lost.
function rules.check_load(process, operations, held)
  local world, calls, holds = process.world, 0, 0
  for _, task in ipairs(process.tasks) do
    if not (task.over or task.dead) then calls = calls + task:count_calls() end
    holds = holds + task:count_holds()
  end
  if operations < calls then
    world:fail("load", "%s says that %d calls are under way, not %d", process.name, operations, calls)
  end
  if held == 0 and holds > 0 and not process.plan.busy then
    world:fail("load", "%s says that it holds nothing, but its callers have %d holds", process.name,
      holds)
  end
end

-- The key of forged grants.
rules.FORGED = "forged"

-- Checks that a forged grant makes no client write anything.
function rules.check_forged(world, server)
  for name in pairs(server.db.entries) do
    if name:find(rules.FORGED, 1, true) then
      world:fail("forged", "a forged grant has made the key %s", name)
    end
  end
end

-- → the client's first place in the queue | nil
function rules.place_of(queue, uuid)
  for i, member in ipairs(queue and queue.members or {}) do
    local waits = queue.scores[i] > 0 and not wire.is_record(member)
    if waits and wire.client_of(member) == uuid then return member end
  end
end

-- → the server's clock as places have it: in the far future it continues between 2112 and 2184
local function clock_of_places(server)
  local us = server.redis.now_us
  return us < 4.5e15 and us or 4.5e15 + us % 2.25e15
end

-- → the set of the scores in a queue that are not before the server's clock
local function late_scores(queue, now)
  local set = {}
  for _, score in ipairs(queue and queue.scores or {}) do set[score] = score >= now end
  return set
end

-- → what check_place needs to know before an acquire runs that will enter a waiter into its queue:
-- the member, and the late scores there | nil: it is another command
function rules.newcomer(server, name, args)
  local member = wire.ACQUIRES[name] and wire.member_in(args) or ""
  local queue = rules.queue_at(server, args[6])
  if member == "" or queue and queue.score_of[member] then return nil end
  return { member = member, late = late_scores(queue, clock_of_places(server)) }
end

-- A place is the time by the server's clock at which its waiter came, or follows a place that is
-- not before that time.
function rules.check_place(server, args, newcomer)
  local queue, now = rules.queue_at(server, args[6]), clock_of_places(server)
  local place = queue and queue.score_of[newcomer.member]
  if not place or place <= 0 or place == now or newcomer.late[place - 1] then return end
  server.world:fail("place", "%s: %s came at %.6f, but its place is %.6f", args[4], newcomer.member,
    now / 1e6, place / 1e6)
end

-- Puts the waiters that were passed over into a set.
function rules.note_passed_over(queue, set)
  for i, member in ipairs(queue and queue.members or {}) do
    local score = queue.scores[i]
    if score >= 0 then return end
    if score > -1 then set[member] = true end
  end
end

local function check_closed(watcher, process)
  local what, key = watcher:left_by(process.uuid)
  if not what then return end
  watcher.world:fail("closed", "%s: %s stands there, though %s was closed %.3f s ago", key, what,
    process.name, CLOSING_US / 1e6)
end

-- A client was closed: it gives up at once what it has or waits for.
function rules.closes(watcher, process)
  if not (watcher.calm and watcher.left_by) then return end
  watcher.world:at(watcher.world.now + CLOSING_US, check_closed, watcher, process)
end

-- How long an operation may take, in simulated time; nil: for ever.
function rules.bound(process, verb, wait)
  local timeout = process.plan.command_timeout
  if verb ~= "acquire" and verb ~= "await" then return (2 * timeout + 0.1) * 1e6 + SLACK end
  if wait == math.huge then return nil end
  return (wait > 0 and wait + 1 or 2 * timeout + 1.2) * 1.01e6 + SLACK
end

-- Checks that the tokens of one key grow. excused: this one need not
function rules.check_token(world, key, claim, excused)
  if not claim.token then
    world:fail("token", "%s: %s has no token", key.name, claim.who)
  elseif claim.token <= key.last_token and not excused then
    world:fail("token", "%s: %s got token %.0f after %.0f", key.name, claim.who, claim.token,
      key.last_token)
  end
  key.last_token = max(key.last_token, claim.token or 0)
end

-- A write to a store that checks tokens; excused: it may be refused although its lock is held. →
-- whether it was accepted
function rules.write(world, key, claim, excused)
  local store = key.store
  if not claim.token then return false end
  if claim.token >= (store.token or 0) then
    store.token = claim.token
    return true
  end
  if claim.till > world.now and not claim.shared and not excused then
    world:fail("fence", "%s: the store refuses %s, which holds it", key.name, claim.who)
  end
  return false
end

-- Checks that at the end no living process is subscribed. where: how messages name the server, if
-- there are several
function rules.check_channels(world, processes, redis, where)
  for _, process in pairs(processes) do
    if not process.dead and redis.channels[wire.channel_of(process.uuid)] then
      world:fail("orphan", "%s is still subscribed%s", process.name, where or "")
    end
  end
  if next(redis.patterns) then world:fail("orphan", "a pattern is still subscribed to") end
end

-- Checks that long after the end there is no queue.
function rules.check_queues_gone(self)
  self.world.now = self.world.now + LEASES_MS * 1000
  self.server.redis:read_clock()
  for _, name in ipairs(self.names) do
    if rules.live(self.server, self.keys[name].queue) then
      self.world:fail("orphan", "the queue of %s is still there", name)
    end
  end
end

return rules
