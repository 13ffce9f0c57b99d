#include "op/renew.h"

#include <assert.h>
#include <stdlib.h>

#include "link/nodes.h"
#include "op/holding.h"
#include "op/leave.h"
#include "op/task.h"

#define MAX_SPLITS 3 /* consecutive splits until keys are renewed one by one */
#define BATCH_RETRY_DELAY (60 * HF_SECOND) /* how long after the last split to try again */
#define MAX_TIME_RATIO 4 /* between the longest and the shortest time left in a batch */

static const hf_session *renewer_link(const hf_client *client, const hf_claim *claim) {
    return &hf_client_node(client, hf_claim_key(claim))->links[client->config.renewer];
}

/* ---- the owner's approval ---- */

static bool may_renew(const hf_client *client, const hf_claim *claim) {
    return !client->config.needs_approval || claim->approval == HF_APPROVAL_GIVEN || !claim->hold;
}

static void request_approval(hf_client *client, hf_claim *claim) {
    assert(client->config.needs_approval && claim->approval != HF_APPROVAL_GIVEN);
    (client->is_member ? client->quorum_client : client)->approval_requests++;
    claim->approval = HF_APPROVAL_PENDING;
    hf_holds_set_wake_at(&client->holds, claim, claim->valid_until);
}

void hf_renewer_approve(hf_client *client, hf_hold *hold, hf_time now) {
    if (hold->claim->approval != HF_APPROVAL_PENDING) return;
    hold->claim->approval = HF_APPROVAL_GIVEN;
    if (hf_claim_is_held(hold->claim) && !hold->claim->has_command_in_flight)
        hf_holds_set_wake_at(&client->holds, hold->claim, now);
}

/* ---- whether the server accepts batches ----
 *
 * A server that refuses every batch, such as a cluster proxy, must not be sent one for each
 * renewal. A server that refused everything for a while, because a permission was revoked, will
 * accept batches again. The two look the same, so only consecutive splits count, and another batch
 * is tried within a minute of the last split. */

static bool may_send_batch(const hf_client *client, hf_time now) {
    return client->splits < MAX_SPLITS || now >= client->next_batch_at;
}

/* Called when the server has accepted a key of a refused batch on its own. */
static void count_split(hf_client *client, hf_time now) {
    if (!client->split_suspected) return;
    client->split_suspected = false;
    client->splits++;
    client->next_batch_at = now + BATCH_RETRY_DELAY;
}

static void reset_splits(hf_client *client) {
    client->split_suspected = false;
    client->splits = 0;
}

/* ---- renewing ---- */

/* Lets the request for the record be resent for as long as the lock is held. */
static void extend_record_deadline(const hf_claim *claim) {
    if (!claim->record) return;
    claim->record->deadline = claim->record->resend_until = claim->valid_until;
}

void hf_renewer_on_renewed(hf_client *client, hf_claim *claim, hf_time sent_at, hf_time now) {
    bool held = hf_claim_is_held(claim);
    client->stats.renewals++;
    hf_observe_renewal(client, claim, held && hf_claim_is_at_risk(claim));
    if (!held) {
        client->stats.late_renewals++;
        return;
    }
    if (claim->refused_in_batch) count_split(client, now);
    claim->confirm_at = HF_NEVER;
    claim->refused_in_batch = false;
    claim->failures = 0;
    hf_time lease = hf_claim_lease(claim);
    claim->valid_until = hf_time_max(claim->valid_until, hf_claim_lease_end(claim, lease, sent_at));
    extend_record_deadline(claim);
    bool renews = claim->renewed && !hf_claim_has_last_lease(claim);
    hf_time next = renews ? hf_lease_renew_at(sent_at, lease) : claim->valid_until;
    if (hf_claim_is_idle(claim)) next = hf_time_min(next, claim->kept->keep_until);
    hf_holds_set_wake_at(&client->holds, claim, hf_time_max(next, now));
}

static void on_not_renewed(hf_client *client, hf_claim *claim, hf_time now) {
    if (!hf_claim_is_held(claim)) return;
    if (!hf_claim_is_at_risk(claim)) hf_observe_risk(client, claim, now);
    claim->failures++;
    hf_holds_set_wake_at(&client->holds, claim, hf_lease_retry_at(now, claim->valid_until));
}

/* Ends an idle lock. No caller is using the lock, so no loss is reported. `gone` is true if the
 * server has reported that it no longer has the lock. */
static void end_idle(hf_client *client, hf_claim *claim, bool gone, hf_time now) {
    if (gone) hf_holds_remove(&client->holds, claim);
    else hf_renewer_clean_up(client, claim, now);
}

