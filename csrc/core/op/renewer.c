#include "op/renewer.h"

#include <assert.h>
#include <stdlib.h>

#include "link/nodes.h"
#include "op/holding.h"
#include "op/leave.h"
#include "op/task.h"

#define MOST_SPLITS 3 /* after this many refused batches a server gets one key at a time */
#define ONE_BY_ONE_FOR (60 * HF_SECOND) /* then it may take batches again */

#define ALIKE 4 /* the times left of two holds in a batch differ by at most this factor */

/* Of the hold's node. */
static const hf_session *renewer_link(const hf_client *client, const hf_hold *hold) {
    return &hf_client_node(client, hf_hold_key(hold))->links[client->config.renewer];
}

/* ---- the owner's approval ---- */

static bool may_renew(const hf_client *client, const hf_hold *hold) {
    return !client->config.needs_approval || hold->approval == HF_APPROVAL_GIVEN || hold->idle ||
           hold->record;
}

static void ask_approval(hf_client *client, hf_hold *hold) {
    assert(client->config.needs_approval && hold->approval != HF_APPROVAL_GIVEN);
    client->approvals_asked++;
    hold->approval = HF_APPROVAL_PENDING;
    hf_holds_wake_at(&client->holds, &hold->claim, hold->valid_until);
}

void hf_renewer_approve(hf_client *client, hf_hold *hold, hf_time now) {
    if (hold->approval != HF_APPROVAL_PENDING) return;
    hold->approval = HF_APPROVAL_GIVEN;
    if (hold->state == HF_HOLD_HELD && !hold->in_flight)
        hf_holds_wake_at(&client->holds, &hold->claim, now);
}

/* ---- whether the server takes batches ----
 *
 * A server that refuses every batch (a proxy of a cluster) must not be sent one at each renewal. A
 * server that refused everything for a while (a right was taken away) takes batches again. The two
 * look the same, so only splits in a row count, and at the latest a minute after the last one
 * another batch is sent. */

static bool takes_batches(const hf_client *client, hf_time now) {
    return client->splits < MOST_SPLITS || now >= client->batch_again_at;
}

/* The server has accepted one key of a refused batch by itself. */
static void note_split(hf_client *client, hf_time now) {
    if (!client->split_open) return;
    client->split_open = false;
    client->splits++;
    client->batch_again_at = now + ONE_BY_ONE_FOR;
}

static void note_batch_taken(hf_client *client) {
    client->split_open = false;
    client->splits = 0;
}

/* ---- renewing ---- */

/* The record is tried for as long as the lock is held. */
static void follow_lease(const hf_hold *hold) {
    if (!hold->record) return;
    hold->record->deadline = hold->record->persists_until = hold->valid_until;
}

void hf_renewer_on_renewed(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now) {
    client->stats.renewals++;
    hf_observe_renewal(client, hold, hold->at_risk && hold->state == HF_HOLD_HELD);
    if (hold->state != HF_HOLD_HELD) {
        client->stats.late_renewals++;
        return;
    }
    if (hold->refused_in_batch) note_split(client, now);
    hold->granted = hold->at_risk = hold->refused_in_batch = false;
    hold->failures = 0;
    hf_time lease = hf_claim_lease(&hold->claim);
    hold->valid_until =
        hf_time_max(hold->valid_until, hf_claim_end_of(&hold->claim, lease, sent_at));
    follow_lease(hold);
    bool again = hold->renewed && !hf_claim_has_last_lease(&hold->claim);
    hf_time next = again ? hf_lease_renew_at(sent_at, lease) : hold->valid_until;
    if (hold->idle) next = hf_time_min(next, hold->keep_until);
    hf_holds_wake_at(&client->holds, &hold->claim, hf_time_max(next, now));
}

static void on_not_renewed(hf_client *client, hf_hold *hold, hf_time now) {
    if (hold->state != HF_HOLD_HELD) return;
    if (!hold->at_risk) hf_observe_risk(client, hold, now);
    hold->at_risk = true;
    hold->failures++;
    hf_holds_wake_at(&client->holds, &hold->claim, hf_lease_retry_at(now, hold->valid_until));
}

/* Ends a kept lock that no caller has, so nobody has lost it. A lock in doubt is not kept either.
 */
static void end_idle(hf_client *client, hf_hold *hold, bool gone, hf_time now) {
    if (gone) hf_holds_remove(&client->holds, hold);
    else hf_renewer_clean_up(client, hold, now);
}

/* A confirmation sets a lease that may be shorter than the grant's. If it got no answer, or was
 * sent twice, the server may still carry it out after a command that has set a longer one. */
