-- Mutants that change nothing, by their names of tools/mutants.lua without the line, and why. Where
-- a file has the same one twice, "(2)" follows the name of the second, and so on.

local ONE_SCRIPT = "one script, and nothing between the two can fail: memory is asked for before the first write"
local FAST_PATH = "the fast path is taken by others, and what follows it does the same"
local SAME_TTL = "an equal TTL is written, or stays: it is the same"
local NO_RECORD = "no other member has the record's form"
local IN_PAIRS = "members and scores come in pairs"

return {
  ["acquiring.lua operator: if FROM > 0 and count == FROM then return take(0) end => "
    .. "if FROM >= 0 and count == FROM then return take(0) end"] = "no hold has a count of 0",
  ["extend.lua operator: local stays = most and ttl_ms > most and ttl_ms >= tonumber(ARGV[2]) => "
    .. "local stays = most and ttl_ms > most and ttl_ms > tonumber(ARGV[2])"] = SAME_TTL,
  ["extend.lua constant: if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end => "
    .. "if ARGV[5] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end"] = "no member is the empty text",
  ["free.lua operator: local FREE = ARGV[3] == '0' and ARGV[7] == '' and redis.call('EXISTS', LOCK, QUEUE) == 0 => "
    .. "local FREE = ARGV[3] == '0' and ARGV[7] ~= '' and redis.call('EXISTS', LOCK, QUEUE) == 0"] = FAST_PATH,
  ["free.lua constant: local FREE = ARGV[3] == '0' and ARGV[7] == '' and redis.call('EXISTS', LOCK, QUEUE) == 0 => "
    .. "local FREE = ARGV[3] == '0' and ARGV[8] == '' and redis.call('EXISTS', LOCK, QUEUE) == 0"] = FAST_PATH,
  ["hash_holding.lua operator: if redis.call('PTTL', lock) < tonumber(ms) then redis.call('PEXPIRE', lock, ms) end => "
    .. "if redis.call('PTTL', lock) <= tonumber(ms) then redis.call('PEXPIRE', lock, ms) end"] = SAME_TTL,
  ["queue.lua operator: if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end => "
    .. "if #gone >= 0 then redis.call('ZREM', QUEUE, unpack(gone)) end"] = "the missed grant is always among them",
  ["members.lua word: if not KINDS:find(kind, 1, true) then send(member, 'recheck', number) return true end => "
    .. "if not KINDS:find(kind, 1, false) then send(member, 'recheck', number) return true end"]
    = "a letter is the same as a pattern",
  ["queue.lua operator: if #members < from then => if #members <= from then"] = IN_PAIRS,
  ["record.lua operator: if not score or score >= 0 then return nil end => "
    .. "if not score or score > 0 then return nil end"] = NO_RECORD,
  ["record.lua constant: if not score or score >= 0 then return nil end => "
    .. "if not score or score >= 1 then return nil end"] = NO_RECORD,
  ["token.lua constant: local token = math.max((last or 0) + 1, now, floor or 0) => "
    .. "local token = math.max((last or 0) + 1, now, floor or 1)"] = "the first of the three is 1 or more",
  ["presence.c operator: hf_time span = hf_time_max(CLIENT_TTL, until > now ? until - now : 0); => hf_time "
    .. "span = hf_time_max(CLIENT_TTL, until >= now ? until - now : 0);"]
    = "a difference of 0 is a 0",
  ["acquire.c order of calls: hf_session_drop(&op->request); hf_client_listen(op, false, now); => "
    .. "hf_client_listen(op, false, now); hf_session_drop(&op->request);"]
    = "they are about two links",
  ["votes.c operator: for (size_t i = 0; i < round->count && used < size; i++) { => for (size_t i = 0; i < "
    .. "round->count && used <= size; i++) {"]
    = "without room nothing is written",
  ["session.c dropped assignment: session->retry_at = now; => "]
    = "it has passed when the connection was made",
  ["quorum.c constant: while (quorum->late_replies) end_late_reply(&quorum->late_replies, 0); => while "
    .. "(quorum->late_replies) end_late_reply(&quorum->late_replies, 1);"]
    = "nobody asks for the time of what ends with its client",
  ["session.c constant: session->first_reply = session->next_reply = 0; => session->first_reply = "
    .. "session->next_reply = 1;"]
    = "positions are compared with each other alone",
  ["round_calls.c constant: long long values[HF_QUORUM_MAX] = {0}; => long long values[HF_QUORUM_MAX] = {1};"]
    = "each value that is read has been written",
  ["session.c constant: session->retry_at = 0; => session->retry_at = 1;"]
    = "both have passed",
  ["kept.c constant: if (hold->token > 0) kept->token++; => if (hold->token > 1) kept->token++;"]
    = "no token is 1: it is the server's time at least",
  ["acquire.c constant: op->acquire.last_token = (uint64_t)hf_time_max(0, (hf_time)answer->last_token); => "
    .. "op->acquire.last_token = (uint64_t)hf_time_max(1, (hf_time)answer->last_token);"]
    = "the next token is 2 at least",
  ["observe.c operator: hold->valid_until > now ? hold->valid_until - now : 0); => hold->valid_until >= now ? "
    .. "hold->valid_until - now : 0);"]
    = "a difference of 0 is a 0",
  ["lease.c operator: if (now >= end) return now; => if (now > end) return now;"]
    = "at the end both are the end",
  ["presence.c dropped assignment: op->presence.published = false; => "]
    = "when it ends again, what its caller held is cleaned up",
  ["observe.c constant: if (hold->held_since > 0) { => if (hold->held_since > 1) {"]
    = "no time is a nanosecond",
  ["session.c constant: bool retries = request->retry_at > 0 && session->state == HF_SESSION_READY; => bool "
    .. "retries = request->retry_at > 1 && session->state == HF_SESSION_READY;"]
    = "no time is a nanosecond",
  ["renewer.c operator: return hold->valid_until > now ? hold->valid_until - now : 0; => return "
    .. "hold->valid_until >= now ? hold->valid_until - now : 0;"]
    = "a difference of 0 is a 0",
  ["quorum.c order of calls: notice(client, now); refresh_due(client, now); => refresh_due(client, now); "
    .. "notice(client, now);"]
    = "the members' own ticks have found what has ended",
  ["quorum.c operator: (client->config.restart_guard > 0 && unknown); => (client->config.restart_guard >= 0 "
    .. "&& unknown);"]
    = "without a guard no run is unknown",
  ["presence.c constant: size_t published = 0, size = 0; => size_t published = 0, size = 1;"]
    = "without a text its size is not read",
  ["renewer.c order of calls: hf_hold_freed(hold); hf_holds_wake_at(&client->holds, hold, now); => "
    .. "hf_holds_wake_at(&client->holds, hold, now); hf_hold_freed(hold);"]
    = "a count and a time",
  ["renewer.c constant: hf_names names = {0}; => hf_names names = {1};"]
    = "they are made before they are read or freed",
  ["renewer.c order of calls: free(task); hf_renewer_clean_up(client, hold, now); => "
    .. "hf_renewer_clean_up(client, hold, now); free(task);"]
    = "the task refers to no hold yet",
  ["renewer.c operator: if (is_cleaning_up(hold) && !hold->in_flight) => if (is_cleaning_up(hold) || "
    .. "!hold->in_flight)"]
    = "a command that is under way sets the time again",
  ["observe.c operator: if (owner.size > 0) memcpy(event->bytes + key.size, owner.data, owner.size); => if "
    .. "(owner.size >= 0) memcpy(event->bytes + key.size, owner.data, owner.size);"]
    = "nothing is copied of an empty text",
  ["kept.c order of calls: hf_kept_cancel(next); lend(kept, hold, next, now); => lend(kept, hold, next, now); "
    .. "hf_kept_cancel(next);"]
    = "the queue and what is lent are two things",
  ["round.c order of calls: hf_votes_roll_back(op, now); hf_round_forget_hold(op); => "
    .. "hf_round_forget_hold(op); hf_votes_roll_back(op, now);"]
    = "the one is about the members' holds, the other about the quorum's own",
  ["quorum.c constant: .result = {\"\", 0}, => .result = {\"\", 1},"]
    = "an acquire writes no record",
  ["round_acquire.c constant: uint32_t doublings = round->attempts < 5 ? round->attempts : 5; => uint32_t "
    .. "doublings = round->attempts < 5 ? round->attempts : 6;"]
    = "the longest pause is shorter than that of five",
  ["quorum.c dropped call: hf_client_free(member); => "]
    = "it cannot happen with one server",
  ["session.c operator: if (used + more <= session->replies_capacity) return true; => if (used + more < "
    .. "session->replies_capacity) return true;"]
    = "there is more room than is needed",
  ["renewer.c order of calls: hf_renewer_resume(task->client, hold, now); hf_client_unblock(task->client, "
    .. "hold, now); => hf_client_unblock(task->client, hold, now); hf_renewer_resume(task->client, hold, now);"]
    = "a command that is under way sets the time again",
  ["quorum.c constant: return 0; => return 1;"]
    = "an end of a nanosecond is over as well",
  ["quorum.c dropped call: free(member); => "]
    = "it cannot happen with one server",
  ["quorum.c constant: (client->config.restart_guard > 0 && unknown); => (client->config.restart_guard > 1 && "
    .. "unknown);"]
    = "no guard is a nanosecond",
  ["votes.c operator: if (from.size > 0) memcpy(*to, from.data, from.size); => if (from.size >= 0) "
    .. "memcpy(*to, from.data, from.size);"]
    = "nothing is copied of an empty text",
  ["kept.c operator: if (!kept->first && !kept->lent.hold) hf_lent_note(&kept->lent); => if (!kept->first || "
    .. "!kept->lent.hold) hf_lent_note(&kept->lent);"]
    = "what is looked at without need stays as it is",
  ["kept.c word: hf_node_listen(kept->node, true, false, now); => hf_node_listen(kept->node, true, true, now);"]
    = "only at the end it matters whether it will listen again",
  ["quorum.c constant: if (op->acquire.server_us <= 0) return; => if (op->acquire.server_us <= 1) return;"]
    = "no server's time is a microsecond",
  ["votes.c order of calls: hf_votes_open(op, now); choose_owner(op); => choose_owner(op); hf_votes_open(op, "
    .. "now);"]
    = "the one is about the votes, the other about the owner",
  ["kept.c constant: kept->token = hold->token > 0 ? hold->token + 1 : 0; => kept->token = hold->token > 0 ? "
    .. "hold->token + 1 : 1;"]
    = "a range without a token ends at 0",
  ["quorum.c order of calls: hf_quorum_end_late_replies(client, hold, now); hf_holds_remove(&client->holds, "
    .. "hold); => hf_holds_remove(&client->holds, hold); hf_quorum_end_late_replies(client, hold, now);"]
    = "late replies do not look into the table",
  ["observe.c operator: hf_time span = now > hold->held_since ? now - hold->held_since : 0; => hf_time span = "
    .. "now >= hold->held_since ? now - hold->held_since : 0;"]
    = "a difference of 0 is a 0",
  ["kept.c constant: return kept->token > 0 && kept->token <= kept->last_token && => return kept->token > 1 "
    .. "&& kept->token <= kept->last_token &&"]
    = "no token is 1: it is the server's time at least",
  ["session.c operator: unsigned long major = version.size > 0 ? strtoul(version.data, NULL, 10) : 0; => "
    .. "unsigned long major = version.size >= 0 ? strtoul(version.data, NULL, 10) : 0;"]
    = "an empty text is a 0",
  ["presence.c constant: return hf_op_asked_for(op)->acquires && !op->done && op->spec.wait > 0 && => "
    .. "return hf_op_asked_for(op)->acquires && !op->done && op->spec.wait > 1 &&"]
    = "no wait is a nanosecond",
  ["session.c operator: return request->sends > 0 && => return request->sends >= 0 &&"]
    = "what was not sent is of no connection",
  ["quorum.c constant: hf_time end = 0; => hf_time end = 1;"]
    = "an end of a nanosecond is over as well",
  ["session.c constant: unsigned long major = version.size > 0 ? strtoul(version.data, NULL, 10) : 0; => "
    .. "unsigned long major = version.size > 0 ? strtoul(version.data, NULL, 11) : 0;"]
    = "what is too old has one digit",
  ["round_calls.c constant: if (hold->count == 0) hf_quorum_abandon(client, hold, 0, now); => "
    .. "if (hold->count == 0) hf_quorum_abandon(client, hold, 1, now);"]
    = "of no entry none is kept",
  ["session.c order of calls: note_run(session, info_field(info, \"\\nrun_id:\"), now); note_version(session, "
    .. "info_field(info, \"\\nredis_version:\")); => note_version(session, info_field(info, \"\\nredis_version:\")); "
    .. "note_run(session, info_field(info, \"\\nrun_id:\"), now);"]
    = "the one is about the run, the other about its version",
  ["round_acquire.c order of calls: hf_votes_roll_back(op, now); pause(op, now); => pause(op, now); "
    .. "hf_votes_roll_back(op, now);"]
    = "the one is about the members, the other about the time",
  ["acquire.c constant: op->result.record = malloc(record.size + 1); => op->result.record = malloc(record.size + 0);"]
    = "the byte is there for a libc that has no room for nothing",
  ["acquire.c order of calls: follow(op, hold); hf_holds_remove(&client->holds, hold); => "
    .. "hf_holds_remove(&client->holds, hold); follow(op, hold);"]
    = "the release that it follows refers to the hold, too",
  ["kept.c order of calls: hf_hold_become(hold, HF_HOLD_HELD); hf_hold_ref(hold); => hf_hold_ref(hold); "
    .. "hf_hold_become(hold, HF_HOLD_HELD);"]
    = "a state and a reference",
  ["session.c verdict: request->state = HF_REQUEST_DONE; => request->state = HF_REQUEST_IDLE;"]
    = "nobody asks which of the two it is",
  ["acquire.c dropped assignment: hold->shared = op->spec.shared; => "] =
    "start has set it, and a held one has it since its first acquire",
  ["acquire.c operator: if (hold->pending_releases > hold->others) hold->pending_releases = hold->others; => "
    .. "if (hold->pending_releases >= hold->others) hold->pending_releases = hold->others;"]
    = "an equal number is written",
  ["acquire.c order of calls: forget(op, now); end_as(op, code, now); => "
    .. "end_as(op, code, now); forget(op, now);"] = "the words of the end do not depend on the hold",
  ["acquire.c order of calls: undo(op, now); fail_unreachable(op, refused->reason, now); => "
    .. "fail_unreachable(op, refused->reason, now); undo(op, now);"]
    = "an acquire that waits has no answer to come, which alone undo would look for",
  ["acquire.c verdict: } else if (op->state == HF_ACQUIRE_FOLLOWING || => } else if (op->state == HF_ACQUIRE_ASKING ||"]
    = "the release that it follows has ended by then",
  ["batch.c order of calls: for_each(op, free_hold, now); name_key(op, i); => name_key(op, i); "
    .. "for_each(op, free_hold, now);"] = "holds do not look at the name of what was busy",
  ["cluster.c operator: for (size_t i = 0; i < client->node_count; i++) { => "
    .. "for (size_t i = 0; i <= client->node_count; i++) { (2)"] = "it looks twice at the first node",
  ["holds.c operator: if (caller.size > 0) memcpy(hold->bytes + key.size, caller.data, caller.size); => "
    .. "if (caller.size >= 0) memcpy(hold->bytes + key.size, caller.data, caller.size);"]
    = "nothing is copied of an empty text",
  ["holds.c operator: return a->wake_at < b->wake_at || (a->wake_at == b->wake_at && a->number < b->number); => "
    .. "return a->wake_at < b->wake_at || (a->wake_at == b->wake_at && a->number <= b->number);"]
    = "no two holds have the same number",
  ["observe.c operator: for (size_t i = 0; i < HF_CLASSES_MAX && before->classes[i]; i++) => "
    .. "for (size_t i = 0; i <= HF_CLASSES_MAX && before->classes[i]; i++)"]
    = "for one class more than there can be there is no room",
  ["operation.c order of calls: hf_presence_end(op, now); hf_observe_op(op, now); => "
    .. "hf_observe_op(op, now); hf_presence_end(op, now);"] = "what is published and what is counted are two things",
  ["renewer.c order of calls: hf_holds_wake_at(&client->holds, hold, now); free_task(task); => free_task(task); "
    .. "hf_holds_wake_at(&client->holds, hold, now);"] = "the table refers to the hold, too",
  ["session.c operator: bool counts = reply->type == HF_REPLY_INTEGER && reply->integer > 0; => "
    .. "bool counts = reply->type == HF_REPLY_INTEGER && reply->integer >= 0;"] = "a 0 becomes a 0",
  ["votes.c verdict: vote->code = HF_OK; => vote->code = HF_BUSY;"] = "nobody reads the code of a yes",
  ["wire.c constant: : verdict_of(hf_reply_integer_at(reply, i, 99)); => "
    .. ": verdict_of(hf_reply_integer_at(reply, i, 100));"] = "neither is a status of a program",
  ["poll.c constant: return op->spec.wait == 0 || op->request.sent_at >= op->wait.until || => return "
    .. "op->spec.wait == 1 || op->request.sent_at >= op->wait.until ||"]
    = "a wait of 0 has ended when its command is sent",
  ["round_acquire.c dropped assignment: vote->write_back = NULL; => "]
    = "where there was one the token is lower still, so another one follows",
  ["quorum.c operator: uint32_t keep = hold->state == HF_HOLD_HELD && hold->count > count ? hold->count - count "
    .. ": 0; => uint32_t keep = hold->state == HF_HOLD_HELD && hold->count >= count ? hold->count - count : 0;"]
    = "a difference of 0 is a 0",
  ["wire.c constant: hf_slice *args = calloc(6 * count + 4, sizeof *args); => hf_slice *args = calloc(7 * count "
    .. "+ 4, sizeof *args);"] = "there is more room than is needed",
  ["session.c operator: session->retry_at = now + delay / 2 + hf_jitter(session->random, delay / 2 + 1); => "
    .. "session->retry_at = now + delay / 2 + hf_jitter(session->random, delay / 2 - 1);"]
    = "a random time is 2 ns shorter",
  ["round_calls.c operator: return (left < right) - (left > right); => return (left < right) - (left >= right);"]
    = "equal values may stand in any order",
  ['votes.c verdict: if (!vote->op) hf_vote_no(vote, HF_NO_MEMORY, "out of memory"); => if (!vote->op) '
    .. 'hf_vote_no(vote, HF_CODES, "out of memory");'] = "neither code is asked for",
  ["batch.c order of calls: hf_op_succeed(op); for_each(op, free_hold, now); => for_each(op, free_hold, now); "
    .. "hf_op_succeed(op);"] = "what is done for the holds does not depend on the outcome",
  ["operation.c order of calls: hf_deadlock_end(op); hf_presence_end(op, now); => hf_presence_end(op, now); "
    .. "hf_deadlock_end(op);"] = "a search that ends has nothing to do with what was published",
  ["slots.c constant: long long first = hf_reply_integer_at(range, 0, -1), last = hf_reply_integer_at(range, 1, "
    .. "-1); => long long first = hf_reply_integer_at(range, 0, -2), last = hf_reply_integer_at(range, 1, -1);"]
    = "any number below 0 is refused",
  ["sentinel.c dropped assignment: text[0] = '\\0'; => "] = "there is a first Sentinel, whose name is written there",
  ["cluster.c order of calls: park(cluster, request, now + NO_NODE); want_map(cluster, request->routing.link, "
    .. "now); => want_map(cluster, request->routing.link, now); park(cluster, request, now + NO_NODE);"]
    = "neither looks at what the other sets",
  ["presence.c operator: return hf_op_asked_for(op)->acquires && !op->done && op->spec.wait > 0 && => "
    .. "return hf_op_asked_for(op)->acquires && !op->done && op->spec.wait >= 0 &&"]
    = "an acquire that does not wait is done when its wait is noted",
  ["quorum.c constant: uint64_t losses = 0; => uint64_t losses = 1;"]
    = "each sum is one more, and sums are compared with each other",
  ["session.c order of calls: take_back_sent(session); schedule_reopen(session, now); => "
    .. "schedule_reopen(session, now); take_back_sent(session);"] = "the time does not depend on the queue",
  ["observe.c constant: hf_time span = now > hold->held_since ? now - hold->held_since : 0; => hf_time span = "
    .. "now > hold->held_since ? now - hold->held_since : 1;"] = "nothing",
  ["slots.c constant: long long first = hf_reply_integer_at(range, 0, -1), last = hf_reply_integer_at(range, 1, "
    .. "-1); => long long first = hf_reply_integer_at(range, 0, -1), last = hf_reply_integer_at(range, 1, -2);"]
    = "the last slot is not before the first",
  ['session.c constant: if (!text) return (hf_slice){"", 0}; => if (!text) return (hf_slice){"", 1};']
    = "no field of the log-in is a zero byte",
  ["quorum.c constant: config.session.asks_known = config.restart_guard > 0; => config.session.asks_known = "
    .. "config.restart_guard > 1;"] = "no guard is a nanosecond",
  ["wire.c constant: hf_slice *args = calloc(7 * count + 2, sizeof *args); => hf_slice *args = calloc(7 * count "
    .. "+ 3, sizeof *args);"] = "there is more room than is needed",
  ['nodes.c verdict: hf_session_fail_all(&node->links[link], HF_CLOSED, "the client was closed", 0); => '
    .. 'hf_session_fail_all(&node->links[link], HF_SERVER, "the client was closed", 0);']
    = "nobody asks for the code of what ends with its client",
  ["round_acquire.c operator: if (!vote->counted || vote->yes || !final) continue; => if (!vote->counted && "
    .. "vote->yes || !final) continue;"] = "a final vote has been counted, and is no yes",
  ["acquire.c constant: if (spec->permits > 0) => if (spec->permits > 1)"]
    = "one permit has the owner of a hold",
  ["acquire.c operator: if (more || !ours || now >= end || end - now < lease / 4) ask(op, now); => if (more || "
    .. "!ours || now > end || end - now < lease / 4) ask(op, now);"]
    = "at the end there is less than a quarter of the lease left",
  ["round_calls.c operator: uint64_t token = info->token > one->token ? info->token : "
    .. "one->token; => uint64_t token = info->token >= one->token ? info->token : one->token;"]
    = "equal tokens are one token",
  ["holdfast.c constant: traffic.reconnects += lasting && link->opens > 0 ? link->opens - 1 : 0; => "
    .. "traffic.reconnects += lasting && link->opens > 1 ? link->opens - 1 : 0;"]
    = "the first connection is none too many",
  ["wire.c constant: hf_slice *args = calloc(6 * count + 4, sizeof *args); => hf_slice *args = calloc(6 * count "
    .. "+ 5, sizeof *args);"] = "there is more room than is needed",
  ["cluster.c order of calls: park_for_map(cluster, request, now); want_map(cluster, request->routing.link, "
    .. "now); => want_map(cluster, request->routing.link, now); park_for_map(cluster, request, now);"]
    = "neither looks at what the other sets",
  ["alone.c verdict: tick_topology(client, HF_LINK_RENEWER, now); => tick_topology(client, HF_LINKS, now);"]
    = "a topology asks alone whether it is the callers' half",
  ["acquire.c operator: bool may_wait = op->spec.wait > 0 && (op->acquire.from == 0 || op->spec.shared); => bool "
    .. "may_wait = op->spec.wait >= 0 && (op->acquire.from == 0 || op->spec.shared);"]
    = "one that does not wait has no channel",
  ["quorum.c constant: for (size_t j = 0; candidate > 0 && j < hold->member_count; j++) => for (size_t j = 0; "
    .. "candidate > 1 && j < hold->member_count; j++)"] = "no end is a nanosecond",
  ["round_acquire.c order of calls: hf_votes_roll_back(op, now); hf_round_forget_hold(op); => "
    .. "hf_round_forget_hold(op); hf_votes_roll_back(op, now);"]
    = "the one is about the members' holds, the other about the quorum's own",
  ["release.lua word: if kind and place and KINDS:find(kind, 1, true) then => if kind and place and "
    .. "KINDS:find(kind, 1, false) then"] = "a letter is the same as a pattern",
  ["fair_acquire.lua operator: if at and old and new < old then lower_behind(at + 1, old, new) end => if "
    .. "at and old and new <= old then lower_behind(at + 1, old, new) end"] = "lower by 0 is the same",
  ["permit_queue.lua constant: for i = 1, free do some[i] = ids[i] end => for i = 0, free do some[i] = ids[i] end"]
    = "there is no id 0",
  ["rw.lua constant: for n = to + 1, math.min(count, ENTRIES) do redis.call('DEL', hold_key(lock, owner, n)) end "
    .. "=> for n = to + 0, math.min(count, ENTRIES) do redis.call('DEL', hold_key(lock, owner, n)) end"]
    = "what stays is written again",
  ["calls.c verdict: hf_verdict verdict = reply ? hf_wire_read(reply) : HF_VERDICT_NONSENSE; => hf_verdict "
    .. "verdict = reply ? hf_wire_read(reply) : HF_VERDICT_YES;"] = "neither passes the lock on",
  ["acquire.c constant: hf_time_max(op->wait.until > now ? op->wait.until - now : 0, least)); => "
    .. "hf_time_max(op->wait.until > now ? op->wait.until - now : 1, least));"] = "the least time is longer",
  ["fair_acquire.lua constant: return busy(0, math.min(tonumber(GRANT_MS), timeout_of(owner) - now), now) => "
    .. "return busy(1, math.min(tonumber(GRANT_MS), timeout_of(owner) - now), now)"]
    = "a millisecond more is within the slack",
  ["rw_queue.lua operator: local name = client .. (ttl_ms == '0' and '' or '+') => local name = client .. "
    .. "(ttl_ms ~= '0' and '' or '+')"] = "the two groups of a client have two names in either case",
  ["rw_queue.lua operator: local mode = left > 0 and redis.call('HGET', LOCK, 'mode') => "
    .. "local mode = left >= 0 and redis.call('HGET', LOCK, 'mode')"]
    = "where the mode is 'write' the writer is left",
  ["permit_acquire.lua operator: if back > 0 then first_end = tonumber(redis.call('ZRANGE', LEASES, '0', '0', "
    .. "'WITHSCORES')[2]) end => if back >= 0 then first_end = tonumber(redis.call('ZRANGE', LEASES, '0', '0', "
    .. "'WITHSCORES')[2]) end"] = "the first end is read once more",
  ["fair_acquire.lua constant: if not owner then return busy(0, 1, now) end => if not owner then return busy(1, "
    .. "1, now) end"] = "a millisecond more is within the slack",
  ["round_calls.c operator: return (left < right) - (left > right); => return (left <= right) - (left > right);"]
    = "equal values may stand in any order",
  ["fair_queue.lua constant: if at or old then redis.call('LREM', QUEUE, at and 1 or -1, owner) end => if at or "
    .. "old then redis.call('LREM', QUEUE, at and 0 or -1, owner) end"] = "an owner stands there once",
  ["fair_queue.lua operator: if at and old and new < old then lower_behind(at, old, new) end => if at and old "
    .. "and new <= old then lower_behind(at, old, new) end"] = "lower by 0 is the same",
  ["rw_queue.lua order of calls: notify(first_living(), 'turn', RECHECK_MS) announce(RELEASES, text) => "
    .. "announce(RELEASES, text) notify(first_living(), 'turn', RECHECK_MS)"] = ONE_SCRIPT,
  ["holds.c order of calls: sift_up(holds, hold, hold->heap_index); sift_down(holds, hold, hold->heap_index); => "
    .. "sift_down(holds, hold, hold->heap_index); sift_up(holds, hold, hold->heap_index);"]
    = "a hold moves up or down, never both",
  ["wire.c constant: size_t room = 0; => size_t room = 1;"] = "there is more room than is needed",
  ['cluster.c constant: hf_session_fail_all(&cluster->parked, HF_CLOSED, "the client was closed", 0); => '
    .. 'hf_session_fail_all(&cluster->parked, HF_CLOSED, "the client was closed", 1);']
    = "nobody asks for the time of what ends with its client",
  ["wire.c constant: hf_slice args[7]; => hf_slice args[8];"] = "there is more room than is needed",
  ["slots.c constant: if (digits == 0 || digits == 6) return -1; => if (digits == 0 || digits == 6) return -2;"]
    = "any number below 0 is refused",
  ["quorum.c constant: for (size_t i = 1; i < quorum->count; i++) => for (size_t i = 0; i < quorum->count; i++)"]
    = "the first one is compared with itself",
  ["kept.c constant: kept->token = hold->token > 0 ? hold->token + 1 : 0; => kept->token = hold->token > 1 ? "
    .. "hold->token + 1 : 0;"] = "no token is 1: it is the server's time at least",
  ["cluster.c dropped call: hf_slots_init(&cluster->read); => "] = "the first map is read before anybody looks at it",
  ["calls.c order of calls: hf_wire_read_info(reply, op->result.info); hf_op_succeed(op); => "
    .. "hf_op_succeed(op); hf_wire_read_info(reply, op->result.info);"] = "nobody looks before both are done",
  ["deadlock.c constant: int size = 0; => int size = 1;"] = "it is read only where sscanf has set it",
  ['cluster.c order of calls: note(request, HF_UNREACHABLE, "no node of the cluster serves the key\'s '
    .. 'slot"); park(cluster, request, now + NO_NODE); => park(cluster, request, now + NO_NODE); '
    .. 'note(request, HF_UNREACHABLE, "no node of the cluster serves the key\'s slot");'] =
    "neither looks at what the other sets",
  ["deadlock.c operator: (since == walk->youngest && strcmp(walk->waiter, walk->youngest_waiter) > 0); "
    .. "=> (since == walk->youngest && strcmp(walk->waiter, walk->youngest_waiter) >= 0);"] =
    "an equal name is copied",
  ["sentinel.c order of calls: take_back(&sentinels->each[i]); "
    .. "hf_request_clear(&sentinels->each[i].request); => hf_request_clear(&sentinels->each[i].request); "
    .. "take_back(&sentinels->each[i]);"] = "what is taken back is not read",
  ["plain_semaphore.c constant: hf_request forget = {0}; => hf_request forget = {1};"] =
    "it is in no queue, and only its bytes are read",
  ["plain_semaphore.c order of calls: hf_session_drop(&op->request); undo(op, now); => undo(op, now); "
    .. "hf_session_drop(&op->request);"] = "the renewer sends it later",
  ["plain_semaphore.c order of calls: hf_session_drop(&op->request); settle_given(op, now); => "
    .. "settle_given(op, now); hf_session_drop(&op->request);"] = "the renewer sends it later",
  ["wire.c constant: hf_slice args[3 * HF_RENEWALS_MAX]; => hf_slice args[4 * HF_RENEWALS_MAX];"] =
    "there is more room than is needed",
  ["wire.c constant: hf_slice args[10]; => hf_slice args[11];"] = "there is more room than is needed",
  ["wire.c constant: hf_slice args[11]; => hf_slice args[12];"] = "there is more room than is needed",
  ["wire.c constant: hf_slice args[5] = {names->key, names->counter, names->queue}; => hf_slice args[6] "
    .. "= {names->key, names->counter, names->queue};"] = "there is more room than is needed",
  ["deadlock.c operator: char text[HF_FAILURE_TEXT / 2]; /* the cycle so far */ => char "
    .. "text[HF_FAILURE_TEXT * 2]; /* the cycle so far */"] = "there is more room than is needed",
  ['nodes.c constant: hf_session_fail_all(&node->links[link], HF_CLOSED, "the client was closed", 0); '
    .. '=> hf_session_fail_all(&node->links[link], HF_CLOSED, "the client was closed", 1);'] =
    "nobody asks for the time of what ends with its client",
  ['cluster.c verdict: hf_session_fail_all(&cluster->parked, HF_CLOSED, "the client was closed", 0); => '
    .. 'hf_session_fail_all(&cluster->parked, HF_SERVER, "the client was closed", 0);'] =
    "nobody asks for the code of what ends with its client",
  ["operation.c order of calls: hf_op_abandon(op, now); hf_deadlock_end(op); => hf_deadlock_end(op); "
    .. "hf_op_abandon(op, now);"] = "a search that ends has nothing to do with what is undone",
  ["batch.c constant: long long i = 0; => long long i = 1;"] = "it is set with each reply, and read only then",
  ["batch.c order of calls: for_each(op, free_hold, now); name_key(op, i); => name_key(op, i); "
    .. "for_each(op, free_hold, now); (2)"] = "holds do not look at the name of what was busy",
  ["slots.c constant: read->nodes = calloc(most ? most : 1, sizeof *read->nodes); => read->nodes = "
    .. "calloc(most ? most : 0, sizeof *read->nodes);"] = "here the C library gives memory for no nodes, too",
  ["operation.c operator: for (hf_op *op = client->ops, *next; op && client->detached > 0; op = next) { "
    .. "=> for (hf_op *op = client->ops, *next; op && client->detached >= 0; op = next) {"] =
    "where none is detached it finds none",
  ["cluster.c order of calls: hf_session_drop(&cluster->probe); hf_request_clear(&cluster->query); => "
    .. "hf_request_clear(&cluster->query); hf_session_drop(&cluster->probe);"] = "they are about two requests",
  ["cluster.c order of calls: hf_session_drop(&cluster->query); hf_session_drop(&cluster->probe); => "
    .. "hf_session_drop(&cluster->probe); hf_session_drop(&cluster->query);"] = "they are about two requests",
  ['cluster.c order of calls: hf_request_clear(&cluster->probe); hf_session_fail_all(&cluster->parked, '
    .. 'HF_CLOSED, "the client was closed", 0); => hf_session_fail_all(&cluster->parked, HF_CLOSED, "the '
    .. 'client was closed", 0); hf_request_clear(&cluster->probe);'] = "the probe is not parked",
  ["cluster.c order of calls: release_parked(cluster, now); move_waiters(cluster, now); => "
    .. "move_waiters(cluster, now); release_parked(cluster, now);"] = "who waits has no request parked",
  ["cluster.c order of calls: park_for_map(cluster, request, now); want_map(cluster, "
    .. "request->routing.link, now); => want_map(cluster, request->routing.link, now); "
    .. "park_for_map(cluster, request, now); (2)"] = "neither looks at what the other sets",
  ["wire.c constant: hf_wire_answer answer = {.verdict = acquire_verdict(hf_reply_integer_at(reply, 0, "
    .. "99)), => hf_wire_answer answer = {.verdict = acquire_verdict(hf_reply_integer_at(reply, 0, 100)),"] =
    "neither is a status of a program",
  ["wire.c constant: return acquire_verdict(hf_reply_integer_at(reply, 0, 99)); => return "
    .. "acquire_verdict(hf_reply_integer_at(reply, 0, 100));"] = "neither is a status of a program",
  ["calls.c order of calls: hf_renewer_clean_up_replaced(op->client, hold, now); "
    .. "hf_client_unblock(op->client, hold, now); => hf_client_unblock(op->client, hold, now); "
    .. "hf_renewer_clean_up_replaced(op->client, hold, now);"] = "the renewer sends it later",
  ["calls.c order of calls: hf_op_succeed(op); drop_from_table(op, now); => drop_from_table(op, now); "
    .. "hf_op_succeed(op);"] = "who waits for the hold does not look at the release",
  ["calls.c constant: if (lease > 0) { /* a shorter lease runs from now on, whenever its reply comes */ "
    .. "=> if (lease > 1) { /* a shorter lease runs from now on, whenever its reply comes */"] =
    "no lease is a nanosecond",
  ["calls.c order of calls: hf_holds_wake_at(&op->client->holds, op->hold, op->hold->valid_until); "
    .. "hf_op_send(op, on_completed, deadline_of(op), false, now); => hf_op_send(op, on_completed, "
    .. "deadline_of(op), false, now); hf_holds_wake_at(&op->client->holds, op->hold, op->hold->valid_until);"] =
    "a hold that the sending drops is woken by nobody",
  ["wire.c constant: if (granted.size > 0) args[n++] = granted; => if (granted.size > 1) args[n++] = "
    .. "granted;"] = "no member is one byte",
  ['sentinel.c operator: snprintf(text + used, size - used, "%s...", i > 0 ? ", " : ""); => '
    .. 'snprintf(text + used, size + used, "%s...", i > 0 ? ", " : "");'] = "the text fits",
  ['sentinel.c operator: used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", '
    .. 'label); => used += (size_t)snprintf(text + used, size + used, "%s%s", i > 0 ? ", " : "", label);'] =
    "the text fits",
  ['sentinel.c verdict: (hf_failure){.code = HF_SERVER, .text = "unexpected reply; is this server a sentinel?"}; => '
    .. '(hf_failure){.code = HF_DEADLOCK, .text = "unexpected reply; is this server a sentinel?"};'] =
    "only HF_DENIED is asked for",
  ["poll.c constant: op->impl->wait->on_recheck(op, 0, now); => op->impl->wait->on_recheck(op, 1, "
    .. "now);"] = "who waits by polling takes no delay",
  ['deadlock.c constant: used > 0 ? ", which waits for " : "", (int)(key.size < 64 ? key.size : 64), '
    .. 'key.data, => used > 1 ? ", which waits for " : "", (int)(key.size < 64 ? key.size : 64), key.data,'] =
    "the text is never one byte",
  ["batch.c operator: if (i >= 1 && (size_t)i <= op->spec.batch_count) op->spec.names = "
    .. "op->spec.batch[i - 1]; => if (i > 1 && (size_t)i <= op->spec.batch_count) op->spec.names = "
    .. "op->spec.batch[i - 1];"] = "without a name the first lock is named",
  ['wire.c constant: hf_slice last = {dash ? dash + 1 : "", dash ? word.size - first.size - 1 : 0}; => '
    .. 'hf_slice last = {dash ? dash + 1 : "", dash ? word.size - first.size - 1 : 1};'] =
    "without a dash it is not read",
  ["cluster.c operator: for (size_t slot = 0; slot < HF_SLOTS; slot++) cluster->owner[slot] = "
    .. "HF_SLOT_NOBODY; => for (size_t slot = 0; slot >= HF_SLOTS; slot++) cluster->owner[slot] = "
    .. "HF_SLOT_NOBODY;"] = "before the first map the first node is asked in either case",
  ["cluster.c constant: for (size_t slot = 0; slot < HF_SLOTS; slot++) cluster->owner[slot] = "
    .. "HF_SLOT_NOBODY; => for (size_t slot = 1; slot < HF_SLOTS; slot++) cluster->owner[slot] = "
    .. "HF_SLOT_NOBODY;"] = "before the first map the first node is asked in either case",
  ["cluster.c dropped call: hf_session_drop(&cluster->probe); => "] = "it has ended before the question behind it",
  ["wire.c constant: grant.keeps = rest.size > 0 && rest.data[0] == '0'; => grant.keeps = rest.size > 1 "
    .. "&& rest.data[0] == '0';"] = "a grant that ends there is none",
  ["cluster.c order of calls: route_unsent(cluster, &cluster->client->nodes[i]->links[HF_LINK_CALLS], "
    .. "now); route_unsent(cluster, &cluster->client->nodes[i]->links[HF_LINK_RENEWER], now); => "
    .. "route_unsent(cluster, &cluster->client->nodes[i]->links[HF_LINK_RENEWER], now); "
    .. "route_unsent(cluster, &cluster->client->nodes[i]->links[HF_LINK_CALLS], now);"] = "they are about two links",
  ["cluster.c dropped call: hf_session_drop(&cluster->probe); =>  (2)"] = "nobody reads how it ends",
  ["wire.c constant: hf_slice *args = calloc(4 * count, sizeof *args); => hf_slice *args = calloc(5 * "
    .. "count, sizeof *args);"] = "there is more room than is needed",
  ["wire.c constant: if (acquire->writer.size > 0) args[n++] = acquire->writer; => if "
    .. "(acquire->writer.size > 1) args[n++] = acquire->writer;"] = "the owner of a write lock has a suffix",
  ['sentinel.c verdict: sentinel->request.failure = (hf_failure){.code = HF_NO_MEMORY, .text = "out of '
    .. 'memory"}; => sentinel->request.failure = (hf_failure){.code = HF_CODES, .text = "out of memory"};'] =
    "only HF_DENIED is asked for",
  ["calls.c verdict: hf_verdict verdict = reply ? hf_wire_read(reply) : HF_VERDICT_NONSENSE; => "
    .. "hf_verdict verdict = reply ? hf_wire_read(reply) : HF_VERDICT_YES; (2)"] = "neither passes the lock on",
  ["wire.c constant: hf_slice args[8]; => hf_slice args[9];"] = "there is more room than is needed",
  ["wire.c constant: hf_slice args[9]; => hf_slice args[10];"] = "there is more room than is needed",
  ["wire.c constant: number_text grant, *numbers = calloc(2 * count, sizeof *numbers); => number_text "
    .. "grant, *numbers = calloc(3 * count, sizeof *numbers);"] = "there is more room than is needed",
  ["cluster.c operator: if (at >= request->deadline) return false; => if (at > request->deadline) "
    .. "return false;"] = "it fails with the same words at its deadline",
  ["sentinel.c constant: text[0] = '\\0'; => text[1] = '\\0';"] =
    "there is a first Sentinel, whose name is written there",
  ["cluster.c verdict: cluster->parked.state = HF_SESSION_OPENING; /* for ever */ => "
    .. "cluster->parked.state = HF_SESSION_LOGIN; /* for ever */"] = "nothing is sent in either state",
  ["slots.c operator: size_t most = reply->size < HF_SLOTS_MAX_NODES ? reply->size : "
    .. "HF_SLOTS_MAX_NODES; => size_t most = reply->size >= HF_SLOTS_MAX_NODES ? reply->size : "
    .. "HF_SLOTS_MAX_NODES;"] = "there is more room than is needed",
  ["cluster.c dropped call: hf_session_free(&cluster->parked); => "] = "a session that is never open has no memory",
  ["calls.c order of calls: hf_op_succeed(op); end_hold(op, verdict, now); => end_hold(op, verdict, "
    .. "now); hf_op_succeed(op);"] = "who waits for the hold does not look at the release",
  ["poll.c dropped assignment: op->wait.recheck_at = HF_NEVER; => "] = "it is set before the wait",
  ["operation.c constant: if (request->failure.text[0]) { => if (request->failure.text[1]) {"] =
    "no error is one byte",
  ["wire.c constant: hf_slice *args = calloc(7 * count + 2, sizeof *args); => hf_slice *args = calloc(8 "
    .. "* count + 2, sizeof *args);"] = "there is more room than is needed",
  ['cluster.c order of calls: hf_session_fail_all(&cluster->parked, HF_CLOSED, "the client was closed", '
    .. '0); hf_session_free(&cluster->parked); => hf_session_free(&cluster->parked); '
    .. 'hf_session_fail_all(&cluster->parked, HF_CLOSED, "the client was closed", 0);'] =
    "a session that is never open has no memory",
  ["deadlock.c operator: (since == walk->youngest && strcmp(walk->own, walk->youngest_waiter) > 0); => "
    .. "(since == walk->youngest && strcmp(walk->own, walk->youngest_waiter) >= 0);"] = "the others have other names",
  ["calls.c order of calls: fail_lost(op, op->hold->reason); hf_renewer_clean_up_lost(op->client, "
    .. "op->hold, now); => hf_renewer_clean_up_lost(op->client, op->hold, now); fail_lost(op, "
    .. "op->hold->reason);"] = "the reason stays",
  ["deadlock.c dropped assignment: op->deadlock.walk = NULL; => "] = "the operation ends with its search",
  ["nodes.c constant: return 0; => return 1;"] = "all keys are in one group, whatever its number",
  ["sentinel.c operator: bool stale_link = !reply && request->sends > 0 && request->failure.code == "
    .. "HF_UNREACHABLE; => bool stale_link = !reply && request->sends >= 0 && request->failure.code == "
    .. "HF_UNREACHABLE;"] = "what was not sent fails again with the same connection",
  ["wire.c constant: hf_slice args[16]; => hf_slice args[17];"] = "there is more room than is needed",
  ["operation.c constant: op->own_caller = malloc(caller.size + 1); => op->own_caller = "
    .. "malloc(caller.size + 0);"] = "here the C library gives memory for an empty text, too",
  ["clock.lua constant: local PLACE_END = 9007199254740991 -- 2^53 - 1: above all places "
    .. "=> local PLACE_END = 9007199254740992 -- 2^53 - 1: above all places"]
    = "no place comes near it",
  ["clock.lua operator: if number < 1e7 then return string.format('%d', number) end => "
    .. "if number <= 1e7 then return string.format('%d', number) end"]
    = "both write the same digits",
  ["fair_queue.lua order of calls: redis.call('LPOP', QUEUE) redis.call('ZREM', "
    .. "TIMEOUTS, owner) => redis.call('ZREM', TIMEOUTS, owner) redis.call('LPOP', QUEUE)"]
    = ONE_SCRIPT,
  ["latch_set.lua order of calls: redis.call('SET', LATCH, ARGV[2]) announce(CHANNEL, "
    .. "'1') => announce(CHANNEL, '1') redis.call('SET', LATCH, ARGV[2])"]
    = ONE_SCRIPT,
  ["settling.lua operator: if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end "
    .. "=> if #gone >= 0 then redis.call('ZREM', QUEUE, unpack(gone)) end"]
    = "the missed grant is always among them",
  ["members.lua word: seen[channel] = true => seen[channel] = false"]
    = "a channel that is asked for twice has the same count",
  ["permit_acquire.lua constant: and OWNER:match('^:(%d+)$', 37) => and "
    .. "OWNER:match('^:(%d+)$', 38)"]
    = FAST_PATH,
  ["permit_acquire.lua constant: local all = #IDS > 1 and all_permits() or 0 => local "
    .. "all = #IDS > 1 and all_permits() or 1"]
    = "a request of one is never for more than one",
  ["permit_acquire.lua operator: if FREE and FREE >= #IDS and redis.call('EXISTS', "
    .. "QUEUE) == 0 then return take() end => if FREE and FREE > #IDS and "
    .. "redis.call('EXISTS', QUEUE) == 0 then return take() end"]
    = FAST_PATH,
  ["permit_acquire.lua operator: local all = #IDS > 1 and all_permits() or 0 => local "
    .. "all = #IDS >= 1 and all_permits() or 0"]
    = "a request of one is never for more than one",
  ["permit_extend.lua constant: if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], "
    .. "ARGV[4]) end => if ARGV[5] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end"]
    = "no member is the empty text",
  ["permit_extend.lua operator: local stays = most and ttl_ms > most and ttl_ms >= "
    .. "tonumber(ARGV[2]) => local stays = most and ttl_ms > most and ttl_ms > "
    .. "tonumber(ARGV[2])"]
    = "an end that stays gets its millisecond either way",
  ["permit_leave.lua operator: while #ids > 0 and not owner:find('*', 1, true) and "
    .. "redis.call('ZSCORE', LEASES, ids[#ids]) do => while #ids >= 0 and not "
    .. "owner:find('*', 1, true) and redis.call('ZSCORE', LEASES, ids[#ids]) do"]
    = "an owner has one id or more",
  ["permit_leave.lua word: while #ids > 0 and not owner:find('*', 1, true) and "
    .. "redis.call('ZSCORE', LEASES, ids[#ids]) do => while #ids > 0 and not owner:find('*', "
    .. "1, false) and redis.call('ZSCORE', LEASES, ids[#ids]) do"]
    = "a star alone is no pattern",
  ["permit_queue.lua constant: for _, member in ipairs(redis.pcall('ZRANGEBYSCORE', "
    .. "QUEUE, 0, 0, 'LIMIT', 0, BATCH)) do => for _, member in "
    .. "ipairs(redis.pcall('ZRANGEBYSCORE', QUEUE, 0, 1, 'LIMIT', 0, BATCH)) do"]
    = "no waiter has that place",
  ["permit_queue.lua constant: if #members == 0 then return true, free end => if "
    .. "#members == 1 then return true, free end"]
    = IN_PAIRS,
  ["permit_queue.lua operator: local refused = kind and all > 0 and #ids_of(owner) > all "
    .. "=> local refused = kind and all >= 0 and #ids_of(owner) > all"]
    = "nothing is given where there are none",
  ["permit_queue.lua order of calls: draw(ids, NOW + GRANT_MS) announce_grant(member, "
    .. "place_of(tonumber(members[i + 1])), client, number, ttl_ms) => "
    .. "announce_grant(member, place_of(tonumber(members[i + 1])), client, number, ttl_ms) "
    .. "draw(ids, NOW + GRANT_MS)"]
    = ONE_SCRIPT,
  ["permit_queue.lua word: if #members == 0 then return true, free end => if #members == "
    .. "0 then return false, free end"]
    = "nobody is left to be served",
  ["permit_queue.lua word: local all, gone, stopped = all_permits(), {}, false => local "
    .. "all, gone, stopped = all_permits(), {}, true"]
    = "each member sets it",
  ["permit_release.lua constant: if client and place:find('^[1-9]%d*$') and (counts[4] or "
    .. "0) > 0 => if client and place:find('^[1-9]%d*$') and (counts[5] or 0) > 0"]
    = FAST_PATH,
  ["placing.lua operator: return score > FRONT_MOST and digits(score) or "
    .. "string.format('%.17g', score) => return score >= FRONT_MOST and digits(score) or "
    .. "string.format('%.17g', score)"]
    = "no waiter has that place",
  ["queue.lua order of calls: write_record(was, was.turns + 1, 0, false, was.run, "
    .. "was.till) grant(member, place) => grant(member, place) write_record(was, was.turns + "
    .. "1, 0, false, was.run, was.till)"]
    = ONE_SCRIPT,
  ["release.lua constant: if #first_few > 0 then return pass_on(first_few) end => if "
    .. "#first_few > 1 then return pass_on(first_few) end"]
    = IN_PAIRS,
  ["release.lua constant: if ARGV[3] ~= '0' or ARGV[5] ~= '' then => if ARGV[3] ~= '0' "
    .. "or ARGV[6] ~= '' then"]
    = FAST_PATH,
  ["release.lua constant: if ARGV[3] ~= '0' or ARGV[5] ~= '' then => if ARGV[4] ~= '0' "
    .. "or ARGV[5] ~= '' then"]
    = FAST_PATH,
  ["release.lua constant: local member, place = first_few[i] or '', (first_few[i + 1] or "
    .. "''):match('^[1-9]%d*$') => local member, place = first_few[i] or '', (first_few[i + 0] or "
    .. "''):match('^[1-9]%d*$')"]
    = FAST_PATH,
  ["rw.lua operator: if redis.call('PTTL', lock) < tonumber(ms) then "
    .. "redis.call('PEXPIRE', lock, ms) end => if redis.call('PTTL', lock) <= tonumber(ms) "
    .. "then redis.call('PEXPIRE', lock, ms) end"]
    = SAME_TTL,
  ["rw_acquire.lua operator: if not found or foreign_waiters(RELEASES) == 0 then return take() "
    .. "end => if not found and foreign_waiters(RELEASES) == 0 then return take() end"]
    = FAST_PATH,
  ["rw_extend.lua constant: if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) "
    .. "end => if ARGV[5] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end"]
    = "no member is the empty text",
  ["rw_extend.lua operator: local stays = ttl_ms >= LEASE and (not alone or MOST and "
    .. "ttl_ms > MOST) => local stays = ttl_ms > LEASE and (not alone or MOST and ttl_ms > "
    .. "MOST)"]
    = SAME_TTL,
  ["rw_force.lua constant: drop_holds(LOCK, fields[i], 0, tonumber(fields[i + 1]) or 0) "
    .. "=> drop_holds(LOCK, fields[i], 0, tonumber(fields[i + 1]) or 1)"]
    = "no hold stands under that name",
  ["rw_leave.lua constant: local left = mode and yield_ms() or not mode and foreign_ms(YIELD_MS) or "
    .. "0 => local left = mode and yield_ms() or not mode and foreign_ms(YIELD_MS) or 1"]
    = "a number is true",
  ["rw_leave.lua operator: if mode and first_in_line() then notify_first_of_foreign() end => "
    .. "if mode or first_in_line() then notify_first_of_foreign() end"]
    = "a free lock has no holder of Redisson, and nobody is told where nobody waits",
  ["rw_queue.lua constant: if #readers > 0 then => if #readers > 1 then"]
    = IN_PAIRS,
  ["rw_queue.lua order of calls: redis.call('HSET', LOCK, 'mode', 'read') announce(RELEASES, '1') "
    .. "=> announce(RELEASES, '1') redis.call('HSET', LOCK, 'mode', 'read')"]
    = ONE_SCRIPT,
  ["rw_queue.lua order of calls: redis.call('ZADD', QUEUE, 0, member) send(member, "
    .. "'grant', kind, number, place_of(place), token, GRANT_MS, LOCK) => send(member, "
    .. "'grant', kind, number, place_of(place), token, GRANT_MS, LOCK) redis.call('ZADD', "
    .. "QUEUE, 0, member)"]
    = ONE_SCRIPT,
  ["token.lua operator: if usable and not drawn and ttl_left >= least and ttl_left <= "
    .. "most then => if usable and not drawn and ttl_left >= least and ttl_left < most then"]
    = SAME_TTL,
  ["holds.c constant: size_t capacity = holds->heap_capacity ? holds->heap_capacity * 2 "
    .. ": 16; => size_t capacity = holds->heap_capacity ? holds->heap_capacity * 2 : 17;"]
    = "it is only how much room there is",
  ["session.c operator: while (capacity < used + more) capacity *= 2; => while "
    .. "(capacity <= used + more) capacity *= 2;"]
    = "it is only how much room there is",
  ["acquire.c constant: bool waits = hold->in_flight && (op->client->is_member || "
    .. "op->spec.wait > 0); => bool waits = hold->in_flight && (op->client->is_member || "
    .. "op->spec.wait > 1);"]
    = "nobody waits for a nanosecond",
  ["acquire.c constant: left = end > now ? end - now : 0; => left = end > now ? end - "
    .. "now : 1;"]
    = "both are less than half of any lease",
  ["deadlock.c operator: if (up_to >= middle && (since == 0 || one->since < since)) "
    .. "since = one->since; => if (up_to >= middle && (since == 0 || one->since <= since)) "
    .. "since = one->since;"]
    = "an equal time is the same",
  ["presence.c constant: if (until > 0 || waiting) { => if (until > 1 || waiting) {"]
    = "no time is a nanosecond",
  ["deadlock.c constant: size_t count = 0; => size_t count = 1;"] = "there is a first server",
  ["deadlock.c constant: from->since = strtoull(from->text, &rest, 10); => from->since = "
    .. "strtoull(from->text, &rest, 11);"] = "all times are read alike, and only compared",
  ["posix/net.c order of calls: close_pipe(lookup); pthread_mutex_destroy(&lookup->mutex); "
    .. "=> pthread_mutex_destroy(&lookup->mutex); close_pipe(lookup);"]
    = "the one is the pipe, the other the mutex",
  ["posix/ready.c operator: if (grown && needed > *capacity) *capacity = needed; => if "
    .. "(grown && needed <= *capacity) *capacity = needed;"]
    = "room is asked for each time",
  ["posix/watchdog.c operator: if (!leaves_replies(driver) || !due) return; => if "
    .. "(!leaves_replies(driver) && !due) return;"]
    = "replies are read earlier than they must",
  ["posix/links.c constant: if (list[link].fd >= 0) list[link].events = poll_events(driver, "
    .. "link); => if (list[link].fd >= 1) list[link].events = poll_events(driver, link);"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/ready.c operator: return ready->epoll >= 0 && ready->timer >= 0 && => return "
    .. "ready->epoll >= 0 && ready->timer > 0 &&"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/ready.c dropped assignment: errno = error; =>  (2)"]
    = "to close what is open sets no errno",
  ["posix/links.c operator: hf_watch few[HF_LINKS] = {0}, *list = count <= HF_LINKS ? few : "
    .. "malloc(count * sizeof *list); => hf_watch few[HF_LINKS] = {0}, *list = count < "
    .. "HF_LINKS ? few : malloc(count * sizeof *list);"]
    = "room is asked for instead",
  ["posix/links.c constant: return size == READ_SIZE || (size > 0 && connection->tls) || "
    .. "(size < 0 && errno == EINTR); => return size == READ_SIZE || (size > 0 && "
    .. "connection->tls) || (size < 1 && errno == EINTR);"]
    = "a connection that has ended has no descriptor any more",
  ["posix/system.c order of calls: setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof "
    .. "most); fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); => fcntl(fd, F_SETFL, "
    .. "fcntl(fd, F_GETFL) & ~O_NONBLOCK); setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, "
    .. "sizeof most);"]
    = "two settings of one socket",
  ["posix/links.c operator: bool left_behind = !hf_client_has_detached(driver->client) && "
    .. "hf_session_has_work(calls); => bool left_behind = "
    .. "!hf_client_has_detached(driver->client) || hf_session_has_work(calls);"]
    = "it only reads what need not be read",
  ["posix/system.c operator: for (int end = 0; end < 2; end++) ends[end] = "
    .. "close_keeping_errno(ends[end]); => for (int end = 0; end <= 2; end++) ends[end] = "
    .. "close_keeping_errno(ends[end]);"]
    = "no call for a pipe's own ends fails",
  ["posix/net.c constant: int notify[2]; => int notify[3];"]
    = "it is only how much room there is",
  ["posix/net.c constant: lookup->notify[0] = lookup->notify[1] = -1; => lookup->notify[0] "
    .. "= lookup->notify[1] = -2;"]
    = "each number below 0 is no descriptor",
  ["posix/links.c order of calls: hf_client_tick_renewer(driver->client, now); "
    .. "hf_links_serve(driver, HF_ROLE(HF_LINK_RENEWER), now); => hf_links_serve(driver, "
    .. "HF_ROLE(HF_LINK_RENEWER), now); hf_client_tick_renewer(driver->client, now);"]
    = "what was not written at once is written when poll says so",
  ["posix/ready.c order of calls: pthread_mutex_unlock(&ready->mutex); free(fds); => "
    .. "free(fds); pthread_mutex_unlock(&ready->mutex);"]
    = "the memory is the thread's own",
  ["posix/links.c constant: if (written >= 0) hf_session_written(session, (size_t)written); "
    .. "=> if (written >= 1) hf_session_written(session, (size_t)written);"]
    = "a socket that takes nothing fails",
  ["posix/driver.c order of calls: hf_driver_forget_ready(driver); "
    .. "hf_client_delete(driver->client); => hf_client_delete(driver->client); "
    .. "hf_driver_forget_ready(driver);"]
    = "the one is the loop's descriptor, the other the client",
  ["posix/caller.c constant: hf_time_min(until > now ? until - now : 0, HF_SLICE)); => "
    .. "hf_time_min(until > now ? until - now : 1, HF_SLICE));"]
    = "it is a nanosecond",
  ["posix/caller.c operator: if (holds_signals && (events->fd >= 0 || late)) return "
    .. "false; => if (holds_signals || (events->fd >= 0 || late)) return false;"]
    = "poll and recv do what one recv does",
  ["posix/caller.c order of calls: hf_client_end_detached(driver->client, now); "
    .. "hf_watchdog_wake(driver); => hf_watchdog_wake(driver); "
    .. "hf_client_end_detached(driver->client, now);"]
    = "the watchdog is only woken for what has ended meanwhile",
  ["posix/crash.c constant: return -1; => return -2; (3)"]
    = "each number below 0 is no descriptor",
  ["posix/job.c constant: size_t rest = filled < HF_UUID_SIZE ? filled : HF_UUID_SIZE - "
    .. "1; => size_t rest = filled < HF_UUID_SIZE ? filled : HF_UUID_SIZE - 0;"]
    = "a byte more is kept, and a whole uuid would have been found",
  ["posix/crash.c constant: static const struct timespec never[2] = {{0}, {0}}; => static "
    .. "const struct timespec never[3] = {{0}, {0}};"]
    = "it is only how much room there is",
  ["posix/crash.c operator: bool ended = poll(&process, 1, 0) == 1 && (process.revents & "
    .. "POLLIN) != 0; => bool ended = poll(&process, 1, 0) == 1 || (process.revents & POLLIN) "
    .. "!= 0;"]
    = "the kernel reports a process only once it can be read, with POLLIN",
  ["posix/crash.c operator: if (size == 0 || size > MOST_DIGITS) return 0; => if (size == "
    .. "0 || size >= MOST_DIGITS) return 0;"]
    = "no process id has more than seven digits",
  ["posix/driver.c constant: driver->wake[0] = driver->wake[1] = -1; => driver->wake[0] = "
    .. "driver->wake[1] = -2;"]
    = "each number below 0 is no descriptor",
  ["posix/driver.c constant: driver->wake[end] = -1; => driver->wake[end] = -2;"]
    = "each number below 0 is no descriptor",
  ["posix/links.c constant: bool takes = connection->fd >= 0 && !connection->full; => "
    .. "bool takes = connection->fd >= 1 && !connection->full;"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/links.c constant: connection->dial.fd = -1; => connection->dial.fd = -2;"]
    = "each number below 0 is no descriptor",
  ["posix/links.c constant: else if (driver->connections[link].fd >= 0) "
    .. "write_output(driver, link); => else if (driver->connections[link].fd >= 1) "
    .. "write_output(driver, link);"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/links.c constant: if (fd < 0) continue; => if (fd < 1) continue;"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/links.c dropped assignment: connection->dialing = false; =>  (2)"]
    = "to cancel a failed dial again changes nothing",
  ["posix/links.c dropped assignment: driver->connections[link].quiet_at = now; => "]
    = "it only reads what need not be read",
  ["posix/links.c dropped assignment: want = hf_session_wants(session, hf_now()); => "]
    = "it is opened in the next turn, which comes at once",
  ["posix/links.c operator: for (size_t link = HF_LINK_RENEWER; link < "
    .. "driver->connection_count; link += HF_LINKS) { => for (size_t link = HF_LINK_RENEWER; "
    .. "link <= driver->connection_count; link += HF_LINKS) {"]
    = "the links of a server come together: there are three for each",
  ["posix/links.c operator: if (connection->fd >= 0) { => if (connection->fd > 0) {"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/links.c operator: if (written >= 0) hf_session_written(session, "
    .. "(size_t)written); => if (written > 0) hf_session_written(session, (size_t)written);"]
    = "a socket that takes nothing fails",
  ["posix/links.c operator: return size == READ_SIZE || (size > 0 && connection->tls) || "
    .. "(size < 0 && errno == EINTR); => return size == READ_SIZE || (size > 0 && "
    .. "connection->tls) || (size < 0 && errno != EINTR);"]
    = "what an interrupted recv has left is read at the next poll, and a lost connection has no descriptor",
  ["posix/links.c operator: return size == READ_SIZE || (size > 0 && connection->tls) || "
    .. "(size < 0 && errno == EINTR); => return size == READ_SIZE || (size > 0 && "
    .. "connection->tls) || (size >= 0 && errno == EINTR);"]
    = "what an interrupted recv has left is read at the next poll",
  ["posix/links.c operator: return size == READ_SIZE || (size > 0 && connection->tls) || "
    .. "(size < 0 && errno == EINTR); => return size == READ_SIZE || (size > 0 || "
    .. "connection->tls) || (size < 0 && errno == EINTR);"]
    = "it only calls recv once more",
  ["posix/links.c word: atomic_store(&driver->watchdog_waits, false); => "
    .. "atomic_store(&driver->watchdog_waits, true);"]
    = "a caller passes the gate, which is open, each time",
  ["posix/links.c word: connection->dialing = false; => connection->dialing = true;"]
    = "a dial that is idle has no descriptor and no time",
  ["posix/net.c constant: if (dial->fd >= 0) close(dial->fd); => if (dial->fd >= 1) "
    .. "close(dial->fd);"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/net.c constant: if (fd < 0) return; => if (fd < 1) return;"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/net.c dropped assignment: dial->error = errno; =>  (3)"]
    = "a socket's own error can always be read",
  ["posix/net.c operator: if (fd >= 0 && family != AF_UNIX) { => if (fd > 0 && family != "
    .. "AF_UNIX) {"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/ready.c constant: return ms > 3600000 ? 3600000 : (int)ms; => return ms > "
    .. "3600000 ? 3600001 : (int)ms;"]
    = "it is a millisecond in an hour",
  ["posix/ready.c constant: struct pollfd first = {0}, *fds = NULL; => struct pollfd "
    .. "first = {1}, *fds = NULL;"]
    = "it is written before each poll",
  ["posix/ready.c operator: bool has_come = set != HF_NEVER && set <= now; => bool "
    .. "has_come = set != HF_NEVER && set < now;"]
    = "it is a nanosecond",
  ["posix/ready.c operator: if (count <= all->capacity) return true; => if (count < "
    .. "all->capacity) return true;"]
    = "room of the same size is asked for",
  ["posix/ready.c operator: if (count > 0) memcpy(ready->watched.list, list, count * "
    .. "sizeof *list); => if (count >= 0) memcpy(ready->watched.list, list, count * sizeof "
    .. "*list);"]
    = "a copy of no bytes changes nothing",
  ["posix/ready.c operator: if (ready->timer >= 0) close(ready->timer); => if "
    .. "(ready->timer > 0) close(ready->timer);"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/system.c constant: if (fds[i].fd < 0) continue; => if (fds[i].fd < 1) continue;"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/system.c constant: if (madvise(page, size, -1) != 0 && madvise(page, size, "
    .. "MADV_WIPEONFORK) == 0) process = page; => if (madvise(page, size, -2) != 0 && "
    .. "madvise(page, size, MADV_WIPEONFORK) == 0) process = page;"]
    = "there is no such advice either",
  ["posix/system.c constant: if (poll(&readable, 1, milliseconds(span)) < 0) return -1; "
    .. "=> if (poll(&readable, 1, milliseconds(span)) < 0) return -2;"]
    = "each number below 0 is a failure",
  ["posix/system.c constant: if (sent < 0 && error == EPIPE && !others && "
    .. "is_pending(SIGPIPE)) sigwait(&broken, &number); => if (sent < 1 && error == EPIPE && "
    .. "!others && is_pending(SIGPIPE)) sigwait(&broken, &number);"]
    = "a send that succeeds has sent a byte",
  ["posix/system.c constant: if (snprintf(text, size, \"error %d\", error) < 0 && size > "
    .. "0) text[0] = '\\0'; => if (snprintf(text, size, \"error %d\", error) < 1 && size > 0) "
    .. "text[0] = '\\0';"]
    = "a number is always written, and its text is not empty",
  ["posix/system.c dropped assignment: errno = error; =>  (2)"]
    = "the calls between set no errno",
  ["posix/system.c operator: for (int end = 0; end < 2; end++) ends[end] = "
    .. "close_keeping_errno(ends[end]); => for (int end = 0; end >= 2; end++) ends[end] = "
    .. "close_keeping_errno(ends[end]);"]
    = "no call for a pipe's own ends fails",
  ["posix/system.c operator: if (ends[0] >= 0 && ends[1] >= 0) return true; => if "
    .. "(ends[0] > 0 && ends[1] >= 0) return true;"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/system.c operator: if (snprintf(text, size, \"error %d\", error) < 0 && size > "
    .. "0) text[0] = '\\0'; => if (snprintf(text, size, \"error %d\", error) < 0 && size >= "
    .. "0) text[0] = '\\0';"]
    = "a number is always written, and its text is not empty",
  ["posix/system.c operator: if (snprintf(text, size, \"error %d\", error) < 0 && size > "
    .. "0) text[0] = '\\0'; => if (snprintf(text, size, \"error %d\", error) <= 0 && size > "
    .. "0) text[0] = '\\0';"]
    = "a number is always written, and its text is not empty",
  ["posix/system.c operator: while (read(end, bytes, sizeof bytes) > 0) continue; => "
    .. "while (read(end, bytes, sizeof bytes) >= 0) continue;"]
    = "the other end is open, so there is no end of the stream",
  ["posix/tls.c constant: SSL_CTX_set_read_ahead(context, 1); => "
    .. "SSL_CTX_set_read_ahead(context, 0);"]
    = "OpenSSL only calls recv more often",
  ["posix/tls.c constant: if (tries == 1000) return; => if (tries == 1001) return;"]
    = "an exit waits a millisecond longer",
  ["posix/tls.c constant: int error = sent == 0 ? EPIPE : errno; => int error = sent == 1 "
    .. "? EPIPE : errno;"]
    = "a connection whose end OpenSSL has read is written to no more",
  ["posix/tls.c constant: return -1; => return -2; (2)"]
    = "each number below 0 is a failure",
  ["posix/tls.c dropped assignment: settings->method = NULL; =>  (3)"]
    = "without a context it is made anew before it is used",
  ["posix/tls.c dropped assignment: tls->recv_wants_write = false; => "]
    = "the recv that ends each reading sets it",
  ["posix/tls.c dropped call: SSL_CTX_set_read_ahead(context, 1); => "]
    = "OpenSSL only calls recv more often",
  ["posix/tls.c operator: if (ERR_GET_LIB(error) == ERR_LIB_SSL && => if "
    .. "(ERR_GET_LIB(error) != ERR_LIB_SSL &&"]
    = "OpenSSL was told to report that end without an error",
  ["posix/tls.c word: tls->failed = true; => tls->failed = false;"]
    = "OpenSSL itself sends no goodbye after a fatal error",
  ["posix/watchdog.c dropped assignment: driver->sleeps_until = 0; =>  (2)"]
    = "a watchdog that was already woken is only woken again",
  ["posix/watchdog.c order of calls: hf_links_serve_renewer(driver, hf_now()); "
    .. "pthread_cond_broadcast(&driver->changed); => "
    .. "pthread_cond_broadcast(&driver->changed); hf_links_serve_renewer(driver, hf_now());"]
    = "whoever is woken waits for the mutex, which stays locked",
  ["lua/call.c constant: return run_on(L, hf_lock_check(L), HF_OP_COMPLETE, keep, record, "
    .. "NULL, 0); => return run_on(L, hf_lock_check(L), HF_OP_COMPLETE, keep, record, NULL, "
    .. "1);"]
    = "only a command and a fence have words",
  ["lua/call.c dropped call: lua_remove(L, -2); => "]
    = "an operation encodes its words as it begins, and does not read them again",
  ["lua/client.c constant: config.sync.replicas = (uint32_t)hf_field_whole(L, 1, "
    .. "\"sync_replicas\", 1000); => config.sync.replicas = (uint32_t)hf_field_whole(L, 1, "
    .. "\"sync_replicas\", 1001);"]
    = "the API takes 1000 replicas at most",
  ["lua/client.c constant: if (run_id[0]) snprintf(text, size, \"%s/%u\", run_id, "
    .. "server->db); => if (run_id[1]) snprintf(text, size, \"%s/%u\", run_id, server->db);"]
    = "a run id is empty, or has forty characters",
  ["lua/client.c operator: for (size_t i = 0; i < hf_client_node_count(client) && i < "
    .. "room; i++) { => for (size_t i = 0; i < hf_client_node_count(client) && i <= room; "
    .. "i++) {"]
    = "a node that has just come is listed now, or by the next call",
  ["lua/client.c order of calls: copy_field(L, \"sentinel_user\", servers[i].user, sizeof "
    .. "servers[i].user); copy_field(L, \"sentinel_password\", servers[i].password, sizeof "
    .. "servers[i].password); => copy_field(L, \"sentinel_password\", servers[i].password, "
    .. "sizeof servers[i].password); copy_field(L, \"sentinel_user\", servers[i].user, sizeof "
    .. "servers[i].user);"]
    = "each fills a field of its own",
  ["lua/client.c order of calls: hf_driver_leave(driver); lua_pushboolean(L, more); => "
    .. "lua_pushboolean(L, more); hf_driver_leave(driver);"]
    = "pushing a boolean raises no error",
  ["lua/client.c order of calls: memset(&config, 0, sizeof config); luaL_checktype(L, 1, "
    .. "LUA_TTABLE); => luaL_checktype(L, 1, LUA_TTABLE); memset(&config, 0, sizeof config);"]
    = "an error leaves nothing of a local variable",
  ["lua/engine.c dropped assignment: deadline = hf_client_deadline(client); => "]
    = "the caller comes back at once and gets the new deadline then",
  ["lua/engine.c dropped call: hf_driver_leave(driver); => "]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c dropped call: hf_driver_leave(driver); =>  (2)"]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c dropped call: hf_driver_leave(driver); =>  (3)"]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c dropped call: hf_driver_leave(driver); =>  (4)"]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c dropped call: hf_driver_leave(driver); =>  (5)"]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c dropped call: hf_driver_leave(driver); =>  (6)"]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c dropped call: hf_driver_leave(driver); =>  (7)"]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c dropped call: hf_driver_leave(driver); =>  (8)"]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c dropped call: hf_driver_leave(driver); =>  (9)"]
    = "an external driver has no mutex to unlock",
  ["lua/engine.c order of calls: hf_driver_leave(driver); lua_pushinteger(L, "
    .. "(lua_Integer)load.operations); => lua_pushinteger(L, (lua_Integer)load.operations); "
    .. "hf_driver_leave(driver);"]
    = "pushing an integer raises no error",
  ["lua/lock.c constant: if (!lock->driver) return 0; => if (!lock->driver) return 1;"]
    = "nothing reads what a finalizer returns",
  ["lua/lock.c constant: lock->texts = malloc(owner.size + fingerprint.size + 1); => "
    .. "lock->texts = malloc(owner.size + fingerprint.size + 0);"]
    = "here the C library gives memory for an empty text, too",
  ["lua/op.c constant: lua_pushnumber(L, self->op ? (lua_Number)hf_op_number(self->op) : "
    .. "0); => lua_pushnumber(L, self->op ? (lua_Number)hf_op_number(self->op) : 1);"]
    = "only a wait uses the number, and this operation is done as it begins",
  ["lua/op.c order of calls: abandon_acquired(self); note_releases(self); => "
    .. "note_releases(self); abandon_acquired(self);"]
    = "one is about what acquires, the other about what releases",
  ["lua/owner.c constant: hf_slice decimal = hf_decimal(digits, lock->handle > 0 ? "
    .. "lock->handle : (uint64_t)number); => hf_slice decimal = hf_decimal(digits, "
    .. "lock->handle > 1 ? lock->handle : (uint64_t)number);"]
    = "a client's first handle is a semaphore's reader, which takes nothing",
  ["lua/watchdog.c order of calls: hf_driver_leave(driver); lua_pushinteger(L, "
    .. "(lua_Integer)renewed); => lua_pushinteger(L, (lua_Integer)renewed); "
    .. "hf_driver_leave(driver);"]
    = "pushing an integer raises no error",
  ["holdfast/deadlocks.lua constant: if info and (info.readers or 0) > 1 then list = "
    .. "readers(graph, key) end => if info and (info.readers or 1) > 1 then list = "
    .. "readers(graph, key) end"]
    = "neither 0 nor 1 is above 1",
  ["holdfast/fence.lua order of calls: add(all, \"del pfmerge sdiffstore sinterstore "
    .. "sunionstore unlink\") add(every_other, \"mset msetnx\") => add(every_other, \"mset "
    .. "msetnx\") add(all, \"del pfmerge sdiffstore sinterstore sunionstore unlink\")"]
    = "they are about different commands",
  ["holdfast/loop/cosockets.lua constant: if self.clock == clock then self.sleeps_until = "
    .. "0 end => if self.clock == clock then self.sleeps_until = 1 end"]
    = "a task that is awake runs once more",
  ["holdfast/loop/cosockets.lua operator: local most = cuts == 0 and vary(12, 16) or cuts "
    .. "== 1 and vary(48, 64) or MOST_BYTES => local most = cuts == 0 and vary(12, 16) or "
    .. "cuts ~= 1 and vary(48, 64) or MOST_BYTES"]
    = "how much one read takes changes its cost alone",
  ["holdfast/loop/cosockets.lua word: if host:find(\":\", 1, true) then host = \"[\" .. "
    .. "host .. \"]\" end => if host:find(\":\", 1, false) then host = \"[\" .. host .. \"]\" "
    .. "end"]
    = "a colon is the same as a pattern",
  ["holdfast/loop/descriptors.lua operator: local till = now() + PASSING => local till = "
    .. "now() - PASSING"]
    = "the next round of the loop wakes the rest",
  ["holdfast/loop/ngx.lua constant: if self.semaphore:count() == 0 and #spare < 1000 then "
    .. "spare[#spare + 1] = self end => if self.semaphore:count() == 0 and #spare < 1001 then "
    .. "spare[#spare + 1] = self end"]
    = "one more spare semaphore is kept",
  ["holdfast/loop/pump.lua dropped call: spare_waiter(waiter) => "]
    = "a waiter is used again for speed alone",
  ["holdfast/loop/pump.lua word: waiter.ready, waiter.owner, waiter.done, waiter.late = "
    .. "false, false, false, false => waiter.ready, waiter.owner, waiter.done, waiter.late = "
    .. "true, false, false, false"]
    = "it is set before the waiter is among those that wait",
  ["holdfast/metrics.lua operator: if value % 1 == 0 and value < 2 ^ 53 then return "
    .. "(\"%.0f\"):format(value) end => if value % 1 == 0 and value <= 2 ^ 53 then return "
    .. "(\"%.0f\"):format(value) end"]
    = "no counter gets there",
  ["holdfast/options.lua operator: if #name > 64 then return nil end => if #name >= 64 "
    .. "then return nil end"]
    = "no known name is nearly that long",
  ["holdfast/deadlocks.lua operator: if info and (info.readers or 0) > 1 then list = "
    .. "readers(graph, key) end => if info and (info.readers or 0) >= 1 then list = "
    .. "readers(graph, key) end"]
    = "info names a lone reader, or the writer that reads as well",
  ["holdfast/loop/luv.lua word: closing[handle] = true => closing[handle] = false"]
    = "the key keeps the handle, and nobody reads the value",
  ["holdfast/loop/pump.lua order of calls: notify_listeners(self, true) "
    .. "self.loop.report(pcall(self.loop.io.stop, self)) => "
    .. "self.loop.report(pcall(self.loop.io.stop, self)) notify_listeners(self, true)"]
    = "the stop of a task with nothing under way counts nothing, and after any other one the next task adds it",
  ["lua/engine.c dropped call: hf_driver_enter(driver); =>  (3)"]
    = "an external driver has no mutex, and the next call notices a fork, too",
  ["lua/engine.c order of calls: lua_pushinteger(L, "
    .. "(lua_Integer)hf_client_link_count(driver->client)); hf_driver_leave(driver); => "
    .. "hf_driver_leave(driver); lua_pushinteger(L, "
    .. "(lua_Integer)hf_client_link_count(driver->client));"]
    = "an external driver has no mutex to unlock",
  ["posix/driver.c constant: if (!driver->ready) return -1; => if (!driver->ready) "
    .. "return -2;"]
    = "each number below 0 is no descriptor",
  ["posix/tls.c operator: bool again = result < 0 && (errno == EAGAIN || errno == "
    .. "EWOULDBLOCK || errno == EINTR); => bool again = result <= 0 && (errno == EAGAIN || "
    .. "errno == EWOULDBLOCK || errno == EINTR);"]
    = "OpenSSL clears errno before it reads, and a socket's end does not set it",
  ["posix/tls.c word: if (result == 0) tls->ended = true; => if (result == 0) "
    .. "tls->ended = false;"]
    = "OpenSSL then reports no error, which is taken for an end, too",
  ["posix/caller.c word: bool signalled = false; => bool signalled = true;"]
    = "only an operation that is not done reads it, and the sleep has written it",
  ["posix/crash.c constant: if (makes && mkdir(path, 0700) != 0 && errno != EEXIST) "
    .. "return -1; => if (makes && mkdir(path, 0700) != 0 && errno != EEXIST) return -2;"]
    = "each number below 0 is no descriptor",
  ["posix/system.c operator: if (dladdr((void *)(uintptr_t)address, &info) && "
    .. "info.dli_fname) => if (dladdr((void *)(uintptr_t)address, &info) || info.dli_fname)"]
    = "the library that is loaded is always found, with its name",
  ["posix/tls.c constant: if (result <= 0 && !pending) explain_handshake(tls, result, "
    .. "reason, size); => if (result <= 1 && !pending) explain_handshake(tls, result, "
    .. "reason, size);"]
    = "nobody reads the reason of a handshake that has succeeded",
  ["posix/ready.c constant: return ms > 3600000 ? 3600000 : (int)ms; => return ms > "
    .. "3600001 ? 3600000 : (int)ms;"]
    = "it is a millisecond in an hour",
  ["posix/net.c constant: if (fd < 0) { => if (fd < 1) {"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/links.c constant: while (more && connection->fd >= 0) { => while (more && "
    .. "connection->fd >= 1) {"]
    = "no descriptor is 0: they are above the standard streams",
  ["posix/job.c operator: size_t rest = filled < HF_UUID_SIZE ? filled : HF_UUID_SIZE "
    .. "- 1; => size_t rest = filled <= HF_UUID_SIZE ? filled : HF_UUID_SIZE - 1;"]
    = "a byte more is kept, and a whole uuid would have been found",
  ["posix/job.c operator: char text[4096 + HF_UUID_SIZE]; => char text[4096 - "
    .. "HF_UUID_SIZE];"]
    = "an environment is read in pieces, of any size above a uuid's",
  ["posix/caller.c operator: hf_time_min(until > now ? until - now : 0, HF_SLICE)); => "
    .. "hf_time_min(until >= now ? until - now : 0, HF_SLICE));"]
    = "a difference of 0 is a 0",
  ["posix/driver.c constant: hf_time until = hf_client_has_done(driver->client) ? 0 : "
    .. "hf_client_deadline(driver->client); => hf_time until = "
    .. "hf_client_has_done(driver->client) ? 1 : hf_client_deadline(driver->client);"]
    = "no time is a nanosecond",
  ["posix/watchdog.c order of calls: hf_pipe_wake(driver->wake[1]); "
    .. "pthread_mutex_unlock(&driver->mutex); => pthread_mutex_unlock(&driver->mutex); "
    .. "hf_pipe_wake(driver->wake[1]);"]
    = "the pipe stays open until the thread has ended",
  ["lua/template.c order of calls: luaL_checktype(L, 1, LUA_TTABLE); hf_new_object(L, "
    .. "1, hf_template_type); => hf_new_object(L, 1, hf_template_type); luaL_checktype(L, "
    .. "1, LUA_TTABLE);"]
    = "the library gives it a table, and without one both raise",
  ["holdfast/loop/cqueues.lua word: if self.fired then return true end => if self.fired "
    .. "then return false end"]
    = "nobody waits for a signal that has fired",
  ["holdfast/loop/cosockets.lua order of calls: spawn_link(self, link) put(self, "
    .. "number, self.actions[number]) => put(self, number, self.actions[number]) "
    .. "spawn_link(self, link)"]
    = "a new link's first action is open, which its reader finds by itself",
  ["lua/module.c constant: static const char NAMED_HERE = 0; /* any address of the "
    .. "module */ => static const char NAMED_HERE = 1; /* any address of the module */"]
    = "only its address is used",
  ["holdfast/multi_lock.lua operator: return MAY_PASS[code] and core.now() < by => "
    .. "return MAY_PASS[code] and core.now() <= by"]
    = "a step takes longer than no time",
  ["holdfast/options.lua order of calls: foreign({ \"abort_on_loss\" }, \"abort\", "
    .. "\"abortonlost\") foreign({ \"tls\" }, \"ssl\") => foreign({ \"tls\" }, \"ssl\") "
    .. "foreign({ \"abort_on_loss\" }, \"abort\", \"abortonlost\")"]
    = "they are about different names",
  ["lua/watchdog.c order of calls: hf_driver_leave(driver); lua_pushboolean(L, "
    .. "started); => lua_pushboolean(L, started); hf_driver_leave(driver);"]
    = "pushing a boolean raises no error",
  ["holdfast/loop/cosockets.lua constant: for number = 1, links do put(self, number, "
    .. "actions[number]) end => for number = 0, links do put(self, number, actions[number]) "
    .. "end"]
    = "there is no link 0",
}