/* A confirmation may set a shorter lease than the grant did. If it got no reply, or was sent twice,
 * a copy may still run after a command that sets a longer lease. */
static void bound_lease_in_doubt(const hf_task *task) {
    hf_claim *claim = task->claims[0];
    bool replied = task->request.failure.code == HF_OK && task->request.possible_runs == 1;
    if (!hf_claim_is_unconfirmed(claim) || replied || task->request.possible_runs == 0) return;
    hf_claim_limit_lease(claim, claim->lease, task->client->config.grant_lease);
}

static void settle_renewal(hf_client *client, hf_claim *claim, hf_verdict verdict, hf_time sent_at,
                           hf_time now) {
    bool gone = verdict == HF_VERDICT_DELETED || verdict == HF_VERDICT_TAKEN,
         held = hf_claim_is_held(claim);
    if (hf_claim_in_table(claim) && verdict == HF_VERDICT_YES)
        hf_renewer_on_renewed(client, claim, sent_at, now);
    else if (held && hf_claim_is_idle(claim)) end_idle(client, claim, gone, now);
    else if (held && gone) hf_renewer_on_claim_lost(client, claim, hf_lost_reason_of(verdict), now);
    else if (held) on_not_renewed(client, claim, now);
    hf_client_unblock(client, claim, now);
}

/* Returns whether the server has refused the batch permanently. A transient refusal would apply to
 * each single key, too. */
static bool is_refused(const hf_request *request) {
    hf_code code = request->failure.code;
    bool final = code == HF_DENIED || code == HF_SERVER || code == HF_CONFLICT;
    return final && request->refusals == 0;
}

/* If the server refuses one key (because of an ACL or its slot), the program fails for all keys.
 * Each key is then renewed on its own, and may join a batch again once that has succeeded. Frees
 * the task, or returns false if it was not a refused batch. */
static bool split_batch(hf_task *task, hf_time now) {
    if (task->count == 1 || !is_refused(&task->request)) return false;
    task->client->split_suspected = true;
    for (size_t i = 0; i < task->count; i++) {
        hf_claim *claim = task->claims[i];
        claim->refused_in_batch = true;
        if (hf_claim_is_held(claim)) hf_holds_set_wake_at(&task->client->holds, claim, now);
        hf_client_unblock(task->client, claim, now);
    }
    hf_task_free(task);
    return true;
}

static void renewal_done(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    bool confirmed = hf_request_is_confirmed(request);
    assert(task->count > 0 && task->count <= HF_RENEWALS_MAX);
    bound_lease_in_doubt(task);
    if (!reply && split_batch(task, now)) return;
    if (reply && task->count > 1) reset_splits(task->client);
    if (!reply) hf_task_abort_link(task, now);
    for (size_t i = 0; i < task->count; i++) {
        hf_verdict verdict = reply ? hf_wire_read_verdict_at(reply, i) : HF_VERDICT_UNEXPECTED;
        if (verdict == HF_VERDICT_YES && !confirmed) verdict = HF_VERDICT_UNEXPECTED;
        settle_renewal(task->client, task->claims[i], verdict, request->sent_at, now);
    }
    hf_task_free(task);
}

/* Returns how long to wait for the reply to the claim's renewal. An open connection may be dead, so
 * half of the time left is reserved for a second attempt over a new connection. A connection that
 * is being opened, or that the callers also use, gets all the time left, because a new one would
 * not be faster; in a cluster it does not, because the second attempt may use another node. */
static hf_time reply_timeout(const hf_client *client, const hf_claim *claim, hf_time now) {
    hf_time left = hf_claim_time_left(claim, now);
    bool only_attempt = client->config.renewer != HF_LINK_RENEWER ||
                        renewer_link(client, claim)->state != HF_SESSION_READY;
    if (only_attempt && !client->topology->slots_can_move) return left;
    return hf_time_max(left / 2, hf_time_min(left, HF_HEALTHY_ROUND_TRIP));
}

static hf_time renewal_deadline(const hf_task *task, hf_time now) {
    hf_time deadline = now + task->client->config.session.command_timeout;
    for (size_t i = 0; i < task->count; i++) {
        hf_time timeout = reply_timeout(task->client, task->claims[i], now);
        deadline = hf_time_min(deadline, now + hf_time_max(timeout, 5 * HF_MS));
    }
    return deadline;
}

