/* The operations of a quorum.
 *
 *   ASKING -> DECIDED                  a majority has voted yes, or no longer can
 *   ASKING -> WRITING_BACK -> DECIDED  an acquire whose token must become known to a majority
 *   ASKING -> PAUSING -> ASKING ...    an acquire that waits, after each attempt without a majority
 *
 * A failed server counts as a no at once. A hung server does not delay the decision: the round
 * waits for its vote only if the outcome depends on it, and not much longer than the others took.
 */
#include "quorum/round.h"

#include <assert.h>

#include "op/acquire.h"
#include "op/deadlock.h"
#include "op/operation.h"
#include "quorum/votes.h"

/* Returns why a quorum refuses the operation, or NULL. Raw replies cannot be combined. */
static const char *refusal_of(const hf_op *op) {
    const char *refusal = hf_op_impl_of(op)->quorum_refusal;
    bool returns_reply = hf_op_rows[op->spec.kind].returns == HF_RETURNS_REPLY;
    return !refusal && returns_reply ? "it needs a single server, not a quorum" : refusal;
}

static bool has_new_result(const hf_round *round) {
    for (size_t i = 0; i < round->count; i++) {
        const hf_vote *vote = &round->votes[i];
        if (vote->op && !vote->counted && vote->op->done) return true;
        if (vote->write_back && vote->write_back->done) return true;
    }
    return false;
}

static hf_time next_tick(const hf_op *op) {
    const hf_round *round = op->round;
    if (op->done || !round) return HF_NEVER;
    if (op->blocked) return hf_time_max(op->wait.until, hf_votes_deadline(op, op->begun_at));
    if (round->state == HF_ROUND_PAUSING)
        return hf_time_min(hf_time_min(op->wait.until, hf_deadlock_next_check(op)),
                           round->retry_at);
    return has_new_result(round) ? 0 : round->decide_by;
}

static void stop_blocked(hf_op *op, hf_time now) {
    if (hf_op_impl_of(op)->acquires && hf_acquire_waited_for_other_call(op, now))
        hf_op_stop(op, HF_BUSY, HF_UNDER_WAY, now);
    else hf_op_stop(op, HF_UNREACHABLE, "an earlier command for this key got no reply", now);
}

static void tick(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    if (op->done) return;
    if (op->blocked) {
        if (now >= next_tick(op)) stop_blocked(op, now);
        return;
    }
    if (round->state == HF_ROUND_PAUSING) hf_deadlock_tick(op, hf_round_on_cycle, now);
    if (op->done) return;
    if (round->state == HF_ROUND_PAUSING) {
        hf_code code = hf_votes_code(op);
        if (now >= op->wait.until) hf_round_fail_acquire(op, code, now);
        else if (now >= round->retry_at) hf_votes_ask_all(op, now);
    } else if (hf_op_impl_of(op)->acquires) {
        hf_round_check_acquire(op, now);
    } else {
        hf_round_check_call(op, now);
    }
}

static void begin(hf_op *op, hf_time now) {
    if (!op->round) op->round = hf_round_new(&op->spec, hf_quorum_of(op)->count);
    if (!op->round) {
        hf_op_fail_out_of_memory(op);
        return;
    }
    const hf_op_impl *impl = hf_op_impl_of(op);
    const char *refusal = refusal_of(op);
    /* round_acquire.c and finish_release do not combine results. */
    assert(refusal || !(impl->acquires || impl->releases) ||
           hf_op_rows[op->spec.kind].returns <= HF_RETURNS_LOCK);
    if (refusal) hf_op_fail(op, HF_SERVER, "%s", refusal);
    else if (impl->acquires) hf_round_begin_acquire(op, now);
    else if (impl->needs_hold) hf_round_begin_on_hold(op, now);
    else hf_votes_ask_all(op, now);
    if (!op->done && !op->blocked) tick(op, now);
}

/* An operation on a lost hold must not affect a hold that was acquired in the meantime. */
static void unblock(hf_op *op, hf_time now) {
    bool is_lost_and_removed = hf_hold_is_lost(op->hold) && !hf_hold_in_table(op->hold);
    if (is_lost_and_removed && hf_op_impl_of(op)->needs_hold) {
        hf_round_fail_lost(op, op->hold);
        return;
    }
    hf_hold_unref(op->hold);
    op->hold = NULL;
    begin(op, now);
}

static void interrupt(hf_op *op, hf_time now) {
    if (op->done || !hf_op_impl_of(op)->acquires) return;
    bool is_waiting = op->blocked || op->round->state == HF_ROUND_PAUSING;
    op->wait.interrupted = true;
    op->blocked = false;
    if (is_waiting) hf_round_fail_acquire(op, HF_INTERRUPTED, now);
    else op->round->decide_by = hf_time_min(op->round->decide_by, now + HF_MIN_GRACE);
}

static void abandon(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    if (!round) return;
    if (op->blocked) {
        op->blocked = false;
        if (hf_op_impl_of(op)->releases) hf_quorum_abandon(op->client, op->hold, 1, now);
        return;
    }
    if (hf_op_impl_of(op)->acquires) {
        hf_votes_roll_back(op, now);
        hf_round_forget_hold(op);
    } else if (round->hold && hf_hold_is_releasing(round->hold)) {
        hf_quorum_clean_up_member_holds(op->client, round->hold, 0, now);
        if (hf_hold_in_table(round->hold)) hf_holds_remove(&op->client->holds, round->hold->claim);
    } else if (round->hold && hf_op_impl_of(op)->releases) {
        hf_round_release_entry(op->client, round->hold, now);
    }
    hf_votes_conclude(op, now);
}

static void end_round(hf_op *op, hf_time now) {
    if (!op->round) return;
    hf_votes_end(op, now);
    hf_round_unref(op->round);
    op->round = NULL;
}

const hf_op_impl hf_round_impl = {
    .begin = begin,
    .unblock = unblock,
    .next_tick = next_tick,
    .tick = tick,
    .interrupt = interrupt,
    .abandon = abandon,
    .end = end_round,
};
