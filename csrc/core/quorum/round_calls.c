/* A quorum's operations except acquire: those on a hold, and those on a key. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "op/calls.h"
#include "op/operation.h"
#include "op/taking.h"
#include "quorum/round.h"
#include "quorum/votes.h"

/* ---- results ---- */

static int compare_descending(const void *a, const void *b) {
    long long left = *(const long long *)a, right = *(const long long *)b;
    return (left < right) - (left > right);
}

/* Sets the result to the largest value that a majority reaches. */
static void combine_values(hf_op *op, hf_time now) {
    (void)now;
    hf_round *round = op->round;
    long long values[HF_QUORUM_MAX] = {0};
    size_t count = 0, majority = hf_quorum_of(op)->majority;
    for (size_t i = 0; i < round->count; i++) {
        if (round->votes[i].yes) values[count++] = round->votes[i].op->result.value;
    }
    assert(count >= majority);
    qsort(values, count, sizeof *values, compare_descending);
    op->result.value = values[majority - 1];
}

static void strip_copy_number(hf_lock_info *info) {
    info->owner_size = hf_owner_strip_copy((hf_slice){info->owner, info->owner_size}).size;
    info->owner[info->owner_size] = '\0';
}

static bool has_same_owner(const hf_lock_info *a, const hf_lock_info *b) {
    return a->owner_size == b->owner_size && memcmp(a->owner, b->owner, a->owner_size) == 0;
}

static hf_lock_info *info_of(const hf_vote *vote) {
    return vote->yes ? vote->op->result.info : NULL;
}

static size_t count_same_owner(const hf_round *round, const hf_lock_info *info) {
    size_t agree = 0;
    for (size_t i = 0; i < round->count; i++) {
        const hf_lock_info *other = info_of(&round->votes[i]);
        agree += other && has_same_owner(info, other);
    }
    return agree;
}

/* Combines the replies that name the owner on which a majority agrees. If no majority agrees, the
 * lock counts as free. The highest token came from the fastest clock, so that clock measures the
 * time held. */
static void combine_info(hf_op *op, hf_time now) {
    (void)now;
    hf_round *round = op->round;
    hf_lock_info *info = op->result.info = calloc(1, sizeof *info);
    if (!info) {
        hf_op_fail_out_of_memory(op);
        return;
    }
    *info = (hf_lock_info){.ttl_ms = -2, .ahead = -1, .waited_us = -1};
    for (size_t i = 0; i < round->count; i++) {
        if (info_of(&round->votes[i])) strip_copy_number(info_of(&round->votes[i]));
    }
    for (size_t i = 0; i < round->count; i++) {
        const hf_lock_info *other = info_of(&round->votes[i]);
        if (!other || other->owner_size == 0) continue;
        if (count_same_owner(round, other) < hf_quorum_of(op)->majority) continue;
        uint64_t token = info->token > other->token ? info->token : other->token;
        long long clock = info->clock_us > other->clock_us ? info->clock_us : other->clock_us;
        *info = *other;
        info->token = token;
        info->clock_us = clock;
        info->waiters = 0;
        info->waited_us = -1;
    }
}

/* The result is 1 if the lock was held on any server: breaking it also ends a minority's holds. */
static void combine_forced(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    size_t held_count = 0;
    for (size_t i = 0; i < round->count; i++)
        held_count += round->votes[i].yes && round->votes[i].op->result.value > 0;
    op->result.value = held_count > 0;
    hf_hold *hold =
        hf_holds_find(&op->client->holds, op->spec.lock_kind, op->spec.names->key, op->spec.caller);
    bool may_hold = op->spec.result.size > 0 && held_count == 0;
    if (hold && hf_hold_is_held(hold) && !may_hold)
        hf_quorum_mark_lost(op->client, hold, HF_LOST_DELETED, now);
}

typedef void combiner(hf_op *op, hf_time now);

/* Combiners for operations whose rows do not imply one. */
static combiner *const combiners[HF_OP_KINDS] = {[HF_OP_FORCE] = combine_forced};

/* Returns the function that combines the members' results, or NULL if the operation returns none of
 * them. round.c refuses an operation that returns a raw reply. */
