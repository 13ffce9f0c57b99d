/* Operations that act on several locks of one caller: they atomically acquire all of the locks or
 * none, or release them.
 *
 * Each lock has its own hold, as if it had been acquired alone; the renewer renews the holds in one
 * batch. The command is sent when none of the holds has another command in flight. A release
 * references its holds even before that, because the caller counts their entries as released. */
#include <assert.h>
#include <stdlib.h>

#include "op/kept.h"
#include "op/leave.h"
#include "op/operation.h"
#include "op/renew.h"
#include "op/taking.h"

static void stop_using_hold(hf_op *op, hf_hold *hold, hf_time now) {
    hf_renewer_abandon_deferred(op->client, hold, now);
    hf_renewer_forget(op->client, hold, now);
}

static void undo_hold(hf_op *op, hf_hold *hold, hf_time now) {
    hold->claim->count_uncertain = true;
    if (hf_claim_is_requested(hold->claim))
        hf_renewer_clean_up_on_same_connection(op->client, hold->claim, now);
    else stop_using_hold(op, hold, now);
}

static void for_each(hf_op *op, void (*act)(hf_op *, hf_hold *, hf_time), hf_time now) {
    for (size_t i = 0; op->batch.holds && i < op->spec.batch_count; i++) {
        if (op->batch.holds[i]) act(op, op->batch.holds[i], now);
    }
}

static void unref_holds(hf_op *op) {
    for (size_t i = 0; op->batch.holds && i < op->spec.batch_count; i++) {
        if (op->batch.holds[i]) hf_hold_unref(op->batch.holds[i]);
    }
    free(op->batch.holds);
    op->batch.holds = NULL;
}

/* ---- choosing the holds ---- */

/* Blocks the operation until no command is in flight for the claim. Returns true. */
static bool wait_for(hf_op *op, hf_claim *claim, hf_time now) {
    hf_op_set_awaited_claim(op, claim);
    op->batch.was_blocked = true;
    hf_op_block(op, claim);
    hf_renewer_expedite_clean_up(op->client, claim, now);
    return true;
}

/* Blocks the operation until what an earlier call left on the server is removed, or fails the
 * operation. Returns false if the operation can continue: the removal failed, and the claim was set
 * aside. */
static bool await_leave(hf_op *op, hf_claim *claim, hf_time now) {
    bool failed = op->batch.was_blocked && !claim->has_command_in_flight && claim->failures > 0;
    if (!failed) return wait_for(op, claim, now);
    if (hf_renewer_set_aside(op->client, claim, now)) return false;
    hf_op_fail(op, HF_UNREACHABLE, "the effects of an earlier call could not be undone");
    return true;
}

/* Blocks the operation until the hold has no command in flight, or fails the operation. Returns
 * false if the hold can be used now. */
static bool await_call(hf_op *op, hf_hold *hold, hf_time now) {
    bool usable = hf_hold_is_held(hold) || hf_hold_is_lost(hold);
    if (usable && !hold->claim->has_command_in_flight) return false;
    if (usable || hf_hold_has_detached_release(hold)) return wait_for(op, hold->claim, now);
    hf_op_fail(op, HF_BUSY, "another call by this owner for one of the keys is in progress");
    return true;
}

/* Returns whether the hold has nothing left to release, and no loss to report. */
static bool has_nothing_to_release(const hf_hold *hold) {
    return !hf_hold_in_table(hold) || hf_hold_has_detached_release(hold);
}

static hf_hold *find_hold(hf_op *op, size_t i, hf_time now) {
    hf_hold *hold = hf_op_find_hold(op, op->spec.batch[i]->key, now);
    if (!hold) return NULL;
    if (!op->impl->acquires) return has_nothing_to_release(hold) ? NULL : hold;
    if (!hf_hold_is_lost(hold)) return hold;
    hf_op_drop_lost(op, hold, now);
    return NULL;
}

/* Returns the caller's leaving claim to lock `i`, which an acquire must not overtake, or NULL. */
static hf_claim *find_leaving(const hf_op *op, size_t i) {
    if (!op->impl->acquires) return NULL;
    return hf_holds_find_leaving(&op->client->holds, op->spec.lock_kind, op->spec.batch[i]->key,
                                 op->spec.caller);
}

/* Returns whether all existing holds can be used now. If not, the operation waits or has failed. */
static bool prepare_holds(hf_op *op, hf_time now) {
    for (size_t i = 0; i < op->spec.batch_count; i++) {
        hf_hold *hold = op->batch.holds ? op->batch.holds[i] : find_hold(op, i, now);
        hf_claim *leaving = hold ? NULL : find_leaving(op, i);
        if (leaving && await_leave(op, leaving, now)) return false;
        if (hold && await_call(op, hold, now)) return false;
    }
    return true;
}