static bool encode_batch(hf_task *task, hf_time now) {
    hf_slice keys[HF_RENEWALS_MAX], owners[HF_RENEWALS_MAX];
    hf_time leases[HF_RENEWALS_MAX];
    for (size_t i = 0; i < task->count; i++) {
        const hf_claim *claim = task->claims[i];
        keys[i] = hf_claim_key(claim);
        owners[i] = hf_claim_owner(claim);
        leases[i] = hf_claim_capped_lease(claim, claim->lease, now);
    }
    const hf_kind *kind = task->claims[0]->kind;
    bool encoded = (kind->has_permits ? hf_wire_renew_permits : hf_wire_renew)(
        &task->request, kind, task->count, keys, owners, leases);
    return encoded && hf_client_sync(task->client, &task->request);
}

/* Encodes the command that sets this lease and removes the mark of the claim's grant. A TTL of more
 * than `max_ttl_to_shorten_ms` is not shortened. */
static bool encode_extend(const hf_client *client, const hf_claim *claim, hf_request *request,
                          hf_time lease, uint64_t max_ttl_to_shorten_ms) {
    char waiter[HF_WAITER_SIZE];
    hf_names *names = hf_names_new(claim->kind, hf_claim_key(claim));
    if (!names) return false;
    hf_wire_lock lock = hf_client_wire_lock(client, claim, names);
    bool encoded = hf_wire_extend(request, &lock, lease, max_ttl_to_shorten_ms,
                                  hf_client_write_claim_waiter(waiter, client, claim));
    hf_names_delete(names);
    return encoded;
}

bool hf_renewer_encode_confirmation(const hf_client *client, const hf_claim *claim,
                                    hf_request *request, hf_time now) {
    hf_time lease = hf_claim_capped_lease(claim, claim->lease, now);
    uint64_t granted_ms = hf_claim_is_unconfirmed(claim) && !claim->shared
                              ? hf_lease_ms(client->config.grant_lease)
                              : 0;
    return encode_extend(client, claim, request, lease, granted_ms) &&
           hf_client_sync(client, request);
}

/* Returns a task with the claim, or NULL when out of memory; the renewer then retries later. */
static hf_task *new_renewal(hf_client *client, hf_claim *claim, hf_time now) {
    assert(hf_claim_is_held(claim) && !claim->has_command_in_flight);
    hf_task *task = hf_task_new(client);
    if (task) hf_task_add(task, claim);
    else on_not_renewed(client, claim, now);
    return task;
}

static void submit(hf_task *task, hf_request_done *done, hf_time now) {
    hf_time deadline = renewal_deadline(task, now);
    hf_task_submit(task, task->client->config.renewer, done, deadline, true, now);
}

/* Sends the task's command. If encoding failed, frees the task, and the renewer retries later. */
static void send_renewal(hf_task *task, bool encoded, hf_time now) {
    if (encoded) {
        submit(task, renewal_done, now);
        return;
    }
    for (size_t i = 0; i < task->count; i++) {
        task->claims[i]->has_command_in_flight = false;
        on_not_renewed(task->client, task->claims[i], now);
    }
    hf_task_free(task);
}

/* A batch can wait for its reply only until its first claim ends, so a claim with little time left
 * would shorten the wait of the others. */
static bool ends_with_batch(const hf_task *task, const hf_claim *claim, hf_time now) {
    hf_time first_end = hf_time_min(task->first_end, claim->valid_until),
            last_end = hf_time_max(task->last_end, claim->valid_until);
    return first_end > now && (last_end - now) / MAX_TIME_RATIO <= first_end - now;
}

/* Returns whether the claim could be renewed by the task's command, which has at least one claim.
 * The claim need not be due or held. In a cluster each key is renewed on its own: keys on one node
 * are usually in different slots, and while a slot moves, only keys that have not moved yet could
 * be renewed together. */
static bool may_share_command(const hf_client *client, const hf_task *task, const hf_claim *claim,
                              hf_time now) {
    const hf_claim *first = task->claims[0];
    if (client->topology->slots_can_move || !may_send_batch(client, now)) return false;
    if (claim->refused_in_batch || first->refused_in_batch) return false;
    if (claim->kind != first->kind || !ends_with_batch(task, claim, now)) return false;
    return hf_client_node(client, hf_claim_key(claim)) ==
           hf_client_node(client, hf_claim_key(first));
}

static bool is_due_renewal(const hf_client *client, const hf_task *task, const hf_claim *claim,
                           hf_time until, hf_time now) {
    return may_share_command(client, task, claim, now) && claim->wake_at <= until &&
           hf_claim_is_held(claim) && !claim->has_command_in_flight &&
           !hf_claim_is_unconfirmed(claim) && claim->renewed && !hf_claim_is_idle(claim) &&
           may_renew(client, claim);
}