static combiner *combiner_of(const hf_op *op) {
    if (combiners[op->spec.kind]) return combiners[op->spec.kind];
    switch (hf_op_rows[op->spec.kind].returns) {
    case HF_RETURNS_BOOLEAN:
    case HF_RETURNS_VALUE:
    case HF_RETURNS_VALUE_OR_FALSE:
    case HF_RETURNS_TTL: return combine_values;
    case HF_RETURNS_INFO: return combine_info;
    case HF_RETURNS_TRUE:
    case HF_RETURNS_LOCK:
    case HF_RETURNS_REPLY: break;
    }
    return NULL;
}

static void succeed(hf_op *op, hf_time now) {
    combiner *combine = combiner_of(op);
    if (combine) combine(op, now);
    if (!op->done) hf_op_succeed(op);
}

/* ---- on a hold ---- */

void hf_round_fail_lost(hf_op *op, const hf_hold *hold) {
    hf_op_fail(op, HF_LOST, "the lock is no longer held on a majority of the servers (%s)",
               hf_lost_reason_name(hold->reason));
}

/* Returns whether too few servers are left on which the lock is still held, or which have not
 * replied, to form a majority. */
static bool majority_is_lost(const hf_op *op) {
    return hf_votes_count(op->round).lost > op->round->count - hf_quorum_of(op)->majority;
}

/* Removes one of the hold's entries. The others may have been abandoned during the release. */
void hf_round_release_entry(hf_client *client, hf_hold *hold, hf_time now) {
    if (!hf_hold_in_table(hold)) return;
    assert(hold->claim->count > 0);
    hold->claim->count--;
    if (hold->claim->count == 0) hf_quorum_abandon(client, hold, 0, now);
    else hf_quorum_refresh(client, hold, now);
}

static void finish_release(hf_op *op, bool has_majority, hf_time now) {
    hf_hold *hold = op->round->hold;
    hf_claim *claim = hold->claim;
    hf_client *client = op->client;
    bool is_last = hf_hold_is_releasing(hold);
    if (has_majority) {
        client->stats.releases++;
        hf_op_succeed(op);
    } else if (majority_is_lost(op)) {
        bool lost = hf_hold_in_table(hold) && hf_hold_can_be_lost(hold);
        if (lost && is_last) hf_client_lose(client, hold, HF_LOST_DELETED);
        else if (lost) hf_quorum_mark_lost(client, hold, HF_LOST_DELETED, now);
        hf_round_fail_lost(op, hold);
    } else {
        hf_votes_fail(op, HF_NO_QUORUM,
                      hf_op_impl_of(op)->leaves_record
                          ? "recorded it (the others keep the lock until its lease ends)"
                          : "released (the release continues in the background)");
    }
    if (is_last) {
        if (!hf_op_impl_of(op)->leaves_record)
            hf_quorum_clean_up_member_holds(client, hold, 0, now);
        if (hf_hold_in_table(hold)) hf_holds_remove(&client->holds, claim);
    } else {
        hf_round_release_entry(client, hold, now);
    }
    hf_votes_conclude(op, now);
}

static void finish_extend_or_check(hf_op *op, bool has_majority, hf_time now) {
    hf_hold *hold = op->round->hold;
    if (has_majority && hf_op_impl_of(op)->sets_lease) hold->claim->lease = op->spec.lease;
    hf_holds_set_wake_at(&op->client->holds, hold->claim, HF_NEVER);
    hf_quorum_refresh(op->client, hold, now);
    if (hf_hold_is_lost(hold)) hf_round_fail_lost(op, hold);
    else if (!hf_hold_in_table(hold))
        hf_op_fail(op, HF_NOT_HELD, "the lock was released in the meantime");
    else if (has_majority) succeed(op, now);
    else hf_votes_fail(op, HF_NO_QUORUM, hf_op_impl_of(op)->sets_lease ? "extended" : "confirmed");
    hf_votes_conclude(op, now);
}

/* Returns whether a server has nothing to release: it has no member hold, or one with no more
 * entries than the owner keeps. A record must be left on every server. */