static void bound_by_confirmation(const hf_task *task) {
    hf_hold *hold = hf_claim_hold(task->claims[0]);
    bool answered = task->request.failure.code == HF_OK && task->request.sends == 1;
    if (!hold->granted || answered || task->request.sends == 0) return;
    hf_claim_bound_lease(&hold->claim, hold->lease, task->client->config.grant_lease);
}

static void settle_renewal(hf_client *client, hf_hold *hold, hf_verdict verdict, hf_time sent_at,
                           hf_time now) {
    bool gone = verdict == HF_VERDICT_DELETED || verdict == HF_VERDICT_TAKEN,
         counts = hold->in_table;
    if (counts && verdict == HF_VERDICT_YES) hf_renewer_on_renewed(client, hold, sent_at, now);
    else if (counts && hold->idle && hold->state == HF_HOLD_HELD) end_idle(client, hold, gone, now);
    else if (counts && gone && hold->state == HF_HOLD_HELD)
        hf_renewer_lose(client, hold, hf_lost_reason_of(verdict), now);
    else if (counts && !gone) on_not_renewed(client, hold, now);
    hf_client_unblock(client, hold, now);
}

/* Returns whether the server refuses the batch for good. A transient refusal would meet each key by
 * itself, too. */
static bool is_refused(const hf_request *request) {
    hf_code code = request->failure.code;
    bool final = code == HF_DENIED || code == HF_SERVER || code == HF_CONFLICT;
    return final && request->refusals == 0;
}

/* One key that the server refuses (an ACL, another slot) fails the program for all of them. So each
 * is renewed by itself, and is renewed with others again once that has worked. Returns false if the
 * batch had only one. */
static bool split_batch(hf_task *task, hf_time now) {
    if (task->count == 1 || !is_refused(&task->request)) return false;
    task->client->split_open = true;
    for (size_t i = 0; i < task->count; i++) {
        hf_hold *hold = hf_claim_hold(task->claims[i]);
        hold->refused_in_batch = true;
        if (hold->in_table && hold->state == HF_HOLD_HELD)
            hf_holds_wake_at(&task->client->holds, &hold->claim, now);
        hf_client_unblock(task->client, hold, now);
    }
    hf_task_free(task);
    return true;
}

static void renewal_done(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    bool confirmed = hf_request_is_confirmed(request);
    assert(task->count > 0 && task->count <= HF_RENEWALS_MAX);
    bound_by_confirmation(task);
    if (!reply && split_batch(task, now)) return;
    if (reply && task->count > 1) note_batch_taken(task->client);
    if (!reply) hf_task_abort_link(task, now);
    for (size_t i = 0; i < task->count; i++) {
        hf_verdict verdict = reply ? hf_wire_read_at(reply, i) : HF_VERDICT_NONSENSE;
        if (verdict == HF_VERDICT_YES && !confirmed) verdict = HF_VERDICT_NONSENSE;
        settle_renewal(task->client, hf_claim_hold(task->claims[i]), verdict, request->sent_at,
                       now);
    }
    hf_task_free(task);
}

/* How long to wait for a reply. An open connection may be dead: half of the time that is left is
 * kept for another try over a new one. A connection that is being made, or that is the callers'
 * too, gets all of it, since a new one would not be faster. In a cluster the other try may go to
 * another node. */
static hf_time patience(const hf_client *client, const hf_hold *hold, hf_time now) {
    hf_time left = hf_claim_time_left(&hold->claim, now);
    bool once = client->config.renewer != HF_LINK_RENEWER ||
                renewer_link(client, hold)->state != HF_SESSION_READY;
    if (once && !client->topology->moves_slots) return left;
    return hf_time_max(left / 2, hf_time_min(left, HF_TASK_PATIENCE));
}

static hf_time renewal_deadline(const hf_task *task, hf_time now) {
    hf_time deadline = now + task->client->config.session.command_timeout;
    for (size_t i = 0; i < task->count; i++) {
        hf_time wait = patience(task->client, hf_claim_hold(task->claims[i]), now);
        deadline = hf_time_min(deadline, now + hf_time_max(wait, 5 * HF_MS));
    }
    return deadline;
}

static bool encode_batch(hf_task *task, hf_time now) {
    hf_slice keys[HF_RENEWALS_MAX], owners[HF_RENEWALS_MAX];
    hf_time leases[HF_RENEWALS_MAX];
    for (size_t i = 0; i < task->count; i++) {
        keys[i] = hf_hold_key(hf_claim_hold(task->claims[i]));
        owners[i] = hf_hold_owner(hf_claim_hold(task->claims[i]));
        leases[i] = hf_claim_lease_within(&hf_claim_hold(task->claims[i])->claim,
                                          hf_claim_hold(task->claims[i])->lease, now);
    }
    const hf_kind *kind = hf_claim_hold(task->claims[0])->kind;
    bool encoded = (kind->counted ? hf_wire_renew_permits : hf_wire_renew)(
        &task->request, kind, task->count, keys, owners, leases);
    return encoded && hf_client_sync(task->client, &task->request);
}

