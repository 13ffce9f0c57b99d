-- Mutants, and how soon the simulator finds each.
--
-- Mutants of the programs are replacements in the texts that the server runs; those of the core are
-- replacements in its sources (core_mutants.lua), in the build that make sim-mutants makes.

local core_mutants = require "spec.sim.core_mutants"
local functions = require "spec.sim.functions"
local patches = require "spec.sim.patches"

local unpack = table.unpack or unpack

local mutants = {}

local READ_WRITE = { "rw_acquire", "rw_release", "rw_leave", "rw_force" }
local HASH_ONLY = { "acquire", "begin", "release", "leave", "force", "complete" }

-- { name, what it does, where, text, replacement, only in these programs }: the text is in these
-- files, each in a folder of csrc/programs, in the function after ":" if one is named, or in a
-- program if the text is in parts of several files; a blank stands for any white space. A row whose
-- text is gone is left out; make check reports it: tools/check_rows.lua.
local IN_PROGRAMS = {
  { "blind_count", "an acquire increments the count", "acquiring.lua:take",
    "set_holds(LOCK, OWNER, FROM + 1 + others, LEASE, FINGERPRINT)",
    "redis.call('HINCRBY', LOCK, OWNER, 1) redis.call('PEXPIRE', LOCK, LEASE)", HASH_ONLY },
  { "blind_release", "a release decrements the count", "release.lua",
    "local remaining = count and (RELEASE_COUNT and count - RELEASE_COUNT or REMAINING) or 0",
    "local remaining = (count or 1) - 1" },
  { "plain_delete", "a release does not check the owner", "release.lua", "if not removed then", "redis.call('DEL', LOCK)\nif false then" },
  { "head_held", "an acquire of the common case does not check whether the lock is held",
    "acquire.lua", "WAITER == '' and call('EXISTS', LOCK, QUEUE) == 0", "WAITER == '' and call('EXISTS', QUEUE) == 0" },
  { "head_overtakes", "…or whether others wait", "acquire.lua",
    "WAITER == '' and call('EXISTS', LOCK, QUEUE) == 0", "WAITER == '' and call('EXISTS', LOCK) == 0" },
  { "head_clock", "…or whether the counter is ahead of the clock", "token.lua",
    "last and last < token and last % 8",
    "last and last % 8" },
  { "head_left", "…or leaves a token in the counter that it has not drawn", "drawing.lua",
    "call('SET', COUNTER, previous, 'KEEPTTL')", "" },
  { "head_endless", "…or gives the lock no TTL", "acquire",
    "local lock, ms = LOCK, LEASE if redis.pcall('PEXPIRE', lock, ms) ~= 1 then", "if false then\n" },
  { "head_short", "…or one shorter than its lease", "hash.lua",
    "call('HSET', LOCK, OWNER, '1') local lock, ms = LOCK, LEASE",
    "call('HSET', LOCK, OWNER, '1')\nlocal lock, ms = LOCK, math.floor(LEASE * 0.9)" },
  { "token_counts", "tokens come from the counter alone", "token.lua:next_token",
    "math.max((last or 0) + 1, now, floor or 0)",
    "math.max((last or 0) + 1, floor or 0)" },
  { "token_kept", "a grant carries the last token", "granting.lua",
    "pcall(next_token, ttl_ms, nil, now_us, keeps(owner) and range_end)",
    "true, tonumber(redis.call('GET', COUNTER) or '1')" },
  { "grant_unheard", "a waiter that is not subscribed is granted the lock", "members.lua:reject_unservable",
    "return not alive[channel_of(member)]",
    "return false" },
  { "heir_unheard", "…by the usual release", "release.lua",
    "if (counts[4] or 0) > 0 and foreign_waiters(RELEASES, counts[2]) == 0 then",
    "if foreign_waiters(RELEASES, counts[2]) == 0 then" },
  { "pattern_foreign", "who gets the message of a release is taken for Redisson", "release.lua",
    "if foreign_waiters(RELEASES) > 0 then give_foreign_turn(nil) end", "give_foreign_turn(nil)" },
  { "heir_first", "the usual release hands over a lock that Redisson waits for", "release.lua",
    "if (counts[4] or 0) > 0 and foreign_waiters(RELEASES, counts[2]) == 0 then",
    "if (counts[4] or 0) > 0 then" },
  { "mark_kept", "the usual release leaves the mark of its own grant", "release.lua",
    "if first_few[i - 1] == '0' then redis.call('ZREM', QUEUE, first_few[i - 2]) end", "" },
  { "leave_keeps", "a wait that ends at the moment of its grant does not pass it on", "leave.lua",
    "set_holds(LOCK, OWNER, remaining, 0) return 1 end return pass_on()",
    "set_holds(LOCK, OWNER, remaining, 0)\nend\nreturn 1" },
  { "leave_deletes", "…or only deletes the key", "leave.lua",
    "set_holds(LOCK, OWNER, remaining, 0) return 1 end return pass_on()",
    "set_holds(LOCK, OWNER, remaining, 0)\nelse redis.call('DEL', LOCK)\nend\nreturn 1" },
  { "leave_stays", "a wait that ends stays in the queue", "leave.lua",
    "granted_member = forget_wait(WAITER) if not first_after_record()",
    "if not first_after_record()" },
  { "overtaking", "a newcomer takes the free lock", "acquiring.lua",
    "local handed_over = hand_over(WAITER)",
    "local handed_over = false" },
  { "tail", "each recheck moves the first waiter to the end of the queue",
    "behind.lua queueing.lua:enqueue",
    "call('ZADD', QUEUE, 'NX', place, WAITER) == 1 then",
    "call('ZADD', QUEUE, place, WAITER) then" },
  { "tail_behind", "…or another one", "behind.lua",
    "usual and call('ZADD', QUEUE, 'NX', place, WAITER) == 1 then",
    "usual and call('ZADD', QUEUE, place, WAITER) then" },
  { "handed_deaf", "a hand-over in straight lines does not check whether the waiter listens",
    "hash.lua permit_release.lua", "(counts[4] or 0) > 0 and unqueued", "unqueued" },
  { "handed_past", "…or whether Redisson waits", "hash.lua",
    "(counts[4] or 0) > 0 and unqueued == 0", "(counts[4] or 0) > 0" },
  { "handed_kept", "…or whether the waiter keeps the lock", "hash.lua",
    "and owner:byte(38) ~= 48 then local counts",
    " then\nlocal counts" },
  { "handed_endless", "…or gives the lock no TTL", "release",
    "local lock, ms = LOCK, GRANT_MS if redis.pcall('PEXPIRE', lock, ms) ~= 1 then", "if false then\n" },
  { "handed_unmarked", "…or leaves no mark of the grant",
    "granting.lua hash.lua permit_granting.lua:announce_grant permit_release.lua",
    "call('ZADD', QUEUE, '0', member)",
    "call('ZREM', QUEUE, member)\n" },
  { "handed_mark", "…or leaves that of the last one", "hash.lua",
    "if i == 3 then call('ZREM', QUEUE, heads[1]) end", "" },
  { "handed_untold", "…or sends no grant", "hash.lua",
    "redis.pcall('PUBLISH', 'holdfast_grant:' .. client, '1 grant l '",
    "redis.pcall('PUBLISH', 'nobody:' .. client, '1 grant l '" },
  { "last_first", "the last waiter is served first", "release.lua",
    "and redis.pcall('ZRANGE', QUEUE, '0', LAST_READ, 'WITHSCORES')",
    "and redis.pcall('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')" },
  { "queue_unseen", "a release does not look for waiters", "release.lua",
    "redis.pcall('EXISTS', QUEUE) == 1 and", "false and" },
  { "take_any", "a held lock counts as free", "acquiring.lua",
    "local lock_ms = redis.call('PTTL', LOCK)",
    "local lock_ms = -2" },
  { "renew_creates", "a renewal recreates a lost lock", "renew.lua rw_renew.lua",
    "results[i] = redis.call('EXISTS', lock) == 0 and -1 or -2",
    "redis.call('HSET', lock, ARGV[2 * i - 1], 1) "
    .. "redis.call('PEXPIRE', lock, ARGV[2 * i]) results[i] = 1" },
  { "renew_any", "a renewal does not check the owner", "renew.lua", "if readable and count then",
    "if true then" },
  { "confirm_any", "an extension does not check the owner", "extend.lua",
    "if not holds_of(KEYS[1], ARGV[1]) then", "if false then" },
  { "grant_endless", "a granted lock has no TTL", "granting.lua",
    "create_hold(LOCK, owner, GRANT_MS, kind",
    "write_hold(LOCK, owner, 1, kind",
    HASH_ONLY },
  { "take_endless", "a taken lock has no TTL", "fresh.lua",
    "create_hold(LOCK, OWNER, LEASE, FINGERPRINT)",
    "write_hold(LOCK, OWNER, 1, FINGERPRINT)", HASH_ONLY },
  { "untold", "a release hands the lock to no waiter", "queue.lua:pass_on",
    "if can_grant and foreign == 0 then",
    "if false then" },
  { "short_lease", "the server keeps a lock for less than its lease", "acquire",
    "write_hold(lock, owner, '1', fingerprint) if redis.pcall('PEXPIRE', lock, ms)",
    "write_hold(lock, owner, '1', print)\nif redis.pcall('PEXPIRE', lock, math.floor(ms * 0.9))" },
  { "queue_endless", "the queue has no TTL", "queueing.lua:enqueue",
    "if not last then redis.call('PEXPIRE', QUEUE, QUEUE_MS) end", "" },
  { "bury_all", "a dead waiter takes all others with it", "settling.lua:evict",
    "if client_of(member) == client then gone[#gone + 1] = member end",
    "gone[#gone + 1] = member" },
  { "done_again", "a guard's finished run is run again", "begin.lua",
    "if stored[1] and stored[2] then",
    "if stored[1] and stored[2] then redis.call('DEL', LOCK) end if false then" },
  { "complete_any", "the end of a guard's run does not check whose run it is",
    "complete.lua", "if not holds_of(LOCK, OWNER) then", "if false then",
    { "complete" } },
  { "done_short", "a record is kept for half the time", "complete.lua",
    "redis.call('PEXPIRE', LOCK, KEEP)",
    "redis.call('PEXPIRE', LOCK, math.ceil(KEEP / 2))", { "complete" } },
  { "record_empty", "a record is empty", "complete.lua", "'done', RESULT", "'done', ''", { "complete" } },
  { "print_any", "a guard does not compare fingerprints", "begin.lua", "stored[1] ~= FINGERPRINT then", "false then",
    { "begin" } },
  { "print_lost", "a run's fingerprint is forgotten", "complete.lua", "'print', FINGERPRINT, 'by'", "'print', '', 'by'",
    { "complete" } },
  { "complete_twice", "the end of a run that finds no record counts as a repeat", "complete.lua",
    "if redis.call('HGET', LOCK, 'by') == OWNER then", "if redis.call('EXISTS', LOCK) == 0 then",
    { "complete" } },
  { "all_some", "of several locks, the free ones are taken", "acquire_all.lua",
    "if reply then return reply end",
    "if reply then return reply end set_holds(LOCK, OWNER, 1, LEASE)" },
  { "all_overtakes", "an acquire of several does not check the queues", "acquire_all.lua:serve_others",
    "if redis.call('EXISTS', QUEUE) == 0 then return true end",
    "do return true end",
    { "acquire_all" } },
  { "all_any", "…or whether they are taken", "acquire_all.lua:refusal fair_acquire.lua",
    "local _, count, kind = holder_of(LOCK, OWNER)",
    "redis.call('DEL', LOCK)\nlocal count, kind\n",
    { "acquire_all" } },
  { "all_one", "a release of several releases only one", "release_all.lua", "results[i] = release(",
    "results[i] = i > 1 and 1 or release(", { "release_all" } },
  { "all_untold", "a release of several hands nothing over", "release_all.lua",
    "return pass_on() end local results",
    "redis.call('DEL', LOCK)\nreturn 1\nend\nlocal results", { "release_all" } },
  { "mutex_any", "a mutex is taken from its holder", "string.lua:holds_of",
    "return redis.call('GET', lock) == owner and 1 or nil",
    "return redis.call('GET', lock) and 1 or nil" },
  { "mutex_grows", "a mutex never ends", "string.lua:create_hold",
    "redis.call('SET', lock, owner, 'PX', ms)",
    "redis.call('SET', lock, owner)" },
  { "release_any_hold", "a late release frees a newer hold of its client", "release.lua",
    "if ARGV[2] and (ARGV[3] ~= '0' or ARGV[5] ~= '') then",
    "local now = redis.call('TYPE', LOCK).ok == 'hash' and redis.call('HKEYS', LOCK)[1]\n"
    .. "or redis.pcall('GET', LOCK)\n"
    .. "if type(now) == 'string' and now:sub(1, 36) == OWNER:sub(1, 36) then OWNER = now end\n"
    .. "if ARGV[2] and (ARGV[3] ~= '0' or ARGV[5] ~= '') then", { "release", "mutex_release" } },
  { "place_kept", "a waiter's place is always the same", "queueing.lua:enqueue",
    "digits(math.max((last or 0) + 1, server_us()))", "digits(FRONT_MAX + 1)" },
  { "place_follows", "a waiter that queues behind others gets the next place, whatever time it is",
    "behind.lua", "if us <= last then", "if us > 0 then" },
  { "place_follows_all", "…or any waiter, in a queue that is not empty", "queueing.lua:enqueue",
    "math.max((last or 0) + 1, server_us())", "last and last > FRONT_MAX and last + 1 or server_us()" },
  { "queue_shared", "keys with and without a brace have one queue", "acquire.lua keys.lua release.lua",
    "KEYS[2], KEYS[3], KEYS[4]", "KEYS[2], KEYS[3]:gsub('::', ':'), KEYS[4]" },
  { "mark_erased", "a process that joins a shared owner erases the mark of another's grant",
    "acquiring.lua:take", "return { 1, token, others,",
    "if FROM > 0 then redis.pcall('ZREMRANGEBYSCORE', QUEUE, 0, 0) end\nreturn { 1, token, others," },
  { "grant_kind", "a grant names another kind of lock", "granting.lua", "'1 grant ' .. kind .. ' '",
    "'1 grant l '" },
  { "first_kept", "a first waiter that does not recheck is never passed over",
    "passing_over.lua:check_ahead", "local stays = first", "local stays = true or first" },
  { "lease_stays", "the lease of a reader that releases stays on the lock", "rw_release.lua",
    "local longest_ms, fields = own_lease_ms < lock_ms and own_lease_ms or 0, nil",
    "local longest_ms, fields = own_lease_ms, nil", { "rw_release" } },
  { "reader_beside", "a reader comes in beside a writer", "rw_acquire.lua",
    "holds == 0 and (not lock_mode or lock_mode == 'read')", "holds == 0 and true" },
  { "reader_leaves_all", "a release ends all read holds of its owner", "rw_release.lua",
    "if REMAINING == 0 and holds == 1 and redis.call('EXISTS', QUEUE) == 0 then",
    "if holds == 1 or holds == 2 then" },
  { "fair_turn_kept", "a waiter that does not take the fair lock is waited for",
    "fair_queue.lua:notify_waiter", "if till <= soon then return end", "do return end" },
  { "no_turn", "a lock that Redisson waits for is always handed over", "queue.lua:pass_on",
    "if can_grant and foreign == 0 then",
    "if can_grant then" },
  { "run_long", "…ours take turns for as long as theirs lasted, however many those are",
    "turns.lua:add_turn", "if record.turns >= max_turns then return false end", "" },
  { "run_endless", "…however short their turn was", "turns.lua:add_turn",
    "if since_ms < 0 or since_ms * (record.turns + 1) > record.run * record.turns then", "if record.run == 0 then" },
  { "taker_stays", "a waiter that takes the lock stays in the queue",
    "acquiring.lua:take permit_acquire.lua:take rw_acquire.lua:take",
    "if WAITER ~= '' then redis.call('ZREM', QUEUE, WAITER) end", "" },
  { "mark_stays", "a confirmation leaves the grant's mark in the queue",
    "extend.lua permit_extend.lua rw_extend.lua",
    "if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end", "" },
  { "granted_kept", "a wait of a shared owner that ends keeps the lock it was granted", "leave.lua",
    "if RELEASE_COUNT == 0 and granted_member then RELEASE_COUNT = 1 end", "" },
  { "renew_shortens", "a renewal shortens a longer TTL", "renew.lua",
    "math.max(redis.call('PTTL', lock), tonumber(ARGV[2 * i]))", "ARGV[2 * i]" },
  { "token_equal", "a token may equal the last one", "token.lua:next_token",
    "math.max((last or 0) + 1,",
    "math.max(last or 0," },
  { "release_short", "a partial release renews nothing", "release.lua",
    "set_holds(LOCK, OWNER, remaining, LEASE)",
    "set_holds(LOCK, OWNER, remaining, 0)" },
  { "permit_overdrawn", "a waiter takes permits that are not free", "permit_acquire.lua",
    "and free - kept >= #lacking(IDS) then", "then" },
  { "permit_overtakes", "a newcomer takes permits that others wait for", "permit_acquire.lua",
    "if (not first_left or first_left == WAITER) and free",
    "if free" },
  { "permit_passes_by", "a request that needs more than is free is passed by",
    "permit_queue.lua:serve_batch", "stopped = #lacking_ids > free if not stopped then",
    "if #lacking_ids <= free then" },
  { "permit_early", "permits are taken back before their lease has ended",
    "pool_changes.lua:reclaim", "'-inf', digits(NOW), 'LIMIT'", "'-inf', digits(NOW + 100), 'LIMIT'" },
  { "permit_lost", "permits that are given back are not free", "pool_changes.lua:add_free",
    "if #ids == 0 or not FREE then",
    "if true then" },
  { "permit_counted_twice", "permits that the owner has are counted again", "pool_changes.lua:take_permits",
    "local count = #lacking(ids)", "local count = #ids" },
  { "permit_renew_creates", "a renewal takes permits again", "permit_renew.lua",
    "if readable and first_end then",
    "first_end = first_end or NOW if readable then" },
  { "permit_short", "the server keeps permits for less than their lease", "permit_acquire.lua:take",
    "math.max(NOW + LEASE, last + 1)",
    "NOW + LEASE * 0.9" },
  { "permit_leave_keeps", "a wait that ends keeps what it was granted", "permit_leave.lua",
    "put_back(all_ids_of(OWNER))",
    "0" },
  { "permit_untold", "permits that are given back are handed to no waiter",
    "permit_leave.lua permit_release.lua", "local result = pass_on(freed)",
    "local result = 1" },
  { "permit_head_stood", "the usual acquire does not check whether the owner has the permit",
    "permit_acquire.lua", "is_usual and call('ZSCORE', LEASES, id)", "false" },
  { "permit_head_overtakes", "…or whether others wait", "permit_acquire.lua",
    "(own_end or not has_queue)", "true" },
  { "permit_head_none", "…or whether a permit is free", "permit_acquire.lua",
    "none_free or FREE and FREE > 0", "none_free or FREE" },
  { "permit_head_uncounted", "…or counts it as free", "permit_acquire.lua",
    "call('INCRBY', LOCK, '-1')", "" },
  { "permit_head_short", "…or gives it a shorter lease", "permit_acquire.lua",
    "local ms = NOW + LEASE",
    "local ms = NOW + LEASE * 0.5\n" },
  { "permit_head_unextended", "…or leaves a granted permit its short lease", "permit_acquire.lua",
    "if own_end then call('ZADD', LEASES, till, id)", "if own_end then" },
  { "permit_head_queued", "…or leaves its taker in the queue", "permit_acquire.lua",
    "if WAITER ~= '' then call('ZREM', QUEUE, WAITER) end", "" },
  { "permit_unbacked", "the usual release announces a permit that it has not recorded",
    "permit_acquire.lua", "redis.pcall('ZADD', LEASES, 'NX', till, id)", "redis.pcall('ZADD', LEASES, 'NX', till, '')", { "permit_release" } },
  { "permit_handed_deaf", "…or does not check whether the waiter listens", "permit_release.lua",
    "local usual = (counts[4] or 0) > 0 and", "local usual =" },
  { "permit_handed_past", "…or whether Redisson waits", "permit_release.lua",
    "local usual = (counts[4] or 0) > 0 and unqueued == 0", "local usual = (counts[4] or 0) > 0" },
  { "permit_two", "the usual release gives one permit to a waiter that needs several",
    "permit_release.lua", "'^1p([%x-]+):(%d+):(%d+)$'", "'^1p([%x-]+):(%d+):(%d+)'" },
  { "joins_own_grant", "a shared owner that joins its own grant has two holds", "acquiring.lua",
    "if is_granted() then return take(count - 1 - FROM) end", "" },
  { "range_unreserved", "the tokens of a kept lock are not reserved", "token.lua:next_token",
    "digits(final or token)", "digits(token)" },
  { "wish_unsaid", "a client that keeps a lock is not notified that others want it",
    "acquiring.lua:busy", "is_kept and ahead == 0 and not request_lock(holder)", "false" },
  { "wish_late", "…by a newcomer that hands it over", "acquiring.lua",
    "return busy(tonumber(GRANT_MS), false, holder)",
    "return busy(tonumber(GRANT_MS), false)" },
  { "reader_passes", "a reader passes a writer that waits", "rw_queue.lua:serve_batch",
    "admit_writer(member, tonumber(members[i + 1])) end may_continue = false",
    "admit_writer(member, tonumber(members[i + 1])) end\nmay_continue = true" },
  { "writer_joins", "a writer comes in while others read", "rw_queue.lua:serve_batch",
    "if not state.mode then admit_writer",
    "if true then admit_writer" },
  { "reader_joins", "a newcomer joins the readers past the queue", "rw_acquire.lua",
    "mode and call('EXISTS', QUEUE) == 0 and foreign", "mode and foreign" },
  { "writer_enters", "a writer does not check whether others hold the lock", "rw_acquire.lua",
    "':write' and call('EXISTS', LOCK, QUEUE) == 0", "':write' and call('EXISTS', QUEUE) == 0" },
  { "writer_overtakes", "…or whether others wait", "rw_acquire.lua",
    "':write' and call('EXISTS', LOCK, QUEUE) == 0", "':write' and call('EXISTS', LOCK) == 0" },
  { "readers_deleted", "the last reader's release takes the lock from the others",
    "rw_queue.lua:on_reader_left",
    "local live, longest = prune_readers() if live == 0 then redis.call('DEL', LOCK) return pass_on('0')",
    "local live, longest = 0, 0\nif live == 0 then\nredis.call('DEL', LOCK)\nreturn pass_on('0')" },
  { "holds_unrenewed", "a renewal leaves a reader's own lease as it is", "rw.lua:renew_holds",
    "set_lease(key, math.max(redis.call('PTTL', key), ms))", "" },
  { "downgrade_frees", "a writer's release takes its read lock, too", "rw_queue.lua:on_writer_left",
    "if live == 0 then redis.call('DEL', LOCK) return pass_on('1')",
    "if true then\nredis.call('DEL', LOCK)\nreturn pass_on('1')" },
  { "downgrade_untold", "a writer that goes on as a reader lets no reader in",
    "rw_queue.lua:on_writer_left", "local _, _, more = serve('read') return",
    "local more\nreturn" },
  { "java_untold", "Redisson's waiters are not notified when a read/write lock becomes free",
    "rw_queue.lua:pass_on", "notify(member, 'turn', RECHECK_MS) announce_free(payload)",
    "notify(member, 'turn', RECHECK_MS)" },
  { "java_overtaken", "Redisson's waiters get no turn", "rw_queue.lua:pass_on",
    "if foreign and not is_ours then", "if false then" },
  { "rw_run_endless", "…or none while a client of holdfast waits", "rw_queue.lua:pass_on",
    "and add_turn(record, now_ms())", "" },
  { "readers_one_by_one", "only the first of several waiting readers comes in",
    "rw_queue.lua:serve_batch", "state.mode = 'read' end if not may_continue",
    "state.mode = 'read'\nmay_continue = false\nend\nif not may_continue" },
  { "reader_draws", "a reader draws a token", "rw_acquire.lua",
    "'0' and 0 or tonumber(call('GET', COUNTER)))", "'0' and 0 or call('INCRBY', COUNTER, 8))" },
  { "own_refused", "a writer may not read", "rw_acquire.lua",
    "holds > 0 or WRITER and lock_mode == 'write'",
    "holds > 0 or WRITER and mode == 'none'" },
  { "left_unserved", "a writer that goes away leaves the readers behind it waiting",
    "rw_leave.lua:serve_next", "local _, _, more = serve(mode)",
    "local more\n", READ_WRITE },
  { "readers_back_again", "every reader gives way to Redisson's writer", "rw_queue.lua:serve",
    "if not (state.mode or in_our_run()) or foreign_waiters(RELEASES) == 0 then",
    "if true then", READ_WRITE },
  { "reentry_blind", "a re-entry counts two", "rw_acquire.lua",
    "set_hold(LOCK, OWNER, FROM + 1, LEASE, holds, true)",
    "set_hold(LOCK, OWNER, FROM + 2, LEASE, holds, true)", READ_WRITE },
  { "permits_passed_untold", "Redisson's waiters are not notified of returned permits",
    "permit_passing.lua:pass_on",
    "if FREE and FREE > 0 then announce(RELEASES, FREE) end return more",
    "return more" },
  { "permits_unturned", "no permit is left to Redisson's waiters",
    "permit_passing.lua:keep_for_others",
    "if (queued or foreign_waiters(RELEASES) > 0) and add_turn(record, NOW) then", "if true then" },
  { "fair_overtakes", "a newcomer takes the free lock past Redisson's list", "fair_acquire.lua",
    "local owner, till, more = prune_to_first_waiter(OWNER, now)", "local owner, till, more" },
  { "fair_untold", "a release of a fair lock notifies no waiter", "fair_passing.lua:pass_on",
    "if owner then notify_waiter(owner, till, now) end return more and 3 or 1", "return more and 3 or 1" },
  { "fair_java_untold", "…or no Java thread", "fair_queue.lua:notify_waiter",
    "announce(channel) if foreign_waiters(channel) == 0 and till", "if till" },
  { "fair_dead_kept", "a first waiter whose client is gone stays the first",
    "fair_queue.lua:is_dead", "return is_ours(owner) and", "return false and" },
  { "fair_java_kept", "a first waiter of Java that is not subscribed keeps its timeout",
    "fair_queue.lua:notify_waiter", "set_timeout(owner, now + DEAF_MS)", "set_timeout(owner, till)" },
  { "fair_stays", "a wait that ends stays in Redisson's list", "fair_leave.lua",
    "and is_sound() then remove_waiter(OWNER, now_ms()) end",
    "and false then remove_waiter(OWNER, now_ms()) end" },
  { "fair_short", "a holdfast place does not survive what Java takes off",
    "fair_acquire.lua:redisson_timeout", "now + redisson_count * JAVA_WAIT_MS, last and timeout_of(last) or 0", "now, 0" },
  { "fair_high", "timeouts of Java that rest on ours stay as they are",
    "fair_queue.lua:lower_timeouts",
    "if till then set_timeout(owner, math.max(till + new_timeout - old_timeout, new_timeout)) end", "" },
  { "fair_long", "a holdfast place lives for as long as one of Java's", "fair_queue.lua",
    "local MIN_TIMEOUT_MS = 5000", "local MIN_TIMEOUT_MS = 300000" },
  { "fair_tail", "each recheck moves to the end of Redisson's list", "fair_acquire.lua:queue_up",
    "if is_new then redis.call('RPUSH', QUEUE, OWNER) end",
    "redis.call('LREM', QUEUE, 0, OWNER) redis.call('RPUSH', QUEUE, OWNER)" },
  { "fair_unordered", "a holdfast waiter is put before the others", "fair_acquire.lua:queue_up",
    "redis.call('RPUSH', QUEUE, OWNER)", "redis.call('LPUSH', QUEUE, OWNER)" },
  { "fair_scoreless", "a waiter that took the lock leaves its timeout", "fair_acquire.lua:take",
    "if WAITER ~= '' then remove_waiter(OWNER, now) end",
    "if WAITER ~= '' then redis.call('LREM', QUEUE, 0, OWNER) end" },
  { "fair_taken", "a held fair lock counts as free", "fair_acquire.lua",
    "local lock_ms, now = redis.call('PTTL', LOCK), now_ms()", "local lock_ms, now = -2, now_ms()" },
  { "shorter_untold", "Redisson's waiters are not notified of a shortened lease", "extend.lua",
    "announce(ARGV[5])", "" },
  { "fair_shorter_untold", "…nor the one that is first in a fair lock's list", "fair_extend.lua",
    "announce(ARGV[5] .. ':' .. first)", "announce(ARGV[5])" },
  { "permits_shorter_untold", "…of permits", "permit_extend.lua", "announce(ARGV[5], #IDS)", "" },
  { "rw_shorter_untold", "…of a read/write lock", "rw_extend.lua",
    "if announce(ARGV[5], '1') > 0 then announce(ARGV[5], '0') end", "" },
}