static bool has_nothing_to_release(const hf_op *op, size_t index) {
    const hf_hold *hold = op->round->hold, *member_hold = hold->member_holds[index];
    const hf_client *member = hf_quorum_of(op)->members[index];
    return hf_op_impl_of(op)->releases && !hf_op_impl_of(op)->leaves_record &&
           (!hf_member_hold_is_held(member_hold) ||
            hf_member_hold_entries(member, member_hold) <= hold->claim->count - 1);
}

static void ask_members(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    hf_op_spec spec = hf_round_spec(round, &op->spec);
    assert(round->hold && round->hold->member_count == round->count);
    hf_votes_begin(op, now);
    for (size_t i = 0; i < round->count; i++) {
        const hf_hold *member_hold = round->hold->member_holds[i];
        if (has_nothing_to_release(op, i)) hf_vote_yes(&round->votes[i]);
        else if (!hf_member_hold_is_held(member_hold))
            hf_vote_no(&round->votes[i], HF_NOT_HELD, "not held there");
        else hf_votes_ask(op, i, &spec, now);
    }
}

void hf_round_begin_on_hold(hf_op *op, hf_time now) {
    hf_client *client = op->client;
    if (op->spec.lost_hold) {
        hf_call_fail_on_lost_hold(op);
        return;
    }
    hf_hold *hold = hf_op_find_hold(op, op->spec.names->key, now);
    if (!hold || (!hf_hold_is_held(hold) && !hf_hold_is_lost(hold))) {
        hf_op_fail(op, HF_NOT_HELD, "this owner does not hold it");
        return;
    }
    hf_hold_ref(hold);
    op->hold = hold;
    if (hf_hold_is_held(hold) && hold->claim->has_command_in_flight) {
        hf_op_block(op, hold->claim);
        return;
    }
    hf_hold_ref(hold);
    op->round->hold = hold;
    if (hf_hold_is_lost(hold)) {
        hf_round_fail_lost(op, hold);
        if (hf_op_impl_of(op)->releases) hf_quorum_abandon(client, hold, hold->claim->count, now);
        return;
    }
    hold->claim->has_command_in_flight = true;
    bool is_last = hf_op_impl_of(op)->releases &&
                   (hold->claim->count == 1 || hf_op_impl_of(op)->leaves_record);
    if (is_last) hf_quorum_end_late_replies(client, hold, now);
    ask_members(op, now);
    if (is_last) hf_hold_become(hold, HF_HOLD_RELEASING);
}

/* ---- on a key ---- */

static void finish_on_key(hf_op *op, bool has_majority, hf_time now) {
    if (has_majority) succeed(op, now);
    else hf_votes_fail(op, hf_votes_code(op), "answered");
    hf_votes_conclude(op, now);
}

/* Returns whether to wait for every reply that arrives soon. An operation that combines results
 * waits, because the first replies of a majority may not agree on a result. A failed call on a hold
 * waits, because the member holds show whether the hold is lost. */
static bool waits_for_all(const hf_op *op, bool has_majority) {
    if (op->round->hold) return !has_majority;
    return combiner_of(op) != NULL;
}

void hf_round_check_call(hf_op *op, hf_time now) {
    size_t majority = hf_quorum_of(op)->majority;
    hf_votes_record_arrived(op, now);
    if (now >= op->round->decide_by) hf_votes_time_out(op);
    hf_tally votes = hf_votes_count(op->round);
    bool has_majority = votes.yes >= majority, failed = votes.yes + votes.pending < majority;
    if (failed && hf_votes_ask_skipped(op, now)) return;
    /* A late record is better than none: without one on a majority, the run may happen again. */
    if (!hf_op_impl_of(op)->leaves_record) hf_votes_limit_wait(op, &votes, now);
    if (!has_majority && !failed) return;
    if (votes.pending > 0 && waits_for_all(op, has_majority)) return;
    if (op->round->hold && hf_op_impl_of(op)->releases) finish_release(op, has_majority, now);
    else if (op->round->hold) finish_extend_or_check(op, has_majority, now);
    else finish_on_key(op, has_majority, now);
}