bool hf_renewer_encode_confirmation(const hf_client *client, const hf_hold *hold,
                                    hf_request *request, hf_time now) {
    hf_names names;
    char waiter[HF_WAITER_SIZE];
    uint64_t granted_ms =
        hold->granted && !hold->shared ? hf_lease_ms(client->config.grant_lease) : 0;
    if (!hf_names_make_on(&names, hf_hold_key(hold), hold->kind)) return false;
    hf_wire_lock lock = hf_client_lock(client, &hold->claim, &names);
    hf_time lease = hf_claim_lease_within(&hold->claim, hold->lease, now);
    bool encoded = hf_wire_extend(request, &lock, lease, granted_ms,
                                  hf_client_waiter_of(waiter, client, &hold->claim)) &&
                   hf_client_sync(client, request);
    hf_names_free(&names);
    return encoded;
}

static void roll_back(hf_task *task, hf_time now) {
    for (size_t i = 0; i < task->count; i++) {
        hf_claim_hold(task->claims[i])->in_flight = false;
        on_not_renewed(task->client, hf_claim_hold(task->claims[i]), now);
    }
    hf_task_free(task);
}

/* A batch waits for its reply no longer than the hold that ends first can: one that has little time
 * left does not hurry those that have much. */
static bool is_alike(const hf_task *task, const hf_hold *hold, hf_time now) {
    hf_time first_end = hf_time_min(task->first_end, hold->valid_until),
            last_end = hf_time_max(task->last_end, hold->valid_until);
    return first_end > now && (last_end - now) / ALIKE <= first_end - now;
}

/* In a cluster each key goes alone: keys of one node are of different slots, and of one slot only
 * those that have not moved yet could be renewed together. */
static bool fits(const hf_client *client, const hf_task *task, const hf_hold *hold, hf_time now) {
    const hf_hold *first = hf_claim_hold(task->claims[0]);
    if (client->topology->moves_slots || !takes_batches(client, now)) return false;
    if (hold->refused_in_batch || first->refused_in_batch) return false;
    if (hold->kind != first->kind || !is_alike(task, hold, now)) return false;
    return hf_client_node(client, hf_hold_key(hold)) == hf_client_node(client, hf_hold_key(first));
}

static bool is_due_renewal(const hf_client *client, const hf_task *task, const hf_hold *hold,
                           hf_time until, hf_time now) {
    return hold && fits(client, task, hold, now) && hold->wake_at <= until &&
           hold->state == HF_HOLD_HELD && !hold->in_flight && !hold->granted && hold->renewed &&
           !hold->idle && may_renew(client, hold);
}

/* Takes along what is due within a thirtieth of the first one's lease: fewer, fuller batches. */
static void renew_batch(hf_client *client, hf_hold *hold, hf_time now) {
    assert(hold->state == HF_HOLD_HELD && !hold->in_flight);
    hf_task *task = hf_task_new(client);
    if (!task) {
        on_not_renewed(client, hold, now);
        return;
    }
    hf_time until = now + hold->lease / 30;
    hf_task_add(task, &hold->claim);
    hold = hf_holds_first(&client->holds);
    while (task->count < HF_RENEWALS_MAX && is_due_renewal(client, task, hold, until, now)) {
        hf_task_add(task, &hold->claim);
        hold = hf_holds_first(&client->holds);
    }
    if (!encode_batch(task, now)) {
        roll_back(task, now);
        return;
    }
    client->stats.renew_batches++;
    hf_task_submit(task, client->config.renewer, renewal_done, renewal_deadline(task, now), true,
                   now);
}

static void confirm(hf_client *client, hf_hold *hold, hf_time now) {
    assert(hold->granted && !hold->in_flight);
    hf_task *task = hf_task_new(client);
    if (!task) {
        on_not_renewed(client, hold, now);
        return;
    }
    hf_task_add(task, &hold->claim);
    if (hf_renewer_encode_confirmation(client, hold, &task->request, now))
        hf_task_submit(task, client->config.renewer, renewal_done, renewal_deadline(task, now),
                       true, now);
    else roll_back(task, now);
}

/* ---- a kept lock that no caller has ---- */