-- { switch, what it does }
local IN_CORE = {
  { "NO_VALIDITY", "a hold is believed in after its lease" },
  { "LEASE_FROM_REPLY", "the lease counts from the reply" },
  { "NO_DRIFT", "clocks are assumed to run at the same speed" },
  { "GRANT_UNBOUND", "a grant is believed for a whole lease from its arrival" },
  { "STALE_GRANT", "a grant that may be an old one is believed" },
  { "SAME_OWNER", "all holds of a caller have one owner" },
  { "CALLERS_OWNER", "…and their waits use it too, for locks, mutexes and guards" },
  { "PUT_OFF", "a check puts off the confirmation of a grant, and renews nothing" },
  { "NO_LOOK_SUBSCRIBED", "a waiter does not recheck once it is subscribed" },
  { "DEAF_TO_JAVA", "a fair lock's waiter has no channel of its own" },
  { "BUSY_LOOK", "a waiter rechecks without end" },
  { "DEAF", "grants are ignored" },
  { "FORGED_CLEANED", "…or cleaned up, whatever they name" },
  { "EARLY_UNHEARD", "…or only one that overtakes the reply to its enqueue" },
  { "NO_UNDO", "what an acquire may have left is not cleaned up" },
  { "NO_END_OF_WAIT", "a wait does not end" },
  { "LOSS_IGNORED", "a renewal that was refused counts" },
  { "RENEWAL_AFTER", "a released hold is renewed" },
  { "NO_RENEWAL", "nothing is renewed after the first time" },
  { "COUNT_TWICE", "a re-entry counts two" },
  { "TTL_OF_RE_ENTRY", "a re-entry changes the token TTL by which the wait of its hold is known" },
  { "NO_LOGOUT", "the events link stays open" },
  { "NO_WORD", "a hold is renewed without its owner's approval" },
  { "WORD_STAYS", "one approval of the owner is valid for ever" },
  { "DEAF_TO_WORD", "the owner's approval is ignored" },
  { "DEAF_TO_ANSWER", "an abandoned acquire of a shared owner does not learn what it took" },
  { "LATE_TOKEN", "…or only if it did not take the free lock" },
  { "LATE_LIST", "…or only if it took the free lock" },
  { "LATE_BUSY", "…or takes a refusal for a hold" },
  { "RELEASE_GIVEN_UP", "a release ends with its caller's wait for the reply" },
  { "ALL_FROM_REPLY", "the leases of several count from the reply" },
  { "ALL_BEHIND", "a release of several that failed is forgotten" },
  { "NOT_FOLLOWING", "an acquire is busy because of its caller's release under way" },
  { "LATE_REPLY_LOST", "a reply that comes after its hold is gone wakes no call that waits for the claim" },
  { "QUORUM_LESS_ONE", "one vote less than a majority is enough" },
  { "NO_WRITE_BACK", "the token of a quorum stays with the server that gave it" },
  { "TOKEN_LOWEST", "the lowest token of a quorum is the hold's" },
  { "NO_GUARD", "a server that has just restarted has a vote" },
  { "MINORITY_KEPT", "a round without a majority keeps what it got" },
  { "YES_UNCOUNTED", "…or a yes that was not counted yet" },
  { "LATE_YES_KEPT", "a yes that is no longer wanted is kept" },
  { "BUSY_ANYHOW", "a wait that ends in a pause is busy, whatever the servers said" },
  { "FIRST_END", "a hold of a quorum ends with its last member hold" },
  { "LAST_ENTRY_KEPT", "a quorum's hold without entries stays" },
  { "KEEPS_ON", "a kept lock is never returned while it is used" },
  { "CYCLE_UNSEEN", "no wait in a cycle ends" },
  { "CYCLE_ALL", "…or all of them end" },
  { "CYCLE_ANY", "waiting for another waiter counts as a cycle" },
  { "CYCLE_FOLLOWED", "a cycle of others is followed without end" },
  { "WISH_UNHEARD", "a client that keeps a lock ignores that others want it" },
  { "LENT_ANEW", "a kept lock is lent for a whole lease" },
  { "MAX_HOLD_IGNORED", "a renewal ignores max_hold" },
  { "MAX_HOLD_ANEW", "…or a re-entry restarts it" },
  { "MAX_HOLD_LENT", "…or the next caller of a kept lock gets what is left of it" },
  { "TOKEN_AGAIN", "the callers of a kept lock have one token" },
  { "SHORT_UNNOTICED", "the end of a kept lock is not moved when its lease becomes short" },
  { "STRAYS_FORGOTTEN", "a dropped handle releases what others have released for it" },
  { "LOAD_FORGETS", "a client does not say that it holds locks" },
  { "CLOSE_KEEPS", "a closed client keeps its holds" },
  { "CLOSE_WAITS", "…and goes on with its calls" },
  { "LEAVES_SLOWLY", "an acquire leaves its queue for as long as a command may take" },
  { "DEAD_LINK_KEPT", "a connection that has died without a word is kept until its calls have failed" },
  { "REFUSAL_COUNTS", "a renewal that the server refuses counts" },
  { "GRANT_OURS", "a grant is believed for as long as its waiter would give one" },
  { "REFUSAL_ENDS_WAIT", "a server that refuses writes for a while ends a wait" },
  { "UNDO_REFUSED", "…or an undo or a release is not sent again" },
  { "RECORD_DROPPED", "…or a guard's record is not written later" },
  { "RECORD_DENIED", "…or not when a replica or a missing right has refused it" },
  { "REPLICA_FINAL", "a server that is a replica for a while ends a wait" },
  { "PLACE_DENIED", "a missing right ends a wait in the queue" },
  { "LOGIN_ONCE", "a link asks for credentials once, and uses them for each connection" },
  { "LOGIN_REFUSED_FINAL", "a link whose log-in was refused is never opened again" },
  { "LOGIN_OF_FIRST", "a new password is used only by links that were never open" },
  { "LOGIN_LOSES_HOLD", "a hold is lost when its renewal is refused for its log-in" },
  { "UNDO_DENIED", "a missing right ends an undo or a release" },
}

