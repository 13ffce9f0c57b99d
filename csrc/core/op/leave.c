#include "op/leave.h"

#include <assert.h>
#include <stdlib.h>

#include "op/holding.h"
#include "op/renew.h"
#include "op/task.h"

#define MIN_CLEAN_UP_TIME (30 * HF_SECOND)
#define CLOSED_RETRY_DELAY (50 * HF_MS) /* the first one; it doubles twice */

/* Makes the claim LEAVING, or restarts its clean-up. Returns when to send its leave command. */
static hf_time begin_leaving(hf_client *client, hf_claim *claim, hf_time now) {
    bool has_entries = claim->shared && hf_claim_own_holds(claim) > 0;
    if (claim->hold) hf_observe_end(client, claim->hold, now);
    if (!hf_claim_is_leaving(claim)) hf_holds_begin_leaving(&client->holds, claim);
    claim->failures = 0;
    if (!has_entries) claim->valid_until = now + hf_time_max(claim->lease, MIN_CLEAN_UP_TIME);
    return claim->has_command_in_flight ? claim->valid_until : now;
}

void hf_renewer_clean_up(hf_client *client, hf_claim *claim, hf_time now) {
    hf_time send_at = begin_leaving(client, claim, now);
    hf_holds_set_wake_at(&client->holds, claim, send_at);
}

void hf_renewer_clean_up_on_same_connection(hf_client *client, hf_claim *claim, hf_time now) {
    claim->has_command_in_flight = false;
    hf_renewer_clean_up(client, claim, now);
    claim->leave.same_connection = true;
}

void hf_renewer_clean_up_at_close(hf_client *client, hf_claim *claim, hf_time now) {
    const hf_hold *hold = claim->hold;
    bool lost = hold && hf_hold_is_lost(hold);
    if (claim->record) return; /* the lock must not be free before the record is written */
    if (lost && claim->shared) hf_claim_drop_own_holds(claim);
    if (!lost || hf_hold_may_be_on_server(hold)) claim->wake_at = begin_leaving(client, claim, now);
}

/* Returns whether the queue has the mark of an unconfirmed grant to this shared owner. Until the
 * mark is removed, the server keeps granting the lock to the owner. */
static bool has_mark(const hf_claim *claim) {
    return claim->shared && hf_claim_is_unconfirmed(claim) && claim->wait > 0;
}

/* The server may still have a hold that was lost only because its time ran out: a renewal or
 * re-entry that got no reply may have succeeded. */
bool hf_hold_may_be_on_server(const hf_hold *hold) {
    bool timed_out = hold->reason == HF_LOST_EXPIRED || hold->reason == HF_LOST_UNREACHABLE ||
                     hold->reason == HF_LOST_MAX_HOLD;
    return timed_out && (!hold->claim->shared || has_mark(hold->claim));
}

/* Adds a claim for the same owner and cleans it up. This removes what may be left of `claim` on the
 * server; for a shared owner, only a marked grant may be left. Returns NULL when out of memory. */
static hf_claim *clean_up_with_stand_in(hf_client *client, const hf_claim *claim, hf_time now) {
    hf_claim *stand_in = hf_client_copy_claim(client, claim);
    if (stand_in) hf_renewer_clean_up(client, stand_in, now);
    return stand_in;
}

hf_claim *hf_renewer_clean_up_grant(hf_client *client, const hf_claim *claim, hf_time now) {
    return has_mark(claim) ? clean_up_with_stand_in(client, claim, now) : NULL;
}

/* A hold that is not in the table has been replaced by its caller's newer hold, which the clean-up
 * must not affect. */
void hf_renewer_clean_up_lost(hf_client *client, hf_hold *hold, hf_time now) {
    hf_claim *claim = hold->claim;
    bool known = hf_hold_in_table(hold), remains = hf_hold_may_be_on_server(hold);
    if (known && remains) {
        if (claim->shared) hf_claim_drop_own_holds(claim);
        hf_renewer_clean_up(client, claim, now);
    } else if (hf_hold_accepts_replies(hold)) {
        hf_holds_remove(&client->holds, claim);
    } else if (remains && !hf_claim_is_leaving(claim)) {
        clean_up_with_stand_in(client, claim, now);
    }
}

void hf_renewer_on_lost(hf_client *client, hf_hold *hold, hf_lost_reason reason, hf_time now) {
    const hf_claim *claim = hold->claim;
    bool marked = hf_claim_is_unconfirmed(claim) && claim->wait > 0;
    hf_client_lose(client, hold, reason);
    if (marked) clean_up_with_stand_in(client, claim, now);
}

void hf_renewer_on_claim_lost(hf_client *client, hf_claim *claim, hf_lost_reason reason,
                              hf_time now) {
    if (claim->hold) hf_renewer_on_lost(client, claim->hold, reason, now);
    else hf_holds_remove(&client->holds, claim);
}

