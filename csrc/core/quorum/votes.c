#include "quorum/votes.h"
#include "op/leave.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/operation.h"

/* A server that refused a connection is skipped for this long, unless a majority needs it. */
#define SKIP_TIME (100 * HF_MS)

/* ---- creating a round ---- */

hf_round *hf_round_new(const hf_op_spec *spec, size_t count) {
    size_t votes = count * sizeof(hf_vote);
    size_t texts =
        spec->caller.size + spec->owner.size + spec->fingerprint.size + spec->result.size;
    hf_round *round = calloc(1, sizeof *round + votes + texts);
    if (!round) return NULL;
    char *text = (char *)round->votes + votes;
    *round = (hf_round){.refs = 1, .count = count, .retry_at = HF_NEVER, .decide_by = HF_NEVER};
    round->caller = hf_slice_copy(&text, spec->caller);
    round->owner = hf_slice_copy(&text, spec->owner);
    round->fingerprint = hf_slice_copy(&text, spec->fingerprint);
    round->result = hf_slice_copy(&text, spec->result);
    if (spec->names) round->names = hf_names_new(spec->lock_kind, spec->names->key);
    if (spec->names && !round->names) {
        free(round);
        return NULL;
    }
    return round;
}

void hf_round_unref(hf_round *round) {
    assert(round->refs > 0);
    if (--round->refs > 0) return;
    if (round->hold) hf_hold_unref(round->hold);
    hf_names_delete(round->names);
    free(round);
}

void hf_round_choose_owner(hf_round *round, hf_hold *hold) {
    hf_slice owner = hf_hold_owner(hold);
    if (hold->claim->shared) return;
    int size = snprintf(round->owner_text, sizeof round->owner_text, "%.*s.%u", (int)owner.size,
                        owner.data, ++hold->copies);
    assert(size > 0 && (size_t)size < sizeof round->owner_text);
    round->owner = (hf_slice){round->owner_text, (size_t)size};
}

hf_op_spec hf_round_spec(const hf_round *round, const hf_op_spec *spec) {
    hf_op_spec member_spec = *spec;
    member_spec.names = round->names;
    member_spec.caller = round->caller;
    member_spec.owner = round->owner;
    member_spec.fingerprint = round->fingerprint;
    member_spec.result = round->result;
    member_spec.wait = 0;
    return member_spec;
}

/* ---- votes ---- */

hf_tally hf_votes_count(const hf_round *round) {
    hf_tally votes = {0};
    for (size_t i = 0; i < round->count; i++) {
        const hf_vote *vote = &round->votes[i];
        votes.pending += !vote->counted;
        votes.yes += vote->counted && vote->yes;
        votes.skipped += vote->skipped;
        votes.guarded += vote->guarded;
        votes.transient += vote->is_transient;
        votes.busy += vote->counted && !vote->yes && vote->code == HF_BUSY;
        votes.denied += vote->counted && !vote->yes && vote->code == HF_DENIED;
        votes.conflict += vote->counted && !vote->yes && vote->code == HF_CONFLICT;
        votes.lost +=
            vote->counted && !vote->yes && (vote->code == HF_LOST || vote->code == HF_NOT_HELD);
    }
    return votes;
}

void hf_vote_no(hf_vote *vote, hf_code code, const char *why) {
    assert(code != HF_OK && why);
    vote->counted = true;
    vote->yes = false;
    vote->code = code;
    snprintf(vote->why, sizeof vote->why, "%.63s", why);
}

void hf_vote_yes(hf_vote *vote) {
    vote->counted = vote->yes = true;
    vote->code = HF_OK;
}

/* Returns the server's reason, or the name of the code if the server gave none. */
static const char *failure_reason(const hf_op *op) {
    bool is_link_failure = op->failure.code == HF_UNREACHABLE || op->failure.code == HF_DENIED;
    bool is_servers_reason = is_link_failure && op->request.failure.code == op->failure.code;
    return is_servers_reason ? hf_fault_text(&op->request.failure) : hf_code_name(op->failure.code);
}