local function of_program(...)
  local name, about = ...
  return { name = name, about = about, entry = { ... } }
end

-- Found by a kept schedule of schedules.lua, or in a world of spec/explore/rare.lua, because few
-- seeds draw what is needed.
local IN_SCHEDULES = {
  {
    name = "ENTRY_ABANDONED",
    about = "a hold abandoned while its owner re-enters it is gone for that acquire",
  },
  {
    name = "GAP_UNSEEN", about = "a late yes joins a majority that has ended meanwhile",
  },
  {
    name = "REFUSAL_UNNOTED",
    about = "a server that has another owner is asked again with a renewal only",
  },
  {
    name = "ALL_ABANDONED", about = "a hold that one caller of a handle abandons is gone for all",
  },
  {
    name = "LATE_ERROR", about = "an abandoned acquire of a shared owner takes an error for a hold",
  },
  { name = "EXTEND_GIVEN_UP", about = "an extend that is given up counts as not carried out" },
  {
    name = "SEEN_NOT_THROUGH", about = "a shared owner's abandoned release ends at NOSCRIPT",
  },
  {
    name = "MOVE_UNHEARD",
    about = "the end of a subscription, because its slot has moved, is ignored",
  },
  { name = "ALL_NO_UNDO", about = "what an acquire of several may have left is not cleaned up" },
  {
    name = "RELEASES_UNCOUNTED",
    about = "an abandoned hold of a quorum forgets the releases under way",
  },
  { name = "LOST_ENTRY_KEPT", about = "a lost hold stays when its last release has failed" },
  { name = "RELEASE_UNNOTED", about = "a release whose caller is gone leaves its entry to the handle" },
  { name = "LEAVE_OVERTAKEN", about = "an acquire does not wait for what its caller left, which is being undone" },
  { name = "RETURN_PASSED", about = "an acquire does not wait for the return of a kept lock" },
  { name = "FORCED_LENT", about = "a lock that was taken by force is lent to the next caller" },
  { name = "LATE_ENTRY_KEPT", about = "a lost hold stays when a late reply ends its last release" },
  { name = "COLLECTED_ENDS", about = "a collected hold ends with its own lease" },
  { name = "RECORD_UNTOLD", about = "a server without the lock counts as one that has the record" },
  of_program("java_readers_untold", "Redisson's readers are not notified that a writer goes on as one",
    "rw_queue.lua:on_writer_left", "redis.call('PEXPIRE', LOCK, longest) announce_free('1')", "redis.call('PEXPIRE', LOCK, longest)"),
  of_program("java_kept_out", "…nor that they are no longer kept out", "rw_queue.lua:end_drain",
    "redis.call('HSET', LOCK, 'mode', 'read') announce_free('1')",
    "redis.call('HSET', LOCK, 'mode', 'read')"),
  of_program("java_drained", "they stay kept out when the last writer's wait ends",
    "rw_leave.lua:serve_next", "mode = settle_drain(mode)", ""),
  of_program("java_undrained", "…or when that writer is dead and a reader comes",
    "rw_acquire.lua", "lock_mode = settle_drain(lock_mode, WAITER) local left_ms", "local left_ms"),
  of_program("permits_untold", "Redisson's waiters are not notified of permits that an acquire creates",
    "permit_acquire.lua", "if FREE > 0 then announce(RELEASES, FREE) end end local first_end",
    "end\nlocal first_end"),
  of_program("permits_unseen", "the next waiter is not notified to listen for Redisson's releases",
    "permit_queue.lua:notify_first", "local function notify_first()", "local function notify_first()\nif true then return end\n"),
  of_program("dead_readers", "dead readers are never forgotten", "rw_queue.lua:prune_to_live_reader",
    "if longest_lease(LOCK, owner, 1, count) ~= -2 then return true end", "do return true end"),
  of_program("wish_unheard", "a waiter does not learn that the keeping client is not subscribed",
    "acquiring.lua:busy", "foreign and 1 or is_deaf and 2 or 0", "foreign and 1 or 0"),
  of_program("permit_one_settled", "only one of several grants that expired together is noticed",
    "permit_queue.lua:settle_missed_grants", "evict(receiver) evicted[receiver] = true", "return evict(receiver)"),
  of_program("complete_any_hold", "the late end of a run ends a newer hold of its client",
    "complete.lua", "if not holds_of(LOCK, OWNER) then",
    "for _, field in ipairs(redis.call('HKEYS', LOCK)) do\n"
    .. "if field:sub(1, 36) == OWNER:sub(1, 36) then OWNER = field end\nend\n"
    .. "if not holds_of(LOCK, OWNER) then"),
  of_program("mutex_shortened", "a late acquire shortens a mutex's TTL",
    "string.lua:set_holds", "math.max(redis.call('PTTL', lock), tonumber(ms))", "ms"),
  of_program("reader_shortened", "a late acquire shortens a reader's hold", "rw.lua:set_hold",
    "'PX', math.max(min_ms, tonumber(ms)))", "'PX', ms)"),
  of_program("leases_forgotten", "a reader that has fewer holds loses the longest lease",
    "rw.lua:trim_holds", "if longest > redis.call('PTTL', key) then set_lease(key, longest) end", ""),
}

