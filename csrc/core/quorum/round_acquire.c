/* A quorum's acquire: wins a majority, settles the token, and retries while it may wait. */
#include "op/acquire.h"

#include "op/operation.h"
#include "op/presence.h"
#include "op/taking.h"
#include "quorum/round.h"
#include "quorum/votes.h"
#include <assert.h>

#define FIRST_PAUSE (10 * HF_MS)
#define MAX_PAUSE (200 * HF_MS)

/* Removes the hold from the table if this operation added it. A blocked operation did not add the
 * hold that it waits for. */
void hf_round_forget_hold(hf_op *op) {
    hf_hold *hold = op->hold;
    if (hold == op->round->hold && hf_claim_is_requested(hold->claim))
        hf_holds_remove(&op->client->holds, hold->claim);
}

void hf_round_fail_acquire(hf_op *op, hf_code code, hf_time now) {
    hf_quorum_refresh(op->client, op->hold, now);
    bool lost = hf_hold_is_lost(op->hold);
    hf_votes_fail(op, lost ? HF_LOST : op->wait.interrupted ? HF_INTERRUPTED : code, "granted");
    hf_votes_roll_back(op, now);
    hf_round_forget_hold(op);
    hf_votes_conclude(op, now);
}

static void fail_as_deadlock(hf_op *op, hf_time now) {
    hf_round_fail_acquire(op, HF_DEADLOCK, now);
    if (op->failure.code == HF_DEADLOCK) hf_acquire_fail_as_deadlock(op);
}

/* Does nothing during an attempt, which may still get the lock. */
void hf_round_on_cycle(hf_op *op, hf_time now) {
    if (op->round->state == HF_ROUND_PAUSING) fail_as_deadlock(op, now);
}

/* Fails the operation if a single vote decides it, and returns whether one does. */
static bool fail_if_final(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    for (size_t i = 0; i < round->count; i++) {
        hf_vote *vote = &round->votes[i];
        bool is_final = vote->code == HF_DUPLICATE || vote->code == HF_MISMATCH;
        if (!vote->counted || vote->yes || !is_final) continue;
        op->result.record = vote->op->result.record;
        op->result.record_size = vote->op->result.record_size;
        vote->op->result.record = NULL;
        hf_round_fail_acquire(op, vote->code, now);
        return true;
    }
    return false;
}

static void begin_pause(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    uint32_t doublings = round->attempts < 5 ? round->attempts : 5;
    hf_time max_pause =
        hf_time_min((FIRST_PAUSE << doublings) + 2 * (now - round->asked_at), MAX_PAUSE);
    assert(round->state != HF_ROUND_DECIDED);
    round->state = HF_ROUND_PAUSING;
    round->retry_at = now + HF_MS + hf_jitter(&op->client->random, max_pause);
    if (round->attempts == 1) op->client->stats.waits++;
    hf_presence_on_wait(op, now);
}

/* Returns whether there would be a majority if restart_guard did not exclude some servers. */
static bool waits_for_guard(const hf_op *op) {
    hf_tally votes = hf_votes_count(op->round);
    return votes.guarded > 0 && votes.yes + votes.guarded >= hf_quorum_of(op)->majority;
}

/* Returns whether a majority replied, but some of its servers temporarily refuse the command. */
static bool refusals_may_end(const hf_op *op) {
    hf_tally votes = hf_votes_count(op->round);
    return votes.transient > 0 &&
           votes.yes + votes.busy + votes.transient >= hf_quorum_of(op)->majority;
}

/* Called after an attempt without a majority. An acquire that may wait tries again, unless its
 * servers have been unreachable from the beginning. */
static void on_no_majority(hf_op *op, hf_time now) {
    if (fail_if_final(op, now)) return;
    hf_code code = hf_votes_code(op);
    op->wait.accepted = op->wait.accepted || code == HF_BUSY;
    bool may_recover = code == HF_NO_QUORUM && (op->round->attempts > 1 || waits_for_guard(op));
    bool is_worth_retrying = op->wait.accepted || may_recover || refusals_may_end(op);
    if (!hf_code_is_transient(code, true)) is_worth_retrying = false;
    bool is_lost = hf_hold_is_lost(op->hold);
    if (!is_worth_retrying || is_lost || op->wait.interrupted || now >= op->wait.until) {
        hf_round_fail_acquire(op, code, now);
    } else if (code == HF_BUSY && (op->deadlock.cycle || hf_acquire_waits_for_itself(op))) {
        fail_as_deadlock(op, now);
    } else {
        if (code == HF_BUSY) hf_observe_resumed(op, now);
        else hf_votes_cut_off(op, code, now);
        hf_votes_roll_back(op, now);
        begin_pause(op, now);
    }
}