static void mark_in_flight(hf_op *op, hf_hold *hold, hf_time now) {
    (void)now;
    hf_op_mark_command_in_flight(op, hold);
}

static void fail_out_of_memory(hf_op *op, hf_time now) {
    hf_op_fail_out_of_memory(op);
    for_each(op, stop_using_hold, now);
    unref_holds(op);
}

/* Finds the hold of lock `i`. An acquire adds the hold if there is none. Returns false when out of
 * memory. */
static bool choose_hold(hf_op *op, size_t i, hf_time now) {
    hf_hold *hold = find_hold(op, i, now);
    if (!hold && op->impl->acquires) hold = hf_op_add_hold(op, op->spec.batch[i]->key);
    if (!hold) return !op->impl->acquires;
    hf_hold_ref(hold);
    op->batch.holds[i] = hold;
    return true;
}

static bool choose_holds(hf_op *op, hf_time now) {
    assert(!op->batch.holds);
    op->batch.holds = calloc(op->spec.batch_count, sizeof *op->batch.holds);
    bool all_chosen = op->batch.holds != NULL;
    for (size_t i = 0; all_chosen && i < op->spec.batch_count; i++)
        all_chosen = choose_hold(op, i, now);
    if (!all_chosen) fail_out_of_memory(op, now);
    return all_chosen;
}

/* ---- the commands ---- */

static uint32_t server_count_of(const hf_hold *hold) {
    return hold && hf_hold_is_held(hold) ? hold->claim->count : 0;
}

static bool encode(hf_op *op, hf_time now) {
    size_t count = op->spec.batch_count;
    hf_time lease = op->spec.lease;
    hf_time grant_lease = op->client->config.grant_lease;
    hf_wire_batch_lock *locks = calloc(count, sizeof *locks);
    if (!locks) return false;
    for (size_t i = 0; i < count; i++) {
        const hf_hold *hold = op->batch.holds[i];
        uint32_t entries = server_count_of(hold);
        locks[i] = (hf_wire_batch_lock){
            .names = op->spec.batch[i],
            .owner = hold ? hf_hold_owner(hold) : HF_NO_TEXT,
            .holds = op->impl->acquires || entries == 0 ? entries : entries - 1,
            .lease = hold ? hf_claim_capped_lease(hold->claim, hold->claim->lease, now) : 0};
        if (hold) lease = hf_claim_capped_lease(hold->claim, lease, now);
    }
    bool encoded =
        op->impl->acquires
            ? hf_wire_acquire_all(&op->request, op->spec.lock_kind, count, locks, grant_lease,
                                  lease, op->spec.token_ttl_ms) &&
                  hf_client_sync(op->client, &op->request)
            : hf_wire_release_all(&op->request, op->spec.lock_kind, count, locks, grant_lease);
    free(locks);
    return encoded;
}

/* Makes the failure name the key of lock `i`, counted from 1, or no key if `i` is out of range. */
static void name_key(hf_op *op, long long i) {
    if (i >= 1 && i <= (long long)op->spec.batch_count) op->spec.names = op->spec.batch[i - 1];
}

/* ---- acquiring ---- */

static void take(hf_op *op, hf_hold *hold, uint64_t token, hf_time end) {
    hf_time sent_at = op->request.sent_at;
    end = hf_time_min(end, hf_lease_end(sent_at, hold->claim->shorter_lease));
    hf_taken_hold taken = {server_count_of(hold) + 1, sent_at, end, token};
    hf_op_take(op, hold, &taken);
}

/* Returns false if a lock that was already held has meanwhile been lost, and reported as lost. */
static bool all_are_usable(const hf_op *op) {
    for (size_t i = 0; i < op->spec.batch_count; i++) {
        if (!hf_hold_is_live(op->batch.holds[i])) return false;
    }
    return true;
}

/* Returns when the leases of all locks end: the earliest end among the locks. */
static hf_time common_end(const hf_op *op, hf_time sent_at) {
    hf_time end = HF_NEVER;
    for (size_t i = 0; i < op->spec.batch_count; i++)
        end = hf_time_min(end,
                          hf_claim_lease_end(op->batch.holds[i]->claim, op->spec.lease, sent_at));
    return end;
}

