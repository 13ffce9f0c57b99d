/* The acquire operation: ask, and while somebody else has the lock stand in its queue.
 *
 *   ASKING -> DONE                        it was free, or one attempt was all that was asked for
 *   ASKING -> SUBSCRIBING -> ASKING       busy: no place in the queue before our channel is heard
 *   ASKING -> WAITING                     in the queue
 *   WAITING -> DONE                       a grant that is still good
 *   WAITING -> ASKING                     a grant to be confirmed, a nudge, or time to look again
 *   WAITING -> LEAVING -> DONE            the wait is over
 *   SUBSCRIBING -> ASKING                 our channel is heard; or is not, and it is time to look again
 *
 * The hold exists from the start, so that nothing can fail between the server's yes and ours. It is HELD only with a
 * yes that is still valid. Whatever the server may have given us beyond that goes to the keeper to be undone. */
#include <stdlib.h>
#include <string.h>

#include "client_internal.h"
#include "quorum.h"

#define LEAST_PATIENCE (100 * HF_MS) /* a short wait still gives the server this long to answer */
#define LEAST_LOOK (HF_MS)           /* between two looks */
#define MOST_LOOK (30 * HF_SECOND)   /* a third of what a queue lives without a look */
#define CROWD 100                    /* waiters ahead that look every grant lease; those behind look less often */
#define MOST_FOREIGN_LOOK (200 * HF_MS)
#define MOST_HOLDS 1000000000LL /* of one owner, with those of its other processes */
#define MOST_JOINS 3            /* tries to add to a count that others change */

static void ask(hf_op *op, hf_time now);
static void on_answer(hf_request *request, const hf_reply *reply, hf_time now);
static void on_left(hf_request *request, const hf_reply *reply, hf_time now);

/* ---- the end ---- */

static void finish(hf_op *op, hf_time now) {
    op->state = HF_ACQUIRE_DONE;
    op->blocked = false;
    hf_session_drop(&op->request);
    hf_client_listen(op, false, now);
    if (op->dropped > 0) hf_client_abandon(op->client, op->hold, op->dropped, now);
    op->dropped = 0;
}

/* Nothing of this operation stands on the server. */
static void forget(hf_op *op, hf_time now) {
    if (op->hold) hf_keeper_forget(op->client, op->hold, now);
}

/* Whether the keeper waits for the answer to an acquire of a shared owner. */
static bool awaits_answer(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    bool asks = op->state == HF_ACQUIRE_ASKING && op->spec.shared && hold->in_table;
    bool usable = hold->state == HF_HOLD_ACQUIRING || hold->state == HF_HOLD_HELD;
    if (!asks || !usable || HF_DEFECT(DEAF_TO_ANSWER)) return false;
    return hf_keeper_await_answer(op->client, hold, &op->request, now);
}

/* Something of this operation may stand on the server. A re-entry needs no undoing: the next command for this hold
 * sets the count, or tells what to let go of. */
static void undo(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    bool first = hold && hold->in_table && hold->state == HF_HOLD_ACQUIRING && !HF_DEFECT(NO_UNDO);
    if (first && op->queued) {
        hold->wait = op->wait;
        hold->token_ttl_ms = op->spec.token_ttl_ms;
    }
    if (hold && awaits_answer(op, now)) return;
    if (first) hf_keeper_leave_in_order(op->client, hold, now);
    else forget(op, now);
}

/* Nothing but a place in the queue may stand on the server. */
static void give_back(hf_op *op, hf_time now) {
    if (op->queued) undo(op, now);
    else forget(op, now);
}

/* The words for "somebody else has it". */
static void fail_busy(hf_op *op) {
    if (op->busy_ms > 0) {
        hf_op_fail(op, HF_BUSY, "held by another owner, for up to %lld.%03lld s more unless renewed",
                   op->busy_ms / 1000, op->busy_ms % 1000);
    } else {
        hf_op_fail(op, HF_BUSY, "held by another owner");
    }
}