static bool add_member_holds(hf_op *op) {
    for (size_t i = 0; i < op->round->count; i++) {
        const hf_vote *vote = &op->round->votes[i];
        if (vote->yes && !hf_quorum_add_member_hold(op->client, op->hold, i, vote->op->hold))
            return false;
    }
    return true;
}

/* Undoes the grants of a majority after the operation has failed, and removes the hold if the
 * operation added it. */
static void undo_majority(hf_op *op, bool is_new, hf_time now) {
    hf_votes_roll_back(op, now);
    if (is_new && hf_hold_in_table(op->hold)) hf_holds_remove(&op->client->holds, op->hold->claim);
    hf_votes_conclude(op, now);
}

/* Adds the member holds. Fails the operation and returns false if the hold to re-enter is lost, or
 * when out of memory. */
static bool join_hold(hf_op *op, bool is_new, hf_time now) {
    hf_quorum_check_for_gap(op->client, op->hold, now);
    bool usable = is_new || hf_hold_is_held(op->hold);
    if (usable && add_member_holds(op)) return true;
    if (usable) hf_op_fail_out_of_memory(op);
    else hf_op_fail(op, HF_LOST, "this owner lost the lock in the meantime");
    return false;
}

static void complete_acquire(hf_op *op, hf_time now) {
    assert(op->hold == op->round->hold && op->hold->claim->has_command_in_flight);
    hf_hold *hold = op->hold;
    hf_client *client = op->client;
    bool is_new = hf_hold_is_acquiring(hold);
    if (!join_hold(op, is_new, now)) {
        undo_majority(op, is_new, now);
        return;
    }
    if (is_new) hold->claim->count = 0;
    hf_hold_become(hold, HF_HOLD_HELD);
    hold->claim->renewed = op->spec.renewed || (!is_new && hold->claim->renewed);
    hold->claim->lease = is_new ? op->spec.lease : hf_time_max(hold->claim->lease, op->spec.lease);
    if (is_new) hold->claim->max_until = hf_op_max_until(op, op->round->asked_at);
    if (is_new) hold->claim->token_ttl_ms = op->spec.token_ttl_ms;
    hold->claim->shared = op->spec.shared;
    if (is_new) hold->token = op->round->token;
    hf_quorum_refresh(client, hold, now);
    if (!hf_hold_is_held(hold)) {
        hf_op_fail(op, HF_LOST, "the servers answered after the lease had ended");
        undo_majority(op, is_new, now);
        return;
    }
    if (hf_votes_count(op->round).busy > 0) hf_quorum_on_busy(client, hold, now);
    hold->claim->count++;
    if (is_new) client->stats.acquires++;
    else client->stats.reentries++;
    hf_op_succeed(op);
    hf_votes_conclude(op, now);
}

/* Returns whether the vote is a yes with a valid lease. If the lease has ended before the decision,
 * another owner may have held the lock since. */
static bool still_counts(const hf_vote *vote, hf_time now) {
    return vote->yes && hf_member_hold_is_held(vote->op->hold) &&
           hf_hold_is_valid(vote->op->hold, now);
}

/* Returns the smallest token that a majority of the votes does not exceed, or 0 if too few votes
 * still count. A majority knew each earlier hold's token, so any majority of yes votes includes a
 * higher token. */
static uint64_t common_token(const hf_op *op, hf_time now) {
    const hf_round *round = op->round;
    uint64_t common = UINT64_MAX;
    for (size_t i = 0; i < round->count; i++) {
        size_t rank = 0;
        for (size_t j = 0; j < round->count; j++)
            rank += still_counts(&round->votes[j], now) &&
                    round->votes[j].token <= round->votes[i].token;
        bool enough = still_counts(&round->votes[i], now) && rank >= hf_quorum_of(op)->majority;
        if (enough && round->votes[i].token < common) common = round->votes[i].token;
    }
    return common == UINT64_MAX ? 0 : common;
}

static size_t count_informed(const hf_round *round, hf_time now) {
    size_t informed = 0;
    for (size_t i = 0; i < round->count; i++)
        informed += still_counts(&round->votes[i], now) && round->votes[i].token >= round->token;
    return informed;
}

