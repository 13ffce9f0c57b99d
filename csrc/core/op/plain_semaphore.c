/* The server does not know a permit's owner, so a permit that nobody releases remains taken. The
 * renewer settles each call whose reply was lost: it undoes an acquire and carries out a release.
 * Each call has a note on the server, so it takes effect once, no matter how often or how late its
 * commands run. After the reply to a command that was sent only once, no copy of it can arrive, so
 * the note is deleted.
 *
 * A message reaches all waiters of a client, but the permits may be enough for only a few. The
 * waiters therefore poll in the order in which they began: each one wakes the next waiter for which
 * the remaining permits are enough. */
#include "lock/wire.h"
#include "op/leave.h"
#include "op/operation.h"
#include "op/poll.h"

#define SETTLE_TIME (HF_WIRE_NOTE_TTL / 2) /* how long to try to settle a call */
#define ANY_COUNT (-1)
#define MIN_TURN_MS 50 /* equals the programs' LISTEN_MS */

/* Leaves a permit to Redisson's waiters for the remaining `ms` of their turn, plus 1 ms because the
 * programs count in whole ms. */
static void wait_out_turn(hf_op *op, long long ms, hf_time now) {
    hf_poll_after_turn(op, hf_time_of_ms((uint64_t)ms + 1), now);
}

/* Returns whether `other` is an unfinished acquire of the same semaphore. */
static bool is_rival(const hf_op *op, const hf_op *other) {
    return other->impl == op->impl && !other->done && other->node == op->node &&
           hf_slice_equal(other->spec.names->key, op->spec.names->key);
}

/* ---- settling ---- */

/* Makes the renewer undo the call if `must_undo`, else carry it out. No-op when out of memory. */
static void settle(hf_op *op, bool must_undo, hf_time now) {
    char owner[HF_OWNER_SIZE];
    hf_claim *claim = hf_client_add_claim(op->client, op->spec.lock_kind, op->spec.names->key,
                                          hf_op_owner(op, owner));
    if (!claim) return;
    claim->leave.undoes_acquire = must_undo;
    claim->leave.amount = must_undo ? 0 : (int32_t)(int64_t)op->spec.value;
    claim->lease = SETTLE_TIME;
    hf_renewer_clean_up_on_same_connection(op->client, claim, now);
}

static void forget_note(hf_op *op) {
    char owner[HF_OWNER_SIZE];
    if (op->semaphore.in_doubt) return;
    hf_wire_lock lock = hf_op_wire_lock(op, hf_op_owner(op, owner));
    hf_request forget = {0};
    if (hf_wire_forget_note(&forget, &lock)) hf_session_piggyback(op->request.session, &forget);
    hf_request_clear(&forget);
}

static bool encode(hf_op *op) {
    char owner[HF_OWNER_SIZE];
    hf_wire_lock lock = hf_op_wire_lock(op, hf_op_owner(op, owner));
    bool ends_turn = op->semaphore.ends_turn;
    op->semaphore.ends_turn = op->semaphore.answered = false;
    return hf_wire_call_with_note(&op->request, &lock, hf_op_rows[op->spec.kind].verb,
                                  (int64_t)op->spec.value, HF_WIRE_NOTE_TTL, ends_turn);
}

/* Records that the reply has arrived. If the command was sent twice, the server may still run the
 * other copy. */
static void record_reply(hf_op *op) {
    op->semaphore.answered = true;
    op->semaphore.in_doubt = op->semaphore.in_doubt || op->request.possible_runs > 1;
}

static bool may_have_run(const hf_op *op) {
    return op->semaphore.in_doubt || (!op->semaphore.answered && op->request.possible_runs > 0);
}

static bool has_succeeded(const hf_op *op) {
    return op->done && op->failure.code == HF_OK;
}

static void undo(hf_op *op, hf_time now) {
    if (!has_succeeded(op) && may_have_run(op)) settle(op, true, now);
}

/* After a success, gives the permits back if no caller took the result, else deletes the note. */
static void end_taking(hf_op *op, hf_time now) {
    if (!has_succeeded(op)) return;
    if (!op->result.taken) settle(op, true, now);
    else forget_note(op);
}

/* ---- taking ---- */

/* Wakes the client's next waiter that needs at most `count` permits; ANY_COUNT for any waiter. */
static void pass_on(const hf_op *op, long long count, hf_time now) {
    for (hf_op *other = op->next; other; other = other->next) {
        bool enough = count == ANY_COUNT || (long long)other->spec.value <= count;
        if (!enough || !is_rival(op, other)) continue;
        if (!op->client->closed) hf_poll_again(other, now);
        return;
    }
}

/* The reply is { 1 or 0, the number of free permits[, for how many ms a permit not counted in it is
 * reserved for Redisson's clients] }. */
