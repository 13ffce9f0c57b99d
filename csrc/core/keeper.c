/* Keeps what is held and clears what was left behind.
 *
 * A hold with a command of ours in flight is `busy`: nobody sends a second one, so a renewal never lands after the
 * release. A batch holds a reference to each of its holds until its reply is there. */
#include <stdlib.h>

#include "client_internal.h"
#include "quorum.h"

#define BATCH 100
#define LEAVE_FOR (30 * HF_SECOND)
#define LEAST_PATIENCE (250 * HF_MS) /* a round trip may take so long without anything being wrong */

typedef struct hf_task {
    hf_request request;
    hf_client *client;
    size_t count;
    hf_hold *holds[BATCH];
} hf_task;

static hf_task *new_task(hf_client *client) {
    hf_task *task = calloc(1, sizeof *task);
    if (task) task->client = client;
    return task;
}

static void free_task(hf_task *task) {
    for (size_t i = 0; i < task->count; i++) hf_hold_unref(task->holds[i]);
    hf_request_clear(&task->request);
    free(task);
}

/* The wake-up is set to the hold's end: a command that never lands must not hide the loss. */
static void claim(hf_task *task, hf_hold *hold) {
    hf_hold_ref(hold);
    hold->busy = true;
    hold->allowed = hold->allowed && HF_DEFECT(WORD_STAYS);
    hf_holds_wake_at(&task->client->holds, hold, hold->valid_until);
    task->holds[task->count++] = hold;
}

/* Of the hold's node. */
static const hf_session *keeper_link(const hf_client *client, const hf_hold *hold) {
    return &hf_client_node(client, hf_hold_key(hold))->links[client->config.keeper];
}

/* About holds of one node. */
static void submit(hf_task *task, hf_link link, hf_request_done *done, hf_time deadline, hf_time now) {
    task->request.done = done;
    task->request.context = task;
    task->request.deadline = deadline;
    task->request.patient = true;
    hf_client_submit(task->client, hf_hold_key(task->holds[0]), link, &task->request, now);
}

static bool has_own_link(const hf_client *client) {
    return client->config.keeper == HF_LINK_KEEPER;
}

/* A server that does not answer the keeper is tried anew over a fresh connection. */
static void distrust_link(hf_client *client, const hf_request *request) {
    bool unanswered = request->sends > 0 && request->failure.code == HF_UNREACHABLE;
    if (has_own_link(client) && unanswered) hf_session_distrust(request->session);
}

/* ---- the owner's word ---- */

static bool may_renew(const hf_client *client, const hf_hold *hold) {
    return !client->config.attended || hold->allowed || HF_DEFECT(NO_WORD);
}

static void ask_owner(hf_client *client, hf_hold *hold) {
    client->asked++;
    hold->asks = true;
    hf_holds_wake_at(&client->holds, hold, hold->valid_until);
}

void hf_client_allow(hf_client *client, hf_hold *hold, hf_time now) {
    if (client->quorum) hf_quorum_allow(client, hold, now);
    if (!hold->asks || !hold->in_table || HF_DEFECT(DEAF_TO_WORD)) return;
    hold->asks = false;
    hold->allowed = true;
    if (hold->state == HF_HOLD_HELD && !hold->busy) hf_holds_wake_at(&client->holds, hold, now);
}

/* ---- renewing ---- */

static void on_renewed(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now) {
    client->stats.renewals++;
    if (hold->state != HF_HOLD_HELD) {
        client->stats.late_renewals++;
        return;
    }
    hold->granted = hold->at_risk = false;
    hold->failures = 0;
    hold->valid_until = hf_time_max(hold->valid_until, hf_lease_end(sent_at, hold->lease));
    hf_time next =
        hold->renewed && !HF_DEFECT(NO_RENEWAL) ? hf_lease_renew_at(sent_at, hold->lease) : hold->valid_until;
    hf_holds_wake_at(&client->holds, hold, hf_time_max(next, now));
}

static void on_not_renewed(hf_client *client, hf_hold *hold, hf_time now) {
    if (hold->state != HF_HOLD_HELD) return;
    hold->at_risk = true;
    hold->failures++;
    hf_holds_wake_at(&client->holds, hold, hf_lease_retry_at(now, hold->valid_until));
}

static void settle_renewal(hf_client *client, hf_hold *hold, long long result, hf_time sent_at, hf_time now) {
    bool counts = hold->in_table;
    if (counts && (result == 1 || (result < 0 && HF_DEFECT(LOSS_IGNORED)))) on_renewed(client, hold, sent_at, now);
    else if (counts && result == 0) on_not_renewed(client, hold, now);
    else if (counts && hold->state == HF_HOLD_HELD) hf_client_lose(client, hold, hf_lost_reason_of(result));
    hf_client_hold_is_free(client, hold, now);
}

