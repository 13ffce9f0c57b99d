-- Deliberate defects, and how soon the simulator finds each.
--
-- Those of the programs are replacements in the texts that the server runs; those of the core are switches of
-- csrc/core/defects.h, in the build that make sim-defects makes.

local defects = {}

local HASH_ONLY = { "acquire", "begin", "release", "leave", "force", "complete" }

-- { name, what it does, text, replacement, only in these programs }
local IN_PROGRAMS = {
  { "blind_count", "an acquire increments the count", "set_holds(LOCK, OWNER, FROM + 1 + others, LEASE)",
    "redis.call('HINCRBY', LOCK, OWNER, 1) redis.call('PEXPIRE', LOCK, LEASE)", HASH_ONLY },
  { "blind_release", "a release decrements the count", "local to = OWN and count - OWN or TO", "local to = count - 1" },
  { "plain_delete", "a release does not look who holds it",
    "if not count then\nreturn redis.call('EXISTS', LOCK) == 0 and -1 or -2\nend", "count = count or 1" },
  { "token_counts", "tokens come from the counter alone", "math.max((last or 0) + 1, server_us(), floor or 0)",
    "math.max((last or 0) + 1, floor or 0)" },
  { "token_kept", "a grant carries the last token", "pcall(next_token, ttl_ms)",
    "true, tonumber(redis.call('GET', COUNTER) or '1')" },
  { "grant_unheard", "a waiter that cannot hear is granted the lock", "if listens(member) then\nset_holds",
    "if true then\nset_holds" },
  { "leave_keeps", "a wait that ends at the moment of its grant does not pass it on",
    "set_holds(LOCK, OWNER, to, 0)\nelse\npass_on()", "set_holds(LOCK, OWNER, to, 0)\nelse" },
  { "leave_deletes", "…or only deletes the key", "set_holds(LOCK, OWNER, to, 0)\nelse\npass_on()",
    "set_holds(LOCK, OWNER, to, 0)\nelse\nredis.call('DEL', LOCK)" },
  { "leave_stays", "a wait that ends stays in the queue", "redis.call('ZREM', QUEUE, WAITER)\nend\nlocal count",
    "end\nlocal count" },
  { "overtaking", "a newcomer takes the free lock", "if not hand_over(WAITER) then return take(0) end",
    "do return take(0) end" },
  { "tail", "each look goes to the end of the queue", "elseif not score then\nlocal last", "else\nlocal last" },
  { "last_first", "the last waiter is served first", "redis.call('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')",
    "redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')" },
  { "take_any", "a held lock counts as free", "local ttl_ms = redis.call('PTTL', LOCK)", "local ttl_ms = -2" },
  { "renew_creates", "a renewal makes the lost lock anew", "results[i] = redis.call('EXISTS', lock) == 0 and -1 or -2",
    "set_holds(lock, ARGV[2 * i - 1], 1, ARGV[2 * i]) results[i] = 1" },
  { "renew_any", "a renewal does not look who holds it", "if readable and count then", "if true then" },
  { "confirm_any", "an extension does not look who holds it", "if not holds_of(KEYS[1], ARGV[1]) then", "if false then" },
  { "grant_endless", "a granted lock has no TTL", "set_holds(LOCK, owner, 1, GRANT_MS)", "redis.call('HSET', LOCK, owner, 1)",
    HASH_ONLY },
  { "take_endless", "a taken lock has no TTL", "set_holds(LOCK, OWNER, FROM + 1 + others, LEASE)",
    "redis.call('HSET', LOCK, OWNER, FROM + 1 + others)", HASH_ONLY },
  { "untold", "a release hands over to nobody", "elseif waiters > 0 and hand_over() then",
    "elseif false then" },
  { "short_lease", "the server keeps a lock for less than was asked",
    "redis.call('PEXPIRE', lock, ms) end\nend", "redis.call('PEXPIRE', lock, math.floor(ms * 0.9)) end\nend" },
  { "queue_endless", "the queue has no TTL", "redis.call('PEXPIRE', QUEUE, QUEUE_MS)", "" },
  { "bury_all", "a dead waiter takes all others with it",
    "if other:sub(1, 36) == client then redis.call('ZREM', QUEUE, other) end", "redis.call('ZREM', QUEUE, other)" },
  { "done_again", "what was done is run again", "if known[2] then",
    "if known[2] then redis.call('DEL', LOCK) end if false then" },
  { "complete_any", "a guard's end does not look whose run it is", "if not holds_of(LOCK, OWNER) then", "if false then",
    { "complete" } },
  { "done_short", "a record is kept for half the time", "redis.call('PEXPIRE', LOCK, KEEP)",
    "redis.call('PEXPIRE', LOCK, math.ceil(KEEP / 2))", { "complete" } },
  { "record_empty", "a record is empty", "'done', RESULT", "'done', ''", { "complete" } },
  { "print_any", "a guard does not compare fingerprints", "known[1] ~= PRINT then", "false then", { "begin" } },
  { "print_lost", "a run's fingerprint is forgotten", "'print', PRINT)\nredis.call('PEXPIRE'",
    "'print', '')\nredis.call('PEXPIRE'", { "complete" } },
  { "all_some", "what can be had of several locks is taken",
    "if not is_free() then return { 0, i, redis.call('PTTL', LOCK) } end",
    "if not is_free() then return { 0, i, redis.call('PTTL', LOCK) } end set_holds(LOCK, OWNER, 1, LEASE)" },
  { "all_overtakes", "an acquire of several does not look at the queues",
    "return foreign_ms() == 0 and not hand_over()", "return true" },
  { "all_any", "…or whether they are taken", "if redis.call('EXISTS', LOCK) == 1 then return false end\n",
    "redis.call('DEL', LOCK)\n",
    { "acquire_all" } },
  { "all_one", "a release of several lets go of one", "for i = 1, #KEYS / 4 do", "for i = 1, 1 do", { "release_all" } },
  { "all_untold", "a release of several passes nothing on", "pass_on()\nreturn 1\nend\nlocal results",
    "redis.call('DEL', LOCK)\nreturn 1\nend\nlocal results", { "release_all" } },
  { "mutex_any", "a mutex is taken from whoever has it", "return redis.call('GET', lock) == owner and 1 or nil",
    "return redis.call('GET', lock) and 1 or nil" },
  { "mutex_grows", "a mutex never ends", "redis.call('SET', lock, owner, 'PX', ms)", "redis.call('SET', lock, owner)" },
  { "no_turn", "a lock that Redisson waits for is always handed over", "if foreign_waiters(RELEASES) > 0 then",
    "if false then" },
}