/* Renews the claim together with the claims that are due within a thirtieth of its lease, up to the
 * first claim that does not fit. This makes batches fewer and fuller. */
static void renew_batch(hf_client *client, hf_claim *claim, hf_time now) {
    hf_task *task = new_renewal(client, claim, now);
    if (!task) return;
    hf_time until = now + claim->lease / 30;
    while (task->count < HF_RENEWALS_MAX) {
        hf_claim *next = hf_holds_first(&client->holds);
        if (!next || !is_due_renewal(client, task, next, until, now)) break;
        hf_task_add(task, next);
    }
    bool encoded = encode_batch(task, now);
    if (encoded) client->stats.renew_batches++;
    send_renewal(task, encoded, now);
}

static void confirm(hf_client *client, hf_claim *claim, hf_time now) {
    hf_task *task = new_renewal(client, claim, now);
    if (task)
        send_renewal(task, hf_renewer_encode_confirmation(client, claim, &task->request, now), now);
}

/* ---- idle locks ---- */

/* Returns when the claim's validity ends after a command sent at `sent_at` has shortened its lease.
 * If replicas must confirm leases, the end is not extended, because none has confirmed this one. */
static hf_time shortened_end(const hf_client *client, const hf_claim *claim, hf_time sent_at) {
    bool needs_no_replicas = client->config.sync.replicas == 0;
    hf_time end = hf_lease_end(sent_at, claim->lease);
    return needs_no_replicas ? end : hf_time_min(claim->valid_until, end);
}

static void on_shortened(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    hf_client *client = task->client;
    hf_claim *claim = task->claims[0];
    hf_verdict verdict = reply ? hf_wire_read_verdict(reply) : HF_VERDICT_UNEXPECTED;
    bool shortened = verdict == HF_VERDICT_YES && request->possible_runs == 1,
         gone = verdict == HF_VERDICT_DELETED || verdict == HF_VERDICT_TAKEN,
         idle = hf_claim_is_held(claim) && hf_claim_is_idle(claim);
    if (!reply) hf_task_abort_link(task, now);
    if (idle && shortened) {
        claim->lease = client->config.grant_lease;
        claim->valid_until = shortened_end(client, claim, request->sent_at);
        hf_renewer_resume_idle(client, claim, now);
    } else if (idle) {
        end_idle(client, claim, gone, now);
    }
    hf_client_unblock(client, claim, now);
    hf_task_free(task);
}

/* Shortens the idle lock's lease to the grant lease, to limit how long others wait if this client
 * crashes. */
static void shorten_lease(hf_client *client, hf_claim *claim, hf_time now) {
    hf_time lease = client->config.grant_lease;
    hf_task *task = hf_task_new(client);
    if (!task || !encode_extend(client, claim, &task->request, lease, HF_WIRE_ANY_TTL)) {
        free(task);
        hf_renewer_clean_up(client, claim, now);
        return;
    }
    hf_task_add(task, claim);
    submit(task, on_shortened, now);
}

void hf_renewer_resume_idle(hf_client *client, hf_claim *claim, hf_time now) {
    assert(hf_claim_is_idle(claim) && hf_claim_is_held(claim));
    hf_time grant_lease = client->config.grant_lease, next = now + grant_lease / 3;
    if (claim->lease <= grant_lease)
        next = hf_lease_renew_at_from_end(claim->valid_until, claim->lease);
    next = hf_time_min(hf_time_max(next, now),
                       hf_time_min(claim->kept->keep_until, claim->valid_until));
    hf_holds_set_wake_at(&client->holds, claim, next);
}

static void serve_idle(hf_client *client, hf_claim *claim, hf_time now) {
    if (now >= claim->kept->keep_until || now >= claim->valid_until)
        hf_renewer_clean_up(client, claim, now);
    else if (claim->has_command_in_flight)
        hf_holds_set_wake_at(&client->holds, claim, claim->valid_until);
    else if (claim->lease > client->config.grant_lease) shorten_lease(client, claim, now);
    else renew_batch(client, claim, now);
}

void hf_renewer_resume(hf_client *client, hf_claim *claim, hf_time now) {
    if (!hf_claim_is_held(claim)) return;
    hf_time next = claim->valid_until;
    if (hf_claim_is_unconfirmed(claim)) next = claim->confirm_at;
    else if (claim->renewed && !hf_claim_has_last_lease(claim))
        next = hf_lease_renew_at_from_end(next, hf_claim_lease(claim));
    hf_holds_set_wake_at(&client->holds, claim,
                         hf_time_min(hf_time_max(next, now), claim->valid_until));
}