void hf_renewer_forget(hf_client *client, hf_hold *hold, hf_time now) {
    hf_claim *claim = hold->claim;
    bool acquiring = hf_claim_is_requested(claim);
    hf_renewer_resume(client, claim, now);
    if (acquiring) hf_holds_remove(&client->holds, claim);
    hf_client_unblock(client, claim, now);
}

/* ---- leaving ---- */

/* A closed client retries sooner, because the program waits only briefly for it. */
static hf_time retry_at(const hf_client *client, const hf_claim *claim, hf_time now) {
    hf_time wake_at = hf_lease_retry_at(now, claim->valid_until);
    if (!client->closed) return wake_at;
    uint32_t doublings = claim->failures < 3 ? claim->failures : 3;
    return hf_time_min(wake_at, now + (CLOSED_RETRY_DELAY << doublings) / 2);
}

static void on_left(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    hf_client *client = task->client;
    hf_claim *claim = task->claims[0];
    if (!reply && !claim->leave.same_connection) hf_task_abort_link(task, now);
    bool was_final = request->no_retry && request->possible_runs > 0;
    bool waiters_remain = reply && !claim->kind->has_call_notes &&
                          hf_wire_read_verdict(reply) == HF_VERDICT_NEEDS_LEAVE;
    if (waiters_remain && hf_claim_is_leaving(claim)) {
        claim->has_command_in_flight = false;
        hf_claim_drop_own_holds(claim);
        hf_holds_set_wake_at(&client->holds, claim, now);
        hf_task_free(task);
        return;
    }
    bool settled = reply || was_final || request->failure.code == HF_CONFLICT;
    if (settled) client->stats.undone++;
    else claim->failures++;
    claim->leave.refused = request->refusals > 0 || request->failure.code == HF_DENIED;
    if (settled && hf_claim_is_leaving(claim)) hf_holds_remove(&client->holds, claim);
    hf_client_unblock(client, claim, now);
    if (hf_claim_is_leaving(claim) && !claim->has_command_in_flight)
        hf_holds_set_wake_at(&client->holds, claim, retry_at(client, claim, now));
    hf_task_free(task);
}

static bool encode_leave(hf_task *task) {
    const hf_claim *claim = task->claims[0];
    char waiter[HF_WAITER_SIZE];
    hf_names *names = hf_names_new(claim->kind, hf_claim_key(claim));
    if (!names) return false;
    hf_wire_lock lock = hf_client_wire_lock(task->client, claim, names);
    uint32_t own_holds = claim->shared ? hf_claim_own_holds(claim) : HF_WIRE_NOT_SHARED;
    task->request.no_retry = claim->shared && own_holds > 0;
    bool encoded =
        claim->kind->has_call_notes
            ? hf_wire_call_with_note(&task->request, &lock,
                                     claim->leave.undoes_acquire ? HF_VERB_LEAVE : HF_VERB_RELEASE,
                                     claim->leave.amount, HF_WIRE_NOTE_TTL, false)
            : hf_wire_leave(&task->request, &lock, claim->share.others,
                            hf_client_write_claim_waiter(waiter, task->client, claim), own_holds);
    hf_names_delete(names);
    return encoded;
}

static void send_leave(hf_client *client, hf_claim *claim, bool waits_for_connection, hf_time now) {
    assert(hf_claim_is_leaving(claim) && !claim->has_command_in_flight);
    hf_task *task = hf_task_new(client);
    if (!task) {
        hf_holds_set_wake_at(&client->holds, claim, retry_at(client, claim, now));
        return;
    }
    hf_task_add(task, claim);
    if (encode_leave(task)) {
        hf_link link = claim->leave.same_connection ? HF_LINK_CALLS : client->config.renewer;
        hf_time deadline = now + client->config.session.command_timeout;
        /* After valid_until the lock may belong to another process of the owner. */
        if (task->request.no_retry) deadline = hf_time_min(deadline, claim->valid_until);
        hf_task_submit(task, link, on_left, deadline, waits_for_connection, now);
        return;
    }
    claim->has_command_in_flight = false;
    hf_holds_set_wake_at(&client->holds, claim, hf_lease_retry_at(now, claim->valid_until));
    hf_task_free(task);
}

void hf_renewer_expedite_clean_up(hf_client *client, hf_claim *claim, hf_time now) {
    if (!hf_claim_is_leaving(claim) || claim->has_command_in_flight) return;
    claim->leave.same_connection = true;
    if (now < claim->valid_until) send_leave(client, claim, false, now);
    else hf_holds_set_wake_at(&client->holds, claim, now); /* nothing is left to send */
}

/* The lease has ended, so nothing of the claim is left on the server, except perhaps the mark of
 * its grant. */
static void give_up(hf_client *client, hf_claim *claim, hf_time now) {
    hf_claim_ref(claim);
    hf_holds_remove(&client->holds, claim);
    hf_renewer_clean_up_grant(client, claim, now);
    hf_client_unblock(client, claim, now);
    hf_claim_unref(claim);
}