static void take_all(hf_op *op, const hf_reply *reply, hf_time now) {
    hf_time end = common_end(op, op->request.sent_at);
    bool usable = all_are_usable(op);
    if (now >= end || !usable) {
        hf_op_fail(op, HF_LOST,
                   usable ? "the server answered after the lease had ended"
                          : "this owner lost one of the locks in the meantime");
        for_each(op, undo_hold, now);
        return;
    }
    for (size_t i = 0; i < op->spec.batch_count; i++)
        take(op, op->batch.holds[i], hf_wire_token_at(reply, i), end);
    hf_op_succeed(op);
    for_each(op, stop_using_hold, now);
}

/* Called if the server no longer has the hold of lock `i`, counted from 1. */
static void on_gone(hf_op *op, long long i, hf_verdict verdict, hf_time now) {
    bool known = i >= 1 && i <= (long long)op->spec.batch_count;
    hf_hold *hold = known ? op->batch.holds[i - 1] : NULL;
    if (hold && hf_hold_is_held(hold))
        hf_renewer_on_lost(op->client, hold, hf_lost_reason_of(verdict), now);
    name_key(op, i);
    hf_op_fail(op, HF_LOST, "this owner no longer holds the lock (%s)",
               hf_lost_reason_name(hf_lost_reason_of(verdict)));
    for_each(op, stop_using_hold, now);
}

static void on_acquired(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    long long i = 0;
    const char *found = NULL;
    hf_verdict verdict =
        reply ? hf_wire_read_acquire_all(reply, &i, &found) : HF_VERDICT_UNEXPECTED;
    if (!reply) {
        hf_op_fail_with_request(op, request);
        for_each(op, request->possible_runs > 0 ? undo_hold : stop_using_hold, now);
    } else if (verdict == HF_VERDICT_YES && !hf_request_is_confirmed(request)) {
        hf_op_fail_unconfirmed(op);
        for_each(op, undo_hold, now);
    } else if (verdict == HF_VERDICT_YES) {
        take_all(op, reply, now);
    } else if (verdict == HF_VERDICT_BUSY) {
        name_key(op, i);
        hf_op_fail(op, HF_BUSY, "%s", op->spec.lock_kind->busy_text);
        for_each(op, stop_using_hold, now);
    } else if (verdict == HF_VERDICT_OTHER_KIND) {
        name_key(op, i);
        hf_op_fail_for_other_kind(op, found);
        for_each(op, stop_using_hold, now);
    } else if (verdict == HF_VERDICT_DELETED || verdict == HF_VERDICT_TAKEN) {
        on_gone(op, i, verdict, now);
    } else {
        hf_op_fail(op, HF_SERVER, "the script returned an unexpected reply");
        for_each(op, undo_hold, now);
    }
}

/* ---- releasing ---- */

/* Handles the verdict on one hold. Returns false if the server no longer had the lock: the hold is
 * then lost, unless it was abandoned in the meantime. A lock that the first copy of a resent
 * command may have released counts as released. */
static bool release_one(hf_op *op, hf_hold *hold, hf_verdict verdict, hf_time now) {
    hf_claim *claim = hold->claim;
    bool gone = verdict == HF_VERDICT_DELETED || verdict == HF_VERDICT_TAKEN;
    bool freed_before = op->request.possible_runs > 1 && claim->count <= 1;
    if (hf_hold_is_lost(hold) || (gone && !freed_before)) {
        if (hf_hold_can_be_lost(hold))
            hf_renewer_on_lost(op->client, hold, hf_lost_reason_of(verdict), now);
        hf_renewer_clean_up_lost(op->client, hold, now);
        hf_client_unblock(op->client, claim, now);
        return false;
    }
    assert(claim->count > 0);
    op->client->stats.releases++;
    claim->count--;
    if (verdict == HF_VERDICT_NEEDS_LEAVE)
        hf_renewer_grant_to_next(op->client, claim->kind, hf_hold_key(hold), now);
    if (verdict == HF_VERDICT_STILL_HELD)
        hf_renewer_on_entry_released(op->client, hold, op->request.sent_at, now);
    else hf_op_drop_hold(op, hold, now);
    return true;
}

static void release_in_background(hf_op *op, hf_hold *hold, hf_time now) {
    hf_claim *claim = hold->claim;
    if (hf_hold_is_lost(hold)) {
        hf_renewer_clean_up_lost(op->client, hold, now);
        hf_client_unblock(op->client, claim, now);
        return;
    }
    bool held = hf_hold_is_held(hold);
    if (held) claim->count--;
    claim->count_uncertain = true;
    if (held && claim->count <= claim->share.others)
        hf_renewer_clean_up_on_same_connection(op->client, hold->claim, now);
    else stop_using_hold(op, hold, now);
}