static void end_as(hf_op *op, hf_code code, hf_time now) {
    if (code == HF_BUSY) fail_busy(op);
    else hf_op_fail(op, code, "a signal ended the wait");
    finish(op, now);
}

static void fail_unreachable(hf_op *op, const char *reason, hf_time now) {
    hf_op_fail(op, HF_UNREACHABLE, "%s", reason);
    finish(op, now);
}

/* The lock is ours until `end`; unless that is over already, or the hold that was to be entered again has been lost,
 * and told so, in the meantime. */
static void take(hf_op *op, hf_time end, uint64_t token, bool granted, hf_time now) {
    hf_client *client = op->client;
    hf_hold *hold = op->hold;
    bool usable = hold->state == HF_HOLD_ACQUIRING || hold->state == HF_HOLD_HELD;
    if (now >= end || !usable) {
        op->queued = false;
        undo(op, now);
        hf_op_fail(op, HF_LOST, usable ? "the server answered after the lease had ended" : "it was lost meanwhile");
        finish(op, now);
        return;
    }
    bool first = hold->state == HF_HOLD_ACQUIRING;
    hold->base = first ? op->from : hold->base;
    if (hold->owed > hold->base) hold->owed = hold->base;
    hold->count = op->from + 1 + (HF_DEFECT(COUNT_TWICE) && !first);
    hold->shared = op->spec.shared;
    hold->granted = granted;
    hold->at_risk = false;
    hold->failures = 0;
    hold->renewed = op->spec.renewed || (!first && hold->renewed);
    hold->lease = first ? op->spec.lease : hf_time_max(hold->lease, op->spec.lease);
    hold->valid_until = first ? end : hf_time_max(hold->valid_until, end);
    hold->token_ttl_ms = op->spec.token_ttl_ms;
    hold->wait = 0;
    hold->leftover = false;
    if (first || token > hold->token) hold->token = token; /* the counter of a shared owner's hold was lost */
    hold->state = HF_HOLD_HELD;
    hold->reason = HF_LOST_NOT;
    hf_keeper_resume(client, hold, now);
    if (first) client->stats.acquires++;
    else client->stats.reentries++;
    hf_op_succeed(op);
    finish(op, now);
    hf_client_hold_is_free(client, hold, now);
}

/* ---- asking ---- */

static bool make_waiter(hf_op *op) {
    if (op->waiter) return true;
    size_t size = HF_UUID_SIZE + 64 + op->spec.owner.size;
    op->waiter = malloc(size);
    if (!op->waiter) return false;
    op->wait = ++op->client->last_wait;
    op->waiter_size = hf_waiter_format(op->waiter, size, op->client, op->wait, op->spec.token_ttl_ms, op->spec.owner);
    return true;
}

static bool is_heard(const hf_op *op) {
    return op->events && op->node->subscribed;
}

static bool encode_ask(hf_op *op, bool with_place) {
    const hf_names *names = op->spec.names;
    char grant[24], from[24], lease[24], ttl[24], floor[24];
    hf_slice waiter = with_place ? (hf_slice){op->waiter, op->waiter_size} : HF_NO_WAITER;
    hf_slice args[] = {names->key,
                       names->counter,
                       names->queue,
                       names->releases,
                       op->spec.owner,
                       hf_decimal(grant, hf_lease_ms(op->client->config.grant_lease)),
                       hf_decimal(from, op->from),
                       hf_slice_of(op->spec.shared ? "1" : "0"),
                       hf_decimal(lease, hf_lease_ms(op->spec.lease)),
                       hf_decimal(ttl, op->spec.token_ttl_ms),
                       waiter,
                       op->spec.print,
                       hf_decimal(floor, op->spec.token_floor)};
    size_t optional = op->spec.token_floor > 0 ? 0 : op->spec.layout == HF_LAYOUT_GUARD ? 1 : 2;
    size_t count = sizeof args / sizeof *args - optional;
    return hf_request_call(&op->request, hf_program_acquire(op->spec.layout), 4, count, args) &&
           hf_client_sync(op->client, &op->request);
}