static bool read_take_reply(hf_op *op, const hf_reply *reply, hf_time now) {
    bool taken = hf_reply_integer_at(reply, 0, 0) == 1;
    long long others_turn_ms = hf_reply_integer_at(reply, 2, 0);
    if (others_turn_ms > 0) wait_out_turn(op, others_turn_ms, now);
    record_reply(op);
    op->result.value = hf_reply_integer_at(reply, 1, 0);
    if (!taken) pass_on(op, op->result.value, now);
    return taken;
}

static void fail_on_timeout(hf_op *op) {
    hf_op_fail(op, HF_BUSY, "too few permits are free (%lld of the %llu requested)",
               op->result.value > 0 ? op->result.value : 0, (unsigned long long)op->spec.value);
}

/* Undoes a failed acquire. Wakes the next waiter if this one has not polled since the last message,
 * or was leaving a permit to others. After a success, wakes the next waiter for which the remaining
 * permits are enough. */
static void on_take_ended(hf_op *op, hf_time now) {
    bool polled = op->semaphore.answered && !op->wait.woken && op->wait.turn_end == 0;
    undo(op, now);
    if (!polled) pass_on(op, ANY_COUNT, now);
    else if (has_succeeded(op)) pass_on(op, op->result.value, now);
}

/* Returns whether an older waiter of this client must poll first. That waiter then passes on the
 * permits that it does not need. */
static bool is_behind(const hf_op *op) {
    const hf_op *other = op->client->ops;
    while (other != op && !(other->wait.needs_events && is_rival(op, other))) other = other->next;
    return other != op;
}

static void on_recheck(hf_op *op, hf_time delay, hf_time now) {
    (void)delay;
    if (!is_behind(op)) hf_poll_again(op, now);
}

/* A message is the number of free permits. A leading 0 begins a turn of Redisson's waiters: one
 * permit is left to them. Any other message during a turn comes from a release by one of them, so
 * they have had their turn. */
static void on_release_message(hf_op *op, hf_slice message, hf_time now) {
    bool begins_turn = message.size > 1 && message.data[0] == '0';
    bool only_one = begins_turn && hf_slice_equal(message, hf_slice_of("01"));
    if (is_behind(op)) return;
    op->semaphore.ends_turn = !begins_turn && op->wait.turn_end > now;
    if (begins_turn) wait_out_turn(op, MIN_TURN_MS, now);
    else op->wait.turn_end = 0;
    if (!only_one) hf_poll_again(op, now);
}

static const hf_wait_functions wait_functions = {
    HF_POLL_WAIT_FUNCTIONS(on_recheck),
    .on_release_message = on_release_message,
};
static const hf_poll_functions poll_functions = {encode, read_take_reply, fail_on_timeout,
                                                 on_take_ended, false};

/* ---- calls ---- */

static void read_value(hf_op *op, const hf_reply *reply) {
    record_reply(op);
    op->result.value = reply->integer;
    hf_op_succeed(op);
}

static void on_drained(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (reply) {
        read_value(op, reply);
    } else {
        hf_op_fail_with_request(op, request);
        undo(op, now);
    }
}

static void begin_drain(hf_op *op, hf_time now) {
    hf_op_run(op, encode(op), on_drained, now);
}

static void abandon_drain(hf_op *op, hf_time now) {
    hf_session_drop(&op->request);
    undo(op, now);
}

/* Returns whether the call adds permits. The caller may have acquired them earlier, so a refusal
 * must not lose them. */
static bool adds_permits(const hf_op *op) {
    return (int64_t)op->spec.value > 0;
}

static void on_given(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (reply) {
        read_value(op, reply);
        return;
    }
    hf_code code = request->failure.code;
    bool continues = request->possible_runs > 0 || code == HF_UNREACHABLE ||
                     (code == HF_DENIED && adds_permits(op));
    if (continues) settle(op, false, now);
    hf_op_fail(op, request->failure.code, "%s%s", hf_fault_text(&request->failure),
               continues ? "; the call continues in the background, so do not repeat it" : "");
}

static void begin_give(hf_op *op, hf_time now) {
    op->request.accepted = adds_permits(op);
    hf_op_run(op, encode(op), on_given, now);
}

static void abandon_give(hf_op *op, hf_time now) {
    hf_session_drop(&op->request);
    settle(op, false, now);
}

static void end_giving(hf_op *op, hf_time now) {
    (void)now;
    if (has_succeeded(op)) forget_note(op);
}

/* ---- the implementation ---- */

const hf_op_impl hf_take_impl = {
    .verb = "acquire",
    .settles_later = true,
    .wait = &wait_functions,
    .poll = &poll_functions,
    HF_POLL_FUNCTIONS,
    .end = end_taking,
};

const hf_op_impl hf_drain_impl = {
    .verb = "drain",
    .settles_later = true,
    .begin = begin_drain,
    .abandon = abandon_drain,
    .end = end_taking,
};

const hf_op_impl hf_give_impl = {
    .verb = "change the permits of",
    .settles_later = true,
    .begin = begin_give,
    .abandon = abandon_give,
    .end = end_giving,
};
