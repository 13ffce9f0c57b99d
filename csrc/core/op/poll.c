#include "op/poll.h"

#include <assert.h>

#include "op/events.h"
#include "op/operation.h"

/* The minimum time to wait for a reply, even if the caller's wait is shorter. */
#define MIN_REPLY_TIMEOUT (100 * HF_MS)
/* Must be shorter than HF_WIRE_NOTE_TTL, because the server recognises a plain semaphore's resent
 * command by its note. */
#define MAX_REPLY_TIMEOUT (1800 * HF_SECOND)
/* How often to poll while the subscription to the channel is not confirmed. */
#define MIN_UNSUBSCRIBED_RECHECK (30 * HF_MS)
#define MAX_UNSUBSCRIBED_RECHECK (200 * HF_MS)

static hf_time command_timeout(const hf_op *op) {
    return op->client->config.session.command_timeout;
}

/* ---- waiting ---- */

static void finish(hf_op *op, hf_time now) {
    const hf_poll_functions *poll = op->impl->poll;
    assert(op->done);
    hf_session_drop(&op->request);
    if (poll->on_end) poll->on_end(op, now);
    hf_op_set_listening(op, false, now);
}

static void fail_interrupted(hf_op *op, hf_time now) {
    hf_op_fail(op, HF_INTERRUPTED, "the wait was interrupted by a signal");
    finish(op, now);
}

static hf_time next_recheck(const hf_op *op, hf_time now) {
    hf_client *client = op->client;
    hf_time interval = client->config.grant_lease;
    if (op->wait.needs_events && op->node->subscribed && !op->impl->poll->accompanies_wait &&
        op->wait.listening != HF_SUBSCRIPTION_CONFIRMED)
        interval = hf_time_min(
            interval, hf_time_min(MAX_UNSUBSCRIBED_RECHECK,
                                  hf_time_max(MIN_UNSUBSCRIBED_RECHECK, (now - op->begun_at) / 4)));
    hf_time recheck_at = now + interval - interval / 10 + hf_jitter(&client->random, interval / 10);
    return op->wait.turn_end > now ? hf_time_min(recheck_at, op->wait.turn_end) : recheck_at;
}

static void ask(hf_op *op, hf_time now);

/* Returns whether the wait ends unless this poll succeeds. */
static bool is_last_poll(const hf_op *op) {
    return op->spec.wait == 0 || op->request.sent_at >= op->wait.until;
}

static void on_failed(hf_op *op, hf_time now) {
    if (op->wait.interrupted && op->failure.code == HF_UNREACHABLE) fail_interrupted(op, now);
    else finish(op, now);
}

/* Returns whether the server kept refusing the command until its deadline while the caller is still
 * willing to wait. */
static bool outlasts_refusals(const hf_op *op, hf_time now) {
    const hf_request *request = &op->request;
    return request->refusals > 0 && request->possible_runs == 0 && request->resend_until > 0 &&
           now < op->wait.until && !op->wait.interrupted;
}

static void on_reply(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    assert(op->state == HF_ACQUIRE_ASKING && !op->done);
    if (!reply && outlasts_refusals(op, now)) {
        ask(op, now);
        return;
    }
    if (!reply) hf_op_fail_with_request(op, request);
    bool satisfied = reply && op->impl->poll->read_reply(op, reply, now);
    if (op->done) {
        on_failed(op, now);
    } else if (satisfied) {
        hf_op_succeed(op);
        finish(op, now);
    } else if (op->wait.interrupted) {
        fail_interrupted(op, now);
    } else if (is_last_poll(op)) {
        op->impl->poll->on_timeout(op);
        finish(op, now);
    } else if (op->wait.woken || now >= op->wait.until) {
        /* the reply may be older than the message or the end of the wait */
        ask(op, now);
    } else {
        if (!op->wait.needs_events && !op->impl->poll->accompanies_wait) op->client->stats.waits++;
        op->wait.recheck_at = next_recheck(op, now);
        hf_op_become(op, HF_ACQUIRE_WAITING);
        hf_op_set_listening(op, true, now);
        op->wait.accepted = op->wait.accepted || op->node->subscribed;
        if (op->node->subscribed) hf_op_listen_to_releases(op, now);
    }
}