static hf_time ask_deadline(const hf_op *op, hf_time now) {
    const hf_client_config *config = &op->client->config;
    hf_time timeout = config->session.command_timeout, least = LEAST_PATIENCE + config->sync.timeout;
    if (op->queued) return hf_time_max(op->wait_until, now + least);
    if (op->spec.wait == 0) return op->begun_at + timeout;
    return now + hf_time_min(timeout, hf_time_max(op->wait_until > now ? op->wait_until - now : 0, least));
}

static void fail_for_memory(hf_op *op, hf_time now) {
    undo(op, now);
    hf_op_fail(op, HF_NO_MEMORY, "out of memory");
    finish(op, now);
}

static void ask(hf_op *op, hf_time now) {
    bool with_place = op->queued || (op->spec.wait > 0 && is_heard(op));
    if ((with_place && !make_waiter(op)) || !encode_ask(op, with_place)) {
        fail_for_memory(op, now);
        return;
    }
    op->state = HF_ACQUIRE_ASKING;
    op->nudged = false;
    bool patient = op->queued;
    op->request.once = op->spec.shared && op->from > 0;
    op->queued = op->queued || with_place;
    hf_op_send(op, on_answer, ask_deadline(op, now), patient, now);
}

static void leave(hf_op *op, hf_code code, hf_time now) {
    const hf_names *names = op->spec.names;
    char grant[24], to[24];
    op->ended = code;
    if (!op->queued) {
        forget(op, now);
        end_as(op, code, now);
        return;
    }
    hf_slice args[] = {names->key,
                       names->counter,
                       names->queue,
                       names->releases,
                       op->spec.owner,
                       hf_decimal(grant, hf_lease_ms(op->client->config.grant_lease)),
                       hf_decimal(to, op->from),
                       {op->waiter, op->waiter_size},
                       hf_slice_of(op->spec.shared ? "0" : "")};
    if (!hf_request_call(&op->request, hf_program_leave(op->spec.layout), 4, sizeof args / sizeof *args, args)) {
        fail_for_memory(op, now);
        return;
    }
    op->state = HF_ACQUIRE_LEAVING;
    op->request.once = false;
    hf_op_send(op, on_left, now + hf_time_min(HF_SECOND, op->client->config.session.command_timeout), false, now);
}

static void on_left(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (reply) {
        forget(op, now);
        end_as(op, op->ended, now);
        return;
    }
    hf_failure failure = request->failure;
    undo(op, now);
    if (op->ended == HF_BUSY && failure.code == HF_UNREACHABLE) fail_unreachable(op, failure.text, now);
    else end_as(op, op->ended, now);
}

/* ---- answers ---- */

/* When a waiter looks again without a message: when the holder's time is up, one after the other; and often enough to
 * notice a head that looks alive but is not, at a cost that grows with the logarithm of the crowd. */
static hf_time next_look(hf_op *op, long long ttl_ms, long long ahead, hf_time now) {
    hf_client *client = op->client;
    hf_time rank = ahead < 0 ? 0 : hf_time_min((hf_time)ahead, 1000000);
    hf_time at_expiry = ttl_ms < 0 ? HF_NEVER : (hf_time)ttl_ms * HF_MS + HF_MS + hf_time_min(rank, 80) * 5 * HF_MS;
    hf_time often = hf_time_min(client->config.grant_lease * hf_time_max(1, rank / CROWD), MOST_LOOK);
    often = often - often / 10 + hf_jitter(&client->random, often / 10);
    if (HF_DEFECT(BUSY_LOOK)) return now + HF_MS;
    return hf_time_add(now, hf_time_min(at_expiry, often));
}