-- Found in the schedules of system_plan.lua, each in those of one kind. { kind, name, what it does,
-- and for mutants of programs where, text, replacement, only in these programs; lead = true: a
-- mutant of lua/holdfast/lead.lua }
local IN_SYSTEM = {
  { "crash", "CRASH_UNPROVED", "a process on this host counts as dead while it runs" },
  { "crash", "CRASH_STALE", "…or once the process of an earlier owner has ended" },
  { "crash", "CRASH_UNHEEDED", "the hold of a dead process is not freed" },
  { "crash", "CRASH_NESTED", "a command's lock is freed although a run inside it has entered" },
  { "crash", "once_twice", "…because the program frees a hold with two entries", "release.lua",
    "if ARGV[5] == 'once' and count and count > 1 then return 2 end", "", { "release" } },
  { "sync", "UNCONFIRMED", "a write counts that no replica has confirmed" },
  { "sync", "SHORT_UNBACKED", "a kept lock's end moves though no replica has confirmed it" },
  { "sync", "renew_silent", "a renewal that finds a longer TTL writes nothing, so nothing is confirmed",
    "renew.lua",
    "redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(ARGV[2 * i])))",
    "if redis.call('PTTL', lock) < tonumber(ARGV[2 * i]) then redis.call('PEXPIRE', lock, ARGV[2 * i]) end" },
  { "sync", "permit_renew_silent", "…or a renewal of permits that end later already",
    "permit_renew.lua", "math.max(first_end + 1, NOW + ARGV[2 * i])", "math.max(first_end, NOW + ARGV[2 * i])" },
  { "sync", "rw_renew_silent", "…or a renewal of a writer that has the lock for longer already",
    "rw.lua:renew_holds", "redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ms))",
    "if redis.call('PTTL', lock) < ms then redis.call('PEXPIRE', lock, ms) end" },
  { "sentinel", "FAR_UNHEARD", "the client does not wait for replies of distant Sentinels" },
  { "sentinel", "MINORITY_MOVES", "one Sentinel is enough to move from a master that serves" },
  { "sentinel", "LOGIN_REFUSED_FINAL", "a link whose log-in was refused is never opened again" },
  { "sentinel", "NEVER_MOVES", "a client with a working master does not ask the Sentinels" },
  { "cluster", "ASKING_UNSAID", "ASK is followed without ASKING" },
  { "cluster", "CLUSTER_RELEASE_DROPPED", "a redirected release is not sent again" },
  { "cluster", "CLUSTER_UNDO_ONCE", "…nor a redirected undo of an acquire" },
  { "cluster", "LOGIN_REFUSED_FINAL", "a link whose log-in was refused is never opened again" },
  { "cluster", "LEASE_UNNAMED", "a renewal does not name the key of a reader's lease" },
  { "addresses", "STRANGER_SERVED", "a node of another cluster is used" },
  { "addresses", "FOREIGN_FOLLOWED", "the map of another cluster is followed" },
  { "addresses", "FIRST_MAP_TAKEN", "…or that of the first address of a new client" },
  { "addresses", "SWAPPED_REFUSED", "a node at the address of another one of its cluster is refused" },
  { "addresses", "VERSION_ONCE", "a node that is connected again is not asked for its version" },
  { "addresses", "VERSION_OF_FIRST", "a command that is sent again is one for the version before" },
  { "clock", "token_clock", "tokens come from the clock alone", "token.lua:next_token",
    "math.max((last or 0) + 1, now, floor or 0)",
    "math.max(now_us or server_us(), floor or 0)" },
  { "clock", "clock_endless", "…or go beyond 2^53 with the clock", "clock.lua",
    "if seconds >= 4500000000 then", "if false then" },
  { "threads", "SAME_OWNER", "all holds of a caller have one owner" },
  { "threads", "LEAVE_ANYHOW", "the undo of an acquire may overtake it" },
  { "latch", "opened_any", "a latch is opened although its count is not the expected one",
    "latch_delete.lua", "or expected > 0 and left ~= expected then", "then" },
  { "latch", "note_unread", "a call that is sent twice counts twice",
    "latch.lua semaphore_delete.lua semaphore_drain.lua semaphore_release.lua semaphore_set.lua",
    "if earlier_reply then return tonumber(earlier_reply) end", "" },
  { "latch", "latch_early", "the last call but one opens the latch", "latch_down.lua",
    "if left > tonumber(ARGV[2]) then", "if left > tonumber(ARGV[2]) + 1 then" },
  { "latch", "open_silent", "the last call does not announce that the latch is open",
    "latch.lua:open", "announce(CHANNEL, '0')", "" },
  { "latch", "opens_as_one", "…or announces it as set, which keeps Redisson's waiters asleep",
    "latch.lua:open", "announce(CHANNEL, '0')", "announce(CHANNEL, '1')" },
  { "latch", "LATCH_BELIEVES", "any message opens a latch" },
  { "latch", "LATCH_DEAF", "…or is ignored" },
  { "latch", "NO_LAST_LOOK", "a wait ends without a last read" },
  { "plain_semaphore", "acquire_note_unread", "an acquire that is sent twice takes twice",
    "semaphore_acquire.lua", "if earlier_reply then return { earlier_reply == '0' and 0 or 1, free_permits() } end", "" },
  { "plain_semaphore", "release_note_unread", "a release that is sent twice gives back twice",
    "latch.lua semaphore_delete.lua semaphore_drain.lua semaphore_release.lua semaphore_set.lua",
    "if earlier_reply then return tonumber(earlier_reply) end", "", { "semaphore_release" } },
  { "plain_semaphore", "undo_repeated", "an acquire that is undone twice gives back twice",
    "semaphore_leave.lua", "add_permits(taken, 0)", "redis.call('INCRBY', PERMITS, taken)" },
  { "plain_semaphore", "undo_forgotten", "an acquire that arrives after its undo takes permits",
    "semaphore_leave.lua", "if taken == 0 then return note(0) end", "if taken == 0 then return 0 end" },
  { "plain_semaphore", "give_silent", "permits that come back are not announced",
    "semaphore_giving.lua", "if left > 0 then announce_free(left) end", "" },
  { "plain_semaphore", "give_none", "…or as none, which wakes no waiter of Redisson",
    "semaphore_giving.lua:announce_free", "string.format('%.0f', left)", "'0'" },
  { "plain_semaphore", "give_no_turn", "a release leaves Redisson's waiters no turn",
    "semaphore_giving.lua:announce_free", "pcall(leave_permit_to_redisson, stored)", "true, false" },
  { "plain_semaphore", "NO_UNDO", "an acquire in doubt keeps what it has taken" },
  { "plain_semaphore", "RELEASE_DROPPED", "a release in doubt is not retried" },
  { "plain_semaphore", "REFUSED_PERMIT_LOST", "…nor one that the server refuses for a while" },
  { "plain_semaphore", "PERMIT_DENIED", "…nor one of a user who lacks the rights for a while" },
  { "plain_semaphore", "NOTE_FORGOTTEN", "a note is deleted although a copy of its call may arrive" },
  { "plain_semaphore", "NOT_PASSED_ON", "a served waiter does not notify the next one" },
  { "plain_semaphore", "LATCH_BELIEVES", "a message is taken for permits" },
  { "plain_semaphore", "LATCH_DEAF", "…or is ignored" },
  { "plain_semaphore", "NO_LAST_LOOK", "a wait ends without a last read" },
  { "leader", "leads_any", "a lock that is held counts as free", "acquiring.lua",
    "local lock_ms = redis.call('PTTL', LOCK)",
    "local lock_ms = -2" },
  { "leader", "term_forever", "a term goes on although its lock is lost", "lead.lua:is_leader",
    "raw.standing(self.lock) ~= nil", "true", lead = true },
  { "leader", "term_by_lock", "a term that was resigned goes on until the lock is released",
    "lead.lua:is_leader", "return not self.over and", "return self.reason == nil and", lead = true },
  { "leader", "term_untold", "the loss of a term is not reported", "lead.lua:new_term",
    "on_lost(term, reason)", "", lead = true },
  { "leader", "term_no_reason", "a term that is over has no reason", "lead.lua:Term:lost",
    "if not self.over then self.reason = self.reason or select(2, raw.standing(self.lock)) end", "",
    lead = true },
  { "leader", "term_unnumbered", "a term has the token of the first one", "lead.lua:run_term",
    "term.fencing_token = raw.token(term.lock)",
    "lead.first = lead.first or raw.token(term.lock) term.fencing_token = lead.first",
    lead = true },
  { "leader", "lead_once", "a leader that has lost its term does not lead again",
    "lead.lua:lead.run", "until given.once or", "until given.once or term.reason or", lead = true },
  { "leader", "lead_denied", "…or that has led, and is denied for a while", "lead.lua:wait_for_term",
    "election.has_led or acquired ~= nil", "false", lead = true },
  { "leader", "lead_unresigned", "a leader that has resigned leads again", "lead.lua:Term:resign",
    "self.election.resigned = true", "", lead = true },
  { "leader", "lead_by_lost_lock", "a term has the handle of one that was lost before it began",
    "lead.lua:wait_for_term", "term = next_term()", "", lead = true },
  { "leader", "lead_impatient", "an outage ends a leader's wait", "lead.lua:wait_for_term",
    "if not core.is_transient(code, election.has_led) then", "if true then", lead = true },
}