static void count_vote(hf_op *op, size_t index, hf_time now) {
    hf_vote *vote = &op->round->votes[index];
    const hf_op *member_op = vote->op;
    assert(!vote->counted && member_op->done);
    if (member_op->failure.code != HF_OK) {
        hf_vote_no(vote, member_op->failure.code, failure_reason(member_op));
        vote->is_transient = member_op->request.refusals > 0;
        return;
    }
    hf_vote_yes(vote);
    if (!hf_op_impl_of(op)->acquires) return;
    vote->token = member_op->hold->token;
    hf_quorum_learn_clock(hf_quorum_of(op), index, member_op);
    if (!hf_quorum_is_guarded(op->client, index, now)) return;
    hf_renewer_abandon(hf_quorum_of(op)->members[index], member_op->hold, 1, now);
    vote->rolled_back = vote->guarded = true;
    hf_vote_no(vote, HF_UNREACHABLE, "restarted recently");
}

void hf_votes_record_arrived(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    for (size_t i = 0; i < round->count; i++) {
        hf_vote *vote = &round->votes[i];
        assert(vote->counted || vote->op);
        if (!vote->counted && vote->op->done) count_vote(op, i, now);
    }
}

/* Returns why a member has not replied. Its connection may be fine, because an operation may have
 * to wait there until an earlier one is undone. */
static const char *silence_reason(const hf_client *member) {
    const hf_session *calls = &member->first.links[HF_LINK_CALLS];
    bool has_no_connection = calls->state == HF_SESSION_CLOSED && calls->reason[0] != '\0';
    return has_no_connection ? calls->reason : "no reply in time";
}

void hf_votes_time_out(const hf_op *op) {
    hf_round *round = op->round;
    for (size_t i = 0; i < round->count; i++) {
        if (!round->votes[i].counted)
            hf_vote_no(&round->votes[i], HF_UNREACHABLE,
                       silence_reason(hf_quorum_of(op)->members[i]));
    }
}

/* Called for an operation that is blocked by a command of the renewer. That command may be waiting
 * for a connection. Lets the member connect at once, as the operation's own command would. */
static void connect_now(hf_client *member, hf_time now) {
    for (int link = 0; link < HF_LINKS; link++)
        hf_session_retry_now(&member->first.links[link], now);
}

void hf_votes_ask(hf_op *op, size_t index, const hf_op_spec *spec, hf_time now) {
    hf_vote *vote = &op->round->votes[index];
    assert(!vote->op && index < op->round->count);
    vote->op = hf_client_begin(hf_quorum_of(op)->members[index], spec, now);
    if (!vote->op) hf_vote_no(vote, HF_NO_MEMORY, "out of memory");
    else if (vote->op->blocked) connect_now(hf_quorum_of(op)->members[index], now);
}

hf_time hf_votes_deadline(const hf_op *op, hf_time now) {
    hf_time limit = now + op->client->config.session.command_timeout;
    if (!hf_op_impl_of(op)->acquires || op->spec.wait == 0) return limit;
    return hf_time_min(limit, hf_time_max(op->wait.until, now + HF_MIN_GRACE));
}

void hf_votes_begin(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    assert(round->state == HF_ROUND_ASKING || round->state == HF_ROUND_PAUSING);
    round->state = HF_ROUND_ASKING;
    round->attempts++;
    round->asked_at = now;
    round->decide_by = hf_votes_deadline(op, now);
    memset(round->votes, 0, round->count * sizeof *round->votes);
}

static bool has_refused_recently(const hf_client *member, hf_time now) {
    const hf_session *calls = &member->first.links[HF_LINK_CALLS];
    bool refused = calls->state == HF_SESSION_CLOSED && calls->opens_since_reply > 0 &&
                   calls->reason_code == HF_UNREACHABLE;
    return refused && now < calls->opened_at + SKIP_TIME;
}