void hf_renewer_serve_leaving(hf_client *client, hf_claim *claim, hf_time now) {
    if (claim->has_command_in_flight) hf_holds_set_wake_at(&client->holds, claim, HF_NEVER);
    else if (now >= claim->valid_until) give_up(client, claim, now);
    else send_leave(client, claim, true, now);
}

bool hf_renewer_set_aside(hf_client *client, hf_claim *claim, hf_time now) {
    assert(hf_claim_is_leaving(claim));
    if (claim->shared) return false;
    claim->leave.same_connection = false;
    hf_holds_set_wake_at(&client->holds, claim, hf_lease_retry_at(now, claim->valid_until));
    hf_holds_set_aside(&client->holds, claim);
    return true;
}

void hf_renewer_set_aside_release(hf_client *client, hf_hold *hold) {
    hf_claim *claim = hold->claim;
    assert(hf_hold_has_detached_release(hold) && claim->has_command_in_flight && !claim->shared);
    hf_holds_begin_leaving(&client->holds, claim);
    hf_holds_set_aside(&client->holds, claim);
    claim->leave.same_connection = true;
}

void hf_renewer_grant_to_next(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now) {
    hf_claim *claim = hf_client_add_claim(client, kind, key, HF_NO_TEXT);
    /* If memory runs out here, the waiters continue at their next recheck. */
    if (claim) hf_renewer_clean_up(client, claim, now);
}

/* ---- entries that no caller will release ---- */

static bool uses_hold(const hf_op *op, const hf_hold *hold) {
    for (size_t i = 0; i < op->spec.batch_count && op->batch.holds; i++) {
        if (op->batch.holds[i] == hold) return true;
    }
    return op->hold == hold;
}

static bool is_being_reentered(const hf_client *client, const hf_hold *hold) {
    for (const hf_op *op = client->ops; op && hold->claim->has_command_in_flight; op = op->next) {
        bool acquiring = op->impl->acquires && !op->blocked && !op->done;
        if (acquiring && uses_hold(op, hold)) return true;
    }
    return false;
}

void hf_renewer_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now) {
    if (!hf_hold_in_table(hold)) return;
    if (hf_hold_is_lost(hold)) {
        hf_renewer_clean_up_lost(client, hold, now);
        return;
    }
    if (!hf_hold_is_held(hold)) return;
    assert(count > 0);
    if (is_being_reentered(client, hold)) {
        hold->deferred_entries += count;
        return;
    }
    if (hold->claim->count - hold->claim->share.others > count) {
        hold->claim->count -= count; /* the next release sends the new count */
        hold->claim->count_uncertain = true;
        if (hold->claim->shared) hold->claim->share.pending_releases += count;
        return;
    }
    hf_renewer_clean_up(client, hold->claim, now);
}

void hf_renewer_abandon_deferred(hf_client *client, hf_hold *hold, hf_time now) {
    uint32_t deferred = hold->deferred_entries;
    hold->deferred_entries = 0;
    if (deferred > 0) client->decider->abandon(client, hold, deferred, now);
}

/* ---- abandoned acquires of shared owners ---- */

void hf_renewer_add_pending_release(hf_claim *claim, hf_time sent_at) {
    bool is_first = !hf_claim_is_held(claim) && hf_claim_own_holds(claim) == 0;
    if (!claim->shared) return;
    claim->share.pending_releases++;
    if (is_first) claim->valid_until = hf_lease_end(sent_at, claim->lease);
}

/* Only the reply shows whether one of the owner's holds is this client's. */
static void on_late_reply(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    hf_claim *claim = task->claims[0];
    bool fenced = claim->token_ttl_ms > 0;
    if (reply && hf_wire_read_acquire(reply, fenced).verdict == HF_VERDICT_YES)
        hf_renewer_add_pending_release(claim, request->sent_at);
    hf_renewer_resume(task->client, claim, now);
    hf_client_unblock(task->client, claim, now);
    hf_task_free(task);
}

bool hf_renewer_await_reply(hf_client *client, hf_hold *hold, hf_request *request, hf_time now) {
    hf_task *task = hf_task_inherit(client, request, on_late_reply);
    if (!task) return false;
    if (hf_hold_is_acquiring(hold))
        hf_renewer_clean_up_on_same_connection(client, hold->claim, now);
    hf_task_add(task, hold->claim);
    task->request.no_retry = true;
    task->request.resend_until = 0;
    /* The other half of the time is for the release that follows. */
    task->request.deadline = now + hf_claim_time_left(hold->claim, now) / 2;
    return true;
}

/* ---- requests without an operation ---- */

static void on_seen_through(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    (void)reply, (void)now;
    assert(task->client->unanswered > 0);
    task->client->unanswered--;
    hf_task_free(task);
}

bool hf_renewer_take_over_request(hf_client *client, hf_request *request) {
    if (!hf_task_inherit(client, request, on_seen_through)) return false;
    client->unanswered++;
    return true;
}