-- Found only by the cases, because no schedule, or hardly any, has what they need. They are in the
-- inlined fast path of acquire and release, in the way it draws a token, or in what decides whose
-- turn it is.
local IN_CASES = {
  { "waiter_head_overtakes", "a waiter that finds the lock free takes it past the queue", "acquire.lua",
    "not holder and call('EXISTS', LOCK, QUEUE) == 0", "not holder" },
  { "behind_kept", "a waiter does not ask for a kept lock", "acquire.lua", "holder:find('^:[1-9]%d*$', 37)", "true" },
  { "first_behind_grant", "a grant counts as a waiter ahead", "behind.lua", "if last > 0 then return", "if true then return" },
  { "first_brief", "a first waiter does not renew the queue's TTL", "behind.lua", "call('PEXPIRE', QUEUE, QUEUE_MS)", "" },
  { "first_brief_after", "…or only if there is no grant", "queueing.lua:enqueue", "last <= 0", "last < 0" },
  { "permit_alone", "a waiter that was passed over does not count as waiting", "permit_acquire.lua",
    "tail_score == 0 and call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2] == '0'", "tail_score == 0" },
  { "permit_first_deaf", "a first waiter does not listen although Redisson has a permit", "permit_acquire.lua",
    "MAY_BE_FIRST = not foreign", "MAY_BE_FIRST = true" },
  { "run_found", "a hold that an acquire grants to a waiter is not counted as a turn",
    "queue.lua:hand_over", "write_record(record, record.turns + 1, 0, record.holders, record.run, record.till)", "" },
  { "run_expired", "…or a wait that ends gives an expired lock to waiters although it is Redisson's turn",
    "leave.lua:serve_next", "if record and record.turns > 0 then return pass_on(heads) == 3 and 3 or 0 end", "" },
  { "run_granted", "a granted waiter that finds the lock free does not begin our run", "acquiring.lua",
    "if is_granted() then begin_our_run(now_ms()) return", "if is_granted() then return" },
  { "run_uncounted", "…or at most three of our clients, however many clients of Redisson's were seen", "turns.lua:add_turn",
    "math.max(MIN_TURNS, tonumber(record.holders) or math.huge)", "MIN_TURNS" },
  { "holders_by_others", "waiters that are not the first one count foreign holders",
    "foreign_holder.lua:count_holder", "members[3] == WAITER and", "" },
  { "holders_endless", "…or there is no limit to that", "foreign_holder.lua:count_holder",
    "and record.holders + 0 < MAX_HOLDERS", "" },
  { "holders_uncounted", "…or a lock's first waiter counts only one",
    "foreign_holder.lua:record_foreign_holder", "then return count_holder(record, members) end",
    "then return end" },
  { "run_alone", "our run ends when none of our clients waits", "queue.lua:pass_on",
    "if listens and is_alone and add_turn(record, now_ms()) then", "if false then" },
  { "run_alone_endless", "…or its record has no TTL then", "queue.lua:pass_on",
    "redis.call('PEXPIRE', QUEUE, MAX_LISTEN_MS)", "redis.call('PERSIST', QUEUE)" },
  { "run_alone_untold", "…or Redisson is not told that the lock is free", "queue.lua:pass_on",
    "announce(RELEASES), not member", "0, not member" },
  { "run_over_alone", "…or its record remains after it", "queue.lua:pass_on",
    "elseif record and is_alone then redis.call('DEL', QUEUE)", "" },
  { "run_dropped", "…or an acquire removes its record", "queue.lua:prune_to_first_waiter",
    "if record and record.turns == 0 then", "if record then" },
  { "run_alone_refused", "…or an acquire of several locks does not get the lock then",
    "acquire_all.lua:serve_others", "handed_over == false and not first_after_record()",
    "handed_over == false and redis.call('ZCARD', QUEUE) == 0" },
  { "turn_of_dead_endless", "Redisson's turn has no TTL after the last of many dead waiters",
    "queue.lua:pass_on", "elseif listens then give_foreign_turn(record, member)",
    "elseif listens then give_foreign_turn(record, member) if more then redis.call('PERSIST', QUEUE) end" },
  { "permits_turn_shared", "a second release during Redisson's turn gives its permit away",
    "permit_passing.lua:keep_for_others", "if kept > 0 then return kept, left_ms end",
    "if kept > 0 then return 0, 0 end" },
  { "permits_turn_broken", "…or a grant or acquire then ends the turn",
    "permit_acquire.lua",
    "if kept == 0 and (first_left or foreign_waiters(RELEASES) > 0) then begin_our_run(NOW) elseif kept == 0 then",
    "if first_left or foreign_waiters(RELEASES) > 0 then begin_our_run(NOW) else" },
  { "permits_turn_unused", "after Redisson's turn there is another one",
    "permit_passing.lua:keep_for_others",
    "if queued and record and record.turns == 0 then return 0, 0 end", "" },
  { "permits_run_alone", "holdfast's run ends when none of its clients waits",
    "permit_passing.lua:keep_for_others", "(queued or foreign_waiters(RELEASES) > 0)", "queued" },
  { "permits_run_over", "…or goes on although nobody listens", "permit_passing.lua:keep_for_others",
    "(queued or foreign_waiters(RELEASES) > 0)", "true" },
  { "permits_run_endless", "…or has no TTL then", "permit_passing.lua:keep_for_others",
    "if redis.call('ZCARD', QUEUE) == 1 then redis.call('PEXPIRE', QUEUE, MAX_LISTEN_MS) end", "" },
  { "permits_run_expires", "…or a queue with an unconfirmed grant expires then",
    "permit_passing.lua:keep_for_others",
    "if redis.call('ZCARD', QUEUE) == 1 then redis.call('PEXPIRE', QUEUE, MAX_LISTEN_MS)",
    "if not queued then redis.call('PEXPIRE', QUEUE, MAX_LISTEN_MS)" },
  { "permits_handed_blind", "the common hand-over forgets whose turn it was", "permit_release.lua",
    "and redis.pcall('ZCOUNT', QUEUE, '-inf', '(-1') == 0", "" },
  { "permits_taken_unseen", "Redisson's turn does not end when it has taken the permit",
    "permit_acquire.lua:busy", "if none_free then record_taken() end", "" },
  { "permits_taken_unknown", "…and is taken for one that nobody has used", "permit_acquire.lua:record_taken",
    "write_record(record, 0, 0, 1, 0, math.min(NOW, record.began))",
    "write_record(record, 0, 0, '-', 0, math.min(NOW, record.began))" },
  { "permits_holders_uncounted", "…or only one holder of Redisson's is counted", "permit_acquire.lua:record_taken",
    "then return count_holder(record, members) end", "then return end" },
  { "permits_run_unnoted", "holdfast's run does not begin when a waiter takes the permit",
    "permit_acquire.lua", "foreign_waiters(RELEASES) > 0) then begin_our_run(NOW)",
    "foreign_waiters(RELEASES) > 0) then" },
  { "permits_run_unqueued", "…or when a client that did not wait takes it", "permit_acquire.lua",
    "(first_left or foreign_waiters(RELEASES) > 0)", "first_left" },
  { "permits_grant_unnoted", "…or when one is granted", "permit_queue.lua:serve",
    "if reserve == 0 and FREE ~= free_before then begin_our_run(NOW) end", "" },
  { "permits_turn_endless", "the record of Redisson's turn has no TTL while nobody else waits",
    "permit_passing.lua:notify_turn",
    "if redis.call('ZCARD', QUEUE) == 1 then redis.call('PEXPIRE', QUEUE, left_ms) end", "" },
  { "permits_record_endless", "…or remains, without a TTL, when nobody waits any more",
    "permit_acquire.lua", "elseif kept == 0 then forget_record() end",
    "elseif kept == 0 then begin_our_run(NOW) end" },
  { "rw_turn_taken", "holdfast takes a read/write lock that is left to Redisson", "rw_acquire.lua",
    "if left_ms > 0 then return busy(lock_mode and",
    "if left_ms > 0 and lock_mode then return busy(lock_mode and" },
  { "rw_run_unnoted", "holdfast's run does not begin when a client takes the read/write lock",
    "rw_acquire.lua", "if not lock_mode then begin_our_run(now_ms()) end", "" },
  { "rw_grant_unnoted", "…or when a wait that ends lets the next waiter in",
    "rw_leave.lua:serve_next", "if not mode then begin_our_run(now_ms()) end", "" },
  { "rw_join_noted", "…or begins although Redisson's readers hold the lock", "rw_acquire.lua",
    "if not lock_mode then begin_our_run(now_ms()) end", "begin_our_run(now_ms())" },
  { "rw_run_short", "…or is one turn", "rw_queue.lua:pass_on",
    "and add_turn(record, now_ms())", "and false" },
  { "rw_run_newer", "…or goes on although a waiter in a newer format comes first",
    "rw_queue.lua:pass_on", "not is_newer(member or '') and add_turn", "add_turn" },
  { "rw_run_alone", "…or ends when none of our clients waits", "rw_queue.lua:pass_on",
    "not is_newer(member or '') and", "member and not is_newer(member) and" },
  { "rw_run_alone_endless", "…or its record has no TTL then", "rw_queue.lua:pass_on",
    "redis.call('PEXPIRE', QUEUE, MAX_LISTEN_MS)", "redis.call('PERSIST', QUEUE)" },
  { "rw_run_expires", "…or its waiters behind dead ones expire with it", "rw_queue.lua:pass_on",
    "if is_ours and not first_in_line() then", "if is_ours and not member then" },
  { "rw_run_dropped", "…or an acquire removes its record", "rw_queue.lua:serve",
    "if not (state.mode or in_our_run()) or", "if not state.mode or" },
  { "rw_turn_missed", "Redisson's thread that is about to wait misses the release",
    "rw_queue.lua:announce_free", "if announce(RELEASES, payload) > 0 and payload == '1' then announce(RELEASES, '0') end",
    "announce(RELEASES, payload)" },
  { "rw_release_missed", "…or the usual release", "rw_release.lua",
    "if is_write(OWNER) then announce(RELEASES, '0') end", "" },
  { "rw_shorter_missed", "…or a shorter lease", "rw_extend.lua",
    "if announce(ARGV[5], '1') > 0 then announce(ARGV[5], '0') end", "announce(ARGV[5], '1')" },
  { "rw_run_untold", "…or Redisson's readers are not notified that our readers have the lock",
    "rw_queue.lua:pass_on", "or foreign and mode == 'read' then announce", "then announce" },
  { "rw_join_yields", "…or ends when another reader comes", "rw_queue.lua:yield_ms",
    "if add_turn(record, now) then return 0 end", "" },
  { "rw_run_yielded", "a run of holdfast's is taken for readers that have yielded",
    "rw_queue.lua:yield_ms", "record.turns == 0 and record.listeners", "record.listeners" },
  { "rw_seen_yielded", "…or a holder of Redisson's that was seen is", "rw_queue.lua:yield_ms",
    "record.turns == 0 and record.listeners", "record.turns == 0" },
  { "rw_turn_short", "Redisson's turn is as long however long its last run was",
    "rw_queue.lua:pass_on", "write_turn(record, listen_ms(record))", "write_turn(record, LISTEN_MS)" },
  { "rw_taken_unseen", "a writer of Redisson's is not seen", "rw_acquire.lua",
    "if is_foreign and first_in_line() then record_foreign_holder()",
    "if is_foreign and first_in_line() then forget_record()" },
  { "rw_record_endless", "…or is recorded, without a TTL, although nobody waits", "rw_acquire.lua",
    "if is_foreign and first_in_line() then record", "if is_foreign then record" },
  { "rw_readers_unseen", "…or its readers are not", "rw_acquire.lua:drain_readers",
    "if has_ours then forget_record() else record_foreign_holder() end", "forget_record()" },
  { "rw_readers_mixed", "…or those that hold it together with ours are", "rw_acquire.lua:drain_readers",
    "if has_ours then forget_record() else record_foreign_holder() end", "record_foreign_holder()" },
  { "rw_yield_counts", "the time for which readers have yielded counts as Redisson's run",
    "rw_queue.lua:yield_ms", "write_turn(record, YIELD_MS, nil, 1)", "write_turn(record, YIELD_MS)" },
  { "rw_run_paused", "Redisson's run begins again when its readers may enter again",
    "rw_acquire.lua:drain_readers", "record and record.began)", "nil)" },
  { "rw_pause_set_back", "…or began in the future", "rw_queue.lua:write_turn",
    "math.min(began or now, now)", "(began or now)" },
  { "rw_record_alone", "the record of a free lock that nobody waits for is kept",
    "rw_queue.lua:serve", "if not (state.mode or in_our_run()) or foreign_waiters", "if foreign_waiters" },
  { "rw_run_forgotten", "…or a run of holdfast's ends with a grant to readers", "rw_queue.lua:serve",
    "if not (state.mode or in_our_run()) or", "if not (mode or in_our_run()) or" },
  { "count_turn_broken", "a plain semaphore's permit is taken during Redisson's turn",
    "semaphore_acquire.lua", "if ms > 0 and left == count then", "if false then" },
  { "count_turn_stretched", "…or each release begins another turn",
    "semaphore_giving.lua:leave_permit_to_redisson", "if left_ms(record, now) > 0 then return true end", "" },
  { "count_turn_unused", "…or a release after that turn does",
    "semaphore_giving.lua:leave_permit_to_redisson", "record.turns == 0 or add_turn(record, now)", "add_turn(record, now)" },
  { "count_turn_unheard", "…or the turn goes on although Redisson has released", "semaphore_acquire.lua",
    "left < 1 or ARGV[3] == '1'", "left < 1" },
  { "count_taken_unseen", "…or although it has taken the permit", "semaphore_acquire.lua",
    "left < 1 or ARGV[3] == '1'", "ARGV[3] == '1'" },
  { "count_turn_deaf", "…or although nobody listens", "semaphore_turns.lua:left_ms",
    "not record or redisson_listeners() == 0", "not record" },
  { "count_turn_set_back", "…or ends far in the future", "semaphore_turns.lua:left_ms",
    "ms <= MAX_LISTEN_MS and math.max(ms, 0) or 0", "math.max(ms, 0)" },
  { "count_run_unnoted", "holdfast's run does not begin", "semaphore_acquire.lua",
    "write_record(record, 1, 0, record.holders, math.max(0, run), now)", "" },
  { "count_run_short", "…or is one turn", "semaphore_giving.lua:leave_permit_to_redisson",
    "record.turns == 0 or add_turn(record, now)", "record.turns == 0" },
  { "count_run_idle", "…or lasts for as long as nobody has asked", "semaphore_acquire.lua",
    "record.listeners and math.min(now, record.till) or now", "now" },
  { "count_run_endless", "…or for longer than two seconds", "semaphore_acquire.lua",
    "math.min(end_ms - record.began, MAX_RUN_MS)", "end_ms - record.began" },
  { "count_record_kept", "the record remains when no client of holdfast waits", "semaphore_acquire.lua",
    "if ms == 0 and listeners(KEYS[3] .. ':holdfast') == 0 then", "if false then" },
  { "count_record_alone", "…or when none of Redisson's does", "semaphore_giving.lua:leave_permit_to_redisson",
    "if record then redis.call('DEL', TURN) end", "" },
  { "count_record_endless", "…or forever", "semaphore_turns.lua:write_record",
    ", 'PX', RECORD_MS", "" },
  { "count_turn_refused", "a release fails if the user lacks the right to begin a turn",
    "semaphore_giving.lua:announce_free", "pcall(leave_permit_to_redisson, stored)", "true, leave_permit_to_redisson(stored)" },
  { "head_again", "an acquire of the common case does not check whether the owner has lost its hold",
    "fresh.lua", "ARGV[3] == '0' and ARGV[7] == ''", "ARGV[7] == ''" },
  { "head_again_lock", "…in the program of a lock", "acquire.lua", "holder = SHORT or ARGV[3] == '0',", "holder = true," },
  { "head_floor", "…or whether the token must be above another server's", "free.lua",
    "and not ARGV[8] and", " and" },
  { "head_kept", "…or whether the owner keeps the lock and needs a range", "free.lua",
    "and OWNER:byte(38) ~= 48 then",
    " then" },
  { "head_java", "…or whether Java has drawn from the counter", "token.lua",
    "last < token and last % 8 == 0 and",
    "last < token and" },
  { "head_unfenced", "…or whether there is a token", "free.lua", "TOKEN_TTL == '0'", "false" },
  { "head_endless", "…or whether the counter has a TTL", "free.lua",
    "not drawn and #ttl_ms < 16", "not drawn" },
  { "head_counter_endless", "…or gives a new counter no TTL", "drawing.lua",
    "redis.pcall('PEXPIRE', COUNTER, string.format('%.0f', ttl_ms * 33 / 32))", "" },
  { "permit_head_endless", "…or, for a permit, whether the counter has a TTL", "permit_acquire.lua",
    "and #TOKEN_TTL < 16", "" },
  { "head_part", "…or whether the counter's TTL is long enough", "token.lua",
    "and last >= token - token % (ttl_ms * 15.625)", "" },
  { "head_second", "…or whether rounding reaches the next second",
    "drawing.lua", "if us < 1000000 and token < 4.5e15 then", "if token < 4.5e15 then" },
  { "head_far", "…or whether the clock is far ahead", "drawing.lua",
    "if us < 1000000 and token < 4.5e15 then", "if us < 1000000 then" },
  { "handed_old", "a hand-over in straight lines does not check whether it is time to look for clients that poll",
    "hash.lua", "- place <= LOCK_PROBE_US then", "- place > -1 then" },
  { "handed_due", "…or, behind a record, whether it is time to look for clients that poll", "hash.lua",
    "and since_ms < PROBE_MS * 2 ^ math.min(unused - 1, PROBE_DOUBLINGS)", "" },
  { "handed_seen", "…or whether a client that polls was seen", "hash.lua",
    "heads[1]:match('^1f %d+ ([1-9]%d*) ')", "heads[1]:match('^1f %d+ (%d+) ')" },
  { "handed_set_back", "…or whether the clock was set back", "hash.lua",
    "unused and since_ms >= -POLL_MS", "unused" },
  { "record_removed_first", "a queue with only a record loses its TTL when the record changes",
    "record.lua:write_record", "redis.call('ZADD', QUEUE, string.format('%.0f', -till), member)",
    "if record then redis.call('ZREM', QUEUE, record.member) end\n"
    .. "redis.call('ZADD', QUEUE, string.format('%.0f', -till), member)" },
  { "forced_uncounted", "a quorum's hold that was restored without a counter is not freed by force",
    "force.lua", "or holder:find(OUR_OWNER) then return true end", "then return true end" },
  { "forced_any", "a forced release does not check whether the expected owner holds the lock", "force.lua",
    "if ARGV[3] and ARGV[3] ~= holder and ARGV[3] ~= original then return 0 end", "" },
  { "forced_copy", "…or leaves a quorum's hold that was restored under that owner", "force.lua",
    "and ARGV[3] ~= original then", "then" },
  { "forced_other_copy", "…or takes a shared owner for such a hold of another one", "force.lua",
    "holder:find(OUR_OWNER) and holder:match('^[^.]+')", "holder:match('^[^.]+')" },
  { "forced_any_reader", "…or a read/write lock", "rw_force.lua",
    "if ARGV[3] and redis.call('HEXISTS', LOCK, ARGV[3]) == 0 then return 0 end", "" },
  { "handed_guard", "…or whether it waits for a guard", "hash.lua",
    "member:match('^1l([^:]+)", "member:match('^1%l([^:]+)" },
  { "place_shared", "a waiter that queues behind others in the same microsecond gets the last one's place",
    "behind.lua", "local low = (last + 1) % 1e7", "local low = last % 1e7" },
  { "place_clock", "…or the clock, which is before that once it was set back", "behind.lua",
    "if us <= last then", "if us < 0 then" },
  { "lasts_unnoted", "no waiter notes that its queue has lasted", "acquiring.lua:busy",
    "if last and last > FRONT_MAX then record_lasting_queue(last, place) end", "" },
  { "lasts_unseen", "…because it queues behind others in straight lines", "behind.lua",
    "us - us % LOCK_PROBE_US <= last", "us < 6.75e15" },
  { "lasts_any", "…or it does so for another kind of lock", "acquiring.lua:record_lasting_queue",
    "or WAITER:sub(2, 2) ~= 'l'", "" },
  { "lasts_twice", "…or beside another record", "acquiring.lua:record_lasting_queue",
    "or record_in(first_members()) then", "then" },
  { "refused_java", "a refusal in straight lines does not check whether the holder is Redisson's",
    "acquire.lua", "and holder:byte(15) == 56 and holder:find('^:[1-9]%d*$', 37) then", "then" },
  { "refused_own", "…or the caller itself", "acquire.lua",
    "if ttl_ms > 0 and holder ~= OWNER and", "if ttl_ms > 0 and" },
  { "refused_endless", "…or whether the holder's lease ends", "acquire.lua",
    "if ttl_ms > 0 and holder", "if ttl_ms ~= 0 and holder" },
  { "permit_head_ended", "the usual acquire of a permit does not check whether a lease has ended",
    "permit_acquire.lua", "(first_end or ENDLESS) > NOW and OWNER", "OWNER" },
  { "permit_handed_foreign", "its usual release does not check whether Redisson has one",
    "permit_release.lua", "usual = not foreign", "" },
  { "permit_handed_unmarked", "…or leaves no mark of the grant", "permit_release",
    "call('ZADD', QUEUE, '0', member)", "call('ZREM', QUEUE, member)" },
  { "permit_handed_twice", "…or counts a permit once that two have", "permit_release.lua",
    "if added == 1 then", "if added then" },
  { "permit_handed_untold", "…or sends no grant", "permit_release.lua",
    "redis.pcall('PUBLISH', 'holdfast_grant:' .. owner,",
    "redis.pcall('PUBLISH', 'nobody:' .. owner," },
  { "head_refused", "…or whether the server knows this SET",
    "drawing.lua note.lua:note token.lua:next_token",
    "redis.pcall('SET'", "redis.call('SET'" },
  { "once_window", "a run counts for a whole period on both sides", "once.lua",
    "math.abs(at - old_at) < HALF", "math.abs(at - old_at) < 2 * HALF" },
  { "once_one_sided", "a run does not count for those that came before it", "once.lua",
    "math.abs(at - old_at) < HALF", "at >= old_at and at - old_at < HALF" },
  { "once_taken_over", "a claim runs though another run has taken its fire", "once.lua",
    "local is_ours = old_by == BY", "local is_ours = old_by == BY or old_state == 'done'" },
  { "once_ends_another", "a run records its end over another run", "once.lua",
    "if not is_ours then return reply(0) end", "" },
  { "once_resent", "a claim that comes twice begins the run again", "once.lua",
    "if is_ours and old_state ~= 'claimed' then return reply(1) end", "" },
  { "once_stale", "an older holder takes a fire over", "once.lua",
    "tonumber(token) < tonumber(old_token)", "false" },
  { "once_late", "a fire runs behind a later one", "once.lua",
    "at <= old_at - HALF", "false" },
  { "once_future", "a record of the future is in the way of all", "once.lua",
    "local is_past = old_at <= now", "local is_past = true" },
  { "once_no_retry", "a failure runs again without retry", "once.lua",
    "RETRY and old_state ~= 'done'", "old_state ~= 'done'" },
  { "once_unstarted", "a run that did not begin counts", "once.lua",
    "old_state == 'unstarted' or RETRY", "RETRY" },
  { "once_forgets_token", "a claim forgets the token of the run before", "once.lua",
    "token = old_token or '0'", "token = '0'" },
  { "once_outlived", "the end of a run is lost that takes longer than its record stays", "once.lua",
    "record == ''", "false" },
  { "once_forgotten", "an end brings back a record that was deleted", "once.lua",
    "at + tonumber(ARGV[6]) <= now", "true" },
  { "once_at", "an end moves the run in time", "once.lua",
    "at, token = old_at, old_token", "token = old_token" },
}