/* Chooses one owner for all servers, and a new one for each attempt, so that the remains of one
 * attempt cannot be mistaken for part of the next. */
static void choose_owner(hf_op *op) {
    hf_round *round = op->round;
    if (!hf_op_impl_of(op)->acquires || op->spec.shared) return;
    if (hf_hold_is_held(round->hold)) {
        hf_round_choose_owner(round, round->hold);
        return;
    }
    int size = snprintf(round->owner_text, sizeof round->owner_text, "%s:%llu", op->client->uuid,
                        (unsigned long long)++op->client->holds.last_number);
    round->owner = (hf_slice){round->owner_text, (size_t)size};
}

static hf_op_spec attempt_spec(const hf_op *op, hf_time now) {
    hf_op_spec spec = hf_round_spec(op->round, &op->spec);
    const hf_hold *hold = op->round->hold;
    if (hf_op_impl_of(op)->acquires && hf_hold_is_held(hold))
        spec.max_hold = hf_claim_max_left(hold->claim, now);
    if (hf_op_impl_of(op)->acquires && spec.token_ttl_ms > 0)
        spec.token_floor = hf_quorum_propose(hf_quorum_of(op), now);
    return spec;
}

void hf_votes_ask_all(hf_op *op, hf_time now) {
    hf_votes_begin(op, now);
    choose_owner(op);
    hf_op_spec spec = attempt_spec(op, now);
    for (size_t i = 0; i < op->round->count; i++) {
        hf_vote *vote = &op->round->votes[i];
        const hf_client *member = hf_quorum_of(op)->members[i];
        vote->skipped = has_refused_recently(member, now);
        if (vote->skipped)
            hf_vote_no(vote, HF_UNREACHABLE, member->first.links[HF_LINK_CALLS].reason);
        else hf_votes_ask(op, i, &spec, now);
    }
}

/* Asks the servers that were skipped, because there is no majority without them. Returns false if
 * none was skipped, or if there cannot be a majority even with them. */
bool hf_votes_ask_skipped(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    hf_tally votes = hf_votes_count(round);
    if (votes.skipped == 0 ||
        votes.yes + votes.pending + votes.skipped < hf_quorum_of(op)->majority)
        return false;
    hf_op_spec spec = attempt_spec(op, now);
    for (size_t i = 0; i < round->count; i++) {
        hf_vote *vote = &round->votes[i];
        if (!vote->skipped) continue;
        vote->skipped = vote->counted = false;
        hf_votes_ask(op, i, &spec, now);
    }
    round->decide_by = hf_votes_deadline(op, now);
    return true;
}

/* Returns whether the member granted the lock and the grant has not been rolled back. */
static bool was_granted(const hf_op *op, const hf_vote *vote) {
    return hf_op_impl_of(op)->acquires && vote->op && vote->op->done &&
           vote->op->failure.code == HF_OK && !vote->rolled_back;
}

void hf_votes_end(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    for (size_t i = 0; i < round->count; i++) {
        hf_vote *vote = &round->votes[i];
        if (vote->write_back) hf_op_end(vote->write_back, now);
        if (was_granted(op, vote) && !vote->yes)
            hf_renewer_abandon(hf_quorum_of(op)->members[i], vote->op->hold, 1, now);
        if (vote->op && vote->op->done) hf_op_end(vote->op, now);
        else if (vote->op) hf_quorum_await_late_reply(op->client, round, i, vote->op, now);
        vote->op = vote->write_back = NULL;
    }
}

/* An acquire without a majority must leave nothing on the servers: neither grants that it has nor
 * grants that it may still get. */
void hf_votes_roll_back(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    for (size_t i = 0; i < round->count; i++) {
        hf_vote *vote = &round->votes[i];
        if (vote->write_back) hf_op_end(vote->write_back, now);
        if (was_granted(op, vote))
            hf_renewer_abandon(hf_quorum_of(op)->members[i], vote->op->hold, 1, now);
        if (vote->op) hf_op_end(vote->op, now);
        vote->op = vote->write_back = NULL;
    }
}