/* Returns until when the hold is valid after its lease, which began at `sent_at`, has become short.
 * No replica has confirmed that lease. */
static hf_time short_end(const hf_client *client, const hf_hold *hold, hf_time sent_at) {
    bool backed = client->config.sync.replicas == 0;
    hf_time end = hf_lease_end(sent_at, hold->lease);
    return backed ? end : hf_time_min(hold->valid_until, end);
}

static void on_shortened(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    hf_client *client = task->client;
    hf_hold *hold = hf_claim_hold(task->claims[0]);
    hf_verdict verdict = reply ? hf_wire_read(reply) : HF_VERDICT_NONSENSE;
    bool sure = verdict == HF_VERDICT_YES && request->sends == 1,
         gone = verdict == HF_VERDICT_DELETED || verdict == HF_VERDICT_TAKEN;
    if (!reply) hf_task_abort_link(task, now);
    if (hold->in_table && hold->idle && hold->state == HF_HOLD_HELD && sure) {
        hold->lease = client->config.grant_lease;
        hold->valid_until = short_end(client, hold, request->sent_at);
        hf_renewer_resume_idle(client, hold, now);
    } else if (hold->in_table && hold->idle && hold->state == HF_HOLD_HELD) {
        end_idle(client, hold, gone, now);
    }
    hf_client_unblock(client, hold, now);
    hf_task_free(task);
}

/* After a crash others wait for no longer than for a grant. */
static void shorten(hf_client *client, hf_hold *hold, hf_time now) {
    assert(hold->idle && !hold->in_flight);
    hf_task *task = hf_task_new(client);
    hf_names names = {0};
    char waiter[HF_WAITER_SIZE];
    bool encoded = task && hf_names_make_on(&names, hf_hold_key(hold), hold->kind);
    if (encoded) {
        hf_wire_lock lock = hf_client_lock(client, &hold->claim, &names);
        encoded = hf_wire_extend(&task->request, &lock, client->config.grant_lease, HF_WIRE_ANY_TTL,
                                 hf_client_waiter_of(waiter, client, &hold->claim));
        hf_names_free(&names);
    }
    if (!encoded) {
        free(task);
        hf_renewer_clean_up(client, hold, now);
        return;
    }
    hf_task_add(task, &hold->claim);
    hf_task_submit(task, client->config.renewer, on_shortened, renewal_deadline(task, now), true,
                   now);
}

void hf_renewer_resume_idle(hf_client *client, hf_hold *hold, hf_time now) {
    assert(hold->idle && hold->state == HF_HOLD_HELD);
    hf_time grant = client->config.grant_lease, next = now + grant / 3;
    if (hold->lease <= grant) next = hf_lease_renew_before(hold->valid_until, hold->lease);
    next = hf_time_min(hf_time_max(next, now), hf_time_min(hold->keep_until, hold->valid_until));
    hf_holds_wake_at(&client->holds, &hold->claim, next);
}

static void attend_idle(hf_client *client, hf_hold *hold, hf_time now) {
    if (now >= hold->keep_until || now >= hold->valid_until) hf_renewer_clean_up(client, hold, now);
    else if (hold->in_flight) hf_holds_wake_at(&client->holds, &hold->claim, hold->valid_until);
    else if (hold->lease > client->config.grant_lease) shorten(client, hold, now);
    else renew_batch(client, hold, now);
}

void hf_renewer_resume(hf_client *client, hf_hold *hold, hf_time now) {
    if (!hold->in_table || hold->state != HF_HOLD_HELD) return;
    hf_time next = hold->valid_until;
    if (hold->granted) next = hold->confirm_at;
    else if (hold->renewed && !hf_claim_has_last_lease(&hold->claim))
        next = hf_lease_renew_before(next, hf_claim_lease(&hold->claim));
    hf_holds_wake_at(&client->holds, &hold->claim,
                     hf_time_min(hf_time_max(next, now), hold->valid_until));
}

void hf_renewer_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now) {
    hold->renewed = renewed;
    if (!hold->in_flight) hf_renewer_resume(client, hold, now);
}

/* A command that was sent at `sent_at` has set the lease of a hold that remains held. This counts
 * as a renewal, unless replicas must confirm it. */
static void count_as_renewal(hf_client *client, hf_hold *hold, hf_time sent_at) {
    if (client->config.sync.replicas > 0) { /* no replica has confirmed it */
        hf_renewer_resume(client, hold, sent_at);
        return;
    }
    hf_time end = hf_claim_end_of(&hold->claim, hf_claim_lease(&hold->claim), sent_at);
    hold->valid_until = hf_time_max(hold->valid_until, end);
    hf_renewer_resume(client, hold, sent_at);
}