/* First in line behind a holder that does not hand over: Redisson announces its release, the owner of a mutex does not.
 * In a sharded channel a listener of ours would be taken for one of Redisson's. */
static void watch_foreign(hf_op *op, hf_time now) {
    if (op->spec.layout != HF_LAYOUT_MUTEX && !hf_client_is_sharded(op->client)) {
        hf_client_listen_foreign(op, now);
    } else {
        hf_time random = HF_MS + hf_jitter(&op->client->random, MOST_FOREIGN_LOOK);
        op->recheck_at = hf_time_min(op->recheck_at, now + random);
    }
}

/* A grant whose lease ended before this look cost us our place; its message may still be on its way. */
static void note_place(hf_op *op, bool kept) {
    if (!op->queued) return;
    bool looked_before = op->stood || op->request.sends > 1;
    if (looked_before && !kept && !HF_DEFECT(STALE_GRANT)) op->displaced = true;
    op->stood = true;
}

static void on_busy(hf_op *op, const hf_reply *reply, hf_time now) {
    long long ttl_ms = hf_reply_integer_at(reply, 1, 0), ahead = hf_reply_integer_at(reply, 2, 0);
    op->busy_ms = ttl_ms;
    op->known_waiting_at = op->request.sent_at;
    note_place(op, hf_reply_integer_at(reply, 4, 0) == 1);
    if (op->interrupted) {
        leave(op, HF_INTERRUPTED, now);
    } else if (now >= op->wait_until && !HF_DEFECT(NO_END_OF_WAIT)) {
        leave(op, HF_BUSY, now);
    } else if (!op->queued || !is_heard(op)) {
        if (!op->events) op->client->stats.waits++;
        op->state = HF_ACQUIRE_SUBSCRIBING;
        op->recheck_at = next_look(op, ttl_ms, ahead, now);
        hf_client_listen(op, true, now);
        if (op->node->subscribed) ask(op, now);
    } else {
        op->state = HF_ACQUIRE_WAITING;
        op->recheck_at = next_look(op, ttl_ms, ahead, now);
        if (ahead == 0 && hf_reply_integer_at(reply, 3, 0) == 1) watch_foreign(op, now);
        if (op->nudged) hf_acquire_on_nudge(op, now);
    }
}

/* A lock that cannot be entered twice stands under this owner's name: another process has it, as far as can be told. */
static void on_same_name(hf_op *op, hf_time now) {
    give_back(op, now);
    hf_op_fail(op, HF_BUSY, "another process holds it under this owner's name, and it cannot be entered twice");
    finish(op, now);
}

/* Another process holds it under the same owner: this is one more hold of that. */
static void on_shared(hf_op *op, long long count, hf_time now) {
    if (count < 1 || count >= MOST_HOLDS || ++op->joins > MOST_JOINS) {
        give_back(op, now);
        hf_op_fail(op, HF_BUSY, "another process of this owner changes its holds at the same time");
        finish(op, now);
        return;
    }
    hf_hold *hold = op->hold;
    if (hold->state == HF_HOLD_HELD) hf_hold_rebase(hold, (uint32_t)count);
    op->from = (uint32_t)count;
    ask(op, now);
}

static void on_gone(hf_op *op, hf_lost_reason reason, hf_time now) {
    hf_hold *hold = op->hold;
    if (hold->state == HF_HOLD_ACQUIRING) { /* the owner's other process let go in between */
        op->from = 0;
        ask(op, now);
        return;
    }
    if (hold->state == HF_HOLD_HELD) hf_client_lose(op->client, hold, reason);
    forget(op, now);
    hf_op_fail(op, HF_LOST, "this owner's hold is gone (%s)", hf_lost_reason_name(reason));
    finish(op, now);
}

static void on_failed(hf_op *op, const hf_failure *failure, hf_time now) {
    if (op->request.sends == 0 && !op->queued) forget(op, now);
    else undo(op, now);
    if (op->interrupted && failure->code == HF_UNREACHABLE) {
        end_as(op, HF_INTERRUPTED, now);
        return;
    }
    hf_op_fail(op, failure->code, "%s", failure->text);
    finish(op, now);
}