/* Returns the time until which a connection to a member without a vote may turn out to be dead. */
static hf_time doubtful_until(const hf_op *op) {
    const hf_round *round = op->round;
    hf_time until = 0;
    for (size_t i = 0; i < round->count; i++) {
        const hf_client *member = hf_quorum_of(op)->members[i];
        if (!round->votes[i].counted)
            until =
                hf_time_max(until, hf_session_doubtful_until(&member->first.links[HF_LINK_CALLS]));
    }
    return until;
}

/* If a majority has replied without a decision, gives the other members ten times as long as the
 * majority took, but at least HF_MIN_GRACE. This grace period begins once no connection to those
 * members can still turn out to be dead. */
void hf_votes_limit_wait(hf_op *op, const hf_tally *votes, hf_time now) {
    hf_round *round = op->round;
    if (round->count - votes->pending < hf_quorum_of(op)->majority) return;
    hf_time grace = hf_time_max(HF_MIN_GRACE, 10 * (now - round->asked_at));
    hf_time grace_start = hf_time_max(now, doubtful_until(op));
    round->decide_by = hf_time_min(round->decide_by, grace_start + grace);
}

/* ---- messages ---- */

static void list_failures(const hf_op *op, char *text, size_t size) {
    const hf_round *round = op->round;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < round->count && used < size; i++) {
        const hf_vote *vote = &round->votes[i];
        if (vote->yes || !vote->counted) continue;
        const char *label = op->client->config.servers[i].label;
        used += (size_t)snprintf(text + used, size - used, "%s %s %s", used ? "," : ":", label,
                                 vote->why);
    }
}

/* Writes "2 of 5 <verb>, 1 yet to answer: s2:6379 busy". */
static void summarize(const hf_op *op, const char *verb, char *text, size_t size) {
    char failures[HF_FAILURE_TEXT_SIZE];
    list_failures(op, failures, sizeof failures);
    hf_tally votes = hf_votes_count(op->round);
    char pending[48] = "";
    if (votes.pending > 0) snprintf(pending, sizeof pending, ", %zu yet to answer", votes.pending);
    snprintf(text, size, "%zu of %zu %s%s%s", votes.yes, op->round->count, verb, pending, failures);
}

void hf_votes_fail(hf_op *op, hf_code code, const char *verb) {
    char text[HF_FAILURE_TEXT_SIZE + 128];
    summarize(op, verb, text, sizeof text);
    hf_op_fail(op, code, "%s", text);
}

void hf_votes_cut_off(hf_op *op, hf_code code, hf_time now) {
    char text[HF_FAILURE_TEXT_SIZE + 128];
    summarize(op, "granted", text, sizeof text);
    hf_observe_cut_off(op, code, text, now);
}

/* A server that has not replied yet does not count as unreachable. */
hf_code hf_votes_code(const hf_op *op) {
    hf_tally votes = hf_votes_count(op->round);
    size_t majority = hf_quorum_of(op)->majority;
    if (votes.busy > 0 && votes.yes + votes.busy + votes.pending >= majority) return HF_BUSY;
    if (votes.conflict > op->round->count - majority) return HF_CONFLICT;
    return votes.denied > op->round->count - majority ? HF_DENIED : HF_NO_QUORUM;
}

void hf_votes_conclude(hf_op *op, hf_time now) {
    hf_hold *hold = op->round->hold;
    assert(op->round->state != HF_ROUND_DECIDED);
    op->round->state = HF_ROUND_DECIDED;
    if (hold) hold->claim->has_command_in_flight = false;
    hf_votes_end(op, now);
    if (!hold) return;
    hf_renewer_abandon_deferred(op->client, hold, now);
    hf_client_unblock(op->client, hold->claim, now);
}