/* Writes the token back, once, to each server that granted the lock but does not know the token. */
static void write_back_token(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    hf_op_spec spec = hf_round_spec(round, &op->spec);
    spec.kind = HF_OP_RAISE;
    spec.token_floor = round->token;
    for (size_t i = 0; i < round->count; i++) {
        hf_vote *vote = &round->votes[i];
        if (!vote->yes || vote->token >= round->token || vote->token_sent == round->token) continue;
        if (vote->write_back) hf_op_end(vote->write_back, now);
        vote->token_sent = round->token;
        vote->write_back = hf_client_begin(hf_quorum_of(op)->members[i], &spec, now);
    }
}

static void begin_write_back(hf_op *op, uint64_t token, hf_time now) {
    op->round->token = token;
    op->round->state = HF_ROUND_WRITING_BACK;
    op->round->decide_by = hf_votes_deadline(op, now);
    write_back_token(op, now);
}

static void on_majority(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    bool is_new = hf_hold_is_acquiring(op->hold);
    hf_quorum_of(op)->last_round_duration = hf_time_min(now - round->asked_at, HF_SECOND);
    if (!is_new || op->spec.token_ttl_ms == 0) {
        complete_acquire(op, now);
        return;
    }
    round->token = common_token(op, now);
    bool is_known = count_informed(round, now) >= hf_quorum_of(op)->majority;
    if (is_known || round->token == 0) {
        complete_acquire(op, now);
        return;
    }
    begin_write_back(op, round->token, now);
}

static void collect_write_backs(hf_op *op, hf_time now) {
    for (size_t i = 0; i < op->round->count; i++) {
        hf_vote *vote = &op->round->votes[i];
        if (!vote->write_back || !vote->write_back->done) continue;
        if (vote->write_back->failure.code == HF_OK)
            vote->token = vote->write_back->spec.token_floor;
        hf_op_end(vote->write_back, now);
        vote->write_back = NULL;
    }
}

static bool awaits_votes(const hf_round *round, hf_time now) {
    bool pending = hf_votes_count(round).pending > 0;
    for (size_t i = 0; i < round->count; i++) pending = pending || round->votes[i].write_back;
    return pending && now < round->decide_by;
}

static void check_written_back(hf_op *op, hf_time now) {
    hf_round *round = op->round;
    collect_write_backs(op, now);
    uint64_t common = common_token(op, now);
    if (common > round->token) { /* a late yes raised it, and other leases have ended */
        begin_write_back(op, common, now);
        return;
    }
    bool enough = count_informed(round, now) >= hf_quorum_of(op)->majority;
    if (!enough) write_back_token(op, now); /* for servers whose yes was late */
    bool is_complete = !awaits_votes(round, now);
    if (enough || (is_complete && common == 0)) complete_acquire(op, now);
    else if (is_complete) on_no_majority(op, now);
}

void hf_round_check_acquire(hf_op *op, hf_time now) {
    assert(op->round->state == HF_ROUND_ASKING || op->round->state == HF_ROUND_WRITING_BACK);
    size_t majority = hf_quorum_of(op)->majority;
    hf_votes_record_arrived(op, now);
    if (op->round->state == HF_ROUND_WRITING_BACK) {
        check_written_back(op, now);
        return;
    }
    if (now >= op->round->decide_by) hf_votes_time_out(op);
    hf_tally votes = hf_votes_count(op->round);
    if (votes.yes >= majority) on_majority(op, now);
    else if (votes.yes + votes.pending >= majority) hf_votes_limit_wait(op, &votes, now);
    else if (op->wait.interrupted || !hf_votes_ask_skipped(op, now)) on_no_majority(op, now);
}

void hf_round_begin_acquire(hf_op *op, hf_time now) {
    op->wait.until = hf_time_add(op->begun_at, op->spec.wait);
    hf_hold *existing = hf_op_find_hold(op, op->spec.names->key, now);
    if (existing && hf_hold_is_lost(existing))
        hf_quorum_abandon(op->client, existing, existing->claim->count, now);
    if (!hf_acquire_choose_hold(op, now)) return;
    if (op->hold->claim->has_command_in_flight) {
        hf_op_set_awaited_claim(op, op->hold->claim);
        hf_op_block(op, op->hold->claim);
        return;
    }
    assert(!op->round->hold);
    hf_hold_ref(op->hold);
    op->round->hold = op->hold;
    op->hold->claim->has_command_in_flight = true;
    hf_votes_ask_all(op, now);
}