-- Each is found where one command of a program is refused: { name, what it does, where, text,
-- replacement, { the program } }
local IN_REFUSED_PARTS = {
  { "record_last", "the lock goes before the record is there", "complete.lua",
    "redis.call('HDEL', LOCK, '') redis.call('HSET', LOCK, 'done'",
    "redis.call('DEL', LOCK)\nredis.call('HSET', LOCK, 'done'", { "complete" } },
  { "head_unending", "a lock to which the server gives no TTL stays", "hash.lua",
    "redis.call('DEL', lock)", "", { "acquire" } },
  { "handed_unending", "…or is handed over", "hash.lua", "redis.call('DEL', lock)", "", { "release" } },
  { "counter_lowered", "a counter that is ahead of the clock loses its token",
    "token.lua:next_token",
    "if type(stored) == 'string' then redis.call('SET', COUNTER, stored, 'KEEPTTL') end", "", { "acquire" } },
  { "permit_uncounted", "a permit that cannot be counted is no longer taken",
    "pool_changes.lua:add_free", "set_end(LEASES, ids, NOW)", "", { "permit_release" } },
  { "permit_unrecorded", "a permit that cannot be recorded no longer counts as free",
    "pool_changes.lua:take_permits", "if count > 0 then redis.call('INCRBY', LOCK, count) end", "", { "permit_acquire" } },
  { "permit_handed_unrecorded", "…when it is handed over", "permit_acquire.lua",
    "call('INCRBY', LOCK, '1')", "", { "permit_release" } },
  { "call_unnoted", "a call without a note counts", "note.lua:note",
    "if ... then redis.call(...) end", "", { "semaphore_release" } },
}