/* The reply of one hold's program is an integer, that of the batch an array of them. */
static void renewal_done(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    bool confirmed = hf_request_is_confirmed(request);
    if (!reply) distrust_link(task->client, request);
    for (size_t i = 0; i < task->count; i++) {
        long long result = 0;
        if (reply) result = reply->type == HF_REPLY_INTEGER ? reply->integer : hf_reply_integer_at(reply, i, 0);
        if (result == 1 && !confirmed) result = 0;
        settle_renewal(task->client, task->holds[i], result, request->sent_at, now);
    }
    free_task(task);
}

static hf_time time_left(const hf_hold *hold, hf_time now) {
    return hold->valid_until > now ? hold->valid_until - now : 0;
}

/* An open connection may be dead: half of what is left is for another try over a new one. One that is being made, or
 * that the callers have as well, is given all of it: giving up would not bring the reply any sooner. In a cluster the
 * other try may be another command. */
static hf_time patience(const hf_client *client, const hf_hold *hold, hf_time now) {
    hf_time left = time_left(hold, now);
    bool once = !has_own_link(client) || keeper_link(client, hold)->state != HF_SESSION_READY;
    if (once && !client->cluster) return left;
    return hf_time_max(left / 2, hf_time_min(left, LEAST_PATIENCE));
}

static hf_time renewal_deadline(const hf_task *task, hf_time now) {
    hf_time deadline = now + task->client->config.session.command_timeout;
    for (size_t i = 0; i < task->count; i++) {
        hf_time wait = patience(task->client, task->holds[i], now);
        deadline = hf_time_min(deadline, now + hf_time_max(wait, 5 * HF_MS));
    }
    return deadline;
}

static bool encode_batch(hf_task *task, hf_layout layout) {
    hf_slice args[3 * BATCH];
    char numbers[BATCH][24];
    for (size_t i = 0; i < task->count; i++) {
        args[i] = hf_hold_key(task->holds[i]);
        args[task->count + 2 * i] = hf_hold_owner(task->holds[i]);
        args[task->count + 2 * i + 1] = hf_decimal(numbers[i], hf_lease_ms(task->holds[i]->lease));
    }
    return hf_request_call(&task->request, hf_program_renew(layout), task->count, 3 * task->count, args) &&
           hf_client_sync(task->client, &task->request);
}

static bool encode_confirmation(hf_task *task) {
    const hf_hold *hold = task->holds[0];
    hf_names names;
    char number[24], most[24];
    uint64_t granted_ms = hold->shared ? 0 : hf_lease_ms(task->client->config.grant_lease);
    if (!hf_names_make(&names, hf_hold_key(hold))) return false;
    hf_slice args[] = {names.key, names.queue, hf_hold_owner(hold), hf_decimal(number, hf_lease_ms(hold->lease)),
                       hf_decimal(most, granted_ms)};
    bool encoded =
        hf_request_call(&task->request, hf_program_extend(hold->layout), 2, sizeof args / sizeof *args, args) &&
        hf_client_sync(task->client, &task->request);
    hf_names_free(&names);
    return encoded;
}

static void give_back(hf_task *task, hf_time now) {
    for (size_t i = 0; i < task->count; i++) {
        task->holds[i]->busy = false;
        on_not_renewed(task->client, task->holds[i], now);
    }
    free_task(task);
}

/* In a cluster each key goes alone: keys of one node are of different slots, and of one slot only those that have not
 * moved yet could be renewed together. */
static bool fits(const hf_client *client, const hf_task *task, const hf_hold *hold) {
    const hf_hold *first = task->holds[0];
    if (client->cluster || hold->layout != first->layout) return false;
    return hf_client_node(client, hf_hold_key(hold)) == hf_client_node(client, hf_hold_key(first));
}

static bool is_due_renewal(const hf_client *client, const hf_task *task, const hf_hold *hold, hf_time until) {
    return hold && fits(client, task, hold) && hold->wake_at <= until && hold->state == HF_HOLD_HELD && !hold->busy &&
           !hold->granted && hold->renewed && may_renew(client, hold);
}

/* Takes along what is due within a thirtieth of the first one's lease: fewer, fuller batches. */
static void renew_batch(hf_client *client, hf_hold *hold, hf_time now) {
    hf_task *task = new_task(client);
    if (!task) {
        on_not_renewed(client, hold, now);
        return;
    }
    hf_layout layout = hold->layout;
    hf_time until = now + hold->lease / 30;
    claim(task, hold);
    hold = hf_holds_first(&client->holds);
    while (task->count < BATCH && is_due_renewal(client, task, hold, until) && now < hold->valid_until) {
        claim(task, hold);
        hold = hf_holds_first(&client->holds);
    }
    if (!encode_batch(task, layout)) {
        give_back(task, now);
        return;
    }
    client->stats.renew_batches++;
    submit(task, client->config.keeper, renewal_done, renewal_deadline(task, now), now);
}