-- { switch, what it does }
local IN_CORE = {
  { "NO_VALIDITY", "a hold is believed in after its lease" },
  { "LEASE_FROM_REPLY", "the lease counts from the reply" },
  { "NO_DRIFT", "clocks are taken to run alike" },
  { "GRANT_UNBOUND", "a grant is believed for a whole lease from when it is heard" },
  { "STALE_GRANT", "a grant that may be an old one is believed" },
  { "NO_LOOK_SUBSCRIBED", "no second question once the channel is heard" },
  { "BUSY_LOOK", "a waiter asks without end" },
  { "DEAF", "grants are not heard" },
  { "NO_UNDO", "what an acquire may have left is left" },
  { "NO_END_OF_WAIT", "a wait does not end" },
  { "LOSS_IGNORED", "a renewal that was refused counts" },
  { "RENEWAL_AFTER", "a released hold is renewed" },
  { "NO_RENEWAL", "nothing is renewed after the first time" },
  { "COUNT_TWICE", "a re-entry counts two" },
  { "NO_LOGOUT", "the events link stays open" },
  { "NO_WORD", "a hold is renewed without its owner's word" },
  { "WORD_STAYS", "one word of the owner is good for ever" },
  { "DEAF_TO_WORD", "the owner's word is not heard" },
  { "STRAY_KEPT", "a grant for a lost hold is kept" },
  { "DEAF_TO_ANSWER", "what a given-up acquire of a shared owner took is not known" },
  { "ALL_NO_UNDO", "what an acquire of several may have left is left" },
  { "ALL_FROM_REPLY", "the leases of several count from the reply" },
  { "ALL_BEHIND", "a release of several that failed is forgotten" },
  { "QUORUM_LESS_ONE", "one vote less than a majority is enough" },
  { "NO_WRITE_BACK", "the token of a quorum stays with the server that gave it" },
  { "RAISE_UNHEARD", "…or counts as written back once that is sent" },
  { "TOKEN_LOWEST", "the lowest token of a quorum is the hold's" },
  { "NO_GUARD", "a server that has just restarted has a vote" },
  { "MINORITY_KEPT", "what a lost ballot got is not given back" },
  { "YES_UNCOUNTED", "…what was not counted yet is not" },
  { "LATE_YES_KEPT", "a yes that nobody wants any more is kept" },
  { "FIRST_END", "a hold of a quorum ends with its last part" },
  { "RECORD_UNTOLD", "a server without the lock counts as one that has the record" },
}

local function replaced(text, old, new)
  local from, to = text:find(old, 1, true)
  if not from then return nil end
  return text:sub(1, from - 1) .. new .. (replaced(text:sub(to + 1), old, new) or text:sub(to + 1))
end

local function allowed(only, name)
  if not only then return true end
  for _, other in ipairs(only) do
    if other == name then return true end
  end
  return false
end

local function patch(entry)
  local programs = require "spec.sim.programs"
  local texts = {}
  for name, text in pairs(programs) do
    local new = allowed(entry[5], name) and replaced(text, entry[3], entry[4])
    if new then texts[name] = new end
  end
  assert(next(texts), entry[1] .. " is in no program any more")
  return texts
end

-- All of them, in order: { name =, about =, entry = of a program | nil }
function defects.list()
  local list = {}
  for _, entry in ipairs(IN_PROGRAMS) do list[#list + 1] = { name = entry[1], about = entry[2], entry = entry } end
  for _, entry in ipairs(IN_CORE) do list[#list + 1] = { name = entry[1], about = entry[2] } end
  return list
end

function defects.find(name)
  for _, defect in ipairs(defects.list()) do
    if defect.name == name then return defect end
  end
end

-- Turns the defect on; nil: none. → the options for simulator.run
function defects.turn_on(defect)
  local switch = require("holdfast.core").engine.defect
  if switch then switch(defect and not defect.entry and defect.name or "NONE") end
  if not defect then return {} end
  if not defect.entry then assert(switch, "make sim-defects has not been run") end
  return { patched = defect.entry and patch(defect.entry) }
end

return defects