static void on_endless(hf_op *op, hf_time now) {
    undo(op, now);
    hf_op_fail(op, HF_CONFLICT, "the key is a hash without a TTL, which is not a lock");
    finish(op, now);
}

/* A guard's key tells of a run that has ended. */
static void on_done_before(hf_op *op, const hf_reply *reply, hf_time now) {
    hf_slice record = hf_reply_string_at(reply, 1);
    op->record = malloc(record.size + 1);
    if (!op->record) {
        fail_for_memory(op, now);
        return;
    }
    memcpy(op->record, record.data, record.size);
    op->record_size = record.size;
    forget(op, now);
    hf_op_fail(op, HF_DUPLICATE, "it was done already");
    finish(op, now);
}

static void on_mismatch(hf_op *op, hf_time now) {
    give_back(op, now);
    hf_op_fail(op, HF_MISMATCH, "the key belongs to a request with another fingerprint");
    finish(op, now);
}

static void fail_unconfirmed(hf_op *op, hf_time now) {
    hf_keeper_owe(op->hold, op->request.sent_at);
    undo(op, now);
    hf_op_fail_unconfirmed(op);
    finish(op, now);
}

static bool is_sound(const hf_op *op, long long token, long long others) {
    return token >= 0 && others >= 0 && others < MOST_HOLDS - (long long)op->from;
}

static void on_answer(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    long long status = hf_reply_integer_at(reply, 0, 99), number = hf_reply_integer_at(reply, 1, 0);
    long long others = hf_reply_integer_at(reply, 2, 0);
    if (!reply) {
        hf_failure failure = request->failure;
        on_failed(op, &failure, now);
    } else if (status == 1 && !hf_request_is_confirmed(request)) {
        fail_unconfirmed(op, now);
    } else if (status == 1 && is_sound(op, number, others)) {
        op->server_us = hf_reply_integer_at(reply, 3, 0);
        op->from += (uint32_t)others;
        hf_time asked_at = HF_DEFECT(LEASE_FROM_REPLY) ? now : request->sent_at;
        take(op, hf_lease_end(asked_at, op->spec.lease), (uint64_t)number, false, now);
    } else if (status == 0) {
        on_busy(op, reply, now);
    } else if (status == 2 && op->spec.layout != HF_LAYOUT_LOCK) {
        on_same_name(op, now);
    } else if (status == 2) {
        on_shared(op, number, now);
    } else if (status == -1 || status == -2) {
        on_gone(op, hf_lost_reason_of(status), now);
    } else if (status == 3) {
        on_done_before(op, reply, now);
    } else if (status == 4) {
        on_mismatch(op, now);
    } else if (status == -3) {
        on_endless(op, now);
    } else {
        undo(op, now);
        hf_op_fail(op, HF_SERVER, "a reply that this program never gives");
        finish(op, now);
    }
}

/* ---- beginning ---- */

bool hf_acquire_choose_hold(hf_op *op, hf_time now) {
    hf_client *client = op->client;
    hf_hold *hold = hf_holds_find(&client->holds, op->spec.layout, op->spec.names->key, op->spec.owner);
    if (hold) hf_client_look_at(client, hold, now);
    if (hold && hold->state == HF_HOLD_LOST) {
        hf_holds_remove(&client->holds, hold);
        hold = NULL;
    }
    if (hold && hold->state == HF_HOLD_HELD && op->spec.layout != HF_LAYOUT_LOCK) {
        hf_op_fail(op, HF_BUSY, "this owner holds it already, and it cannot be entered twice");
        return false;
    }
    bool under_way = hold && (hold->state == HF_HOLD_ACQUIRING || hold->state == HF_HOLD_RELEASING);
    if (under_way && !(client->is_member && hold->busy)) {
        hf_op_fail(op, HF_BUSY, "another call of this owner for this key is under way");
        return false;
    }
    if (!hold) hold = hf_holds_add(&client->holds, op->spec.layout, op->spec.names->key, op->spec.owner);
    if (!hold) {
        hf_op_fail(op, HF_NO_MEMORY, "out of memory");
        return false;
    }
    hf_hold_ref(hold);
    op->hold = hold;
    return true;
}