local function read(path)
  local file = io.open(path)
  local text = file and file:read("*a")
  if file then file:close() end
  return text
end

-- → a pattern for this text, in which a blank stands for any white space
local function pattern_of(text)
  return (text:gsub("%p", "%%%0"):gsub("%s+", "%%s+"))
end

local function replaced(text, old, new)
  local count
  text, count = text:gsub(pattern_of(old), (new:gsub("%%", "%%%%")))
  return count > 0 and text or nil
end

local function allowed(only, name)
  if not only then return true end
  for _, other in ipairs(only) do
    if other == name then return true end
  end
  return false
end

-- ---- rows that have no place ----

local paths

-- → the files of csrc/programs by their names, which are unique
local function program_files()
  if paths then return paths end
  paths = {}
  local pipe = assert(io.popen("ls csrc/programs/*/*.lua"))
  for path in pipe:lines() do paths[path:match("[^/]+$")] = path end
  assert(pipe:close())
  return paths
end

-- → what is wrong with a row's place, "program", "file.lua" or "file.lua:function" | nil
local function problem_at(entry, place)
  local program = require "spec.sim.programs"[place]
  if program then
    return not program:find(pattern_of(entry[4])) and ("%s: this is not in %s: %s"):format(entry[1],
      place, entry[4]) or nil
  end
  local name, own = place:match("^([^:]+):?(.*)$")
  local path = entry.lead and "lua/holdfast/" .. name or program_files()[name] or ""
  local text = read(path)
  local from, to = functions.find(path, text or "", text and own or "?")
  if not from then return ("%s: there is no %s"):format(entry[1], place) end
  local inside = text:sub(from, to)
  if inside:gsub("%-%-[^\n]*", ""):find(pattern_of(entry[4])) then return nil end
  return ("%s: this is not in %s: %s\n%s"):format(entry[1], place, entry[4], inside)