static void confirm(hf_client *client, hf_hold *hold, hf_time now) {
    hf_task *task = new_task(client);
    if (!task) {
        on_not_renewed(client, hold, now);
        return;
    }
    claim(task, hold);
    if (encode_confirmation(task)) submit(task, client->config.keeper, renewal_done, renewal_deadline(task, now), now);
    else give_back(task, now);
}

void hf_keeper_resume(hf_client *client, hf_hold *hold, hf_time now) {
    if (!hold->in_table || hold->state != HF_HOLD_HELD) return;
    hf_time next = hold->valid_until;
    if (hold->granted) next = now + (next > now ? (next - now) / 3 : 0);
    else if (hold->renewed) next = hf_lease_renew_before(next, hold->lease);
    hf_holds_wake_at(&client->holds, hold, hf_time_min(hf_time_max(next, now), hold->valid_until));
}

/* ---- leaving ---- */

/* Holds of a shared owner are let go of only within their lease: after it the owner may have it through another
 * process. */
void hf_keeper_leave(hf_client *client, hf_hold *hold, hf_time now) {
    bool counted = hold->shared && hf_hold_own(hold) > 0;
    hold->state = HF_HOLD_LEAVING;
    if (!counted) hold->valid_until = now + hf_time_max(hold->lease, LEAVE_FOR);
    hf_holds_wake_at(&client->holds, hold, hold->busy ? hold->valid_until : now);
}

void hf_keeper_leave_in_order(hf_client *client, hf_hold *hold, hf_time now) {
    hold->busy = false;
    hold->in_order = true;
    hf_keeper_leave(client, hold, now);
}

/* By the clock alone: a renewal or a re-entry that got no answer may have been carried out. */
bool hf_keeper_may_stand(const hf_hold *hold) {
    bool by_time = hold->reason == HF_LOST_EXPIRED || hold->reason == HF_LOST_UNREACHABLE;
    return by_time && !hold->shared;
}

void hf_keeper_leave_lost(hf_client *client, hf_hold *hold, hf_time now) {
    hf_hold_ref(hold);
    if (hold->in_table) hf_holds_remove(&client->holds, hold);
    hf_hold *stand_in = NULL;
    if (hf_keeper_may_stand(hold)) {
        stand_in = hf_holds_add(&client->holds, hold->layout, hf_hold_key(hold), hf_hold_owner(hold));
    }
    if (stand_in) {
        stand_in->lease = hold->lease;
        hf_keeper_leave(client, stand_in, now);
    }
    hf_hold_unref(hold);
}

void hf_keeper_forget(hf_client *client, hf_hold *hold, hf_time now) {
    bool acquiring = hold->in_table && hold->state == HF_HOLD_ACQUIRING;
    if (acquiring && hold->leftover) {
        hf_keeper_leave_in_order(client, hold, now);
        return;
    }
    hf_keeper_resume(client, hold, now);
    if (acquiring) hf_holds_remove(&client->holds, hold);
    hf_client_hold_is_free(client, hold, now);
}

static bool is_leaving(const hf_hold *hold) {
    return hold->in_table && hold->state == HF_HOLD_LEAVING;
}

static void leave_done(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    hf_client *client = task->client;
    hf_hold *hold = task->holds[0];
    if (!reply && !hold->in_order) distrust_link(client, request);
    bool spent = request->once && request->sends > 0;
    bool settled = reply != NULL || spent || request->failure.code == HF_CONFLICT;
    if (settled) client->stats.undone++;
    else if (has_own_link(client) && !hold->in_order && request->sends > 0) hold->astray = true;
    if (settled && is_leaving(hold)) hf_holds_remove(&client->holds, hold);
    hf_client_hold_is_free(client, hold, now);
    if (is_leaving(hold) && !hold->busy)
        hf_holds_wake_at(&client->holds, hold, hf_lease_retry_at(now, hold->valid_until));
    free_task(task);
}