static void start(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    if (hold->state == HF_HOLD_LEAVING) { /* its leftover is adopted */
        hold->state = HF_HOLD_ACQUIRING;
        hold->leftover = true;
    }
    hold->in_order = false;
    if (hold->state == HF_HOLD_ACQUIRING) {
        hold->owed = hf_hold_own(hold);
        hold->count = hold->base = 0;
        hold->shared = op->spec.shared;
        hold->lease = hf_time_max(hold->lease, op->spec.lease);
    }
    op->from = hold->state == HF_HOLD_HELD ? hold->count : 0;
    hold->busy = true;
    hf_holds_wake_at(&op->client->holds, hold, hold->state == HF_HOLD_HELD ? hold->valid_until : HF_NEVER);
    if (op->spec.wait > 0 && op->node->subscribed) hf_client_listen(op, true, now);
    ask(op, now);
}

/* A leftover can be adopted, but not with a place in the queue, which would stay there beside the new one, nor with
 * holds that may be another process's, nor while it could still be left behind the acquire. */
static bool must_be_left_first(const hf_op *op) {
    const hf_hold *hold = op->hold;
    return hold->state == HF_HOLD_LEAVING && (op->spec.shared || hold->wait > 0 || hold->astray);
}

static void start_or_block(hf_op *op, hf_time now) {
    if (op->hold->busy || must_be_left_first(op)) {
        op->blocked = true;
        op->state = HF_ACQUIRE_BLOCKED;
    } else {
        start(op, now);
    }
}

void hf_acquire_begin(hf_op *op, hf_time now) {
    op->wait_until = hf_time_add(now, op->spec.wait);
    op->recheck_at = HF_NEVER;
    if (hf_acquire_choose_hold(op, now)) {
        start_or_block(op, now);
    } else {
        op->state = HF_ACQUIRE_DONE;
    }
}

void hf_acquire_unblock(hf_op *op, hf_time now) {
    hf_hold_unref(op->hold);
    op->hold = NULL;
    if (hf_acquire_choose_hold(op, now)) start_or_block(op, now);
    else finish(op, now);
}

/* ---- events ---- */

void hf_acquire_on_subscribed(hf_op *op, hf_time now) {
    if (HF_DEFECT(NO_LOOK_SUBSCRIBED)) return;
    op->nudged = true; /* the answer under way may be older than the subscription */
    if (op->state == HF_ACQUIRE_SUBSCRIBING || op->state == HF_ACQUIRE_WAITING) ask(op, now);
}

/* The grant began after the last look that found us waiting was sent, so it is good for at least its lease from then;
 * a short lease of the lock's own ends before. */
void hf_acquire_on_grant(hf_op *op, uint64_t token, hf_time grant_lease, hf_time now) {
    op->client->stats.grants++;
    op->nudged = true; /* the answer under way may be older than the grant */
    if (op->state != HF_ACQUIRE_WAITING || HF_DEFECT(DEAF)) return;
    hf_time lease = hf_time_min(grant_lease, op->client->config.grant_lease);
    hf_time end = hf_time_min(hf_lease_end(op->known_waiting_at, lease), hf_lease_end(now, op->spec.lease));
    if (HF_DEFECT(GRANT_UNBOUND)) end = hf_lease_end(now, lease);
    bool needs_token = op->spec.token_ttl_ms > 0 && token == 0;
    bool needs_print = op->spec.layout == HF_LAYOUT_GUARD && op->spec.print.size > 0; /* only the program writes it */
    lease = hf_time_min(lease, op->spec.lease);
    bool more = needs_token || needs_print || op->client->config.sync.replicas > 0;
    if (more || op->displaced || now >= end || end - now < lease / 8) ask(op, now);
    else take(op, end, token, true, now);
}