void hf_renewer_on_entry_released(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now) {
    bool held = hold->state == HF_HOLD_HELD, over = hold->count == hold->others;
    if (held && over) {
        hf_renewer_clean_up_same_connection(client, hold, now);
        return;
    }
    if (held) count_as_renewal(client, hold, sent_at);
    else if (hold->state == HF_HOLD_LOST && over) hf_renewer_clean_up_lost(client, hold, now);
    hf_client_unblock(client, hold, now);
}

/* ---- a record that is written after its call has ended ----
 *
 * The run has happened, so the lock must not be free before the record is there. A hold of its own,
 * which no caller has, is renewed until then. The server refuses a renewal after the record, and a
 * record after the end of the lock. */

static void on_recorded(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    hf_client *client = task->client;
    hf_hold *hold = hf_claim_hold(task->claims[0]);
    assert(client->unanswered > 0 && hold->record == request);
    client->unanswered--;
    hold->record = NULL;
    if (reply && hf_wire_read(reply) == HF_VERDICT_MORE)
        hf_renewer_pass_on(client, hold->kind, hf_hold_key(hold), now);
    if (hold->in_table) hf_holds_remove(&client->holds, hold);
    hf_task_free(task);
}

/* Returns a hold of the same owner; NULL when out of memory. */
static hf_hold *copy_for_record(hf_client *client, const hf_hold *hold) {
    hf_hold *own =
        hf_client_add_hold(client, hold->kind, hf_hold_key(hold), HF_NO_TEXT, hf_hold_owner(hold));
    if (!own) return NULL;
    own->count = 1;
    own->shared = hold->shared;
    own->class = hold->class;
    own->lease = hold->lease;
    own->valid_until = hold->valid_until;
    own->max_until = hold->max_until;
    own->shortened = hold->shortened;
    own->renewed = hold->renewed;
    own->granted = hold->granted;
    own->confirm_at = hold->confirm_at;
    own->token_ttl_ms = hold->token_ttl_ms;
    hf_holds_note_wait(&client->holds, own, hold->wait);
    hf_hold_become(own, HF_HOLD_HELD);
    return own;
}

bool hf_renewer_record(hf_client *client, const hf_hold *hold, hf_request *request, hf_time now) {
    hf_task *task = hf_task_new(client);
    hf_hold *own = task ? copy_for_record(client, hold) : NULL;
    if (!own) {
        free(task);
        return false;
    }
    bool under_way = hf_session_inherit(&task->request, request);
    if (!under_way) {
        task->request = *request;
        task->request.routing.context_is_op = false;
        request->bytes = NULL;
    }
    task->request.done = on_recorded;
    task->request.context = task;
    task->request.waits_for_connection = task->request.accepted = true;
    hf_hold_ref(own);
    task->claims[task->count++] = &own->claim;
    own->record = &task->request;
    client->unanswered++;
    follow_lease(own);
    hf_renewer_resume(client, own, now);
    if (!under_way) hf_client_submit(client, hf_hold_key(own), HF_LINK_CALLS, &task->request, now);
    return true;
}

/* ---- the clock ---- */

/* A slot under migration takes commands with one key only; a confirmation has the queue beside the
 * lock, to remove the mark of the grant, if there is one. */
static bool is_renewed_by_one_key(const hf_client *client, const hf_hold *hold) {
    return client->topology->moves_slots && (hold->at_risk || hold->wait == 0);
}

static void attend_held(hf_client *client, hf_hold *hold, hf_time now) {
    if (hold->idle) attend_idle(client, hold, now);
    else if (now >= hold->valid_until) hf_renewer_lose_at_end(client, hold, now);
    else if (hold->in_flight || (!hold->granted && !hold->renewed))
        hf_holds_wake_at(&client->holds, &hold->claim, hold->valid_until);
    else if (!may_renew(client, hold)) ask_approval(client, hold);
    else if (hold->granted && !is_renewed_by_one_key(client, hold)) confirm(client, hold, now);
    else renew_batch(client, hold, now);
}

static void attend(hf_client *client, hf_hold *hold, hf_time now) {
    if (hf_claim_is_leaving(&hold->claim)) hf_renewer_attend_leaving(client, &hold->claim, now);
    else if (hf_claim_is_held(&hold->claim)) attend_held(client, hold, now);
    else hf_holds_wake_at(&client->holds, &hold->claim, HF_NEVER);
}

void hf_renewer_tick(hf_client *client, hf_time now) {
    for (hf_hold *hold; (hold = hf_holds_first(&client->holds)) && hold->wake_at <= now;)
        attend(client, hold, now);
}