static void on_released(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (!reply) {
        for_each(op, release_in_background, now);
        hf_op_fail(op, request->failure.code, "%s; the release continues in the background",
                   hf_fault_text(&request->failure));
        return;
    }
    size_t lost = 0, unclear = 0;
    for (size_t i = 0; i < op->spec.batch_count; i++) {
        hf_hold *hold = op->batch.holds[i];
        hf_verdict verdict = hf_wire_read_verdict_at(reply, i);
        bool is_unexpected = verdict == HF_VERDICT_UNEXPECTED || verdict == HF_VERDICT_BUSY;
        if (hold && is_unexpected) {
            release_in_background(op, hold, now);
            unclear++;
        } else if (!hold || !release_one(op, hold, verdict, now)) {
            lost++;
        }
    }
    if (unclear > 0)
        hf_op_fail(
            op, HF_SERVER,
            "the script returned an unexpected reply; the release continues in the background");
    else if (lost == 0) hf_op_succeed(op);
    else
        hf_op_fail(op, HF_LOST, "%zu of the %zu locks had already been lost", lost,
                   op->spec.batch_count);
}

/* ---- beginning and ending ---- */

static bool has_a_hold(const hf_op *op) {
    for (size_t i = 0; i < op->spec.batch_count; i++) {
        if (op->batch.holds[i]) return true;
    }
    return false;
}

/* If the client keeps one of the locks idle, makes the operation wait until that lock has been
 * given back. Returns whether the operation must wait. */
static bool await_kept(hf_op *op, hf_time now) {
    for (size_t i = 0; i < op->spec.batch_count; i++) {
        hf_claim *idle = hf_kept_give_back(op->client, NULL, op->spec.batch[i]->key, now);
        if (idle) return wait_for(op, idle, now);
    }
    return false;
}

/* Drops the holds that ended while the release was waiting, and refreshes the others. Their caller
 * may have acquired the same locks again since, and the release must not end those new holds. */
static void forget_ended(hf_op *op, hf_time now) {
    for (size_t i = 0; i < op->spec.batch_count; i++) {
        hf_hold *hold = op->batch.holds[i];
        if (hold && has_nothing_to_release(hold)) {
            hf_hold_unref(hold);
            op->batch.holds[i] = NULL;
        } else if (hold) {
            hf_client_refresh(op->client, hold, now);
        }
    }
}

/* Chooses the holds. Returns whether all of them can be used now. If not, the operation waits or
 * has failed. */
static bool ready_holds(hf_op *op, hf_time now) {
    if (op->impl->acquires)
        return !await_kept(op, now) && prepare_holds(op, now) && choose_holds(op, now);
    if (op->batch.holds) forget_ended(op, now);
    else if (!choose_holds(op, now)) return false;
    if (prepare_holds(op, now)) return true;
    if (op->done) unref_holds(op); /* so that its entries do not count as released */
    return false;
}

static void begin(hf_op *op, hf_time now) {
    assert(op->spec.batch_count > 0 && hf_kind_program(op->spec.lock_kind, HF_VERB_ACQUIRE_ALL));
    hf_op_set_awaited_claim(op, NULL);
    if (!ready_holds(op, now)) return;
    for_each(op, mark_in_flight, now);
    if (!has_a_hold(op)) {
        hf_op_fail(op, HF_NOT_HELD, "this owner holds none of the locks");
        return;
    }
    if (!encode(op, now)) {
        fail_out_of_memory(op, now);
        return;
    }
    hf_time deadline = op->begun_at + op->client->config.session.command_timeout;
    op->request.accepted = !op->impl->acquires;
    hf_op_send(op, op->impl->acquires ? on_acquired : on_released, deadline, false, now);
}

static void abandon_entry(hf_op *op, hf_hold *hold, hf_time now) {
    hf_renewer_abandon(op->client, hold, 1, now);
}

static void abandon(hf_op *op, hf_time now) {
    hf_session_drop(&op->request);
    if (op->blocked && !op->impl->acquires) for_each(op, abandon_entry, now);
    else for_each(op, op->impl->acquires ? undo_hold : release_in_background, now);
}

static void end_batch(hf_op *op, hf_time now) {
    (void)now;
    unref_holds(op);
}

#define ALL_IMPL(name, text, acquiring)                                                            \
    const hf_op_impl hf_##name##_all_impl = {                                                      \
        .verb = (text),                                                                            \
        .quorum_refusal =                                                                          \
            "one-step operations on several locks need a single server, not a quorum",             \
        .acquires = (acquiring),                                                                   \
        .releases = !(acquiring),                                                                  \
        .begin = begin,                                                                            \
        .unblock = begin,                                                                          \
        .abandon = abandon,                                                                        \
        .end = end_batch}

ALL_IMPL(acquire, "acquire", true);
ALL_IMPL(release, "release", false);