void hf_renewer_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now) {
    hold->claim->renewed = renewed;
    if (!hold->claim->has_command_in_flight) hf_renewer_resume(client, hold->claim, now);
}

/* Counts a command as a renewal, unless replicas must confirm leases. The command was sent at
 * `sent_at`, and set the lease of a claim that remains held. */
static void count_as_renewal(hf_client *client, hf_claim *claim, hf_time sent_at) {
    hf_time end = hf_claim_lease_end(claim, hf_claim_lease(claim), sent_at);
    bool needs_no_replicas = client->config.sync.replicas == 0;
    if (needs_no_replicas) claim->valid_until = hf_time_max(claim->valid_until, end);
    hf_renewer_resume(client, claim, sent_at);
}

void hf_renewer_on_entry_released(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now) {
    hf_claim *claim = hold->claim;
    bool held = hf_hold_is_held(hold), is_over = claim->count == claim->share.others;
    if (held && is_over) {
        hf_renewer_clean_up_on_same_connection(client, hold->claim, now);
        return;
    }
    if (held) count_as_renewal(client, claim, sent_at);
    else if (hf_hold_is_lost(hold) && is_over) hf_renewer_clean_up_lost(client, hold, now);
    hf_client_unblock(client, claim, now);
}

/* ---- a record that is written after its call has ended ----
 *
 * The run has happened, so the lock must not become free before the record is written. Until then
 * the claim is renewed without a hold. The server refuses a renewal that arrives after the record,
 * and a record that arrives after the end of the lock. */

static void on_recorded(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    hf_client *client = task->client;
    hf_claim *claim = task->claims[0];
    assert(client->unanswered > 0 && claim->record == request);
    client->unanswered--;
    claim->record = NULL;
    if (reply && hf_wire_read_verdict(reply) == HF_VERDICT_NEEDS_LEAVE)
        hf_renewer_grant_to_next(client, claim->kind, hf_claim_key(claim), now);
    if (hf_claim_in_table(claim)) hf_holds_remove(&client->holds, claim);
    hf_task_free(task);
}

bool hf_renewer_record(hf_client *client, hf_hold *hold, hf_request *request, hf_time now) {
    hf_claim *claim = hold->claim;
    hf_task *task = hf_task_new(client);
    if (!task) return false;
    bool under_way = hf_session_inherit(&task->request, request);
    if (!under_way) {
        hf_request_move(&task->request, request);
        task->request.routing.context_is_op = false;
    }
    task->request.done = on_recorded;
    task->request.context = task;
    task->request.waits_for_connection = task->request.accepted = true;
    hf_claim_ref(claim);
    task->claims[task->count++] = claim;
    claim->record = &task->request;
    client->unanswered++;
    hf_holds_set_aside(&client->holds, claim);
    extend_record_deadline(claim);
    hf_renewer_resume(client, claim, now);
    if (!under_way)
        hf_client_submit(client, hf_claim_key(claim), HF_LINK_CALLS, &task->request, now);
    return true;
}

/* ---- due claims ---- */

/* Returns whether to renew a granted claim instead of confirming it. While a slot moves, the server
 * may refuse a confirmation, which has a second key: the queue, with the mark of the grant. */
static bool needs_single_key(const hf_client *client, const hf_claim *claim) {
    return client->topology->slots_can_move && (hf_claim_is_at_risk(claim) || claim->wait == 0);
}

static void serve_held(hf_client *client, hf_claim *claim, hf_time now) {
    if (hf_claim_is_idle(claim)) serve_idle(client, claim, now);
    else if (now >= claim->valid_until)
        hf_renewer_on_claim_lost(client, claim, hf_lost_reason_at_end(claim), now);
    else if (claim->has_command_in_flight || (!hf_claim_is_unconfirmed(claim) && !claim->renewed))
        hf_holds_set_wake_at(&client->holds, claim, claim->valid_until);
    else if (!may_renew(client, claim)) request_approval(client, claim);
    else if (hf_claim_is_unconfirmed(claim) && !needs_single_key(client, claim))
        confirm(client, claim, now);
    else renew_batch(client, claim, now);
}

static void serve(hf_client *client, hf_claim *claim, hf_time now) {
    if (hf_claim_is_leaving(claim)) hf_renewer_serve_leaving(client, claim, now);
    else if (hf_claim_is_held(claim)) serve_held(client, claim, now);
    else hf_holds_set_wake_at(&client->holds, claim, HF_NEVER);
}

void hf_renewer_tick(hf_client *client, hf_time now) {
    for (hf_claim *claim; (claim = hf_holds_first(&client->holds)) && claim->wake_at <= now;)
        serve(client, claim, now);
}