end

local function problem_of_entry(entry)
  for place in entry[3]:gmatch("%S+") do
    local problem = problem_at(entry, place)
    if problem then return problem end
  end
end

-- → by name, what is wrong with the rows of mutants of the core that have no place
local function problems_of_core()
  local of_file, found = {}, {}
  for _, row in ipairs(core_mutants) do
    of_file[row[2]] = of_file[row[2]] or {}
    table.insert(of_file[row[2]], row)
  end
  for path, rows in pairs(of_file) do
    local _, problems = patches.placed(read("csrc/" .. path) or "", rows)
    for _, problem in ipairs(problems) do found[problem:match("^[^:]+")] = problem end
  end
  return found
end

local core_problems

local function problem_of(mutant)
  if mutant.entry then return problem_of_entry(mutant.entry) end
  core_problems = core_problems or problems_of_core()
  return core_problems[mutant.name]
end

local function with_place(list)
  local chosen = {}
  for _, mutant in ipairs(list) do
    if not problem_of(mutant) then chosen[#chosen + 1] = mutant end
  end
  return chosen
end

-- ---- the lists ----

local function of_list()
  local list = {}
  for _, entry in ipairs(IN_PROGRAMS) do
    list[#list + 1] = { name = entry[1], about = entry[2], entry = entry }
  end
  for _, entry in ipairs(IN_CORE) do list[#list + 1] = { name = entry[1], about = entry[2] } end
  return list
end

local function of_systems()
  local list = {}
  for i, row in ipairs(IN_SYSTEM) do
    local entry = row[4] and { unpack(row, 2, 7) }
    if entry then entry.lead = row.lead end
    list[i] = { kind = row[1], name = row[2], about = row[3], entry = entry }
  end
  return list
end

local function of_rows(rows)
  local list = {}
  for i, entry in ipairs(rows) do
    list[i] = { name = entry[1], about = entry[2], entry = entry }
  end
  return list
end

local function of_cases() return of_rows(IN_CASES) end
local function of_refused_parts() return of_rows(IN_REFUSED_PARTS) end

-- → all of them, in order: { name =, about =, entry = of a program | nil }
function mutants.list() return with_place(of_list()) end

-- → those of system_plan.lua: { kind =, name =, about =, entry = }
function mutants.of_systems() return with_place(of_systems()) end

-- → those that no seed needs to find
function mutants.of_schedules() return with_place(IN_SCHEDULES) end

-- → those that documents list and the build has switches for, even if they have no place
function mutants.named() return { of_list(), of_systems(), IN_SCHEDULES } end

-- → what is wrong with each row that has no place
function mutants.problems()
  local problems, known = {}, {}
  for _, list in ipairs {
    of_list(), of_systems(), IN_SCHEDULES, of_cases(), of_refused_parts(),
  } do
    for _, mutant in ipairs(list) do
      local problem = problem_of(mutant)
      if problem and not known[problem] then problems[#problems + 1] = problem end
      known[problem or ""] = true
    end
  end
  return problems
end

-- ---- to turn them on ----

local function patch(entry)
  local programs = require "spec.sim.programs"
  local texts = {}
  for name, text in pairs(programs) do
    local new = allowed(entry[6], name) and replaced(text, entry[4], entry[5])
    if new then texts[name] = new end
  end
  assert(next(texts), entry[1] .. " is in no program any more")
  return texts
end

local function patch_lead(entry)
  local text = replaced(read("lua/holdfast/lead.lua"), entry[4], entry[5])
  return assert(text, entry[1] .. " is not in lead.lua any more")
end

local function with_texts(list)
  local programs = require "spec.sim.programs"
  for _, mutant in ipairs(list) do
    mutant.texts = setmetatable(patch(mutant.entry), { __index = programs })
    mutant.program = mutant.entry[6] and mutant.entry[6][1]
  end
  return list
end

-- → those that the cases find: { name =, about =, texts = the programs, with the mutant }
function mutants.of_cases() return with_texts(with_place(of_cases())) end

-- → those that refused_parts.lua finds: { name =, texts = the programs, with the mutant, program =
-- }
function mutants.of_refused_parts() return with_texts(with_place(of_refused_parts())) end

function mutants.find(name)
  for _, list in ipairs { mutants.list(), mutants.of_systems(), mutants.of_schedules() } do
    for _, mutant in ipairs(list) do
      if mutant.name == name then return mutant end
    end
  end
end

-- Turns the mutant on; nil: none. → the options for simulator.run
function mutants.turn_on(mutant)
  local switch = require("holdfast.core").engine.mutant
  if switch then switch(mutant and not mutant.entry and mutant.name or "NONE") end
  if not mutant then return {} end
  if not mutant.entry then assert(switch, "make sim-mutants has not been run") end
  if mutant.entry and mutant.entry.lead then return { lead = patch_lead(mutant.entry) } end
  return { patched = mutant.entry and patch(mutant.entry) }
end

return mutants