/* Returns the deadline of a poll. A wait continues through an outage that begins during it. */
static hf_time poll_deadline(const hf_op *op, bool is_first, hf_time now) {
    hf_time wait_end = hf_time_max(op->wait.until, now + MIN_REPLY_TIMEOUT);
    return is_first ? hf_time_min(wait_end, now + command_timeout(op))
                    : hf_time_min(wait_end, now + MAX_REPLY_TIMEOUT);
}

static void ask(hf_op *op, hf_time now) {
    assert(op->impl->poll && op->impl->wait && !op->done);
    bool is_first = !op->wait.needs_events;
    if (!op->impl->poll->encode(op)) {
        hf_op_fail_out_of_memory(op);
        finish(op, now);
        return;
    }
    hf_op_become(op, HF_ACQUIRE_ASKING);
    op->wait.woken = false;
    if (now >= op->wait.turn_end) op->wait.turn_end = 0;
    op->request.accepted = op->wait.accepted && !op->wait.interrupted;
    hf_time deadline =
        op->spec.wait == 0 ? op->begun_at + command_timeout(op) : poll_deadline(op, is_first, now);
    op->request.resend_until =
        op->spec.wait == 0 ? 0 : hf_time_min(op->wait.until, now + MAX_REPLY_TIMEOUT);
    hf_op_send(op, on_reply, deadline, !is_first, now);
}

void hf_poll_begin(hf_op *op, hf_time now) {
    op->wait.until = hf_time_add(now, op->spec.wait);
    op->wait.recheck_at = HF_NEVER;
    ask(op, now);
}

static bool is_sleeping(const hf_op *op) {
    return op->state == HF_ACQUIRE_WAITING;
}

hf_time hf_poll_next_tick(const hf_op *op) {
    return is_sleeping(op) ? hf_time_min(op->wait.until, op->wait.recheck_at) : HF_NEVER;
}

void hf_poll_tick(hf_op *op, hf_time now) {
    if (now < hf_poll_next_tick(op)) return;
    if (now < op->wait.until && !op->impl->poll->accompanies_wait) op->client->stats.rechecks++;
    ask(op, now);
}

void hf_poll_interrupt(hf_op *op, hf_time now) {
    op->wait.interrupted = true;
    if (is_sleeping(op)) fail_interrupted(op, now);
    else hf_op_limit_request(op, now + MIN_REPLY_TIMEOUT);
}

void hf_poll_abandon(hf_op *op, hf_time now) {
    finish(op, now);
}

/* ---- events ---- */

bool hf_poll_is_waiting(const hf_op *op) {
    return op->wait.needs_events && is_sleeping(op);
}

void hf_poll_again(hf_op *op, hf_time now) {
    op->wait.woken = true;
    if (!is_sleeping(op)) return;
    ask(op, now);
}

void hf_poll_on_recheck(hf_op *op, hf_time delay, hf_time now) {
    (void)delay;
    hf_poll_again(op, now);
}

void hf_poll_after_turn(hf_op *op, hf_time turn, hf_time now) {
    op->wait.turn_end = hf_time_add(now, turn);
    if (is_sleeping(op)) op->wait.recheck_at = hf_time_min(op->wait.recheck_at, op->wait.turn_end);
}

/* Subscribes to the key's channel, and polls at once. The operation polls again when that
 * subscription is confirmed. */
void hf_poll_on_subscribed(hf_op *op, hf_time now) {
    op->wait.accepted = true;
    if (op->wait.listening == HF_SUBSCRIPTION_NONE) hf_op_listen_to_releases(op, now);
    op->impl->wait->on_recheck(op, 0, now);
}

void hf_poll_on_denied(hf_op *op, hf_code code, const char *reason, hf_time now) {
    hf_op_fail(op, code, "%s", reason);
    finish(op, now);
}