static bool encode_leave(hf_task *task) {
    const hf_client *client = task->client;
    const hf_hold *hold = task->holds[0];
    hf_slice owner = hf_hold_owner(hold);
    hf_names names;
    char grant[24], to[24], own[24], waiter[HF_UUID_SIZE + 64 + HF_OWNER_MAX];
    size_t size = 0;
    if (hold->wait > 0) size = hf_waiter_format(waiter, sizeof waiter, client, hold->wait, hold->token_ttl_ms, owner);
    if (!hf_names_make(&names, hf_hold_key(hold))) return false;
    hf_slice args[] = {names.key,
                       names.counter,
                       names.queue,
                       names.releases,
                       owner,
                       hf_decimal(grant, hf_lease_ms(client->config.grant_lease)),
                       hf_decimal(to, hold->base),
                       {waiter, size},
                       hold->shared ? hf_decimal(own, hf_hold_own(hold)) : HF_NO_WAITER};
    task->request.once = hold->shared && hf_hold_own(hold) > 0;
    bool encoded = hf_request_call(&task->request, hf_program_leave(hold->layout), 4, sizeof args / sizeof *args, args);
    hf_names_free(&names);
    return encoded;
}

static void leave(hf_client *client, hf_hold *hold, hf_time now) {
    hf_task *task = new_task(client);
    if (!task) {
        hf_holds_wake_at(&client->holds, hold, hf_lease_retry_at(now, hold->valid_until));
        return;
    }
    claim(task, hold);
    if (encode_leave(task)) {
        hf_link link = hold->in_order ? HF_LINK_CALLS : client->config.keeper;
        submit(task, link, leave_done, now + client->config.session.command_timeout, now);
        return;
    }
    hold->busy = false;
    hf_holds_wake_at(&client->holds, hold, hf_lease_retry_at(now, hold->valid_until));
    free_task(task);
}

/* ---- an acquire of a shared owner that was given up ---- */

void hf_keeper_owe(hf_hold *hold, hf_time asked_at) {
    bool first = hold->state != HF_HOLD_HELD && hf_hold_own(hold) == 0;
    if (!hold->shared) return;
    hold->owed++;
    if (first) hold->valid_until = hf_lease_end(asked_at, hold->lease);
}

/* Only the answer tells whether one of the owner's holds is this client's. */
static void on_late_answer(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_task *task = request->context;
    hf_hold *hold = task->holds[0];
    if (reply && hf_reply_integer_at(reply, 0, 0) == 1) hf_keeper_owe(hold, request->sent_at);
    hf_keeper_resume(task->client, hold, now);
    hf_client_hold_is_free(task->client, hold, now);
    free_task(task);
}

bool hf_keeper_await_answer(hf_client *client, hf_hold *hold, hf_request *ask, hf_time now) {
    hf_task *task = new_task(client);
    if (!task) return false;
    if (!hf_session_inherit(&task->request, ask)) {
        free_task(task);
        return false;
    }
    if (hold->state == HF_HOLD_ACQUIRING) hf_keeper_leave_in_order(client, hold, now);
    claim(task, hold);
    task->request.done = on_late_answer;
    task->request.context = task;
    task->request.once = true;
    task->request.deadline = now + time_left(hold, now) / 2; /* the rest is for what comes after it */
    return true;
}

/* ---- the clock ---- */

/* Its lease is over: nothing of it can stand on the server any more. */
static void give_up_leaving(hf_client *client, hf_hold *hold, hf_time now) {
    hf_hold_ref(hold);
    hf_holds_remove(&client->holds, hold);
    hf_client_hold_is_free(client, hold, now);
    hf_hold_unref(hold);
}

static void attend(hf_client *client, hf_hold *hold, hf_time now) {
    if (hold->state == HF_HOLD_HELD && now >= hold->valid_until) {
        hf_client_lose(client, hold, hf_lost_reason_at_end(hold));
    } else if (hold->state == HF_HOLD_LEAVING && now >= hold->valid_until && !hold->busy) {
        give_up_leaving(client, hold, now);
    } else if (hold->busy || (hold->state != HF_HOLD_LEAVING && hold->state != HF_HOLD_HELD)) {
        hf_holds_wake_at(&client->holds, hold, hold->state == HF_HOLD_HELD ? hold->valid_until : HF_NEVER);
    } else if (hold->state == HF_HOLD_LEAVING) {
        leave(client, hold, now);
    } else if ((hold->granted || hold->renewed) && !may_renew(client, hold)) {
        ask_owner(client, hold);
    } else if (hold->granted && !(client->cluster && hold->at_risk)) {
        confirm(client, hold, now);
    } else if (hold->granted || hold->renewed) { /* a slot under migration takes commands with one key only */
        renew_batch(client, hold, now);
    } else {
        hf_holds_wake_at(&client->holds, hold, hold->valid_until);
    }
}

void hf_keeper_tick(hf_client *client, hf_time now) {
    for (hf_hold *hold; (hold = hf_holds_first(&client->holds)) && hold->wake_at <= now;) attend(client, hold, now);
}