void hf_acquire_on_turn(hf_op *op, hf_time turn, hf_time now) {
    op->nudged = true;
    if (op->state != HF_ACQUIRE_WAITING) return;
    op->recheck_at = hf_time_min(op->recheck_at, now + turn + HF_MS);
    hf_client_listen_foreign(op, now);
}

void hf_acquire_on_nudge(hf_op *op, hf_time now) {
    op->nudged = true;
    if (op->state != HF_ACQUIRE_WAITING) return;
    op->recheck_at = hf_time_min(op->recheck_at, hf_time_max(now, op->known_waiting_at + LEAST_LOOK));
}

void hf_acquire_on_denied(hf_op *op, hf_code code, const char *reason, hf_time now) {
    undo(op, now);
    hf_op_fail(op, code, "%s", reason);
    finish(op, now);
}

void hf_op_interrupt(hf_op *op, hf_time now) {
    if (op->done || op->spec.kind != HF_OP_ACQUIRE) return;
    if (op->client->quorum) {
        hf_ballot_interrupt(op, now);
        return;
    }
    op->interrupted = true;
    if (op->state == HF_ACQUIRE_WAITING || op->state == HF_ACQUIRE_SUBSCRIBING) {
        leave(op, HF_INTERRUPTED, now);
    } else if (op->state == HF_ACQUIRE_ASKING) {
        op->request.deadline = hf_time_min(op->request.deadline, now + LEAST_PATIENCE);
    } else if (op->state == HF_ACQUIRE_BLOCKED) {
        end_as(op, HF_INTERRUPTED, now);
    }
}

/* ---- time ---- */

hf_time hf_op_deadline(const hf_op *op) {
    if (op->client->quorum) return hf_ballot_deadline(op);
    if (op->done) return HF_NEVER;
    hf_time in_time = op->begun_at + op->client->config.session.command_timeout;
    if (op->spec.kind != HF_OP_ACQUIRE) return op->blocked ? in_time : HF_NEVER;
    switch (op->state) {
    case HF_ACQUIRE_BLOCKED: return hf_time_max(op->wait_until, in_time);
    case HF_ACQUIRE_SUBSCRIBING:
    case HF_ACQUIRE_WAITING: return hf_time_min(op->wait_until, op->recheck_at);
    default: return HF_NEVER;
    }
}

/* A link that is down says little, servers close idle ones; one that could not be made again says that nobody is there.
 */
static void end_wait(hf_op *op, hf_time now) {
    const hf_session *calls = &op->node->links[HF_LINK_CALLS], *events = &op->node->links[HF_LINK_EVENTS];
    const hf_session *refused = calls->vain_opens > 0 ? calls : events;
    if (calls->state != HF_SESSION_CLOSED || refused->vain_opens == 0 || !refused->reason[0]) {
        leave(op, HF_BUSY, now);
        return;
    }
    undo(op, now);
    fail_unreachable(op, refused->reason, now);
}

void hf_acquire_tick(hf_op *op, hf_time now) {
    if (now < hf_op_deadline(op)) return;
    if (op->state == HF_ACQUIRE_BLOCKED) {
        op->blocked = false;
        hf_op_fail(op, HF_UNREACHABLE, "an earlier command for this key got no reply");
        finish(op, now);
    } else if (now >= op->wait_until && !HF_DEFECT(NO_END_OF_WAIT)) {
        end_wait(op, now);
    } else {
        op->client->stats.rechecks++;
        ask(op, now);
    }
}

void hf_acquire_give_up(hf_op *op, hf_time now) {
    bool sent = op->state != HF_ACQUIRE_BLOCKED;
    if (sent) undo(op, now);
    finish(op, now);
}
